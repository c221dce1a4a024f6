package plan

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// TestForTheOnlyNode has nodes a and b. Only the settings of a need a reboot.
func TestForTheOnlyNode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a, b *Node)
		want   string
	}{
		"another node accepts pods":                         {func(a, b *Node) { a.TakesPods, b.TakesPods = true, true }, v1alpha1.RolloutReasonClaimed},
		"no other node accepts pods":                        {func(a, _ *Node) { a.TakesPods = true }, v1alpha1.RolloutReasonOnlySchedulableNode},
		"the node accepts no pods itself":                   {func(a, _ *Node) { a.TakesPods = false }, v1alpha1.RolloutReasonClaimed},
		"the node serves nothing yet":                       {func(a, _ *Node) { a.TakesPods, a.Untuned, a.Vacant = true, true, true }, v1alpha1.RolloutReasonClaimed},
		"another node accepts pods, but others cordoned it": {func(a, b *Node) { a.TakesPods, b.TakesPods, b.Unschedulable = true, true, true }, v1alpha1.RolloutReasonOnlySchedulableNode},
		"another node accepts pods, but is about to leave":  {func(a, b *Node) { a.TakesPods, b.TakesPods, b.Leaving = true, true, "x" }, v1alpha1.RolloutReasonOnlySchedulableNode},
		"another node can run the manager":                  {func(a, b *Node) { a.Manager, a.TakesManager, b.TakesManager = true, true, true }, v1alpha1.RolloutReasonClaimed},
		"no other node can run the manager":                 {func(a, _ *Node) { a.Manager, a.TakesManager = true, true }, v1alpha1.RolloutReasonOnlyManagerNode},
		"the manager's Pod is unknown":                      {func(a, _ *Node) { a.Manager = true }, v1alpha1.RolloutReasonClaimed},
		"the manager runs elsewhere":                        {func(a, b *Node) { a.TakesManager, b.Manager = true, true }, v1alpha1.RolloutReasonClaimed},
		"another node can run the manager, but is cordoned": {func(a, b *Node) { a.Manager, a.TakesManager, b.TakesManager, b.Unschedulable = true, true, true, true }, v1alpha1.RolloutReasonOnlyManagerNode},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a", "b")
			// Node b may be out of service: the budgets allow both nodes.
			f.Budget, f.Profiles[0].Rollout.MaxUnavailable = 2, ptr.To(intstr.FromInt32(2))
			f.finish("b", time.Hour)
			f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](2)
			c.change(f.node("a"), f.node("b"))
			plan := For(f.Snapshot)
			if got := plan.Notes["a"]; got.Reason != c.want {
				t.Errorf("got %s: %s, want %s", got.Reason, got.Message, c.want)
			}
			// The Pods of the manager cause no pass.
			if c.want == v1alpha1.RolloutReasonOnlyManagerNode && (plan.Next.IsZero() || plan.Next.After(f.Now.Add(managerPause))) {
				t.Errorf("got the next pass at %s, want it within %s", plan.Next, managerPause)
			}
		})
	}
}

// The canary of the other nodes is not a node that is never claimed.
func TestForTheOnlyNodeIsNoCanary(t *testing.T) {
	f := cluster("a", "b")
	f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](1)
	f.node("a").Manager, f.node("a").TakesManager = true, true
	plan := For(f.Snapshot)
	if a, b := plan.Notes["a"].Reason, plan.Notes["b"].Reason; a == v1alpha1.RolloutReasonClaimed || b != v1alpha1.RolloutReasonClaimed {
		t.Errorf("got a %s, b %s; want b claimed", a, b)
	}
	// If it is the only node of its settings, its note names the true reason.
	f.changeHash("a", "other")
	f.node("a").ClientNode.DesiredBootHash = f.node("a").ClientNode.Spec.BootHash
	if got := For(f.Snapshot).Notes["a"]; got.Reason != v1alpha1.RolloutReasonOnlyManagerNode {
		t.Errorf("got %s: %s, want OnlyManagerNode", got.Reason, got.Message)
	}
	f = cluster("a", "b")
	f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](1)
	f.node("a").TakesPods = true
	check.Equal(t, "reason of b", v1alpha1.RolloutReasonClaimed, For(f.Snapshot).Notes["b"].Reason)
}
