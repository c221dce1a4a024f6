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
	"github.com/storageclient/operator/controllers/internal/write"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/node/plan"
)

// apply applies a step. A crash after any of its writes is safe. It sets Unfenced to the result of the fence.
func (r *Reconciler) apply(ctx context.Context, s *plan.Snapshot, next plan.Step, out *loop.Outcome) error {
	switch next := next.(type) {
	case plan.None:
		return r.removeLabelAndConditions(ctx, s.Node)
	case plan.Remove:
		r.Gate.Forget(*s)
		if err := r.deleteClientNode(ctx, s.ClientNode); err != nil {
			return err
		}
		return r.removeLabelAndConditions(ctx, s.Node)
	case plan.Write:
		r.Gate.Forget(*s)
		if s.ClientNode == nil {
			return r.createClientNode(ctx, s, next, out)
		}
		return r.changeClientNode(ctx, s, next, out)
	case plan.Stay:
		out.WakeAfter(next.RequeueAfter)
		if s.ClientNode == nil {
			return nil
		}
		if err := r.addLabel(ctx, s); err != nil {
			return err
		}
		return r.writeConditions(ctx, *s, s.ClientNode, next.Note, out)
	}
	return fmt.Errorf("apply step %q: unknown", next)
}

// createClientNode creates the StorageClientNode before the label: the agent finds its instructions when it starts, and the fence has an object for
// a trial.
func (r *Reconciler) createClientNode(ctx context.Context, s *plan.Snapshot, next plan.Write, out *loop.Outcome) error {
	clientNode := &v1alpha1.StorageClientNode{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Node.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: s.Node.Name, UID: s.Node.UID, BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: next.Spec,
	}
	if err := r.Create(ctx, clientNode, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("create StorageClientNode %s: %w", clientNode.Name, err)
	}
	log.FromContext(ctx).Info("Node is managed", "profiles", s.Desired.Profiles, "hash", next.Spec.Hash)
	if err := r.addLabel(ctx, s); err != nil {
		return err
	}
	return r.writeConditions(ctx, *s, clientNode, next.Note, out)
}

// changeClientNode writes the conditions before the settings, unless they are delayed. Tuned then refers to the new settings, so that its time is
// not read as the start of the soak of others.
func (r *Reconciler) changeClientNode(ctx context.Context, s *plan.Snapshot, next plan.Write, out *loop.Outcome) error {
	changed := s.ClientNode.DeepCopy()
	next.Into(&changed.Spec)
	if err := r.addLabel(ctx, s); err != nil {
		return err
	}
	if err := r.writeConditions(ctx, *s, changed, next.Note, out); err != nil {
		return err
	}
	// A JSON merge patch replaces all settings, so the patch is only valid for the version that was read.
	if _, err := write.PatchSpec(ctx, r, s.ClientNode, func(spec *v1alpha1.StorageClientNodeSpec) { *spec = changed.Spec }); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Settings of the node changed", "hash", changed.Spec.Hash, "release", changed.Spec.Release)
	return nil
}

func (r *Reconciler) deleteClientNode(ctx context.Context, clientNode *v1alpha1.StorageClientNode) error {
	preconditions := client.Preconditions{UID: &clientNode.UID}
	preconditions.ResourceVersion = &clientNode.ResourceVersion
	if err := client.IgnoreNotFound(r.Delete(ctx, clientNode, preconditions)); err != nil {
		return fmt.Errorf("delete StorageClientNode %s: %w", clientNode.Name, err)
	}
	return nil
}

// addLabel schedules the agent on a node if the fence holds. An existing label stays: removing the agents from all nodes because of one result
// would be an even larger change.
func (r *Reconciler) addLabel(ctx context.Context, s *plan.Snapshot) error {
	if s.Node.Labels[v1alpha1.ManagedLabel] == v1alpha1.True {
		return nil
	}
	var err error
	if s.Unfenced, err = r.Fence.Missing(ctx); err != nil {
		return err
	}
	if s.Unfenced != "" {
		log.FromContext(ctx).V(1).Info("Node agent is not rolled out to the node", "reason", s.Unfenced)
		return nil
	}
	return write.PatchLabel(ctx, r, s.Node.Name, v1alpha1.ManagedLabel, ptr.To(v1alpha1.True))
}

func (r *Reconciler) removeLabelAndConditions(ctx context.Context, node *corev1.Node) error {
	if _, labelled := node.Labels[v1alpha1.ManagedLabel]; labelled {
		if err := write.PatchLabel(ctx, r, node.Name, v1alpha1.ManagedLabel, nil); err != nil {
			return err
		}
	}
	var deletions []any
	for _, condition := range []*corev1.NodeCondition{fleet.FindTuned(node), fleet.FindStorageReachable(node)} {
		if condition != nil {
			deletions = append(deletions, map[string]any{"type": condition.Type, "$patch": "delete"})
		}
	}
	if len(deletions) == 0 {
		return nil
	}
	return r.patchConditions(ctx, node, deletions)
}

// writeConditions writes the conditions Tuned and StorageReachable of a managed node if they have changed, except delayed ones.
func (r *Reconciler) writeConditions(ctx context.Context, s plan.Snapshot, clientNode *v1alpha1.StorageClientNode, note string, out *loop.Outcome) error {
	now := r.Clock.Now()
	var updates []any
	add := func(old *corev1.NodeCondition, next corev1.NodeCondition, changed bool) {
		delay := r.Patience.Hold(s.Node.Name, old, next, now)
		switch {
		case !changed:
		case delay == 0:
			updates = append(updates, next)
		default:
			out.WakeAfter(delay)
		}
	}
	tuned, changed := plan.Condition(s, clientNode, note, now)
	add(fleet.FindTuned(s.Node), tuned, changed)
	storage, changed := plan.StorageCondition(s, clientNode, now)
	add(fleet.FindStorageReachable(s.Node), storage, changed)
	if len(updates) == 0 {
		return nil
	}
	return r.patchConditions(ctx, s.Node, updates)
}

// patchConditions uses a strategic merge patch, which merges the list by its key: the other conditions belong to the kubelet and the rollout.
func (r *Reconciler) patchConditions(ctx context.Context, node *corev1.Node, conditions []any) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return fmt.Errorf("encode conditions of Node %s: %w", node.Name, err)
	}
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	err = r.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(v1alpha1.ManagerFieldManager))
	if err != nil {
		return fmt.Errorf("patch conditions of Node %s: %w", node.Name, err)
	}
	return nil
}
