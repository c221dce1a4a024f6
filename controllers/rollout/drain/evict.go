package drain

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Evictor requests the eviction of a pod. Errors are errors of the API: not found and conflict mean that the pod is gone, too many requests means
// that a PodDisruptionBudget protects it.
type Evictor interface {
	// Evict requests the eviction of exactly this pod. If gracePeriodSeconds is nil, the pod's own grace period applies.
	Evict(ctx context.Context, pod *corev1.Pod, gracePeriodSeconds *int64) error
}

// PolicyEvictor evicts through policy/v1, the eviction subresource of pods.
type PolicyEvictor struct {
	// Client writes.
	Client client.Client
	// DryRun requests a dry run: the server responds as usual and evicts no pod.
	DryRun bool
}

// Evict implements Evictor.
func (e PolicyEvictor) Evict(ctx context.Context, pod *corev1.Pod, gracePeriodSeconds *int64) error {
	// The UID protects a newer pod of the same name.
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{
		GracePeriodSeconds: gracePeriodSeconds,
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	}}
	if !e.DryRun {
		if !hasStarted(pod) {
			// It may start at any moment, and then has work to lose.
			eviction.DeleteOptions.Preconditions.ResourceVersion = &pod.ResourceVersion
		}
		return e.Client.SubResource("eviction").Create(ctx, pod, eviction)
	}
	eviction.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	return e.Client.SubResource("eviction").Create(ctx, pod, eviction, client.DryRunAll)
}
