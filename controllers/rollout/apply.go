package rollout

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/write"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/text"
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
	p.reportDropped(name, note, ptr.Deref(clientNode.Status.Rollout, v1alpha1.RolloutStatus{}))
	p.emitNoteEvent(name, ptr.Deref(before.Status.Rollout, v1alpha1.RolloutStatus{}), note)
	return nil
}

// recordFailures records failures before any step is applied, because steps remove the facts from which failures are derived. If the write fails,
// the affected nodes are left to the next pass, and no new disruption starts.
func (p *pass) recordFailures(ctx context.Context, change *plan.FailureChange) {
	if change == nil {
		return
	}
	if p.live == nil || !change.All && p.live.HasAll(change.Nodes...) {
		err := p.writeFailures(ctx, change.Profiles)
		if err == nil {
			return
		}
		p.out.Finish("", err)
	}
	p.unrecorded = true
	p.out.Skip("", nil)
	for _, node := range change.Nodes {
		p.out.Skip(node, nil)
	}
}

func (p *pass) recordedFailures() (map[string]v1alpha1.ProfileFailures, sets.Set[string]) {
	failures, unread := make(map[string]v1alpha1.ProfileFailures, len(p.failures.Data)), sets.New[string]()
	for profile, value := range p.failures.Data {
		decoded, err := v1alpha1.DecodeFailures(value)
		if err != nil {
			unread.Insert(profile)
			continue
		}
		failures[profile] = decoded
	}
	return failures, unread
}

// writeFailures writes all recorded failures. An entry that cannot be read stays unchanged.
func (p *pass) writeFailures(ctx context.Context, next map[string]v1alpha1.ProfileFailures) error {
	before, unread := p.recordedFailures()
	failures := p.failures.DeepCopy()
	data := make(map[string]string, len(next))
	for profile := range unread {
		data[profile] = failures.Data[profile]
	}
	for profile, remembered := range next {
		data[profile] = remembered.Encode()
	}
	failures.Data = data
	if err := p.writeConfigMap(ctx, failures); err != nil {
		return err
	}
	p.failures = failures
	p.reportFailures(ctx, before, next)
	return nil
}

// reportFailures reports failures that were cleared on request, and lost nodes. A lost node has no Node for an event, so the profile gets it.
func (p *pass) reportFailures(ctx context.Context, before, next map[string]v1alpha1.ProfileFailures) {
	for profile, failures := range next {
		if failures.Retry != before[profile].Retry {
			log.FromContext(ctx).Info("Cleared failures, as the annotation requests", "StorageClientProfile", profile, "retry", failures.Retry)
		}
		known := sets.New[string]()
		for _, boot := range before[profile].Boots {
			for _, node := range boot.Nodes {
				known.Insert(boot.BootHash + " " + node.UID)
			}
		}
		for _, boot := range failures.Boots {
			for _, node := range boot.Nodes {
				if node.Reason == v1alpha1.RolloutReasonNodeLost && !known.Has(boot.BootHash+" "+node.UID) {
					log.FromContext(ctx).Info("Lost a node", "StorageClientProfile", profile, "Node", node.Name, "message", node.Message)
					if regarding := p.profiles.ByName(profile); regarding != nil {
						p.Recorder.Eventf(regarding.StorageClientProfile, nil, corev1.EventTypeWarning, eventNodeLost, "Reboot", "%s: %s", node.Name, node.Message)
					}
				}
			}
		}
	}
}

// isStored reports whether a note needs no write: a difference in a field that the API server drops would remain.
func (p *pass) isStored(current, note v1alpha1.RolloutStatus) bool {
	note.Evictions = current.Evictions
	return plan.SameNote(current, note) || p.dropped.Covers(current, note, p.session.Now)
}

// reportDropped reports the fields of a note that the API server has dropped, once an hour.
func (p *pass) reportDropped(node string, note, stored v1alpha1.RolloutStatus) {
	if fields := p.dropped.Learn(note, stored, p.session.Now); len(fields) > 0 {
		p.emitEvent(node, corev1.EventTypeWarning, eventFieldDropped, "Reboot",
			"The API server drops status.rollout.%s of StorageClientNodes: apply the CustomResourceDefinitions of this release", text.List(fields))
	}
}
