package plan

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// planner makes one decision. It is thrown away after it.
type planner struct {
	*Session
	// states are copies of the session's nodes, in the order of the rollout; members are those of each profile.
	states  []*nodeState
	members map[string][]*nodeState
	// resetting are the profiles whose retry has notes left to reset: it is honored, and recorded, once there are none.
	resetting sets.Set[string]
	// lost are the claimed nodes that are gone and had a permit, changed the nodes that the change of failures is about.
	lost    []lostNode
	changed sets.Set[string]
	// cluster and budgets are the limits of the cluster and of each profile.
	cluster *budget
	budgets map[string]*budget
	// failed are the failed nodes of the profiles that were asked for, also those that are gone.
	failed map[string]failures
	// canaries are the verdicts so far, canaryOrder is the order in which nodes are canaries; nil until it is asked for.
	canaries    map[canaryKey]canary
	canaryOrder map[string][]*nodeState
	openings    map[string]opening
	// refused is how many nodes that waited for their turn have been refused.
	refused int
	// busy are the zones in which nodes of a profile are out of service through our doing.
	busy map[string][]string
	// draining is how many nodes are cordoned by us and without a permit; of those, terminating is how many keep only pods
	// that end, blocked how many keep others.
	draining, terminating, blocked int
	plan                           Plan
}

func newPlanner(s *Session) *planner {
	p := &planner{
		Session: s, states: make([]*nodeState, 0, len(s.nodes)), members: make(map[string][]*nodeState, len(s.profiles)),
		resetting: sets.New[string](), changed: sets.New[string](), failed: map[string]failures{},
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
			p.resetting.Insert(n.resets...)
			p.wakeAt(p.Now)
		}
		if n.isCordonedByUs() && n.permit == nil {
			p.countDrain(n)
		}
	}
	p.findLost()
	p.countBudgets()
	return p
}

func (p *planner) find(name string) *nodeState {
	if at, known := p.index[name]; known {
		return p.states[at]
	}
	return nil
}

// advance takes a disrupted node one step further, and writes what follows from that.
func (p *planner) advance(n *nodeState) {
	p.advanceDisruption(n)
	if n.claim != nil && !n.released {
		claim := *n.claim
		p.describePermit(n, &claim)
		p.writeClaim(n, claim)
	}
	p.updateMaintenance(n)
}

