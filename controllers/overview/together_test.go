package overview

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
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
			check.Equal(t, "changes", test.want, describe(got.Changes))
		})
	}
}

// oneOfEach declares one setting of each subject.
func oneOfEach(s *v1alpha1.StorageClientProfileSpec) {
	s.Node = &v1alpha1.NodeTuning{
		Sysctls:         map[string]v1alpha1.SettingText{"vm.dirty_ratio": "20", "sunrpc.tcp_max_slot_table_entries": "128"},
		KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=1048576", "audit=0", "nosmt"},
		ReadAhead:       []v1alpha1.ReadAhead{{FSTypes: []string{"nfs4"}, SizeKiB: 1024}},
		Tuned:           &v1alpha1.Tuned{Profile: "throughput-performance"},
	}
}

// A wrong old value would be worse than none: a node that does not report a setting now has an unknown value.
func TestOldIsTheValueThatTheNodeReportsInItsCurrentBoot(t *testing.T) {
	const unread, silent = "the node's agent reads only declared settings", "the node's agent has not reported since the node's last boot"
	status := func(key, desired, observed string, state v1alpha1.SettingState, message string) v1alpha1.SettingStatus {
		return v1alpha1.SettingStatus{Key: key, Desired: desired, Observed: observed, State: state, Message: message}
	}
	reporting := func(change func(*v1alpha1.StorageClientNode), statuses ...v1alpha1.SettingStatus) []v1alpha1.StorageClientNode {
		clientNode := object("n1", nil, statuses...)
		change(&clientNode)
		return []v1alpha1.StorageClientNode{clientNode}
	}
	none := func(*v1alpha1.StorageClientNode) {}
	allow, err := catalogue.NewAllowList([]string{"kernelArgument/(audit|nosmt)"})
	check.NoError(t, err)
	const (
		hash, argument, flag, slots, window = "kernelArgument/ihash_entries", "kernelArgument/audit", "kernelArgument/nosmt", "module/sunrpc/tcp_max_slot_table_entries", "readAhead/nfs4"
		ratio, tuned, notLoaded, noMount    = "sysctl/vm.dirty_ratio", "tuned/profile", "module sunrpc is not loaded", "no mount of this type yet"
	)
	all := func(value string) map[string]string {
		return map[string]string{hash: value, argument: value, flag: value, slots: value, window: value, ratio: value, tuned: value}
	}
	with := func(values map[string]string, pairs ...string) map[string]string {
		for i := 0; i < len(pairs); i += 2 {
			values[pairs[i]] = pairs[i+1]
		}
		return values
	}
	for name, test := range map[string]struct {
		clientNodes []v1alpha1.StorageClientNode
		want        map[string]string
	}{
		"no agent":                        {nil, all("? the node has no agent")},
		"an agent without these settings": {reporting(none), all("? " + unread)},
		"another profile left or shares them": {
			reporting(none, status(ratio, "40", "40", v1alpha1.SettingInSync, ""), status(tuned, "balanced", "balanced", v1alpha1.SettingInSync, "")),
			with(all("? "+unread), ratio, "40", tuned, "balanced"),
		},
		"they are declared, and the node reports others": {
			reporting(func(n *v1alpha1.StorageClientNode) {
				n.Spec.Settings = []v1alpha1.NodeSetting{nodeSetting(ratio, "10", "eda"), nodeSetting(argument, "1", "eda"), nodeSetting(hash, "32768", "eda"), nodeSetting(flag, "", "eda")}
			}, status(ratio, "10", "40", v1alpha1.SettingDrifted, ""), status(argument, "1", "", v1alpha1.SettingPending, "staged"),
				status(hash, "32768", "", v1alpha1.SettingClamped, "memory allows less")),
			// The flag does not change.
			map[string]string{hash: "? memory allows less", argument: "not set", slots: "? " + unread, window: "? " + unread, ratio: "40", tuned: "? " + unread},
		},
		"they are declared, and the node has not reported them": {
			reporting(func(n *v1alpha1.StorageClientNode) {
				n.Spec.Settings = []v1alpha1.NodeSetting{nodeSetting(ratio, "10", "eda"), nodeSetting(argument, "1", "eda")}
			}),
			all("? " + unread),
		},
		"nothing to read": {
			reporting(none, status(slots, "64", "", v1alpha1.SettingPending, notLoaded), status(window, "64", "", v1alpha1.SettingPending, noMount),
				status(tuned, "balanced", "", v1alpha1.SettingFailed, "tuned-adm: no such file"), status(argument, "1", "", v1alpha1.SettingFailed, "no command line")),
			with(all("? "+unread), slots, "? "+notLoaded, window, "? "+noMount, tuned, "? tuned-adm: no such file", argument, "? no command line"),
		},
		"a kernel argument without a value": {
			reporting(none, status(flag, "", "", v1alpha1.SettingInSync, "")), with(all("? "+unread), flag, "set"),
		},
		"a kernel argument without a value that was not passed": {
			reporting(none, status(flag, "", "", v1alpha1.SettingPending, "staged")), with(all("? "+unread), flag, "not set"),
		},
		"a report of an earlier boot": {
			reporting(func(n *v1alpha1.StorageClientNode) { n.Status.BootID = "boot-0" }, status(ratio, "40", "40", v1alpha1.SettingInSync, "")), all("? " + silent),
		},
	} {
		t.Run(name, func(t *testing.T) {
			eda := profile("eda", oneOfEach)
			c := Cluster{Profiles: []v1alpha1.StorageClientProfile{eda}, Nodes: []corev1.Node{node("n1", pool)}, Allow: allow, StorageClientNodes: test.clientNodes}
			got := map[string]string{}
			for _, change := range PlanTogether([]string{"eda"}, c).Changes {
				for _, s := range change.Settings {
					if got[s.Key] = s.Effective; s.Unknown != "" {
						got[s.Key] += "? " + s.Unknown
					}
				}
			}
			check.Equal(t, "old values", test.want, got)
			for _, group := range DiffNodes(&eda, c).Groups {
				for _, d := range group.Settings {
					if current, known := got[d.Key]; known && (d.Read == strings.HasPrefix(current, "? ") || d.Read && d.Effective != current) {
						t.Errorf("%s: diff has %q (read: %v), and the plan %q", d.Key, d.Effective, d.Read, current)
					}
				}
			}
		})
	}
}

