package fleet

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Owns reports whether a client node is the Node's own. One that is left from a former Node of the same name is not.
func Owns(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) bool {
	for _, owner := range clientNode.OwnerReferences {
		if owner.UID == node.UID {
			return true
		}
	}
	return false
}
