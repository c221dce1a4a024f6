package fleet

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Snapshot is all nodes at one moment. What is in it belongs to the cache and is not to be changed.
type Snapshot struct {
	Profiles *ProfileSet
	Nodes    []corev1.Node
	// ClientNodes holds the client nodes by the name of their node.
	ClientNodes map[string]*v1alpha1.StorageClientNode
	// Ready holds the nodes whose agent's Pod is Ready.
	Ready map[string]bool
}
