package drain

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// IsVacant reports whether no pod is on a node but those that a drain leaves and those that have run to their end.
func (d *Drainer) IsVacant(ctx context.Context, node string) (bool, error) {
	pods, err := d.listPods(ctx, node, consistent)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return !staysOnNode(&pod) && !hasEnded(&pod) }), nil
}
