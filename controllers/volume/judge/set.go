package judge

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// hashOfSet identifies an option set by the driver, protocol and file system of the volume, the names of the rules, and the resulting values of
// all options that the rules affect. Other options of the volume do not count. A result for one volume of a set applies to the others.
func hashOfSet(source Source, ruleNames, values []string) string {
	identity := []string{source.Driver, string(source.Protocol), source.FSType}
	return text.Hash(strings.Join(slices.Concat(identity, ruleNames, []string{""}, values), "\x00"), 6)
}

// SetWith returns the option set of a volume if it has other mount options. Empty if no rule selects it.
func (v Verdict) SetWith(pv *corev1.PersistentVolume, options []string) string {
	if v.Set == "" {
		return ""
	}
	t := targetOf(pv)
	return hashOfSet(t.Source(), v.Rules, t.options.Values(t.PassedOptions(options), v.affected))
}

// hashOfRules identifies rules by the driver, protocol and file system of the volume, and by the name and the options of each rule. The previous
// release identifies an option set by it.
func hashOfRules(source Source, rules []rule, keepsNconnect bool) string {
	parts := []string{source.Driver, string(source.Protocol), source.FSType}
	for _, r := range rules {
		options := r.options()
		if keepsNconnect {
			options = slices.DeleteFunc(options, setsNconnect)
		}
		parts = append(parts, r.profile.Name, r.Name, strings.Join(options, ","))
	}
	return text.Hash(strings.Join(parts, "\x00"), 6)
}

func ruleNames(rules []rule) []string {
	return lists.Each(rules, func(r rule) string { return r.profile.Name + "/" + r.Name })
}

func profilesOfRules(ruleNames []string) []string {
	return lists.Each(ruleNames, func(name string) string { return strings.SplitN(name, "/", 2)[0] })
}

// SetOf returns an empty record of an option set.
func SetOf(source Source, set, ruleSet string, rules []string) *optionset.Record {
	return &optionset.Record{Identity: optionset.Identity{
		Set: set, RuleSet: ruleSet, Rules: rules, Driver: source.Driver, Protocol: source.Protocol, FSType: source.FSType,
	}}
}

// Declare reports whether the rules of an option set are unchanged. They then declare it for some volume, or did so with another onConflict.
func (ps *Profiles) Declare(set *optionset.Record) bool {
	var rules []rule
	for _, name := range set.Rules {
		r, found := ps.findRule(name)
		if !found {
			return false
		}
		rules = append(rules, r)
	}
	source := Source{Driver: set.Driver, Protocol: set.Protocol, FSType: set.FSType}
	if isRuleSetOf(set.RuleSet, source, rules) {
		return true
	}
	if !slices.ContainsFunc(rules, rule.follows) {
		return false
	}
	for _, class := range ps.classes {
		if isRuleSetOf(set.RuleSet, source, followClass(source.Options(), class, rules)) {
			return true
		}
	}
	return false
}

func isRuleSetOf(ruleSet string, source Source, rules []rule) bool {
	return ruleSet == hashOfRules(source, rules, false) || ruleSet == hashOfRules(source, rules, true)
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
