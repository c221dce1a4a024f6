package plan

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// For decides what to do next, and says for every node why.
func For(s Snapshot) Plan {
	p := newPlanner(s)
	p.releaseOrphans()
	var idle []*nodeState
	for _, v := range p.states {
		if v.isDisrupted() {
			p.advanceDisruption(v)
		} else {
			p.clearSpentPermit(v)
			p.removeGuards(v)
			idle = append(idle, v)
		}
		p.updateMaintenance(v)
	}
	p.removeTaints(idle)
	p.claimNext(idle)
	return p.plan
}

// planner holds one pass. It is thrown away after it.
type planner struct {
	Snapshot
	// exactNow is Now with its fraction of a second, for what is not written down.
	exactNow    time.Time
	profiles map[string]*Profile
	// states are the nodes in the order of the rollout.
	states    []*nodeState
	budgets   budgets
	canaries   map[canaryKey]canary
	openings map[string]opening
	// busy is filled once it is known which nodes are held.
	busy zones
	// draining is how many nodes are cordoned by us and without a permit; of those, terminating is how many keep only pods
	// that end, kept how many keep others.
	draining, terminating, blocked int
	plan                        Plan
}

func newPlanner(s Snapshot) *planner {
	// Times are kept in seconds by the API, and must not change on their way there.
	exact := s.Now
	s.Now = s.Now.Truncate(time.Second)
	p := &planner{
		Snapshot: s,
		exactNow:    exact,
		profiles: make(map[string]*Profile, len(s.Profiles)),
		canaries:   map[canaryKey]canary{},
		openings: map[string]opening{},
		plan:     Plan{Notes: map[string]v1alpha1.RolloutStatus{}},
	}
	for i := range s.Profiles {
		p.profiles[s.Profiles[i].Name] = &s.Profiles[i]
	}
	for i := range s.Nodes {
		v := p.stateOf(&s.Nodes[i])
		p.states = append(p.states, v)
		if v.isCordonedByUs() && v.permit == nil {
			p.countDrain(v)
		}
	}
	slices.SortFunc(p.states, func(a, b *nodeState) int { return a.rolloutTurn().Compare(b.rolloutTurn()) })
	p.budgets = p.countBudgets()
	return p
}

// releaseOrphans gives up the claims of nodes that are gone.
func (p *planner) releaseOrphans() {
	for _, name := range slices.Sorted(maps.Keys(p.Claims)) {
		if !slices.ContainsFunc(p.states, func(v *nodeState) bool { return v.Name == name }) {
			p.addStep(ReleaseClaim{OnNode{name}})
		}
	}
}

// clearSpentPermit takes away a permit that a boot has outlived, where nothing else is left of the disruption.
func (p *planner) clearSpentPermit(v *nodeState) {
	if v.permit != nil {
		p.clearPermit(v, v1alpha1.RolloutReasonAccepted)
	}
}

// removeGuards takes our guards off a node that has lost our mark, which would have told where they come from.
func (p *planner) removeGuards(v *nodeState) {
	if v.Guarded && v.Mark == nil && !v.Deleting {
		p.addStep(RemoveGuards{OnNode{v.Name}})
	}
}

// removeTaints takes the untuned taint off nodes that are tuned.
func (p *planner) removeTaints(idle []*nodeState) {
	for _, v := range idle {
		if v.Untuned && !v.Deleting && v.isTuned() {
			p.addStep(RemoveTaint{OnNode{v.Name}})
		}
	}
}

// updateMaintenance brings our conditions on the Node to what this pass leaves it in.
func (p *planner) updateMaintenance(v *nodeState) {
	if v.maintenanceShown == v.maintenance || v.Deleting {
		return
	}
	p.addStep(SetMaintenance{OnNode{v.Name}, v.maintenance, false})
	v.maintenanceShown = v.maintenance
}

func (p *planner) addStep(s Step) {
	p.plan.Steps = append(p.plan.Steps, s)
}

func (p *planner) clearPermit(v *nodeState, reason string) {
	p.addStep(ClearPermit{OnNode{v.Name}, v.permit.ID, reason})
	v.permit = nil
}

// wakeAt asks for another pass at a time.
func (p *planner) wakeAt(at time.Time) {
	if p.plan.Next.IsZero() || at.Before(p.plan.Next) {
		p.plan.Next = at
	}
}

