package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	got := f.evaluateReconciling(f.evaluateStalled())
	want := "0/3 nodes and 0/0 volumes up to date; c: DrainBlocked: Pod x/y is kept by PodDisruptionBudget x/z; " +
		"a, b: WaitingForBudget: waits for WaitingForBudget; reboot due: a, b, c"
	if got.reason != v1alpha1.ReasonRollingOut || got.message != want {
		t.Errorf("%s: %s\nwant %s", got.reason, got.message, want)
	}
	if got, want := f.limitedBy(now), "c: Pod x/y is kept by PodDisruptionBudget x/z"; got != want {
		t.Errorf("got limited by %q, want %q", got, want)
	}
}

// A note is as old as the last pass of the rollout. A hold that a user has removed since then does not block the rollout, and the profile
// is not done.
func TestAnEndedHoldIsNoException(t *testing.T) {
	paused := map[string]string{v1alpha1.PausedAnnotation: "true"}
	never := map[string]string{v1alpha1.NeverDisruptAnnotation: "true"}
	otherProfile := func(change func(*v1alpha1.StorageClientProfile)) func(*world) {
		return func(w *world) {
			other := *w.profiles[0].DeepCopy()
			other.Name, other.Spec.Node = "other", &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.wmem_max": "1048576"}}
			change(&other)
			w.profiles = append(w.profiles, other)
		}
	}
	for name, c := range map[string]struct {
		reason      string
		annotations map[string]string
		other       func(*world)
		held        bool
	}{
		"the profile was resumed":                {reason: v1alpha1.ReasonPausedByAnnotation},
		"its field was set to false":             {reason: v1alpha1.ReasonPausedByField},
		"its mode became Enforce":                {reason: v1alpha1.ReasonPlanMode},
		"its policy became Automatic":            {reason: v1alpha1.RolloutReasonRebootPolicyNever},
		"the Node was resumed":                   {reason: v1alpha1.RolloutReasonNodePaused},
		"the Node may be disrupted again":        {reason: v1alpha1.RolloutReasonNeverDisrupt},
		"not if the Node is paused":              {reason: v1alpha1.RolloutReasonNodePaused, annotations: paused, held: true},
		"not if the Node is never disrupted":     {reason: v1alpha1.RolloutReasonNeverDisrupt, annotations: never, held: true},
		"not if the value is unusual":            {reason: v1alpha1.RolloutReasonNeverDisrupt, annotations: map[string]string{v1alpha1.NeverDisruptAnnotation: "Yes"}, held: true},
		"not if another profile is paused":       {reason: v1alpha1.ReasonPausedByField, other: otherProfile(func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true }), held: true},
		"not if another profile is in mode Plan": {reason: v1alpha1.ReasonPlanMode, other: otherProfile(func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }), held: true},
		"not if another profile does not reboot": {reason: v1alpha1.RolloutReasonRebootPolicyNever, other: otherProfile(policy(v1alpha1.RebootNever)), held: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(policy(v1alpha1.RebootAutomatic))
			if c.other != nil {
				c.other(w)
			}
			r := w.node("a", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
				rebootDue(c.reason)(n, s)
				n.Annotations = c.annotations
				if c.other != nil {
					s.Spec.Settings = append(s.Spec.Settings, v1alpha1.NodeSetting{Key: "sysctl/net.core.wmem_max", Value: "1048576", Profile: "other"})
				}
			}).report()
			ready := r.evaluateReady(r.evaluateStalled())
			if held := ready.reason == v1alpha1.ReasonReadyWithExceptions; held != c.held || (ready.status == metav1.ConditionTrue) != c.held {
				t.Errorf("Ready is %s/%s: %s", ready.status, ready.reason, ready.message)
			}
		})
	}
}
