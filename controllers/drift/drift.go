// Package drift sends events on Nodes about settings that another program or user has changed: the value found, and the value that the agent has
// set again. Agents send no events; the package uses the counts in their status.
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
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// Reasons of events on Nodes.
const (
	// eventHealed is set when another program or user had changed a setting and the agent has set it again. The note names the value found and the
	// value that was set again.
	eventHealed = "SettingDriftHealed"
	// eventDrifted is set when a setting does not have its declared value and stays that way. Causes: another program changes it repeatedly,
	// another file overrides it at the next boot, or the agent could not set it again.
	eventDrifted = "SettingDrifted"
)

// maxNote is the maximum length of a note in the events API.
const maxNote = 1024

// Reporter watches StorageClientNodes.
type Reporter struct {
	Recorder events.EventRecorder
}

// SetupWithManager adds the reporter to the manager's cache of StorageClientNodes.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	return watch.ClientNodeUpdates(mgr, r.ReportChanges)
}

// ReportChanges sends one event for each setting whose drift count has grown, or that no longer has its declared value, between two versions of a
// StorageClientNode.
func (r *Reporter) ReportChanges(before, after *v1alpha1.StorageClientNode) {
	old := lists.Map(lists.Pointers(before.Status.Settings), func(s *v1alpha1.SettingStatus) (string, *v1alpha1.SettingStatus) { return s.Key, s })
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
	if s.State == v1alpha1.SettingShadowed && catalogue.ParseValue(s.Desired).IsMetBy(s.Observed) {
		return fmt.Sprintf("%s has the declared value %q until the next boot", s.Key, s.Desired)
	}
	return fmt.Sprintf("%s is %q, not the declared %q", s.Key, s.Observed, s.Desired)
}

func changeText(s v1alpha1.SettingStatus, healed int32) string {
	return fmt.Sprintf("Another program or user changed %s to %q%s", s.Key, s.Drift.LastObserved, timesText(healed))
}

// timesText returns the number of times, empty for one.
func timesText(n int32) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" %d times", n)
}

func (r *Reporter) sendEvent(clientNode *v1alpha1.StorageClientNode, reason, action, note string) {
	r.Recorder.Eventf(fleet.NodeOf(clientNode), clientNode, corev1.EventTypeWarning, reason, action, "%s", text.CutBytes(note, maxNote))
}
