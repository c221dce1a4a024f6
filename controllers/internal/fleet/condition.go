package fleet

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// FindTuned returns a Node's condition Tuned, or nil.
func FindTuned(node *corev1.Node) *corev1.NodeCondition {
	return findCondition(node, v1alpha1.TunedNodeCondition)
}

// FindStorageReachable returns a Node's condition StorageReachable, or nil.
func FindStorageReachable(node *corev1.Node) *corev1.NodeCondition {
	return findCondition(node, v1alpha1.StorageReachableNodeCondition)
}

func findCondition(node *corev1.Node, conditionType corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == conditionType {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