// removeGuards takes our guards off a node that has lost our mark, which would have shown where they come from.
func (p *planner) removeGuards(n *nodeState) {
	if n.Guarded && n.Mark == nil && !n.Deleting {
		p.addStep(RemoveGuards{OnNode{n.Name}})
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

func (p *planner) addStep(s Step) { p.plan.Steps = append(p.plan.Steps, s) }

func (p *planner) clearPermit(n *nodeState, reason string) {
	p.addStep(ClearPermit{OnNode{n.Name}, n.permit.ID, reason})
	n.permit = nil
}

func (p *planner) wakeAt(at time.Time) {
	if p.plan.Next.IsZero() || at.Before(p.plan.Next) {
		p.plan.Next = at
	}
}

// isAhead reports whether a time is yet to come, and asks for another pass then.
func (p *planner) isAhead(at time.Time) bool {
	if !p.Now.Before(at) {
		return false
	}
	p.wakeAt(at)
	return true
}

// countDrain counts a node that is being drained, by what has just been seen of it, else by its note.
func (p *planner) countDrain(n *nodeState) {
	p.draining++
	reason := n.drainReason()
	if n.Drain != nil {
		reason = n.Drain.Reason
	}
	switch {
	case n.Drain != nil && n.Drain.Gone, !dependsOnPods(reason):
	case reason == v1alpha1.RolloutReasonDraining:
		p.terminating++
	default:
		p.blocked++
	}
}

// dependsOnPods reports whether only the node's pods can show how its drain goes on.
func dependsOnPods(reason string) bool {
	return slices.Contains([]string{
		v1alpha1.RolloutReasonDraining, v1alpha1.RolloutReasonDrainBlocked, v1alpha1.RolloutReasonDrainError, v1alpha1.RolloutReasonWaitingForPods,
	}, reason)
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
	// A node that is left alone for a while counts from the reason, and so does a host that is no longer busy: it has its whole time to reboot.
	countsAnew := isBackOff(reason)
	if phase == v1alpha1.RolloutRebooting {
		countsAnew = n.note.Reason == v1alpha1.RolloutReasonHostBusy
	}
	same := n.note.Phase == phase && n.note.BootHash == out.BootHash && (n.note.Reason == reason || !countsAnew)
	if out.Since = n.note.Since; !same || out.Since == nil {
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

// setDrainNote sets the note of a node whose pods are leaving, unless that has only started.
func (p *planner) setDrainNote(n *nodeState, message string) {
	p.setNoteFrom(n, n.disruptedSince().Add(drainNotedAfter), v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, message)
}

// setSettledNote sets the note of a node in service, unless its agent has only begun to apply or to confirm settings: the next note then also
// says since when the node has them.
func (p *planner) setSettledNote(n *nodeState, phase v1alpha1.RolloutPhase, reason, message string) {
	p.setNoteFrom(n, n.ApplyingSince.Add(applyingNotedAfter), phase, reason, message)
}

// setNoteFrom leaves the note of a node in service, if there is one, word for word until a time.
func (p *planner) setNoteFrom(n *nodeState, from time.Time, phase v1alpha1.RolloutPhase, reason, message string) {
	switch {
	case isOutOfService(n.note.Phase) || !p.isAhead(from):
		p.setNote(n, phase, reason, message)
	case n.note.Phase != "":
		p.storeNote(n, n.note)
	}
}

// isOutOfService reports whether a note speaks of a node that the rollout is about, or has failed.
func isOutOfService(phase v1alpha1.RolloutPhase) bool {
	return !slices.Contains([]v1alpha1.RolloutPhase{"", v1alpha1.RolloutApplying, v1alpha1.RolloutUpToDate, v1alpha1.RolloutWaiting}, phase)
}

// drainReason is what the node's drain waits for by its note, or by its mark where none has been written yet.
func (n *nodeState) drainReason() string {
	if n.isCordonedByUs() && !isOutOfService(n.note.Phase) {
		return v1alpha1.RolloutReasonDraining
	}
	return n.note.Reason
}

func (p *planner) keepNote(n *nodeState) {
	p.setNote(n, n.note.Phase, n.note.Reason, n.note.Message)
}

// writeNoteAhead sets the note, and writes it before the steps that follow.
func (p *planner) writeNoteAhead(n *nodeState, note v1alpha1.RolloutStatus) {
	p.storeNote(n, note)
	p.writeNote(n)
}

func (p *planner) writeNote(n *nodeState) {
	if note, noted := p.plan.Notes[n.Name]; noted && !SameNote(n.note, note) {
		p.addStep(WriteNote{OnNode{n.Name}, note})
	}
}

// SameNote reports whether two notes say the same, but for the count of evictions: that alone is not worth a write.
func SameNote(a, b v1alpha1.RolloutStatus) bool {
	sameTuned := a.Tuned == b.Tuned || a.Tuned != nil && b.Tuned != nil && a.Tuned.Hash == b.Tuned.Hash && a.Tuned.Since.Equal(&b.Tuned.Since)
	same := sameTuned && a.Since.Equal(b.Since) && a.RetryAfter.Equal(b.RetryAfter)
	a.Since, b.Since, a.RetryAfter, b.RetryAfter, a.Tuned, b.Tuned, a.Evictions, b.Evictions = nil, nil, nil, nil, nil, nil, 0, 0
	return same && a == b
}

// WithRefusal returns a note with the API server's answer to a write that it rejected.
func WithRefusal(note v1alpha1.RolloutStatus, err error) v1alpha1.RolloutStatus {
	note.Refusal = text.Cut(err.Error(), MaxMessage)
	return note
}

func isBackOff(reason string) bool {
	return slices.Contains([]string{
		v1alpha1.RolloutReasonDrainTimedOut, v1alpha1.RolloutReasonCordonLost, v1alpha1.RolloutReasonPermitRefused, v1alpha1.RolloutReasonHostBusy,
	}, reason)
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func toDuration(count *int32) time.Duration { return time.Duration(ptr.Deref(count, 0)) * time.Second }
