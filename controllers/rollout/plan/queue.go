package plan

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// claimNext claims nodes whose turn it is, as far as canary, budgets and zones go.
func (p *planner) claimNext(idle []*nodeState) {
	var queue []*nodeState
	for _, v := range idle {
		if p.describeIdle(v) {
			queue = append(queue, v)
		}
	}
	if len(queue) == 0 {
		return
	}
	p.busy = p.findBusyZones()
	line := p.newQueue(queue)
	refused := 0
	for v := line.takeNext(); v != nil; v = line.takeNext() {
		if reason, message := p.checkTurn(v, refused); reason != "" {
			refused++
			p.setNote(v, v1alpha1.RolloutWaiting, reason, message)
			continue
		}
		line.countClaim(v, p.Now)
		p.claimNode(v)
	}
}

func (p *planner) claimNode(v *nodeState) {
	claim := p.claimFor(v)
	v.claim = &claim
	p.budgets.addNode(v)
	if p.occupiesZone(v) {
		p.busy.addNode(v)
	}
	p.addStep(AddClaim{OnNode{v.Name}, claim, false})
	p.setNote(v, v1alpha1.RolloutClaimed, v1alpha1.RolloutReasonClaimed, "The node is about to be cordoned")
	p.wakeAt(p.Now)
}

// checkTurn is why it is not a node's turn, empty if it is. ahead is how many have been refused in this pass.
func (p *planner) checkTurn(v *nodeState, refused int) (reason, message string) {
	if reason, message := p.checkCanary(v); reason != "" {
		return reason, message
	}
	if reason, message := p.checkControlPlane(v); reason != "" {
		return reason, message
	}
	if v.Manager {
		if others := p.nodesBeforeManager(v); len(others) > 0 {
			return v1alpha1.RolloutReasonManagerNodeLast, "The manager's own node goes last, after " + text.List(others)
		}
	}
	if reason, message := p.checkBudget(v, refused); reason != "" {
		return reason, message
	}
	return p.checkZones(v)
}

// nodesBeforeManager are the nodes that go, or will go, before the manager's own. Those that wait for it as their canary do not.
func (p *planner) nodesBeforeManager(manager *nodeState) []string {
	var out []string
	for _, v := range p.states {
		if v == manager || v.ClientNode == nil || v.isDisrupted() || v.whyUnavailable() != "" || p.waitsForCanary(v, manager) {
			continue
		}
		switch p.plan.Notes[v.Name].Reason {
		case v1alpha1.RolloutReasonWaitingForBudget, v1alpha1.RolloutReasonWaitingForCanary, v1alpha1.RolloutReasonWaitingForZone, v1alpha1.RolloutReasonWaitingForWindow, v1alpha1.RolloutReasonSettingsChanging, v1alpha1.RolloutReasonApplying:
			out = append(out, v.Name)
		}
	}
	return out
}

// queue is who waits, in the order in which they are asked.
type queue struct {
	// vacant serve nothing yet and go first; the manager's own node goes last.
	vacant, manager []*nodeState
	profiles          []*profileQueue
}

// profileQueue is what a profile has of the cluster's budget, and who waits for more of it.
type profileQueue struct {
	*Profile
	waiting []*nodeState
	// claims is how many nodes are held for the profile, served is when one last was.
	claims int
	served time.Time
}

// newQueue sorts the nodes that wait by the profile that leads their reboot.
func (p *planner) newQueue(waiting []*nodeState) *queue {
	out := &queue{}
	profiles := make(map[string]*profileQueue, len(p.profiles))
	for _, v := range waiting {
		switch name := v.need.profiles[0]; {
		case v.Manager:
			out.manager = append(out.manager, v)
		case v.Vacant:
			out.vacant = append(out.vacant, v)
		default:
			if profiles[name] == nil {
				profiles[name] = &profileQueue{Profile: p.profiles[name]}
				out.profiles = append(out.profiles, profiles[name])
			}
			profiles[name].waiting = append(profiles[name].waiting, v)
		}
	}
	if len(out.profiles) > 1 {
		p.countClaims(profiles)
	}
	return out
}

// countClaims tells what each profile has, and when it last had something: of nodes that are in service again, the note
// tells, as long as it speaks of the present boot settings.
func (p *planner) countClaims(profiles map[string]*profileQueue) {
	count := func(name string, at time.Time, claims int) {
		if own := profiles[name]; own != nil {
			own.claims += claims
			own.served = laterOf(own.served, at)
		}
	}
	for _, v := range p.states {
		switch {
		case v.claim != nil:
			count(v.claim.Profile, v.claim.Since.Time, 1)
		case v.attemptsGiven() > 0, isBackOff(v.note.Reason):
			for _, name := range v.Profiles {
				count(name, v.noteSince(), 0)
			}
		}
	}
}

// takeNext takes the next node out of the line: of the profile that holds the fewest nodes; of those, the one that has gone
// without for the longest, so that a single slot goes round; then by priority.
func (l *queue) takeNext() *nodeState {
	if v := takeFirst(&l.vacant); v != nil {
		return v
	}
	l.profiles = slices.DeleteFunc(l.profiles, func(s *profileQueue) bool { return len(s.waiting) == 0 })
	if len(l.profiles) == 0 {
		return takeFirst(&l.manager)
	}
	leastServed := slices.MinFunc(l.profiles, func(a, b *profileQueue) int {
		return cmp.Or(
			cmp.Compare(a.claims, b.claims), a.served.Compare(b.served),
			cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name),
		)
	})
	return takeFirst(&leastServed.waiting)
}

func takeFirst(queue *[]*nodeState) *nodeState {
	if len(*queue) == 0 {
		return nil
	}
	v := (*queue)[0]
	*queue = (*queue)[1:]
	return v
}

// countClaim counts a node for the profile that leads its reboot.
func (l *queue) countClaim(v *nodeState, now time.Time) {
	for _, s := range l.profiles {
		if s.Name == v.need.profiles[0] {
			s.claims++
			s.served = now
		}
	}
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (p *planner) claimFor(v *nodeState) v1alpha1.Disruption {
	claim := v1alpha1.Disruption{Since: metav1.Time{Time: p.Now}}
	if v.ClientNode != nil {
		claim.BootHash = v.ClientNode.Spec.BootHash
	}
	if names := slices.Concat(v.need.profiles, v.claimingProfile()); len(names) > 0 {
		claim.Profile = names[0]
	}
	return claim
}
