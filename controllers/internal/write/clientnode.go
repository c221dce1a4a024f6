// Package write contains writes to the cluster that several controllers share.
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

// PatchSpec changes the spec of a StorageClientNode that was read before, and returns the server's result. A permit or a release in the meantime
// makes it a conflict.
func PatchSpec(ctx context.Context, c client.Client, clientNode *v1alpha1.StorageClientNode, change func(*v1alpha1.StorageClientNodeSpec),
) (*v1alpha1.StorageClientNode, error) {
	before := bare(clientNode)
	before.Spec = clientNode.Spec
	changed := before.DeepCopy()
	change(&changed.Spec)
	if err := c.Patch(ctx, changed, patchOf(before), owner); err != nil {
		return nil, fmt.Errorf("patch StorageClientNode %s: %w", clientNode.Name, err)
	}
	return changed, nil
}

// PatchNote writes the rollout's note of a StorageClientNode that was read before, and returns the object that the server stored.
func PatchNote(ctx context.Context, c client.Client, clientNode *v1alpha1.StorageClientNode, note v1alpha1.RolloutStatus,
) (*v1alpha1.StorageClientNode, error) {
	before := bare(clientNode)
	// If the status were omitted as a whole, the patch would write the fields without omitempty as empty.
	before.Status = clientNode.Status
	before.Status.Settings, before.Status.Mounts, before.Status.Servers = nil, nil, nil
	changed := before.DeepCopy()
	changed.Status.Rollout = &note
	stored := bare(clientNode)
	if err := patchStatus(ctx, c, changed, patchOf(before), stored); err != nil {
		return nil, fmt.Errorf("patch status of StorageClientNode %s: %w", clientNode.Name, err)
	}
	return stored, nil
}

// PatchProfileStatus writes the status of a StorageClientProfile that was read before, and returns the object that the server stored.
func PatchProfileStatus(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, status v1alpha1.StorageClientProfileStatus,
) (*v1alpha1.StorageClientProfile, error) {
	changed := profile.DeepCopy()
	changed.Status = status
	stored := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: profile.Name}}
	if err := patchStatus(ctx, c, changed, client.MergeFromWithOptions(profile, client.MergeFromWithOptimisticLock{}), stored); err != nil {
		return nil, fmt.Errorf("patch status of StorageClientProfile %s: %w", profile.Name, err)
	}
	return stored, nil
}

// patchStatus reads the response into an empty object: one with the new status would keep the fields that the API server drops.
func patchStatus(ctx context.Context, c client.Client, changed client.Object, patch client.Patch, stored client.Object) error {
	data, err := patch.Data(changed)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return c.Status().Patch(ctx, stored, client.RawPatch(patch.Type(), data), owner)
}

// PatchLabel sets a label of a Node, or removes it if value is nil.
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

// bare returns a StorageClientNode with only its identity: comparing the full report of a large node takes longer than the write.
func bare(of *v1alpha1.StorageClientNode) *v1alpha1.StorageClientNode {
	return &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion}}
}

func patchOf(before *v1alpha1.StorageClientNode) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}
