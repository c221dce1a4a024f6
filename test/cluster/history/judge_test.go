package history

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/test/check"
)

// tape is a history under construction: each event has a later revision than the previous one.
type tape []change

func (t *tape) add(next change) {
	next.revision = int64(len(*t) + 1)
	*t = append(*t, next)
}

func (t *tape) node(name, bootID string, shape func(*nodeState)) {
	state := &nodeState{name: name, bootID: bootID, registered: true, ready: true}
	if shape != nil {
		shape(state)
	}
	t.add(change{node: state})
}

func (t *tape) claim(names ...string) {
	next := &claims{nodes: map[string]bool{}}
	for _, name := range names {
		next.nodes[name] = true
	}
	t.add(change{claims: next})
}

func (t *tape) pod(name, node string, healthy, ended bool) {
	t.add(change{pod: &podState{namespaced: name, app: "app", node: node, healthy: healthy, ended: ended}})
}

func cordoned(n *nodeState) { n.cordoned = true }

func down(n *nodeState) { n.cordoned, n.ready = true, false }

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		play func(*tape)
		want []string
	}{
		"a rollout that follows the rules has no problem": {
			play: func(t *tape) {
				t.claim("a")
				t.node("a", "1", cordoned)
				t.pod("p", "a", false, false)
				t.pod("p", "a", false, true)
				t.node("a", "1", down)
				t.node("a", "2", cordoned)
				t.node("a", "2", nil)
				t.claim()
			},
		},
		"a claim beyond the budget is found": {
			play: func(t *tape) { t.claim("a"); t.claim("a", "b") },
			want: []string{"claims for [b] make 2 nodes out of service, the budget is 1: [a b]"},
		},
		"a node that is out of service for another reason uses the budget": {
			play: func(t *tape) {
				t.node("b", "1", func(n *nodeState) { n.ready = false })
				t.claim("a")
			},
			want: []string{
				"claims for [a] make 2 nodes out of service, the budget is 1: [a b]",
			},
		},
		"a cordon before the claim is found": {
			play: func(t *tape) { t.node("a", "1", cordoned); t.claim("a") },
			want: []string{"a was cordoned without a claim"},
		},
		"a claim released before the uncordon is found": {
			play: func(t *tape) { t.claim("a"); t.node("a", "1", cordoned); t.claim() },
			want: []string{"the claim of a was released while it was cordoned"},
		},
		"a reboot under a pod is found": {
			play: func(t *tape) {
				t.claim("a")
				t.node("a", "1", cordoned)
				t.pod("p", "a", false, false)
				t.node("a", "1", down)
			},
			want: []string{"a shut down with 1 application pods"},
		},
		"a boot of a node in service is found": {
			play: func(t *tape) { t.node("a", "2", nil) },
			want: []string{"a was booted without a cordon"},
		},
		"a missing pod is found": {
			play: func(t *tape) {
				t.pod("p", "a", true, false)
				t.pod("q", "b", true, false)
				t.pod("p", "a", false, false)
				t.pod("q", "b", false, false)
			},
			want: []string{"application app had 0 healthy pods, its PodDisruptionBudget requires 1"},
		},
		"a starting application has no missing pod": {
			play: func(t *tape) { t.pod("q", "b", false, false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var tape tape
			tape.node("a", "1", nil)
			tape.node("b", "1", nil)
			tape.pod("p", "a", false, false)
			test.play(&tape)
			// The order of events from different watches is random.
			slices.Reverse(tape)
			verdict := (&Recorder{changes: tape}).Evaluate(Rules{
				Budget: 1, MinHealthy: map[string]int{"app": 1}, Replicas: map[string]int{"app": 2},
			})
			check.Equal(t, "problems", test.want, verdict.Problems, cmpopts.EquateEmpty())
		})
	}
}

func TestJudgeCounts(t *testing.T) {
	var tape tape
	tape.node("a", "1", nil)
	for range 2 {
		tape.claim("a")
		tape.node("a", "1", cordoned)
		tape.node("a", "1", nil)
		tape.claim()
	}
	tape.claim("a")
	tape.node("a", "1", down)
	tape.node("a", "2", cordoned)
	verdict := (&Recorder{changes: tape}).Evaluate(Rules{Budget: 1})
	if len(verdict.Problems) > 0 || verdict.MostOut != 1 || len(verdict.Disruptions) != 3 || !slices.Equal(verdict.StillOut, []string{"a"}) {
		t.Errorf("got %+v", verdict)
	}
	if !maps.Equal(verdict.Cordons, map[string]int{"a": 3}) || !maps.Equal(verdict.Boots, map[string]int{"a": 1}) {
		t.Errorf("got cordons %v, boots %v", verdict.Cordons, verdict.Boots)
	}
}
