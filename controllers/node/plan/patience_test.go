package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
)

func TestPatienceHoldsBackWhatPasses(t *testing.T) {
	tuned := corev1.NodeCondition{Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionTrue, Reason: v1alpha1.NodeReasonTuned}
	applying := corev1.NodeCondition{
		Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionFalse, Reason: v1alpha1.NodeReasonApplying, LastHeartbeatTime: metav1.NewTime(now),
	}
	silent := corev1.NodeCondition{Type: v1alpha1.StorageReachableNodeCondition, Status: corev1.ConditionUnknown, Reason: v1alpha1.StorageReasonAgentSilent}
	drifted := corev1.NodeCondition{Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionFalse, Reason: v1alpha1.NodeReasonDrifted}
	p := NewPatience()
	for _, step := range []struct {
		what string
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
			t.Errorf("%s: held for %s, want %s", step.what, got, step.want)
		}
	}
	if got := p.Hold("b", &tuned, applying, now.Add(time.Hour)); got != passingAfter {
		t.Errorf("another node is held for %s, want %s", got, passingAfter)
	}
	if p.Forget("a"); len(p.since) != 1 {
		t.Errorf("%v is left, want only the other node's", p.since)
	}
	if got := (Patience{}).Hold("a", &tuned, applying, now); got != 0 {
		t.Errorf("the zero Patience holds for %s", got)
	}
}

// A condition that was left as it was while settings changed says nothing of how long the node has had the new ones.
func TestASoakBeginsWithTheSettingsThatTheConditionNames(t *testing.T) {
	clientNode := clientNodeWith(setting(rmem, "p", v1alpha1.DeletionRestore))
	clientNode.Status.Hash, clientNode.Status.ObservedGeneration, clientNode.Status.BootID = clientNode.Spec.Hash, 1, "boot"
	s := snapshotOf(clientNode, profile("p", nil))
	s.Node.Status.NodeInfo.BootID, s.AgentReady = "boot", true
	s.Wanted.Hash = clientNode.Spec.Hash
	first, _ := Condition(s, clientNode, "", now.Add(-time.Hour))
	s.Node.Status.Conditions = append(s.Node.Status.Conditions, first)
	since := func() time.Time {
		all := fleet.Snapshot{Profiles: s.Profiles, Ready: map[string]bool{s.Node.Name: true}}
		return fleet.GateEntry(all, s.Node, clientNode, "").TakenSince
	}
	if got := since(); !got.Equal(now.Add(-time.Hour)) {
		t.Fatalf("the settings were taken at %s, want an hour ago", got)
	}
	clientNode.Spec.Hash, clientNode.Status.Hash = "another", "another"
	if got := since(); !got.IsZero() {
		t.Errorf("the new settings soak since %s, by a condition that speaks of the old ones", got)
	}
	s.Wanted.Hash = "another"
	next, written := Condition(s, clientNode, "", now)
	if !written {
		t.Fatal("nothing tells that the new settings are taken")
	}
	s.Node.Status.Conditions[len(s.Node.Status.Conditions)-1] = next
	if got := since(); !got.Equal(now) {
		t.Errorf("the new settings soak since %s, want from now on", got)
	}
}
