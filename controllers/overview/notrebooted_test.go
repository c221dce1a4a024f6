package overview

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// TestPlanExcludesNodesThatAreNotRebooted covers nodes that the rollout would not reboot, and the reasons.
func TestPlanExcludesNodesThatAreNotRebooted(t *testing.T) {
	const argument, sysctl = "kernelArgument/ihash_entries", "sysctl/net.core.rmem_max"
	proven := v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubDebian, Proven: true}
	desired := []v1alpha1.NodeSetting{
		{Key: argument, Value: "16777216", Profile: "eda", OnRemoval: v1alpha1.DeletionRestore}, {Key: sysctl, Value: "16777216", Profile: "eda"},
	}
	status := func(key string, state v1alpha1.SettingState, effect v1alpha1.SettingEffect, message string) v1alpha1.SettingStatus {
		return v1alpha1.SettingStatus{Key: key, Desired: "16777216", Observed: "2", State: state, TakesEffect: effect, Message: message}
	}
	staged := status(argument, v1alpha1.SettingPending, v1alpha1.EffectReboot, "staged")
	for name, test := range map[string]struct {
		loader   v1alpha1.Bootloader
		observed []v1alpha1.SettingStatus
		held     string
	}{
		"all is well":                    {proven, []v1alpha1.SettingStatus{staged}, ""},
		"no agent has reported a loader": {v1alpha1.Bootloader{}, []v1alpha1.SettingStatus{staged}, ""},
		"a live value is shadowed":       {proven, []v1alpha1.SettingStatus{staged, status(sysctl, v1alpha1.SettingShadowed, v1alpha1.EffectLive, "zz.conf")}, ""},
		"a live value drifts": {
			proven, []v1alpha1.SettingStatus{staged, status(sysctl, v1alpha1.SettingDrifted, v1alpha1.EffectLive, "")}, "",
		},
		"a live value fails":               {proven, []v1alpha1.SettingStatus{staged, status(sysctl, v1alpha1.SettingFailed, v1alpha1.EffectLive, "read-only")}, sysctl + ": read-only"},
		"a file wins over what a boot has": {proven, []v1alpha1.SettingStatus{staged, status(sysctl, v1alpha1.SettingShadowed, v1alpha1.EffectReboot, "zz.conf wins")}, sysctl + ": zz.conf wins"},
		"a removed argument stays in the boot menu": {
			proven, []v1alpha1.SettingStatus{staged, status("kernelArgument/dhash_entries", v1alpha1.SettingFailed, v1alpha1.EffectReboot, "cannot restore")},
			"kernelArgument/dhash_entries: cannot restore",
		},
		"a removed live value was not restored": {proven, []v1alpha1.SettingStatus{staged, status("sysctl/vm.dirty_ratio", v1alpha1.SettingFailed, v1alpha1.EffectLive, "")}, ""},
		"another value failed before":           {proven, []v1alpha1.SettingStatus{staged, {Key: sysctl, Desired: "0", State: v1alpha1.SettingFailed}}, ""},
		"another program sets another value": {
			proven, []v1alpha1.SettingStatus{status(argument, v1alpha1.SettingFailed, v1alpha1.EffectReboot, "conflict: /etc/default/grub")}, argument + ": conflict: /etc/default/grub",
		},
		"it does not stay in the menu": {
			proven, []v1alpha1.SettingStatus{status(argument, v1alpha1.SettingDrifted, v1alpha1.EffectReboot, "left alone")}, argument + ": left alone",
		},
		"boot entries are not rebooted for": {
			v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubBLS, Message: "staged only"}, []v1alpha1.SettingStatus{staged}, "boot loader GrubBLS: staged only",
		},
		"GRUB that is not proven is not either": {
			v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubDebian, Message: "booted past GRUB"}, nil, "boot loader GrubDebian: booted past GRUB",
		},
		"nothing is staged behind another": {
			v1alpha1.Bootloader{Type: v1alpha1.BootloaderRPMOSTree, Message: "use rpm-ostree kargs"}, nil, "boot loader RPMOSTree: use rpm-ostree kargs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n1 := object("n1", desired, test.observed...)
			n1.Status.Bootloader = &test.loader
			if test.loader.Type == "" {
				n1.Status.Bootloader = nil
			}
			p := profile("eda", func(s *v1alpha1.StorageClientProfileSpec) {
				s.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=16777216"}
				s.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216"}
			})
			got := Plan(&p, Cluster{
				Profiles: []v1alpha1.StorageClientProfile{p}, Nodes: []corev1.Node{node("n1", pool)}, StorageClientNodes: []v1alpha1.StorageClientNode{n1},
				MaxUnavailable: intstr.FromInt32(1), Now: friday,
			})
			reboots, estimated, held := len(got.Reboots), got.EstimatedCompletion != nil, ""
			if len(got.NotRebooted) == 1 {
				held = got.NotRebooted[0].Held
			}
			if held != test.held || (reboots == 1) != (test.held == "") || estimated != (test.held == "") {
				t.Errorf("got %d reboots, estimated %t, not rebooted %+v; want held %q", reboots, estimated, got.NotRebooted, test.held)
			}
		})
	}
}

