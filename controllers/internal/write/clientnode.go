// Package write is what several controllers write to the cluster.
package write

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

var owner = client.FieldOwner(v1alpha1.ManagerFieldManager)

// PatchSpec changes the spec of a client node as it was read, and returns what the server made of it: a permit or a release that has come
// since makes it a conflict.
func PatchSpec(ctx context.Context, c client.Client, clientNode *v1alpha1.StorageClientNode, change func(*v1alpha1.StorageClientNodeSpec)) (*v1alpha1.StorageClientNode, error) {
	before := bare(clientNode)
	before.Spec = clientNode.Spec
	changed := before.DeepCopy()
	change(&changed.Spec)
	if err := c.Patch(ctx, changed, patchOf(before), owner); err != nil {
		return nil, fmt.Errorf("patch StorageClientNode %s: %w", clientNode.Name, err)
	}
	return changed, nil
}

// PatchNote writes the rollout's note of a client node as it was read, and returns what the server made of it.
func PatchNote(ctx context.Context, c client.Client, clientNode *v1alpha1.StorageClientNode, note v1alpha1.RolloutStatus) (*v1alpha1.StorageClientNode, error) {
	before := bare(clientNode)
	// A status that is left out as a whole would have the fields that are never left out written as if they were empty.
	before.Status = clientNode.Status
	before.Status.Settings, before.Status.Mounts, before.Status.Servers = nil, nil, nil
	changed := before.DeepCopy()
	changed.Status.Rollout = &note
	if err := c.Status().Patch(ctx, changed, patchOf(before), owner); err != nil {
		return nil, fmt.Errorf("patch status of StorageClientNode %s: %w", clientNode.Name, err)
	}
	return changed, nil
}

// PatchLabel sets a label of a Node, or removes it if there is no value.
func PatchLabel(ctx context.Context, c client.Client, node, label string, value *string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]*string{label: value}}})
	if err != nil {
		return fmt.Errorf("encode label of Node %s: %w", node, err)
	}
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := c.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), owner); err != nil {
		return fmt.Errorf("patch label of Node %s: %w", node, err)
	}
	return nil
}

// bare is a client node without what is written: to compare all that a large node reports takes longer than to write.
func bare(of *v1alpha1.StorageClientNode) *v1alpha1.StorageClientNode {
	return &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion}}
}

func patchOf(before *v1alpha1.StorageClientNode) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}
