package plan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestInTurn(t *testing.T) {
	first := v1alpha1.Canary{Nodes: ptr.To[int32](1)}
	chosen := v1alpha1.Canary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}}
	at := func(hours int) time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
	isCanary := map[string]string{"canary": "yes"}
	for name, c := range map[string]struct {
		rule  v1alpha1.Canary
		nodes []Turn
		want  string
	}{
		"zone by zone, those without one last": {
			first, []Turn{{Name: "none"}, {Name: "y", Zone: "y"}, {Name: "x", Zone: "x"}}, "x y none",
		},
		"in a zone the oldest first, then by name": {
			first, []Turn{{Name: "b", Created: at(2)}, {Name: "a", Created: at(2)}, {Name: "old", Created: at(1)}}, "old a b",
		},
		"the manager's own node after all others, whatever its zone": {
			first, []Turn{{Name: "m", Zone: "a", Manager: true}, {Name: "x", Zone: "x"}, {Name: "none"}}, "x none m",
		},
		"each group has a canary of its own": {
			first,
			[]Turn{{Name: "a", BootHash: "1"}, {Name: "b", BootHash: "1"}, {Name: "c", BootHash: "2"}, {Name: "d", BootHash: "2"}},
			"a c b d",
		},
		"a chosen canary goes first, the manager's own node too": {
			chosen,
			[]Turn{{Name: "a"}, {Name: "m", Manager: true, Labels: isCanary}, {Name: "z", Labels: isCanary}}, "z m a",
		},
		"who cannot go is no canary and comes last": {
			first, []Turn{{Name: "a", Blocked: true}, {Name: "b", BootHash: "1"}, {Name: "c", BootHash: "2"}, {Name: "d", BootHash: "1"}}, "b c d a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, turn := range InTurn(c.nodes, c.rule) {
				got = append(got, turn.Name)
			}
			if order := strings.Join(got, " "); order != c.want {
				t.Errorf("got  %s\nwant %s", order, c.want)
			}
		})
	}
}

// TestTheOrderIsThePlanners plays a rollout with a budget of one node and holds its claims against InTurn.
func TestTheOrderIsThePlanners(t *testing.T) {
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
	var turns []Turn
	for i := range f.Nodes {
		turns = append(turns, newPlanner(f.Snapshot).stateOf(&f.Nodes[i]).rolloutTurn())
	}
	for _, turn := range InTurn(turns, *f.Profiles[0].Rollout.Canary) {
		want = append(want, "claim "+turn.Name+" for eda")
	}
	for range f.Nodes {
		steps := lines(For(f.Snapshot))
		got = append(got, steps...)
		if len(steps) == 1 {
			f.done(strings.Fields(steps[0])[1], 0)
		}
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("claimed %q\nforetold %q", got, want)
	}
}
