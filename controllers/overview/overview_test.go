package overview

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

func node(name string, labels map[string]string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	for key, value := range labels {
		n.Labels[key] = value
	}
	n.Status.NodeInfo.BootID = "boot-1"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

var pool = map[string]string{"pool": "eda"}

func profile(name string, change func(*v1alpha1.StorageClientProfileSpec)) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.NodeSelector.MatchLabels = pool
	p.Spec.Node = &v1alpha1.NodeTuning{}
	change(&p.Spec)
	return p
}

func object(name string, settings []v1alpha1.NodeSetting, observed ...v1alpha1.SettingStatus) v1alpha1.StorageClientNode {
	clientNode := v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.StorageClientNodeSpec{Settings: settings}}
	clientNode.Status.BootID, clientNode.Status.ObservedGeneration, clientNode.Status.Settings = "boot-1", 1, observed
	return clientNode
}

// The plugin's advice is about the same nodes as its list of nodes, and as the manager's advice.
func TestAdviceIsAboutTheNodesThatTheInstallationAllows(t *testing.T) {
	master := map[string]string{"pool": "eda", "node-role.kubernetes.io/control-plane": ""}
	ignored := node("ignored", pool)
	ignored.Annotations = map[string]string{v1alpha1.IgnoreAnnotation: v1alpha1.True}
	eda := profile("eda", func(spec *v1alpha1.StorageClientProfileSpec) { spec.IncludeControlPlane = true })
	cluster := Cluster{Nodes: []corev1.Node{node("master", master), node("worker", pool), ignored, node("other", nil)}}
	for name, test := range map[string]struct {
		allow catalogue.AllowList
		want  []string
	}{
		"control-plane nodes too": {want: []string{"master", "worker"}},
		"no control-plane node":   {allow: catalogue.AllowList{}.WithoutControlPlane(), want: []string{"worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.Allow = test.allow
			var advised []string
			for _, node := range AdviceInput(&eda, cluster, nil, nil).Nodes {
				advised = append(advised, node.Name)
			}
			check.Equal(t, "nodes of the advice", test.want, advised)
			var listed []string
			for _, node := range Nodes(&eda, cluster) {
				listed = append(listed, node.Name)
			}
			check.Equal(t, "list of nodes", test.want, listed)
		})
	}
}

func TestNodes(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 9, 1, 2, 0, 0, 0, time.UTC))
	tuned := node("tuned", pool)
	tuned.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.TunedNodeCondition, Reason: v1alpha1.NodeReasonTuned, Message: "2 settings verified", LastTransitionTime: since}}
	ignored := node("ignored", pool)
	ignored.Annotations = map[string]string{v1alpha1.IgnoreAnnotation: "true"}
	draining := object("draining", nil)
	draining.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining, Reason: "Pods", Message: "waits for eda/a", Since: &since}
	eda := profile("eda", func(*v1alpha1.StorageClientProfileSpec) {})
	cluster := Cluster{
		Nodes:              []corev1.Node{tuned, node("draining", pool), node("fresh", pool), node("leaving", nil), node("other", nil), ignored},
		StorageClientNodes: []v1alpha1.StorageClientNode{draining, object("leaving", []v1alpha1.NodeSetting{{Key: "sysctl/net.core.rmem_max", Profile: "eda"}})},
	}
	want := []Node{
		{Name: "draining", Phase: "Draining", Reason: "Pods", Message: "waits for eda/a", Since: &since},
		{Name: "fresh", Phase: "-", Reason: "NotManaged"},
		{Name: "leaving", Phase: "-", Reason: "NotManaged"},
		{Name: "tuned", Phase: "-", Reason: "Tuned", Message: "2 settings verified", Since: &since},
	}
	check.Equal(t, "nodes", want, Nodes(&eda, cluster))
}

func TestDeviationsGroupNodesWithTheSameDeviations(t *testing.T) {
	settings := []v1alpha1.NodeSetting{{Key: "sysctl/a.b", Value: "1", Profile: "eda"}, {Key: "sysctl/c.d", Value: "1", Profile: "other"}, {Key: "kernelArgument/x", Value: "9", Profile: "eda"}}
	drifted := v1alpha1.SettingStatus{Key: "sysctl/a.b", Desired: "1", Observed: "2", State: v1alpha1.SettingDrifted}
	foreign := v1alpha1.SettingStatus{Key: "sysctl/c.d", Desired: "1", Observed: "2", State: v1alpha1.SettingDrifted}
	clamped := v1alpha1.SettingStatus{Key: "kernelArgument/x", Desired: "9", Observed: "8", State: v1alpha1.SettingClamped, Message: "8 is the most"}
	cluster := Cluster{
		Nodes:              []corev1.Node{node("n1", pool), node("n2", pool), node("n3", pool)},
		StorageClientNodes: []v1alpha1.StorageClientNode{object("n2", settings, drifted, foreign), object("n1", settings, drifted, clamped)},
	}
	eda := profile("eda", func(*v1alpha1.StorageClientProfileSpec) {})
	want := []Deviation{
		{Key: "kernelArgument/x", Desired: "9", Observed: "8", State: v1alpha1.SettingClamped, Message: "8 is the most", Nodes: []string{"n1"}},
		{Key: "sysctl/a.b", Desired: "1", Observed: "2", State: v1alpha1.SettingDrifted, Nodes: []string{"n1", "n2"}},
	}
	check.Equal(t, "deviations", want, Deviations(&eda, cluster))
}

