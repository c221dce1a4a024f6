package fleet

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
)

// FindTuned returns a Node's condition Tuned, or nil.
func FindTuned(node *corev1.Node) *corev1.NodeCondition {
	return agentpod.FindCondition(node, v1alpha1.TunedNodeCondition)
}

// FindStorageReachable returns a Node's condition StorageReachable, or nil.
func FindStorageReachable(node *corev1.Node) *corev1.NodeCondition {
	return agentpod.FindCondition(node, v1alpha1.StorageReachableNodeCondition)
}
