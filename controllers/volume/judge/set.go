package judge

import (
	"slices"
	"strings"

	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// hashOfSet identifies an option set by the driver, protocol and file system of the volume, and by the name and the options of each rule. Other
// fields of the profiles do not count. A result for one volume of a set applies to the others.
func hashOfSet(source Source, rules []rule, keepsNconnect bool) string {
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
func SetOf(source Source, set string, rules []string) *optionset.Record {
	return &optionset.Record{Identity: optionset.Identity{
		Set: set, Rules: rules, Driver: source.Driver, Protocol: source.Protocol, FSType: source.FSType,
	}}
}

// Declare reports whether rules still declare an option set, for any volume.
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
	if isSetOf(set.Set, source, rules) {
		return true
	}
	if !slices.ContainsFunc(rules, rule.follows) {
		return false
	}
	for _, class := range ps.classes {
		if isSetOf(set.Set, source, followClass(source.Options(), class, rules)) {
			return true
		}
	}
	return false
}

func isSetOf(set string, source Source, rules []rule) bool {
	return set == hashOfSet(source, rules, false) || set == hashOfSet(source, rules, true)
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
