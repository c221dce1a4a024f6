package judge

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// hashOfSet names a set of options: what rules declare for a volume and who mounts it, nothing else that their profiles say. What works,
// or does not, for one volume of a set says something of the others. To give a rule another name makes it another set.
func hashOfSet(source Source, rules []rule, nconnectInForce bool) string {
	parts := []string{source.Driver, string(source.Protocol), source.FSType}
	for _, r := range rules {
		options := r.options()
		if nconnectInForce {
			options = slices.DeleteFunc(options, setsNconnect)
		}
		parts = append(parts, r.profile.Name, r.Name, strings.Join(options, ","))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// ruleNames are the rules of a set, as profile/rule.
func ruleNames(rules []rule) []string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.profile.Name + "/" + r.Name
	}
	return names
}

func isOfProfile(ruleNames []string, profile string) bool {
	return slices.ContainsFunc(ruleNames, func(name string) bool { return strings.HasPrefix(name, profile+"/") })
}

// profilesOfRules are the names of the profiles of rules.
func profilesOfRules(ruleNames []string) []string {
	names := make([]string, 0, len(ruleNames))
	for _, name := range ruleNames {
		profile, _, _ := strings.Cut(name, "/")
		names = append(names, profile)
	}
	return names
}

// Declare says whether the set of options that failed on a volume is still declared, for whichever volumes.
func (ps *Profiles) Declare(failed *FailedMount, pv *corev1.PersistentVolume) bool {
	return failed != nil && ps.declares(failed, SourceOf(pv))
}

func (ps *Profiles) declares(failed *FailedMount, source Source) bool {
	var rules []rule
	for _, name := range failed.Rules {
		r, found := ps.findRule(name)
		if !found {
			return false
		}
		rules = append(rules, r)
	}
	if ps.isSetOf(failed, source, rules) {
		return true
	}
	if !slices.ContainsFunc(rules, rule.follows) {
		return false
	}
	for _, class := range ps.classes {
		if ps.isSetOf(failed, source, followClass(source.Options(), class, rules)) {
			return true
		}
	}
	return false
}

func (ps *Profiles) isSetOf(failed *FailedMount, source Source, rules []rule) bool {
	return failed.Set == hashOfSet(source, rules, false) || failed.Set == hashOfSet(source, rules, true)
}

// findRule finds the rule of a profile that is not being deleted, by profile/rule.
func (ps *Profiles) findRule(name string) (rule, bool) {
	profile, ruleName, _ := strings.Cut(name, "/")
	p := ps.Get(profile)
	if p == nil || p.Deleting {
		return rule{}, false
	}
	for i := range p.spec.Volumes {
		if p.spec.Volumes[i].Name == ruleName {
			return rule{VolumeRule: &p.spec.Volumes[i], profile: p}, true
		}
	}
	return rule{}, false
}
