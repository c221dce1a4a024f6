package plan

import (
	"fmt"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"

	"github.com/storageclient/operator/tuning/text"
)

// budgets count who is out of service, in the cluster and for each profile.
type budgets struct {
	cluster  budget
	profiles map[string]*budget
	// failed are the failed nodes of each profile.
	failed map[string][]string
}

// budget is one limit and who uses it up.
type budget struct {
	limit, nodes int
	// holders are sentences by node, without the name.
	holders map[string]string
	// forgiven are nodes that have been unavailable for so long that they do not count.
	forgiven []string
}

func (p *planner) countBudgets() budgets {
	out := budgets{
		cluster:  budget{limit: max(p.Budget, 1), nodes: len(p.views), holders: map[string]string{}},
		profiles: make(map[string]*budget, len(p.profiles)),
		failed:   map[string][]string{},
	}
	for name := range p.profiles {
		out.profiles[name] = &budget{holders: map[string]string{}}
	}
	for _, v := range p.views {
		for _, name := range v.Profiles {
			if own := out.profiles[name]; own != nil {
				own.nodes++
			}
			if v.failed() {
				out.failed[name] = append(out.failed[name], v.Name)
			}
		}
		if why := v.disrupted(); why != "" {
			p.count(out, v, why)
		}
	}
	for name, own := range out.profiles {
		own.limit = v1alpha1.ResolveShare(*p.profiles[name].Rollout.MaxUnavailable, own.nodes)
	}
	return out
}

// count enters a node that is out of service, but for those that have been so for longer than a profile minds.
func (p *planner) count(b budgets, v *view, why string) {
	minded := len(v.Profiles) == 0
	for _, name := range v.Profiles {
		own := b.profiles[name]
		if own == nil {
			continue
		}
		if p.forgiven(v, name) {
			own.forgiven = append(own.forgiven, v.Name)
			v.forgiven = append(v.forgiven, name)
			continue
		}
		minded = true
		own.holders[v.Name] = why
	}
	if minded {
		b.cluster.holders[v.Name] = why
	} else {
		b.cluster.forgiven = append(b.cluster.forgiven, v.Name)
	}
}

// forgiven reports whether a node that is out of service through no doing of ours has been so for too long to wait for.
func (p *planner) forgiven(v *view, profile string) bool {
	after := time.Duration(p.profiles[profile].Rollout.IgnoreUnavailableAfterSeconds) * time.Second
	if after == 0 || v.held() || v.failed() || v.UnavailableSince == nil {
		return false
	}
	end := v.UnavailableSince.Add(after)
	if end.After(p.Now) {
		p.wake(end)
		return false
	}
	return true
}

// disrupted says why a node uses up budget, empty if it does not.
func (v *view) disrupted() string {
	switch {
	case v.failed():
		return "has failed"
	case v.held():
		return "is being rebooted"
	case v.unavailable() != "":
		return "is " + inWords(v.unavailable())
	}
	return ""
}

// add enters a node that is claimed in this pass.
func (b budgets) add(v *view) {
	why := v.disrupted()
	b.cluster.holders[v.Name] = why
	for _, name := range v.Profiles {
		if own := b.profiles[name]; own != nil {
			own.holders[v.Name] = why
		}
	}
}

func (b *budget) spent() bool {
	return len(b.holders) >= b.limit
}

// overBudget refuses a node while the cluster's budget, or that of a profile that needs its reboot, is used up. Only the
// head of the line learns who holds it: the message of thousands of nodes must not change with every claim.
func (p *planner) overBudget(v *view, ahead int) (reason, message string) {
	const told = 3
	spent, whose := (*budget)(nil), ""
	for _, name := range v.need.names {
		if own := p.budget.profiles[name]; own.spent() {
			spent, whose = own, "The budget of StorageClientProfile "+name
			break
		}
	}
	if p.budget.cluster.spent() {
		spent, whose = &p.budget.cluster, "The cluster's budget"
	}
	switch {
	case spent == nil:
		return "", ""
	case ahead >= told:
		return v1alpha1.RolloutReasonWaitingForBudget, fmt.Sprintf("%s is used up, and at least %d nodes are before this one", whose, told)
	}
	return v1alpha1.RolloutReasonWaitingForBudget, fmt.Sprintf("%s, %d of %d nodes, is held: %s", whose, spent.limit, spent.nodes, spent.text())
}

// text names the holders, and who does not count.
func (b *budget) text() string {
	var holders []string
	for name, why := range b.holders {
		holders = append(holders, name+" "+why)
	}
	message := text.List(holders)
	if len(b.forgiven) > 0 {
		message += "; unavailable for too long to count: " + text.List(b.forgiven)
	}
	return message
}
