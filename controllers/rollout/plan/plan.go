package plan

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// planner makes one decision. It is thrown away after it.
type planner struct {
	*Session
	// states are copies of the session's nodes, in the order of the rollout; members are those of each profile.
	states  []*nodeState
	members map[string][]*nodeState
	memory  memory
	budgets budgets
	// failed are the failed nodes of the profiles that were asked for, also those that are gone.
	failed map[string]failures
	// canaries are the verdicts so far, canaryOrder is the order in which nodes are canaries; nil until it is asked for.
	canaries    map[canaryKey]canary
	canaryOrder map[string][]*nodeState
	openings    map[string]opening
	// busy is filled once it is known which nodes are disrupted.
	busy zones
	// draining is how many nodes are cordoned by us and without a permit; of those, terminating is how many keep only pods
	// that end, blocked how many keep others.
	draining, terminating, blocked int
	plan                           Plan
}

func newPlanner(s *Session) *planner {
	p := &planner{
		Session: s, states: make([]*nodeState, 0, len(s.nodes)), members: make(map[string][]*nodeState, len(s.profiles)),
		memory: memory{resetting: sets.New[string](), changed: sets.New[string]()}, failed: map[string]failures{},
		canaries: map[canaryKey]canary{}, canaryOrder: map[string][]*nodeState{}, openings: map[string]opening{},
		plan: Plan{Notes: map[string]v1alpha1.RolloutStatus{}, Draining: sets.New[string]()},
	}
	copies := slices.Clone(s.nodes)
	for i := range copies {
		n := &copies[i]
		p.states = append(p.states, n)
		for _, name := range n.Profiles {
			p.members[name] = append(p.members[name], n)
		}
		if len(n.resets) > 0 {
			p.memory.resetting.Insert(n.resets...)
			p.wakeAt(p.Now)
		}
		if n.isCordonedByUs() && n.permit == nil {
			p.countDrain(n)
		}
	}
	p.findLost()
	p.budgets = p.countBudgets()
	return p
}

// find returns the copy of a node's state, nil if there is no such node.
func (p *planner) find(name string) *nodeState {
	if at, known := p.index[name]; known {
		return p.states[at]
	}
	return nil
}

// advance takes a disrupted node one step further, and writes what follows from that.
func (p *planner) advance(n *nodeState) {
	p.advanceDisruption(n)
	p.updateClaim(n)
	p.updateMaintenance(n)
}

// releaseOrphans releases the claims of nodes that are gone.
func (p *planner) releaseOrphans() {
	for _, name := range slices.Sorted(maps.Keys(p.Claims)) {
		if p.find(name) == nil {
			p.addStep(ReleaseClaim{OnNode{name}})
		}
	}
}

// removeGuards takes our guards off a node that has lost our mark, which would have shown where they come from.
func (p *planner) removeGuards(n *nodeState) {
	if n.Guarded && n.Mark == nil && !n.Deleting {
		p.addStep(RemoveGuards{OnNode{n.Name}})
	}
}

// removeTaints takes the untuned taint off nodes that are tuned.
func (p *planner) removeTaints(idle []*nodeState) {
	for _, n := range idle {
		if n.Untuned && !n.Deleting && n.isTuned() {
			p.addStep(RemoveTaint{OnNode{n.Name}})
		}
	}
}

// updateMaintenance brings our conditions on the Node to what this pass leaves it in.
func (p *planner) updateMaintenance(n *nodeState) {
	if n.maintenanceShown == n.maintenance || n.Deleting {
		return
	}
	p.addStep(SetMaintenance{OnNode{n.Name}, n.maintenance, false})
	n.maintenanceShown = n.maintenance
}

func (p *planner) addStep(s Step) {
	p.plan.Steps = append(p.plan.Steps, s)
}

func (p *planner) clearPermit(n *nodeState, reason string) {
	p.addStep(ClearPermit{OnNode{n.Name}, n.permit.ID, reason})
	n.permit = nil
}

// wakeAt asks for another pass at a time.
func (p *planner) wakeAt(at time.Time) {
	if p.plan.Next.IsZero() || at.Before(p.plan.Next) {
		p.plan.Next = at
	}
}

