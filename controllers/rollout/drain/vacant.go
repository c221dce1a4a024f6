package drain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IsVacant reports whether no pod is on a node but those that a drain leaves and those that have run to their end.
func (d *Drainer) IsVacant(ctx context.Context, node string) (bool, error) {
	var pods corev1.PodList
	if err := d.Reader.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return false, fmt.Errorf("list Pods on %s: %w", node, err)
	}
	return !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return !staysOnNode(&pod) && !hasEnded(&pod) }), nil
}
