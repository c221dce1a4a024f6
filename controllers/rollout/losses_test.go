package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// TestAPoisonLosesNoMoreMachinesThanTheThreshold uses a kernel argument that prevents every boot. A cloud replaces each machine
// that has been down for ten minutes, under its old or a new name.
func TestAPoisonLosesNoMoreMachinesThanTheThreshold(t *testing.T) {
	for _, renamed := range []bool{true, false} {
		for _, threshold := range []int32{1, 3} {
			t.Run(fmt.Sprintf("renamed %t, threshold %d", renamed, threshold), func(t *testing.T) {
				w := newWorld(1)
				w.quiet, w.verbose, w.deterministic = true, true, true
				w.repairAfter, w.renames = 10*time.Minute, renamed
				var all []string
				for i := range 40 {
					all = append(all, fmt.Sprintf("n%02d", i))
				}
				p := w.addProfile("eda", func(r *v1alpha1.Rollout) { r.FailureThreshold = ptr.To(threshold) }, all...)
				p.bootsAs = bootNever
				for _, name := range all {
					w.addNode(name)
				}
				for end := w.now.Add(8 * time.Hour); w.now.Before(end); {
					w.playWithoutFaults()
				}
				if w.broken != nil {
					t.Error(w.broken)
				}
				if len(w.losses) != int(threshold) {
					t.Errorf("lost %d machines, want %d", len(w.losses), threshold)
				}
			})
		}
	}
}

// loss is a machine that was deleted while it had a permit or had failed.
type loss struct {
	name, uid, target string
	// plans contains the hash of each profile for which the loss counts, as failures are recorded.
	plans map[string]string
	// held is true if it had a permit, marked if others had marked it for removal.
	held, marked bool
}

// loseNode records the loss of a Node if the operator must record it too.
func (w *world) loseNode(n *simNode) {
	c, claim := n.ClientNode, w.claims[n.Name]
	if c == nil {
		return
	}
	lost := &loss{name: n.Name, uid: n.UID, target: target(c), plans: map[string]string{}}
	switch {
	case c.Spec.RebootPermit != nil && claim.Permit != nil && claim.NodeUID == n.UID:
		lost.held, lost.target, lost.marked = true, claim.Permit.BootHash, claim.Permit.Leaving != ""
		maps.Copy(lost.plans, claim.Permit.Profiles)
		// A manager may have seen the taint and may write it into the claim of a node that has just been deleted.
		lost.marked = lost.marked || n.Leaving != "" && n.machine.markedReady
		if lost.marked && n.Leaving != "" && !n.machine.markedReady {
			w.fail("invariant 17: got a claim of %s that is marked for removal; want no mark, because the node was down", n.Name)
		}
	case w.hasFailed(n) && w.mustBeRecorded(n) && !isHealthy(n):
		for _, name := range w.profilesOf(n) {
			if isNamed(w.failures[name], lost) {
				lost.plans[name] = w.profiles[name].rules().SettingsHash
			}
		}
	default:
		return
	}
	w.losses = append(w.losses, lost)
}

// mustBeRecorded reports whether a failed node must be recorded. A node does not count if it is about to change, has a pending
// retry, or was marked for removal.
func (w *world) mustBeRecorded(n *simNode) bool {
	_, wanted := w.desiredSettings(n)
	marked := w.claims[n.Name].Permit != nil && w.claims[n.Name].Permit.Leaving != ""
	retried := slices.ContainsFunc(w.profilesOf(n), func(name string) bool { return w.profiles[name].Retry != w.failures[name].Retry })
	return (n.ClientNode.Spec.Release || n.ClientNode.Spec.BootHash == wanted) && !marked && !retried
}

// checkLosses is invariant 17, and must hold even if a process dies. Every lost machine has exactly one record, or a claim that
// records its permit. The losses with a permit stay below the threshold of the profile, apart from machines that were out at the
// same time.
func (w *world) checkLosses() {
	for name, failures := range w.failures {
		for _, boot := range failures.Boots {
			seen := sets.New[string]()
			for _, failed := range boot.Nodes {
				if seen.Has(failed.UID) {
					w.fail("invariant 17: two records of %s for profile %s", failed.Name, name)
				}
				seen.Insert(failed.UID)
			}
		}
	}
	if w.lenient {
		return
	}
	counts := map[string]int{}
	for _, lost := range w.losses {
		if lost.marked {
			continue
		}
		for profile, plan := range lost.plans {
			p := w.profiles[profile]
			if p.rules().SettingsHash != plan {
				continue
			}
			if claim := w.claims[lost.name]; claim.NodeUID != lost.uid && !isNamed(w.failures[profile], lost) {
				w.fail("invariant 17: no record of %s (%s), lost to profile %s at %q", lost.name, lost.uid, profile, lost.target)
			}
			if lost.held {
				counts[profile+" "+lost.target]++
			}
			if most := int(*p.Rollout.FailureThreshold) - 1 + w.budget; counts[profile+" "+lost.target] > most {
				w.fail("invariant 17: profile %s lost more than %d machines at %q", profile, most, lost.target)
			}
		}
	}
}

func isNamed(failures v1alpha1.ProfileFailures, lost *loss) bool {
	for _, boot := range failures.Boots {
		if boot.BootHash == lost.target && slices.ContainsFunc(boot.Nodes, func(f v1alpha1.FailedNode) bool { return f.UID == lost.uid }) {
			return true
		}
	}
	return false
}