// countDrain enters a node that is being drained, by what has just been seen of it, else by its note.
func (p *planner) countDrain(n *nodeState) {
	p.draining++
	reason := n.drainReason()
	if n.Drain != nil {
		reason = n.Drain.Reason
	}
	switch {
	case n.Drain != nil && n.Drain.Gone:
	case reason == v1alpha1.RolloutReasonDraining:
		p.terminating++
	case dependsOnPods(reason):
		p.blocked++
	}
}

// dependsOnPods reports whether only the node's pods can show how its drain goes on.
func dependsOnPods(reason string) bool {
	switch reason {
	case v1alpha1.RolloutReasonDraining, v1alpha1.RolloutReasonDrainBlocked, v1alpha1.RolloutReasonDrainError, v1alpha1.RolloutReasonWaitingForPods:
		return true
	}
	return false
}

// drainInterval is how soon the pods of draining nodes are inspected again: sooner where all that is left are pods that terminate.
func (p *planner) drainInterval() time.Duration {
	least, each := MinDrainInterval, drainIntervalPerNode
	if p.terminating > 0 && p.blocked == 0 {
		least, each = minTerminationInterval, terminationIntervalPerNode
	}
	return min(max(time.Duration(p.draining)*each, least), MaxDrainInterval)
}

// nextInspectionAfter is the moment after another one at which pods are inspected. All nodes share these moments, so that one
// pass does for them.
func (p *planner) nextInspectionAfter(t time.Time) time.Time {
	every := p.drainInterval()
	return t.Truncate(every).Add(every)
}

// nextInspection is when the pods of a node are due that have been inspected a moment ago.
func (p *planner) nextInspection(n *nodeState) time.Time {
	if !dependsOnPods(n.drainReason()) {
		return time.Time{}
	}
	return p.nextInspectionAfter(n.Inspected)
}

// newNote is the note as it is to be. While a permit stands, it keeps speaking of what the permit is for.
func (s *Session) newNote(n *nodeState, phase v1alpha1.RolloutPhase, reason, message string) v1alpha1.RolloutStatus {
	out := v1alpha1.RolloutStatus{
		Phase: phase, Reason: reason, Message: text.Cut(message, MaxMessage), Tuned: s.tunedOf(n), Attempts: n.attemptsGiven(), BootHash: n.target,
	}
	if n.permit != nil {
		out.Attempts, out.BootHash = n.note.Attempts, n.note.BootHash
	}
	if phase != v1alpha1.RolloutUpToDate {
		out.DrainAttempts, out.RetryAfter, out.DrainedFor = n.note.DrainAttempts, n.note.RetryAfter, n.note.DrainedFor
	}
	if n.Mark != nil || n.claim == nil {
		out.Evictions = max(n.note.Evictions, n.Evicted)
	}
	same := n.note.Phase == phase && n.note.BootHash == out.BootHash && (n.note.Reason == reason || !countsAnew(n.note, phase, reason))
	out.Since = n.note.Since
	if !same || out.Since == nil {
		out.Since = &metav1.Time{Time: s.Now}
	}
	return out
}

func (p *planner) setNote(n *nodeState, phase v1alpha1.RolloutPhase, reason, message string) {
	p.storeNote(n, p.newNote(n, phase, reason, message))
}

func (p *planner) storeNote(n *nodeState, note v1alpha1.RolloutStatus) {
	if n.ClientNode != nil {
		p.plan.Notes[n.Name] = note
	}
}

// setDrainNote sets the note of a node whose pods are leaving, unless that has only begun.
func (p *planner) setDrainNote(n *nodeState, message string) {
	if end := n.disruptedSince().Add(drainNotedAfter); !isOutOfService(n.note.Phase) && p.Now.Before(end) {
		p.leaveNote(n, end)
		return
	}
	p.setNote(n, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, message)
}

// setApplyingNote sets the note of a node whose need is not known, unless that has only begun. Where the agent has never reported there is
// nothing to say that its condition does not.
func (p *planner) setApplyingNote(n *nodeState, reason, message string) {
	if n.note.Phase != "" || n.ClientNode.Status.ObservedGeneration != 0 {
		p.setSettledNote(n, v1alpha1.RolloutApplying, reason, message)
	}
}

