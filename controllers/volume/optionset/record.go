package optionset

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
)

// State is how a set of options stands on one server.
type State string

const (
	// Untried is a set of which nothing is known.
	Untried State = "Untried"
	// Probing is a set that a node mounts for a test, apart from all other mounts.
	Probing State = "Probing"
	// Works is a set that a pod or a probe has mounted.
	Works State = "Works"
	// Rejected is a set that a probe could not mount from this server.
	Rejected State = "Rejected"
	// Canary is a set that a first volume has, which no pod has mounted yet.
	Canary State = "Canary"
	// Suspected is a set with which a pod could not mount a volume, until it is known whether the options are the cause.
	Suspected State = "Suspected"
	// Failing is a set that is the cause of a failed mount, and that nothing has shown to work.
	Failing State = "Failing"
	// Disputed is a set that is the cause of a failed mount, and that works elsewhere.
	Disputed State = "Disputed"
)

// Allowance is how many more volumes may get a set of options.
type Allowance string

const (
	// None is no volume.
	None Allowance = "None"
	// One is the canary.
	One Allowance = "One"
	// Batch is as many volumes as the profile's share.
	Batch Allowance = "Batch"
)

const (
	// maxBlames is the maximum number of volumes whose failed mount is recorded for one set, maxCleared that of failures that do not count,
	// and maxJudged that of volumes whose failure is judged.
	maxBlames, maxCleared, maxJudged = 8, 8, 16
	// maxText is the maximum length of a recorded text in bytes.
	maxText = 256
)

// Identity names a set of options.
type Identity struct {
	// Set is the hash of the set. Rules are the rules that declare it, as profile/rule.
	Set   string   `json:"set,omitempty"`
	Rules []string `json:"rules,omitempty"`
	// Driver, Protocol and FSType are those of its volumes.
	Driver   string                  `json:"driver,omitempty"`
	Protocol v1alpha1.VolumeProtocol `json:"protocol,omitempty"`
	FSType   string                  `json:"fsType,omitempty"`
}

// Record is what is known of one set of options. A nil Record is that of a set of which nothing is known. Its JSON is without failures,
// which have entries of their own.
type Record struct {
	Identity
	// Evidence is the mount by a pod that has shown the options to work. Nil if there is none.
	Evidence *Evidence `json:"evidence,omitempty"`
	// Worked are the probes that have mounted the options, Refused those that could not, by server.
	Worked  map[string]Evidence `json:"probes,omitempty"`
	Refused map[string]Blame    `json:"-"`
	// Blames are failed mounts of which the cause is open, or the one whose cause are the options.
	Blames []Blame `json:"-"`
	// Cleared are the failures that volumes also had with their original options. The newest is last.
	Cleared []string `json:"cleared,omitempty"`
	// Judged are the times of the newest failures of which the cause is not the options, or stays open, by volume.
	Judged map[string]time.Time `json:"judged,omitempty"`

	// probing are the servers that are probed now, carried is true while a volume has the options.
	probing map[string]bool
	carried bool
	// isEarlier is true if an earlier release wrote the blame: it recorded one as settled from the start if the text names the options.
	isEarlier bool
}

// Evidence is an observation that shows a set of options to work.
type Evidence struct {
	// Text describes what was seen. Volume is the volume that was mounted. Empty for a probe.
	Text   string `json:"text"`
	Volume string `json:"volume,omitempty"`
	// At is the time of the observation.
	At time.Time `json:"at,omitzero"`
}

// Blame is a failed mount of one volume, or a refused probe.
type Blame struct {
	// Volume is the name of the volume, Options are the mount options that failed. Nil if they are too long to record.
	Volume  string   `json:"volume,omitempty"`
	Options []string `json:"options,omitempty"`
	// UID is that of the volume. Empty if an earlier release recorded the failure.
	UID types.UID `json:"uid,omitempty"`
	// Failure identifies the failure: the same for all events of one failure, of any volume. Text is what the event says.
	Failure string `json:"failure,omitempty"`
	Text    string `json:"message"`
	// Unclear is true if the text does not name the options. Settled is true if they are the cause.
	Unclear bool `json:"suspected,omitempty"`
	Settled bool `json:"settled,omitempty"`
	// Since is the time at which the failure was seen, RevertedAt the time after which the volume has its original options. Zero until then.
	Since      time.Time `json:"since"`
	RevertedAt time.Time `json:"revertedAt,omitzero"`
}

// State returns how the set stands on a server.
func (r *Record) State(server string) State {
	if r == nil {
		return Untried
	}
	_, works := r.EvidenceOn(server)
	_, refused := r.Refused[server]
	switch {
	case r.isSettled() && works:
		return Disputed
	case r.isSettled():
		return Failing
	case len(r.Blames) > 0:
		return Suspected
	case refused:
		return Rejected
	case r.probing[server]:
		return Probing
	case works:
		return Works
	case r.carried:
		return Canary
	}
	return Untried
}

// EvidenceOn returns what has shown the options to work on a server: a mount by a pod, which holds for all servers, or a probe.
func (r *Record) EvidenceOn(server string) (evidence Evidence, known bool) {
	if r == nil {
		return Evidence{}, false
	}
	if r.Evidence != nil {
		return *r.Evidence, true
	}
	evidence, known = r.Worked[server]
	return evidence, known
}

// MayWrite returns how many more volumes of a server may get the options. A profile may wait longer, or have a soak suffice as evidence.
func (r *Record) MayWrite(server string) Allowance {
	switch r.State(server) {
	case Untried:
		return One
	case Works:
		return Batch
	case Probing, Rejected, Canary, Suspected, Failing, Disputed:
	}
	return None
}

// MustRestore reports whether all volumes of a server that have the options get their original ones back.
func (r *Record) MustRestore(server string) bool { return r.State(server) == Failing }

// Counts reports whether a failed mount counts against the set.
func (r *Record) Counts(failure string) bool { return r == nil || !slices.Contains(r.Cleared, failure) }

// Stops reports whether failed mounts keep all other volumes, on any server, from getting the options.
func (r *Record) Stops() bool { return r != nil && len(r.Blames) > 0 }

// IsOf reports whether a rule of a profile declares the set.
func (r *Record) IsOf(profile string) bool {
	return slices.ContainsFunc(r.Rules, func(rule string) bool { return strings.HasPrefix(rule, profile+"/") })
}

// BlameOf returns the failed mount of a volume. Nil if none is recorded.
func (r *Record) BlameOf(volume string) *Blame {
	if r == nil {
		return nil
	}
	for i := range r.Blames {
		if r.Blames[i].Volume == volume {
			return &r.Blames[i]
		}
	}
	return nil
}

// BlamedVolume returns the first volume, by name, whose failed mount stops the set. Empty if there is none.
func (r *Record) BlamedVolume() string {
	if !r.Stops() {
		return ""
	}
	return slices.MinFunc(r.Blames, func(a, b Blame) int { return strings.Compare(a.Volume, b.Volume) }).Volume
}

func (r *Record) isSettled() bool {
	return slices.ContainsFunc(r.Blames, func(b Blame) bool { return b.Settled })
}
