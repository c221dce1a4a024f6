// Package livegate decides which nodes may take changed settings now: the canary first, then no more at a time
// than the profile's limit, and none after as many failures as it allows. It has no client and no clock.
package livegate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// Node is one of the profile's nodes.
type Node struct {
	Name    string
	Created time.Time
	// Carries is the hash of the settings that the client node holds; Managed is false where there is none.
	Carries string
	Managed bool
	// Wanted is the hash of the settings that the node is to have.
	Wanted string
	// Alive is whether the node can take a change now.
	Alive bool
	// Taken is whether the agent has reported the wanted settings as applied, or staged, without a failure.
	Taken bool
	// TakenSince is since when the node has been alive with the wanted settings; zero where it is not.
	TakenSince time.Time
	// Failed is whether the agent reported a failure of the wanted settings.
	Failed bool
	// Canary is whether the profile's canary selector selects the node.
	Canary bool
	// SilentSince is since when the node's agent does not report; zero where it does. NeverStarted is whether it never has, though
	// the node is Ready: one that went silent after it got the settings may be what they did.
	SilentSince  time.Time
	NeverStarted bool
	// Unconfirmed says why the settings cannot be proven on the node now; empty where they are, or are being proven.
	Unconfirmed string
	// Empty is whether no work has come to the node yet: it takes no place of the cluster's.
	Empty bool
}

// LostAfter is how long nobody waits longer for a node whose agent does not start.
const LostAfter = 10 * time.Minute

// IsSilentForLong reports whether the node's agent has not reported for LostAfter.
func (n *Node) IsSilentForLong(now time.Time) bool {
	return !n.SilentSince.IsZero() && now.Sub(n.SilentSince) >= LostAfter
}

// hasWanted reports whether the node has been given the wanted settings, hasFailed whether they have failed on it.
func (n *Node) hasWanted() bool { return n.Managed && n.Carries == n.Wanted }
func (n *Node) hasFailed() bool { return n.hasWanted() && n.Failed }

// Policy is what a profile's rollout says about changes of settings.
type Policy struct {
	// Canaries is how many nodes form the canary, at least 1. It has no meaning where Chosen is set.
	Canaries int
	// Chosen is whether the canary are the nodes that are marked so, instead of the first ones.
	Chosen bool
	// Soak is how long the canary has to stay well.
	Soak time.Duration
	// Limit is how many nodes take a change at a time: a number, or a percentage of the nodes.
	Limit intstr.IntOrString
	// FailureThreshold is how many failed nodes end it, at least 1.
	FailureThreshold int
	// Cluster is what all profiles together keep to; nil: nothing.
	Cluster *Cluster
}

// Cluster is what all profiles together keep to.
type Cluster struct {
	// Limit is how many nodes of the cluster take a change at a time, Running how many do now, whatever profile they belong to.
	Limit, Running int
}

// PolicyOf reads a profile's rules, whose defaults are filled in.
func PolicyOf(rollout v1alpha1.Rollout) Policy {
	return Policy{
		Canaries:         int(ptr.Deref(rollout.Canary.Nodes, 0)),
		Chosen:           rollout.Canary.NodeSelector != nil,
		Soak:             time.Duration(*rollout.Canary.SoakSeconds) * time.Second,
		Limit:            *rollout.MaxConcurrentLive,
		FailureThreshold: int(*rollout.FailureThreshold),
	}
}

// Decision says who may go, and for everybody else why not.
type Decision struct {
	Admitted map[string]bool
	// Notes says of every node that has to wait what it waits for.
	Notes map[string]string
	// Next is how long until the next soak is over; 0 where nothing soaks.
	Next time.Duration
	// Stuck are those that wait for a canary that has failed: they go no more before somebody has seen to it.
	Stuck map[string]bool
	// Canaries are those of the admitted that prove the settings for the others.
	Canaries map[string]bool
	// Order is in which order the admitted were, and Queued holds of those that wait for their turn what they wait behind.
	Order  []string
	Queued map[string]Queue
}

// Queue is what a node waits behind: nodes that may go and have not gone yet.
type Queue struct {
	// Ahead are the first so many of the order, of which those from Group on are of its own group.
	Ahead, Group int
	// Room is how many of all may go now, GroupRoom how many of its group.
	Room, GroupRoom int
}