// countDrain enters a node that is being drained, by what has just been seen of it, else by what is on record.
func (p *planner) countDrain(v *nodeState) {
	p.draining++
	reason := v.note.Reason
	if v.Drain != nil {
		reason = v.Drain.Reason
	}
	switch {
	case v.Drain != nil && v.Drain.Gone:
	case reason == v1alpha1.RolloutReasonDraining:
		p.terminating++
	case dependsOnPods(reason):
		p.blocked++
	}
}

// dependsOnPods reports whether only a look at the node's pods can tell how its drain goes on.
func dependsOnPods(reason string) bool {
	return reason == v1alpha1.RolloutReasonDraining || reason == v1alpha1.RolloutReasonDrainBlocked || reason == v1alpha1.RolloutReasonWaitingForPods
}

// drainInterval is how soon drains are looked at again: sooner where nothing but the end of pods is waited for.
func (p *planner) drainInterval() time.Duration {
	least, each := MinDrainInterval, drainIntervalPerNode
	if p.terminating > 0 && p.blocked == 0 {
		least, each = minTerminationInterval, terminationIntervalPerNode
	}
	return min(max(time.Duration(p.draining)*each, least), MaxDrainInterval)
}

// nextInspectionAfter is the moment after another one at which drains are looked at. All are at the same moments, so that one pass
// does for them.
func (p *planner) nextInspectionAfter(t time.Time) time.Time {
	every := p.drainInterval()
	return t.Truncate(every).Add(every)
}

// nextInspection is when the pods of a node are due that have been looked at a moment ago.
func (p *planner) nextInspection(v *nodeState) time.Time {
	if !dependsOnPods(v.note.Reason) {
		return time.Time{}
	}
	return p.nextInspectionAfter(v.Inspected)
}

// newNote is status.rollout as it is to be. While a permit stands, it keeps speaking of what the permit is for.
func (p *planner) newNote(v *nodeState, phase v1alpha1.RolloutPhase, reason, message string) v1alpha1.RolloutStatus {
	out := v1alpha1.RolloutStatus{Phase: phase, Reason: reason, Message: Clip(message), Attempts: v.attemptsGiven(), BootHash: v.target}
	if v.permit != nil {
		out.Attempts, out.BootHash = v.note.Attempts, v.note.BootHash
	}
	same := v.note.Phase == phase && v.note.BootHash == out.BootHash && (v.note.Reason == reason || !isBackOff(reason))
	out.Since = v.note.Since
	if !same || out.Since == nil {
		out.Since = &metav1.Time{Time: p.Now}
	}
	return out
}

func (p *planner) setNote(v *nodeState, phase v1alpha1.RolloutPhase, reason, message string) {
	p.storeNote(v, p.newNote(v, phase, reason, message))
}

func (p *planner) storeNote(v *nodeState, status v1alpha1.RolloutStatus) {
	if v.ClientNode != nil {
		p.plan.Notes[v.Name] = status
	}
}

// keepNote leaves the note as it is.
func (p *planner) keepNote(v *nodeState) {
	p.setNote(v, v.note.Phase, v.note.Reason, v.note.Message)
}

// writeNoteAhead writes the note before the steps that follow it.
func (p *planner) writeNoteAhead(v *nodeState, status v1alpha1.RolloutStatus) {
	p.storeNote(v, status)
	p.writeNote(v)
}

// writeNote writes the note as it is to be, before the steps that follow.
func (p *planner) writeNote(v *nodeState) {
	if status, noted := p.plan.Notes[v.Name]; noted && !SameNote(v.note, status) {
		p.addStep(WriteNote{OnNode{v.Name}, status})
	}
}

// SameNote reports whether two notes say the same.
func SameNote(a, b v1alpha1.RolloutStatus) bool {
	if !a.Since.Equal(b.Since) {
		return false
	}
	a.Since, b.Since = nil, nil
	return a == b
}

// isBackOff are the reasons whose time counts from their own beginning.
func isBackOff(reason string) bool {
	return reason == v1alpha1.RolloutReasonDrainTimedOut || reason == v1alpha1.RolloutReasonCordonLost || reason == v1alpha1.RolloutReasonPermitRefused
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Clip keeps the message of a status.rollout within its bound in the API.
func Clip(message string) string {
	const most = 1024
	runes := []rune(message)
	if len(runes) <= most {
		return message
	}
	return string(runes[:most-1]) + "…"
}

func formatTime(t time.Time) string {
	return t.UTC().Format(time.RFC3339)
}

func toDuration(n *int32) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * time.Second
}
