package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

// tunedCluster returns cluster with a node whose settings are in many different states.
func tunedCluster() []client.Object {
	objects := cluster()
	objects[0].(*corev1.Node).Status.NodeInfo.BootID = "boot-2"
	scn := objects[1].(*v1alpha1.StorageClientNode)
	scn.Generation = 5
	set := func(key, value string) v1alpha1.NodeSetting {
		return v1alpha1.NodeSetting{Key: key, Value: value, Profile: "eda", OnRemoval: v1alpha1.DeletionRestore}
	}
	scn.Spec.Settings = []v1alpha1.NodeSetting{
		set("kernelArgument/ihash_entries", "16777216"), set("sysctl/net.core.rmem_max", "16777216"), set("sysctl/vm.dirty_ratio", "30"), set("readAhead/nfs4", "1024"),
	}
	scn.Status.ObservedGeneration, scn.Status.BootID, scn.Status.KernelVersion = 4, "boot-1", "6.1.0"
	scn.Status.Bootloader = &v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubDebian, Proven: true}
	scn.Status.Settings = []v1alpha1.SettingStatus{
		{Key: "kernelArgument/ihash_entries", Desired: "16777216", Original: "", TakesEffect: v1alpha1.EffectReboot, State: v1alpha1.SettingPending, Message: "staged; takes effect at the next boot"},
		{Key: "sysctl/net.core.rmem_max", Desired: "16777216", Observed: "16777216", Original: "212992", TakesEffect: v1alpha1.EffectLive, State: v1alpha1.SettingShadowed, Message: `/etc/sysctl.d/99-z.conf sets it to "212992" and is read after ours`},
		{Key: "sysctl/vm.dirty_ratio", Desired: "30", Observed: "30", Original: "20", TakesEffect: v1alpha1.EffectLive, State: v1alpha1.SettingInSync, Drift: &v1alpha1.Drift{Count: 2}},
		{Key: "tuned/profile", Desired: "balanced", Observed: "latency-performance", Original: "balanced", TakesEffect: v1alpha1.EffectLive, State: v1alpha1.SettingDrifted},
	}
	scn.Status.RebootRequired, scn.Status.RebootRequiredBy = true, []string{"kernelArgument/ihash_entries"}
	mount := &scn.Status.Mounts[0]
	mount.Server, mount.Protocol, mount.State, mount.Message = "filer", "NFSv4.1", v1alpha1.MountStale, "nocto is missing: restart pod uid-1"
	mount.Connections, mount.SlotLimit, mount.ReadAheadKiB = 1, 64, 128
	scn.Status.BusyMounts = []v1alpha1.BusyMount{{MountPoint: "/mnt"}}
	scn.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Reason: v1alpha1.RolloutReasonWaitingForApproval, Message: "the plan is not approved.", Since: &metav1.Time{Time: at().Add(-2 * time.Hour)}}
	return objects
}

// forbid denies requests to get or list objects of a kind.
func forbid[O any]() interceptor.Funcs {
	forbidden := apierrors.NewForbidden(corev1.Resource("things"), "", nil)
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, ok := any(o).(O); ok {
				return forbidden
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ok := any(list).(O); ok {
				return forbidden
			}
			return c.List(ctx, list, options...)
		},
	}
}

