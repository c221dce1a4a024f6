package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// budget is one limit and the nodes that use it up.
type budget struct {
	limit, nodes int
	// users contains a sentence for each node, without the name of the node.
	users map[string]string
	// uncounted are nodes without a profile that have been unavailable for so long that they do not count.
	uncounted []string
	// remedies contains, for each node that others have taken out of service, how the rollout can continue without it.
	remedies map[string]string
}

// countBudgets counts the nodes that are out of service, in the cluster and for each profile.
func (p *planner) countBudgets() {
	p.cluster, p.budgets = newBudget(p.Budget, len(p.states)), make(map[string]*budget, len(p.profiles))
	for name, profile := range p.profiles {
		nodes := len(p.members[name])
		p.budgets[name] = newBudget(v1alpha1.ResolveShare(*profile.Rollout.MaxUnavailable, nodes), nodes)
	}
	for _, n := range p.states {
		if reason := n.budgetUseReason(); reason != "" {
			p.countNode(n, reason)
		}
	}
}

func newBudget(limit, nodes int) *budget {
	return &budget{limit: max(limit, 1), nodes: nodes, users: map[string]string{}, remedies: map[string]string{}}
}

// countNode counts a node that is out of service. Only a node without a profile stops counting, after a time, and only if the rollout has neither
// disrupted it nor let it fail.
func (p *planner) countNode(n *nodeState, reason string) {
	end, ends := p.unmanagedEnd(n)
	if len(n.Profiles) == 0 && !n.isDisrupted() && !n.hasFailed() && ends && !p.isInFuture(end) {
		p.cluster.uncounted = append(p.cluster.uncounted, n.Name)
		return
	}
	for _, name := range n.Profiles {
		if profileBudget := p.budgets[name]; profileBudget != nil {
			profileBudget.users[n.Name] = reason
		}
	}
	p.cluster.users[n.Name] = reason
	p.addRemedy(n)
}

// addRemedy describes how the rollout can continue without a node that others have taken out of service.
func (p *planner) addRemedy(n *nodeState) {
	if n.hasFailed() || n.isDisrupted() {
		return
	}
	remedy := "bring " + n.Name + " back, or delete its Node if it will not return"
	switch {
	case n.Deleting:
		remedy = "if the Node stays, remove its finalizers"
	case n.isLeaving():
		kind, _, _ := strings.Cut(n.leavingMark(), " ")
		remedy = "if the node is not removed, remove the " + kind
	}
	if end, ends := p.unmanagedEnd(n); len(n.Profiles) == 0 && ends {
		remedy += "; no profile selects it, so it stops counting at " + formatTime(end)
	} else if len(n.Profiles) == 0 {
		remedy += "; no profile selects it; set the manager's --unmanaged-counts-for to continue without it"
	}
	p.cluster.remedies[n.Name] = remedy
	for _, name := range n.Profiles {
		if profileBudget := p.budgets[name]; profileBudget != nil {
			profileBudget.remedies[n.Name] = remedy
		}
	}
}

// unmanagedEnd returns the time at which an unavailable node without a profile stops counting. ends is false if it never does.
func (p *planner) unmanagedEnd(n *nodeState) (end time.Time, ends bool) {
	if p.UnmanagedCountFor == 0 || n.UnavailableSince == nil {
		return time.Time{}, false
	}
	return n.UnavailableSince.Add(p.UnmanagedCountFor), true
}

func (n *nodeState) budgetUseReason() string {
	switch {
	case n.hasFailed():
		return "has failed"
	case n.isDisrupted():
		return "is rebooting"
	case n.isReplaced:
		return "has just been replaced"
	case n.unavailabilityReason() != "":
		return "is " + n.describeUnavailability()
	}
	return ""
}

func (b *budget) isSpent() bool { return len(b.users) >= b.limit }

// checkBudget rejects a node while the budget of the cluster, or of a profile that needs its reboot, is used up. Only the messages of the first
// nodes in the queue list the users of the budget. The messages of thousands of nodes must not change with every claim.
func (p *planner) checkBudget(n *nodeState) (reason, message string) {
	const detailed = 3
	spent, owner := (*budget)(nil), ""
	for _, name := range n.need.names {
		if profileBudget := p.budgets[name]; profileBudget.isSpent() {
			spent, owner = profileBudget, "StorageClientProfile "+name
			break
		}
	}
	if p.cluster.isSpent() {
		spent, owner = p.cluster, "the cluster"
	}
	switch {
	case spent == nil:
		return "", ""
	case p.waitingNodes >= detailed:
		return v1alpha1.RolloutReasonWaitingForBudget, fmt.Sprintf("Reboot limit of %s reached; at least %d nodes ahead in the queue", owner, detailed)
	}
	return v1alpha1.RolloutReasonWaitingForBudget, fmt.Sprintf("Reboot limit of %s reached (%d of %d nodes): %s",
		owner, spent.limit, spent.nodes, spent.describeUsers())
}

const (
	// The maximum size of all claims with their permits, for another claim, and for another permit with all its fields. A ConfigMap may have 1 MiB.
	maxClaimBytes, maxPermitBytes = 800 << 10, 1000 << 10

	noRoom = "ConfigMap " + v1alpha1.BudgetConfigMap + " has no room for another claim until a node is back in service"
)

// checkClaims rejects a node while the ConfigMap of claims has no room for its claim and its permit.
func (p *planner) checkClaims(n *nodeState) (reason, message string) {
	if p.takeRoom(n, p.claimFor(n), maxClaimBytes) {
		return "", ""
	}
	return v1alpha1.RolloutReasonWaitingForBudget, noRoom
}

// takeRoom reports whether all claims with their permits stay below a limit if the node gets this claim, and counts it then.
func (p *planner) takeRoom(n *nodeState, claim v1alpha1.Disruption, limit int) bool {
	if p.claimBytes == 0 {
		for name, claim := range p.Claims {
			p.claimBytes += p.bytesOf(cmp.Or(p.find(name), &nodeState{Node: &Node{Name: name}}), claim)
		}
	}
	size := p.claimBytes + p.bytesOf(n, claim)
	if n.claim != nil {
		size -= p.bytesOf(n, *n.claim)
	}
	if size <= limit {
		p.claimBytes = size
	}
	return size <= limit
}

// bytesOf returns the size of a claim once it has a permit.
func (p *planner) bytesOf(n *nodeState, claim v1alpha1.Disruption) int {
	if claim.NodeUID = n.UID; claim.Permit == nil {
		claim.Permit = p.permitOf(n, claim.BootHash)
	}
	return len(n.Name) + len(claim.Encode())
}

// describeUsers lists the nodes that use up the budget, the ways to free it, and the nodes that do not count.
func (b *budget) describeUsers() string {
	message := text.List(lists.Each(slices.Collect(maps.Keys(b.users)), func(name string) string { return name + " " + b.users[name] }))
	switch names := slices.Sorted(maps.Keys(b.remedies)); len(names) {
	case 0:
	case 1:
		message += "; " + b.remedies[names[0]]
	default:
		message += "; " + names[0] + ": " + b.remedies[names[0]]
	}
	if len(b.uncounted) > 0 {
		message += "; not counted, unavailable for too long: " + text.List(b.uncounted)
	}
	return message
}
