package drain

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Evictor asks for a pod to be evicted. The errors are the API's own: not found and conflict mean that the pod is not
// there any more, too many requests that a PodDisruptionBudget keeps it.
type Evictor interface {
	// Evict asks for the eviction of this very pod. gracePeriodSeconds nil leaves the pod its own.
	Evict(ctx context.Context, pod *corev1.Pod, gracePeriodSeconds *int64) error
}

// PolicyEvictor evicts through policy/v1, the eviction subresource of pods.
type PolicyEvictor struct {
	// Client writes.
	Client client.Client
	// DryRun has the server answer as it would, and evict nothing.
	DryRun bool
}

// Evict implements Evictor.
func (e PolicyEvictor) Evict(ctx context.Context, pod *corev1.Pod, gracePeriodSeconds *int64) error {
	// The UID keeps a pod of the same name that has been made since.
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{
		GracePeriodSeconds: gracePeriodSeconds,
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	}}
	if !e.DryRun {
		return e.Client.SubResource("eviction").Create(ctx, pod, eviction)
	}
	eviction.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	return e.Client.SubResource("eviction").Create(ctx, pod, eviction, client.DryRunAll)
}
