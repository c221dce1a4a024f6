package mountoptions

import (
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
)

// MergeResult is the result of merging options into the mount options of a volume.
type MergeResult struct {
	// Options are the merged options.
	Options []string
	// Skipped contains the options for which the volume's value was kept, and the options that would weaken the volume.
	Skipped []Difference
	// Changed reports whether Options differs from the current options of the volume.
	Changed bool
}

// Merge merges the desired options into the current options of a volume. Missing options are appended at the end. If the volume has
// another value, the policy decides; a new value takes the position of the old value. Synonyms keep their spelling, and options that
// have no desired value are unchanged.
//
// The merged options mean the same in their order and sorted:
//   - If the volume keeps a timer, the four timers replace actimeo.
//   - Options that a later option overrides are removed.
//   - The result contains at most one version.
//
// Merge omits desired options that Validate rejects for every volume. It also omits options that would weaken the volume, regardless
// of the policy: see protection. class contains the options of the volume's StorageClass, for UseProfileOverClass.
func (p Protocol) Merge(current, wanted []string, policy v1alpha1.ConflictPolicy, class []string) MergeResult {
	return p.MergeProtected(nil, current, wanted, policy, class)
}

// MergeProtected is Merge for a volume that always has the given options, in addition to its mount options. Their
// protection is not weakened either.
func (p Protocol) MergeProtected(protected, current, wanted []string, policy v1alpha1.ConflictPolicy, class []string) MergeResult {
	t := tableOf(p)
	want, weaker := t.withoutWeaker(Parse(slices.Concat(protected, current)), t.withoutRejected(Parse(wanted)))
	result := t.merge(current, want, policy, class)
	result.Skipped = append(weaker, result.Skipped...)
	return result
}

// Join merges two sets of declared options; the first set has priority. It does not check protections because there is
// no volume that the options could weaken.
func (p Protocol) Join(first, second []string) MergeResult {
	t := tableOf(p)
	return t.merge(first, t.withoutRejected(Parse(second)), v1alpha1.ConflictKeepVolume, nil)
}

func (t *table) withoutRejected(options []Option) []Option {
	return slices.DeleteFunc(options, func(o Option) bool { return t.rejectionReason(o) != "" })
}

func (t *table) merge(current []string, want []Option, policy v1alpha1.ConflictPolicy, class []string) MergeResult {
	existing := Parse(current)
	if len(want) == 0 {
		return MergeResult{Options: current}
	}
	m := &merger{table: t, list: t.oneVersion(lastOfEach(existing)), policy: policy, class: t.resolve(Parse(class))}
	done := map[string]bool{}
	for _, o := range want {
		group := t.groupOf(o)
		if done[group] {
			continue
		}
		done[group] = true
		if group == groupCache {
			m.mergeCache(t.inGroup(want, group))
		} else {
			m.mergeOne(group, t.inGroup(want, group))
		}
	}
	if slices.Equal(m.list, existing) {
		return MergeResult{Options: current, Skipped: m.skipped}
	}
	return MergeResult{Options: texts(m.list), Skipped: m.skipped, Changed: true}
}

type merger struct {
	*table
	list    []Option
	policy  v1alpha1.ConflictPolicy
	class   map[string]string
	skipped []Difference
}

// lastOfEach removes repeated options. It keeps the last one, which wins both in order and sorted.
func lastOfEach(options []Option) (out []Option) {
	for i, o := range options {
		if !slices.Contains(options[i+1:], o) {
			out = append(out, o)
		}
	}
	return out
}

// oneVersion removes all versions except the effective one from options that mount would reject.
func (t *table) oneVersion(options []Option) []Option {
	versions := t.inGroup(options, keyVersion)
	if !t.OneVersionOnly || len(checkVersions(t, versions)) == 0 {
		return options
	}
	version := Option{Name: keyVersion, Value: t.resolve(versions)[keyVersion], HasValue: true}
	if last := versions[len(versions)-1]; t.resolve([]Option{last})[keyVersion] == version.Value && t.keyOf(last) == keyVersion {
		version = last
	}
	return t.replaceGroup(options, keyVersion, []Option{version})
}

func (t *table) inGroup(options []Option, group string) []Option {
	return lists.Filter(options, func(o Option) bool { return t.groupOf(o) == group })
}

