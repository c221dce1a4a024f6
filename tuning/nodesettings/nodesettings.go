// Package nodesettings turns the profiles that match a node into the one list of settings that the node is to have:
// merged key by key, with a hash that names it, and with the conflicts that keep a key from being decided.
//
// It is pure: no cluster, no host, no clock. The hash of an unchanged profile never changes from one release to the
// next, since a changed one makes nodes reboot: testdata holds hashes that must stay.
package nodesettings

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

// MaxSettings is how many settings a node can have.
const MaxSettings = 256

// Conflict is a key on which profiles of equal priority disagree.
type Conflict struct {
	// Key is the setting's canonical key.
	Key string
	// Profiles are the profiles that disagree, by name, and Values what each of them says.
	Profiles, Values []string
	// Kept is the value that stays in force; empty where there is none, and the key is left out.
	Kept string
}

// Result is what the profiles of one node come to.
type Result struct {
	// Settings are at most MaxSettings, sorted by key.
	Settings []v1alpha1.NodeSetting
	// Hash covers all settings, BootHash those that take effect at boot only. Empty where there are none.
	Hash, BootHash string
	// Conflicts are sorted by key.
	Conflicts []Conflict
	// Omitted are the keys that did not fit, sorted. The lowest priorities go first.
	Omitted []string
}

// candidate is one profile's say in a key.
type candidate struct {
	v1alpha1.NodeSetting
	value    catalogue.Value
	priority int32
}

// Merge returns the settings of a node that these profiles match; the order of the profiles does not matter. They are
// taken for valid. Key by key the highest priority wins. Where equal priorities say different things, what is in force
// for that key stays, and nothing is set where nothing is. What a sysctl is to be at least comes to the largest of all profiles,
// number by number, see pickCandidate. A value that several profiles of one priority give counts as
// that of the first of them by name, and is restored in the end only if all of them say Restore.
func Merge(profiles []v1alpha1.StorageClientProfile, inForce []v1alpha1.NodeSetting) Result {
	return MergeHolding(profiles, inForce, nil)
}

// MergeHolding is Merge where some profiles, by name, are held: they declare exactly what is in force of them, whatever
// they say now.
func MergeHolding(profiles []v1alpha1.StorageClientProfile, inForce []v1alpha1.NodeSetting, held sets.Set[string]) Result {
	nconnect := largestNconnect(profiles)
	byKey := map[string][]candidate{}
	for i := range profiles {
		settings := contribution(&profiles[i], nconnect)
		if held.Has(profiles[i].Name) {
			settings = settingsOf(inForce, profiles[i].Name)
		}
		for _, setting := range settings {
			byKey[setting.Key] = append(byKey[setting.Key], candidate{setting, catalogue.ParseValue(setting.Value), profiles[i].Spec.Priority})
		}
	}
	var result Result
	var decided []candidate
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		winner, conflict := pickCandidate(byKey[key], settingOf(inForce, key))
		if conflict != nil {
			result.Conflicts = append(result.Conflicts, *conflict)
		}
		if winner.Key != "" {
			decided = append(decided, winner)
		}
	}
	result.Settings, result.Omitted = capSettings(decided)
	result.Hash, result.BootHash = Hashes(result.Settings)
	return result
}

func settingsOf(settings []v1alpha1.NodeSetting, profile string) []v1alpha1.NodeSetting {
	return slices.DeleteFunc(slices.Clone(settings), func(s v1alpha1.NodeSetting) bool { return s.Profile != profile })
}

func settingOf(settings []v1alpha1.NodeSetting, key string) v1alpha1.NodeSetting {
	if i := slices.IndexFunc(settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key }); i >= 0 {
		return settings[i]
	}
	return v1alpha1.NodeSetting{}
}

