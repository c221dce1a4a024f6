package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
	"github.com/storageclient/operator/tuning/windows"
)

// planner makes one plan and is then discarded.
type planner struct {
	*Session
	// states are copies of the session's nodes, in the order of the rollout; members are the nodes of each profile.
	states  []*nodeState
	members map[string][]*nodeState
	// resetting are the profiles whose retry has notes left to reset. A retry is honored and recorded once all notes are reset.
	resetting sets.Set[string]
	// lost are the claimed nodes that are gone and had a permit; changed are the nodes that the change of failures concerns.
	lost    []lostNode
	changed sets.Set[string]
	// cluster and budgets are the limits of the cluster and of each profile.
	cluster *budget
	budgets map[string]*budget
	// failed are the failed nodes of the profiles counted so far, including nodes that are gone.
	failed map[string]failures
	// canaries are the groups evaluated so far. canaryOrder is the order of the canary nodes of each profile, computed when first needed.
	canaries    map[canaryKey]canary
	canaryOrder map[string][]*nodeState
	openings    map[string]opening
	// waitingNodes is the number of rejected nodes in the queue so far.
	waitingNodes int
	// claimBytes is the size of all claims. 0 before checkClaims needs it.
	claimBytes int
	// busy are the zones in which the rollout has taken nodes of a profile out of service.
	busy map[string][]string
	// draining is the number of nodes that the rollout has cordoned and that have no permit. terminating is the number of draining nodes with only
	// terminating pods left, blocked the number with other pods left.
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
	copies := make([]nodeState, len(s.nodes))
	for i, known := range s.nodes {
		n := &copies[i]
		*n = *known
		p.states = append(p.states, n)
		for _, name := range n.Profiles {
			p.members[name] = append(p.members[name], n)
		}
		if len(n.resets) > 0 {
			p.resetting.Insert(n.resets...)
			p.wakeAt(p.Now)
		}
		if !n.isDisrupted() && n.hasFailedUnrebooted() {
			n.isRetryDue = !p.isInFuture(n.note.RetryAfter.Time)
		}
		if n.isCordonedByRollout() && n.permit == nil {
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

// advance plans the next step of a disrupted node, and updates its claim and conditions.
func (p *planner) advance(n *nodeState) {
	p.advanceDisruption(n)
	if n.claim != nil && !n.released {
		claim := *n.claim
		p.describePermit(n, &claim)
		p.writeClaim(n, claim)
	}
	p.updateMaintenance(n)
}

// removeGuards removes the protection annotations and labels of a node without the operator's annotation: an uncordon would not remove them.
func (p *planner) removeGuards(n *nodeState) {
	if n.Guarded && n.Mark == nil && !n.Deleting {
		p.addStep(RemoveGuards{OnNode{n.Name}})
	}
}

func (p *planner) updateMaintenance(n *nodeState) {
	if n.reportedMaintenance == n.maintenance || n.Deleting {
		return
	}
	p.addStep(SetMaintenance{OnNode{n.Name}, n.maintenance, false})
	n.reportedMaintenance = n.maintenance
}

func (p *planner) addStep(s Step) { p.plan.Steps = append(p.plan.Steps, s) }

func (p *planner) clearPermit(n *nodeState, reason string) {
	p.addStep(ClearPermit{OnNode: OnNode{n.Name}, ID: n.permit.ID, Reason: reason})
	n.permit = nil
}

func (p *planner) wakeAt(at time.Time) {
	if p.plan.Next.IsZero() || at.Before(p.plan.Next) {
		p.plan.Next = at
	}
}

// isInFuture reports whether a time is in the future. If so, it schedules another pass for that time.
func (p *planner) isInFuture(at time.Time) bool {
	if !p.Now.Before(at) {
		return false
	}
	p.wakeAt(at)
	return true
}

// countDrain counts a node that is being drained, based on its pods if they were just inspected, otherwise on its note.
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

// dependsOnPods reports whether only the pods of the node can show the progress of its drain.
func dependsOnPods(reason string) bool {
	return slices.Contains([]string{
		v1alpha1.RolloutReasonDraining, v1alpha1.RolloutReasonDrainBlocked, v1alpha1.RolloutReasonDrainError, v1alpha1.RolloutReasonWaitingForPods,
	}, reason)
}

// drainInterval returns the interval between inspections of the pods of draining nodes. It is shorter while only terminating pods are left.
func (p *planner) drainInterval() time.Duration {
	minimum, perNode := MinDrainInterval, drainIntervalPerNode
	if p.terminating > 0 && p.blocked == 0 {
		minimum, perNode = minTerminationInterval, terminationIntervalPerNode
	}
	return min(max(time.Duration(p.draining)*perNode, minimum), MaxDrainInterval)
}

// nextInspectionAfter returns the next time at which pods are inspected. All nodes share these times, so that one pass inspects all of them.
func (p *planner) nextInspectionAfter(t time.Time) time.Time {
	interval := p.drainInterval()
	return t.Truncate(interval).Add(interval)
}

// newNote returns the new note of a node. While a permit exists, the note keeps the boot hash and the attempts of the permit.
func (s *Session) newNote(n *nodeState, phase v1alpha1.RolloutPhase, reason, message string) v1alpha1.RolloutStatus {
	out := v1alpha1.RolloutStatus{
		Phase: phase, Reason: reason, Message: text.Cut(message, MaxMessage), Tuned: s.tunedOf(n), Attempts: n.usedAttempts(), BootHash: n.target,
	}
	if n.permit != nil {
		out.Attempts, out.BootHash = n.note.Attempts, n.note.BootHash
	}
	if phase != v1alpha1.RolloutUpToDate {
		out.DrainAttempts, out.RetryAfter, out.DrainedFor = n.note.DrainAttempts, n.note.RetryAfter, n.note.DrainedFor
		if n.claim == nil || n.claim.CordonFirst {
			out.HeldSince = n.note.HeldSince
		}
	}
	if n.Mark != nil || n.claim == nil {
		out.Evictions = max(n.note.Evictions, n.Evicted)
	}
	// A pause counts from its reason. A host that is no longer busy gets its full time to reboot.
	isTimedByReason := isBackOff(reason) || reason == v1alpha1.RolloutReasonVolumesInUse
	if phase == v1alpha1.RolloutRebooting {
		isTimedByReason = n.note.Reason == v1alpha1.RolloutReasonHostBusy
	}
	same := n.note.Phase == phase && n.note.BootHash == out.BootHash && (n.note.Reason == reason || !isTimedByReason)
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

// setDrainNote sets the note of a node whose pods are leaving, unless the drain has only just started.
func (p *planner) setDrainNote(n *nodeState, message string) {
	p.setNoteFrom(n, n.disruptedSince().Add(drainNoteDelay), v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, message)
}

// setSettledNote sets the note of a node in service, unless its agent has only just started to apply or confirm settings. The next note also contains
// the time since which the node has them.
func (p *planner) setSettledNote(n *nodeState, phase v1alpha1.RolloutPhase, reason, message string) {
	p.setNoteFrom(n, n.ApplyingSince.Add(applyingNoteDelay), phase, reason, message)
}

// setNoteFrom keeps the note of a node in service unchanged until the given time, if the node has a note.
func (p *planner) setNoteFrom(n *nodeState, from time.Time, phase v1alpha1.RolloutPhase, reason, message string) {
	switch {
	case !n.note.Phase.IsInService() || !p.isInFuture(from):
		p.setNote(n, phase, reason, message)
	case n.note.Phase != "":
		p.storeNote(n, n.note)
	}
}

// drainReason returns the reason for which the drain of the node waits: from its note, or from its annotation if the note is older.
func (n *nodeState) drainReason() string {
	if n.isCordonedByRollout() && n.note.Phase.IsInService() {
		return v1alpha1.RolloutReasonDraining
	}
	return n.note.Reason
}

func (p *planner) keepNote(n *nodeState) { p.setNote(n, n.note.Phase, n.note.Reason, n.note.Message) }

// writeNoteAhead sets the note, and writes it before the steps that follow.
func (p *planner) writeNoteAhead(n *nodeState, note v1alpha1.RolloutStatus) {
	p.storeNote(n, note)
	p.writeNote(n)
}

func (p *planner) writeNote(n *nodeState) {
	if note, found := p.plan.Notes[n.Name]; found && !SameNote(n.note, note) {
		p.addStep(WriteNote{OnNode{n.Name}, note})
	}
}

// SameNote reports whether two notes are equal except for the count of evictions, which alone does not justify a write.
func SameNote(a, b v1alpha1.RolloutStatus) bool {
	sameTuned := a.Tuned == b.Tuned || a.Tuned != nil && b.Tuned != nil && a.Tuned.Hash == b.Tuned.Hash && a.Tuned.Since.Equal(&b.Tuned.Since)
	same := sameTuned && a.Since.Equal(b.Since) && a.RetryAfter.Equal(b.RetryAfter) && a.HeldSince.Equal(b.HeldSince)
	for _, note := range []*v1alpha1.RolloutStatus{&a, &b} {
		note.Since, note.RetryAfter, note.HeldSince, note.Tuned, note.Evictions = nil, nil, nil, nil, 0
	}
	return same && a == b
}

// WithRefusal returns a note with the error of a write that the API server rejected.
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

// opening contains whether the windows of some profiles are open together, and the time at which that may change.
type opening struct {
	open bool
	next time.Time
}

func meet(sets []windows.Set, now time.Time) opening {
	open, next := windows.Meet(sets, now)
	return opening{open, next}
}

// obstacle describes windows of these profiles that are closed.
func (o opening) obstacle(profiles []string) (reason, message string) {
	switch owners := "StorageClientProfile " + text.List(profiles); {
	case o.open:
		return "", ""
	case !o.next.IsZero():
		return v1alpha1.RolloutReasonWaitingForWindow, fmt.Sprintf("Outside the windows of %s; the next one opens at %s", owners, formatTime(o.next))
	case len(profiles) == 1:
		return v1alpha1.RolloutReasonWindowsDisjoint, fmt.Sprintf("No window of %s opens in the coming years", owners)
	default:
		return v1alpha1.RolloutReasonWindowsDisjoint, fmt.Sprintf("The windows of %s are never open together, and all of them need the reboot", owners)
	}
}

// windowsOf returns the windows of every profile that needs the node's reboot, or may need it while the agent has not reported.
func (s *Session) windowsOf(n *nodeState) (profiles []string, sets []windows.Set) {
	names := n.need.names
	if n.need.kind == needUnknown {
		names = lists.Distinct(names, n.Profiles)
	}
	for _, name := range names {
		profile := s.profiles[name]
		if profile != nil && len(profile.Windows) > 0 && (len(profile.BootKeys) > 0 || slices.Contains(n.need.names, name)) {
			profiles = append(profiles, name)
			sets = append(sets, profile.Windows)
		}
	}
	return profiles, sets
}

// checkWindows rejects a node unless a window is open in every profile that windowsOf returns.
func (p *planner) checkWindows(n *nodeState) (reason, message string) {
	profiles, sets := p.windowsOf(n)
	if len(profiles) == 0 {
		return "", ""
	}
	key := strings.Join(profiles, " ")
	found, known := p.openings[key]
	if !known {
		found = meet(sets, p.Now)
		p.openings[key] = found
	}
	if !found.next.IsZero() {
		p.wakeAt(found.next)
	}
	return found.obstacle(profiles)
}
