// Package drift tells, in events on the Nodes, what something else has changed of their settings: the value found, and the
// value that the agent has set again. Agents send no events; it goes by what they count in their status.
package drift

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Reasons of events on Nodes.
const (
	// eventHealed surfaces when something else had changed a setting and the agent has set it again. The note names the value
	// found and the value that is back.
	eventHealed = "SettingDriftHealed"
	// eventDrifted surfaces when a setting is not as declared and stays so: something else changes it again and again, another
	// file would win at the next boot, or the agent could not set it again.
	eventDrifted = "SettingDrifted"
)

// maxNote is the longest note that the events API takes.
const maxNote = 1024

// Reporter watches StorageClientNodes. It sends nothing about an object that it sees for the first time, so a manager that
// starts anew repeats nothing.
type Reporter struct {
	Recorder events.EventRecorder
}

// SetupWithManager adds the reporter to the manager's cache of StorageClientNodes.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	informer, err := mgr.GetCache().GetInformer(context.Background(), &v1alpha1.StorageClientNode{})
	if err != nil {
		return fmt.Errorf("watch StorageClientNodes: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		select {
		case <-mgr.Elected():
		default:
			return
		}
		was, ok := before.(*v1alpha1.StorageClientNode)
		is, also := after.(*v1alpha1.StorageClientNode)
		if ok && also && was.UID == is.UID {
			r.Changed(was, is)
		}
	}})
	if err != nil {
		return fmt.Errorf("watch StorageClientNodes: %w", err)
	}
	return nil
}

// Changed sends one event for each setting whose count has grown, or that has begun to be other than declared, between
// two versions of an object.
func (r *Reporter) Changed(before, after *v1alpha1.StorageClientNode) {
	old := map[string]v1alpha1.SettingStatus{}
	for _, s := range before.Status.Settings {
		old[s.Key] = s
	}
	for _, s := range after.Status.Settings {
		was, known := old[s.Key]
		switch healed := Healed(was, s); {
		case healed > 0 && s.State == v1alpha1.SettingInSync:
			r.tell(after, eventHealed, "Heal", fmt.Sprintf("%s was changed to %s by something else%s; it is %s again", s.Key, quoted(s.Drift.LastObserved), times(healed), quoted(s.Desired)))
		case healed > 0:
			r.tell(after, eventDrifted, "Heal", fmt.Sprintf("%s was changed to %s by something else%s and could not be set to %s again: %s",
				s.Key, quoted(s.Drift.LastObserved), times(healed), quoted(s.Desired), cmp.Or(s.Message, string(s.State))))
		case known && !drifted(was.State) && drifted(s.State):
			r.tell(after, eventDrifted, "Report", fmt.Sprintf("%s is %s, declared is %s: %s", s.Key, quoted(s.Observed), quoted(s.Desired), cmp.Or(s.Message, string(s.State))))
		}
	}
}

// Healed is how often a setting has been set again between two of its statuses. A record that has begun anew counts from
// nothing.
func Healed(was, is v1alpha1.SettingStatus) int32 {
	switch {
	case is.Drift == nil:
		return 0
	case was.Drift == nil || is.Drift.Count < was.Drift.Count:
		return is.Drift.Count
	}
	return is.Drift.Count - was.Drift.Count
}

func drifted(state v1alpha1.SettingState) bool {
	return state == v1alpha1.SettingDrifted || state == v1alpha1.SettingShadowed
}

func quoted(value string) string { return fmt.Sprintf("%q", value) }

func times(n int32) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(", %d times", n)
}

func (r *Reporter) tell(scn *v1alpha1.StorageClientNode, reason, action, note string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: scn.Name}}
	for _, owner := range scn.OwnerReferences {
		if owner.Kind == "Node" {
			node.UID = owner.UID
		}
	}
	r.Recorder.Eventf(node, scn, corev1.EventTypeWarning, reason, action, "%s", strings.ToValidUTF8(note[:min(len(note), maxNote)], ""))
}