func TestPlanTogetherFindsNoChangesIfNodeSpecsAreCurrent(t *testing.T) {
	eda := sysctls("eda", map[string]string{"vm.dirty_ratio": "20"})
	got := PlanTogether([]string{"eda"}, Cluster{
		Profiles: []v1alpha1.StorageClientProfile{eda}, Nodes: []corev1.Node{node("n1", pool)}, Now: friday, MaxUnavailable: intstr.FromString("5%"),
		StorageClientNodes: []v1alpha1.StorageClientNode{object("n1", []v1alpha1.NodeSetting{nodeSetting("sysctl/vm.dirty_ratio", "20", "eda")})},
	})
	want := Together{AtOnce: 1, Shares: []Share{{Profile: "eda", Matched: 1}}}
	check.Equal(t, "plan", want, got)
}

func TestPlanTogetherNamesConflictsOfItsProfilesOnly(t *testing.T) {
	profiles := []v1alpha1.StorageClientProfile{
		sysctls("a", map[string]string{"vm.dirty_ratio": "10", "vm.dirty_background_ratio": "5"}),
		sysctls("b", map[string]string{"vm.dirty_ratio": "20"}),
		sysctls("c", map[string]string{"vm.dirty_background_ratio": "4"}),
	}
	got := PlanTogether([]string{"b"}, Cluster{Profiles: profiles, Nodes: []corev1.Node{node("n2", pool), node("n1", pool)}, MaxUnavailable: intstr.FromInt32(1), Now: friday})
	want := []Dispute{{Text: "sysctl/vm.dirty_ratio: 10 against 20 (a, b)", Nodes: []string{"n1", "n2"}}}
	check.Equal(t, "conflicts", want, got.Conflicts)
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
	check.Equal(t, "reboots", want, order)
	if len(got.NotRebooted) != 1 || got.NotRebooted[0].Node != "lead" || !strings.Contains(got.NotRebooted[0].Held, "profile never has reboot policy Never") {
		t.Errorf("got not rebooted %+v, want lead because of its policy", got.NotRebooted)
	}
	// The nodes reboot one at a time, although "low" alone would allow two. This takes two drains and two boots in sequence.
	end := metav1.NewTime(friday.Add(2 * (NominalDrain + NominalBoot)))
	rebooted := map[string]int{}
	for _, share := range got.Shares {
		rebooted[share.Profile] = share.Rebooted
	}
	check.Equal(t, "reboots by profile", map[string]int{"low": 2, "high": 1, "never": 0}, rebooted)
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
