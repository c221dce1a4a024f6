package plan

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestForANodeUnderMaintenanceByAnotherController(t *testing.T) {
	maintained := func() *fixture {
		f := cluster("a", "b")
		f.node("a").Maintainer = "KernelUpdate"
		return f
	}
	t.Run("it is not claimed, and its message contains the reason", func(t *testing.T) {
		got := For(maintained().Snapshot)
		check.Equal(t, "plan", []string{"claim b for eda", "a: Waiting NodeInMaintenance", "b: Claimed Claimed"}, lines(got, "a", "b"))
		if message := got.Notes["a"].Message; !strings.Contains(message, "condition MaintenanceInProgress, reason KernelUpdate") {
			t.Errorf("got message %q, want the condition in it", message)
		}
	})
	t.Run("it uses up budget", func(t *testing.T) {
		f := maintained()
		f.Budget = 1
		check.Equal(t, "plan", []string{"b: Waiting WaitingForBudget"}, lines(For(f.Snapshot), "b"))
	})
	t.Run("it is no canary", func(t *testing.T) {
		f := maintained()
		f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
		check.Equal(t, "plan", []string{"claim b for eda", "b: Claimed Claimed"}, lines(For(f.Snapshot), "b"))
	})
	t.Run("claimed and not yet cordoned, it is released", func(t *testing.T) {
		f := maintained()
		f.Claims["a"] = v1alpha1.Disruption{Profile: "eda"}
		want := []string{"release the claim of a", "claim b for eda", "a: Waiting NodeInMaintenance"}
		check.Equal(t, "plan", want, lines(For(f.Snapshot), "a"))
	})
}

// Three nodes share a budget of one. The third is out of service, and no profile selects it.
func TestForNodesOutsideAnyProfile(t *testing.T) {
	const hour = time.Hour
	for name, c := range map[string]struct {
		countFor time.Duration
		change   func(*Node)
		claims   bool
		message  string
	}{
		"one that went out a moment ago uses up budget until an hour is over": {
			countFor: hour, change: func(n *Node) { n.Ready, n.UnavailableSince = false, ptr.To(noon.Add(-10*time.Minute)) },
			message: "c is not Ready; bring c back, or delete its Node if it will not return; no profile selects it, so it stops counting at 2026-09-01T12:50:00Z",
		},
		"then the rollout continues without it": {
			countFor: hour, change: func(n *Node) { n.Ready, n.UnavailableSince = false, ptr.To(noon.Add(-hour)) }, claims: true,
		},
		"the rollout also continues without a cordoned node": {
			countFor: hour, change: func(n *Node) { n.Unschedulable, n.UnavailableSince = true, ptr.To(noon.Add(-hour)) }, claims: true,
		},
		"the message explains that the node counts until it is back": {
			change:  func(n *Node) { n.Ready, n.UnavailableSince = false, ptr.To(noon.Add(-100*hour)) },
			message: "c is not Ready; bring c back, or delete its Node if it will not return; no profile selects it; set the manager's --unmanaged-counts-for to continue without it",
		},
		"a node counts if the time since which it is out is unknown": {
			countFor: hour, change: func(n *Node) { n.Ready = false }, message: "c is not Ready",
		},
		"a node that the rollout disrupts always counts": {
			countFor: hour, change: func(n *Node) {
				n.Ready, n.Unschedulable, n.Mark, n.UnavailableSince = false, true, &v1alpha1.Disruption{Profile: "eda"}, ptr.To(noon.Add(-100*hour))
			},
			message: "c is rebooting",
		},
		"the rule of its profile applies to a node": {
			countFor: hour, change: func(n *Node) {
				n.Profiles, n.Unschedulable, n.UnavailableSince = []string{"eda"}, true, ptr.To(noon.Add(-100*hour))
			},
			message: "c is cordoned by another user or controller; bring c back, or delete its Node if it will not return",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a", "b")
			f.Budget, f.UnmanagedCountFor = 1, c.countFor
			f.Nodes = append(f.Nodes, Node{Name: "c", Ready: true})
			c.change(f.node("c"))
			got := For(f.Snapshot)
			note := got.Notes["a"]
			if claimed := note.Phase == v1alpha1.RolloutClaimed; claimed != c.claims || !strings.Contains(note.Message, c.message) {
				t.Errorf("a: got %s %s %q, want claimed %t, message %q", note.Phase, note.Reason, note.Message, c.claims, c.message)
			}
			if c.countFor > 0 && strings.Contains(c.message, "stops counting") && !got.Next.Equal(noon.Add(50*time.Minute)) {
				t.Errorf("next plan: got at %s, want when the node stops counting", got.Next)
			}
		})
	}
}
