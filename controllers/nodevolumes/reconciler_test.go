package nodevolumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/test/check"
)

func clientNodeWithMount() *v1alpha1.StorageClientNode {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n", Generation: 1}}
	clientNode.Status.ObservedGeneration = 1
	clientNode.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/v", Volume: "v", ReadAheadKiB: 128}}
	return clientNode
}

func TestAnObjectIsWrittenOnlyWithoutADisruption(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Node, *v1alpha1.StorageClientNode)
		silent bool
		want   bool
	}{
		"in service":                      {want: true},
		"the agent has not seen the last": {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Generation = 2 }},
		"the agent is not there":          {silent: true},
		"the agent reports another boot":  {change: func(n *corev1.Node, _ *v1alpha1.StorageClientNode) { n.Status.NodeInfo.BootID = "boot-2" }},
		"the node is not Ready":           {change: func(n *corev1.Node, _ *v1alpha1.StorageClientNode) { n.Status.Conditions = nil }},
		"the node is paused": {change: func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
			n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
		}},
		"a permit": {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "x"}
		}},
		"a cordon of the operator": {change: func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
			n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: "{}"}
		}},
		"a claim": {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutClaimed}
		}},
		"a release": {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Spec.Release = true }},
		"a reboot that waits holds nothing": {change: func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting}
		}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node, clientNode := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, clientNodeWithMount()
			node.Status.NodeInfo.BootID, clientNode.Status.BootID = "boot-1", "boot-1"
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if test.change != nil {
				test.change(node, clientNode)
			}
			check.Equal(t, "writable", test.want, fleet.IsWritable(node, clientNode, !test.silent))
		})
	}
}

func TestUnrelatedReportsCauseNoPass(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.StorageClientNode)
		want   bool
	}{
		"a setting":       {func(s *v1alpha1.StorageClientNode) { s.Status.Settings = []v1alpha1.SettingStatus{{Key: "k"}} }, false},
		"a mount's state": {func(s *v1alpha1.StorageClientNode) { s.Status.Mounts[0].State = v1alpha1.MountStale }, false},
		"a new mount": {func(s *v1alpha1.StorageClientNode) {
			s.Status.Mounts = append(s.Status.Mounts, v1alpha1.MountStatus{MountPoint: "/w", Volume: "w"})
		}, true},
		"a read-ahead": {func(s *v1alpha1.StorageClientNode) { s.Status.Mounts[0].ReadAheadKiB = 64 }, true},
		"a rejected read-ahead": {func(s *v1alpha1.StorageClientNode) {
			s.Status.Mounts[0].ReadAheadState = v1alpha1.SettingFailed
		}, true},
		"the end of a disruption": {func(s *v1alpha1.StorageClientNode) {
			s.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := clientNodeWithMount()
			test.change(after)
			check.Equal(t, "changed", test.want, clientNodeChanged(clientNodeWithMount(), after))
		})
	}
}
