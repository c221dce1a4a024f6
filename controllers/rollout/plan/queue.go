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
	for _, n := range idle {
		if p.describeIdle(n) {
			queue = append(queue, n)
		}
	}
	if len(queue) == 0 {
		return
	}
	p.busy = p.findBusyZones()
	line := p.newQueue(queue)
	refused := 0
	for n := line.takeNext(); n != nil; n = line.takeNext() {
		if p.isRetried(n) {
			continue
		}
		if reason, message := p.checkTurn(n, refused); reason != "" {
			refused++
			p.plan.Queued = true
			p.setNote(n, v1alpha1.RolloutWaiting, reason, message)
			continue
		}
		line.countClaim(n, p.Now)
		p.claimNode(n)
	}
}

func (p *planner) claimNode(n *nodeState) {
	claim := p.claimFor(n)
	claim.NodeUID = n.UID
	n.claim = &claim
	p.budgets.addNode(n)
	if p.occupiesZone(n) {
		p.busy.addNode(n)
	}
	p.addStep(AddClaim{OnNode: OnNode{n.Name}, Claim: claim, Options: p.rulesFor(n).Drain})
	p.setNote(n, v1alpha1.RolloutClaimed, v1alpha1.RolloutReasonClaimed, "About to cordon the node")
}

// checkTurn is why it is not a node's turn, empty if it is. refused is how many have been refused in this pass.
func (p *planner) checkTurn(n *nodeState, refused int) (reason, message string) {
	if reason, message := p.checkCanary(n); reason != "" {
		return reason, message
	}
	if reason, message := p.checkControlPlane(n); reason != "" {
		return reason, message
	}
	if n.Manager {
		if others := p.nodesBeforeManager(n); len(others) > 0 {
			return v1alpha1.RolloutReasonManagerNodeLast, "The manager's own node goes last, after " + text.List(others)
		}
	}
	if reason, message := p.checkBudget(n, refused); reason != "" {
		return reason, message
	}
	return p.checkZones(n)
}

// nodesBeforeManager are the nodes that go, or will go, before the manager's own. Those that wait for it as their canary do not.
func (p *planner) nodesBeforeManager(manager *nodeState) []string {
	var out []string
	for _, n := range p.states {
		if n == manager || n.ClientNode == nil || n.isDisrupted() || n.whyUnavailable() != "" || p.waitsForCanary(n, manager) {
			continue
		}
		switch p.plan.Notes[n.Name].Reason {
		case v1alpha1.RolloutReasonWaitingForBudget, v1alpha1.RolloutReasonWaitingForCanary, v1alpha1.RolloutReasonWaitingForZone, v1alpha1.RolloutReasonWaitingForControlPlane, v1alpha1.RolloutReasonWaitingForWindow, v1alpha1.RolloutReasonSettingsChanging, v1alpha1.RolloutReasonApplying:
			out = append(out, n.Name)
		}
	}
	return out
}

// queue is who waits, in the order in which they are asked.
type queue struct {
	// vacant serve nothing yet and go first; the manager's own node goes last.
	vacant, manager []*nodeState
	profiles        []*profileQueue
}

// profileQueue is what a profile has of the cluster's budget, and who waits for more of it.
type profileQueue struct {
	*Profile
	waiting []*nodeState
	// claims is how many nodes are claimed for the profile, served is when one last was.
	claims int
	served time.Time
}

// newQueue sorts the nodes that wait by the profile that leads their reboot.
func (p *planner) newQueue(waiting []*nodeState) *queue {
	out := &queue{}
	profiles := make(map[string]*profileQueue, len(p.profiles))
	for _, n := range waiting {
		switch name := n.need.profiles[0]; {
		case n.Manager:
			out.manager = append(out.manager, n)
		case n.Vacant:
			out.vacant = append(out.vacant, n)
		default:
			if profiles[name] == nil {
				profiles[name] = &profileQueue{Profile: p.profiles[name]}
				out.profiles = append(out.profiles, profiles[name])
			}
			profiles[name].waiting = append(profiles[name].waiting, n)
		}
	}
	if len(out.profiles) > 1 {
		p.countClaims(profiles)
	}
	return out
}

// countClaims counts what each profile has, and finds when it last had something: nodes that are in service again have it
// in their note, as long as that is about the present boot settings.
func (p *planner) countClaims(profiles map[string]*profileQueue) {
	count := func(name string, at time.Time, claims int) {
		if own := profiles[name]; own != nil {
			own.claims += claims
			own.served = laterOf(own.served, at)
		}
	}
	for _, n := range p.states {
		switch {
		case n.claim != nil:
			count(n.claim.Profile, n.claim.Since.Time, 1)
		case n.attemptsGiven() > 0, isBackOff(n.note.Reason):
			for _, name := range n.Profiles {
				count(name, n.noteSince(), 0)
			}
		}
	}
}

// takeNext takes the next node out of the queue: of the profile with the fewest claims; of those, the one that has gone
// without for the longest, so that a single slot goes round; then by priority.
func (q *queue) takeNext() *nodeState {
	if n := takeFirst(&q.vacant); n != nil {
		return n
	}
	q.profiles = slices.DeleteFunc(q.profiles, func(s *profileQueue) bool { return len(s.waiting) == 0 })
	if len(q.profiles) == 0 {
		return takeFirst(&q.manager)
	}
	leastServed := slices.MinFunc(q.profiles, func(a, b *profileQueue) int {
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
	n := (*queue)[0]
	*queue = (*queue)[1:]
	return n
}

// countClaim counts a node for the profile that leads its reboot.
func (q *queue) countClaim(n *nodeState, now time.Time) {
	for _, s := range q.profiles {
		if s.Name == n.need.profiles[0] {
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

func (p *planner) claimFor(n *nodeState) v1alpha1.Disruption {
	claim := v1alpha1.Disruption{Since: metav1.Time{Time: p.Now}}
	if n.ClientNode != nil {
		claim.BootHash = n.ClientNode.Spec.BootHash
	}
	if names := slices.Concat(n.need.profiles, n.claimingProfile()); len(names) > 0 {
		claim.Profile = names[0]
	}
	return claim
}
