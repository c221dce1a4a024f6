package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// simDrain is the drain of a node in the background of a manager.
type simDrain struct {
	options v1alpha1.Drain
	// requested is true while pods must be evicted. evicted is the number of evicted pods.
	requested bool
	evicted   int32
	// rejected contains the pods whose latest eviction was rejected.
	rejected sets.Set[string]
	// nodeRV is the version of the Node when the manager last requested the drain.
	nodeRV int
}

func (m *manager) drainNode(_ context.Context, step plan.Drain) plan.DrainProgress {
	defer m.turnOfWorker()()
	m.interruptAt("drain")
	n := m.nodes[step.Node]
	if n == nil {
		m.progress[step.Node] = &plan.DrainProgress{Gone: true}
		return *m.progress[step.Node]
	}
	managerDrains := m.drains[m.name]
	if managerDrains == nil {
		managerDrains = map[string]*simDrain{}
		m.drains[m.name] = managerDrains
	}
	if managerDrains[n.Name] == nil {
		managerDrains[n.Name] = &simDrain{evicted: step.Evicted, rejected: sets.New[string]()}
	}
	drain := managerDrains[n.Name]
	drain.options, drain.requested, drain.nodeRV = step.Options, true, m.seen[n.Name].nodeRV
	progress := drain.progressOf(n)
	m.progress[n.Name] = &progress
	return progress
}

// inspectPods records nothing while pods must be evicted and no run is in progress.
func (m *manager) inspectPods(_ context.Context, step plan.Drain) {
	defer m.turnOfWorker()()
	m.interruptAt("look")
	n, drain := m.nodes[step.Node], m.drains[m.name][step.Node]
	if drain == nil {
		drain = &simDrain{}
	}
	due := !drain.requested && n != nil && slices.ContainsFunc(n.pods, func(p simPod) bool { return p.goneAt.IsZero() })
	if n != nil && len(n.pods) > 0 && !due {
		m.progress[n.Name] = new(drain.progressOf(n))
	}
}

// lookAhead returns the pods whose budget would reject an eviction.
func (m *manager) lookAhead(_ context.Context, step plan.AddClaim) plan.DrainProgress {
	defer m.turnOfWorker()()
	m.interruptAt("look ahead")
	n := m.nodes[step.Node]
	if n == nil {
		return plan.DrainProgress{}
	}
	n.lookedAfterFaults = m.quiet && !slices.ContainsFunc(n.pods, func(p simPod) bool { return p.unseen })
	hasJob := slices.ContainsFunc(n.pods, func(p simPod) bool { return m.now.Before(p.runsUntil) })
	switch {
	case slices.ContainsFunc(n.pods, func(p simPod) bool { return m.isKept(n, p) && !p.unseen }):
		return plan.DrainProgress{
			Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "Eviction of Pod a/b blocked by PodDisruptionBudget a/c", HeldByBudgets: !hasJob,
		}
	case hasJob:
		return plan.DrainProgress{Reason: v1alpha1.RolloutReasonWaitingForPods, Message: "Waiting for pod a/job to finish"}
	}
	return plan.DrainProgress{}
}

// isKept reports whether a budget keeps a pod now.
func (w *world) isKept(n *simNode, p simPod) bool {
	return w.now.Before(p.blockedUntil) || p.owned && !n.Unschedulable
}

// checkWastedEvictions is the part of invariant 18 about evictions. A drain evicts no pod without effect if the cluster is unchanged since
// the look ahead. The check applies only while there are no faults.
func (m *manager) checkWastedEvictions(n *simNode, step plan.Uncordon) {
	evicted := m.evictedFrom(n.Name)
	if note := n.ClientNode.Status.Rollout; note != nil {
		evicted = max(evicted, note.Evictions)
	}
	if step.Reason != v1alpha1.RolloutReasonDrainTimedOut || evicted == 0 {
		return
	}
	if n.Mark != nil && n.Mark.CordonFirst {
		m.costOfAttempts += evicted
		return
	}
	m.wastedEvictions += evicted
	if n.lookedAfterFaults {
		m.fail("invariant 18: evicted %d pods of %s without effect", evicted, n.Name)
	}
}

