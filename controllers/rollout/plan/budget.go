package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// budget is one limit and the nodes that use it up.
type budget struct {
	limit, nodes int
	// users contains a sentence for each node, without the name of the node.
	users map[string]string
	// forgiven are nodes that have been unavailable for so long that they do not count.
	forgiven []string
	// foreign contains, for each node that others have taken out of service, how the rollout can continue without it.
	foreign map[string]string
}

// countBudgets counts the nodes that are out of service, in the cluster and for each profile.
func (p *planner) countBudgets() {
	p.cluster, p.budgets = newBudget(p.Budget, len(p.states)), make(map[string]*budget, len(p.profiles))
	for name, profile := range p.profiles {
		nodes := len(p.members[name])
		p.budgets[name] = newBudget(v1alpha1.ResolveShare(*profile.Rollout.MaxUnavailable, nodes), nodes)
	}
	for _, n := range p.states {
		if why := n.whyBudgetUsed(); why != "" {
			p.countNode(n, why)
		}
	}
}

func newBudget(limit, nodes int) *budget {
	return &budget{limit: max(limit, 1), nodes: nodes, users: map[string]string{}, foreign: map[string]string{}}
}

// countNode counts a node that is out of service, unless it has been unavailable for too long to count.
func (p *planner) countNode(n *nodeState, why string) {
	// Nodes that the rollout disrupts, and failed nodes, always count.
	ours := n.isDisrupted() || n.hasFailed()
	end, ends := p.unmanagedEnd(n)
	counts := ours || len(n.Profiles) == 0 && (!ends || p.isAhead(end))
	for _, name := range n.Profiles {
		own := p.budgets[name]
		if own == nil {
			continue
		}
		after := time.Duration(p.profiles[name].Rollout.IgnoreUnavailableAfterSeconds) * time.Second
		if !ours && after > 0 && n.UnavailableSince != nil && !p.isAhead(n.UnavailableSince.Add(after)) {
			own.forgiven = append(own.forgiven, n.Name)
			n.forgiven = append(n.forgiven, name)
			continue
		}
		counts = true
		own.users[n.Name] = why
	}
	if counts {
		p.cluster.users[n.Name] = why
		p.addWayOn(n)
	} else {
		p.cluster.forgiven = append(p.cluster.forgiven, n.Name)
	}
}

// addWayOn describes how the rollout can continue without a node that others have taken out of service.
func (p *planner) addWayOn(n *nodeState) {
	if n.hasFailed() || n.isDisrupted() || n.Deleting || n.Leaving != "" {
		return
	}
	way := "set rollout.ignoreUnavailableAfterSeconds to go on without it"
	if end, ends := p.unmanagedEnd(n); len(n.Profiles) == 0 && ends {
		way = "no profile selects it, so it stops counting at " + formatTime(end)
	} else if len(n.Profiles) == 0 {
		way = "no profile selects it; the manager's --unmanaged-counts-for goes on without it"
	}
	p.cluster.foreign[n.Name] = way
	for _, name := range n.Profiles {
		if own := p.budgets[name]; own != nil {
			own.foreign[n.Name] = way
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

func (n *nodeState) whyBudgetUsed() string {
	switch {
	case n.hasFailed():
		return "has failed"
	case n.isDisrupted():
		return "is rebooting"
	case n.former:
		return "has just been replaced"
	case n.whyUnavailable() != "":
		return "is " + n.unavailableInWords()
	}
	return ""
}

func (b *budget) isSpent() bool { return len(b.users) >= b.limit }

// checkBudget rejects a node while the budget of the cluster, or of a profile that needs its reboot, is used up. Only the messages of the first
// nodes in the queue list the users of the budget. The messages of thousands of nodes must not change with every claim.
func (p *planner) checkBudget(n *nodeState) (reason, message string) {
	const detailed = 3
	spent, whose := (*budget)(nil), ""
	for _, name := range n.need.names {
		if own := p.budgets[name]; own.isSpent() {
			spent, whose = own, "StorageClientProfile "+name
			break
		}
	}
	if p.cluster.isSpent() {
		spent, whose = p.cluster, "the cluster"
	}
	switch {
	case spent == nil:
		return "", ""
	case p.refused >= detailed:
		return v1alpha1.RolloutReasonWaitingForBudget, fmt.Sprintf("Reboot limit of %s reached; at least %d nodes ahead in the queue", whose, detailed)
	}
	return v1alpha1.RolloutReasonWaitingForBudget, fmt.Sprintf("Reboot limit of %s reached (%d of %d nodes): %s", whose, spent.limit, spent.nodes, spent.describeUsers())
}

// describeUsers lists the nodes that use up the budget, the ways to free it, and the nodes that do not count.
func (b *budget) describeUsers() string {
	var users []string
	for name, why := range b.users {
		users = append(users, name+" "+why)
	}
	message := text.List(users)
	switch names := slices.Sorted(maps.Keys(b.foreign)); len(names) {
	case 0:
	case 1:
		message += "; bring " + names[0] + " back, or delete its Node if it will not return; " + b.foreign[names[0]]
	default:
		message += "; bring these nodes back, or delete the Nodes that will not return; " + names[0] + ": " + b.foreign[names[0]]
	}
	if len(b.forgiven) > 0 {
		message += "; not counted, unavailable for too long: " + text.List(b.forgiven)
	}
	return message
}
