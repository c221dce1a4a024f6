package overview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

func nodeSetting(key, value, profile string) v1alpha1.NodeSetting {
	return v1alpha1.NodeSetting{Key: key, Value: value, Profile: profile, OnRemoval: v1alpha1.DeletionRestore}
}

func sysctls(name string, pairs map[string]string) v1alpha1.StorageClientProfile {
	return profile(name, func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node.Sysctls = map[string]v1alpha1.SettingText{}
		for key, value := range pairs {
			s.Node.Sysctls[key] = v1alpha1.SettingText(value)
		}
	})
}

// describe returns changes in short form: the nodes, then "key old>new of profile".
func describe(changes []NodeChange) []string {
	show := func(value *string) string { return ptr.Deref(value, "none") }
	var out []string
	for _, c := range changes {
		line := []string{strings.Join(c.Nodes, " ") + ":"}
		for _, s := range c.Settings {
			line = append(line, s.Key, show(s.Old)+">"+show(s.New), s.Profile, string(s.TakesEffect))
		}
		out = append(out, strings.Join(line, " "))
	}
	return out
}

func TestPlanTogetherComparesWithCurrentNodeSpecs(t *testing.T) {
	const ratio, background = "sysctl/vm.dirty_ratio", "sysctl/vm.dirty_background_ratio"
	ignored := node("ignored", pool)
	ignored.Annotations = map[string]string{v1alpha1.IgnoreAnnotation: "true"}
	nodes := []corev1.Node{node("n2", pool), node("n1", pool), node("leaving", nil), node("same", pool), node("other", nil), ignored}
	clientNodes := []v1alpha1.StorageClientNode{
		object("n1", []v1alpha1.NodeSetting{nodeSetting(background, "5", "eda"), nodeSetting(ratio, "10", "eda")}),
		object("n2", []v1alpha1.NodeSetting{nodeSetting(background, "5", "eda"), nodeSetting(ratio, "10", "eda")}),
		object("leaving", []v1alpha1.NodeSetting{nodeSetting(ratio, "20", "eda")}),
		object("same", []v1alpha1.NodeSetting{nodeSetting(ratio, "20", "eda")}),
		object("other", []v1alpha1.NodeSetting{nodeSetting("sysctl/net.core.rmem_max", "1", "somebody")}),
	}
	tests := map[string]struct {
		names    []string
		profiles []v1alpha1.StorageClientProfile
		want     []string
	}{
		"what is removed, changed and restored, grouped by what changes": {
			[]string{"eda"}, []v1alpha1.StorageClientProfile{sysctls("eda", map[string]string{"vm.dirty_ratio": "20"})},
			[]string{"n1 n2: " + background + " 5>none eda Live " + ratio + " 10>20 eda Live", "leaving: " + ratio + " 20>none eda Live"},
		},
		"a profile that was not requested is left out": {
			[]string{"new"}, []v1alpha1.StorageClientProfile{
				sysctls("eda", map[string]string{"vm.dirty_ratio": "30"}), sysctls("new", map[string]string{"net.core.rmem_max": "16777216"}),
			},
			[]string{"n1 n2 same: sysctl/net.core.rmem_max none>16777216 new Live"},
		},
		"two requested profiles are combined, also in mode Plan": {
			[]string{"eda", "high"}, []v1alpha1.StorageClientProfile{
				sysctls("eda", map[string]string{"vm.dirty_ratio": "20"}),
				func() v1alpha1.StorageClientProfile {
					p := sysctls("high", map[string]string{"vm.dirty_ratio": "15"})
					p.Spec.Priority, p.Spec.Mode, p.Finalizers = 10, v1alpha1.ModePlan, nil
					return p
				}(),
			},
			[]string{
				"n1 n2: " + background + " 5>none eda Live " + ratio + " 10>15 high Live", "leaving: " + ratio + " 20>none eda Live", "same: " + ratio + " 20>15 high Live",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := PlanTogether(test.names, Cluster{Profiles: test.profiles, Nodes: nodes, StorageClientNodes: clientNodes, MaxUnavailable: intstr.FromString("5%"), Now: friday})
			if diff := cmp.Diff(test.want, describe(got.Changes)); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// The node has not applied the declared value.
func TestPlanTogetherShowsReportedValuesOfChangedSettings(t *testing.T) {
	reporting := object("n1", []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "10", Profile: "eda", OnRemoval: v1alpha1.DeletionRestore}})
	for observed, want := range map[string]string{"10": "", "40": "40"} {
		reporting.Status.Settings = []v1alpha1.SettingStatus{{Key: "sysctl/vm.dirty_ratio", Observed: observed, State: v1alpha1.SettingDrifted}}
		got := PlanTogether([]string{"eda"}, Cluster{
			Profiles: []v1alpha1.StorageClientProfile{sysctls("eda", map[string]string{"vm.dirty_ratio": "20"})},
			Nodes:    []corev1.Node{node("n1", pool)}, StorageClientNodes: []v1alpha1.StorageClientNode{reporting},
		})
		if len(got.Changes) != 1 || got.Changes[0].Settings[0].Effective != want {
			t.Errorf("reported %s: got changes %+v, want effective value %q", observed, got.Changes, want)
		}
	}
}

// No profile declares the keys yet. A node still reports a value that a deleted profile left on it.
func TestPlanTogetherShowsReportedValuesOfNewSettings(t *testing.T) {
	reporting := object("n1", nil)
	reporting.Status.Settings = []v1alpha1.SettingStatus{{Key: "sysctl/vm.dirty_ratio", Observed: "40", State: v1alpha1.SettingInSync}}
	got := PlanTogether([]string{"eda"}, Cluster{
		Profiles: []v1alpha1.StorageClientProfile{sysctls("eda", map[string]string{"vm.dirty_ratio": "20", "vm.dirty_background_ratio": "5"})},
		Nodes:    []corev1.Node{node("n1", pool), node("n2", pool)}, StorageClientNodes: []v1alpha1.StorageClientNode{reporting},
	})
	var effective []string
	for _, c := range got.Changes {
		for _, s := range c.Settings {
			effective = append(effective, strings.Join(c.Nodes, " ")+" "+s.Key+" "+s.Effective)
		}
	}
	want := []string{"n1 sysctl/vm.dirty_background_ratio ", "n1 sysctl/vm.dirty_ratio 40", "n2 sysctl/vm.dirty_background_ratio ", "n2 sysctl/vm.dirty_ratio "}
	if diff := cmp.Diff(want, effective); diff != "" {
		t.Errorf("effective values (-want +got):\n%s", diff)
	}
}

func TestPlanTogetherFindsNoChangesIfNodeSpecsAreCurrent(t *testing.T) {
	eda := sysctls("eda", map[string]string{"vm.dirty_ratio": "20"})
	got := PlanTogether([]string{"eda"}, Cluster{
		Profiles: []v1alpha1.StorageClientProfile{eda}, Nodes: []corev1.Node{node("n1", pool)}, Now: friday, MaxUnavailable: intstr.FromString("5%"),
		StorageClientNodes: []v1alpha1.StorageClientNode{object("n1", []v1alpha1.NodeSetting{nodeSetting("sysctl/vm.dirty_ratio", "20", "eda")})},
	})
	want := Together{AtOnce: 1, Shares: []Share{{Profile: "eda", Matched: 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestPlanTogetherNamesConflictsOfItsProfilesOnly(t *testing.T) {
	profiles := []v1alpha1.StorageClientProfile{
		sysctls("a", map[string]string{"vm.dirty_ratio": "10", "vm.dirty_background_ratio": "5"}),
		sysctls("b", map[string]string{"vm.dirty_ratio": "20"}),
		sysctls("c", map[string]string{"vm.dirty_background_ratio": "4"}),
	}
	got := PlanTogether([]string{"b"}, Cluster{Profiles: profiles, Nodes: []corev1.Node{node("n2", pool), node("n1", pool)}, MaxUnavailable: intstr.FromInt32(1), Now: friday})
	want := []Dispute{{Text: "sysctl/vm.dirty_ratio: 10 against 20 (a, b)", Nodes: []string{"n1", "n2"}}}
	if diff := cmp.Diff(want, got.Conflicts); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
}

func boots(name, argument string, change func(*v1alpha1.StorageClientProfileSpec)) v1alpha1.StorageClientProfile {
	return profile(name, func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node.KernelArguments = []v1alpha1.KernelArgument{v1alpha1.KernelArgument(argument)}
		s.Rollout.SettleSeconds = new(int32)
		s.Rollout.Reboot.Policy = v1alpha1.RebootAutomatic
		change(s)
	})
}

func TestPlanTogetherOrdersRebootsByPriorityAndCountsThemOnce(t *testing.T) {
	low := boots("low", "ihash_entries=16777216", func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(2)) })
	high := boots("high", "dhash_entries=8388608", func(s *v1alpha1.StorageClientProfileSpec) {
		s.Priority, s.NodeSelector.MatchLabels = 10, map[string]string{"tier": "gold"}
	})
	never := boots("never", "mce=off", func(s *v1alpha1.StorageClientProfileSpec) {
		s.NodeSelector.MatchLabels, s.Rollout.Reboot.Policy = map[string]string{"tier": "lead"}, v1alpha1.RebootNever
		s.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=16777216"}
		s.Priority = 20
	})
	gold := node("gold", pool)
	gold.Labels["tier"] = "gold"
	lead := node("lead", pool)
	lead.Labels["tier"] = "lead"
	c := Cluster{
		Profiles: []v1alpha1.StorageClientProfile{low, high, never}, Now: friday, MaxUnavailable: intstr.FromInt32(1),
		Nodes: []corev1.Node{zoned("a-1", "a", nil), zoned("a-2", "a", annotated(v1alpha1.NeverDisruptAnnotation)), gold, lead},
	}
	got := PlanTogether([]string{"low", "high", "never"}, c)
	var order []string
	for _, r := range got.Reboots {
		order = append(order, r.Node+" for "+strings.Join(r.Profiles, ",")+" "+r.Held)
	}
	want := []string{"gold for high,low ", "a-1 for low ", "a-2 for low node has the annotation " + v1alpha1.NeverDisruptAnnotation}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("reboots (-want +got):\n%s", diff)
	}
	if len(got.NotRebooted) != 1 || got.NotRebooted[0].Node != "lead" || !strings.Contains(got.NotRebooted[0].Held, "profile never has reboot policy Never") {
		t.Errorf("got not rebooted %+v, want lead because of its policy", got.NotRebooted)
	}
	// The nodes reboot one at a time, although "low" alone would allow two. This takes two drains and two boots in sequence.
	end := metav1.NewTime(friday.Add(2 * (NominalDrain + NominalBoot)))
	rebooted := map[string]int{}
	for _, share := range got.Shares {
		rebooted[share.Profile] = share.Rebooted
	}
	if diff := cmp.Diff(map[string]int{"low": 2, "high": 1, "never": 0}, rebooted); diff != "" {
		t.Errorf("reboots by profile (-want +got):\n%s", diff)
	}
	if !end.Equal(got.EstimatedCompletion) {
		t.Errorf("got completion %v, want %v", got.EstimatedCompletion, end)
	}
}

func TestPlanTogetherEstimatesWithinTheClustersBudget(t *testing.T) {
	pool := func(name string) v1alpha1.StorageClientProfile {
		return boots(name, "ihash_entries=16777216", func(s *v1alpha1.StorageClientProfileSpec) {
			s.NodeSelector.MatchLabels = map[string]string{"pool": name}
		})
	}
	c := Cluster{
		Profiles: []v1alpha1.StorageClientProfile{pool("a"), pool("b")}, Now: friday, MaxUnavailable: intstr.FromInt32(1),
		Nodes: []corev1.Node{node("a-1", map[string]string{"pool": "a"}), node("b-1", map[string]string{"pool": "b"})},
	}
	got := PlanTogether([]string{"a", "b"}, c)
	alone, both := metav1.NewTime(friday.Add(NominalDrain+NominalBoot)), metav1.NewTime(friday.Add(2*(NominalDrain+NominalBoot)))
	if !alone.Equal(got.Shares[0].EstimatedCompletion) || !both.Equal(got.EstimatedCompletion) {
		t.Errorf("got completion %v for one profile and %v for both, want %v and %v",
			got.Shares[0].EstimatedCompletion, got.EstimatedCompletion, alone, both)
	}
}

func TestPlanTogetherRebootsReleasedNodesIfTheProfileRequestsIt(t *testing.T) {
	eda := boots("eda", "ihash_entries=16777216", func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.Reboot.RestoreReboot = true })
	left := object("left", []v1alpha1.NodeSetting{nodeSetting("kernelArgument/ihash_entries", "16777216", "eda")})
	c := Cluster{Profiles: []v1alpha1.StorageClientProfile{eda}, Nodes: []corev1.Node{node("left", nil)}, StorageClientNodes: []v1alpha1.StorageClientNode{left},
		Now: friday, MaxUnavailable: intstr.FromInt32(1)}
	got := PlanTogether([]string{"eda"}, c)
	if len(got.Reboots) != 1 || got.Reboots[0].Reasons[0] != "kernelArgument/ihash_entries is removed, now 16777216" {
		t.Errorf("got reboots %+v, want one of the node left to remove its argument", got.Reboots)
	}
	c.Profiles[0].Spec.Rollout.Reboot.RestoreReboot = false
	if got := PlanTogether([]string{"eda"}, c); len(got.Reboots) != 0 {
		t.Errorf("got reboots %+v, want none without restoreReboot", got.Reboots)
	}
}

func TestPlanTogetherHasNoEstimateIfNoWindowIsLongEnough(t *testing.T) {
	eda := boots("eda", "ihash_entries=16777216", func(s *v1alpha1.StorageClientProfileSpec) {
		s.Rollout.Windows = []v1alpha1.Window{{Schedule: "0 2 * * 6", DurationSeconds: 60}}
	})
	got := PlanTogether([]string{"eda"}, Cluster{Profiles: []v1alpha1.StorageClientProfile{eda}, Nodes: []corev1.Node{node("n1", pool)}, Now: friday, MaxUnavailable: intstr.FromInt32(1)})
	if got.EstimatedCompletion != nil || len(got.Reboots) != 1 {
		t.Errorf("got completion %v with %d reboots, want none with 1", got.EstimatedCompletion, len(got.Reboots))
	}
}