// keepDrains ends the drains of all nodes that are not in the set.
func (m *manager) keepDrains(nodes sets.Set[string]) {
	defer m.turnOfWorker()()
	for name, drain := range m.drains[m.name] {
		if !nodes.Has(name) {
			delete(m.drains[m.name], name)
		} else if seen := m.seen[name]; seen != nil {
			drain.nodeRV = seen.nodeRV
		}
	}
}

func (m *manager) evictedFrom(node string) int32 {
	if drain := m.drains[m.name][node]; drain != nil {
		return drain.evicted
	}
	return 0
}

func (d *simDrain) progressOf(n *simNode) plan.DrainProgress {
	out := plan.DrainProgress{Gone: len(n.pods) == 0, Reason: v1alpha1.RolloutReasonDraining, Message: "Waiting for pods to terminate: " + fmt.Sprint(len(n.pods))}
	if slices.ContainsFunc(n.pods, func(p simPod) bool { return !p.runsUntil.IsZero() }) {
		out.Reason, out.Message = v1alpha1.RolloutReasonWaitingForPods, "Waiting for pod a/job to finish"
	}
	if slices.ContainsFunc(n.pods, func(p simPod) bool { return d.rejected.Has(p.name) }) {
		out.Reason, out.Message = v1alpha1.RolloutReasonDrainBlocked, "Eviction of Pod a/b blocked by PodDisruptionBudget a/c"
	}
	return out
}

// runDrains evicts the pods that the managers' drains can evict.
func (w *world) runDrains() {
	for _, manager := range slices.Sorted(maps.Keys(w.drains)) {
		for _, name := range slices.Sorted(maps.Keys(w.drains[manager])) {
			if drain, n := w.drains[manager][name], w.nodes[name]; n != nil && drain.requested {
				drain.requested = false
				w.evictPods(n, drain)
			}
		}
	}
}

func (w *world) evictPods(n *simNode, drain *simDrain) {
	w.checkEviction(n, drain)
	if slices.ContainsFunc(n.pods, func(p simPod) bool { return w.now.Before(p.runsUntil) }) {
		return
	}
	keptOnly := drain.options.LookAhead == v1alpha1.LookAheadCordonFirst &&
		slices.ContainsFunc(n.pods, func(p simPod) bool { return p.goneAt.IsZero() && w.isKept(n, p) })
	for i := range n.pods {
		pod := &n.pods[i]
		drain.rejected.Delete(pod.name)
		switch {
		case w.isKept(n, *pod):
			drain.rejected.Insert(pod.name)
		case keptOnly:
		case pod.goneAt.IsZero():
			pod.goneAt = w.now.Add(time.Duration(w.rng.IntN(40)) * time.Second)
			drain.evicted++
		}
	}
}

// checkEviction checks that only pods of claimed nodes are evicted. It ignores changes by others after the manager's last read.
func (w *world) checkEviction(n *simNode, drain *simDrain) {
	wait := time.Duration(drain.options.ExcludeFromLoadBalancersSeconds) * time.Second
	switch {
	case drain.nodeRV != n.nodeRV:
	case !n.Unschedulable || n.Mark == nil:
		w.fail("invariant 5: drain of %s, which the rollout has not cordoned", n.Name)
	case w.now.Before(n.Mark.Since.Add(wait)):
		w.fail("drain of %s started %s after its cordon, want the load balancer delay %s", n.Name, w.now.Sub(n.Mark.Since.Time), wait)
	case n.Leaving != "":
		w.fail("invariant 18: drain of %s, which others are about to remove (taint %s)", n.Name, n.Leaving)
	}
}
