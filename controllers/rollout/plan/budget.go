package plan

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// budgets count who is out of service, in the cluster and for each profile.
type budgets struct {
	cluster  *budget
	profiles map[string]*budget
}

// budget is one limit and who uses it up.
type budget struct {
	limit, nodes int
	// users are sentences by node, without the name.
	users map[string]string
	// forgiven are nodes that have been unavailable for so long that they do not count.
	forgiven []string
	// foreign says of the nodes that others have taken out of service how the rollout can go on without them.
	foreign map[string]string
}

func (p *planner) countBudgets() budgets {
	out := budgets{cluster: newBudget(p.Budget, len(p.states)), profiles: make(map[string]*budget, len(p.profiles))}
	for name, profile := range p.profiles {
		nodes := len(p.members[name])
		out.profiles[name] = newBudget(v1alpha1.ResolveShare(*profile.Rollout.MaxUnavailable, nodes), nodes)
	}
	for _, n := range p.states {
		if why := n.whyBudgetUsed(); why != "" {
			p.countNode(out, n, why)
		}
	}
	return out
}

func newBudget(limit, nodes int) *budget {
	return &budget{limit: max(limit, 1), nodes: nodes, users: map[string]string{}, foreign: map[string]string{}}
}

// countNode enters a node that is out of service, but for those that have been so for too long to count.
func (p *planner) countNode(b budgets, n *nodeState, why string) {
	counts := len(n.Profiles) == 0 && !p.isUnmanagedForgiven(n)
	for _, name := range n.Profiles {
		own := b.profiles[name]
		if own == nil {
			continue
		}
		if p.isForgiven(n, name) {
			own.forgiven = append(own.forgiven, n.Name)
			n.forgiven = append(n.forgiven, name)
			continue
		}
		counts = true
		own.users[n.Name] = why
	}
	if counts {
		b.cluster.users[n.Name] = why
		p.addWayOn(b, n)
	} else {
		b.cluster.forgiven = append(b.cluster.forgiven, n.Name)
	}
}

// addWayOn says how the rollout can go on without a node that others have taken out of service.
func (p *planner) addWayOn(b budgets, n *nodeState) {
	if n.hasFailed() || n.isDisrupted() || n.Deleting || n.Leaving != "" {
		return
	}
	way := "set rollout.ignoreUnavailableAfterSeconds to go on without it"
	if end, ends := p.unmanagedEnd(n); len(n.Profiles) == 0 && ends {
		way = "no profile selects it, so it stops counting at " + formatTime(end)
	} else if len(n.Profiles) == 0 {
		way = "no profile selects it; the manager's --unmanaged-counts-for goes on without it"
	}
	b.cluster.foreign[n.Name] = way
	for _, name := range n.Profiles {
		if own := b.profiles[name]; own != nil {
			own.foreign[n.Name] = way
		}
	}
}

// unmanagedEnd is when a node without a profile that is out of service stops counting, and whether it does.
func (p *planner) unmanagedEnd(n *nodeState) (end time.Time, ends bool) {
	if p.UnmanagedCountFor == 0 || n.UnavailableSince == nil {
		return time.Time{}, false
	}
	return n.UnavailableSince.Add(p.UnmanagedCountFor), true
}

// isUnmanagedForgiven reports whether a node that no profile selects has been out of service for so long that the rollout goes on
// without it. What we disrupted, or what failed, always counts.
func (p *planner) isUnmanagedForgiven(n *nodeState) bool {
	end, ends := p.unmanagedEnd(n)
	if !ends || n.isDisrupted() || n.hasFailed() {
		return false
	}
	if end.After(p.Now) {
		p.wakeAt(end)
		return false
	}
	return true
}

// isForgiven reports whether a node that is out of service through no doing of ours has been so for too long to wait for.
func (p *planner) isForgiven(n *nodeState, profile string) bool {
	after := time.Duration(p.profiles[profile].Rollout.IgnoreUnavailableAfterSeconds) * time.Second
	if after == 0 || n.isDisrupted() || n.hasFailed() || n.UnavailableSince == nil {
		return false
	}
	end := n.UnavailableSince.Add(after)
	if end.After(p.Now) {
		p.wakeAt(end)
		return false
	}
	return true
}

// whyBudgetUsed says why a node uses up budget, empty if it does not.
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

// addNode enters a node that is claimed in this pass.
func (b budgets) addNode(n *nodeState) {
	why := n.whyBudgetUsed()
	b.cluster.users[n.Name] = why
	for _, name := range n.Profiles {
		if own := b.profiles[name]; own != nil {
			own.users[n.Name] = why
		}
	}
}

func (b *budget) isSpent() bool {
	return len(b.users) >= b.limit
}

// checkBudget refuses a node while the cluster's budget, or that of a profile that needs its reboot, is used up. Only the
// head of the queue is told who uses it: the message of thousands of nodes must not change with every claim.
func (p *planner) checkBudget(n *nodeState, refused int) (reason, message string) {
	const detailed = 3
	spent, whose := (*budget)(nil), ""
	for _, name := range n.need.names {
		if own := p.budgets.profiles[name]; own.isSpent() {
			spent, whose = own, "StorageClientProfile "+name
			break
		}
	}
	if p.budgets.cluster.isSpent() {
		spent, whose = p.budgets.cluster, "the cluster"
	}
	switch {
	case spent == nil:
		return "", ""
	case refused >= detailed:
		return v1alpha1.RolloutReasonWaitingForBudget, fmt.Sprintf("Reboot limit of %s reached; at least %d nodes ahead in the queue", whose, detailed)
	}
	return v1alpha1.RolloutReasonWaitingForBudget, fmt.Sprintf("Reboot limit of %s reached (%d of %d nodes): %s", whose, spent.limit, spent.nodes, spent.describeUsers())
}

// describeUsers names the nodes that use the budget up, and those that do not count.
func (b *budget) describeUsers() string {
	var users []string
	for name, why := range b.users {
		users = append(users, name+" "+why)
	}
	message := text.List(users)
	if len(b.foreign) > 0 {
		message += "; " + b.describeWayOn()
	}
	if len(b.forgiven) > 0 {
		message += "; not counted, unavailable for too long: " + text.List(b.forgiven)
	}
	return message
}

// describeWayOn says what would free budget that others use up: bring a node back, take it away, or go on without it.
func (b *budget) describeWayOn() string {
	names := slices.Sorted(maps.Keys(b.foreign))
	if len(names) > 1 {
		return "bring these nodes back, or delete the Nodes that will not return; " + names[0] + ": " + b.foreign[names[0]]
	}
	return "bring " + names[0] + " back, or delete its Node if it will not return; " + b.foreign[names[0]]
}
