package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/controllers/internal/agentpod"
)

func TestCacheTransforms(t *testing.T) {
	fields := []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"pool": "x"}, ManagedFields: fields}}
	node.Spec.Unschedulable = true
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.NodeInfo.BootID = "boot"
	want := node.DeepCopy()
	want.ManagedFields = nil
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"volume"}
	got, err := CacheTransform(node)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent", Labels: map[string]string{"app": "x"}, ManagedFields: fields}}
	pod.Spec = corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: "agent", Image: "image", Args: []string{"run"}}}, HostNetwork: true}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	trimmed, err := CacheTransformAgentPod(pod)
	if p, ok := trimmed.(*corev1.Pod); err != nil || !ok || !agentpod.IsReady(p) || p.Spec.NodeName != "a" || !cmp.Equal(p.Spec.Containers, []corev1.Container{{Name: "agent", Image: "image"}}) ||
		len(p.Spec.ImagePullSecrets) != 1 || p.Spec.HostNetwork || p.ManagedFields != nil {
		t.Errorf("error %v: %+v", err, trimmed)
	}
}
