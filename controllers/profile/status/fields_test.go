package status

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// Each field that declares a setting, an option or a window keeps Ready from True until a node or a volume has it.
func TestReadyCountsEachDeclaredField(t *testing.T) {
	type declare = func(*v1alpha1.NodeTuning, *v1alpha1.VolumeRule)
	// A nil row is a field that declares nothing on its own.
	rows := map[string]declare{
		"NodeTuning.Sysctls": func(n *v1alpha1.NodeTuning, _ *v1alpha1.VolumeRule) {
			n.Sysctls = map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216"}
		},
		"NodeTuning.SysctlsAtLeast": func(n *v1alpha1.NodeTuning, _ *v1alpha1.VolumeRule) {
			n.SysctlsAtLeast = map[string]v1alpha1.WholeNumbers{"net.core.rmem_max": "16777216"}
		},
		"NodeTuning.KernelModules": func(n *v1alpha1.NodeTuning, _ *v1alpha1.VolumeRule) {
			n.KernelModules = []v1alpha1.KernelModule{{Name: "nfs", Parameters: map[string]v1alpha1.SettingText{"max_session_slots": "180"}}}
		},
		"NodeTuning.KernelArguments": func(n *v1alpha1.NodeTuning, _ *v1alpha1.VolumeRule) {
			n.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=16777216"}
		},
		"NodeTuning.ReadAhead": func(n *v1alpha1.NodeTuning, _ *v1alpha1.VolumeRule) {
			n.ReadAhead = []v1alpha1.ReadAhead{{FSTypes: []string{"nfs4"}, SizeKiB: 1024}}
		},
		"NodeTuning.Tuned": func(n *v1alpha1.NodeTuning, _ *v1alpha1.VolumeRule) {
			n.Tuned = &v1alpha1.Tuned{Profile: "throughput-performance"}
		},
		"NodeTuning.NFS4UniqueID": func(n *v1alpha1.NodeTuning, _ *v1alpha1.VolumeRule) {
			n.NFS4UniqueID = v1alpha1.NFS4UniqueIDFromNode
		},
		"NodeTuning.NFSMountDefaults": func(n *v1alpha1.NodeTuning, _ *v1alpha1.VolumeRule) {
			n.NFSMountDefaults = []v1alpha1.NFSMountDefaults{{Server: "filer", Options: []v1alpha1.MountOption{"nconnect=4"}}}
		},
		"NodeTuning.Filesystems": func(n *v1alpha1.NodeTuning, _ *v1alpha1.VolumeRule) {
			n.Filesystems = []v1alpha1.Filesystem{{MountPoint: "/data", MountOptions: []v1alpha1.MountOption{"noatime"}}}
		},
		"VolumeRule.MountOptions": func(_ *v1alpha1.NodeTuning, r *v1alpha1.VolumeRule) { r.MountOptions = []v1alpha1.MountOption{"nocto"} },
		"VolumeRule.ReadAheadKiB": func(_ *v1alpha1.NodeTuning, r *v1alpha1.VolumeRule) { r.ReadAheadKiB = ptr.To[int32](1024) },
		// The class of the volume declares the options: TestStorageClass of package judge.
		"VolumeRule.MountOptionsFrom": nil, "VolumeRule.Name": nil, "VolumeRule.Selector": nil, "VolumeRule.OnConflict": nil, "VolumeRule.GitOpsOwned": nil,
	}
	for _, kind := range []reflect.Type{reflect.TypeFor[v1alpha1.NodeTuning](), reflect.TypeFor[v1alpha1.VolumeRule]()} {
		for i := range kind.NumField() {
			if _, found := rows[kind.Name()+"."+kind.Field(i).Name]; !found {
				t.Errorf("%s.%s: add a row, so that Ready counts it", kind.Name(), kind.Field(i).Name)
			}
		}
	}
	for field, change := range rows {
		if change == nil {
			continue
		}
		t.Run(field, func(t *testing.T) {
			w := newWorld(func(p *v1alpha1.StorageClientProfile) {
				rule := v1alpha1.VolumeRule{Name: "r", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}
				p.Spec.Node = &v1alpha1.NodeTuning{}
				change(p.Spec.Node, &rule)
				if rule.ReadAheadKiB != nil || len(rule.MountOptions) > 0 {
					p.Spec.Node, p.Spec.Volumes = nil, []v1alpha1.VolumeRule{rule}
				}
			})
			ready := func() *metav1.Condition {
				report := Evaluate("p", Snapshot{All: w.snapshot(), Volumes: w.viewOf(boundVolume("v"))}, now)
				return meta.FindStatusCondition(report.Status(v1alpha1.StorageClientProfileStatus{}, now).Conditions, v1alpha1.ConditionReady)
			}
			w.node("a", func(_ *corev1.Node, c *v1alpha1.StorageClientNode) {
				c.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/v", Volume: "v", Protocol: "NFSv4.1", ReadAheadKiB: 128}}
			})
			if c := ready(); len(w.profiles[0].Spec.Volumes) == 0 && c.Status != metav1.ConditionTrue {
				t.Fatalf("with the setting: got Ready=%s %s: %s", c.Status, c.Reason, c.Message)
			}
			c := w.objects["a"]
			c.Spec.Settings, c.Status.Settings = nil, nil
			c.Spec.Hash, c.Spec.BootHash = nodesettings.Hashes(nil)
			c.Status.Hash = c.Spec.Hash
			if c := ready(); c.Status != metav1.ConditionFalse || !slices.Contains([]string{v1alpha1.ReasonRollingOut, v1alpha1.ReasonRebootPending}, c.Reason) {
				t.Errorf("without it: got Ready=%s %s: %s", c.Status, c.Reason, c.Message)
			}
		})
	}
}
