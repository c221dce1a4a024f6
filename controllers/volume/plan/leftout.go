package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/advice"
)

// leftOut returns the volumes that a profile leaves out because their protocol is unknown, by driver, the largest group first.
func (s Snapshot) leftOut(name string, volumes []evaluation) []advice.LeftOut {
	found := map[advice.LeftOut][]string{}
	for i := range volumes {
		j := &volumes[i]
		if j.Unknown == nil || !s.Profiles.LeavesOut(name, j.Evaluation, s.volumeClaimOf(j.Volume)) {
			continue
		}
		key := advice.LeftOut{Driver: j.Unknown.Driver, LooksLike: j.Unknown.LooksLike}
		found[key] = append(found[key], j.Volume.Name)
	}
	out := make([]advice.LeftOut, 0, len(found))
	for key, volumes := range found {
		key.Count, key.Example = len(volumes), slices.Min(volumes)
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b advice.LeftOut) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Driver, b.Driver), strings.Compare(string(a.LooksLike), string(b.LooksLike)))
	})
	return out
}
