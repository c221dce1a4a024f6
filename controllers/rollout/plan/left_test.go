package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
)

const leftPod = "Pod eda/db tolerates the taint node.kubernetes.io/unschedulable"

func mountOf(pod string) []v1alpha1.BusyMount {
	return []v1alpha1.BusyMount{{MountPoint: "/var/lib/kubelet/pods/x/volumes/kubernetes.io~nfs/data", PodUID: pod}}
}

// globalMountOf returns the mount of a volume that a driver stages once per node, with the pods that use it.
func globalMountOf(pods ...string) []v1alpha1.BusyMount {
	return []v1alpha1.BusyMount{{MountPoint: "/var/lib/kubelet/plugins/kubernetes.io/csi/file.csi.azure.com/x/globalmount", PodUIDs: pods}}
}

// TestForMountsOfPodsThatADrainLeaves has a pod with a controller that would come back, and a pod of a DaemonSet.
func TestForMountsOfPodsThatADrainLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		mounts []v1alpha1.BusyMount
		permit bool
	}{
		"of the pod that stays":       {mountOf("db-uid"), false},
		"of the DaemonSet":            {mountOf("ds"), true},
		"of both":                     {slices.Concat(mountOf("ds"), mountOf("db-uid")), false},
		"of a pod that is not listed": {mountOf("other"), false},
		"without a pod":               {mountOf(""), false},
		"of the DaemonSet, and the global mount that only it uses":       {slices.Concat(mountOf("ds"), globalMountOf("ds")), true},
		"of the DaemonSet, and a global mount that another pod uses":     {slices.Concat(mountOf("ds"), globalMountOf("ds", "other")), false},
		"of the DaemonSet, and a global mount of an agent that is older": {slices.Concat(mountOf("ds"), globalMountOf()), false},
		"none": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.cordoned("a", 0)
			f.node("a").Drain = &DrainProgress{Gone: true, IgnoredPodUIDs: []string{"ds"}, Left: map[string]string{"db-uid": leftPod}}
			f.node("a").ClientNode.Status.BusyMounts = c.mounts
			plan := For(f.Snapshot)
			var permits []v1alpha1.RebootPermit
			for _, step := range plan.Steps {
				if given, ok := step.(GivePermit); ok {
					permits = append(permits, given.Permit)
				}
			}
			if len(permits) > 0 != c.permit || c.permit && !slices.Equal(permits[0].IgnorePodUIDs, []string{"ds"}) {
				t.Errorf("got permits %+v, want a permit that ignores only the DaemonSet: %t", permits, c.permit)
			}
			if message := plan.Notes["a"].Message; strings.Contains(message, leftPod) != strings.HasPrefix(name, "of the pod that stays") && name != "of both" {
				t.Errorf("got message %q, want the pod that stays with a mount", message)
			}
		})
	}
}

// TestPermitsOfNodesWhosePodsThatStayShareABudget has two nodes with a pod each that the reboot stops.
func TestPermitsOfNodesWhosePodsThatStayShareABudget(t *testing.T) {
	for name, c := range map[string]struct {
		a, b map[string]BudgetShare
		want []string
	}{
		"the budget allows one":        {map[string]BudgetShare{"eda/pdb": {1, 1}}, map[string]BudgetShare{"eda/pdb": {1, 1}}, []string{"a"}},
		"the budget allows both":       {map[string]BudgetShare{"eda/pdb": {1, 2}}, map[string]BudgetShare{"eda/pdb": {1, 2}}, []string{"a", "b"}},
		"the second node has two pods": {map[string]BudgetShare{"eda/pdb": {1, 2}}, map[string]BudgetShare{"eda/pdb": {2, 2}}, []string{"a"}},
		"each has a budget":            {map[string]BudgetShare{"eda/pdb": {1, 1}}, map[string]BudgetShare{"eda/other": {1, 1}}, []string{"a", "b"}},
		"one of two budgets is shared": {map[string]BudgetShare{"eda/pdb": {1, 1}}, map[string]BudgetShare{"eda/other": {1, 1}, "eda/pdb": {1, 1}}, []string{"a"}},
		"the first node has two pods":  {map[string]BudgetShare{"eda/pdb": {2, 2}}, map[string]BudgetShare{"eda/pdb": {1, 2}}, []string{"a"}},
		"three pods of four":           {map[string]BudgetShare{"eda/pdb": {3, 4}}, map[string]BudgetShare{"eda/pdb": {1, 4}}, []string{"a", "b"}},
		"no budget":                    {nil, nil, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a", "b")
			for node, budgets := range map[string]map[string]BudgetShare{"a": c.a, "b": c.b} {
				f.cordoned(node, 0)
				f.node(node).Drain = &DrainProgress{Gone: true, Budgets: budgets}
			}
			plan := For(f.Snapshot)
			if got := permitsIn(plan); !slices.Equal(got, c.want) {
				t.Errorf("got permits of %v, want %v", got, c.want)
			}
			const reason = "PodDisruptionBudget eda/pdb also covers pods on a, which has a reboot permit or has failed"
			if waits := strings.Contains(plan.Notes["b"].Message, reason); waits != (len(c.want) == 1) {
				t.Errorf("note of b: got %q, want the reason: %t", plan.Notes["b"].Message, len(c.want) == 1)
			}
			// In the next pass, node a has its permit, and has not gone down yet.
			f.permitted("a", 0)
			for name, share := range c.a {
				f.Claims["a"].Permit.Budgets = append(f.Claims["a"].Permit.Budgets, slices.Repeat([]string{name}, share.Pods)...)
			}
			f.node("a").Drain = nil
			if got := permitsIn(For(f.Snapshot)); slices.Contains(got, "b") != (len(c.want) == 2) {
				t.Errorf("in the next pass: got permits of %v, want a permit of b: %t", got, len(c.want) == 2)
			}
		})
	}
}

