package volume

import (
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// declared is one option of one rule.
type declared struct {
	option string
	rule   rule
}

// merged is what a volume's list becomes.
type merged struct {
	options []string
	// carried are the options that stand in the list because a profile declares them, by profile.
	carried map[string][]string
	// kept are differences in which the volume's own value won.
	kept []mountoptions.Difference
	// conflicts name options for which profiles of equal priority want different values.
	conflicts []string
	// problems say why mount would refuse the list.
	problems []string
}

// memory keeps results: thousands of volumes share a few lists.
type memory map[string]merged

// merge is mergeRules, remembered.
func (m memory) merge(base, current []string, rules []rule, class []string) merged {
	const field, entry = "\x00", "\x01"
	var key strings.Builder
	for _, list := range [][]string{base, current, class} {
		key.WriteString(strings.Join(list, entry) + field)
	}
	for _, r := range rules {
		key.WriteString(r.profile.name + entry + r.Name + field)
	}
	result, known := m[key.String()]
	if !known {
		result = mergeRules(base, current, rules, class)
		m[key.String()] = result
	}
	return result
}

// mergeRules lays the rules' options over base, the volume's own list. Rules come by precedence. For an option about
// which profiles of equal priority disagree, what is in force stays: the option as current has it, or none.
func mergeRules(base, current []string, rules []rule, class []string) merged {
	winners, disputed := settle(rules)
	out := merged{options: slices.Clone(base), carried: map[string][]string{}}
	for _, d := range disputed {
		out.conflicts = append(out.conflicts, d.message)
		out.options = mountoptions.Merge(out.options, rivals(current, d.option), v1alpha1.ConflictUseProfile, nil).Options
	}
	for _, group := range byRule(winners) {
		result := mountoptions.Merge(out.options, group.options, group.rule.OnConflict, class)
		for _, o := range result.Options {
			if !slices.Contains(out.options, o) || slices.Contains(group.options, o) {
				name := group.rule.profile.name
				out.carried[name] = append(out.carried[name], o)
			}
		}
		out.options, out.kept = result.Options, append(out.kept, result.Kept...)
	}
	out.problems = newProblems(base, out.options)
	return out
}

// newProblems are what is wrong with a list and was not with the volume's own.
func newProblems(base, options []string) []string {
	before := mountoptions.Validate(mountoptions.NFS, base)
	var problems []string
	for _, p := range mountoptions.Validate(mountoptions.NFS, options) {
		if !p.Warning && !slices.Contains(before, p) {
			problems = append(problems, p.Option+": "+p.Message)
		}
	}
	return problems
}

type dispute struct {
	option  string
	message string
}

// settle decides option by option between the rules. What a rule has left after those before it is found by the same
// merge that volumes get, so that an actimeo still sets the timers that nobody before it has set.
func settle(rules []rule) (winners []declared, disputed []dispute) {
	for _, r := range rules {
		var undisputed []string
		for _, option := range r.options() {
			if slices.ContainsFunc(disputed, func(d dispute) bool { return sameKey(d.option, option) }) {
				continue
			}
			peer := slices.IndexFunc(winners, func(w declared) bool { return equalRank(w.rule, r) && differ(w.option, option) })
			if peer < 0 {
				undisputed = append(undisputed, option)
				continue
			}
			w := winners[peer]
			disputed = append(disputed, dispute{option: w.option,
				message: fmt.Sprintf("%s (%s) against %s (%s)", w.option, w.rule.profile.name, option, r.profile.name)})
			winners = slices.DeleteFunc(winners, func(w declared) bool { return sameKey(w.option, option) })
		}
		before := optionsOf(winners)
		for _, option := range mountoptions.Merge(before, undisputed, v1alpha1.ConflictKeepVolume, nil).Options {
			if !slices.Contains(before, option) {
				winners = append(winners, declared{option: option, rule: r})
			}
		}
	}
	return winners, disputed
}

func optionsOf(list []declared) []string {
	var options []string
	for _, d := range list {
		options = append(options, d.option)
	}
	return options
}

// equalRank says whether neither rule has the last word: two profiles of one priority.
func equalRank(a, b rule) bool {
	return a.profile.name != b.profile.name && a.profile.spec.Priority == b.profile.spec.Priority
}

// sameKey says whether two options set the same thing, by the one definition that the merge itself has.
func sameKey(a, b string) bool {
	return a == b || differ(a, b) || !mountoptions.Merge([]string{a}, []string{b}, v1alpha1.ConflictKeepVolume, nil).Changed
}

func differ(a, b string) bool {
	return len(mountoptions.Merge([]string{a}, []string{b}, v1alpha1.ConflictKeepVolume, nil).Kept) > 0
}

// rivals are the options of a list that set the same thing as the given one.
func rivals(list []string, option string) []string {
	var out []string
	for _, o := range list {
		if sameKey(o, option) {
			out = append(out, o)
		}
	}
	return out
}

type ruleOptions struct {
	rule    rule
	options []string
}

func byRule(options []declared) []ruleOptions {
	var groups []ruleOptions
	for _, d := range options {
		last := len(groups) - 1
		if last < 0 || groups[last].rule.VolumeRule != d.rule.VolumeRule {
			groups = append(groups, ruleOptions{rule: d.rule})
			last++
		}
		groups[last].options = append(groups[last].options, d.option)
	}
	return groups
}
