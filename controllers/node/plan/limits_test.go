package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

// clusterOf returns a cluster of Ready nodes that have the settings of an earlier spec and have reported them. The first node is the
// oldest.
func clusterOf(nodes int, profiles ...v1alpha1.StorageClientProfile) *fleet.Snapshot {
	all := &fleet.Snapshot{
		Profiles: fleet.NewProfileSet(profiles, catalogue.AllowList{}), ClientNodes: map[string]*v1alpha1.StorageClientNode{}, Ready: map[string]bool{},
	}
	for n := range nodes {
		node := worker()
		node.Name, node.CreationTimestamp = fmt.Sprintf("node-%03d", n), metav1.NewTime(now.Add(-time.Hour))
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		clientNode := clientNodeWith(setting(wmem, "a", v1alpha1.DeletionRestore))
		clientNode.Name = node.Name
		all.Nodes, all.ClientNodes[node.Name], all.Ready[node.Name] = append(all.Nodes, node), clientNode, true
	}
	return all
}

// give sets the desired settings of a node. take also sets the report of these settings, some time ago.
func give(all *fleet.Snapshot, n int) *v1alpha1.StorageClientNode {
	node := all.Nodes[n]
	clientNode := all.ClientNodes[node.Name]
	clientNode.Spec.Hash = all.Profiles.Desired(node, clientNode).Hash
	return clientNode
}

func take(all *fleet.Snapshot, n int, ago time.Duration) {
	clientNode := give(all, n)
	clientNode.Status.Hash = clientNode.Spec.Hash
	clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Tuned: &v1alpha1.RolloutTuned{Hash: clientNode.Spec.Hash, Since: metav1.NewTime(now.Add(-ago))}}
}

// at returns a clock that always shows the same time.
func at(now time.Time) func() time.Time { return func() time.Time { return now } }

// ask evaluates the gate for one node.
func ask(all *fleet.Snapshot, n int, limits Limits) Step {
	node := all.Nodes[n]
	clientNode := all.ClientNodes[node.Name]
	s := Snapshot{Node: node, ClientNode: clientNode, AgentReady: all.Ready[node.Name], Profiles: all.Profiles, Limits: limits}
	s.Desired = all.Profiles.Desired(node, clientNode)
	step, _ := new(Gate).Evaluate(s, Write{Gated: true}, at(now), func() (fleet.Snapshot, error) { return *all, nil })
	return step
}

// admitAll changes every node that may start now, and returns their number.
func admitAll(all *fleet.Snapshot, limits Limits) (admitted int) {
	for n := range all.Nodes {
		clientNode := all.ClientNodes[all.Nodes[n].Name]
		if clientNode.Spec.Hash == "h" && writes(ask(all, n, limits)) {
			give(all, n)
			admitted++
		}
	}
	return admitted
}

func recklessly(p *v1alpha1.StorageClientProfile) {
	p.Spec.Rollout.MaxConcurrentLive = ptr.To(intstr.FromString("100%"))
	p.Spec.Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To(int32(1)), SoakSeconds: ptr.To(int32(0))}
}

var usualLimits = Limits{MaxConcurrentLive: intstr.FromString("10%"), MinSoak: time.Minute, UntunedTaint: v1alpha1.UntunedTaint}

// The report of one node does not admit a hundred nodes, even with a profile without limits.
func TestAProfileCannotChangeTheFleetAtOnce(t *testing.T) {
	all := clusterOf(100, profile("a", recklessly))
	if admitted := admitAll(all, usualLimits); admitted != 1 {
		t.Fatalf("got %d canaries, want 1", admitted)
	}
	take(all, 0, 59*time.Second)
	check.Equal(t, "nodes admitted during the manager's minimum soak", 0, admitAll(all, usualLimits))
	take(all, 0, time.Minute)
	if admitted := admitAll(all, usualLimits); admitted != 10 {
		t.Errorf("got %d nodes admitted at once, want a tenth of the cluster", admitted)
	}
	if next := ask(all, 50, usualLimits); !strings.Contains(noteOf(next), "at most 10 nodes in the cluster at a time") {
		t.Errorf("got note %q for the other nodes", noteOf(next))
	}
	if next := ask(all, 50, Limits{MaxConcurrentLive: intstr.FromString("100%")}); !writes(next) {
		t.Errorf("without a limit of the cluster: got note %q, want the node admitted", noteOf(next))
	}
}

