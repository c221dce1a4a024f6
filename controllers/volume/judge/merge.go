package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// declaredValue is one value that a rule declares. See mountoptions.Setting.
type declaredValue struct {
	option, source string
	rule           rule
}

type merged struct {
	options []string
	// carried are the resulting options that a profile declares, by profile.
	carried map[string][]string
	// readAhead is the rule that sets the read-ahead window of the volume's mounts. Nil if there is none, or if rules of equal rank disagree.
	readAhead *rule
	// keptValues are the differences in which the original value won.
	keptValues []keptValue
	// conflicts describe options for which profiles of equal priority declare different values.
	conflicts []string
	// setByDriver are declared options that the driver sets on its own. The result omits them.
	setByDriver []string
	// problems explain why mount would reject the options, or why the driver would change them.
	problems []string
	// affected are all options that a rule declares, takes from the class or removes. values are the resulting values of all settings that these options affect.
	affected, values []string
	// replaced are the options of the class that rules with UseProfileOverClass replaced, by profile. Nil if no value of the volume is replaced.
	replaced map[string][]string
	// ownProblems explain why mount rejects options of the volume that stay.
	ownProblems []string
}

func (m merged) allCarried() []string {
	return slices.Concat(lists.Each(slices.Sorted(maps.Keys(m.carried)), func(name string) []string { return m.carried[name] })...)
}

// keptValue is a difference in which the original value won over a profile, with the policy of the profile's rule.
type keptValue struct {
	mountoptions.Difference
	profile    string
	onConflict v1alpha1.ConflictPolicy
}

// String returns both values and the reason why the original one won.
func (k keptValue) String() string {
	reason := k.Message
	if reason == mountoptions.PolicyKeepsValue {
		reason = fmt.Sprintf("onConflict: %s", k.onConflict)
	}
	return fmt.Sprintf("%s stays %s (profile wants %s; %s)", k.Option, cmp.Or(k.Observed, "unset"), k.Desired, reason)
}

// maxMerged limits the memory use of a manager that runs for months.
const maxMerged = 10_000

// mergeOnce is mergeRules with a cache: thousands of volumes share a few lists. Callers must not change the result.
func (ps *Profiles) mergeOnce(t target, base, current []string, rules []rule, class replaceable) merged {
	const field, entry = "\x00", "\x01"
	var key strings.Builder
	for _, list := range [][]string{t.cacheKey(), base, current, class.options, class.unrecorded} {
		key.WriteString(strings.Join(list, entry) + field)
	}
	for _, r := range rules {
		key.WriteString(r.profile.Name + entry + r.Name + entry + strings.Join(class.replaced[r.profile.Name], entry) + field)
	}
	return ps.merges.Share(key.String(), func() merged { return mergeRules(t, base, current, rules, class) })
}

// mergeRules merges the rules' options into base, the original mount options. If anything changes, each option gets a separate entry. Rules
// are sorted by precedence. If profiles of equal priority, or volumes of one server, disagree about an option, it keeps its value in current,
// or stays unset. Exception: a current value that is weaker than the original one does not stay. Earlier releases wrote such values.
func mergeRules(t target, base, current []string, rules []rule, class replaceable) merged {
	winners, disputed, conflicts := t.decideWinners(rules)
	original, current := mountoptions.SplitOptions(base), mountoptions.SplitOptions(current)
	out := merged{options: t.keepCurrentValue(slices.Clone(original), current, disputed...), carried: map[string][]string{}, conflicts: conflicts}
	before := class.byProfile(t, original, current, rules)
	out.replaced = t.disputedReplaced(before, rules, disputed)
	if rejection := t.Source().NconnectRejection(); t.keepsNconnect || rejection != "" {
		for _, w := range winners {
			switch {
			case !setsNconnect(w.option):
			case rejection != "":
				out.keptValues = append(out.keptValues, keptValue{mountoptions.Difference{Option: "nconnect", Desired: strings.TrimPrefix(w.option, "nconnect="),
					Observed: nconnectOf(original), Message: rejection, Weaker: true}, w.rule.profile.Name, w.rule.OnConflict})
			default:
				out.options = t.keepCurrentValue(out.options, current, w.option)
			}
		}
		winners = slices.DeleteFunc(winners, func(w declaredValue) bool { return setsNconnect(w.option) })
	}
	groups, rejected := groupByRule(winners), out.keptValues
	for range 2 { // a value may become possible once another rule has replaced one of the volume: local_lock=all lets nolock in
		out.keptValues, out.setByDriver = slices.Clone(rejected), nil
		for _, group := range groups {
			replaceable := slices.Concat(class.options, before[group.rule.profile.Name])
			if group.rule.follows() {
				replaceable = original
			}
			out.mergeRule(t, group, replaceable)
		}
	}
	for _, group := range groups {
		out.dropReplaced(t.options, group)
	}
	var dispute string
	if out.readAhead, dispute = readAheadOf(rules); dispute != "" {
		out.conflicts = append(out.conflicts, dispute)
	}
	out.problems = append(t.newProblems(original, out.options), t.lostByDriver(original, out)...)
	staying := mountoptions.SplitOptions(t.PassedOptions(out.options))
	problems := t.options.Refused(mountoptions.SplitOptions(t.PassedOptions(original)))
	stays := func(p mountoptions.Problem) bool { return slices.Contains(staying, p.Option) }
	out.ownProblems = lists.Each(lists.Filter(problems, stays), problemText)
	out.affected = slices.DeleteFunc(slices.Clone(original), func(o string) bool { return slices.Contains(out.options, o) })
	for _, r := range rules {
		out.affected = append(out.affected, r.options()...)
	}
	out.values = t.options.Values(t.PassedOptions(out.options), out.affected)
	if slices.Equal(out.options, original) {
		out.options = slices.Clone(base)
	}
	return out
}

