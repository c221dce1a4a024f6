// Package drift sends events on Nodes about what something else has changed of their settings: the value found, and the
// value that the agent has set again. Agents send no events; it goes by what they count in their status.
package drift

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// Reasons of events on Nodes.
const (
	// eventHealed is set when something else had changed a setting and the agent has set it again. The note names the value
	// found and the value that is back.
	eventHealed = "SettingDriftHealed"
	// eventDrifted is set when a setting is not as declared and stays so: something else changes it again and again, another
	// file would win at the next boot, or the agent could not set it again.
	eventDrifted = "SettingDrifted"
)

// maxNote is the longest note that the events API takes.
const maxNote = 1024

// Reporter watches StorageClientNodes.
type Reporter struct {
	Recorder events.EventRecorder
}

// SetupWithManager adds the reporter to the manager's cache of StorageClientNodes.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	return watch.ClientNodeUpdates(mgr, r.ReportChanges)
}

// ReportChanges sends one event for each setting whose count has grown, or that has begun to be other than declared, between
// two versions of a client node.
func (r *Reporter) ReportChanges(before, after *v1alpha1.StorageClientNode) {
	old := map[string]*v1alpha1.SettingStatus{}
	for i := range before.Status.Settings {
		old[before.Status.Settings[i].Key] = &before.Status.Settings[i]
	}
	for _, s := range after.Status.Settings {
		healed, started := standing.Drift(old[s.Key], s)
		switch {
		case healed > 0 && s.State == v1alpha1.SettingInSync:
			r.sendEvent(after, eventHealed, "Heal", fmt.Sprintf("%s; the agent set it back to %q", changeText(s, healed), s.Desired))
		case healed > 0:
			r.sendEvent(after, eventDrifted, "Heal", fmt.Sprintf("%s; the agent could not set it back to %q: %s",
				changeText(s, healed), s.Desired, cmp.Or(s.Message, string(s.State))))
		case started:
			r.sendEvent(after, eventDrifted, "Report", deviationText(s)+": "+cmp.Or(s.Message, string(s.State)))
		}
	}
}

func deviationText(s v1alpha1.SettingStatus) string {
	if s.State == v1alpha1.SettingShadowed && s.Observed == s.Desired {
		return fmt.Sprintf("%s is the declared %q until the next boot", s.Key, s.Desired)
	}
	return fmt.Sprintf("%s is %q, not the declared %q", s.Key, s.Observed, s.Desired)
}

func changeText(s v1alpha1.SettingStatus, healed int32) string {
	return fmt.Sprintf("Something else changed %s to %q%s", s.Key, s.Drift.LastObserved, timesText(healed))
}

// timesText says how often, where that is more than once.
func timesText(n int32) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" %d times", n)
}

func (r *Reporter) sendEvent(clientNode *v1alpha1.StorageClientNode, reason, action, note string) {
	r.Recorder.Eventf(fleet.NodeOf(clientNode), clientNode, corev1.EventTypeWarning, reason, action, "%s", text.CutBytes(note, maxNote))
}
