package simulation

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
	"github.com/storageclient/operator/test/play"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// TestTheManagerKeepsTheInvariants plays random schedules. A schedule that breaks an invariant is played again with a log:
// go test ./test/simulation -seed=N -schedules=1
func TestTheManagerKeepsTheInvariants(t *testing.T) {
	var inVain, attempts, cordonedFirst, announced, withdrawn atomic.Uint64
	play.Schedules(t, time.Minute, func(seed uint64) {
		w := playSeed(seed, 1, false)
		inVain.Add(uint64(w.inVain))
		announced.Add(uint64(w.announced))
		withdrawn.Add(uint64(w.withdrawn))
		attempts.Add(uint64(w.attempts))
		cordonedFirst.Add(uint64(w.cordonedFirst))
		if w.broken != nil {
			w = playSeed(seed, 1, true)
			t.Errorf("-seed=%d -schedules=1: %v\n%s", seed, w.broken, strings.Join(w.log[max(0, len(w.log)-400):], "\n"))
		}
	})
	t.Logf("%d reboots announced, %d permits checked after a pass; evictions of drains that timed out: %d, after a cordon first: %d (of %d such drains)",
		announced.Load(), withdrawn.Load(), inVain.Load(), attempts.Load(), cordonedFirst.Load())
}

// TestSchedulesOfManyWorkers plays schedules in which a pass handles several nodes concurrently. The order of their calls is random, so a seed does not
// reproduce a whole schedule.
func TestSchedulesOfManyWorkers(t *testing.T) {
	play.Some(t, 50, func(seed uint64) {
		if w := playSeed(seed, 4, true); w.broken != nil {
			t.Errorf("seed %d: %v\n%s", seed, w.broken, strings.Join(w.log[max(0, len(w.log)-400):], "\n"))
		}
	})
}

// A seed must always play the same schedule, so that a failure can be investigated.
func TestASeedReplaysTheSameSchedule(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		if first, second := playSeed(seed, 1, true), playSeed(seed, 1, true); !slices.Equal(first.log, second.log) {
			t.Errorf("seed %d: %s", seed, cmp.Diff(first.log, second.log))
		}
	}
}

// unfinishedWork returns the remaining work, empty if there is none.
func (w *world) unfinishedWork() string {
	if claims := w.claims(); len(claims) > 0 {
		return "claims are left"
	}
	for _, o := range w.api.All(memapi.Nodes) {
		node := o.(*corev1.Node)
		c := w.present().clientNode(node.Name)
		if work := w.unfinishedNodeWork(node, c); work != "" {
			return node.Name + " " + work
		}
	}
	return ""
}

func (w *world) unfinishedNodeWork(node *corev1.Node, c *v1alpha1.StorageClientNode) string {
	desired := w.declared(node)
	// The last node of the control plane is not rebooted, because no other node would take over its work.
	last := isControlPlane(node) && w.countControlPlanes() == 1 &&
		c != nil && c.Status.Rollout != nil && c.Status.Rollout.Reason == v1alpha1.RolloutReasonLastControlPlaneNode
	// Nor is the only node for the manager.
	last = last || w.isManagerBound(node.Name) && c != nil && c.Status.Rollout != nil && c.Status.Rollout.Reason == v1alpha1.RolloutReasonOnlyManagerNode
	// Nor is the only node that accepts pods.
	last = last || w.isOnlySchedulable(node.Name) && c != nil && c.Status.Rollout != nil && c.Status.Rollout.Reason == v1alpha1.RolloutReasonOnlySchedulableNode
	switch {
	case node.Spec.Unschedulable || hasMark(node):
		return "is cordoned"
	case node.Annotations[v1alpha1.DisruptionGuardsAnnotation] != "":
		return "has guards"
	case slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Reason == "StorageClientRollout" }):
		return "has conditions of the operator"
	case desired == nil && (!last || !c.Spec.Release) && (c != nil || node.Labels[v1alpha1.ManagedLabel] != ""):
		return "is not released"
	case desired == nil:
		return ""
	case c == nil || c.Spec.Release:
		return "lacks its settings"
	case c.Spec.RebootPermit != nil:
		return "has a permit"
	case !last && (c.Status.Rollout == nil || c.Status.Rollout.Phase != v1alpha1.RolloutUpToDate):
		return "is not done"
	case !last && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.UntunedTaint }):
		return "has the taint"
	}
	return w.missingSetting(node, c, desired, last)
}

// missingSetting returns a setting that is missing in the node's spec, or that is not effective although a reboot would apply it.
func (w *world) missingSetting(node *corev1.Node, c *v1alpha1.StorageClientNode, desired map[string]string, last bool) string {
	m := w.machines[node.Name]
	for _, s := range c.Spec.Settings {
		if _, ails := m.ailments[s.Key]; !last && isBootKey(s.Key) && !ails && m.inForce[s.Key] != s.Value {
			return "is without " + s.Key
		}
	}
	return differingSetting(c, desired)
}

// differingSetting returns a setting that a node must get or lose, empty if none. If profiles disagree, the node keeps its value.
func differingSetting(c *v1alpha1.StorageClientNode, desired map[string]string) string {
	given := map[string]string{}
	for _, s := range c.Spec.Settings {
		given[s.Key] = s.Value
	}
	for _, key := range slices.Sorted(maps.Keys(desired)) {
		if desired[key] != "" && given[key] != desired[key] {
			return "must get another " + key
		}
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if _, declared := desired[key]; !declared {
			return "must lose " + key
		}
	}
	return ""
}

// declared returns the values that the profiles declare for a node, by key. A value is empty if profiles of equal priority disagree. The
// map is nil if no profile selects the node.
func (w *world) declared(node *corev1.Node) map[string]string {
	type best struct {
		value    string
		priority int32
	}
	found := map[string]best{}
	selected := false
	for _, o := range w.api.All(memapi.Profiles) {
		p := o.(*v1alpha1.StorageClientProfile)
		if p.DeletionTimestamp != nil || !selects(p, node) {
			continue
		}
		selected = true
		for _, s := range nodesettings.Settings(p) {
			switch previous, known := found[s.Key]; {
			case !known || previous.priority < p.Spec.Priority:
				found[s.Key] = best{s.Value, p.Spec.Priority}
			case previous.priority == p.Spec.Priority && previous.value != s.Value:
				found[s.Key] = best{"", p.Spec.Priority}
			}
		}
	}
	if !selected {
		return nil
	}
	out := map[string]string{}
	for key, b := range found {
		out[key] = b.value
	}
	return out
}

// isOnlySchedulable reports whether all other nodes are cordoned or have taints.
func (w *world) isOnlySchedulable(name string) bool {
	return !slices.ContainsFunc(w.api.All(memapi.Nodes), func(o client.Object) bool {
		node := o.(*corev1.Node)
		return node.Name != name && !node.Spec.Unschedulable && len(node.Spec.Taints) == 0
	})
}

func (w *world) countControlPlanes() int {
	count := 0
	for _, o := range w.api.All(memapi.Nodes) {
		if isControlPlane(o.(*corev1.Node)) {
			count++
		}
	}
	return count
}
