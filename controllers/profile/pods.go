package profile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/controllers/profile/status"
)

const (
	// podsEvery is the interval between reads of the pods of an awaited volume: they only show which pods to restart.
	podsEvery = time.Minute
	// podsPage is the number of pods in one read, maxPodsPages the number of reads in a namespace.
	podsPage     = 500
	maxPodsPages = 4
	// maxPods is the number of pods of a volume that are reported.
	maxPods = 3
)

// podReading contains the pods that use the volumes for which a profile waits.
type podReading struct {
	claims []types.NamespacedName
	at     time.Time
	pods   map[types.NamespacedName][]status.Pod
}

// findPods finds the pods that use PersistentVolumeClaims. It bypasses the cache, which does not contain pods of users.
func (r *Reconciler) findPods(ctx context.Context, profile string, claims []types.NamespacedName) (map[types.NamespacedName][]status.Pod, error) {
	last, now := &r.passOf(profile).pods, r.Clock.Now()
	if slices.Equal(last.claims, claims) && now.Sub(last.at) < podsEvery {
		return last.pods, nil
	}
	pods := map[types.NamespacedName][]status.Pod{}
	for _, volumeClaim := range claims {
		found, err := r.podsOf(ctx, volumeClaim)
		if err != nil {
			return nil, err
		}
		pods[volumeClaim] = found
	}
	*last = podReading{claims: claims, at: now, pods: pods}
	return pods, nil
}

func (r *Reconciler) podsOf(ctx context.Context, volumeClaim types.NamespacedName) ([]status.Pod, error) {
	var reader client.Reader = r.Client
	if r.APIReader != nil {
		reader = r.APIReader
	}
	var out []status.Pod
	token := ""
	for range maxPodsPages {
		var page corev1.PodList
		if err := reader.List(ctx, &page, client.InNamespace(volumeClaim.Namespace), client.Limit(podsPage), client.Continue(token)); err != nil {
			return nil, fmt.Errorf("list Pods in namespace %q: %w", volumeClaim.Namespace, err)
		}
		for i := range page.Items {
			if pod := &page.Items[i]; usesClaim(pod, volumeClaim.Name) && pod.DeletionTimestamp.IsZero() {
				out = append(out, describePod(pod))
			}
		}
		if token = page.Continue; token == "" || len(out) >= maxPods {
			break
		}
	}
	slices.SortFunc(out, func(a, b status.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out[:min(maxPods, len(out))], nil
}

func usesClaim(pod *corev1.Pod, volumeClaim string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == volumeClaim ||
			v.Ephemeral != nil && pod.Name+"-"+v.Name == volumeClaim
	})
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