// Nodes of other profiles also count toward the limit of the cluster.
func TestAllProfilesShareTheClusterLimit(t *testing.T) {
	of := func(pool string) func(*v1alpha1.StorageClientProfile) {
		return func(p *v1alpha1.StorageClientProfile) {
			recklessly(p)
			p.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
		}
	}
	all := clusterOf(20, profile("a", of("a")), profile("b", of("b")))
	for n := range all.Nodes {
		all.Nodes[n].Labels = map[string]string{corev1.LabelOSStable: "linux", "pool": []string{"a", "b"}[n%2]}
		all.ClientNodes[all.Nodes[n].Name].Spec.Settings = nil
	}
	take(all, 0, time.Hour)
	take(all, 1, time.Hour)
	if admitted := admitAll(all, usualLimits); admitted != 2 {
		t.Errorf("got %d of 20 nodes in progress, want a tenth", admitted)
	}
	count := func(change func(*v1alpha1.StorageClientNode, *corev1.Node)) int {
		change(all.ClientNodes[all.Nodes[2].Name], all.Nodes[2])
		return runningIn(usualLimits, all, now)
	}
	if got := count(func(*v1alpha1.StorageClientNode, *corev1.Node) {}); got != 2 {
		t.Fatalf("got %d nodes in progress", got)
	}
	silent := func(since time.Duration) func(*v1alpha1.StorageClientNode, *corev1.Node) {
		return func(_ *v1alpha1.StorageClientNode, node *corev1.Node) {
			delete(all.Ready, node.Name)
			node.Status.Conditions = []corev1.NodeCondition{{
				Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionUnknown, Reason: v1alpha1.NodeReasonAgentSilent, LastTransitionTime: metav1.NewTime(now.Add(-since)),
			}}
		}
	}
	check.Equal(t, "nodes in progress with a silent agent", 2, count(silent(9*time.Minute)))
	if got := count(silent(10 * time.Minute)); got != 1 {
		t.Errorf("with an agent that is silent for a long time: got %d nodes in progress", got)
	}
	all.Nodes[3].Spec.Taints = []corev1.Taint{{Key: v1alpha1.UntunedTaint}}
	check.Equal(t, "nodes in progress with a node without work", 0, runningIn(usualLimits, all, now))
}

// An unconfirmed value does not count as applied, and the node still counts toward the limit.
func TestUnconfirmedSettingsAreNotApplied(t *testing.T) {
	all := clusterOf(2, profile("a", recklessly))
	take(all, 0, time.Hour)
	status := v1alpha1.SettingStatus{Key: rmem, State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectLive, Message: "put back: no server answers"}
	all.ClientNodes["node-000"].Spec.Settings = []v1alpha1.NodeSetting{setting(rmem, "a", v1alpha1.DeletionRestore)}
	all.ClientNodes["node-000"].Status.Settings = []v1alpha1.SettingStatus{status}
	next := ask(all, 1, Limits{MaxConcurrentLive: intstr.FromString("100%")})
	if !stays(next) || !strings.Contains(noteOf(next), "waiting for the canary: node-000; not confirmed on node-000: put back: no server answers") {
		t.Errorf("%s: %q", next, noteOf(next))
	}
	s := snapshotOf(all.ClientNodes["node-000"], profile("a", recklessly))
	condition := evaluateTuned(s.ClientNode, s.Report, true, "")
	if condition.Status != corev1.ConditionFalse || condition.Reason != v1alpha1.NodeReasonApplying ||
		condition.Message != "Not confirmed over new connections yet: "+rmem+": put back: no server answers" {
		t.Errorf("condition %+v", condition)
	}
	if s.Report.IsSettled() || s.Report.IsTuned() {
		t.Error("got an unconfirmed value counted as applied")
	}
}

