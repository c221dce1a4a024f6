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

const fieldOwner = client.FieldOwner(v1alpha1.ManagerFieldManager)

// applyStep applies one step. The resource version of the objects behind the decision makes the step fail if an object has changed since.
func (s *scope) applyStep(ctx context.Context, step plan.Step) error {
	log.FromContext(ctx).V(1).Info("Applying a step", "step", fmt.Sprintf("%T", step), "Node", step.NodeName())
	switch step := step.(type) {
	case plan.Cordon:
		return s.cordonNode(ctx, step)
	case plan.Uncordon:
		return s.uncordonNode(ctx, step)
	case plan.RemoveGuards:
		return s.patchNode(ctx, step.Node, removeGuards)
	case plan.SetMaintenance:
		return s.setMaintenance(ctx, step)
	case plan.RemoveTaint:
		return s.patchNode(ctx, step.Node, func(node *corev1.Node) {
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == s.UntunedTaint })
		})
	case plan.GivePermit:
		return s.givePermit(ctx, step)
	case plan.ClearPermit:
		err := s.patchClientNode(ctx, step.Node, func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = nil })
		if err != nil {
			return fmt.Errorf("withdraw the reboot permit; the owner of a policy or webhook that denies it must allow it: %w", err)
		}
		return nil
	case plan.UpdateClaim:
		return s.changeClaim(ctx, step.Node, step.Claim.Encode())
	case plan.ReleaseClaim:
		return s.changeClaim(ctx, step.Node, "")
	}
	return fmt.Errorf("apply step %T: unknown", step)
}

// addClaims adds nodes to the ConfigMap that was read before the decision.
func (s *scope) addClaims(ctx context.Context, steps []plan.AddClaim) error {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	claims := s.claims.DeepCopy()
	if claims.Data == nil {
		claims.Data = map[string]string{}
	}
	for _, step := range steps {
		claims.Data[step.Node] = step.Claim.Encode()
	}
	if err := s.writeConfigMap(ctx, claims); err != nil {
		return err
	}
	s.claims = claims
	for _, step := range steps {
		log.FromContext(ctx).Info("Claimed a node", "Node", step.Node, "StorageClientProfile", step.Claim.Profile)
	}
	return nil
}

// claimChange is the new claim of a node, empty if the claim is released.
type claimChange struct{ node, claim string }

// changeClaim changes a claim, or releases it. Changes that other workers make during a write are combined into the next write.
func (s *scope) changeClaim(ctx context.Context, node, claim string) error {
	_, err := s.changes.Do(claimChange{node, claim}, func(changes []claimChange) (struct{}, error) {
		s.claiming.Lock()
		defer s.claiming.Unlock()
		claims := s.claims.DeepCopy()
		for _, change := range changes {
			if delete(claims.Data, change.node); change.claim != "" {
				claims.Data[change.node] = change.claim
			}
		}
		err := s.writeConfigMap(ctx, claims)
		if err == nil {
			s.claims = claims
		}
		return struct{}{}, err
	})
	return err
}

func (s *scope) cordonNode(ctx context.Context, step plan.Cordon) error {
	err := s.patchNode(ctx, step.Node, func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[v1alpha1.DisruptionAnnotation] = step.Mark.Encode()
		setGuards(node, step.ExcludeFromLoadBalancers)
	})
	if err == nil {
		s.noteProgress(step.Node, step.Mark.Profile, cordoned)
	}
	return err
}

func (s *scope) uncordonNode(ctx context.Context, step plan.Uncordon) error {
	profile := s.profileOf(step.Node)
	err := s.patchNode(ctx, step.Node, func(node *corev1.Node) {
		node.Spec.Unschedulable = false
		delete(node.Annotations, v1alpha1.DisruptionAnnotation)
		removeGuards(node)
	})
	if err != nil {
		return err
	}
	if step.Reason == v1alpha1.RolloutReasonAccepted {
		s.noteProgress(step.Node, profile, inService)
		return nil
	}
	s.emitEvent(step.Node, corev1.EventTypeNormal, eventUncordoned, "Uncordon", "Uncordoned: reason %s", step.Reason)
	return nil
}

// patchNode changes the Node on which the decision was based. A JSON merge patch replaces all taints, so the resource version protects the taints
// of others.
func (s *scope) patchNode(ctx context.Context, name string, change func(*corev1.Node)) error {
	before := current(s, s.nodes, name)
	node := before.DeepCopy()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	change(node)
	if err := s.Patch(ctx, node, patch, fieldOwner); err != nil {
		return fmt.Errorf("patch Node %s: %w", name, err)
	}
	keep(s, s.nodes, node)
	return nil
}

func (s *scope) givePermit(ctx context.Context, step plan.GivePermit) error {
	err := s.patchClientNode(ctx, step.Node, func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = &step.Permit })
	if err != nil {
		return err
	}
	log.FromContext(ctx).Info("Permitted a reboot", "Node", step.Node, "permit", step.Permit.ID, "bootHash", step.Permit.BootHash)
	s.noteProgress(step.Node, s.profileOf(step.Node), permitted)
	return nil
}

func (s *scope) patchClientNode(ctx context.Context, name string, change func(*v1alpha1.StorageClientNodeSpec)) error {
	clientNode, err := write.PatchSpec(ctx, s.Client, current(s, s.clientNodes, name), change)
	if err != nil {
		return err
	}
	keep(s, s.clientNodes, clientNode)
	return nil
}

// writeNote writes the note, and emits an event if a user must act on it.
func (s *scope) writeNote(ctx context.Context, name string, note v1alpha1.RolloutStatus) error {
	before := current(s, s.clientNodes, name)
	clientNode, err := write.PatchNote(ctx, s.Client, before, note)
	if err != nil {
		return err
	}
	keep(s, s.clientNodes, clientNode)
	s.emitNoteEvent(name, ptr.Deref(before.Status.Rollout, v1alpha1.RolloutStatus{}), note)
	return nil
}
