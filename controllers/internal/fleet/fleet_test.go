package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

func profile(name string, priority int32, value string, changes ...func(*v1alpha1.StorageClientProfile)) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.AllNodes = true
	p.Spec.Priority = priority
	p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.rmem_max": v1alpha1.SettingText(value)}}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func inPlanMode(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }
func leaving(p *v1alpha1.StorageClientProfile) {
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
}

func node() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	n.Status.NodeInfo.BootID = "boot-1"
	return n
}

func rmem(value, source string) v1alpha1.NodeSetting {
	return v1alpha1.NodeSetting{Key: "sysctl/net.core.rmem_max", Value: value, Profile: source, OnRemoval: v1alpha1.DeletionRestore}
}

func carrying(settings ...v1alpha1.NodeSetting) *v1alpha1.StorageClientNode {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	clientNode.Spec.Settings = settings
	return clientNode
}

// The effective settings of a held profile stay, regardless of their kind and of changes to the profile.
func TestAHeldProfileKeepsEveryCurrentSetting(t *testing.T) {
	var inForce []v1alpha1.NodeSetting
	for _, key := range []string{
		"filesystem/mnt/disks/*", "kernelArgument/ihash_entries", "module/nfs/max_session_slots", "nfsMountDefaults/_all",
		"readAhead/nfs4", "sysctl/net.core.rmem_max", "tuned/profile",
	} {
		inForce = append(inForce, v1alpha1.NodeSetting{Key: key, Value: "1", Profile: "a", OnRemoval: v1alpha1.DeletionRetain})
	}
	view := NewProfileSet([]v1alpha1.StorageClientProfile{profile("a", 0, "4096", inPlanMode)}, catalogue.AllowList{})
	check.Equal(t, "settings", inForce, view.Desired(node(), carrying(inForce...)).Settings)
}

func TestWanted(t *testing.T) {
	for name, test := range map[string]struct {
		profiles   []v1alpha1.StorageClientProfile
		clientNode *v1alpha1.StorageClientNode
		want       Desired
	}{
		"no profile, nothing to do": {},
		"the higher priority wins": {
			profiles: []v1alpha1.StorageClientProfile{profile("a", 1, "1048576"), profile("b", 2, "2097152")},
			want:     Desired{Managed: true, Profiles: []string{"a", "b"}, Result: nodesettings.Result{Settings: []v1alpha1.NodeSetting{rmem("2097152", "b")}}},
		},
		"a profile that is being deleted contributes nothing": {
			profiles:   []v1alpha1.StorageClientProfile{profile("a", 1, "1048576"), profile("b", 2, "2097152", leaving)},
			clientNode: carrying(rmem("2097152", "b")),
			want:       Desired{Managed: true, Profiles: []string{"a"}, Result: nodesettings.Result{Settings: []v1alpha1.NodeSetting{rmem("1048576", "a")}}},
		},
		"equal priorities keep the current value": {
			profiles:   []v1alpha1.StorageClientProfile{profile("a", 1, "1048576"), profile("b", 1, "2097152")},
			clientNode: carrying(rmem("2097152", "b")),
			want: Desired{Managed: true, Profiles: []string{"a", "b"}, Result: nodesettings.Result{
				Settings: []v1alpha1.NodeSetting{rmem("2097152", "b")},
				Conflicts: []nodesettings.Conflict{{
					Key: "sysctl/net.core.rmem_max", Profiles: []string{"a", "b"}, Values: []string{"1048576", "2097152"}, Kept: "2097152",
				}},
			}},
		},
		"a profile put into mode Plan keeps the current value, whatever it declares now": {
			profiles:   []v1alpha1.StorageClientProfile{profile("a", 1, "4194304", inPlanMode)},
			clientNode: carrying(rmem("1048576", "a")),
			want:       Desired{Managed: true, Profiles: []string{"a"}, Result: nodesettings.Result{Settings: []v1alpha1.NodeSetting{rmem("1048576", "a")}}},
		},
		"and its policy for removal": {
			profiles: []v1alpha1.StorageClientProfile{profile("a", 1, "1048576", inPlanMode, func(p *v1alpha1.StorageClientProfile) {
				p.Spec.DeletionPolicy = v1alpha1.DeletionRetain
			})},
			clientNode: carrying(rmem("1048576", "a")),
			want:       Desired{Managed: true, Profiles: []string{"a"}, Result: nodesettings.Result{Settings: []v1alpha1.NodeSetting{rmem("1048576", "a")}}},
		},
		"a profile in mode Plan does not hold what comes from others": {
			profiles:   []v1alpha1.StorageClientProfile{profile("a", 1, "1048576", inPlanMode), profile("b", 1, "2097152", leaving)},
			clientNode: carrying(rmem("2097152", "b")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := NewProfileSet(test.profiles, catalogue.AllowList{}).Desired(node(), test.clientNode)
			check.Equal(t, "result", test.want, got, cmpopts.IgnoreFields(nodesettings.Result{}, "Hash", "BootHash"), cmpopts.EquateEmpty())
		})
	}
}