// The canary's soak time belongs to its current settings, regardless of changes to the profile. It admits nodes only to these settings.
func TestTheSoakOfFormerSettingsAdmitsNoNode(t *testing.T) {
	all := clusterOf(2, profile("a", recklessly))
	take(all, 0, time.Hour)
	expect := func(moment string, want bool) {
		t.Helper()
		if next := ask(all, 1, usualLimits); writes(next) != want {
			t.Errorf("%s: %s %q", moment, next, noteOf(next))
		}
	}
	expect("an hour with the declared settings", true)
	former := all.Profiles
	all.Profiles = fleet.NewProfileSet([]v1alpha1.StorageClientProfile{profile("a", func(p *v1alpha1.StorageClientProfile) {
		recklessly(p)
		p.Spec.Node.Sysctls["vm.dirty_ratio"] = "20"
	})}, catalogue.AllowList{})
	expect("the profile declares one more", false)
	changed := all.Profiles
	all.Profiles = former
	expect("the profile is as it was, and the canary never had others", true)
	all.Profiles = changed
	clientNode := give(all, 0)
	expect("the canary holds one more", false)
	clientNode.Status.Hash = clientNode.Spec.Hash
	expect("the canary has reported it, and the note is about the former settings", false)
	take(all, 0, 0)
	expect("the canary has just got it", false)
	take(all, 0, time.Hour)
	expect("an hour with one more", true)
}

func TestARemovalThatFailedStopsNoRollout(t *testing.T) {
	for name, test := range map[string]struct {
		other    v1alpha1.SettingState
		admitted bool
	}{
		"alone":                     {v1alpha1.SettingInSync, true},
		"with a value that drifted": {v1alpha1.SettingDrifted, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := clusterOf(2, profile("a", recklessly))
			take(all, 0, time.Hour)
			canary := all.ClientNodes["node-000"]
			canary.Status.Settings[0].State = test.other
			canary.Status.Settings = append(canary.Status.Settings, v1alpha1.SettingStatus{Key: "sysctl/x", State: v1alpha1.SettingFailed})
			s := Snapshot{Node: all.Nodes[0], ClientNode: canary, AgentReady: true, Profiles: all.Profiles}
			if condition, _ := Condition(s, canary, "", now); condition.Reason == v1alpha1.NodeReasonTuned {
				t.Errorf("got the node Tuned: %+v", condition)
			}
			if next := ask(all, 1, usualLimits); writes(next) != test.admitted {
				t.Errorf("the next node: got %s %q", next, noteOf(next))
			}
		})
	}
}

func TestACanaryIsMarkedInItsSpec(t *testing.T) {
	all := clusterOf(2, profile("a", recklessly))
	if next, _ := ask(all, 0, usualLimits).(Write); !next.Spec.Canary {
		t.Errorf("the canary: got %#v, want Canary in its spec", next)
	}
	take(all, 0, time.Hour)
	if next, writes := ask(all, 1, usualLimits).(Write); !writes || next.Spec.Canary {
		t.Errorf("the next node: got %#v, want no Canary in its spec", next)
	}
	a, b := v1alpha1.StorageClientNodeSpec{Hash: "h"}, v1alpha1.StorageClientNodeSpec{Hash: "h", Canary: true}
	if !sameSpec(a, b) {
		t.Error("got a change of the spec because of the field Canary alone")
	}
}

// One profile starts with the oldest node, the other profile with its chosen canary. If each waited for the other, no node would ever
// start.
func TestProfilesWhoseOrdersDifferDoNotWaitForEachOther(t *testing.T) {
	chooses := func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Rollout.Canary = &v1alpha1.Canary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}}
	}
	all := clusterOf(40, profile("a", nil), profile("b", func(p *v1alpha1.StorageClientProfile) {
		chooses(p)
		p.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.wmem_max": "16777216"}
	}))
	for n := range all.Nodes {
		all.Nodes[n].Labels = map[string]string{corev1.LabelOSStable: "linux"}
	}
	all.Nodes[7].Labels["canary"] = "yes"
	if admitted := admitAll(all, usualLimits); admitted != 1 || all.ClientNodes["node-007"].Spec.Hash == "h" {
		t.Fatalf("got %d nodes admitted, want 1; note of the chosen canary: %q", admitted, noteOf(ask(all, 7, usualLimits)))
	}
	take(all, 7, time.Hour)
	if admitted := admitAll(all, usualLimits); admitted != 4 {
		t.Errorf("got %d nodes admitted, want a tenth", admitted)
	}
}
