package plan

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/ledger"
)

// Plan is what to do next.
type Plan struct {
	// Steps are to be taken in order: what waits for nobody comes first. Each is of another volume, and one that cannot be
	// taken keeps no other from it.
	Steps []Step
	// Notes say of every volume that concerns a profile how it stands, or why it was or was not written.
	Notes map[string]Note
	// Watched are the volumes of which it matters whether a pod could not mount them.
	Watched []Watched
	// InCure are the volumes of which it matters how pods mount them with their own lists.
	InCure []InCure
	// Awaited are volumes whose mount would show their set of options to work, which nothing has yet.
	Awaited []Awaited
	// Canary is whether a step writes the first volume of a set of options that nothing has shown to work.
	Canary bool
	// Candidates are the volumes of sets that nothing has shown to work: one that a pod is about to mount goes first.
	Candidates []*corev1.PersistentVolume
	// ObserveEvery is how often either is to be looked for.
	ObserveEvery time.Duration
	// Ledger is what the ledger has missed, of volumes that no step is about: it is not to be written before it was read live.
	// LedgerDue says that there is something of that kind.
	Ledger    ledger.Changes
	LedgerDue bool
	// Records are those of the volumes that steps are about.
	Records map[string]judge.Record
	// Next is when to plan again although nothing changed; zero: never.
	Next time.Time
}

// BeginsBatch says whether a step changes a list for a profile. Such a plan has to be made of what the API server has.
func (p Plan) BeginsBatch() bool {
	for _, step := range p.Steps {
		if BelongsToBatch(step) {
			return true
		}
	}
	return false
}

// IsWatching says whether there are volumes of which it matters how pods mount them.
func (p Plan) IsWatching() bool { return len(p.Watched)+len(p.InCure)+len(p.Awaited) > 0 }

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

// InCure is a volume that has its own list back.
type InCure struct {
	Volume *corev1.PersistentVolume
	Failed *judge.FailedMount
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
	// FailedMount is what stays on the volume where a pod could not mount it, nil otherwise.
	FailedMount *judge.FailedMount
}

// ReleaseVolume takes off what is ours and leaves the options.
type ReleaseVolume struct {
	OnVolume
}

// JudgeFailure writes what has been learned of a failed mount.
type JudgeFailure struct {
	OnVolume
	FailedMount *judge.FailedMount
}

// KeepEvidence writes into a volume's mark what has shown its set of options to work: a mount that showed it may be gone soon.
type KeepEvidence struct {
	OnVolume
	Mark *judge.Mark
}

func (s KeepEvidence) String() string {
	return fmt.Sprintf("note on %s: %s", s.Note.Volume, s.Mark.Evidence)
}

func (s JudgeFailure) String() string {
	return fmt.Sprintf("judge %s: %s", s.Note.Volume, s.Note.Message)
}

func (s WriteOptions) String() string {
	if s.Mark == nil {
		return fmt.Sprintf("record %s: %s", s.Note.Volume, strings.Join(s.Verdict.Profiles, ","))
	}
	return fmt.Sprintf("write %s: %s, batch of %s", s.Note.Volume, s.options(), s.Mark.Since.Format(time.TimeOnly))
}

func (s WriteOptions) options() string { return strings.Join(s.Verdict.Options, ",") }

func (s RestoreOptions) String() string {
	if s.FailedMount != nil {
		return fmt.Sprintf("take back %s: %s", s.Note.Volume, s.FailedMount.Message)
	}
	return fmt.Sprintf("restore %s: %s", s.Note.Volume, strings.Join(s.Options, ","))
}

func (s ReleaseVolume) String() string { return "release " + s.Note.Volume }
