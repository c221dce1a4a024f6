package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/controllers/volume/optionset"
)

// Plan contains the next steps, and a note for each volume.
type Plan struct {
	// Steps run in order: steps that need not wait come first. Each concerns another volume, and a failed step does not block the others.
	Steps []Step
	// Notes contain the state of every volume that concerns a profile, or the reason why it was or was not written.
	Notes map[string]Note
	// Canary is true if a step writes the first volume of an unproven option set.
	Canary bool
	// Ledger are missed changes of the ledger, for volumes without a step and for option sets. It must not be written before a live read of both.
	// LedgerDue is true if there are such changes.
	Ledger    ledger.Changes
	LedgerDue bool
	// Expired are the reservations to delete, after a live read.
	Expired []*corev1.ConfigMap
	// Records are the records of the volumes that have steps.
	Records map[string]judge.Record
	// Next is the time of the next plan if the input stays the same. Zero means never.
	Next time.Time
}

// NeedsFresh reports whether the plan may run only after a live read from the API server: it starts a batch, changes the record of
// an option set, or ends a reservation.
func (p Plan) NeedsFresh() bool {
	return len(p.Expired) > 0 || slices.ContainsFunc(p.Steps, func(step Step) bool {
		restore, restores := step.(RestoreOptions)
		return needsFresh(step) || restores && restore.Set != nil
	})
}

// WithoutFresh returns the part of the plan that may run without a live read. It includes removals of the operator's options, but does not
// change the ledger: the annotation holds the failed mount until a live read allows its record.
func (p Plan) WithoutFresh() Plan {
	p.Steps, p.Ledger, p.Expired = slices.DeleteFunc(slices.Clone(p.Steps), needsFresh), nil, nil
	for i, step := range p.Steps {
		if restore, restores := step.(RestoreOptions); restores {
			restore.Set = nil
			p.Steps[i] = restore
		}
	}
	return p
}

func needsFresh(step Step) bool {
	_, records := step.(RecordSet)
	return records || BelongsToBatch(step)
}

// BelongsToBatch reports whether a step changes mount options for a profile.
func BelongsToBatch(step Step) bool {
	write, ok := step.(WriteOptions)
	return ok && write.Mark != nil
}

// Note explains the state of one volume.
type Note struct {
	Volume, Reason, Message string
	// State is the state of the verdict.
	State judge.State `json:"-"`
	// Object is the evaluated version of the volume, in the notes of a plan.
	Object *corev1.PersistentVolume `json:"-"`
}

// Watched is a volume of a batch that may still be reverted.
type Watched struct {
	Volume *corev1.PersistentVolume
	// Since is the start of its batch: an earlier failed mount has another cause. Rewritten is the time of the write if the volume could not be mounted
	// with earlier options of the operator, and another cause is unknown. Zero otherwise.
	Since, Rewritten time.Time
	// ChangesRequests is true if its options change the requests to the server. A timeout of the server may then be their fault.
	ChangesRequests bool
}

// Awaited is a volume with options that still need evidence.
type Awaited struct {
	Volume *corev1.PersistentVolume
	// Set is its option set. Written is the time at which it got its options. Only a mount for a pod that arrived on its node after After counts as
	// a mount with them. If AnyAge is true, an earlier release wrote it, and any effective mount counts.
	Set            string
	Written, After time.Time
	AnyAge         bool
	// Options are the declared options that the mount must show. Former are the options before the write if a pod may have waited for the volume since
	// then. Its mount must differ from them.
	Options, Former []string
}

// RollbackCheck is a volume that has its original options back, and its failure. Observations since the revert count.
type RollbackCheck struct {
	Volume *corev1.PersistentVolume
	Blame  optionset.Blame
}

// Step is one write on one volume.
type Step interface {
	// Target returns the evaluated version of the volume. A step must not run on another version.
	Target() *corev1.PersistentVolume
	// Explain returns the note with the reason.
	Explain() Note
	// String describes the step in one line.
	String() string
}

// OnVolume identifies the volume of a step, with the reason.
type OnVolume struct {
	Note Note
}

// Target implements Step.
func (s OnVolume) Target() *corev1.PersistentVolume { return s.Note.Object }

// Explain implements Step.
func (s OnVolume) Explain() Note { return s.Note }

// WriteOptions writes declared options and the record.
type WriteOptions struct {
	OnVolume
	Verdict judge.Verdict
	// Mark is the mark of the batch. Nil if only the record changes.
	Mark *judge.Mark
}

// WithWriteTime sets the time of a step. A pass takes a while, and a mount that was made before the write is no evidence.
func WithWriteTime(step Step, now time.Time) Step {
	if write, ok := step.(WriteOptions); ok && write.Mark != nil {
		mark := *write.Mark
		mark.Written = now.UTC().Truncate(time.Millisecond)
		write.Mark = &mark
		return write
	}
	return step
}

// RestoreOptions restores the original options and removes the operator's annotations.
type RestoreOptions struct {
	OnVolume
	Options []string
	// FailedMount stays on the volume for an earlier release if a pod could not mount it. Nil otherwise.
	FailedMount *optionset.Failed
	// Set is the record that holds the failed mount. Nil if none does.
	Set *optionset.Record
}

// ReleaseVolume removes the operator's annotations and keeps the options.
type ReleaseVolume struct {
	OnVolume
}

// RecordSet records an observation of an option set in the ledger.
type RecordSet struct {
	OnVolume
	Set *optionset.Record
	// Mark and FailedMount are written to the volume for the previous release. Nil if there is nothing to write.
	Mark        *judge.Mark
	FailedMount *optionset.Failed
	text        string
}

func (s RecordSet) String() string { return s.text }

func (s WriteOptions) String() string {
	if s.Mark == nil {
		return fmt.Sprintf("record %s: %s", s.Note.Volume, strings.Join(s.Verdict.Profiles, ","))
	}
	return fmt.Sprintf("write %s: %s, batch of %s", s.Note.Volume, strings.Join(s.Verdict.Options, ","), s.Mark.Since.Format(time.TimeOnly))
}

func (s RestoreOptions) String() string {
	if s.FailedMount != nil {
		return fmt.Sprintf("revert %s: %s", s.Note.Volume, s.FailedMount.Text)
	}
	return fmt.Sprintf("restore %s: %s", s.Note.Volume, strings.Join(s.Options, ","))
}

func (s ReleaseVolume) String() string { return "release " + s.Note.Volume }
