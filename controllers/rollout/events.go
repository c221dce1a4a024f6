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
	// eventFieldDropped is set when the API server drops a field of a Node's record, because its CustomResourceDefinitions are older than the
	// manager. The note names the field.
	eventFieldDropped = "FieldDropped"
	// eventUncordoned is set when the rollout returns the Node to service without an accepted reboot. The note contains the reason.
	eventUncordoned = "NodeUncordoned"
)

func (p *pass) emitEvent(node, kind, reason, action, note string, args ...any) {
	if regarding := current(p, p.nodes, node); regarding != nil {
		p.Recorder.Eventf(regarding, nil, kind, reason, action, note, args...)
	}
}

// progressEvery is the minimum interval between progress events of a profile. One event for each node and step would be a fifth of all writes.
const progressEvery = time.Minute

// Actions on a node, in the order in which they are reported.
const (
	cordoned = iota
	permitted
	inService
)

// noteProgress adds an action to the next event of the profile for which a node is disrupted.
func (p *pass) noteProgress(node, profile string, done int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.progress[profile] == nil {
		p.progress[profile] = &profileProgress{}
	}
	nodes := &p.progress[profile].nodes[done]
	*nodes = append(*nodes, node)
}

func (p *pass) profileOf(node string) string {
	if object := current(p, p.nodes, node); object != nil {
		return readDisruption(object.Annotations[v1alpha1.DisruptionAnnotation]).Profile
	}
	return ""
}

// reportProgress emits the due events, and returns the time of the next one; zero if no progress is unreported.
func (p *pass) reportProgress() (next time.Time) {
	now := p.Clock.Now()
	for name, progress := range p.progress {
		nextReport := progress.reported.Add(progressEvery)
		profile := p.profiles.ByName(name)
		switch {
		case profile == nil, progress.String() == "" && !now.Before(nextReport):
			delete(p.progress, name)
		case progress.String() == "":
		case now.Before(nextReport):
			next = earlierOf(next, nextReport)
		default:
			p.Recorder.Eventf(profile.StorageClientProfile, nil, corev1.EventTypeNormal, eventProgress, "Reboot", "%s", progress.String())
			*progress = profileProgress{reported: now}
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
func (p *pass) emitNoteEvent(node string, previous, current v1alpha1.RolloutStatus) {
	switch {
	case current.Refusal != "" && current.Refusal != previous.Refusal:
		p.emitEvent(node, corev1.EventTypeWarning, eventWriteRefused, "Reboot", "%s", current.Refusal)
	case current.Phase == v1alpha1.RolloutFailed && previous.Phase != v1alpha1.RolloutFailed:
		p.emitEvent(node, corev1.EventTypeWarning, eventFailed, "Reboot", "%s: %s", current.Reason, current.Message)
	case current.Reason == v1alpha1.RolloutReasonDrainTimedOut && previous.Reason != v1alpha1.RolloutReasonDrainTimedOut:
		p.emitEvent(node, corev1.EventTypeWarning, eventDrainTimedOut, "Drain", "%s", current.Message)
	case current.Reason == v1alpha1.RolloutReasonHostBusy && (previous.Reason != current.Reason || previous.Phase != current.Phase):
		p.emitEvent(node, corev1.EventTypeWarning, eventHostBusy, "Reboot", "%s", current.Message)
	case current.Reason == v1alpha1.RolloutReasonDrainBlocked && (previous.Reason != current.Reason || previous.Message != current.Message):
		p.emitEvent(node, corev1.EventTypeWarning, eventDrainBlocked, "Drain", "%s", current.Message)
	}
}
