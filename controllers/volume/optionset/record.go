package optionset

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/clocktime"
)

// State is the state of an option set on one server.
type State string

const (
	// Untried is a set without any observation.
	Untried State = "Untried"
	// Probing is a set that a node mounts for a test, apart from all other mounts.
	Probing State = "Probing"
	// Works is a set that a pod or a probe has mounted.
	Works State = "Works"
	// Rejected is a set that a probe could not mount from this server.
	Rejected State = "Rejected"
	// Canary is a set that a first volume has, which no pod has mounted yet.
	Canary State = "Canary"
	// Suspected is a set with which a pod could not mount a volume, while the cause is open.
	Suspected State = "Suspected"
	// Failing is a set that caused a failed mount, without evidence that it works.
	Failing State = "Failing"
	// Disputed is a set that caused a failed mount, although it works elsewhere.
	Disputed State = "Disputed"
)

const (
	// maxBlames limits the volumes with a recorded failed mount of one set. maxCleared limits the failures that do not count. maxClosed limits the
	// volumes with a final result.
	maxBlames, maxCleared, maxClosed = 8, 8, 16
	// maxText is the maximum length of a recorded text in bytes.
	maxText = 256
)

// Identity identifies an option set.
type Identity struct {
	// Set is the hash of the set. Rules are the rules that declare it, as profile/rule. RuleSet is their hash. The previous release recorded only
	// one set for all results of the same rules: in its records, both are the same.
	Set     string   `json:"list,omitempty"`
	RuleSet string   `json:"set,omitempty"`
	Rules   []string `json:"rules,omitempty"`
	// Driver, Protocol and FSType are common to the volumes of the set.
	Driver   string                  `json:"driver,omitempty"`
	Protocol v1alpha1.VolumeProtocol `json:"protocol,omitempty"`
	FSType   string                  `json:"fsType,omitempty"`
}

// Record is the state of one option set. A nil Record is a set without any observation. Its JSON excludes failures, which have separate entries.
type Record struct {
	Identity
	// Evidence is the mount by a pod that shows that the options work. Nil if there is none.
	Evidence *Evidence `json:"evidence,omitempty"`
	// Worked are the successful probes, Rejected the rejected ones, by server.
	Worked   map[string]Evidence `json:"probes,omitempty"`
	Rejected map[string]Blame    `json:"-"`
	// Blames are failed mounts of unknown cause, or the failed mount that the options caused.
	Blames []Blame `json:"-"`
	// Cleared are the failures that volumes also had with their original options, newest last.
	Cleared []string `json:"cleared,omitempty"`
	// Closed are the times of the newest failures that other causes explain, or whose cause stays unknown, by volume.
	Closed map[string]time.Time `json:"judged,omitempty"`
	// probing are the servers with a current probe. isWritten is true while a volume has the options.
	probing   map[string]bool
	isWritten bool
	// isEarlier is true if an earlier release wrote the blame. It recorded a failure as settled at once if the text names the options.
	isEarlier bool
}

// Evidence is an observation that shows that an option set works.
type Evidence struct {
	// Text describes the observation. Volume is the mounted volume. Empty for a probe.
	Text   string    `json:"text"`
	Volume string    `json:"volume,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Blame is a failed mount of one volume, or a rejected probe.
type Blame struct {
	// Options are the mount options that failed. Nil if they are too long to record.
	Volume  string   `json:"volume,omitempty"`
	Options []string `json:"options,omitempty"`
	// UID is the UID of the volume. Empty if an earlier release recorded the failure.
	UID types.UID `json:"uid,omitempty"`
	// Failure identifies the failure: all events of one failure share it, for any volume. Text is the text of the event.
	Failure string `json:"failure,omitempty"`
	Text    string `json:"message"`
	// Unclear is true if the text does not name the options. Settled is true if they are the cause.
	Unclear bool `json:"suspected,omitempty"`
	Settled bool `json:"settled,omitempty"`
	// IsOpen is true if a pod has started since the restore with an unknown mount: another pod must show whether the original options work.
	IsOpen bool `json:"open,omitempty"`
	// Since is the time of the observation. RevertedAt is the time after which the volume has its original options. Zero before then.
	Since      time.Time `json:"since"`
	RevertedAt time.Time `json:"revertedAt,omitzero"`
}

// State returns the state of the set on a server.
func (r *Record) State(server string) State {
	if r == nil {
		return Untried
	}
	_, works := r.EvidenceOn(server)
	_, rejected := r.Rejected[server]
	switch {
	case r.isSettled() && works:
		return Disputed
	case r.isSettled():
		return Failing
	case len(r.Blames) > 0:
		return Suspected
	case rejected:
		return Rejected
	case r.probing[server]:
		return Probing
	case works:
		return Works
	case r.isWritten:
		return Canary
	}
	return Untried
}

// EvidenceOn returns the evidence for the options on a server: a mount by a pod, which counts for all servers, or a probe.
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

// MustRestore reports whether all volumes of a server that have the options get their original ones back.
func (r *Record) MustRestore(server string) bool { return r.State(server) == Failing }

// Counts reports whether a failed mount counts against the set.
func (r *Record) Counts(failure string) bool { return r == nil || !slices.Contains(r.Cleared, failure) }

// Stops reports whether failed mounts keep all other volumes, on any server, from getting the options.
func (r *Record) Stops() bool { return r != nil && len(r.Blames) > 0 }

// IsDeclaredBy reports whether a rule of a profile declares the set.
func (i Identity) IsDeclaredBy(profile string) bool {
	return slices.ContainsFunc(i.Rules, func(rule string) bool { return strings.HasPrefix(rule, profile+"/") })
}

// BlameOf returns the recorded failed mount of a volume. Nil if there is none.
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

// LimitTimes replaces times in the future: a clock was ahead when they were recorded, or was set back since. A summary has no clock.
func (r *Record) LimitTimes(now time.Time) {
	if now.IsZero() {
		return
	}
	for i := range r.Blames {
		r.Blames[i].Since, r.Blames[i].RevertedAt = clocktime.Past(r.Blames[i].Since, now), clocktime.Past(r.Blames[i].RevertedAt, now)
	}
	for volume, at := range r.Closed {
		r.Closed[volume] = clocktime.Past(at, now)
	}
}
