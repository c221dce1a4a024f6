package mountoptions

import (
	"maps"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// MergeResult is what became of a volume's options.
type MergeResult struct {
	// Options is the merged list.
	Options []string
	// Kept are the options in which the volume's own value stood against the profile's, and those that would make it weaker.
	Kept []Difference
	// Changed is true where Options is not the list that the volume has.
	Changed bool
}

// Merge brings the wanted options into a volume's current ones. What the volume does not say is added at the end; where
// it says something else, the policy decides, and what is replaced is replaced in its place. Options that say the same
// under another name stay as they are written, and so does everything that no wanted option is about.
//
// The result means the same in order and sorted, as far as the wanted options go: actimeo is written out as the four
// timers where the volume keeps one of its own, and what is overridden within the list is left out. It never has more
// than one version. Wanted options that Validate refuses to every volume are left out, and whatever the policy says those that
// would make the volume weaker: see protection. class are the options of the volume's StorageClass, for UseProfileOverClass.
func (p Protocol) Merge(current, wanted []string, policy v1alpha1.ConflictPolicy, class []string) MergeResult {
	return p.MergeBeside(nil, current, wanted, policy, class)
}

// MergeBeside is Merge for a volume that is mounted with given options whatever its list says: what they protect is not made
// weaker either.
func (p Protocol) MergeBeside(given, current, wanted []string, policy v1alpha1.ConflictPolicy, class []string) MergeResult {
	t := tableOf(p)
	want, weaker := t.withoutWeaker(Parse(slices.Concat(given, current)), t.withoutRefused(Parse(wanted)))
	result := t.merge(current, want, policy, class)
	result.Kept = append(weaker, result.Kept...)
	return result
}

// Join lays declared options over declared ones, of which the first go before. Nothing is kept from them: there is no volume
// that they could make weaker.
func (p Protocol) Join(first, second []string) MergeResult {
	t := tableOf(p)
	return t.merge(first, t.withoutRefused(Parse(second)), v1alpha1.ConflictKeepVolume, nil)
}

func (t *table) withoutRefused(options []Option) []Option {
	return slices.DeleteFunc(options, func(o Option) bool { return t.refusal(o) != "" })
}

func (t *table) merge(current []string, want []Option, policy v1alpha1.ConflictPolicy, class []string) MergeResult {
	own := Parse(current)
	if len(want) == 0 {
		return MergeResult{Options: current}
	}
	m := &merger{table: t, list: t.oneVersion(lastOfEach(own)), policy: policy, class: t.resolve(Parse(class))}
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
	if slices.Equal(m.list, own) {
		return MergeResult{Options: current, Kept: m.kept}
	}
	return MergeResult{Options: texts(m.list), Kept: m.kept, Changed: true}
}

// Merge is Protocol.Merge of NFS.
func Merge(current, wanted []string, policy v1alpha1.ConflictPolicy, class []string) MergeResult {
	return NFS.Merge(current, wanted, policy, class)
}

type merger struct {
	*table
	list   []Option
	policy v1alpha1.ConflictPolicy
	class  map[string]string
	kept   []Difference
}

// lastOfEach drops repetitions. The last one stays: that is the one that counts, in order and sorted.
func lastOfEach(options []Option) []Option {
	var out []Option
	for i, o := range options {
		if !slices.Contains(options[i+1:], o) {
			out = append(out, o)
		}
	}
	return out
}

// oneVersion leaves only the version that counts where a list has several, which mount would refuse.
func (t *table) oneVersion(options []Option) []Option {
	own := t.inGroup(options, keyVersion)
	if !t.oneVersionOnly || len(checkVersions(t, own)) == 0 {
		return options
	}
	version := Option{Name: keyVersion, Value: t.resolve(own)[keyVersion], HasValue: true}
	if last := own[len(own)-1]; t.resolve([]Option{last})[keyVersion] == version.Value && t.keyOf(last) == keyVersion {
		version = last
	}
	return t.replaceGroup(options, keyVersion, []Option{version})
}

func (t *table) inGroup(options []Option, group string) []Option {
	var out []Option
	for _, o := range options {
		if t.groupOf(o) == group {
			out = append(out, o)
		}
	}
	return out
}

// replaceGroup makes a list hold exactly these options of a group: those that it has stay where they are, the others take
// the place of the first one that goes, or the end.
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

// mayReplace says whether the profile's value goes over the volume's.
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

func (m *merger) keepOwn(key, wanted, value string) {
	m.kept = append(m.kept, Difference{Option: key, Wanted: wanted, Observed: value, Message: "the volume's own value is kept"})
}

// mergeOne merges the options of one key, of which the last one counts.
func (m *merger) mergeOne(key string, wanted []Option) {
	own := m.inGroup(m.list, key)
	want, have := m.resolve(wanted)[key], m.resolve(own)[key]
	option := wanted[len(wanted)-1]
	if key == keyVersion && (m.keyOf(option) == keyMinorVersion || len(wanted) > 1) {
		option = Option{Name: keyVersion, Value: want, HasValue: true}
	}
	switch {
	case len(own) == 0:
		m.list = append(m.list, option)
	case have != want && m.mayReplace(key, have):
		m.list = m.replaceGroup(m.list, key, []Option{option})
	default:
		if have != want {
			m.keepOwn(key, want, have)
		}
		if !m.oneVersionOnly || key != keyVersion {
			m.list = m.replaceGroup(m.list, key, own[len(own)-1:])
		}
	}
}

// mergeCache merges the timers, actimeo, which sets them all, and noac, which turns them off.
func (m *merger) mergeCache(wanted []Option) {
	own := m.inGroup(m.list, groupCache)
	have, want := m.resolve(own), m.resolve(wanted)
	merged := maps.Clone(have)
	switch {
	case want[keyCache] == flagNoac:
		m.turnCacheOff(merged)
	case have[keyCache] != flagNoac || m.mayReplace(keyCache, flagNoac):
		m.mergeTimers(merged, want)
	default:
		for _, o := range wanted {
			m.keepOwn(o.Name, o.Value, flagNoac)
		}
	}
	if maps.Equal(merged, have) && maps.Equal(have, m.resolve(sortOptions(own))) {
		return
	}
	m.list = m.replaceGroup(m.list, groupCache, m.writeCache(merged))
}

// turnCacheOff sets noac in place of whatever the volume says about the cache, or leaves it all as it is.
func (m *merger) turnCacheOff(merged map[string]string) {
	if merged[keyCache] == flagNoac {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		if !m.mayReplace(key, merged[key]) {
			m.keepOwn(keyCache, flagNoac, key+"="+merged[key])
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
	for _, timer := range m.timers {
		value, wanted := want[timer]
		own, has := merged[timer]
		switch {
		case !wanted || has && own == value:
		case !has || m.mayReplace(timer, own):
			merged[timer] = value
		default:
			m.keepOwn(timer, value, own)
		}
	}
}

// writeCache writes the state of the attribute cache so that the order of the options does not matter.
func (t *table) writeCache(state map[string]string) []Option {
	var options []Option
	if value, ok := state[keyCache]; ok {
		options = append(options, Option{Name: value})
	}
	var set []Option
	same := true
	for _, timer := range t.timers {
		value, ok := state[timer]
		same = same && ok && value == state[t.timers[0]]
		if ok {
			set = append(set, Option{Name: timer, Value: value, HasValue: true})
		}
	}
	if same {
		set = []Option{{Name: keyActimeo, Value: state[t.timers[0]], HasValue: true}}
	}
	return append(options, set...)
}

// sortOptions is the list as the kubelet's own NFS plugin hands it to mount.
func sortOptions(options []Option) []Option {
	list := texts(options)
	slices.Sort(list)
	return Parse(list)
}
