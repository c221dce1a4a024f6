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
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.NodeInfo.BootID = "boot"
	for _, cordoned := range []bool{false, true} {
		node.Spec.Unschedulable = cordoned
		got := node.DeepCopy()
		got.Status.VolumesInUse = []corev1.UniqueVolumeName{"volume"}
		got.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "volume"}}
		want := node.DeepCopy()
		if cordoned {
			want = got.DeepCopy() // the rollout waits for its volumes
		}
		want.ManagedFields = nil
		got.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
		if _, err := CacheTransform(got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("cordoned %t (-want +got):\n%s", cordoned, diff)
		}
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent", Labels: map[string]string{"app": "x"}, ManagedFields: fields}}
	pod.Spec = corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: "agent", Image: "image", Args: []string{"run"}}}, HostNetwork: true}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	trimmed, err := CacheTransformAgentPod(pod)
	if p, ok := trimmed.(*corev1.Pod); err != nil || !ok || !agentpod.IsReady(p) || p.Spec.NodeName != "a" || len(p.Spec.Containers) > 0 ||
		len(p.Spec.ImagePullSecrets) > 0 || p.Spec.HostNetwork || p.ManagedFields != nil {
		t.Errorf("error %v: %+v", err, trimmed)
	}
}
