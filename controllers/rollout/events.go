package rollout

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// Reasons of events on Nodes.
const (
	// eventProgress is the progress of a rollout, set on the profile at most once a minute. The note lists the Nodes since the last event:
	// cordoned, permitted to reboot, and in service again with all values verified.
	eventProgress = "RolloutProgress"
	// eventDrainBlocked is set when a PodDisruptionBudget or the drain's own rules keep a pod on the Node. The note names both.
	eventDrainBlocked = "DrainBlocked"
	// eventDrainTimedOut is set when a drain did not finish within rollout.drain.timeoutSeconds.
	eventDrainTimedOut = "DrainTimedOut"
	// eventHostBusy is set when the agent delays a reboot because work on its host must not be interrupted, and when the node returns to service
	// for that reason. The note names the work.
	eventHostBusy = "HostBusy"
	// eventFailed is set when the node changes to phase Failed. The note contains the reason; the rollout makes no further attempt for these
	// settings.
	eventFailed = "NodeFailed"
	// eventNodeLost is set when a Node was deleted or replaced while it had a reboot permit. The event is on the profile, and the node counts as
	// failed. It is not set if an autoscaler or cloud had marked the Node for removal before.
	eventNodeLost = "NodeLost"
	// eventWriteRefused is set when the API server rejects a write that the node's next step needs. The note contains the error.
	eventWriteRefused = "WriteRefused"
	// eventUncordoned is set when the rollout returns the Node to service without an accepted reboot. The note contains the reason.
	eventUncordoned = "NodeUncordoned"
)

func (s *scope) emitEvent(node, kind, reason, action, note string, args ...any) {
	if regarding := current(s, s.nodes, node); regarding != nil {
		s.Recorder.Eventf(regarding, nil, kind, reason, action, note, args...)
	}
}

// progressEvery is the minimum interval between progress events of a profile. One event for each node and step would be a fifth of all writes.
const progressEvery = time.Minute

// profileProgress contains the nodes of one profile since its last event, by the action on them. Unreported progress is lost when the manager
// stops.
type profileProgress struct {
	reported time.Time
	nodes    [3][]string
}

// Actions on a node, in the order in which they are reported.
const (
	cordoned = iota
	permitted
	inService
)

// noteProgress adds an action to the next event of the profile for which a node is disrupted.
func (s *scope) noteProgress(node, profile string, done int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.progress[profile] == nil {
		s.progress[profile] = &profileProgress{}
	}
	nodes := &s.progress[profile].nodes[done]
	*nodes = append(*nodes, node)
}

func (s *scope) profileOf(node string) string {
	if object := current(s, s.nodes, node); object != nil {
		return readDisruption(object.Annotations[v1alpha1.DisruptionAnnotation]).Profile
	}
	return ""
}

// reportProgress emits the due events, and returns the time of the next one; zero if no progress is unreported.
func (s *scope) reportProgress() (next time.Time) {
	now := s.Clock.Now()
	for name, p := range s.progress {
		nextReport := p.reported.Add(progressEvery)
		profile := s.profiles.ByName(name)
		switch {
		case profile == nil, p.String() == "" && !now.Before(nextReport):
			delete(s.progress, name)
		case p.String() == "":
		case now.Before(nextReport):
			next = earlierOf(next, nextReport)
		default:
			s.Recorder.Eventf(profile.StorageClientProfile, nil, corev1.EventTypeNormal, eventProgress, "Reboot", "%s", p.String())
			*p = profileProgress{reported: now}
		}
	}
	return next
}

// String lists the actions, empty if there are none.
func (p *profileProgress) String() string {
	return text.Combine(". ", text.Labelled("Cordoned: ", text.List(p.nodes[0])), text.Labelled("May reboot: ", text.List(p.nodes[1])),
		text.Labelled("Settings verified after the reboot, in service: ", text.List(p.nodes[2])))
}

// emitNoteEvent emits an event for a change of the note that requires an action by a user.
func (s *scope) emitNoteEvent(node string, previous, current v1alpha1.RolloutStatus) {
	switch {
	case current.Refusal != "" && current.Refusal != previous.Refusal:
		s.emitEvent(node, corev1.EventTypeWarning, eventWriteRefused, "Reboot", "%s", current.Refusal)
	case current.Phase == v1alpha1.RolloutFailed && previous.Phase != v1alpha1.RolloutFailed:
		s.emitEvent(node, corev1.EventTypeWarning, eventFailed, "Reboot", "%s: %s", current.Reason, current.Message)
	case current.Reason == v1alpha1.RolloutReasonDrainTimedOut && previous.Reason != v1alpha1.RolloutReasonDrainTimedOut:
		s.emitEvent(node, corev1.EventTypeWarning, eventDrainTimedOut, "Drain", "%s", current.Message)
	case current.Reason == v1alpha1.RolloutReasonHostBusy && (previous.Reason != current.Reason || previous.Phase != current.Phase):
		s.emitEvent(node, corev1.EventTypeWarning, eventHostBusy, "Reboot", "%s", current.Message)
	case current.Reason == v1alpha1.RolloutReasonDrainBlocked && (previous.Reason != current.Reason || previous.Message != current.Message):
		s.emitEvent(node, corev1.EventTypeWarning, eventDrainBlocked, "Drain", "%s", current.Message)
	}
}