func TestHeldProfileKeepsEveryKindOfSetting(t *testing.T) {
	inForce := []v1alpha1.NodeSetting{
		{Key: "kernelArgument/ihash_entries", Value: "16777216", Profile: "a", OnRemoval: v1alpha1.DeletionRestore},
		{Key: "module/sunrpc/tcp_max_slot_table_entries", Value: "256", Profile: "a", OnRemoval: v1alpha1.DeletionRestore},
		{Key: "module/sunrpc/tcp_slot_table_entries", Value: "128", Profile: "a", OnRemoval: v1alpha1.DeletionRestore},
		rmem("1048576", "a"),
	}
	held := profile("a", 0, "4194304", inPlanMode)
	got := NewProfileSet([]v1alpha1.StorageClientProfile{held}, catalogue.AllowList{}).Desired(node(), carrying(inForce...))
	if diff := cmp.Diff(inForce, got.Settings); diff != "" {
		t.Errorf("settings (-effective +desired):\n%s", diff)
	}
	if hash, bootHash := nodesettings.Hashes(inForce); got.Hash != hash || got.BootHash != bootHash {
		t.Errorf("got hashes %s %s, want %s %s: a changed hash would disrupt nodes", got.Hash, got.BootHash, hash, bootHash)
	}
}

func TestOneConflictDoesNotLeakToTheNextNode(t *testing.T) {
	view := NewProfileSet([]v1alpha1.StorageClientProfile{profile("a", 1, "1048576"), profile("b", 1, "2097152")}, catalogue.AllowList{})
	if got := view.Desired(node(), carrying(rmem("2097152", "b"))); len(got.Settings) != 1 {
		t.Fatalf("got %v", got.Settings)
	}
	if got := view.Desired(node(), nil); len(got.Settings) != 0 {
		t.Errorf("got %v for a node without an effective value, want none", got.Settings)
	}
}

