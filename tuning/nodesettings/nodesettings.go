// Package nodesettings merges the profiles that match a node into the settings of the node, key by key. The result has a hash, and
// lists the conflicts that prevent a decision for a key.
//
// The package has no side effects: it uses no cluster, host or clock. The hash of an unchanged profile must not change between
// releases, because a changed hash reboots nodes. testdata contains hashes that must stay the same.
package nodesettings

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// MaxSettings is the maximum number of settings of a node.
const MaxSettings = 256

// Conflict is a key on which profiles of equal priority disagree.
type Conflict struct {
	// Key is the canonical key of the setting.
	Key string `json:"key"`
	// Profiles are the names of the profiles that disagree, and Values are their values.
	Profiles []string `json:"profiles"`
	Values   []string `json:"values"`
	// Kept is the current value, which stays. Empty if the setting has no current value; the key is then omitted.
	Kept string `json:"kept,omitempty"`
}

// Result is the merged result of a node's profiles.
type Result struct {
	// Settings are at most MaxSettings settings, sorted by key.
	Settings []v1alpha1.NodeSetting
	// Hash covers all settings, BootHash only the settings that take effect at boot. Empty if there are none.
	Hash, BootHash string
	// Conflicts are sorted by key.
	Conflicts []Conflict
	// Omitted are the keys that exceed MaxSettings, sorted. The settings of the lowest priorities are omitted first.
	Omitted []string
}

// candidate is the value of one profile for a key.
type candidate struct {
	v1alpha1.NodeSetting
	value    catalogue.Value
	priority int32
}

// Merge returns the settings of a node that these profiles match. The profiles must be valid; their order does not matter. For
// each key, the highest priority wins. Two sysctls of which the kernel keeps only one are one key. If profiles of equal priority
// disagree, the current setting in current stays; without a current setting, the key is not set. Minimums of sysctls merge to the
// largest of all profiles, number by number; see pickCandidate. If several profiles of one priority declare the same value, the
// setting belongs to the first of them by name. It is restored on removal only if all of them declare Restore.
func Merge(profiles []v1alpha1.StorageClientProfile, current []v1alpha1.NodeSetting) Result {
	return MergeHolding(profiles, current, nil)
}

// MergeHolding is Merge with some held profiles, by name. A held profile declares exactly its current settings, regardless of its
// spec. If it has both parameters of a pair, because an earlier release accepted both, they are two keys.
func MergeHolding(profiles []v1alpha1.StorageClientProfile, current []v1alpha1.NodeSetting, heldProfiles sets.Set[string]) Result {
	nconnect := 0
	for i := range profiles {
		nconnect = max(nconnect, profileNconnect(&profiles[i]))
	}
	byKey, bothOfPair := map[string][]candidate{}, sets.New[string]()
	declared := make([][]v1alpha1.NodeSetting, len(profiles))
	for i := range profiles {
		settings := contribution(&profiles[i], nconnect)
		if heldProfiles.Has(profiles[i].Name) {
			settings = lists.Filter(current, func(s v1alpha1.NodeSetting) bool { return s.Profile == profiles[i].Name })
		}
		for _, setting := range settings {
			if pair := catalogue.CounterpartKey(setting.Key); pair != "" && settingOf(settings, pair).Key != "" {
				bothOfPair.Insert(setting.Key)
			}
		}
		declared[i] = settings
	}
	for i, settings := range declared {
		for _, setting := range settings {
			key := setting.Key
			if pair := catalogue.CounterpartKey(key); pair != "" && !bothOfPair.Has(key) {
				key = min(key, pair)
			}
			byKey[key] = append(byKey[key], candidate{setting, catalogue.ParseValue(setting.Value), profiles[i].Spec.Priority})
		}
	}
	var result Result
	var decided []candidate
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		winner, conflict := pickOfPair(byKey[key], current)
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

func settingOf(settings []v1alpha1.NodeSetting, key string) v1alpha1.NodeSetting {
	if i := slices.IndexFunc(settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key }); i >= 0 {
		return settings[i]
	}
	return v1alpha1.NodeSetting{}
}

// pickOfPair selects the winner among the candidates for one key, or for the two keys of a pair. The highest priority selects the parameter of a pair.
func pickOfPair(candidates []candidate, current []v1alpha1.NodeSetting) (candidate, *Conflict) {
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.Profile, b.Profile))
	})
	top := topOf(candidates)
	isOther := func(c candidate) bool { return c.Key != top[0].Key }
	if at := slices.IndexFunc(top, isOther); at >= 0 {
		return settleConflict(top, cmp.Or(settingOf(current, top[0].Key), settingOf(current, top[at].Key)))
	}
	effective := cmp.Or(settingOf(current, top[0].Key), settingOf(current, catalogue.CounterpartKey(top[0].Key)))
	return pickCandidate(slices.DeleteFunc(candidates, isOther), effective)
}