// mergeRule merges the options of a rule.
func (m *merged) mergeRule(t target, group ruleOptions, replaceable []string) {
	name := group.rule.profile.Name
	desired, setByDriver := t.options.WithoutDriverVersion(group.options, t.PassedOptions(nil))
	m.setByDriver = append(m.setByDriver, setByDriver...)
	result := t.options.MergeProtected(t.ProtectedOptions(), m.options, desired, group.rule.OnConflict, replaceable)
	m.recordReplaced(group.rule, result.Replaced)
	for _, o := range result.Options {
		if !slices.Contains(m.options, o) || slices.Contains(desired, o) {
			m.carried[name] = lists.AddMissing(m.carried[name], o)
		}
	}
	m.options = result.Options
	for _, difference := range result.Skipped {
		m.keptValues = append(m.keptValues, keptValue{difference, name, group.rule.OnConflict})
	}
}

// dropReplaced removes carried options that a later profile has replaced. A profile that has set one timer carries the other timers of actimeo too.
func (m merged) dropReplaced(p mountoptions.Protocol, group ruleOptions) {
	isSet := func(o string) bool { return slices.Contains(m.options, o) }
	if carried, carries := m.carried[group.rule.profile.Name]; carries {
		m.carried[group.rule.profile.Name] = lists.AddMissing(lists.Filter(carried, func(o string) bool {
			return isSet(o) || len(p.Compare([]string{o}, m.options)) == 0
		}), lists.Filter(group.options, isSet)...)
	}
}

// keepCurrentValue sets options of a list to their values in current.
func (t target) keepCurrentValue(list, current []string, options ...string) []string {
	return t.options.MergeProtected(t.ProtectedOptions(), list, t.rivalsIn(current, options...), v1alpha1.ConflictUseProfile, nil).Options
}

// nconnectOf returns the number of connections in mount options. Unset if they have none.
func nconnectOf(options []string) string {
	if n, isSet := mountoptions.NFS.Nconnect(options); isSet {
		return strconv.Itoa(n)
	}
	return "unset"
}

func setsNconnect(option string) bool { return strings.HasPrefix(option, "nconnect=") }

// readAheadOf returns the first rule that declares a read-ahead window. If another rule of equal rank declares a different one, it returns nil
// and describes the dispute.
func readAheadOf(rules []rule) (first *rule, dispute string) {
	for i := range rules {
		switch r := &rules[i]; {
		case r.ReadAheadKiB == nil:
		case first == nil:
			first = r
		case haveEqualRank(*first, *r) && *first.ReadAheadKiB != *r.ReadAheadKiB:
			return nil, fmt.Sprintf("readAheadKiB %d (%s) against %d (%s)", *first.ReadAheadKiB, first.profile.Name, *r.ReadAheadKiB, r.profile.Name)
		}
	}
	return first, ""
}

// newProblems returns the problems of a list that the original mount options do not have.
func (t target) newProblems(base, options []string) []string {
	before := mountoptions.Validate(t.options, base)
	isNew := func(p mountoptions.Problem) bool { return !p.Warning && !slices.Contains(before, p) }
	return lists.Each(lists.Filter(mountoptions.Validate(t.options, options), isNew), problemText)
}

// lostByDriver returns the options of a merge result that the driver would change, if they are declared or new.
func (t target) lostByDriver(base []string, m merged) []string {
	return lists.Each(lists.Filter(t.Check(t.options, m.options), func(p mountoptions.Problem) bool {
		return !slices.Contains(base, p.Option) || slices.Contains(m.allCarried(), p.Option)
	}), problemText)
}

func problemText(p mountoptions.Problem) string { return p.Option + ": " + p.Message }

