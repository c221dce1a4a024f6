package optionset

import (
	"maps"
	"slices"
	"time"

	"github.com/storageclient/operator/tuning/text"
)

// Kind is the kind of an observation.
type Kind string

const (
	// ProbeOrdered is a probe of a server that has no result yet.
	ProbeOrdered Kind = "ProbeOrdered"
	// ProbeWorked is a probe that mounted the options from a server.
	ProbeWorked Kind = "ProbeWorked"
	// ProbeRefused is a probe that could not mount them, although it could mount the volume's original options.
	ProbeRefused Kind = "ProbeRefused"
	// ProbeInconclusive is a probe without a conclusive result.
	ProbeInconclusive Kind = "ProbeInconclusive"
	// ProbeUnwanted is a profile that declares the set and does not want it probed.
	ProbeUnwanted Kind = "ProbeUnwanted"
	// Written is a volume that has got the options in a batch.
	Written Kind = "Written"
	// Mounted is a mount by a pod that was made with exactly these options.
	Mounted Kind = "Mounted"
	// MountFailed is a mount that a pod could not make with these options.
	MountFailed Kind = "MountFailed"
	// Restored is a volume whose mount failed and that has its original options since.
	Restored Kind = "Restored"
	// OwnMounted is a pod that has mounted a restored volume with its original options.
	OwnMounted Kind = "OwnMounted"
	// OwnFailed is a pod that fails in the same way with the original options.
	OwnFailed Kind = "OwnFailed"
	// OwnUnknown is a pod that has started since the restore. It is unknown with which options it has mounted the volume.
	OwnUnknown Kind = "OwnUnknown"
	// NoPodWaits is a restored volume that no pod waits for any longer.
	NoPodWaits Kind = "NoPodWaits"
	// VolumeGone is a restored volume that was deleted, or that now has other declared options.
	VolumeGone Kind = "VolumeGone"
	// Undeclared is a set that no rule declares any longer.
	Undeclared Kind = "Undeclared"
)

// Event is one observation.
type Event struct {
	Kind Kind
	// Server is the server that was probed, or from which the volume was mounted.
	Server string
	// Blame is the failure. Only MountFailed and ProbeRefused use more than its Volume.
	Blame
	At time.Time
}

// Next applies an event.
func (r *Record) Next(e Event) {
	e.Text = text.CutBytes(e.Text, maxText)
	switch e.Kind {
	case ProbeOrdered, ProbeWorked, ProbeRefused, ProbeInconclusive, ProbeUnwanted:
		r.nextProbe(e)
	case Written:
		r.isWritten = true
	case Mounted:
		delete(r.Rejected, e.Server)
		delete(r.probing, e.Server)
		if r.Evidence == nil {
			r.Evidence = &Evidence{Text: e.Text, Volume: e.Volume, At: e.At}
		}
	case MountFailed:
		if r.Counts(e.Failure) && !r.isSettled() && r.BlameOf(e.Volume) == nil && len(r.Blames) < maxBlames {
			e.Since = e.At
			r.Blames = append(r.Blames, e.Blame)
		}
	case Restored:
		if b := r.BlameOf(e.Volume); b != nil {
			b.RevertedAt = e.At
		}
	case OwnUnknown:
		if b := r.BlameOf(e.Volume); b != nil && b.Unclear && !b.RevertedAt.IsZero() {
			b.IsOpen = true
		}
	case OwnMounted, OwnFailed, NoPodWaits, VolumeGone:
		r.nextRestored(e)
	case Undeclared:
		*r = Record{Identity: r.Identity}
	}
}

func (r *Record) nextProbe(e Event) {
	_, worked := r.Worked[e.Server]
	_, rejected := r.Rejected[e.Server]
	delete(r.probing, e.Server)
	switch e.Kind {
	case ProbeOrdered:
		if !worked && !rejected {
			r.probing = with(r.probing, e.Server, true)
		}
	case ProbeWorked:
		delete(r.Rejected, e.Server)
		if !worked {
			r.Worked = with(r.Worked, e.Server, Evidence{Text: e.Text, At: e.At})
		}
	case ProbeRefused:
		if !rejected {
			delete(r.Worked, e.Server)
			e.Since, e.Settled = e.At, true
			r.Rejected = with(r.Rejected, e.Server, e.Blame)
		}
	case ProbeUnwanted:
		delete(r.Rejected, e.Server)
	}
}

// nextRestored applies an observation of a volume that has its original options back.
func (r *Record) nextRestored(e Event) {
	b := r.BlameOf(e.Volume)
	if b == nil || b.Settled || b.RevertedAt.IsZero() && e.Kind != VolumeGone || b.IsOpen && e.Kind == NoPodWaits {
		return
	}
	if e.Kind == OwnMounted || e.Kind != OwnFailed && !b.Unclear {
		b.Settled = true
		r.Blames = []Blame{*b}
		return
	}
	if e.Kind == OwnFailed {
		r.clear(b.Failure)
	}
	r.closeFailure(b)
	r.Blames = slices.DeleteFunc(r.Blames, func(b Blame) bool { return b.Volume == e.Volume })
}

// closeFailure records the final result of a failure: later observations do not change it.
func (r *Record) closeFailure(b *Blame) {
	if b.Since.After(r.Closed[b.Volume]) {
		r.Closed = with(r.Closed, b.Volume, b.Since)
	}
	if len(r.Closed) > maxClosed {
		delete(r.Closed, slices.MinFunc(slices.Sorted(maps.Keys(r.Closed)), func(a, b string) int { return r.Closed[a].Compare(r.Closed[b]) }))
	}
}

func (r *Record) clear(failure string) {
	if failure != "" && r.Counts(failure) {
		r.Cleared = append(r.Cleared, failure)
		r.Cleared = r.Cleared[max(0, len(r.Cleared)-maxCleared):]
	}
}

// with sets a value in a map and returns the map. It creates one if the map is nil.
func with[V any](all map[string]V, key string, value V) map[string]V {
	if all == nil {
		all = map[string]V{}
	}
	all[key] = value
	return all
}
