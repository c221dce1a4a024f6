package volume

import (
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Mounted is what a volume's mounts are to show, wherever it is mounted.
type Mounted struct {
	// Options are those that profiles declare and the volume carries. Keep is set where they are not known for now, since
	// the volume waits for its step or its profile is held: what nodes have been told of it stands.
	Options []string
	Keep    bool
	// ReadAhead is the declared read-ahead window, nil for none. KeepReadAhead is like Keep.
	ReadAhead     *ReadAhead
	KeepReadAhead bool
}

// ReadAhead is a read-ahead window, and the rule that declares it.
type ReadAhead struct {
	KiB           int32
	Profile, Rule string
}

// Mounted tells for each volume that a profile acts on what its mounts are to show. The others are not in it.
func (s Snapshot) Mounted() map[string]Mounted {
	out := map[string]Mounted{}
	for i, d := range s.decide() {
		if m, concerned := d.mounted(hasRecord(&s.Volumes[i])); concerned {
			out[s.Volumes[i].Name] = m
		}
	}
	return out
}

// mounted turns a decision into what nodes are told. A volume that has never been written carries nothing of a profile
// while it waits for its step, but is no stranger to it.
func (d Decision) mounted(recorded bool) (m Mounted, concerned bool) {
	switch d.State {
	case StateUnselected:
		return m, false
	case StateHeld:
		return Mounted{Keep: true, KeepReadAhead: true}, true
	case StatePending:
		m.Keep = recorded
	case StateUpToDate:
		m.Options = d.carriedOptions()
	case StateBlocked:
		m.Keep = d.Reason == v1alpha1.VolumeReasonConflict && d.disputed
	}
	m.KeepReadAhead = d.disputed
	if r := d.readAhead; r != nil {
		m.ReadAhead = &ReadAhead{KiB: *r.ReadAheadKiB, Profile: r.profile.name, Rule: r.Name}
	}
	return m, true
}

// carriedOptions are the options that any profile declares and the list has, in the order of the list.
func (d Decision) carriedOptions() []string {
	var options []string
	for _, o := range d.Options {
		for _, carried := range d.Carried {
			if slices.Contains(carried, o) {
				options = append(options, o)
				break
			}
		}
	}
	return options
}