// pickCandidate selects the winner among the sorted candidates for one key. The winner has no key if the key is not set. An exact value
// wins if it satisfies all minimums, and against minimums of lower priority. It loses against a larger minimum of higher priority.
// Against a larger minimum of equal priority, it is a conflict.
func pickCandidate(candidates []candidate, current v1alpha1.NodeSetting) (candidate, *Conflict) {
	minimums, exact := splitMinimums(candidates)
	if len(exact) == 0 {
		return joinMinimums(minimums), nil
	}
	wantMore := slices.DeleteFunc(slices.Clone(minimums), func(c candidate) bool {
		return c.priority < exact[0].priority || text.Covers(exact[0].Value, c.value.Text)
	})
	switch {
	case len(wantMore) == 0:
		return pickExact(exact, current)
	case wantMore[0].priority > exact[0].priority:
		return joinMinimums(minimums), nil
	}
	return settleConflict(append(topOf(exact), wantMore...), current)
}

func splitMinimums(candidates []candidate) (minimums, exact []candidate) {
	for _, c := range candidates {
		if c.value.AtLeast {
			minimums = append(minimums, c)
		} else {
			exact = append(exact, c)
		}
	}
	return minimums, exact
}

// joinMinimums merges several minimums of a sysctl into one candidate with the largest value, number by number. The result belongs to
// the first candidate with this value or, if no single candidate has it, to the first candidate.
func joinMinimums(candidates []candidate) candidate {
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

// topOf returns the candidates with the highest priority. The candidates must be sorted by priority.
func topOf(candidates []candidate) []candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return c.priority != candidates[0].priority })
}

// pickExact selects the winner among sorted exact values.
func pickExact(candidates []candidate, current v1alpha1.NodeSetting) (candidate, *Conflict) {
	top := topOf(candidates)
	if slices.ContainsFunc(top, func(c candidate) bool { return c.Value != top[0].Value }) {
		return settleConflict(top, current)
	}
	return joinCandidates(top), nil
}

// settleConflict keeps the current setting if candidates disagree. If both keys of a pair are concerned, the
// values name the parameter.
func settleConflict(top []candidate, current v1alpha1.NodeSetting) (candidate, *Conflict) {
	conflict := &Conflict{Key: top[0].Key, Kept: current.Value, Profiles: lists.Each(top, func(c candidate) string { return c.Profile })}
	isPair := slices.ContainsFunc(top, func(c candidate) bool { return c.Key != top[0].Key })
	conflict.Values = lists.Each(top, func(c candidate) string {
		if isPair {
			return c.Key + "=" + c.Value
		}
		return c.Value
	})
	if isPair {
		conflict.Key = min(conflict.Key, catalogue.CounterpartKey(conflict.Key))
	}
	if current.Key != "" && (isPair || current.Key != top[0].Key) {
		conflict.Kept = current.Key + "=" + current.Value
	}
	if current.Key == "" {
		return candidate{}, conflict
	}
	agreed := slices.DeleteFunc(slices.Clone(top), func(c candidate) bool { return c.Key != current.Key || c.Value != current.Value })
	if len(agreed) > 0 {
		return joinCandidates(agreed), conflict
	}
	return candidate{NodeSetting: current, priority: top[0].priority}, conflict
}

// joinCandidates merges several candidates that agree into one.
func joinCandidates(candidates []candidate) candidate {
	joined := candidates[0]
	for _, c := range candidates {
		if c.OnRemoval != v1alpha1.DeletionRestore {
			joined.OnRemoval = c.OnRemoval
		}
	}
	return joined
}

// capSettings returns at most MaxSettings settings, with the highest priorities.
func capSettings(decided []candidate) (settings []v1alpha1.NodeSetting, omitted []string) {
	slices.SortStableFunc(decided, func(a, b candidate) int { return cmp.Compare(b.priority, a.priority) })
	for i, c := range decided {
		if i < MaxSettings {
			settings = append(settings, c.NodeSetting)
		} else {
			omitted = append(omitted, c.Key)
		}
	}
	slices.SortFunc(settings, byKey)
	slices.Sort(omitted)
	return settings, omitted
}
