package waits

import (
	"go/constant"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/text"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-d))) }

// condition returns a condition that has had its status for an hour.
func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: *ago(time.Hour)}
}

// world is the profile p with nodes that wait.
type world struct {
	profile v1alpha1.StorageClientProfile
	cluster overview.Cluster
	volumes []volumeplan.Listed
}

func newWorld(conditions ...metav1.Condition) *world {
	w := &world{}
	w.profile.Name = "p"
	w.profile.Spec.AllNodes = true
	w.profile.Spec.Rollout.Windows = []v1alpha1.Window{{Schedule: "0 2 * * 6", DurationSeconds: 3600}}
	w.profile.Spec.Rollout.Drain.ExcludeFromLoadBalancersSeconds = 60
	w.profile.Spec.Rollout.SettleSeconds = ptr.To[int32](3600)
	w.profile.Status.Conditions = append([]metav1.Condition{
		condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRollingOut, "0/1 nodes up to date"),
		condition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonRollingOut, "0/1 nodes up to date"),
	}, conditions...)
	w.cluster = overview.Cluster{Now: now}
	return w
}

// node adds a node with settings of the profile that has waited for five minutes: with a note of the rollout, or with the condition Tuned.
func (w *world) node(name string, note *v1alpha1.RolloutStatus, reason, message string) *world {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: *ago(5 * time.Minute)}}
	clientNode := v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	clientNode.Spec.Settings = []v1alpha1.NodeSetting{{Key: "kernelArgument/a", Value: "1", Profile: "p"}}
	if clientNode.Status.Rollout = note; note != nil {
		note.Reason, note.Message, note.Since = reason, message, ago(5*time.Minute)
		if !note.Phase.IsInService() {
			n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"p","bootHash":"h","since":"` + ago(5*time.Minute).UTC().Format(time.RFC3339) + `"}`}
		}
	}
	w.cluster.Nodes, w.cluster.StorageClientNodes = append(w.cluster.Nodes, n), append(w.cluster.StorageClientNodes, clientNode)
	return w
}

// heldUp returns the lines of "kubectl storageclient status p" about the wait.
func (w *world) heldUp(t *testing.T) string {
	t.Helper()
	w.cluster.Profiles = []v1alpha1.StorageClientProfile{w.profile}
	status := view.NewStatus(w.cluster.Profiles)
	status.Profiles[0].Details = &view.Details{HeldUpBy: view.HeldUpBy(&w.profile, overview.Waits(&w.profile, w.cluster), w.volumes)}
	var out strings.Builder
	check.NoError(t, status.WriteText(&out, now))
	_, rest, isNamed := strings.Cut(out.String(), "Held up by ")
	lines, _, _ := strings.Cut(rest, "\nPROFILE ")
	if !isNamed {
		t.Errorf("the status names no wait:\n%s", out.String())
	}
	return lines
}

// noteOf returns the note of a node at the step of the rollout in which a wait ends by a bound.
func noteOf(bound string) *v1alpha1.RolloutStatus {
	switch bound {
	case "drainDeadline", "volumesPatience", "ExcludeFromLoadBalancersSeconds", "RefusalPause":
		return &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining}
	case "permitDeadline", "rebootDeadline":
		return &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutRebooting}
	case "SettleSeconds":
		return &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutSettling}
	case "RetryAfter":
		return &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, RetryAfter: ago(-time.Minute)}
	}
	return &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting}
}

// endsWithOthers are the bounds of waits whose end no object contains: they end once the nodes in the message are done.
var endsWithOthers = map[string]bool{"ZonePatience": true, "isTurnSoon": true, "findObstacle": true}

// wants are the texts about a wait in the status: the object, the reason, the start, and the end or the action.
func wants(w wait, object, reason, message, action string) []string {
	out := []string{object + ": " + reason + ", for 5m: " + text.Line(message)}
	switch {
	case w.action != "" && action == "":
		out = append(out, "no action for this reason")
	case action != "":
		out = append(out, "\n  Action: "+strings.ReplaceAll(action, "`", `"`))
	case endsWithOthers[w.bound]:
		out = append(out, "; ends on its own after the nodes and volumes ahead")
	case w.bound != "":
		out = append(out, "; ends on its own by 20")
	}
	return out
}

func TestTheStatusNamesEachWaitWithItsEndOrAction(t *testing.T) {
	values := constantsOf(t, "api/v1alpha1")
	verify := func(t *testing.T, got string, wants []string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("the status lacks %q:\n%s", want, got)
			}
		}
	}
	for name, w := range rollout {
		t.Run(name, func(t *testing.T) {
			reason := constant.StringVal(values[name])
			if w.finished != "" {
				return
			}
			verify(t, newWorld().node("a", noteOf(w.bound), reason, "why").heldUp(t), wants(w, "Node a", reason, "why", overview.Actions[reason]))
		})
	}
	for name, w := range conditions {
		if reason := constant.StringVal(values[name]); w.finished == "" && strings.HasPrefix(name, "NodeReason") {
			t.Run(name, func(t *testing.T) {
				verify(t, newWorld().node("a", nil, reason, "why").heldUp(t), wants(w, "Node a", reason, "why", overview.Actions[reason]))
			})
		}
	}
	for message, w := range live {
		t.Run(message, func(t *testing.T) {
			got := newWorld().node("a", nil, v1alpha1.NodeReasonApplying, message).heldUp(t)
			verify(t, got, wants(w, "Node a", v1alpha1.NodeReasonApplying, message, overview.Actions[v1alpha1.NodeReasonApplying]))
		})
	}
	for name, w := range volumes {
		if reason := constant.StringVal(values[name]); w.finished == "" {
			t.Run(name, func(t *testing.T) {
				world := newWorld()
				world.volumes = []volumeplan.Listed{{Volume: "v", State: volumeplan.VolumeBlocked, Reason: reason, Message: "why"}}
				got := strings.Replace(world.heldUp(t), ", for 60m", ", for 5m", 1)
				verify(t, got, wants(w, "PersistentVolume v", reason, "why", view.VolumeRemedies[reason]))
			})
		}
	}
	for message := range pending {
		t.Run(message, func(t *testing.T) {
			world := newWorld()
			world.volumes = []volumeplan.Listed{{Volume: "v", State: volumeplan.VolumePending, Reason: v1alpha1.VolumeReasonOptionsMerged, Message: message}}
			got := world.heldUp(t)
			verify(t, got, []string{"PersistentVolume v: VolumeOptionsMerged, for 60m: " + text.Line(message), "kubectl storageclient volumes p"})
		})
	}
}

// A failure comes before a wait, a wait that a user ends before a wait that ends on its own, and a wait with a known end before a queue.
func TestTheStatusNamesTheMostImportantWaitFirst(t *testing.T) {
	w := newWorld()
	steps := []struct{ add, want string }{
		{v1alpha1.RolloutReasonWaitingForBudget, "Node " + v1alpha1.RolloutReasonWaitingForBudget},
		{v1alpha1.RolloutReasonDrainBlocked, "Node " + v1alpha1.RolloutReasonDrainBlocked},
		{v1alpha1.RolloutReasonNodePaused, "Node " + v1alpha1.RolloutReasonNodePaused},
		{v1alpha1.RolloutReasonCanaryFailed, "Node " + v1alpha1.RolloutReasonCanaryFailed}, // the same rank and time: by name
		{v1alpha1.RolloutReasonRebootTimedOut, "Node " + v1alpha1.RolloutReasonRebootTimedOut},
	}
	if got := w.heldUp(t); !strings.HasPrefix(got, "StorageClientProfile p: RollingOut, for 60m") {
		t.Errorf("without a node: got %s", got)
	}
	for _, step := range steps {
		note := noteOf(rollout["RolloutReason"+step.add].bound)
		if step.add == v1alpha1.RolloutReasonRebootTimedOut {
			note.Phase = v1alpha1.RolloutFailed
		}
		if got := w.node(step.add, note, step.add, "why").heldUp(t); !strings.HasPrefix(got, step.want+": ") {
			t.Errorf("with %s: got %s", step.add, got)
		}
	}
	stalled := newWorld(condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonFenceMissing, "apply it")).
		node("a", noteOf("drainDeadline"), v1alpha1.RolloutReasonDrainBlocked, "why")
	if got := stalled.heldUp(t); !strings.HasPrefix(got, "StorageClientProfile p: FenceMissing, for 60m: apply it") {
		t.Errorf("stalled: got %s", got)
	}
	done := newWorld()
	done.profile.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonUpToDate, "")}
	if got := view.HeldUpBy(&done.profile, nil, nil); got != nil {
		t.Errorf("done: got %+v, want no wait", got)
	}
}
