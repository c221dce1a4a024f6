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

// Plan is what to do next.
type Plan struct {
	// Steps are to be taken in order: what waits for nobody comes first. Each is of another volume, and one that cannot be
	// taken keeps no other from it.
	Steps []Step
	// Notes say of every volume that concerns a profile how it stands, or why it was or was not written.
	Notes map[string]Note
	// Canary is whether a step writes the first volume of a set of options that nothing has shown to work.
	Canary bool
	// Ledger is what the ledger has missed, of volumes that no step is about and of sets of options: it is not to be written before both
	// were read live. LedgerDue says that there is something of that kind.
	Ledger    ledger.Changes
	LedgerDue bool
	// Records are those of the volumes that steps are about.
	Records map[string]judge.Record
	// Next is when to plan again although nothing changed; zero: never.
	Next time.Time
}

// NeedsFresh reports whether the plan may only be carried out if it was made of what the API server has: it starts a batch, or changes
// what is recorded of a set of options.
func (p Plan) NeedsFresh() bool {
	return slices.ContainsFunc(p.Steps, func(step Step) bool {
		restore, restores := step.(RestoreOptions)
		return needsFresh(step) || restores && restore.Set != nil
	})
}

// WithoutFresh returns the part of the plan that may be carried out all the same. What takes a list of ours away is in it, and leaves the
// ledger as it is: the annotation holds the failed mount until fresh reads have it recorded.
func (p Plan) WithoutFresh() Plan {
	p.Steps, p.Ledger = slices.DeleteFunc(slices.Clone(p.Steps), needsFresh), nil
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

// BelongsToBatch says whether a step changes a list for a profile.
func BelongsToBatch(step Step) bool {
	write, ok := step.(WriteOptions)
	return ok && write.Mark != nil
}

// Note tells why one volume stands where it stands.
type Note struct {
	Volume, Reason, Message string
	// State is the verdict's.
	State judge.State `json:"-"`
	// Object is the volume as it was judged, in the notes of a plan.
	Object *corev1.PersistentVolume `json:"-"`
}

// Watched is a volume of a batch that may still be taken back.
type Watched struct {
	Volume *corev1.PersistentVolume
	// Since is when its batch began: a mount that failed before that is not the batch's fault.
	Since time.Time
	// AsksOtherwise is whether its list has the server asked in another way than its own does: that nobody answers may be its fault.
	AsksOtherwise bool
}

// Awaited is a volume that carries a list which has yet to be seen to work.
type Awaited struct {
	Volume *corev1.PersistentVolume
	// Set is that of its options, Written when it got its list. A mount must have been made after After, to have been made with it.
	Set            string
	Written, After time.Time
}

// InCure is a volume that has its original options back.
type InCure struct {
	Volume *corev1.PersistentVolume
	// Failure is what failed with ours. What pods show after Since counts.
	Failure string
	Since   time.Time
}

// Step is one write on one volume.
type Step interface {
	// Target is the volume as it was judged: a step that would meet another version must not be taken.
	Target() *corev1.PersistentVolume
	// Explain says why.
	Explain() Note
	// String tells the step in a line.
	String() string
}

// OnVolume names the volume that a step is about, and why.
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
	// Mark is that of the batch, nil where the list stays and only the record changes.
	Mark *judge.Mark
}

// Dated is the step with the time at which it is taken: a pass takes a while, and a mount that was made meanwhile shows nothing.
func Dated(step Step, now time.Time) Step {
	if write, ok := step.(WriteOptions); ok && write.Mark != nil {
		mark := *write.Mark
		mark.Written = now.UTC().Truncate(time.Millisecond)
		write.Mark = &mark
		return write
	}
	return step
}

// RestoreOptions puts the original options back and takes off what is ours.
type RestoreOptions struct {
	OnVolume
	Options []string
	// FailedMount is what stays on the volume for an earlier release if a pod could not mount it, nil otherwise.
	FailedMount *optionset.Failed
	// Set is the record that holds the failed mount. Nil if none does.
	Set *optionset.Record
}

// ReleaseVolume takes off what is ours and leaves the options.
type ReleaseVolume struct {
	OnVolume
}

// RecordSet records in the ledger what a volume has shown of its set of options.
type RecordSet struct {
	OnVolume
	Set *optionset.Record
	// Mark and FailedMount are what the volume holds of it for the release before. Nil if nothing.
	Mark        *judge.Mark
	FailedMount *optionset.Failed
	text        string
}

func (s RecordSet) String() string { return s.text }

func (s WriteOptions) String() string {
	if s.Mark == nil {
		return fmt.Sprintf("record %s: %s", s.Note.Volume, strings.Join(s.Verdict.Profiles, ","))
	}
	return fmt.Sprintf("write %s: %s, batch of %s", s.Note.Volume, s.options(), s.Mark.Since.Format(time.TimeOnly))
}

func (s WriteOptions) options() string { return strings.Join(s.Verdict.Options, ",") }

func (s RestoreOptions) String() string {
	if s.FailedMount != nil {
		return fmt.Sprintf("take back %s: %s", s.Note.Volume, s.FailedMount.Text)
	}
	return fmt.Sprintf("restore %s: %s", s.Note.Volume, strings.Join(s.Options, ","))
}

func (s ReleaseVolume) String() string { return "release " + s.Note.Volume }