// A node is not drained if its budgets do not allow its pods that stay to go down, alone or with the pods of nodes with permits.
func TestANodeWhosePodsThatStayExceedABudgetIsSkipped(t *testing.T) {
	for name, c := range map[string]struct {
		share  BudgetShare
		holder bool
		want   string
	}{
		"allowed":                  {BudgetShare{1, 1}, false, ""},
		"allowed next to another":  {BudgetShare{1, 2}, true, ""},
		"more pods than allowed":   {BudgetShare{3, 2}, false, "PodDisruptionBudget eda/pdb allows 2 disruptions, but the reboot would stop 3 of its pods"},
		"one pod next to a holder": {BudgetShare{1, 1}, true, "PodDisruptionBudget eda/pdb also covers pods on a, which has a reboot permit or has failed"},
	} {
		f := cluster("a", "b")
		if c.holder {
			f.cordoned("a", 0)
			f.permitted("a", 0)
			f.Claims["a"].Permit.Budgets = []string{"eda/pdb"}
		}
		note, skip := NewSession(f.Snapshot).SkipNode("b", v1alpha1.Disruption{}, DrainProgress{Gone: true, Budgets: map[string]BudgetShare{"eda/pdb": c.share}})
		if skip != (c.want != "") || !strings.Contains(note.Message, c.want) {
			t.Errorf("%s: got skip %t, note %q; want %q", name, skip, note.Message, c.want)
		}
	}
}

func permitsIn(plan Plan) []string {
	var out []string
	for _, step := range plan.Steps {
		if given, ok := step.(GivePermit); ok {
			out = append(out, given.Node)
		}
	}
	return out
}

// TestAPodThatStaysWithAMountBlocksBeforeTheClaim covers every outlook of a node, including budgets that keep another pod.
func TestAPodThatStaysWithAMountBlocksBeforeTheClaim(t *testing.T) {
	left := map[string]string{"db-uid": leftPod}
	for name, c := range map[string]struct {
		outlook DrainProgress
		claim   v1alpha1.Disruption
	}{
		"no other obstacle": {DrainProgress{Gone: true, Reason: v1alpha1.RolloutReasonDraining, Message: "All gone", Left: left}, v1alpha1.Disruption{}},
		"a Job runs":        {DrainProgress{Reason: v1alpha1.RolloutReasonWaitingForPods, Message: "Waiting", Left: left}, v1alpha1.Disruption{}},
		"budgets keep another pod, and the claim cordons first": {DrainProgress{
			Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "Blocked", HeldByBudgets: true, Left: left,
		}, v1alpha1.Disruption{CordonFirst: true}},
	} {
		for _, pod := range []string{"db-uid", "ds", ""} {
			f := held(HeldPause)
			f.node("a").ClientNode.Status.BusyMounts = mountOf(pod)
			note, skip := NewSession(f.Snapshot).SkipNode("a", c.claim, c.outlook)
			isNamed := strings.Contains(note.Message, leftPod) && strings.Contains(note.Message, "remove the toleration") && strings.Contains(note.Message, mountOf("")[0].MountPoint)
			if want := pod == "db-uid"; isNamed != want || want && (!skip || note.Reason != v1alpha1.RolloutReasonDrainBlocked || note.HeldSince != nil) {
				t.Errorf("%s, a mount of %q: got skipped %t, note %+v; want it to be skipped because of the mount: %t", name, pod, skip, note, want)
			}
		}
	}
}

// TestAMountOfADaemonSetBlocksBeforeTheClaimUnlessItIsIgnored has mounts of a DaemonSet's pod, of a pod that leaves, and of none.
func TestAMountOfADaemonSetBlocksBeforeTheClaimUnlessItIsIgnored(t *testing.T) {
	for _, ignored := range []bool{true, false} {
		for _, pod := range []string{"ds", "web", ""} {
			f := cluster("a")
			f.Profiles[0].Rollout.Drain.IgnoreDaemonSetMounts = &ignored
			f.node("a").ClientNode.Status.BusyMounts = mountOf(pod)
			outlook := DrainProgress{Gone: true, Reason: v1alpha1.RolloutReasonDraining, IgnoredPodUIDs: []string{"ds"}}
			note, skip := NewSession(f.Snapshot).SkipNode("a", v1alpha1.Disruption{}, outlook)
			want := !ignored && pod == "ds"
			isNamed := note.Reason == v1alpha1.RolloutReasonDrainBlocked && strings.Contains(note.Message, "set rollout.drain.ignoreDaemonSetMounts to true")
			if skip != want || isNamed != want {
				t.Errorf("ignored %t, a mount of %q: got skipped %t, note %+v; want it to be skipped: %t", ignored, pod, skip, note, want)
			}
		}
	}
}
