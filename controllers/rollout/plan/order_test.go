package plan

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
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
