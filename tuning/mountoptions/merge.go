package mountoptions

import (
	"cmp"
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
	// Replaced are options of the volume whose value was replaced, one for each value.
	Replaced []string
	// Changed reports whether Options differs from the current options of the volume.
	Changed bool
}

// Merge merges the desired options into the current options of a volume. Missing options are appended at the end. If the volume has
// another value, the policy decides; a new value takes the position of the old value. Synonyms keep their spelling, and options that
// have no desired value are unchanged.
//
// The merged options mean the same in their order and sorted:
//   - Each value is decided on its own: if the volume keeps a timer, the four timers replace actimeo.
//   - Options that a later option overrides are removed.
//   - The result contains at most one version, and no contradicting numbers of channels.
//
// A value that cannot take effect next to the other options of the volume is left out.
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

// AreRelated reports whether two options can affect each other.
func (p Protocol) AreRelated(a, b string) bool {
	t := tableOf(p)
	return t.groupOf(parseOne(a)) == t.groupOf(parseOne(b))
}

func (t *table) withoutRejected(options []Option) []Option {
	return slices.DeleteFunc(options, func(o Option) bool { return t.rejectionReason(o) != "" })
}

func (t *table) merge(current []string, want []Option, policy v1alpha1.ConflictPolicy, class []string) MergeResult {
	existing := Parse(current)
	if len(want) == 0 {
		return MergeResult{Options: current}
	}
	m := &merger{table: t, list: t.oneVersion(t.withoutRepetition(existing)), policy: policy, class: t.resolve(Parse(class))}
	for _, group := range lists.AddMissing(nil, lists.Each(want, t.groupOf)...) {
		m.mergeGroup(group, t.inGroup(want, group))
	}
	if slices.Equal(m.list, existing) {
		return MergeResult{Options: current, Skipped: m.skipped}
	}
	return MergeResult{Options: texts(m.list), Skipped: m.skipped, Replaced: m.replaced, Changed: true}
}

type merger struct {
	*table
	list     []Option
	policy   v1alpha1.ConflictPolicy
	class    map[string]string
	skipped  []Difference
	replaced []string
}

// withoutRepetition removes repeated options. Of SMB's timers, the first one may count: actimeo has no effect after a timer.
func (t *table) withoutRepetition(options []Option) []Option {
	list, state := lastOfEach(options), t.resolve(options)
	if !maps.Equal(t.resolve(list), state) {
		return t.replaceGroup(list, groupCache, t.writeCache(t.resolve(t.inGroup(options, groupCache))))
	}
	return list
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

func (m *merger) keepExisting(key, wanted, value, reason string) {
	m.skipped = append(m.skipped, Difference{Option: key, Desired: wanted, Observed: value, Message: reason})
}

// PolicyKeepsValue is the message of a Difference if the policy keeps the value of the volume.
const PolicyKeepsValue = "the volume keeps its value"

// mergeGroup merges the options of one group: it decides each key, and writes options for the resulting state.
func (m *merger) mergeGroup(group string, wanted []Option) {
	existing := m.inGroup(m.list, group)
	have, want := m.resolve(existing), m.resolve(wanted)
	merged := m.decideGroup(have, want, wanted, existing)
	for _, key := range m.orderedKeys(want) {
		value := want[key]
		before, isSet := merged[key]
		switch {
		case isSet && (before == value || wanted[0].Name == flagMultichannel && len(wanted) == 1 && number(before) > 1):
		case !isSet || m.mayReplace(key, before):
			merged[key] = value
		default:
			m.keepExisting(key, value, before, PolicyKeepsValue)
		}
	}
	dropDefaultLock(merged)
	list, expressible := m.write(group, merged, existing, wanted)
	if !expressible {
		sorted := m.resolve(sortOptions(existing))
		for _, key := range m.orderedKeys(want) {
			if value := want[key]; merged[key] == value && sorted[key] != value {
				m.keepExisting(key, value, sorted[key], "it has no effect next to the other options of the volume")
			}
		}
		return
	}
	m.list = list
	for _, key := range m.orderedKeys(have) {
		if value, isSet := merged[key]; !isSet || value != have[key] {
			m.replaced = append(m.replaced, m.optionOf(key, have[key]).String())
		}
	}
}

// orderedKeys returns the keys of a state, timers last and in output order.
func (t *table) orderedKeys(state map[string]string) []string {
	return slices.SortedFunc(maps.Keys(state), func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Index(t.Timers, a), slices.Index(t.Timers, b)), cmp.Compare(a, b))
	})
}

