package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestReconcilingNamesNodePodAndBudgetOfABlockedDrain(t *testing.T) {
	f := newWorld(policy(v1alpha1.RebootAutomatic)).
		node("a", rebootDue(v1alpha1.ReasonWaitingForBudget)).node("b", rebootDue(v1alpha1.ReasonWaitingForBudget)).
		node("c", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
			rebootDue("DrainBlocked")(n, s)
			n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"p"}`}
			s.Status.Rollout.Phase, s.Status.Rollout.Message = v1alpha1.RolloutDraining, "Pod x/y is kept by PodDisruptionBudget x/z"
		}).report()
	got := f.judgeReconciling(f.judgeStalled())
	want := "0/3 nodes and 0/0 volumes up to date; c: DrainBlocked: Pod x/y is kept by PodDisruptionBudget x/z; " +
		"a, b: WaitingForBudget: waits for WaitingForBudget; reboot due: a, b, c"
	if got.reason != v1alpha1.ReasonRollingOut || got.message != want {
		t.Errorf("%s: %s\nwant %s", got.reason, got.message, want)
	}
	if got, want := f.limitedBy(now), "c: Pod x/y is kept by PodDisruptionBudget x/z"; got != want {
		t.Errorf("limited by %q, want %q", got, want)
	}
}
