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
	var idle []*view
	for _, v := range p.views {
		if v.held() {
			p.advance(v)
		} else {
			p.clearSpent(v)
			p.unguard(v)
			idle = append(idle, v)
		}
		p.maintain(v)
	}
	p.removeTaints(idle)
	p.admit(idle)
	return p.plan
}

// planner holds one pass. It is thrown away after it.
type planner struct {
	Snapshot
	// exact is Now with its fraction of a second, for what is not written down.
	exact    time.Time
	profiles map[string]*Profile
	// views are the nodes in the order of the rollout.
	views    []*view
	budget   budgets
	canary   map[canaryKey]canary
	openings map[string]opening
	// busy is filled once it is known which nodes are held.
	busy zones
	// draining is how many nodes are cordoned by us and without a permit; of those, terminating is how many keep only pods
	// that end, kept how many keep others.
	draining, terminating, kept int
	plan                        Plan
}

func newPlanner(s Snapshot) *planner {
	// Times are kept in seconds by the API, and must not change on their way there.
	exact := s.Now
	s.Now = s.Now.Truncate(time.Second)
	p := &planner{
		Snapshot: s,
		exact:    exact,
		profiles: make(map[string]*Profile, len(s.Profiles)),
		canary:   map[canaryKey]canary{},
		openings: map[string]opening{},
		plan:     Plan{Rollout: map[string]v1alpha1.RolloutStatus{}},
	}
	for i := range s.Profiles {
		p.profiles[s.Profiles[i].Name] = &s.Profiles[i]
	}
	for i := range s.Nodes {
		v := p.look(&s.Nodes[i])
		p.views = append(p.views, v)
		if v.ours() && v.permit == nil {
			p.countDrain(v)
		}
	}
	slices.SortFunc(p.views, func(a, b *view) int { return a.turn().Compare(b.turn()) })
	p.budget = p.countBudgets()
	return p
}

// releaseOrphans gives up the claims of nodes that are gone.
func (p *planner) releaseOrphans() {
	for _, name := range slices.Sorted(maps.Keys(p.Claims)) {
		if !slices.ContainsFunc(p.views, func(v *view) bool { return v.Name == name }) {
			p.step(ReleaseClaim{OnNode{name}})
		}
	}
}

// clearSpent takes away a permit that a boot has outlived, where nothing else is left of the disruption.
func (p *planner) clearSpent(v *view) {
	if v.permit != nil {
		p.clear(v, v1alpha1.RolloutReasonAccepted)
	}
}

// unguard takes our guards off a node that has lost our mark, which would have told where they come from.
func (p *planner) unguard(v *view) {
	if v.Guarded && v.Mark == nil && !v.Deleting {
		p.step(Unguard{OnNode{v.Name}})
	}
}

// removeTaints takes the untuned taint off nodes that are tuned.
func (p *planner) removeTaints(idle []*view) {
	for _, v := range idle {
		if v.Untuned && !v.Deleting && v.tuned() {
			p.step(RemoveTaint{OnNode{v.Name}})
		}
	}
}

// maintain brings our conditions on the Node to what this pass leaves it in.
func (p *planner) maintain(v *view) {
	if v.shown == v.maintenance || v.Deleting {
		return
	}
	p.step(Maintain{OnNode{v.Name}, v.maintenance, false})
	v.shown = v.maintenance
}

func (p *planner) step(s Step) {
	p.plan.Steps = append(p.plan.Steps, s)
}

func (p *planner) clear(v *view, reason string) {
	p.step(ClearPermit{OnNode{v.Name}, v.permit.ID, reason})
	v.permit = nil
}

// wake asks for another pass at a time.
func (p *planner) wake(at time.Time) {
	if p.plan.Next.IsZero() || at.Before(p.plan.Next) {
		p.plan.Next = at
	}
}

// countDrain enters a node that is being drained, by what has just been seen of it, else by what is on record.
func (p *planner) countDrain(v *view) {
	p.draining++
	reason := v.record.Reason
	if v.Drain != nil {
		reason = v.Drain.Reason
	}
	switch {
	case v.Drain != nil && v.Drain.Gone:
	case reason == v1alpha1.RolloutReasonDraining:
		p.terminating++
	case keptByPods(reason):
		p.kept++
	}
}

// keptByPods reports whether only a look at the node's pods can tell how its drain goes on.
func keptByPods(reason string) bool {
	return reason == v1alpha1.RolloutReasonDraining || reason == v1alpha1.RolloutReasonDrainBlocked || reason == v1alpha1.RolloutReasonWaitingForPods
}

// drainInterval is how soon drains are looked at again: sooner where nothing but the end of pods is waited for.
func (p *planner) drainInterval() time.Duration {
	least, each := MinDrainInterval, drainIntervalPerNode
	if p.terminating > 0 && p.kept == 0 {
		least, each = minTerminationInterval, terminationIntervalPerNode
	}
	return min(max(time.Duration(p.draining)*each, least), MaxDrainInterval)
}

// lookAfter is the moment after another one at which drains are looked at. All are at the same moments, so that one pass
// does for them.
func (p *planner) lookAfter(t time.Time) time.Time {
	every := p.drainInterval()
	return t.Truncate(every).Add(every)
}

// nextLook is when the pods of a node are due that have been looked at a moment ago.
func (p *planner) nextLook(v *view) time.Time {
	if !keptByPods(v.record.Reason) {
		return time.Time{}
	}
	return p.lookAfter(v.Looked)
}

// status is status.rollout as it is to be. While a permit stands, it keeps speaking of what the permit is for.
func (p *planner) status(v *view, phase v1alpha1.RolloutPhase, reason, message string) v1alpha1.RolloutStatus {
	out := v1alpha1.RolloutStatus{Phase: phase, Reason: reason, Message: Clip(message), Attempts: v.attempts(), BootHash: v.target}
	if v.permit != nil {
		out.Attempts, out.BootHash = v.record.Attempts, v.record.BootHash
	}
	same := v.record.Phase == phase && v.record.BootHash == out.BootHash && (v.record.Reason == reason || !backsOff(reason))
	out.Since = v.record.Since
	if !same || out.Since == nil {
		out.Since = &metav1.Time{Time: p.Now}
	}
	return out
}

func (p *planner) note(v *view, phase v1alpha1.RolloutPhase, reason, message string) {
	p.set(v, p.status(v, phase, reason, message))
}

func (p *planner) set(v *view, status v1alpha1.RolloutStatus) {
	if v.Client != nil {
		p.plan.Rollout[v.Name] = status
	}
}

// keep leaves the note as it is.
func (p *planner) keep(v *view) {
	p.note(v, v.record.Phase, v.record.Reason, v.record.Message)
}

// ahead writes the note before the steps that follow it.
func (p *planner) ahead(v *view, status v1alpha1.RolloutStatus) {
	p.set(v, status)
	p.record(v)
}

// record writes the note as it is to be, before the steps that follow.
func (p *planner) record(v *view) {
	if status, noted := p.plan.Rollout[v.Name]; noted && !SameStatus(v.record, status) {
		p.step(Record{OnNode{v.Name}, status})
	}
}

// SameStatus reports whether two notes say the same.
func SameStatus(a, b v1alpha1.RolloutStatus) bool {
	if !a.Since.Equal(b.Since) {
		return false
	}
	a.Since, b.Since = nil, nil
	return a == b
}

// backsOff are the reasons whose time counts from their own beginning.
func backsOff(reason string) bool {
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

func stamp(t time.Time) string {
	return t.UTC().Format(time.RFC3339)
}

func seconds(n *int32) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * time.Second
}