// replaceGroup replaces the options of one group in a list. Options that the list already contains keep their position.
// The others take the position of the first removed option, or the end.
func (t *table) replaceGroup(list []Option, group string, options []Option) []Option {
	var out []Option
	gap := -1
	missing := slices.Clone(options)
	for _, o := range list {
		if t.groupOf(o) != group {
			out = append(out, o)
			continue
		}
		if i := slices.Index(missing, o); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
			out = append(out, o)
		} else if gap < 0 {
			gap = len(out)
		}
	}
	if gap < 0 {
		gap = len(out)
	}
	return slices.Insert(out, gap, missing...)
}

// mayReplace reports whether the policy lets the profile replace a value of the volume.
func (m *merger) mayReplace(key, value string) bool {
	switch m.policy {
	case v1alpha1.ConflictUseProfile:
		return true
	case v1alpha1.ConflictUseProfileOverClass:
		fromClass, ok := m.class[key]
		return ok && fromClass == value
	default:
		return false
	}
}

func (m *merger) keepExisting(key, wanted, value string) {
	m.skipped = append(m.skipped, Difference{Option: key, Desired: wanted, Observed: value, Message: "the volume keeps its value"})
}

// mergeOne merges the options of one key; the last option wins.
func (m *merger) mergeOne(key string, wanted []Option) {
	existing := m.inGroup(m.list, key)
	want, have := m.resolve(wanted)[key], m.resolve(existing)[key]
	option := wanted[len(wanted)-1]
	if key == keyVersion && (m.keyOf(option) == keyMinorVersion || len(wanted) > 1) {
		option = Option{Name: keyVersion, Value: want, HasValue: true}
	}
	switch {
	case len(existing) == 0:
		m.list = append(m.list, option)
	case have != want && m.mayReplace(key, have):
		m.list = m.replaceGroup(m.list, key, []Option{option})
	default:
		if have != want {
			m.keepExisting(key, want, have)
		}
		if !m.OneVersionOnly || key != keyVersion {
			m.list = m.replaceGroup(m.list, key, existing[len(existing)-1:])
		}
	}
}

// mergeCache merges the timers, actimeo (which sets all timers), and noac (which disables them).
func (m *merger) mergeCache(wanted []Option) {
	existing := m.inGroup(m.list, groupCache)
	have, want := m.resolve(existing), m.resolve(wanted)
	merged := maps.Clone(have)
	switch {
	case want[keyCache] == flagNoac:
		m.turnCacheOff(merged)
	case have[keyCache] != flagNoac || m.mayReplace(keyCache, flagNoac):
		m.mergeTimers(merged, want)
	default:
		for _, o := range wanted {
			m.keepExisting(o.Name, o.Value, flagNoac)
		}
	}
	if maps.Equal(merged, have) && maps.Equal(have, m.resolve(sortOptions(existing))) {
		return
	}
	m.list = m.replaceGroup(m.list, groupCache, m.writeCache(merged))
}

// turnCacheOff replaces the cache options of the volume with noac, or leaves all of them unchanged.
func (m *merger) turnCacheOff(merged map[string]string) {
	if merged[keyCache] == flagNoac {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		if !m.mayReplace(key, merged[key]) {
			m.keepExisting(keyCache, flagNoac, key+"="+merged[key])
			return
		}
	}
	clear(merged)
	merged[keyCache] = flagNoac
}

func (m *merger) mergeTimers(merged, want map[string]string) {
	if merged[keyCache] == flagNoac {
		delete(merged, keyCache)
	}
	if value, ok := want[keyCache]; ok {
		merged[keyCache] = value
	}
	for _, timer := range m.Timers {
		value, wanted := want[timer]
		existing, ok := merged[timer]
		switch {
		case !wanted || ok && existing == value:
		case !ok || m.mayReplace(timer, existing):
			merged[timer] = value
		default:
			m.keepExisting(timer, value, existing)
		}
	}
}

// writeCache returns options for a state of the attribute cache. The order of these options does not matter.
func (t *table) writeCache(state map[string]string) []Option {
	var options []Option
	if value, ok := state[keyCache]; ok {
		options = append(options, Option{Name: value})
	}
	var set []Option
	same := true
	for _, timer := range t.Timers {
		value, ok := state[timer]
		same = same && ok && value == state[t.Timers[0]]
		if ok {
			set = append(set, Option{Name: timer, Value: value, HasValue: true})
		}
	}
	if same {
		set = []Option{{Name: keyActimeo, Value: state[t.Timers[0]], HasValue: true}}
	}
	return append(options, set...)
}

// sortOptions sorts options in the same way as the kubelet's NFS plugin.
func sortOptions(options []Option) []Option {
	list := texts(options)
	slices.Sort(list)
	return Parse(list)
}
