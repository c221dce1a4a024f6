package plan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/test/check"
)

// TestThePlannerFollowsTheSharedOrder plays a rollout with a budget of one node and compares its claims with match.InTurn.
func TestThePlannerFollowsTheSharedOrder(t *testing.T) {
	f := cluster("a", "b", "c", "d", "e")
	f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}, SoakSeconds: ptr.To[int32](0),
	}
	f.Budget = 1
	f.node("a").Manager = true
	f.node("b").Labels = map[string]string{"topology.kubernetes.io/zone": "y"}
	f.node("c").Labels = map[string]string{"topology.kubernetes.io/zone": "x"}
	f.node("e").Labels = map[string]string{"canary": "yes"}
	var want, got []string
	var nodes []match.Turn
	for _, n := range newPlanner(NewSession(f.Snapshot)).states {
		nodes = append(nodes, n.rolloutTurn())
	}
	for _, turn := range match.InTurn(nodes, *f.Profiles[0].Rollout.Canary) {
		want = append(want, "claim "+turn.Name+" for eda")
	}
	for range f.Nodes {
		steps := lines(For(f.Snapshot))
		got = append(got, steps...)
		if len(steps) == 1 {
			f.finish(strings.Fields(steps[0])[1], 0)
		}
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("got claims %q, want the order %q", got, want)
	}
}

// The node of the manager is m, of profile eda. It waits for x, of profile web, only if the rollout can claim x soon.
func TestTheManagersNodeWaitsOnlyForNodesThatCanBeClaimedSoon(t *testing.T) {
	claimed, last := v1alpha1.RolloutReasonClaimed, v1alpha1.RolloutReasonManagerNodeLast
	for name, test := range map[string]struct {
		change func(f *fixture, x *Node)
		want   string
	}{
		"x waits for a node that reboots": {func(f *fixture, _ *Node) {
			f.Profiles[1].Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(1))
			f.permitted("y", time.Minute)
		}, last},
		"x waits for a node that is down": {func(f *fixture, _ *Node) {
			f.Profiles[1].Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(1))
			f.node("y").Ready = false
		}, claimed},
		"x waits for its window": {func(f *fixture, _ *Node) {
			f.Profiles[1].addWindow("0 3 * * 0", 3600)
		}, claimed},
		"x gets new settings": {func(_ *fixture, x *Node) { x.ClientNode.DesiredBootHash, x.BehindSince = "h2", noon.Add(-time.Minute) }, last},
		"x has not got its settings for long": {func(_ *fixture, x *Node) {
			x.ClientNode.DesiredBootHash, x.BehindSince = "h2", noon.Add(-time.Hour)
		}, claimed},
		"x waits for a canary that soaks":          {func(f *fixture, _ *Node) { f.canaryOfWeb(); f.finish("y", time.Minute) }, last},
		"x waits for a canary that no node can be": {func(f *fixture, _ *Node) { f.canaryOfWeb(); f.node("y").NeverDisrupt = true }, claimed},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("m", "x", "y")
			f.profile("web")
			f.setProfile("x", "web")
			f.setProfile("y", "web")
			f.node("m").Manager = true
			test.change(f, f.node("x"))
			check.Equal(t, "reason of m", test.want, For(f.Snapshot).Notes["m"].Reason)
		})
	}
}

// canaryOfWeb makes y the canary of profile web.
func (f *fixture) canaryOfWeb() {
	f.Profiles[1].Rollout.Canary = &v1alpha1.Canary{
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}, SoakSeconds: ptr.To[int32](3600),
	}
	f.node("y").Labels = map[string]string{"canary": "yes"}
}