// AdmitQueued also lets those go that wait only behind nodes that cannot go, because of another profile: two profiles whose
// orders differ would else wait for each other for ever.
func (d *Decision) AdmitQueued(canGo func(name string) bool) {
	if len(d.Queued) == 0 {
		return
	}
	going := make([]int, len(d.Order)+1)
	for i, name := range d.Order {
		going[i+1] = going[i]
		if canGo(name) {
			going[i+1]++
		}
	}
	for name, q := range d.Queued {
		if going[q.Ahead] < q.Room && going[q.Ahead]-going[q.Group] < q.GroupRoom {
			d.Admitted[name] = true
			delete(d.Notes, name)
		}
	}
}

// Admit decides for all of a profile's nodes. Nodes with equal wanted settings form a group, and each group is
// proven on nodes of its own, so that a canary that another profile overrides proves nothing for the rest.
func Admit(nodes []Node, policy Policy, now time.Time) Decision {
	gate := &gate{policy: policy, now: now, nodes: make([]*Node, 0, len(nodes)), Decision: Decision{
		Admitted: map[string]bool{}, Notes: map[string]string{}, Canaries: map[string]bool{}, Stuck: map[string]bool{}, Queued: map[string]Queue{},
	}}
	for i := range nodes {
		gate.nodes = append(gate.nodes, &nodes[i])
	}
	slices.SortFunc(gate.nodes, func(a, b *Node) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	if failed := namesOf(gate.nodes, (*Node).hasFailed); len(failed) >= max(policy.FailureThreshold, 1) {
		gate.refuse(gate.nodes, fmt.Sprintf("stopped, settings failed on %s", text.List(failed)))
		return gate.Decision
	}
	gate.share = v1alpha1.ResolveShare(policy.Limit, len(nodes))
	gate.admitGroups()
	if lost := namesOf(gate.nodes, gate.isLost); len(lost) > 0 {
		for name := range gate.Notes {
			gate.Notes[name] += fmt.Sprintf("; passed over, agent not started for %d minutes: %s", int(LostAfter.Minutes()), text.List(lost))
		}
	}
	return gate.Decision
}

func namesOf(nodes []*Node, is func(*Node) bool) []string {
	var names []string
	for _, node := range nodes {
		if is(node) {
			names = append(names, node.Name)
		}
	}
	return names
}

type gate struct {
	Decision
	policy  Policy
	now     time.Time
	nodes   []*Node
	share   int
	running int
}

// isLost reports whether a node has the wanted settings and its agent has not started for too long to be waited for.
func (g *gate) isLost(node *Node) bool {
	return node.hasWanted() && node.NeverStarted && node.IsSilentForLong(g.now)
}

// hasSoaked reports whether a node has stayed well for long enough, and remembers when it will have.
func (g *gate) hasSoaked(node *Node) bool {
	if !node.hasWanted() || !node.Taken || node.TakenSince.IsZero() {
		return false
	}
	left := node.TakenSince.Add(g.policy.Soak).Sub(g.now)
	if left > 0 && (g.Next == 0 || left < g.Next) {
		g.Next = left
	}
	return left <= 0
}

func (g *gate) admitGroups() {
	var order []string
	groups := map[string][]*Node{}
	for _, node := range g.nodes {
		if _, seen := groups[node.Wanted]; !seen {
			order = append(order, node.Wanted)
		}
		groups[node.Wanted] = append(groups[node.Wanted], node)
	}
	proven := map[string]bool{}
	for _, wanted := range order {
		members, count := g.canaryOf(groups[wanted])
		proven[wanted] = len(namesOf(members, g.hasSoaked)) >= count
		g.countRunning(groups[wanted], proven[wanted])
	}
	for _, wanted := range order {
		if group := groups[wanted]; proven[wanted] {
			g.admitUpTo(group, len(group), g.share, true)
		} else {
			g.admitCanary(group)
		}
	}
}

// canaryOf is which nodes of a group prove its settings, and how many of them have to. A chosen node that is not alive and
// has not begun is passed over; where no chosen one is left, those that carry the settings already are proof enough.
func (g *gate) canaryOf(all []*Node) (members []*Node, count int) {
	group := slices.DeleteFunc(slices.Clone(all), g.isLost)
	if !g.policy.Chosen {
		return group, max(min(g.policy.Canaries, len(group)), 1)
	}
	members = slices.DeleteFunc(slices.Clone(group), func(n *Node) bool { return !n.Canary || !n.Alive && !n.hasWanted() })
	if len(members) > 0 {
		return members, len(members)
	}
	return slices.DeleteFunc(group, func(n *Node) bool { return !n.hasWanted() }), 1
}

// admitCanary lets the canary of a group go, and nobody else.
func (g *gate) admitCanary(group []*Node) {
	members, count := g.canaryOf(group)
	begun, failed := namesOf(members, (*Node).hasWanted), namesOf(members, (*Node).hasFailed)
	switch {
	case len(members) == 0:
		g.refuse(group, "waiting for a canary: rollout.canary.nodeSelector selects no Ready node that gets the same settings")
	case len(begun) >= count && len(begun)-len(failed) < count:
		g.refuse(group, "waiting for a canary that has failed: "+text.List(failed))
		for _, node := range group {
			g.Stuck[node.Name] = !node.hasWanted()
		}
	case len(begun) >= count:
		g.refuse(group, fmt.Sprintf("waiting for the canary: %s%s", text.List(begun), unconfirmedOf(members)))
	default:
		g.refuse(group, "waiting for the canary")
		from := len(g.Order)
		g.admitUpTo(members, count-len(begun), max(count, g.share), false)
		for _, name := range g.Order[from:] {
			g.Canaries[name] = true
		}
	}
}

func unconfirmedOf(group []*Node) string {
	for _, node := range group {
		if node.hasWanted() && node.Unconfirmed != "" {
			return "; not confirmed on " + node.Name + ": " + node.Unconfirmed
		}
	}
	return ""
}

// countRunning counts the nodes that use up the limit: those that have neither taken their settings nor failed, and in a group
// that is not proven also those that have not soaked. Failed ones count against the threshold.
func (g *gate) countRunning(group []*Node, proven bool) {
	for _, node := range group {
		isRunning := !node.Taken && !node.Failed || !proven && !g.hasSoaked(node)
		if node.hasWanted() && !g.isLost(node) && isRunning {
			g.running++
		}
	}
}

// admitUpTo lets at most count nodes of a group go while fewer than limit are running; the others get a note.
func (g *gate) admitUpTo(group []*Node, count, limit int, proven bool) {
	from := len(g.Order)
	queue := Queue{Group: from, Room: limit - (g.running - from), GroupRoom: count}
	for _, node := range group {
		if node.hasWanted() {
			continue
		}
		note := g.whyNotNow(node, count-(len(g.Order)-from), limit, proven)
		if note == "" {
			delete(g.Notes, node.Name)
			g.Admitted[node.Name] = true
			g.Order = append(g.Order, node.Name)
			g.running++
			continue
		}
		g.Notes[node.Name] = note
		if node.Alive && !g.isClusterFull(node, proven, 0) {
			queue.Ahead = len(g.Order)
			g.Queued[node.Name] = queue
		}
	}
	if g.running < limit {
		return
	}
	unconfirmed := unconfirmedOf(g.nodes)
	for _, node := range group {
		if note, waits := g.Notes[node.Name]; waits && node.Alive {
			g.Notes[node.Name] = note + unconfirmed
		}
	}
}

func (g *gate) whyNotNow(node *Node, left, limit int, proven bool) string {
	switch {
	case !node.Alive:
		return "waiting until the node and its agent are Ready"
	case left <= 0:
		return "waiting for the canary"
	case g.running >= limit:
		return fmt.Sprintf("waiting for its turn, at most %s at a time", text.Count(limit, "node"))
	case g.isClusterFull(node, proven, len(g.Order)):
		return fmt.Sprintf("waiting for its turn, at most %s of the cluster at a time", text.Count(g.policy.Cluster.Limit, "node"))
	}
	return ""
}

// isClusterFull reports whether the cluster has no place for a node beside as many others that may go. A node without work takes
// none for values that are proven.
func (g *gate) isClusterFull(node *Node, proven bool, others int) bool {
	c := g.policy.Cluster
	return c != nil && !(node.Empty && proven) && c.Running+others >= c.Limit
}

func (g *gate) refuse(group []*Node, note string) {
	for _, node := range group {
		if !node.hasWanted() {
			g.Notes[node.Name] = note
		}
	}
}
