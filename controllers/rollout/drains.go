package rollout

import (
	"context"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/lists"
)

// drainNode evicts pods of a node in the background, and reports the progress of its drain.
func (p *pass) drainNode(ctx context.Context, step plan.Drain) plan.DrainProgress {
	progress := plan.DrainProgress{Reason: v1alpha1.RolloutReasonDrainError}
	result, err := p.Drains.Drain(ctx, step.Node, step.Options, drain.Start{Evicted: step.Evicted, TimeLeft: step.TimeLeft})
	if err != nil {
		progress.Message = "Cannot read the node's pods; trying again: " + err.Error()
	} else {
		progress = progressOf(result)
	}
	p.recordInspection(step.Node, progress)
	return progress
}

// inspectPods records the progress of a node's drain if the drain only has to wait. If Drain has work to do, or the pods cannot be read, drainNode
// records it.
func (p *pass) inspectPods(ctx context.Context, step plan.Drain) {
	if result, isDrainDue, err := p.Drains.Inspect(ctx, step.Node, step.Options); err == nil && !isDrainDue {
		p.recordInspection(step.Node, progressOf(result))
	}
}

// lookAhead checks the pods of a node that is about to be claimed. A failed read is no obstacle.
func (p *pass) lookAhead(ctx context.Context, step plan.AddClaim) plan.DrainProgress {
	result, err := p.Drains.LookAhead(ctx, step.Node, step.Options)
	if err != nil {
		return plan.DrainProgress{}
	}
	return progressOf(result)
}

func progressOf(result drain.Result) plan.DrainProgress {
	out := plan.DrainProgress{
		Gone: result.Done(), TooLate: result.TooLate, Reason: v1alpha1.RolloutReasonDraining, Message: result.String(), Remarks: result.Remarks(),
		HeldByBudgets: result.IsHeldByBudgets(), IgnoredPodUIDs: result.IgnoredPodUIDs, Names: result.Names,
		Left:         lists.Map(result.Left, func(pod drain.Blocker) (uid, phrase string) { return pod.UID, pod.String() }),
		KeepsVolumes: result.KeepsVolumes, Budgets: map[string]plan.BudgetShare{},
	}
	for _, b := range result.Budgets {
		name := b.Namespace + "/" + b.Name
		out.Budgets[name] = plan.BudgetShare{Pods: out.Budgets[name].Pods + 1, Allowed: int(b.Status.DisruptionsAllowed)}
	}
	switch {
	case len(result.Blocked) > 0:
		out.Reason = v1alpha1.RolloutReasonDrainBlocked
	case len(result.WaitedFor) > 0:
		out.Reason = v1alpha1.RolloutReasonWaitingForPods
	}
	return out
}

func (p *pass) recordInspection(node string, progress plan.DrainProgress) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.inspected[node], p.drains[node] = p.Clock.Now(), &progress
	p.changed.Insert(node)
}
