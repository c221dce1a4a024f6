package read

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// podsEvery is the interval between reads of the pods of the same claims.
	podsEvery = time.Minute
	// podsPage is the number of pods in one read, maxPodsPages the number of reads in a namespace.
	podsPage     = 500
	maxPodsPages = 4
	// maxPods is the number of pods of a claim that are returned.
	maxPods = 3
)

// ClaimPods holds the last read of the pods that use PersistentVolumeClaims.
type ClaimPods struct {
	claims []types.NamespacedName
	at     time.Time
	pods   map[types.NamespacedName][]corev1.Pod
}

// Of returns up to maxPods pods of each claim, not older than podsEvery. The reader must bypass the cache, which has no pods of users.
func (c *ClaimPods) Of(ctx context.Context, reader client.Reader, claims []types.NamespacedName, now time.Time) (map[types.NamespacedName][]corev1.Pod, error) {
	if slices.Equal(c.claims, claims) && now.Sub(c.at) < podsEvery {
		return c.pods, nil
	}
	pods := map[types.NamespacedName][]corev1.Pod{}
	for _, volumeClaim := range claims {
		found, err := podsOf(ctx, reader, volumeClaim)
		if err != nil {
			return nil, err
		}
		pods[volumeClaim] = found
	}
	*c = ClaimPods{claims: claims, at: now, pods: pods}
	return pods, nil
}

func podsOf(ctx context.Context, reader client.Reader, volumeClaim types.NamespacedName) ([]corev1.Pod, error) {
	var out []corev1.Pod
	token := ""
	for range maxPodsPages {
		var page corev1.PodList
		if err := reader.List(ctx, &page, client.InNamespace(volumeClaim.Namespace), client.Limit(podsPage), client.Continue(token)); err != nil {
			return nil, fmt.Errorf("list Pods in namespace %q: %w", volumeClaim.Namespace, err)
		}
		for i := range page.Items {
			if pod := &page.Items[i]; usesClaim(pod, volumeClaim.Name) && pod.DeletionTimestamp.IsZero() {
				out = append(out, *pod)
			}
		}
		if token = page.Continue; token == "" || len(out) >= maxPods {
			break
		}
	}
	slices.SortFunc(out, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
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