// setSettledNote sets the note of a node in service, unless its agent has only begun to apply or to confirm settings: the next note then also
// says since when the node has them.
func (p *planner) setSettledNote(n *nodeState, phase v1alpha1.RolloutPhase, reason, message string) {
	if end := n.ApplyingSince.Add(applyingNotedAfter); !n.ApplyingSince.IsZero() && p.Now.Before(end) && !isOutOfService(n.note.Phase) {
		p.leaveNote(n, end)
		return
	}
	p.setNote(n, phase, reason, message)
}

// leaveNote leaves the note, if there is one, word for word until then.
func (p *planner) leaveNote(n *nodeState, until time.Time) {
	p.wakeAt(until)
	if n.note.Phase != "" {
		p.storeNote(n, n.note)
	}
}

// isOutOfService reports whether a note speaks of a node that the rollout is about, or has failed.
func isOutOfService(phase v1alpha1.RolloutPhase) bool {
	switch phase {
	case v1alpha1.RolloutClaimed, v1alpha1.RolloutDraining, v1alpha1.RolloutRebooting, v1alpha1.RolloutSettling, v1alpha1.RolloutReleasing, v1alpha1.RolloutFailed:
		return true
	case v1alpha1.RolloutApplying, v1alpha1.RolloutUpToDate, v1alpha1.RolloutWaiting:
	}
	return false
}

// drainReason is what the node's drain waits for by its note, or by its mark where none has been written yet.
func (n *nodeState) drainReason() string {
	if n.isCordonedByUs() && !isOutOfService(n.note.Phase) {
		return v1alpha1.RolloutReasonDraining
	}
	return n.note.Reason
}

// keepNote leaves the note as it is.
func (p *planner) keepNote(n *nodeState) {
	p.setNote(n, n.note.Phase, n.note.Reason, n.note.Message)
}

// writeNoteAhead writes the note before the steps that follow it.
func (p *planner) writeNoteAhead(n *nodeState, note v1alpha1.RolloutStatus) {
	p.storeNote(n, note)
	p.writeNote(n)
}

// writeNote writes the note as it is to be, before the steps that follow.
func (p *planner) writeNote(n *nodeState) {
	if note, noted := p.plan.Notes[n.Name]; noted && !SameNote(n.note, note) {
		p.addStep(WriteNote{OnNode{n.Name}, note})
	}
}

// SameNote reports whether two notes say the same, but for the count of evictions: that alone is not worth a write.
func SameNote(a, b v1alpha1.RolloutStatus) bool {
	if !a.Since.Equal(b.Since) || !a.RetryAfter.Equal(b.RetryAfter) || !isSameTuned(a.Tuned, b.Tuned) {
		return false
	}
	a.Since, b.Since, a.RetryAfter, b.RetryAfter, a.Tuned, b.Tuned = nil, nil, nil, nil, nil, nil
	a.Evictions, b.Evictions = 0, 0
	return a == b
}

func isSameTuned(a, b *v1alpha1.RolloutTuned) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Hash == b.Hash && a.Since.Equal(&b.Since)
}

// countsAnew reports whether a note's time begins with its reason, not with its phase: a node is left alone for a while, or its host
// is no longer busy and has its whole time to reboot.
func countsAnew(was v1alpha1.RolloutStatus, phase v1alpha1.RolloutPhase, reason string) bool {
	if phase == v1alpha1.RolloutRebooting {
		return was.Reason == v1alpha1.RolloutReasonHostBusy
	}
	return isBackOff(reason)
}

// isBackOff reports whether a reason has a node left alone for a while.
func isBackOff(reason string) bool {
	switch reason {
	case v1alpha1.RolloutReasonDrainTimedOut, v1alpha1.RolloutReasonCordonLost, v1alpha1.RolloutReasonPermitRefused, v1alpha1.RolloutReasonHostBusy:
		return true
	}
	return false
}

func formatTime(t time.Time) string {
	return t.UTC().Format(time.RFC3339)
}

func toDuration(count *int32) time.Duration {
	if count == nil {
		return 0
	}
	return time.Duration(*count) * time.Second
}