// pickCandidate picks among the candidates on one key. The winner has no key where nothing is to be set. An exact value stands
// where it is all that others want at least, and against those of lower priority. It gives way to one of higher priority that
// wants more, and with one of equal priority that does, it is a conflict.
func pickCandidate(candidates []candidate, inForce v1alpha1.NodeSetting) (candidate, *Conflict) {
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.Profile, b.Profile))
	})
	least, exact := partLeast(candidates)
	if len(exact) == 0 {
		return joinLeast(least), nil
	}
	wantMore := slices.DeleteFunc(slices.Clone(least), func(c candidate) bool {
		return c.priority < exact[0].priority || catalogue.Covers(exact[0].Value, c.value.Text)
	})
	switch {
	case len(wantMore) == 0:
		return pickExact(exact, inForce)
	case wantMore[0].priority > exact[0].priority:
		return joinLeast(least), nil
	}
	return settleConflict(append(topOf(exact), wantMore...), inForce)
}

func partLeast(candidates []candidate) (least, exact []candidate) {
	for _, c := range candidates {
		if c.value.AtLeast {
			least = append(least, c)
		} else {
			exact = append(exact, c)
		}
	}
	return least, exact
}

// joinLeast makes one candidate of several that say what a sysctl is to be at least: the largest, number by number. It counts as
// that of the first whose value it is or, where it is nobody's alone, of the first.
func joinLeast(candidates []candidate) candidate {
	largest := catalogue.Value{AtLeast: true}
	for _, c := range candidates {
		largest.Text = text.Larger(largest.Text, c.value.Text)
	}
	joined := joinCandidates(candidates)
	if i := slices.IndexFunc(candidates, func(c candidate) bool { return c.value == largest }); i >= 0 {
		joined.Profile, joined.priority = candidates[i].Profile, candidates[i].priority
	}
	joined.Value = largest.String()
	return joined
}

// topOf are the candidates of the highest priority, of some that are sorted by it.
func topOf(candidates []candidate) []candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return c.priority != candidates[0].priority })
}

// pickExact picks among exact values, which are sorted.
func pickExact(candidates []candidate, inForce v1alpha1.NodeSetting) (candidate, *Conflict) {
	top := topOf(candidates)
	if slices.ContainsFunc(top, func(c candidate) bool { return c.Value != top[0].Value }) {
		return settleConflict(top, inForce)
	}
	return joinCandidates(top), nil
}

// settleConflict keeps what is in force of candidates that disagree.
func settleConflict(top []candidate, inForce v1alpha1.NodeSetting) (candidate, *Conflict) {
	conflict := &Conflict{Key: top[0].Key, Kept: inForce.Value}
	for _, c := range top {
		conflict.Profiles = append(conflict.Profiles, c.Profile)
		conflict.Values = append(conflict.Values, c.Value)
	}
	if inForce.Key == "" {
		return candidate{}, conflict
	}
	agreed := slices.DeleteFunc(slices.Clone(top), func(c candidate) bool { return c.Value != inForce.Value })
	if len(agreed) > 0 {
		return joinCandidates(agreed), conflict
	}
	return candidate{NodeSetting: inForce, priority: top[0].priority}, conflict
}

// joinCandidates makes one candidate of several that agree.
func joinCandidates(candidates []candidate) candidate {
	joined := candidates[0]
	for _, c := range candidates {
		if c.OnRemoval != v1alpha1.DeletionRestore {
			joined.OnRemoval = c.OnRemoval
		}
	}
	return joined
}

// capSettings leaves as many settings as a node can have, those of the highest priorities.
func capSettings(decided []candidate) (settings []v1alpha1.NodeSetting, omitted []string) {
	slices.SortStableFunc(decided, func(a, b candidate) int { return cmp.Compare(b.priority, a.priority) })
	for i, c := range decided {
		if i < MaxSettings {
			settings = append(settings, c.NodeSetting)
		} else {
			omitted = append(omitted, c.Key)
		}
	}
	slices.SortFunc(settings, func(a, b v1alpha1.NodeSetting) int { return cmp.Compare(a.Key, b.Key) })
	slices.Sort(omitted)
	return settings, omitted
}