func TestReportOf(t *testing.T) {
	arg := v1alpha1.NodeSetting{Key: "kernelArgument/ihash_entries", Value: "16777216", Profile: "b"}
	for name, test := range map[string]struct {
		change  func(*v1alpha1.StorageClientNodeStatus)
		absent  bool
		profile string
		silent  string
		pending []string
		tuned   bool
	}{
		"an agent that reports":           {tuned: true},
		"an agent whose Pod is not Ready": {absent: true, silent: "the node's agent is not Ready"},
		"a report of an earlier boot": {
			change: func(s *v1alpha1.StorageClientNodeStatus) { s.BootID = "boot-0" }, silent: "the node's agent has not reported since the node's last boot",
		},
		"no report yet": {
			change: func(s *v1alpha1.StorageClientNodeStatus) { *s = v1alpha1.StorageClientNodeStatus{} }, silent: "the node's agent has not reported yet",
		},
		"a setting that waits for a boot": {
			change: func(s *v1alpha1.StorageClientNodeStatus) { s.Settings[1].State = v1alpha1.SettingPending }, pending: []string{arg.Key},
		},
		"one that is not the profile's": {
			change: func(s *v1alpha1.StorageClientNodeStatus) { s.Settings[1].State = v1alpha1.SettingPending }, profile: "a", tuned: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			clientNode := carrying(rmem("1048576", "a"), arg)
			clientNode.Spec.Hash = "h"
			clientNode.Status = v1alpha1.StorageClientNodeStatus{Hash: "h", BootID: "boot-1", ObservedGeneration: 1, Settings: []v1alpha1.SettingStatus{
				{Key: "sysctl/net.core.rmem_max", State: v1alpha1.SettingInSync}, {Key: arg.Key, State: v1alpha1.SettingInSync, TakesEffect: v1alpha1.EffectReboot},
			}}
			if test.change != nil {
				test.change(&clientNode.Status)
			}
			got := ReportOf(node(), clientNode, !test.absent, test.profile)
			if got.Silent != test.silent || got.IsTuned() != test.tuned || !slices.Equal(got.Keys(standing.PendingReboot), test.pending) {
				t.Errorf("got silent %q, tuned %t, %v waiting for a reboot; want %q, %t, %v",
					got.Silent, got.IsTuned(), got.Keys(standing.PendingReboot), test.silent, test.tuned, test.pending)
			}
		})
	}
}

func TestRestoresPending(t *testing.T) {
	clientNode := carrying(v1alpha1.NodeSetting{Key: "kernelArgument/ihash_entries"})
	clientNode.Status.RebootRequiredBy = []string{"kernelArgument/ihash_entries", "kernelArgument/dhash_entries"}
	check.Equal(t, "with settings", []string{"kernelArgument/dhash_entries"}, RestoresPending(clientNode))
	clientNode.Spec.Release = true
	check.Equal(t, "on release", []string{"kernelArgument/dhash_entries", "kernelArgument/ihash_entries"}, RestoresPending(clientNode))
}

func TestApprovedAcceptsTheAnnotationAndTheField(t *testing.T) {
	boot := profile("a", 0, "1048576", func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=16777216"}
	})
	hash := nodesettings.PlanHash(&boot)
	if IsPlanApproved(&boot) {
		t.Error("got approved without an approval")
	}
	byAnnotation, byField := boot.DeepCopy(), boot.DeepCopy()
	byAnnotation.Annotations = map[string]string{v1alpha1.ApprovedPlanAnnotation: hash}
	byField.Spec.Rollout.Reboot.ApprovedPlan = hash
	if !IsPlanApproved(byAnnotation) || !IsPlanApproved(byField) {
		t.Error("got not approved with the plan's hash, want approved")
	}
	byField.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=8388608"}
	if IsPlanApproved(byField) {
		t.Error("got approved with the hash of another plan")
	}
	byAnnotation.Spec.IncludeControlPlane = true
	if IsPlanApproved(byAnnotation) {
		t.Error("got the control plane approved by the approval of the workers")
	}
}

func TestAnInstallationMayExcludeControlPlaneNodes(t *testing.T) {
	profile := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	profile.Spec.AllNodes, profile.Spec.IncludeControlPlane = true, true
	labeled := func(labels ...string) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
		for _, label := range labels {
			node.Labels[label] = ""
		}
		return node
	}
	for _, excludes := range []bool{false, true} {
		var allow catalogue.AllowList
		if excludes {
			allow = allow.WithoutControlPlane()
		}
		p := NewProfileSet([]v1alpha1.StorageClientProfile{*profile.DeepCopy()}, allow).ByName("p")
		for _, label := range v1alpha1.ControlPlaneLabels {
			if node := labeled(label); p.Selects(node) == excludes || p.LacksControlPlane(node) != excludes {
				t.Errorf("%s, excluded: %t: got selected %t, lacking %t", label, excludes, p.Selects(node), p.LacksControlPlane(node))
			}
		}
		if node := labeled(); !p.Selects(node) || p.LacksControlPlane(node) {
			t.Errorf("a worker: got selected %t, lacking %t", p.Selects(node), p.LacksControlPlane(node))
		}
	}
}
