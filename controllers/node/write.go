package node

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
)

// apply carries a decision out, in an order that a crash may cut anywhere.
func (r *Reconciler) apply(ctx context.Context, in input, next decision) error {
	switch next.step {
	case stepNone:
		return r.clear(ctx, in.node)
	case stepRemove:
		if err := r.delete(ctx, in.scn); err != nil {
			return err
		}
		return r.clear(ctx, in.node)
	case stepWrite:
		if in.scn == nil {
			return r.begin(ctx, in, next)
		}
		return r.change(ctx, in, next)
	case stepStay:
	}
	if in.scn == nil {
		return nil
	}
	if err := r.label(ctx, in.node); err != nil {
		return err
	}
	return r.report(ctx, in, in.scn, next.note)
}

// begin creates the object before the label: an agent that comes to the node finds what it is to do.
func (r *Reconciler) begin(ctx context.Context, in input, next decision) error {
	scn := &v1alpha1.StorageClientNode{
		ObjectMeta: metav1.ObjectMeta{
			Name: in.node.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: in.node.Name, UID: in.node.UID, BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: next.spec,
	}
	if err := r.Create(ctx, scn, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("create StorageClientNode %s: %w", scn.Name, err)
	}
	log.FromContext(ctx).Info("Node is managed", "profiles", in.wanted.Profiles, "hash", next.spec.Hash)
	if err := r.label(ctx, in.node); err != nil {
		return err
	}
	return r.report(ctx, in, scn, next.note)
}

// change tells of the change in the condition before it makes it: the time that the condition bears is when the soak
// of the new settings begins, and must not be that of the old ones.
func (r *Reconciler) change(ctx context.Context, in input, next decision) error {
	changed := in.scn.DeepCopy()
	permit, volumes := changed.Spec.RebootPermit, changed.Spec.Volumes
	changed.Spec = next.spec
	changed.Spec.RebootPermit, changed.Spec.Volumes = permit, volumes
	if err := r.report(ctx, in, changed, next.note); err != nil {
		return err
	}
	// settings is one value to a JSON merge patch, so the patch holds for the version that was read only.
	patch := client.MergeFromWithOptions(in.scn, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch StorageClientNode %s: %w", changed.Name, err)
	}
	log.FromContext(ctx).Info("Settings of the node changed", "hash", changed.Spec.Hash, "release", changed.Spec.Release)
	return r.label(ctx, in.node)
}

func (r *Reconciler) delete(ctx context.Context, scn *v1alpha1.StorageClientNode) error {
	preconditions := client.Preconditions{UID: &scn.UID, ResourceVersion: &scn.ResourceVersion}
	if err := client.IgnoreNotFound(r.Delete(ctx, scn, preconditions)); err != nil {
		return fmt.Errorf("delete StorageClientNode %s: %w", scn.Name, err)
	}
	return nil
}

func (r *Reconciler) label(ctx context.Context, node *corev1.Node) error {
	if node.Labels[v1alpha1.ManagedLabel] == v1alpha1.True {
		return nil
	}
	return r.patchLabel(ctx, node, v1alpha1.True)
}

// clear takes label and condition away, the last that is ours on a Node.
func (r *Reconciler) clear(ctx context.Context, node *corev1.Node) error {
	if _, labelled := node.Labels[v1alpha1.ManagedLabel]; labelled {
		if err := r.patchLabel(ctx, node, nil); err != nil {
			return err
		}
	}
	if conditionOf(node.Status.Conditions) == nil {
		return nil
	}
	return r.patchCondition(ctx, node, map[string]any{"type": v1alpha1.TunedNodeCondition, "$patch": "delete"})
}

func (r *Reconciler) patchLabel(ctx context.Context, node *corev1.Node, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.ManagedLabel: value}}})
	if err != nil {
		return fmt.Errorf("encode label of Node %s: %w", node.Name, err)
	}
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if err := r.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch label of Node %s: %w", node.Name, err)
	}
	return nil
}

// report writes the condition Tuned of a managed node, if it says anything new.
func (r *Reconciler) report(ctx context.Context, in input, scn *v1alpha1.StorageClientNode, note string) error {
	current := !in.wanted.Managed || scn.Spec.Hash == in.wanted.Hash
	verdict := tuned(scn, fleet.Look(in.node, scn, in.ready, ""), current, note)
	condition, changed := stamped(in.node.Status.Conditions, verdict, r.Clock.Now())
	if !changed {
		return nil
	}
	return r.patchCondition(ctx, in.node, condition)
}

// patchCondition goes by strategic merge, which knows the list's key: the other conditions are the kubelet's and the
// rollout's.
func (r *Reconciler) patchCondition(ctx context.Context, node *corev1.Node, condition any) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		return fmt.Errorf("encode condition of Node %s: %w", node.Name, err)
	}
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	err = r.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(v1alpha1.ManagerFieldManager))
	if err != nil {
		return fmt.Errorf("patch condition of Node %s: %w", node.Name, err)
	}
	return nil
}
