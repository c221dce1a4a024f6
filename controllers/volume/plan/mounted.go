package plan

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/lists"
)

// Mounted is the desired state of a volume's mounts on all nodes.
type Mounted struct {
	// Options are the declared options that the volume carries. Keep is true if they are currently unknown, since the volume waits for its batch
	// or its profile is held: the node specs keep their entries.
	Options []string
	Keep    bool
	// ReadAhead is the declared read-ahead window. Nil if there is none. KeepReadAhead is like Keep.
	ReadAhead     *judge.ReadAhead
	KeepReadAhead bool
	// VolumeClaim is the claim that the volume names. Empty if there is none.
	VolumeClaim types.NamespacedName
}

// Mounted returns the desired state of the mounts of each volume that a profile acts on. It contains no other volumes.
func (s Snapshot) Mounted() map[string]Mounted {
	out := map[string]Mounted{}
	for _, j := range s.evaluateAll() {
		if m, concerned := j.mounted(); concerned {
			m.VolumeClaim, _ = judge.ClaimOf(j.Volume)
			out[j.Volume.Name] = m
		}
	}
	return out
}

// mounted converts a verdict into an entry of the node specs. A volume that has never been written carries no options of a profile while it
// waits for its batch, but still concerns the profile.
func (j evaluation) mounted() (m Mounted, concerned bool) {
	v := j.verdict
	window, disputed := v.ReadAhead()
	switch v.State {
	case judge.StateUnselected:
		return m, false
	case judge.StateHeld:
		return Mounted{Keep: true, KeepReadAhead: true}, true
	case judge.StatePending:
		m.Keep = j.Record.Present
	case judge.StateUpToDate:
		m.Options = carriedOptions(v)
	case judge.StateBlocked:
		if v.Contested {
			m.Options = carriedOptions(v)
		}
		m.Keep = v.Reason == v1alpha1.VolumeReasonConflict && disputed
	}
	m.ReadAhead, m.KeepReadAhead = window, disputed
	return m, true
}

// carriedOptions returns the options in the list that any profile declares, in the order of the list.
func carriedOptions(v *judge.Verdict) []string {
	carried := slices.Collect(maps.Values(v.Carried))
	return lists.Filter(v.Options, func(o string) bool {
		return slices.ContainsFunc(carried, func(options []string) bool { return slices.Contains(options, o) })
	})
}
