package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

// differing returns a cluster with four nodes. n1 and n2 have equal differences, including a removed setting. n3 has no differences, and n4
// has a clamped setting.
func differing() []client.Object {
	objects := manyVolumes()
	setting := func(key, value string) v1alpha1.NodeSetting {
		return v1alpha1.NodeSetting{Key: key, Value: value, Profile: "eda", OnRemoval: v1alpha1.DeletionRestore}
	}
	scn := objects[1].(*v1alpha1.StorageClientNode)
	objects[0].(*corev1.Node).Status.NodeInfo.BootID, scn.Status.BootID = "boot", "boot"
	scn.Spec.Settings = []v1alpha1.NodeSetting{setting("kernelArgument/ihash_entries", "8388608"), setting("sysctl/vm.dirty_ratio", "30")}
	scn.Status.Settings = []v1alpha1.SettingStatus{
		{Key: "kernelArgument/ihash_entries", Desired: "8388608", Observed: "8388608", State: v1alpha1.SettingInSync},
		{Key: "sysctl/vm.dirty_ratio", Desired: "30", Observed: "30", State: v1alpha1.SettingInSync},
	}
	for _, name := range []string{"n2", "n3", "n4"} {
		node, other := objects[0].DeepCopyObject().(*corev1.Node), scn.DeepCopy()
		node.Name, other.Name = name, name
		switch name {
		case "n3":
			other.Spec.Settings, other.Status.Settings = []v1alpha1.NodeSetting{setting("kernelArgument/ihash_entries", "16777216")}, []v1alpha1.SettingStatus{
				{Key: "kernelArgument/ihash_entries", Desired: "16777216", Observed: "16777216", State: v1alpha1.SettingInSync}}
		case "n4":
			other.Spec.Settings = []v1alpha1.NodeSetting{setting("kernelArgument/ihash_entries", "16777216")}
			other.Status.Settings = []v1alpha1.SettingStatus{{Key: "kernelArgument/ihash_entries", Desired: "16777216", State: v1alpha1.SettingClamped, Message: "memory allows 4194304"}}
		}
		objects = append(objects, node, other)
	}
	return append(objects, eda())
}

func TestDiffGroupsNodesAndVolumes(t *testing.T) {
	r := execute(t, interceptor.Funcs{}, differing(), "diff", "eda")
	want := `2 nodes (n1, n2):
KEY                            EFFECTIVE   DESIRED          TAKES-EFFECT   STATE
kernelArgument/ihash_entries   8388608     16777216         Reboot         -
sysctl/vm.dirty_ratio          30          original value   Live           -

1 node (n4):
KEY                            EFFECTIVE   DESIRED    TAKES-EFFECT   STATE
kernelArgument/ihash_entries   unknown     16777216   Reboot         Clamped
  kernelArgument/ihash_entries: memory allows 4194304

1 node has all settings of eda.

1 volume (pv2): VolumeOptionsMerged
  + nocto

1 volume (pv3): VolumeDeclaredElsewhere
  + nocto
  Not changed: managed by Flux (kustomize.toolkit.fluxcd.io/name); mountOptions are none; add ["nocto"] there, in the Kustomization's spec: {patches: [{target: {kind: PersistentVolume, name: pv3}, patch: '[{"op":"add","path":"/spec/mountOptions","value":["nocto"]}]'}]}, or set gitOpsOwned: Patch

1 volume has the mount options of eda.
`
	if diff := cmp.Diff(want, r.out); r.err != nil || diff != "" {
		t.Errorf("error %v, output (-want +got):\n%s", r.err, diff)
	}
}

func TestDiffInOtherFormats(t *testing.T) {
	names := execute(t, interceptor.Funcs{}, differing(), "diff", "eda", "-o", "name")
	want := "storageclientnode.tuning.storageclient.dev/n1\nstorageclientnode.tuning.storageclient.dev/n2\nstorageclientnode.tuning.storageclient.dev/n4\npersistentvolume/pv2\npersistentvolume/pv3\n"
	if names.err != nil || names.out != want {
		t.Errorf("error %v, names:\n%s", names.err, names.out)
	}
	r := execute(t, interceptor.Funcs{}, differing(), "diff", "eda", "-o", "json")
	var diff view.Diff
	if r.err != nil || json.Unmarshal([]byte(r.out), &diff) != nil || len(diff.Groups) != 2 || len(diff.Volumes) != 2 || diff.VolumesSame != 1 || len(diff.Same) != 1 {
		t.Errorf("error %v, output:\n%s", r.err, r.out)
	}
}

func TestDiffOfAProfileThatChangesNothing(t *testing.T) {
	invalid, planned := eda(), eda()
	invalid.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"selinux=0"}
	planned.Spec.Mode = v1alpha1.ModePlan
	nowhere := eda()
	nowhere.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "none"}
	for want, profile := range map[string]*v1alpha1.StorageClientProfile{
		"Profile eda is invalid; nothing applied. ":        invalid,
		"Mode is Plan: changes are not applied until mode": planned,
		"Profile eda selects no nodes.":                    nowhere,
	} {
		if r := execute(t, interceptor.Funcs{}, append(cluster(), profile), "diff", "eda"); r.err != nil || !strings.Contains(r.out, want) {
			t.Errorf("error %v, output lacks %q:\n%s", r.err, want, r.out)
		}
	}
}

func TestDiffReportsMissingPermissions(t *testing.T) {
	for want, funcs := range map[string]interceptor.Funcs{
		"Cannot read nodes (their settings are missing here): list Nodes: things is forbidden":     forbid[*corev1.NodeList](),
		"Cannot read volumes (they are missing here): list PersistentVolumes: things is forbidden": forbid[*corev1.PersistentVolumeList](),
	} {
		r := execute(t, funcs, differing(), "diff", "eda")
		if r.err != nil || !strings.Contains(r.out, want) || strings.Contains(r.out, "selects no nodes") {
			t.Errorf("error %v, output lacks %q:\n%s", r.err, want, r.out)
		}
	}
}

// A value that a volume keeps is a difference, even if no mount options must be written.
func TestDiffAndVolumesShowKeptValues(t *testing.T) {
	objects, profile := cluster(), eda()
	profile.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nconnect=8"}
	pv := objects[2].(*corev1.PersistentVolume)
	pv.Spec.MountOptions = []string{"nconnect=2"}
	for command, wants := range map[string][]string{
		"diff":    {"1 volume (pv1): VolumeKeepsOwnValue\n  nconnect stays 2 (profile wants 8; onConflict: KeepVolume)\n"},
		"volumes": {"1 volume matches profile eda: 1 Exception.", "Exception   VolumeKeepsOwnValue   nconnect=2   unchanged", "pv1: VolumeKeepsOwnValue: nconnect stays 2 (profile wants 8; onConflict: KeepVolume)"},
	} {
		r := execute(t, interceptor.Funcs{}, append(objects, profile), command, "eda")
		for _, want := range wants {
			if r.err != nil || !strings.Contains(r.out, want) {
				t.Errorf("%s: %v, output lacks %q:\n%s", command, r.err, want, r.out)
			}
		}
		if strings.Contains(r.out, "1 volume has the list") {
			t.Errorf("got the volume reported as up to date by %s:\n%s", command, r.out)
		}
	}
}
