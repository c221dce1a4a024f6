package plan

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const disrupted = "karpenter.sh/disrupted"

// TestForANodeThatOthersAreAboutToRemove sets a taint of another tool on node a.
func TestForANodeThatOthersAreAboutToRemove(t *testing.T) {
	build := func() *fixture {
		f := cluster("a")
		f.node("a").Leaving = disrupted
		return f
	}
	left := []string{"a: Releasing NodeLeaving"}
	noted := append([]string{"claim of a: permit, and leaving (karpenter.sh/disrupted)"}, left...)
	playRows(t, map[string]row{
		"it is not claimed": {func(*fixture) {}, []string{"a: Waiting NodeLeaving"}},
		"it is not claimed once it is not Ready either": {
			func(f *fixture) { f.node("a").Ready = false }, []string{"a: Waiting NodeLeaving"},
		},
		"it is not claimed if the others have cordoned it": {
			func(f *fixture) { f.node("a").Unschedulable = true }, []string{"a: Waiting NodeLeaving"},
		},
		"a claim without a cordon is released": {
			func(f *fixture) { f.Claims["a"] = v1alpha1.Disruption{Profile: "eda"} },
			[]string{"release the claim of a", "a: Waiting NodeLeaving"},
		},
		"the others drain it, and the cordon stays because they may rely on it": {
			func(f *fixture) { f.cordoned("a", time.Minute) }, left,
		},
		"it stays cordoned after the time limit of a drain": {
			func(f *fixture) { f.cordoned("a", time.Hour) }, left,
		},
		"it stays cordoned if it no longer needs a reboot": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.node("a").ClientNode.Status.RebootRequired = false
			},
			left,
		},
		"it gets no permit once it is empty": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.node("a").Drain = &DrainProgress{Gone: true}
			},
			left,
		},
		"a claim of it that is missing counts again": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				delete(f.Claims, "a")
			},
			append([]string{"claim a again for eda"}, left...),
		},
		"its permit stays regardless of the agent's response": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.addResponse("a", v1alpha1.RebootRefused)
			},
			noted,
		},
		"a user removed the annotation, and its permit stays": {
			func(f *fixture) {
				f.permitted("a", time.Minute)
				f.node("a").Mark = nil
			},
			noted,
		},
		"it is back and well, and stays cordoned": {
			func(f *fixture) {
				f.permitted("a", time.Hour)
				f.rebooted("a")
			},
			noted,
		},
		"it does not return from its reboot: a failure, even if others remove it after that": {
			func(f *fixture) {
				f.permitted("a", 15*time.Minute)
				f.addResponse("a", v1alpha1.RebootStarted)
				f.node("a").Ready = false
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"it is back and not healthy in time: a failure": {
			func(f *fixture) {
				f.permitted("a", 15*time.Minute)
				f.rebooted("a")
				f.node("a").ClientNode.Status.Settings[0].State = v1alpha1.SettingFailed
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"its agent rejected the permit, it booted anyway and is not healthy in time: a failure": {
			func(f *fixture) {
				f.permitted("a", 15*time.Minute)
				f.addResponse("a", v1alpha1.RebootRefused)
				f.rebooted("a")
				f.node("a").Ready = false
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"its agent rejected the permit in time and it stays: no failure": {
			func(f *fixture) {
				f.permitted("a", time.Hour)
				f.addResponse("a", v1alpha1.RebootRefused)
			},
			noted,
		},
		"its host rejected the reboot in time and it stays: no failure": {
			func(f *fixture) {
				f.permitted("a", time.Hour)
				f.addResponse("a", v1alpha1.RebootFailed)
			},
			noted,
		},
		"its failure stays recorded": {
			func(f *fixture) {
				f.cordoned("a", time.Hour)
				f.node("a").Maintenance = MaintenanceDrained
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, time.Hour)
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"it has failed and is healthy after all: it stays cordoned": {
			func(f *fixture) {
				f.cordoned("a", time.Hour)
				f.rebooted("a")
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, time.Hour)
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"its Node is being deleted by now": {
			func(f *fixture) { f.node("a").Deleting = true }, []string{"a: Waiting NodeDeleting"},
		},
	}, build, "a")
}

func TestForNamesTheTaintOfANodeThatIsLeaving(t *testing.T) {
	f := cluster("a", "b")
	f.node("a").Leaving = disrupted
	f.Budget = 1
	want := "Taint karpenter.sh/disrupted announces the removal of the node, so the rollout skips it; remove the taint if the node stays"
	p := For(f.Snapshot)
	check.Equal(t, "message", want, p.Notes["a"].Message)
	want = "Reboot limit of the cluster reached (1 of 2 nodes): a is about to be removed (taint karpenter.sh/disrupted); " +
		"if the node is not removed, remove the taint"
	check.Equal(t, "message", want, p.Notes["b"].Message)
	f.cordoned("a", time.Minute)
	if got := For(f.Snapshot).Notes["a"].Message; !strings.HasPrefix(got, "Taint karpenter.sh/disrupted announces") || !strings.Contains(got, "uses up budget") {
		t.Errorf("cordoned node: got message %q", got)
	}
}

// The budget allows two of three nodes.
func TestForANodeThatIsLeavingUsesUpBudget(t *testing.T) {
	f := cluster("a", "b", "c")
	f.Budget = 2
	f.node("a").Leaving = disrupted
	check.Equal(t, "plan", []string{"claim b for eda", "a: Waiting NodeLeaving", "c: Waiting WaitingForBudget"}, lines(For(f.Snapshot), "a", "c"))
}

func TestForANodeThatIsLeavingIsNoCanary(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b", "c")
		f.node("a").Leaving = disrupted
		f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
		f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](9)
		return f
	}
	next, waits := []string{"claim b for eda", "b: Claimed Claimed"}, []string{"b: Waiting WaitingForCanary"}
	playRows(t, map[string]row{
		"the next node is the canary":                                     {func(*fixture) {}, next},
		"the next node is the canary although the drain of a has started": {func(f *fixture) { f.cordoned("a", time.Minute) }, next},
		"the next node is the canary although a soaks":                    {func(f *fixture) { f.finish("a", 30*time.Second) }, next},
		"a has soaked before: its evidence stays": {
			func(f *fixture) { f.finish("a", time.Minute) }, []string{"claim b for eda", "claim c for eda", "b: Claimed Claimed"},
		},
		"with a permit, a stays the canary until its reboot ends": {
			func(f *fixture) { f.permitted("a", time.Minute) },
			append([]string{"claim of a: permit, and leaving (karpenter.sh/disrupted)"}, waits...),
		},
		"a failed canary stops all other nodes": {
			func(f *fixture) { f.addNote("a", v1alpha1.RolloutFailed, "x", time.Hour) }, []string{"b: Waiting CanaryFailed"},
		},
	}, build, "b")
}

func TestForAControlPlaneNodeThatIsLeaving(t *testing.T) {
	f := cluster("a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		f.node(name).ControlPlane = true
	}
	f.node("c").Leaving = disrupted
	check.Equal(t, "plan", []string{"a: Waiting WaitingForControlPlane"}, lines(For(f.Snapshot), "a"))
}

// TestForANodeThatAnUpdateOfItsPoolWillReplace still serves: it is skipped, and uses up no budget.
func TestForANodeThatAnUpdateOfItsPoolWillReplace(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b")
		f.node("a").Leaving, f.node("a").LeavesLater = "node.cluster.x-k8s.io/outdated-revision", true
		return f
	}
	f := build()
	check.Equal(t, "plan", []string{"claim b for eda", "a: Waiting NodeLeaving", "b: Claimed Claimed"}, lines(For(f.Snapshot), "a", "b"))
	want := "Taint node.cluster.x-k8s.io/outdated-revision announces the removal of the node, so the rollout skips it; remove the taint if the node stays"
	check.Equal(t, "message", want, For(f.Snapshot).Notes["a"].Message)
	f = build()
	f.cordoned("a", time.Minute)
	if got := strings.Join(lines(For(f.Snapshot)), "; "); !strings.Contains(got, "uncordon a") {
		t.Errorf("got %s, want a drain that ends", got)
	}
	f = build()
	f.permitted("a", time.Minute)
	if got := lines(For(f.Snapshot), "a"); got[len(got)-1] != "a: Rebooting PermitGiven" {
		t.Errorf("got %v, want a reboot that continues", got)
	}
}

func TestForTheWayOnFromNodesThatUseUpTheBudget(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Node)
		want   string
	}{
		"a mark that stays": {func(n *Node) { n.Leaving = "annotation example.com/retire" }, "b is about to be removed (annotation example.com/retire); if the node is not removed, remove the annotation"},
		"a Node that stays": {func(n *Node) { n.Deleting = true }, "b is being deleted; if the Node stays, remove its finalizers"},
		"a Node that has just joined": {func(n *Node) { n.Ready, n.ReadySince = false, n.Created.Add(-20*time.Second) },
			"b is not Ready yet, after it joined at 2026-08-28T09:00:00Z; bring b back, or delete its Node"},
		"a Node that was Ready": {func(n *Node) { n.Ready, n.ReadySince = false, n.Created.Add(20*time.Hour) }, "b is not Ready; bring b back"},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a", "b")
			f.Budget, f.Profiles[0].Rollout.Canary.Nodes = 1, ptr.To[int32](2)
			c.change(f.node("b"))
			if got := For(f.Snapshot).Notes["a"].Message; !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
