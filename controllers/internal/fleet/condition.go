package fleet

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// FindTuned returns a Node's condition Tuned, or nil.
func FindTuned(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == v1alpha1.TunedNodeCondition {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
