package rollout

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// Reasons of events on Nodes.
const (
	// eventCordoned is set when the rollout has cordoned the Node and begins to drain it.
	eventCordoned = "NodeCordoned"
	// eventDrainBlocked is set when a PodDisruptionBudget or the drain's own rules keep a pod on the Node. The note names both.
	eventDrainBlocked = "DrainBlocked"
	// eventDrainTimedOut is set when a drain did not end within rollout.drain.timeoutSeconds.
	eventDrainTimedOut = "DrainTimedOut"
	// eventHostBusy is set when the agent holds a reboot back since something on its host must not be interrupted, and when the node returns
	// to service because of it. The note names it.
	eventHostBusy = "HostBusy"
	// eventPermitted is set when the node's agent may reboot it once.
	eventPermitted = "RebootPermitted"
	// eventAccepted is set when the node came back with every value read back.
	eventAccepted = "NodeAccepted"
	// eventFailed is set when the node goes to phase Failed. The note says why; the rollout makes no further attempt for these settings.
	eventFailed = "NodeFailed"
	// eventNodeLost is set on the profile when a Node was deleted or replaced while it had a reboot permit, and no autoscaler or
	// cloud had marked it for removal before: it counts as failed.
	eventNodeLost = "NodeLost"
	// eventWriteRefused is set when the API server refuses a write that the node's next step needs. The note has its answer.
	eventWriteRefused = "WriteRefused"
	// eventUncordoned is set when the rollout returns the Node to service.
	eventUncordoned = "NodeUncordoned"
)

// emitEvent reports on the Node what was done or happened to it.
func (s *scope) emitEvent(node, kind, reason, action, note string, args ...any) {
	if regarding := s.nodeNow(node); regarding != nil {
		s.Recorder.Eventf(regarding, nil, kind, reason, action, note, args...)
	}
}

// emitNoteEvent reports a change of the note that somebody has to act on.
func (s *scope) emitNoteEvent(node string, was, is v1alpha1.RolloutStatus) {
	switch {
	case plan.Refusal(is) != "" && plan.Refusal(is) != plan.Refusal(was):
		s.emitEvent(node, corev1.EventTypeWarning, eventWriteRefused, "Reboot", "%s", plan.Refusal(is))
	case is.Phase == v1alpha1.RolloutFailed && was.Phase != v1alpha1.RolloutFailed:
		s.emitEvent(node, corev1.EventTypeWarning, eventFailed, "Reboot", "%s: %s", is.Reason, is.Message)
	case is.Reason == v1alpha1.RolloutReasonDrainTimedOut && was.Reason != v1alpha1.RolloutReasonDrainTimedOut:
		s.emitEvent(node, corev1.EventTypeWarning, eventDrainTimedOut, "Drain", "%s", is.Message)
	case is.Reason == v1alpha1.RolloutReasonHostBusy && (was.Reason != is.Reason || was.Phase != is.Phase):
		s.emitEvent(node, corev1.EventTypeWarning, eventHostBusy, "Reboot", "%s", is.Message)
	case is.Reason == v1alpha1.RolloutReasonDrainBlocked && (was.Reason != is.Reason || was.Message != is.Message):
		s.emitEvent(node, corev1.EventTypeWarning, eventDrainBlocked, "Drain", "%s", is.Message)
	}
}