func TestPlan(t *testing.T) {
	const argument = "kernelArgument/ihash_entries"
	booted := func(state v1alpha1.SettingState, observed string) v1alpha1.SettingStatus {
		return v1alpha1.SettingStatus{Key: argument, Desired: "16777216", Observed: observed, State: state}
	}
	mine := []v1alpha1.NodeSetting{{Key: argument, Value: "16777216", Profile: "eda", OnRemoval: v1alpha1.DeletionRestore}}
	boots := func(s *v1alpha1.StorageClientProfileSpec) {
		s.Mode = v1alpha1.ModePlan
		s.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=16777216"}
	}
	tests := map[string]struct {
		profile v1alpha1.StorageClientProfile
		others  []v1alpha1.StorageClientProfile
		objects []v1alpha1.StorageClientNode
		reboots []Reboot
		groups  [][]string
	}{
		"a node without a report would reboot": {
			profile: profile("eda", boots),
			reboots: []Reboot{{Node: "n1", Reasons: []string{argument + " becomes 16777216, now unknown: the node has no agent"}}, {Node: "n2", Reasons: []string{argument + " becomes 16777216, now unknown: the node has no agent"}}},
			groups:  [][]string{{"n1", "n2"}},
		},
		"a node with the effective argument would not": {
			profile: profile("eda", boots),
			objects: []v1alpha1.StorageClientNode{object("n1", mine, booted(v1alpha1.SettingInSync, "16777216")), object("n2", mine, booted(v1alpha1.SettingPending, "2097152"))},
			reboots: []Reboot{{Node: "n2", Reasons: []string{argument + " becomes 16777216, now 2097152"}}},
			groups:  [][]string{{"n1", "n2"}},
		},
		"a node that would clamp it would not: it is never staged": {
			profile: profile("eda", boots),
			objects: []v1alpha1.StorageClientNode{object("n1", mine, booted(v1alpha1.SettingClamped, "8388608")), object("n2", mine, booted(v1alpha1.SettingInSync, "16777216"))},
			groups:  [][]string{{"n1", "n2"}},
		},
		"a removed argument reboots with restoreReboot": {
			profile: profile("eda", func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.Reboot.RestoreReboot = true }),
			objects: []v1alpha1.StorageClientNode{object("n1", mine)},
			reboots: []Reboot{{Node: "n1", Reasons: []string{argument + " is removed, now 16777216"}}},
			groups:  [][]string{{"n1", "n2"}},
		},
		"a removed argument does not reboot without restoreReboot": {
			profile: profile("eda", func(*v1alpha1.StorageClientProfileSpec) {}),
			objects: []v1alpha1.StorageClientNode{object("n1", mine)},
			groups:  [][]string{{"n1", "n2"}},
		},
		"nodes with another profile's settings are a group of their own": {
			profile: profile("eda", func(*v1alpha1.StorageClientProfileSpec) {}),
			others: []v1alpha1.StorageClientProfile{profile("gold", func(s *v1alpha1.StorageClientProfileSpec) {
				s.NodeSelector.MatchLabels = map[string]string{"tier": "gold"}
				s.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216"}
			})},
			groups: [][]string{{"n1"}, {"n2"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := Cluster{
				Profiles:           append(test.others, test.profile),
				Nodes:              []corev1.Node{node("n2", map[string]string{"pool": "eda", "tier": "gold"}), node("n1", pool), node("other", nil)},
				StorageClientNodes: test.objects,
			}
			got := Plan(&test.profile, cluster)
			check.Equal(t, "reboots", test.reboots, got.Reboots, cmpopts.EquateEmpty())
			var groups [][]string
			for _, g := range got.Groups {
				groups = append(groups, g.Nodes)
			}
			check.Equal(t, "groups", test.groups, groups)
		})
	}
}

func TestPlanRejectsAnInvalidProfile(t *testing.T) {
	p := profile("eda", func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node.Sysctls = map[string]v1alpha1.SettingText{"kernel.core_pattern": "x"}
	})
	if got := Plan(&p, Cluster{Profiles: []v1alpha1.StorageClientProfile{p}}); got.Refused == "" || len(got.Groups) > 0 {
		t.Errorf("got preview %+v, want an error", got)
	}
}

func TestPlanOfAProfileThatTheManagerHasNotSeenYet(t *testing.T) {
	p := profile("eda", func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216"}
	})
	p.Finalizers = nil
	got := Plan(&p, Cluster{Profiles: []v1alpha1.StorageClientProfile{p}, Nodes: []corev1.Node{node("n1", pool)}})
	if len(got.Groups) != 1 || len(got.Groups[0].Settings) != 1 {
		t.Errorf("got preview %+v, want one group with its setting", got)
	}
	if len(p.Finalizers) != 0 {
		t.Error("the caller's profile was changed")
	}
}
