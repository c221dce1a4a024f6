package plan

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
)

// Mounted is what a volume's mounts are to show, wherever it is mounted.
type Mounted struct {
	// Options are those that profiles declare and the volume carries. Keep is set where they are not known for now, since
	// the volume waits for its batch or its profile is held: what nodes have been told of it stands.
	Options []string
	Keep    bool
	// ReadAhead is the declared read-ahead window, nil for none. KeepReadAhead is like Keep.
	ReadAhead     *judge.ReadAhead
	KeepReadAhead bool
}

// Mounted tells for each volume that a profile acts on what its mounts are to show. The others are not in it.
func (s Snapshot) Mounted() map[string]Mounted {
	out := map[string]Mounted{}
	for _, j := range s.judgeAll() {
		if m, concerned := j.mounted(); concerned {
			out[j.Volume.Name] = m
		}
	}
	return out
}

// mounted turns a verdict into what nodes are told. A volume that has never been written carries nothing of a profile
// while it waits for its batch, but is no stranger to it.
func (j judged) mounted() (m Mounted, concerned bool) {
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

// carriedOptions are the options that any profile declares and the list has, in the order of the list.
func carriedOptions(v judge.Verdict) []string {
	var options []string
	for _, o := range v.Options {
		for _, carried := range v.Carried {
			if slices.Contains(carried, o) {
				options = append(options, o)
				break
			}
		}
	}
	return options
}
