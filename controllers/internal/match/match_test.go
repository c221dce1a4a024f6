package match

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

func TestEveryValueExceptFalseIgnores(t *testing.T) {
	for value, want := range builders.StopValues {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.IgnoreAnnotation: value}}}
		if got := IsIgnored(node); got != want {
			t.Errorf("%q ignores: %t, want %t", value, got, want)
		}
	}
}

func TestSelector(t *testing.T) {
	linux := map[string]string{corev1.LabelOSStable: "linux", "pool": "eda"}
	for name, test := range map[string]struct {
		labels  map[string]string
		profile func(*v1alpha1.StorageClientProfileSpec)
		want    bool
	}{
		"all nodes are Linux workers":            {labels: linux, want: true},
		"an empty selector selects nothing":      {labels: linux, profile: func(s *v1alpha1.StorageClientProfileSpec) { s.AllNodes = false }},
		"a node without the label of its system": {labels: map[string]string{"pool": "eda"}},
		"a Windows node":                         {labels: map[string]string{corev1.LabelOSStable: "windows"}},
		"a node of the pool": {
			labels: linux,
			profile: func(s *v1alpha1.StorageClientProfileSpec) {
				s.AllNodes, s.NodeSelector.MatchLabels = false, map[string]string{"pool": "eda"}
			}, want: true,
		},
		"a node of another pool": {
			labels: linux,
			profile: func(s *v1alpha1.StorageClientProfileSpec) {
				s.AllNodes, s.NodeSelector.MatchLabels = false, map[string]string{"pool": "web"}
			},
		},
		"a selector that cannot be parsed selects nothing": {
			labels: linux,
			profile: func(s *v1alpha1.StorageClientProfileSpec) {
				s.AllNodes = false
				s.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			profile := &v1alpha1.StorageClientProfile{}
			profile.Spec.AllNodes = true
			if test.profile != nil {
				test.profile(&profile.Spec)
			}
			check.Equal(t, "result", test.want, SelectorOf(profile, catalogue.AllowList{}).Matches(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}))
		})
	}
}

// The labels are in the documentation of the distributions. A node that runs a member of etcd alone is a voter too.
func TestControlPlaneNodesOfTheField(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"kubeadm":                      {"node-role.kubernetes.io/control-plane": ""},
		"kubeadm before 1.24":          {"node-role.kubernetes.io/master": ""},
		"RKE":                          {"node-role.kubernetes.io/controlplane": "true", "node-role.kubernetes.io/worker": "true"},
		"RKE, etcd alone":              {"node-role.kubernetes.io/etcd": "true"},
		"k3s, server with etcd":        {"node-role.kubernetes.io/control-plane": "true", "node-role.kubernetes.io/etcd": "true"},
		"MicroK8s":                     {"microk8s.io/cluster": "true", "node.kubernetes.io/microk8s-controlplane": "microk8s-controlplane"},
		"kOps, an API server":          {"node-role.kubernetes.io/api-server": ""},
		"OpenShift, an arbiter":        {"node-role.kubernetes.io/arbiter": ""},
		"OpenShift, master and worker": {"node-role.kubernetes.io/master": "", "node-role.kubernetes.io/worker": ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
			if labels[corev1.LabelOSStable] = "linux"; !IsControlPlane(node) {
				t.Error("the node is no control-plane node")
			}
			profile := &v1alpha1.StorageClientProfile{}
			if profile.Spec.AllNodes = true; SelectorOf(profile, catalogue.AllowList{}).Matches(node) {
				t.Error("the profile selects it without includeControlPlane")
			}
			if profile.Spec.IncludeControlPlane = true; !SelectorOf(profile, catalogue.AllowList{}).Matches(node) {
				t.Error("the profile does not select it with includeControlPlane")
			}
		})
	}
	for name, labels := range map[string]map[string]string{
		"a worker of RKE": {"node-role.kubernetes.io/worker": "true"}, "a worker of MicroK8s": {"node.kubernetes.io/microk8s-worker": "microk8s-worker"},
		"a node of a pool": {"pool": "control-plane"},
	} {
		if IsControlPlane(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}) {
			t.Errorf("%s is a control-plane node", name)
		}
	}
}

func TestStandingOf(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.StorageClientProfile)
		want   Phase
	}{
		"a sound profile is active":      {func(*v1alpha1.StorageClientProfile) {}, Active},
		"without a finalizer it is held": {func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil }, Held},
		"so it is in mode Plan":          {func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }, Held},
		"and if it selects nothing":      {func(p *v1alpha1.StorageClientProfile) { p.Spec.AllNodes = false }, Held},
		"and if it is invalid": {func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Volumes = []v1alpha1.VolumeRule{{MountOptions: []v1alpha1.MountOption{"suid"}}}
		}, Held},
		"a profile that is being deleted leaves": {func(p *v1alpha1.StorageClientProfile) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, Leaving},
		"whatever else holds it": {func(p *v1alpha1.StorageClientProfile) {
			p.DeletionTimestamp, p.Spec.Mode = &metav1.Time{Time: time.Unix(1, 0)}, v1alpha1.ModePlan
		}, Leaving},
	} {
		t.Run(name, func(t *testing.T) {
			profile := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{v1alpha1.Finalizer}}}
			profile.Spec.AllNodes = true
			test.change(profile)
			check.Equal(t, "result", test.want, PhaseOf(profile, catalogue.AllowList{}))
		})
	}
}

func TestCheckNamesFieldAndValue(t *testing.T) {
	profile := &v1alpha1.StorageClientProfile{}
	profile.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"kernel.core_pattern": "x"}}
	reason, message := Check(profile, catalogue.AllowList{})
	if reason != v1alpha1.ReasonInvalid || !strings.Contains(message, "spec.node.sysctls[kernel.core_pattern]") || !strings.Contains(message, `"x"`) {
		t.Errorf("got %s: %s", reason, message)
	}
}