func TestPlanOfARemovalBehindAnUnprovenBootLoader(t *testing.T) {
	n1 := object("n1", []v1alpha1.NodeSetting{{Key: "kernelArgument/ihash_entries", Value: "1", Profile: "eda", OnRemoval: v1alpha1.DeletionRestore}})
	n1.Status.Bootloader = &v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubBLS, Message: "staged only"}
	p := profile("eda", func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.Reboot.RestoreReboot = true })
	got := Plan(&p, Cluster{
		Profiles: []v1alpha1.StorageClientProfile{p}, Nodes: []corev1.Node{node("n1", pool)}, StorageClientNodes: []v1alpha1.StorageClientNode{n1},
		MaxUnavailable: intstr.FromInt32(1), Now: friday,
	})
	want := []Reboot{{Node: "n1", Reasons: []string{"kernelArgument/ihash_entries is removed, now 1"}, Held: "boot loader GrubBLS: staged only", Refused: true}}
	if diff := cmp.Diff(want, got.NotRebooted); diff != "" || len(got.Reboots) > 0 {
		t.Errorf("got reboots %v, not rebooted (-want +got):\n%s", got.Reboots, diff)
	}
}

// A node that is not rebooted cannot be the canary. The next node is the canary.
func TestPlanChoosesACanaryThatIsRebooted(t *testing.T) {
	const controlPlane = "node-role.kubernetes.io/control-plane"
	first := zoned("a-first", "a", func(n *corev1.Node) { n.Labels[controlPlane] = "" })
	nodes := []corev1.Node{first, zoned("b-manager", "b", nil), zoned("b-other", "b", func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(friday) })}
	p := profile("eda", func(s *v1alpha1.StorageClientProfileSpec) {
		s.IncludeControlPlane = true
		s.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=16777216"}
	})
	list := func(c Cluster) string {
		got := Plan(&p, c)
		var out []string
		for _, r := range got.Reboots {
			out = append(out, r.Node)
		}
		for _, r := range got.NotRebooted {
			out = append(out, "not "+r.Node+": "+r.Held)
		}
		return strings.Join(out, ", ")
	}
	c := Cluster{Profiles: []v1alpha1.StorageClientProfile{p}, Nodes: nodes, MaxUnavailable: intstr.FromInt32(1), Now: friday}
	if got, want := list(c), "b-manager, b-other, not a-first: the rollout does not reboot the only control-plane node; reboot it manually"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c.Nodes = append(slices.Clone(nodes), zoned("x", "x", func(n *corev1.Node) { n.Labels = map[string]string{controlPlane: ""} }))
	if got, want := list(c), "a-first, b-manager, b-other"; got != want {
		t.Errorf("with another control-plane node: got %s, want %s", got, want)
	}
	// Each group with different settings that require a reboot has its own canary, before all other nodes.
	gold := profile("gold", func(s *v1alpha1.StorageClientProfileSpec) {
		s.NodeSelector.MatchLabels = map[string]string{"tier": "gold"}
		s.Node.KernelArguments = []v1alpha1.KernelArgument{"dhash_entries=16777216"}
	})
	c.Profiles, c.Nodes = append(c.Profiles, gold), slices.Clone(nodes)
	for _, name := range []string{"gold-1", "gold-2"} {
		c.Nodes = append(c.Nodes, zoned(name, "aa", func(n *corev1.Node) { n.Labels["tier"] = "gold" }))
	}
	const want = "gold-1, b-manager, gold-2, b-other, not a-first: the rollout does not reboot the only control-plane node; reboot it manually"
	check.Equal(t, "with two groups", want, list(c))
}
