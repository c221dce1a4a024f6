package plan

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// admit claims nodes whose turn it is, as far as canary, budgets and zones go.
func (p *planner) admit(idle []*view) {
	var queue []*view
	for _, v := range idle {
		if p.describe(v) {
			queue = append(queue, v)
		}
	}
	if len(queue) == 0 {
		return
	}
	p.busy = p.busyZones()
	line := p.lineUp(queue)
	refused := 0
	for v := line.next(); v != nil; v = line.next() {
		if reason, message := p.queued(v, refused); reason != "" {
			refused++
			p.note(v, v1alpha1.RolloutWaiting, reason, message)
			continue
		}
		line.claimed(v, p.Now)
		p.claimNow(v)
	}
}

func (p *planner) claimNow(v *view) {
	claim := p.claimFor(v)
	v.claim = &claim
	p.budget.add(v)
	if p.holdsZone(v) {
		p.busy.add(v)
	}
	p.step(AddClaim{OnNode{v.Name}, claim, false})
	p.note(v, v1alpha1.RolloutClaimed, v1alpha1.RolloutReasonClaimed, "The node is about to be cordoned")
	p.wake(p.Now)
}

// queued is why it is not a node's turn, empty if it is. ahead is how many have been refused in this pass.
func (p *planner) queued(v *view, ahead int) (reason, message string) {
	if reason, message := p.behindCanary(v); reason != "" {
		return reason, message
	}
	if reason, message := p.lastControlPlane(v); reason != "" {
		return reason, message
	}
	if v.Manager {
		if others := p.unfinished(v); len(others) > 0 {
			return v1alpha1.RolloutReasonManagerNodeLast, "The manager's own node goes last, after " + text.List(others)
		}
	}
	if reason, message := p.overBudget(v, ahead); reason != "" {
		return reason, message
	}
	return p.otherZone(v)
}

// unfinished are the nodes that go, or will go, before the manager's own. Those that wait for it as their canary do not.
func (p *planner) unfinished(manager *view) []string {
	var out []string
	for _, v := range p.views {
		if v == manager || v.Client == nil || v.held() || v.unavailable() != "" || p.waitsForCanary(v, manager) {
			continue
		}
		switch p.plan.Rollout[v.Name].Reason {
		case v1alpha1.RolloutReasonWaitingForBudget, v1alpha1.RolloutReasonWaitingForCanary, v1alpha1.RolloutReasonWaitingForZone, v1alpha1.RolloutReasonWaitingForWindow, v1alpha1.RolloutReasonSettingsChanging, v1alpha1.RolloutReasonApplying:
			out = append(out, v.Name)
		}
	}
	return out
}

// line is who waits, in the order in which they are asked.
type line struct {
	// vacant serve nothing yet and go first; the manager's own node goes last.
	vacant, manager []*view
	shares          []*share
}

// share is what a profile has of the cluster's budget, and who waits for more of it.
type share struct {
	*Profile
	waiting []*view
	// claims is how many nodes are held for the profile, served is when one last was.
	claims int
	served time.Time
}

// lineUp sorts the nodes that wait by the profile that leads their reboot.
func (p *planner) lineUp(queue []*view) *line {
	out := &line{}
	shares := make(map[string]*share, len(p.profiles))
	for _, v := range queue {
		switch name := v.need.profiles[0]; {
		case v.Manager:
			out.manager = append(out.manager, v)
		case v.Vacant:
			out.vacant = append(out.vacant, v)
		default:
			if shares[name] == nil {
				shares[name] = &share{Profile: p.profiles[name]}
				out.shares = append(out.shares, shares[name])
			}
			shares[name].waiting = append(shares[name].waiting, v)
		}
	}
	if len(out.shares) > 1 {
		p.countShares(shares)
	}
	return out
}

// countShares tells what each profile has, and when it last had something: of nodes that are in service again, the note
// tells, as long as it speaks of the present boot settings.
func (p *planner) countShares(shares map[string]*share) {
	serve := func(name string, at time.Time, claims int) {
		if own := shares[name]; own != nil {
			own.claims += claims
			own.served = latest(own.served, at)
		}
	}
	for _, v := range p.views {
		switch {
		case v.claim != nil:
			serve(v.claim.Profile, v.claim.Since.Time, 1)
		case v.attempts() > 0, backsOff(v.record.Reason):
			for _, name := range v.Profiles {
				serve(name, v.recordSince(), 0)
			}
		}
	}
}

// next takes the next node out of the line: of the profile that holds the fewest nodes; of those, the one that has gone
// without for the longest, so that a single slot goes round; then by priority.
func (l *line) next() *view {
	if v := pop(&l.vacant); v != nil {
		return v
	}
	l.shares = slices.DeleteFunc(l.shares, func(s *share) bool { return len(s.waiting) == 0 })
	if len(l.shares) == 0 {
		return pop(&l.manager)
	}
	poorest := slices.MinFunc(l.shares, func(a, b *share) int {
		return cmp.Or(
			cmp.Compare(a.claims, b.claims), a.served.Compare(b.served),
			cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name),
		)
	})
	return pop(&poorest.waiting)
}

func pop(queue *[]*view) *view {
	if len(*queue) == 0 {
		return nil
	}
	v := (*queue)[0]
	*queue = (*queue)[1:]
	return v
}

// claimed counts a node for the profile that leads its reboot.
func (l *line) claimed(v *view, now time.Time) {
	for _, s := range l.shares {
		if s.Name == v.need.profiles[0] {
			s.claims++
			s.served = now
		}
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (p *planner) claimFor(v *view) v1alpha1.Disruption {
	claim := v1alpha1.Disruption{Since: metav1.Time{Time: p.Now}}
	if v.Client != nil {
		claim.BootHash = v.Client.Spec.BootHash
	}
	if names := slices.Concat(v.need.profiles, v.holder()); len(names) > 0 {
		claim.Profile = names[0]
	}
	return claim
}
