package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

func (p *planner) claimNext(idle []*nodeState) {
	waiting := lists.Filter(idle, p.describeIdle)
	if len(waiting) == 0 {
		return
	}
	p.busy = map[string][]string{}
	for _, n := range p.states {
		p.addToZones(n)
	}
	q, claimsOthers := p.newQueue(waiting), false
	for n := q.takeNext(); n != nil; n = q.takeNext() {
		// No other disruption starts while a retry has not been honored.
		if len(n.resets) > 0 || slices.ContainsFunc(n.need.names, func(name string) bool { return p.retries[name] != retry{} }) {
			continue
		}
		if reason, message := firstReason(n, p.checkOnlyNode, p.checkCanary, p.checkControlPlane, p.checkManager, p.checkBudget, p.checkZones, p.checkClaims); reason != "" {
			p.waitingNodes++
			p.plan.Queued = true
			p.setNote(n, v1alpha1.RolloutWaiting, reason, message)
			continue
		}
		if claimsOthers && p.isHeldLong(n) {
			// The next pass may cordon the node first. A claim in this pass could only start another pause.
			p.waitingNodes++
			p.plan.Queued = true
			p.keepNote(n)
			continue
		}
		q.count(n.need.profiles[0], p.Now, 1)
		// Nodes that budgets keep come last: no other node can be claimed.
		cordonFirst := !claimsOthers && p.isHeldLong(n) && !slices.ContainsFunc(p.states, (*nodeState).isCordonedFirst)
		claimsOthers = claimsOthers || n.note.HeldSince == nil
		p.claimNode(n, cordonFirst)
	}
}

func (p *planner) claimNode(n *nodeState, cordonFirst bool) {
	claim := p.claimFor(n)
	claim.CordonFirst = cordonFirst
	claim.NodeUID, n.claim = n.UID, &claim
	for _, profile := range n.Profiles {
		delete(p.canaryOrder, profile)
	}
	p.countNode(n, n.budgetUseReason())
	p.addToZones(n)
	p.addStep(AddClaim{OnNode: OnNode{n.Name}, Claim: claim, Options: p.rulesFor(n).Drain})
	p.setNote(n, v1alpha1.RolloutClaimed, v1alpha1.RolloutReasonClaimed, "About to cordon the node")
}

// managerPause is the time after which a pass looks for another node for the manager.
const managerPause = time.Minute

// checkOnlyNode rejects a node while no other node in service can run its pods, or the manager that must return it to service.
func (p *planner) checkOnlyNode(n *nodeState) (reason, message string) {
	isTaken := func(takes func(*Node) bool) bool {
		return slices.ContainsFunc(p.states, func(other *nodeState) bool {
			return other != n && takes(other.Node) && !other.isDisrupted() && !other.hasFailed() && other.unavailabilityReason() == ""
		})
	}
	switch {
	case n.Manager && n.TakesManager && !isTaken(func(other *Node) bool { return other.TakesManager }):
		p.wakeAt(p.Now.Add(managerPause)) // a Pod of the manager that becomes Ready causes no event
		return v1alpha1.RolloutReasonOnlyManagerNode, "No other node in service can run the manager; change the nodeSelector, affinity or " +
			"tolerations of Deployment " + v1alpha1.ManagerDeployment + ", or reboot the node by hand"
	case n.TakesPods && !n.Vacant && !isTaken(func(other *Node) bool { return other.TakesPods }):
		return v1alpha1.RolloutReasonOnlySchedulableNode,
			"No other node in service accepts pods without tolerations, so its pods would be Pending; add a node, or reboot the node by hand"
	}
	return "", ""
}

// checkManager rejects the node of the manager while other nodes can be claimed soon.
func (p *planner) checkManager(manager *nodeState) (reason, message string) {
	if !manager.Manager {
		return "", ""
	}
	otherNodes := lists.Pick(p.states, func(n *nodeState) (string, bool) { return n.Name, n != manager && p.isTurnSoon(n) })
	if len(otherNodes) > 0 {
		return v1alpha1.RolloutReasonManagerNodeLast, "The node of the manager reboots last, after " + text.List(otherNodes)
	}
	return "", ""
}

// isTurnSoon reports whether a node waits for its turn, and a wait of the rollout, rather than of users or of a window, ends before that. A node may
// wait for nodes that are out of service only if the rollout returns one of them.
func (p *planner) isTurnSoon(n *nodeState) bool {
	if n.isDisrupted() || n.unavailabilityReason() != "" {
		return false
	}
	switch p.plan.Notes[n.Name].Reason {
	case v1alpha1.RolloutReasonSettingsChanging, v1alpha1.RolloutReasonApplying:
		return !p.isLate(n)
	case v1alpha1.RolloutReasonWaitingForBudget, v1alpha1.RolloutReasonWaitingForZone, v1alpha1.RolloutReasonWaitingForControlPlane:
		return slices.ContainsFunc(p.states, (*nodeState).isReturning)
	case v1alpha1.RolloutReasonWaitingForCanary:
		return !slices.ContainsFunc(n.need.names, func(name string) bool {
			c, known := p.canaries[n.canaryKey(name)]
			return known && p.isCanaryStuck(n, c)
		})
	}
	return false
}

// isReturning reports whether the rollout disrupts a node, and will return it to service.
func (n *nodeState) isReturning() bool { return n.isDisrupted() && !n.hasFailed() }

