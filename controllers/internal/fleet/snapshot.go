package fleet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
)

// Snapshot is all nodes at one moment. What is in it belongs to the cache and is not to be changed.
type Snapshot struct {
	View  *View
	Nodes []corev1.Node
	// Objects holds the client nodes by the name of their node.
	Objects map[string]*v1alpha1.StorageClientNode
	// Ready holds the nodes whose agent's Pod is Ready.
	Ready map[string]bool
}

// ReadSnapshot lists Nodes, StorageClientNodes and the agent's Pods.
func ReadSnapshot(ctx context.Context, reader client.Reader, profiles *View, agentNamespace string) (Snapshot, error) {
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return Snapshot{}, fmt.Errorf("list Nodes: %w", err)
	}
	var clientNodes v1alpha1.StorageClientNodeList
	if err := reader.List(ctx, &clientNodes, client.UnsafeDisableDeepCopy); err != nil {
		return Snapshot{}, fmt.Errorf("list StorageClientNodes: %w", err)
	}
	ready, err := agentpod.ReadyNodes(ctx, reader, agentNamespace)
	if err != nil {
		return Snapshot{}, err
	}
	all := Snapshot{View: profiles, Nodes: nodes.Items, Ready: ready, Objects: make(map[string]*v1alpha1.StorageClientNode, len(clientNodes.Items))}
	for i := range clientNodes.Items {
		all.Objects[clientNodes.Items[i].Name] = &clientNodes.Items[i]
	}
	return all, nil
}