// decideWinners selects the winning rule for each value. disputed are values about which profiles of equal priority disagree, and conflicts the
// messages. A dispute is about these values alone: an actimeo still sets the other timers.
func (t target) decideWinners(rules []rule) (winners []declaredValue, disputed, conflicts []string) {
	for _, peers := range lists.Group(rules, func(r rule) int32 { return r.profile.spec.Priority }) {
		declared := t.declaredBy(peers, winners, disputed)
		options, messages := t.disputesAmong(declared)
		disputed, conflicts = append(disputed, options...), append(conflicts, messages...)
		first := len(winners)
		for _, d := range declared {
			isEqual := func(w declaredValue) bool { return t.isSameKey(w.option, d.option) }
			if equal := slices.IndexFunc(winners[first:], isEqual); t.isAbout(d.option, options) {
				continue
			} else if equal < 0 {
				winners = append(winners, d)
			} else if winners[first+equal].isWeaker(d) {
				winners[first+equal] = d
			}
		}
	}
	return winners, disputed, conflicts
}

// declaredBy returns the values that rules of equal priority declare. It leaves out values of rules with a higher priority, and of an earlier rule
// of the same profile.
func (t target) declaredBy(rules []rule, winners []declaredValue, disputed []string) (out []declaredValue) {
	for _, r := range rules {
		for _, s := range t.options.Settings(r.options()) {
			isSame := func(w declaredValue) bool { return t.isSameKey(w.option, s.Option) }
			isEarlier := func(w declaredValue) bool {
				return w.rule.profile.Name == r.profile.Name && w.rule.VolumeRule != r.VolumeRule && isSame(w)
			}
			if !slices.ContainsFunc(winners, isSame) && !slices.ContainsFunc(out, isEarlier) && !t.isAbout(s.Option, disputed) {
				out = append(out, declaredValue{s.Option, s.Source, r})
			}
		}
	}
	return out
}

// disputesAmong returns the values that disagree, and one message for each of them.
func (t target) disputesAmong(all []declaredValue) (disputed, messages []string) {
	for i, b := range all {
		for _, a := range all[:i] {
			if !haveEqualRank(a.rule, b.rule) || !t.isRival(a.option, b.option) {
				continue
			}
			if !t.isAbout(b.option, disputed) {
				message := fmt.Sprintf("%s (%s) against %s (%s)", a.source, a.rule.profile.Name, b.source, b.rule.profile.Name)
				messages = lists.AddMissing(messages, message)
			}
			disputed = append(disputed, a.option, b.option)
		}
	}
	return disputed, messages
}

// isWeaker reports whether another profile of equal priority declares the same value, and its rule decides: it replaces more values of volumes.
// Between equal rules, the spelling decides, not the name of the profile.
func (d declaredValue) isWeaker(than declaredValue) bool {
	return cmp.Or(cmp.Compare(than.rule.strength(), d.rule.strength()), cmp.Compare(d.option, than.option)) > 0
}

// strength ranks rules by the values of volumes that they replace.
func (r rule) strength() int {
	switch {
	case r.OnConflict == v1alpha1.ConflictKeepVolume:
		return 0
	case r.replacesClass():
		return 1
	}
	return 2
}

// haveEqualRank reports whether neither rule takes precedence: they belong to two profiles of one priority.
func haveEqualRank(a, b rule) bool {
	return a.profile.Name != b.profile.Name && a.profile.spec.Priority == b.profile.spec.Priority
}

// compare reports whether two options set the same thing, as the merge defines it, and whether the values differ. An option that includes another
// one, as noac includes sync, sets more.
func (t target) compare(a, b string) (isSame, differs bool) {
	if !t.options.AreRelated(a, b) {
		return false, false
	}
	first, second := t.options.Join([]string{a}, []string{b}), t.options.Join([]string{b}, []string{a})
	differs = len(first.Skipped)+len(second.Skipped) > 0
	return differs || !first.Changed && !second.Changed, differs
}

func (t target) isSameKey(a, b string) bool { isSame, _ := t.compare(a, b); return isSame }
func (t target) isRival(a, b string) bool   { _, differs := t.compare(a, b); return differs }

// isAbout reports whether an option sets the same thing as any of the given ones.
func (t target) isAbout(option string, options []string) bool {
	return slices.ContainsFunc(options, func(o string) bool { return t.isSameKey(o, option) })
}

// rivalsIn returns the values in a list that set the same thing as the given options.
func (t target) rivalsIn(list []string, options ...string) []string {
	return lists.Pick(t.options.Settings(list), func(s mountoptions.Setting) (string, bool) {
		return s.Option, slices.ContainsFunc(options, func(o string) bool { return t.isSameKey(s.Option, o) })
	})
}

// contains reports whether a list already sets the value of an option.
func (t target) contains(list []string, option string) bool {
	return t.options.Has(list, []string{option})
}

type ruleOptions struct {
	rule    rule
	options []string
}

func groupByRule(options []declaredValue) []ruleOptions {
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