func TestNodeShowsEachSettingAndMount(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, append(tunedCluster(), eda()), "node", "n1")
	want := `n1 is Waiting, since 120m (WaitingForApproval): the plan is not approved.
The agent has not reported on the latest settings yet (generation 5, reported 4).
The agent's report is from an earlier boot.
Kernel 6.1.0, boot loader GrubDebian.
Settings that require a reboot: kernelArgument/ihash_entries.
1 mount of workloads delays the reboot: /mnt.

KEY                            DESIRED    EFFECTIVE             ORIGINAL   PROFILE   TAKES-EFFECT   STATE
kernelArgument/ihash_entries   16777216   -                     -          eda       Reboot         Pending
readAhead/nfs4                 1024       -                     -          eda       Live           not reported yet
sysctl/net.core.rmem_max       16777216   16777216              212992     eda       Live           Shadowed
sysctl/vm.dirty_ratio          30         30                    20         eda       Live           InSync
tuned/profile                  -          latency-performance   balanced   -         Live           Drifted
  kernelArgument/ihash_entries: staged; takes effect at the next boot
  sysctl/net.core.rmem_max: /etc/sysctl.d/99-z.conf sets it to "212992" and is read after ours

VOLUME   SERVER   PROTOCOL   STATE   PODS            OPTIONS
pv1      filer    NFSv4.1    Stale   gone, eda/sim   rw,vers=4.1,hard
  pv1: nocto is missing: restart pod eda/sim
`
	if diff := cmp.Diff(want, r.out); r.err != nil || diff != "" {
		t.Errorf("error %v, output (-want +got):\n%s", r.err, diff)
	}
	wide := execute(t, interceptor.Funcs{}, append(tunedCluster(), eda()), "node", "n1", "-o", "wide")
	for _, part := range []string{"ON-REMOVAL   DRIFTS", "InSync             Restore      2", "CONNECTIONS   SLOTS   READ-AHEAD-KIB   MOUNT-POINT", "1             64      128              /mnt"} {
		if !strings.Contains(wide.out, part) {
			t.Errorf("wide output lacks %q:\n%s", part, wide.out)
		}
	}
}

func TestNodeReportsMissingPermissions(t *testing.T) {
	for name, c := range map[string]struct {
		funcs interceptor.Funcs
		want  string
	}{
		"the Node": {forbid[*corev1.Node](), "Cannot read the Node (its boot and readiness are unknown): things is forbidden"},
		"its pods": {forbid[*corev1.PodList](), "Cannot read names of pods (UIDs are shown instead): list Pods on Node n1: things is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, c.funcs, tunedCluster(), "node", "n1")
			if r.err != nil || !strings.Contains(r.out, c.want) || !strings.Contains(r.out, "sysctl/vm.dirty_ratio") {
				t.Errorf("error is %v and output:\n%s", r.err, r.out)
			}
		})
	}
}

func TestNodesThatAreNotManaged(t *testing.T) {
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	ignored := bare.DeepCopy()
	ignored.Name = "told"
	ignored.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.TunedNodeCondition, Reason: "NodeIgnored", Message: "it has the annotation."}}
	objects := append(cluster(), bare, ignored)
	for name, want := range map[string]string{
		"bare": "bare is not managed: no profile selects it, or it has the annotation tuning.storageclient.dev/ignore.\n",
		"told": "told is not managed (NodeIgnored: it has the annotation).\n",
	} {
		if r := execute(t, interceptor.Funcs{}, objects, "node", name); r.err != nil || !strings.HasPrefix(r.out, want) {
			t.Errorf("%s: error %v, output %q, want %q", name, r.err, r.out, want)
		}
	}
	deleted := execute(t, interceptor.Funcs{}, cluster()[1:], "node", "n1")
	if deleted.err != nil || !strings.Contains(deleted.out, "Cannot read the Node: it does not exist") {
		t.Errorf("for a deleted Node: got error %v, output:\n%s", deleted.err, deleted.out)
	}
}

func TestNodeInOtherFormats(t *testing.T) {
	if r := execute(t, interceptor.Funcs{}, tunedCluster(), "node", "n1", "-o", "name"); r.err != nil || r.out != "storageclientnode.tuning.storageclient.dev/n1\n" {
		t.Errorf("error %v, name %q", r.err, r.out)
	}
	r := execute(t, interceptor.Funcs{}, tunedCluster(), "node", "n1", "-o", "json")
	var report view.NodeReport
	if r.err != nil || json.Unmarshal([]byte(r.out), &report) != nil {
		t.Fatalf("error %v and output:\n%s", r.err, r.out)
	}
	if len(report.Settings) != 5 || report.Settings[2].Original != "212992" || report.Mounts[0].Pods[1] != "eda/sim" || report.Mounts[0].Volume != "pv1" {
		t.Errorf("report is %+v", report)
	}
}
