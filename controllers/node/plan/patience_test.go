package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/test/check"
)

func TestPatienceDelaysTransientConditions(t *testing.T) {
	tuned := corev1.NodeCondition{Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionTrue, Reason: v1alpha1.NodeReasonTuned}
	applying := corev1.NodeCondition{
		Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionFalse, Reason: v1alpha1.NodeReasonApplying, LastHeartbeatTime: metav1.NewTime(now),
	}
	silent := corev1.NodeCondition{Type: v1alpha1.StorageReachableNodeCondition, Status: corev1.ConditionUnknown, Reason: v1alpha1.StorageReasonAgentSilent}
	drifted := corev1.NodeCondition{Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionFalse, Reason: v1alpha1.NodeReasonDrifted}
	p := NewPatience()
	for _, step := range []struct {
		name string
		old  *corev1.NodeCondition
		next corev1.NodeCondition
		at   time.Duration
		want time.Duration
	}{
		{"applying, at first", &tuned, applying, 0, passingAfter},
		{"still applying", &tuned, applying, passingAfter - time.Second, time.Second},
		{"for too long", &tuned, applying, passingAfter, 0},
		{"in other words, a moment later", &applying, applying, time.Second, rewordAfter - time.Second},
		{"in other words, later", &applying, applying, rewordAfter, 0},
		{"what does not pass is said at once", &tuned, drifted, 0, 0},
		{"applying again: the wait begins anew", &tuned, applying, time.Hour, passingAfter},
		{"the other condition has a wait of its own", &tuned, silent, time.Hour + 10*time.Second, passingAfter},
		{"a first condition waits too", nil, applying, time.Hour + 10*time.Second, passingAfter - 10*time.Second},
	} {
		if got := p.Hold("a", step.old, step.next, now.Add(step.at)); got != step.want {
			t.Errorf("%s: got held for %s, want %s", step.name, got, step.want)
		}
	}
	check.Equal(t, "time that another node is held", passingAfter, p.Hold("b", &tuned, applying, now.Add(time.Hour)))
	if p.Forget("a"); len(p.startTimes) != 1 {
		t.Errorf("got %v, want only the entry of the other node", p.startTimes)
	}
	check.Equal(t, "wait of the zero Patience", 0, (Patience{}).Hold("a", &tuned, applying, now))
}

// The rollout's note contains the hash of the settings. The condition does not, so a new hash alone does not cause a write.
func TestTheConditionIsNotWrittenForAHashAlone(t *testing.T) {
	clientNode := clientNodeWith(setting(rmem, "p", v1alpha1.DeletionRestore))
	clientNode.Status.BootID, clientNode.Status.ObservedGeneration = "boot", 1
	s := snapshotOf(clientNode, profile("p", nil))
	s.Node.Status.NodeInfo.BootID, s.AgentReady = "boot", true
	condition := func(hash string) bool {
		clientNode.Spec.Hash, clientNode.Status.Hash, s.Desired.Hash = hash, hash, hash
		next, isNew := Condition(s, clientNode, "", now)
		if next.Reason != v1alpha1.NodeReasonTuned {
			t.Fatalf("%+v", next)
		}
		s.Node.Status.Conditions = []corev1.NodeCondition{next}
		return isNew
	}
	if !condition("h") || condition("another") {
		t.Error("want only the first condition to be written")
	}
}

// Only a note about the current settings determines their soak time. Notes about earlier settings and condition messages do not.
func TestASoakStartsWithTheSettingsInTheNote(t *testing.T) {
	clientNode := clientNodeWith(setting(rmem, "p", v1alpha1.DeletionRestore))
	s := snapshotOf(clientNode, profile("p", nil))
	since := func() time.Time {
		all := fleet.Snapshot{Profiles: s.Profiles, Ready: map[string]bool{s.Node.Name: true}}
		return fleet.GateEntry(all, s.Node, clientNode, "").AppliedSince
	}
	s.Node.Status.Conditions = []corev1.NodeCondition{{
		Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionTrue, Reason: v1alpha1.NodeReasonTuned, Message: "1 setting verified (settings h)",
		LastHeartbeatTime: metav1.NewTime(now.Add(-time.Hour)),
	}}
	if got := since(); !got.IsZero() {
		t.Errorf("without a note (manager of the previous release): got a soak since %s, want none", got)
	}
	clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Tuned: &v1alpha1.RolloutTuned{Hash: "h", Since: metav1.NewTime(now.Add(-time.Hour))}}
	if got := since(); !got.Equal(now.Add(-time.Hour)) {
		t.Errorf("got the settings applied at %s, want an hour ago", got)
	}
	s.Node.Status.Conditions[0].Message = "Alles in Ordnung."
	if got := since(); !got.Equal(now.Add(-time.Hour)) {
		t.Errorf("with another message: got the settings applied at %s, want an hour ago", got)
	}
	clientNode.Spec.Hash, clientNode.Status.Hash = "another", "another"
	if got := since(); !got.IsZero() {
		t.Errorf("got a soak of the new settings since %s from a note about the old settings", got)
	}
}