// decideGroup decides between options that set several keys: nolock, and noac, which excludes timers. It removes desired values that lose, and
// returns the state of the volume without the values that they replace.
func (m *merger) decideGroup(have, want map[string]string, wanted, existing []Option) map[string]string {
	isOfCache := func(key, _ string) bool { return key == keyCache || slices.Contains(m.Timers, key) }
	isTimer := func(key, _ string) bool { return slices.Contains(m.Timers, key) }
	merged, turnsOff := maps.Clone(have), want[keyCache] == flagNoac
	if turnsOff {
		maps.DeleteFunc(want, isTimer)
	}
	switch lock, isOff := have[keyLock], have[keyCache] == flagNoac; {
	case want[keyLock] != "" && lock != "" && lock != want[keyLock] && !m.mayReplace(keyLock, lock):
		m.keepExisting(keyLock, want[keyLock], lock, PolicyKeepsValue)
		clear(want)
	case want[keyLock] == flagNolock:
		want[keyLocalLock] = localLocks[flagNolock] // local_lock cannot change it in a sorted list
	case turnsOff && !isOff:
		for _, key := range slices.Sorted(maps.Keys(have)) {
			if !isOfCache(key, "") || m.mayReplace(key, have[key]) {
				continue
			}
			m.keepExisting(keyCache, flagNoac, m.optionOf(key, have[key]).String(), PolicyKeepsValue)
			clear(want)
			maps.Copy(want, m.resolve(m.withoutCache(wanted)))
			maps.DeleteFunc(want, isTimer)
			return merged
		}
		maps.DeleteFunc(merged, isTimer)
	case isOff && !turnsOff && slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(key string) bool { return isOfCache(key, "") }):
		if m.mayReplace(keyCache, flagNoac) {
			return m.resolve(m.withoutCache(existing))
		}
		for _, o := range wanted {
			if key := m.keyOf(o); key == keyActimeo || isOfCache(key, "") {
				m.keepExisting(o.Name, cmp.Or(o.Value, o.Name), flagNoac, PolicyKeepsValue)
			}
		}
		maps.DeleteFunc(want, isOfCache)
	}
	return merged
}

// withoutCache removes ac and noac.
func (t *table) withoutCache(options []Option) []Option {
	return lists.Filter(options, func(o Option) bool { return t.keyOf(o) != keyCache })
}

// write returns the list with options of a group that come to the given state. It prefers the volume's spelling, then the profile's. expressible
// is false if no options come to the state in any order.
func (m *merger) write(group string, state map[string]string, existing, wanted []Option) (list []Option, expressible bool) {
	candidates := [][]Option{existing, m.lastOfKeys(existing)}
	if group != groupCache {
		ofKey := lists.Filter(wanted, func(o Option) bool { return m.keyOf(o) == group })
		candidates = append(candidates, lastOfEach(ofKey), m.lastOfKeys(ofKey))
	}
	for _, options := range append(candidates, m.canonical(group, state, existing)) {
		for _, list := range [][]Option{m.replaceGroup(m.list, group, options), append(m.replaceGroup(m.list, group, nil), options...)} {
			written := m.inGroup(list, group)
			if m.isUnique(written) && maps.Equal(m.resolve(written), state) && maps.Equal(m.resolve(sortOptions(written)), state) {
				return list, true
			}
		}
	}
	return nil, false
}

// lastOfKeys returns the last option of each key.
func (t *table) lastOfKeys(options []Option) (out []Option) {
	for i, o := range options {
		if !slices.ContainsFunc(options[i+1:], func(later Option) bool { return t.keyOf(later) == t.keyOf(o) }) {
			out = append(out, o)
		}
	}
	return out
}

// isUnique reports whether each option has its own key, apart from multichannel with max_channels.
func (t *table) isUnique(options []Option) bool {
	return len(t.lastOfKeys(options)) == len(options) || t.keyOf(options[0]) == keyChannels && len(checkTwice(t, options)) == 0
}

// canonical returns the shortest options for the state of a group. Their order does not matter, but sec comes before sign.
func (t *table) canonical(group string, state map[string]string, existing []Option) (out []Option) {
	switch lock := state[keyLocalLock]; {
	case group == groupCache:
		if sync := (Option{Name: keySync}); state[keyCache] == flagNoac && slices.Contains(existing, sync) {
			out = append(out, sync)
		}
		return append(out, t.writeCache(state)...)
	case group == keyLock && state[keyLock] == flagNolock:
		return []Option{{Name: flagNolock}}
	case group == keyLock && lock != "" && lock != localLocks[keyLock]:
		return []Option{t.optionOf(keyLocalLock, lock)}
	}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		out = append(out, t.optionOf(key, state[key]))
	}
	return out
}

// writeCache returns options for a state of the attribute cache. The order of these options does not matter.
func (t *table) writeCache(state map[string]string) []Option {
	var options []Option
	if value, ok := state[keyCache]; ok {
		options = append(options, t.optionOf(keyCache, value))
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
	options = append(options, set...)
	if value, ok := state[keySync]; ok && state[keyCache] != flagNoac {
		options = append(options, t.optionOf(keySync, value))
	}
	return options
}

// sortOptions sorts options in the same way as the kubelet's NFS plugin.
func sortOptions(options []Option) []Option {
	list := texts(options)
	slices.Sort(list)
	return Parse(list)
}