// isCanaryStuck reports whether a node waits for a canary none of whose nodes can be claimed soon. So it does while the manager's node is the canary.
func (p *planner) isCanaryStuck(n *nodeState, c canary) bool {
	if len(c.members) > 0 && len(c.pending) == 0 || slices.Contains(c.members, n.Name) {
		return false
	}
	return !slices.ContainsFunc(c.pending, func(name string) bool {
		member := p.find(name)
		isCanary := p.plan.Notes[name].Reason == v1alpha1.RolloutReasonWaitingForCanary
		return !member.Manager && (member.isReturning() || !isCanary && p.isTurnSoon(member))
	})
}

// line is a group of nodes in the queue: first the nodes that serve nothing yet, then the nodes of each profile that leads their reboots, then the
// nodes that budgets keep, and last the node of the manager.
type line struct {
	lineKey
	priority int32
	waiting  []*nodeState
	// claims is the number of claimed nodes of the profile; served is the time of the last claim.
	claims int
	served time.Time
}

type lineKey struct {
	rank    int
	profile string
}

type queue map[lineKey]*line

// newQueue counts the share of the cluster's budget that each profile uses, and finds the last time at which each profile used it. Nodes that are
// in service again have that time in their note, if the note is about the current boot hash.
func (p *planner) newQueue(waiting []*nodeState) queue {
	q := queue{}
	for _, n := range waiting {
		key, priority := lineKey{1, n.need.profiles[0]}, p.profiles[n.need.profiles[0]].Priority
		switch {
		case n.Manager:
			key = lineKey{rank: 3}
		case n.note.HeldSince != nil:
			key = lineKey{rank: 2}
		case n.Vacant:
			key = lineKey{}
		}
		if q[key] == nil {
			q[key] = &line{lineKey: key, priority: priority}
		}
		q[key].waiting = append(q[key].waiting, n)
	}
	for _, n := range p.states {
		switch {
		case n.claim != nil:
			q.count(n.claim.Profile, n.claim.Since.Time, 1)
		case n.usedAttempts() > 0, isBackOff(n.note.Reason):
			for _, name := range n.Profiles {
				q.count(name, n.noteSince(), 0)
			}
		}
	}
	return q
}

func (q queue) count(profile string, at time.Time, claims int) {
	if profileLine := q[lineKey{1, profile}]; profileLine != nil {
		profileLine.claims += claims
		if at.After(profileLine.served) {
			profileLine.served = at
		}
	}
}

// takeNext removes and returns the next node of the queue, nil if there is none. It prefers the profile with the fewest claims, then the profile
// that has waited longest, so that a single slot rotates, then the priority.
func (q queue) takeNext() *nodeState {
	var next *line
	for _, l := range q {
		if len(l.waiting) > 0 && (next == nil || l.compare(next) < 0) {
			next = l
		}
	}
	if next == nil {
		return nil
	}
	n := next.waiting[0]
	next.waiting = next.waiting[1:]
	return n
}

func (l *line) compare(other *line) int {
	return cmp.Or(
		cmp.Compare(l.rank, other.rank), cmp.Compare(l.claims, other.claims), l.served.Compare(other.served),
		cmp.Compare(other.priority, l.priority), cmp.Compare(l.profile, other.profile),
	)
}

func (p *planner) claimFor(n *nodeState) v1alpha1.Disruption {
	claim := v1alpha1.Disruption{Since: metav1.Time{Time: p.Now}, CordonFirst: n.isCordonedFirst()}
	if n.ClientNode != nil {
		claim.BootHash = n.ClientNode.Spec.BootHash
	}
	if names := slices.Concat(n.need.profiles, n.claimingProfile()); len(names) > 0 {
		claim.Profile = names[0]
	}
	return claim
}

// addToZones adds the zone of a node for which other zones must wait.
func (p *planner) addToZones(n *nodeState) {
	for _, name := range n.Profiles {
		if p.occupiesZone(n) && !slices.Contains(p.busy[name], n.zone) {
			p.busy[name] = append(p.busy[name], n.zone)
		}
	}
}

// occupiesZone reports whether other zones must wait for a node. They wait at most ZonePatience for its drain. With a permit, they wait at most for
// the timeouts of drain and boot and for the settle time. They do not wait for a node that has failed or serves nothing yet.
func (p *planner) occupiesZone(n *nodeState) bool {
	if !n.isDisrupted() || n.hasFailed() || n.Vacant {
		return false
	}
	rules := p.rulesFor(n)
	start, limit := n.disruptedSince(), toDuration(rules.Drain.TimeoutSeconds)
	if n.permit != nil {
		limit += toDuration(rules.Reboot.TimeoutSeconds) + toDuration(rules.SettleSeconds)
	} else if limit = min(limit, ZonePatience); n.Mark == nil {
		// The node is cordoned in this pass at the earliest.
		start = p.Now
	}
	return p.isInFuture(start.Add(limit))
}

func (p *planner) checkZones(n *nodeState) (reason, message string) {
	if n.Vacant {
		return "", ""
	}
	for _, name := range n.need.profiles {
		for _, zone := range p.busy[name] {
			busy := "zone " + zone
			if zone == "" {
				busy = "the nodes without a zone"
			}
			if zone != n.zone {
				return v1alpha1.RolloutReasonWaitingForZone, fmt.Sprintf("Waiting for %s to finish (StorageClientProfile %s)", busy, name)
			}
		}
	}
	return "", ""
}
