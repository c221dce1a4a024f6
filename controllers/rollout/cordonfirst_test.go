package rollout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// TestABudgetThatOnlyACordonLifts has owners as CloudNativePG does: each lets its pod go only while its node is cordoned.
func TestABudgetThatOnlyACordonLifts(t *testing.T) {
	for lookAhead, want := range map[v1alpha1.DrainLookAhead]int{v1alpha1.LookAheadDryRun: 0, v1alpha1.LookAheadCordonFirst: 3} {
		t.Run(string(lookAhead), func(t *testing.T) {
			w := newWorld(7)
			w.quiet, w.deterministic = true, true
			for _, name := range []string{"a", "b", "c"} {
				w.addNode(name).pods = []simPod{{name: "web"}, {name: "primary", owned: true}}
			}
			w.addProfile("eda", func(r *v1alpha1.Rollout) { r.Drain.LookAhead = lookAhead }, "a", "b", "c")
			for end := w.now.Add(48 * time.Hour); w.now.Before(end); {
				w.playWithoutFaults()
				out := 0
				for _, n := range w.nodes {
					if w.isDisrupted(n) {
						out++
					}
				}
				if out > 1 {
					t.Fatalf("%d nodes are out of service", out)
				}
			}
			reboots := 0
			for _, n := range w.nodes {
				for _, count := range n.machine.reboots {
					reboots += count
				}
			}
			if reboots != want || w.wastedEvictions+w.costOfAttempts > 0 || w.broken != nil {
				t.Errorf("got %d reboots, %d evictions in vain, broken %v; want %d reboots", reboots, w.wastedEvictions+w.costOfAttempts, w.broken, want)
			}
		})
	}
}

// TestABudgetThatNothingLifts loses no other pod to an attempt, and attempts become rare.
func TestABudgetThatNothingLifts(t *testing.T) {
	w := newWorld(7)
	w.quiet, w.deterministic = true, true
	never := w.now.Add(10000 * time.Hour)
	for _, name := range []string{"a", "b"} {
		w.addNode(name).pods = []simPod{{name: "web"}, {name: "db", blockedUntil: never}}
	}
	w.addProfile("eda", func(r *v1alpha1.Rollout) { r.Drain.LookAhead = v1alpha1.LookAheadCordonFirst }, "a", "b")
	cordons, was := 0, map[string]bool{}
	for end := w.now.Add(48 * time.Hour); w.now.Before(end); {
		w.playWithoutFaults()
		for name, n := range w.nodes {
			if n.Unschedulable && !was[name] {
				cordons++
			}
			was[name] = n.Unschedulable
			if len(n.pods) != 2 {
				t.Fatalf("%s has lost a pod: %v", name, n.pods)
			}
		}
	}
	if cordons < 4 || cordons > 40 || w.broken != nil {
		t.Errorf("got %d cordons in 48 hours, broken %v; want some", cordons, w.broken)
	}
	for name, n := range w.nodes {
		if n.Unschedulable && w.claims[name].Profile == "" {
			t.Errorf("%s is left cordoned", name)
		}
	}
}

func TestTheProgressOfADrainHasThePodsThatStay(t *testing.T) {
	left := []drain.Blocker{{Pod: "a/db", UID: "u1", Reason: "tolerates x"}, {Pod: "a/web", UID: "u2", Reason: "came back"}}
	want := map[string]string{"u1": "Pod a/db tolerates x", "u2": "Pod a/web came back"}
	pdb := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "pdb"}}
	pdb.Status.DisruptionsAllowed = 3
	shares := progressOf(drain.Result{Budgets: []policyv1.PodDisruptionBudget{pdb, pdb}}).Budgets
	if diff := cmp.Diff(map[string]plan.BudgetShare{"eda/pdb": {Pods: 2, Allowed: 3}}, shares); diff != "" {
		t.Errorf("shares of two pods of one budget (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, progressOf(drain.Result{Left: left}).Left); diff != "" {
		t.Error(diff)
	}
}
