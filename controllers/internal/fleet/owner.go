package fleet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Owns reports whether a StorageClientNode belongs to the Node, and not to a former Node of the same name.
func Owns(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) bool {
	return slices.ContainsFunc(clientNode.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == node.UID })
}

// NodeOf returns a reference to the Node of a StorageClientNode, for an event.
func NodeOf(clientNode *v1alpha1.StorageClientNode) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: clientNode.Name}}
	for _, owner := range clientNode.OwnerReferences {
		if owner.Kind == "Node" {
			node.UID = owner.UID
		}
	}
	return node
}