// checkThreshold checks that no disruption starts once the number of failed nodes has reached the limit of a profile. Deleted
// nodes count. Losses after the last look do not count, and neither do losses whose claims were lost: the manager cannot know
// them.
func (m *manager) checkThreshold(step plan.AddClaim) {
	if m.lenient {
		return
	}
	n := m.nodes[step.Node]
	for _, profile := range n.budgetsNeeded(m.world) {
		var failed []string
		for _, lost := range m.losses[:m.lossesSeen] {
			if !lost.marked && lost.target == target(n.ClientNode) && lost.plans[profile] == m.rules[profile].SettingsHash {
				failed = append(failed, lost.name+" (gone)")
			}
		}
		for name, other := range m.nodes {
			seen := m.seen[name]
			if seen != nil && seen.clientNodeRV == other.clientNodeRV && m.hasFailed(other) && slices.Contains(m.profilesOf(other), profile) {
				failed = append(failed, name)
			}
		}
		if len(failed) >= int(*m.rules[profile].Rollout.FailureThreshold) {
			m.fail("invariant 17: %s although nodes %v have failed", describe(step), failed)
		}
	}
}

// checkClaimedPermit checks that the claim records a permit before the node gets it.
func (m *manager) checkClaimedPermit(n *simNode) {
	if claim := m.claims[n.Name]; !m.lenient && (claim.Permit == nil || claim.NodeUID != n.UID || claim.Permit.BootHash != target(n.ClientNode)) {
		m.fail("invariant 17: permit for %s at %q that its claim does not record: %s", n.Name, target(n.ClientNode), claim.Encode())
	}
}

// lookedHealthy reports whether a node was well at the last look.
func lookedHealthy(n *plan.Node) bool {
	return n.Ready && n.ClientNode != nil && !n.ClientNode.Status.RebootRequired && n.ClientNode.Status.BootID == n.BootID
}

// isHealthy reports whether a node is well after all. It must be Ready, with its desired values effective, or without any setting of
// the operator.
func isHealthy(n *simNode) bool {
	c := n.ClientNode
	return n.Ready && !slices.ContainsFunc(c.Spec.Settings, func(s v1alpha1.NodeSetting) bool {
		isThere := n.machine.inForce[s.Key] == s.Value || n.machine.seen[s.Key] == s.Value
		return !c.Spec.Release && isBootKey(s.Key) && !isThere && !n.isUnsupported(s.Key)
	})
}

// pickTroubledNode returns a node that has a permit or has failed, or otherwise the given node.
func (w *world) pickTroubledNode(n *simNode) *simNode {
	for _, name := range w.nodeNames {
		if other := w.nodes[name]; other.ClientNode != nil && (other.ClientNode.Spec.RebootPermit != nil || w.hasFailed(other)) {
			return other
		}
	}
	return n
}

// requestRetry requests a retry of one node or of all nodes, as a user does.
func (w *world) requestRetry(node string) {
	w.serial++
	value := fmt.Sprint(w.serial)
	if w.rng.IntN(2) == 0 {
		value += "/" + node
	}
	name := w.profileNames[w.rng.IntN(len(w.profileNames))]
	w.profiles[name].Retry = value
	w.narrate("somebody asks profile %s to retry: %s", name, value)
	w.clearAttempts(value)
}

// clearAttempts clears the failures of nodes that a retry names.
func (w *world) clearAttempts(retry string) {
	_, node, _ := strings.Cut(retry, "/")
	for _, n := range w.nodes {
		if n.ClientNode != nil && (node == "" || node == n.Name) {
			n.machine.permits = map[string]sets.Set[string]{}
			w.ineffective.Delete(n.ClientNode.UID + " " + target(n.ClientNode))
		}
	}
}

func (m *manager) writeFailures(_ context.Context, failures map[string]v1alpha1.ProfileFailures) error {
	m.interruptAt("failures")
	if m.recalledRV != m.failuresRV {
		return conflict("failures")
	}
	m.checkClearedFailures(failures)
	m.failuresRV++
	m.failures, m.recalled, m.recalledRV = failures, failures, m.failuresRV
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		m.narrate("%s: failures of %s: %s", m.name, name, failures[name].Encode())
	}
	return nil
}

// checkClearedFailures checks that a record is cleared only for one of three reasons: a retry, a change of the profile, or a node that
// reports success. It also removes the losses that an honored retry names.
func (m *manager) checkClearedFailures(next map[string]v1alpha1.ProfileFailures) {
	for name, before := range m.failures {
		retryRequested := next[name].Retry != before.Retry
		_, retried, _ := strings.Cut(next[name].Retry, "/")
		for _, boot := range before.Boots {
			for _, failed := range boot.Nodes {
				n, seen := m.nodes[failed.Name], m.seen[failed.Name]
				there := n != nil && n.UID == failed.UID
				if !there && seen != nil && seen.UID == failed.UID {
					continue // Deleted since the last look, at which it may have been well: its claim records the loss.
				}
				if there && seen != nil && lookedHealthy(&seen.Node) {
					continue
				}
				over := there && (!slices.Contains(m.profilesOf(n), name) ||
					n.ClientNode != nil && (target(n.ClientNode) != boot.BootHash || !m.mustBeRecorded(n) || isHealthy(n)))
				switch {
				case isNamed(next[name], &loss{uid: failed.UID, target: boot.BootHash}), boot.Settings != m.rules[name].SettingsHash, over:
				case retryRequested && (retried == "" || retried == failed.Name):
				default:
					m.fail("invariant 17: record of %s for profile %s at %q is missing", failed.Name, name, boot.BootHash)
				}
			}
		}
	}
	for name := range next {
		if next[name].Retry == m.failures[name].Retry {
			continue
		}
		m.clearAttempts(next[name].Retry)
		_, retried, _ := strings.Cut(next[name].Retry, "/")
		for _, lost := range m.losses[:m.lossesSeen] {
			if retried == "" || retried == lost.name {
				delete(lost.plans, name)
			}
		}
	}
}
