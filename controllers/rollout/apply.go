package rollout

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/write"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// applyStep applies one step. The resource version of the objects behind the decision makes the step fail if an object has changed since.
func (p *pass) applyStep(ctx context.Context, step plan.Step) error {
	log.FromContext(ctx).V(1).Info("Applying a step", "step", fmt.Sprintf("%T", step), "Node", step.NodeName())
	switch step := step.(type) {
	case plan.Cordon:
		return p.cordonNode(ctx, step)
	case plan.Uncordon:
		return p.uncordonNode(ctx, step)
	case plan.RemoveGuards:
		return p.patchNode(ctx, step.Node, removeGuards)
	case plan.SetMaintenance:
		return p.setMaintenance(ctx, step)
	case plan.RemoveTaint:
		return p.patchNode(ctx, step.Node, func(node *corev1.Node) {
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == p.UntunedTaint })
		})
	case plan.GivePermit:
		return p.givePermit(ctx, step)
	case plan.ClearPermit:
		err := p.patchClientNode(ctx, step.Node, func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = nil })
		if err != nil {
			return fmt.Errorf("withdraw the reboot permit; the owner of a policy or webhook that denies it must allow it: %w", err)
		}
		return nil
	case plan.AddClaim:
		return p.changeClaims(ctx, claimChange{step.Node, step.Claim.Encode()})
	case plan.UpdateClaim:
		return p.changeClaims(ctx, claimChange{step.Node, step.Claim.Encode()})
	case plan.ReleaseClaim:
		return p.changeClaims(ctx, claimChange{node: step.Node})
	}
	return fmt.Errorf("apply step %T: unknown", step)
}

// changeClaims changes the ConfigMap that was read before the decision: all changes or none. Changes that other workers make during a write are
// combined into the next write.
func (p *pass) changeClaims(ctx context.Context, changes ...claimChange) error {
	_, err := p.changes.Do(changes, func(all [][]claimChange) (struct{}, error) {
		claims := p.claims.DeepCopy()
		if claims.Data == nil {
			claims.Data = map[string]string{}
		}
		for _, change := range slices.Concat(all...) {
			if delete(claims.Data, change.node); change.claim != "" {
				claims.Data[change.node] = change.claim
			}
		}
		err := p.writeConfigMap(ctx, claims)
		if err == nil {
			p.claims = claims
		}
		return struct{}{}, err
	})
	return err
}

func (p *pass) cordonNode(ctx context.Context, step plan.Cordon) error {
	err := p.patchNode(ctx, step.Node, func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[v1alpha1.DisruptionAnnotation] = step.Mark.Encode()
		setGuards(node, step.ExcludeFromLoadBalancers)
	})
	if err == nil {
		p.noteProgress(step.Node, step.Mark.Profile, cordoned)
	}
	return err
}

func (p *pass) uncordonNode(ctx context.Context, step plan.Uncordon) error {
	profile := p.profileOf(step.Node)
	err := p.patchNode(ctx, step.Node, func(node *corev1.Node) {
		node.Spec.Unschedulable = false
		delete(node.Annotations, v1alpha1.DisruptionAnnotation)
		removeGuards(node)
	})
	if err != nil {
		return err
	}
	if step.Reason == v1alpha1.RolloutReasonAccepted {
		p.noteProgress(step.Node, profile, inService)
		return nil
	}
	p.emitEvent(step.Node, corev1.EventTypeNormal, eventUncordoned, "Uncordon", "Uncordoned: reason %s", step.Reason)
	return nil
}

// patchNode changes the Node on which the decision was based. A JSON merge patch replaces all taints, so the resource version protects the taints
// of others.
func (p *pass) patchNode(ctx context.Context, name string, change func(*corev1.Node)) error {
	before := current(p, p.nodes, name)
	node := before.DeepCopy()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	change(node)
	if err := p.Patch(ctx, node, patch, fieldOwner); err != nil {
		return fmt.Errorf("patch Node %s: %w", name, err)
	}
	keep(p, p.nodes, node)
	return nil
}

func (p *pass) givePermit(ctx context.Context, step plan.GivePermit) error {
	err := p.patchClientNode(ctx, step.Node, func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = &step.Permit })
	if err != nil {
		return err
	}
	log.FromContext(ctx).Info("Permitted a reboot", "Node", step.Node, "permit", step.Permit.ID, "bootHash", step.Permit.BootHash)
	p.noteProgress(step.Node, p.profileOf(step.Node), permitted)
	return nil
}

func (p *pass) patchClientNode(ctx context.Context, name string, change func(*v1alpha1.StorageClientNodeSpec)) error {
	clientNode, err := write.PatchSpec(ctx, p.Client, current(p, p.clientNodes, name), change)
	if err != nil {
		return err
	}
	keep(p, p.clientNodes, clientNode)
	return nil
}

// writeNote writes the note, and emits an event if a user must act on it.
func (p *pass) writeNote(ctx context.Context, name string, note v1alpha1.RolloutStatus) error {
	before := current(p, p.clientNodes, name)
	clientNode, err := write.PatchNote(ctx, p.Client, before, note)
	if err != nil {
		return err
	}
	keep(p, p.clientNodes, clientNode)
	p.emitNoteEvent(name, ptr.Deref(before.Status.Rollout, v1alpha1.RolloutStatus{}), note)
	return nil
}
