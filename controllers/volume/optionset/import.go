package optionset

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Earlier is the state of an option set that a volume holds for or from an earlier release.
type Earlier struct {
	Volume, Server string
	// Evidence describes the observation that the volume's options work. Empty if there is none. Probed is true if a probe made it.
	Evidence string
	Probed   bool
	// At is the time at which the volume got the options.
	At time.Time
	// Cleared is the failure that the volume also had with its original options. Empty if there is none.
	Cleared string
	// Failed is the failed mount of a volume that has its original options back. Nil if there is none.
	Failed *Failed
}

// Add adds the observations of another record. Known observations and results stay.
func (r *Record) Add(other *Record) {
	worked, rejected := maps.Clone(other.Worked), maps.Clone(other.Rejected)
	maps.DeleteFunc(worked, func(server string, _ Evidence) bool { return r.State(server) == Rejected })
	maps.DeleteFunc(rejected, func(server string, _ Blame) bool { return r.State(server) == Works })
	r.Evidence, r.isEarlier = cmp.Or(r.Evidence, other.Evidence), r.isEarlier || other.isEarlier
	r.Worked, r.Rejected, r.Closed = unite(r.Worked, worked), unite(r.Rejected, rejected), unite(r.Closed, other.Closed)
	if len(r.Cleared) == 0 {
		r.Cleared = slices.Clone(other.Cleared)
	}
	if len(r.Blames) == 0 {
		r.Blames = lists.Filter(other.Blames, func(b Blame) bool { return !r.hasResult(b) })
	}
}

// hasResult reports whether another cause explains a failure, or its cause stays unknown.
func (r *Record) hasResult(b Blame) bool {
	closedAt, isClosed := r.Closed[b.Volume]
	return isClosed && !b.Since.After(closedAt) || !r.Counts(b.Failure)
}

func unite[V any](known, additional map[string]V) map[string]V {
	for key, value := range additional {
		if _, found := known[key]; !found {
			known = with(known, key, value)
		}
	}
	return known
}

// Import adds missing evidence, cleared failures, and failed mounts without a later final result.
func (r *Record) Import(e Earlier) {
	_, worked := r.Worked[e.Server]
	evidence := Evidence{Text: text.CutBytes(e.Evidence, maxText), Volume: e.Volume, At: e.At}
	switch {
	case evidence.Text == "":
	case !e.Probed && r.Evidence == nil:
		r.Evidence = &evidence
	case e.Probed && !worked:
		evidence.Volume = ""
		r.Worked = with(r.Worked, e.Server, evidence)
	}
	r.importCleared(e.Cleared)
	if e.Failed != nil {
		r.importFailed(e.Volume, e.Failed)
	}
}

func (r *Record) importCleared(failure string) {
	if failure = text.CutBytes(failure, maxText); failure == "" {
		return
	}
	r.clear(failure)
	if r.isEarlier {
		r.Blames = slices.DeleteFunc(r.Blames, func(b Blame) bool { return b.Failure == failure })
	}
}

func (r *Record) importFailed(volume string, f *Failed) {
	b := f.Blame
	b.Volume = volume
	b.Text, b.Failure = text.CutBytes(b.Text, maxText), text.CutBytes(b.Failure, maxText)
	known := r.BlameOf(volume)
	switch {
	case f.Cleared:
		r.importCleared(f.Failure)
	case known != nil && r.isEarlier && !f.Settled:
		*known = b
	case f.Settled && !r.isSettled() && r.Counts(b.Failure):
		r.Blames = []Blame{b}
	case known != nil, r.hasResult(b), len(r.Blames) == maxBlames:
	case !r.isSettled(), r.isEarlier:
		r.Blames = append(r.Blames, b)
	}
}

// WithResult returns the failure in the form of an earlier release, after an observation of the volume with its original options.
func (f Failed) WithResult(kind Kind) *Failed {
	f.Settled = kind == OwnMounted || kind == NoPodWaits && !f.Unclear
	f.Cleared = !f.Settled
	if f.Cleared && kind == NoPodWaits {
		f.Failure = ""
	}
	f.Unclear = false
	return &f
}
