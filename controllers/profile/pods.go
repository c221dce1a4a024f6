package profile

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/profile/status"
	"github.com/storageclient/operator/tuning/lists"
)

// findPods finds the pods that use PersistentVolumeClaims. It bypasses the cache, which does not contain pods of users.
func (r *Reconciler) findPods(ctx context.Context, profile string, claims []types.NamespacedName) (map[types.NamespacedName][]status.Pod, error) {
	var reader client.Reader = r.Client
	if r.APIReader != nil {
		reader = r.APIReader
	}
	found, err := r.passOf(profile).pods.Of(ctx, reader, claims, r.Clock.Now())
	if err != nil {
		return nil, err
	}
	pods := map[types.NamespacedName][]status.Pod{}
	for volumeClaim, users := range found {
		pods[volumeClaim] = lists.Each(lists.Pointers(users), describePod)
	}
	return pods, nil
}

// describePod describes a pod and its controller. The name of a Deployment is derived from its ReplicaSet's name, which ends in the hash in the
// pod's label.
func describePod(pod *corev1.Pod) status.Pod {
	out, controller := status.Pod{Name: pod.Name}, metav1.GetControllerOf(pod)
	if controller == nil {
		out.Bare = true
		return out
	}
	switch controller.Kind {
	case "StatefulSet", "DaemonSet":
		out.Controller = strings.ToLower(controller.Kind) + "/" + controller.Name
	case "ReplicaSet":
		if name, cut := strings.CutSuffix(controller.Name, "-"+pod.Labels["pod-template-hash"]); cut && name != "" {
			out.Controller = "deployment/" + name
		}
	}
	return out
}
