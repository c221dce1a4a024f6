// Package livegate decides which nodes may apply changed settings now. The canary comes first, then at most the profile's limit at a time. After the
// allowed number of failures, no further node may change. The package has no client and no clock.
package livegate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Node is one of the profile's nodes.
type Node struct {
	Name    string
	Created time.Time
	// Current is the hash of the settings in the StorageClientNode; Managed is false if there is none.
	Current string
	Managed bool
	// Desired is the hash of the desired settings of the node.
	Desired string
	// Alive is true if the node can apply a change now.
	Alive bool
	// Applied is true if the agent has reported the desired settings as applied, or staged, without a failure.
	Applied bool
	// AppliedSince is the time since which the node has been alive with the desired settings; zero if it is not.
	AppliedSince time.Time
	// Failed is true if the agent reported a failure of the desired settings.
	Failed bool
	// Accuser is the storage server whose word alone made the settings fail; empty if there is another witness. Servers are the storage servers
	// that the node mounts from; nil if unknown.
	Accuser string
	Servers *[]v1alpha1.ServerStatus
	// Canary is true if the profile's canary selector selects the node.
	Canary bool
	// SilentSince is the time since which the node's agent has not reported; zero if it reports. NeverStarted is true if the agent has never
	// reported although the node is Ready. If an agent stops reporting after it got the settings, they may be the cause.
	SilentSince  time.Time
	NeverStarted bool
	// Unconfirmed is the reason why the node does not confirm the settings; empty if they are proven, or are being proven.
	Unconfirmed string
	// Empty is true if the node has no workload yet: proven settings on it do not use the limit of the cluster.
	Empty bool
}

// The remedies of users for a wait that does not end on its own.
const (
	checkNodes  = "; check these nodes, or change the settings"
	excludeNode = "; resolve it, or annotate the Node with " + v1alpha1.IgnoreAnnotation + "=true"
)

// LostAfter is the maximum wait for a node whose agent does not start, or that does not get the settings that it must prove.
const LostAfter = 10 * time.Minute

// IsLost reports whether other nodes no longer wait for a node that has not followed since a start; the zero time means that it follows.
func IsLost(start, now time.Time) bool {
	return !start.IsZero() && now.Sub(start) >= LostAfter
}

// IsSilentForLong reports whether the node's agent has not reported for LostAfter.
func (n *Node) IsSilentForLong(now time.Time) bool { return IsLost(n.SilentSince, now) }

// hasDesired reports whether the node has been given the desired settings, hasFailed whether they have failed on it.
func (n *Node) hasDesired() bool { return n.Managed && n.Current == n.Desired }
func (n *Node) hasFailed() bool  { return n.hasDesired() && n.Failed }

// Policy contains the rules of a profile's rollout for changes of settings.
type Policy struct {
	// Canaries is the number of nodes that form the canary, at least 1. It is ignored if Chosen is true.
	Canaries int
	// Chosen is true if the canary consists of the nodes with Canary set, instead of the first nodes.
	Chosen bool
	// Soak is the time for which the canary must stay healthy.
	Soak time.Duration
	// Limit is the number of nodes that apply a change at a time: a number, or a percentage of the nodes.
	Limit intstr.IntOrString
	// FailureThreshold is the number of failed nodes that stops the change, at least 1.
	FailureThreshold int
	// Cluster is the limit for all profiles together; nil: no limit.
	Cluster *Cluster
}

// Cluster is the limit for all profiles together.
type Cluster struct {
	// Limit is the number of nodes of the cluster that may apply a change at a time. Running is the number that do so now, for any profile.
	Limit, Running int
}

// PolicyOf returns the policy of a profile's rollout rules. Their defaults must be set.
func PolicyOf(rollout v1alpha1.Rollout) Policy {
	return Policy{
		Canaries:         int(ptr.Deref(rollout.Canary.Nodes, 0)),
		Chosen:           rollout.Canary.NodeSelector != nil,
		Soak:             time.Duration(*rollout.Canary.SoakSeconds) * time.Second,
		Limit:            *rollout.MaxConcurrentLive,
		FailureThreshold: int(*rollout.FailureThreshold),
	}
}

// Decision contains the nodes that may apply the change, and the reason for every other node.
type Decision struct {
	Admitted map[string]bool
	// Notes contains the reason for every node that must wait.
	Notes map[string]string
	// Next is the time until the next soak ends; 0 if no node soaks.
	Next time.Duration
	// Stuck contains the nodes that do not continue until a user resolves a failure, with a failed node that stops each of them. Stopped is true if
	// the number of failed nodes stops all of them.
	Stuck   map[string]string
	Stopped bool
	// Canaries are the admitted nodes that prove the settings for the others.
	Canaries map[string]bool
	// Disputed are the nodes on which the settings failed by the word of one storage server alone. They do not stop other nodes.
	Disputed map[string]bool
	// Order contains the admitted nodes in order. Queued contains the queue position of the nodes that wait for their turn.
	Order  []string
	Queued map[string]Queue
}

// Queue is the position of a node behind nodes that may apply the change and have not done so yet.
type Queue struct {
	// Ahead is the number of nodes in Order ahead of the node. Nodes from index Group on belong to its own group.
	Ahead, Group int
	// Room is the number of nodes that may apply the change now, GroupRoom the number in its group.
	Room, GroupRoom int
}

// AdmitQueued also admits nodes that wait only behind nodes that another profile blocks: profiles with different orders must not wait for each other.
func (d *Decision) AdmitQueued(isUnblocked func(name string) bool) {
	if len(d.Queued) == 0 {
		return
	}
	// unblocked contains, by position in Order, the number of unblocked nodes ahead.
	unblocked := make([]int, len(d.Order)+1)
	for i, name := range d.Order {
		unblocked[i+1] = unblocked[i]
		if isUnblocked(name) {
			unblocked[i+1]++
		}
	}
	for name, q := range d.Queued {
		if unblocked[q.Ahead] < q.Room && unblocked[q.Ahead]-unblocked[q.Group] < q.GroupRoom {
			d.Admitted[name] = true
			delete(d.Notes, name)
		}
	}
}

// Admit decides for all nodes of a profile. Nodes with equal desired settings form a group, and each group is proven on its members. A canary whose
// settings another profile overrides is no proof for the rest.
//
// A storage server may break the proof of good settings on purpose. Its word alone holds only the nodes that mount from it, and others prove the
// settings. Two servers on two nodes are witnesses of each other.
func Admit(nodes []*Node, policy Policy, now time.Time) Decision {
	g := &gate{policy: policy, now: now, nodes: slices.Clone(nodes), Decision: Decision{
		Admitted: map[string]bool{}, Notes: map[string]string{}, Canaries: map[string]bool{}, Stuck: map[string]string{}, Queued: map[string]Queue{}, Disputed: map[string]bool{},
	}}
	slices.SortFunc(g.nodes, func(a, b *Node) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	g.findDisputed()
	if failed := namesOf(g.nodes, g.hasWitness); len(failed) >= max(policy.FailureThreshold, 1) {
		g.Stopped = true
		g.rejectStuck(g.nodes, failed[0], "stopped; settings failed on "+text.List(failed)+checkNodes)
		return g.Decision
	}
	g.share = v1alpha1.ResolveShare(policy.Limit, len(nodes))
	g.admitGroups()
	if lost := namesOf(g.nodes, g.isLost); len(lost) > 0 {
		for name := range g.Notes {
			g.Notes[name] += fmt.Sprintf("; skipped (agent not started for %d minutes): %s", int(LostAfter.Minutes()), text.List(lost))
		}
	}
	return g.Decision
}

func namesOf(nodes []*Node, matches func(*Node) bool) []string {
	return lists.Each(lists.Filter(nodes, matches), func(node *Node) string { return node.Name })
}

type gate struct {
	Decision
	policy  Policy
	now     time.Time
	nodes   []*Node
	share   int
	running int
	// unconfirmed describes a node that uses up the limit and does not confirm its settings; empty if there is none.
	unconfirmed string
	// holds are the servers whose word alone made the settings of a group fail, by group.
	holds map[string]hold
}

// hold is a server that holds the nodes that mount from it. note is their reason, failed the first node on which the settings failed.
type hold struct{ server, note, failed string }

// findDisputed finds the nodes with a failure that only one server reports. If another server reports it too, on another node, it is none.
func (g *gate) findDisputed() {
	accused := map[string]map[string][]string{}
	for _, node := range g.nodes {
		if !node.hasFailed() || node.Accuser == "" {
			continue
		}
		if accused[node.Desired] == nil {
			accused[node.Desired] = map[string][]string{}
		}
		accused[node.Desired][node.Accuser] = append(accused[node.Desired][node.Accuser], node.Name)
	}
	g.holds = map[string]hold{}
	for desired, byServer := range accused {
		for server, nodes := range byServer {
			if len(byServer) > 1 {
				continue
			}
			g.holds[desired] = hold{server, fmt.Sprintf("stopped; settings failed on %s by the word of storage server %s alone; a node without mounts "+
				"from it must prove them", text.List(nodes), server), nodes[0]}
			for _, name := range nodes {
				g.Disputed[name] = true
			}
		}
	}
}

// hasWitness reports whether the settings have failed on a node, and not by the word of one server alone.
func (g *gate) hasWitness(node *Node) bool { return node.hasFailed() && !g.Disputed[node.Name] }

// isHeld reports whether a node without the settings mounts from the server that alone made them fail.
func (g *gate) isHeld(node *Node) bool {
	h, isHeld := g.holds[node.Desired]
	return isHeld && !node.hasDesired() && node.Servers != nil &&
		slices.ContainsFunc(*node.Servers, func(s v1alpha1.ServerStatus) bool { return s.Server == h.server })
}

// isLost reports whether a node has the desired settings and its agent has not started for so long that the gate no longer waits for it.
func (g *gate) isLost(node *Node) bool {
	return node.hasDesired() && node.NeverStarted && node.IsSilentForLong(g.now)
}

// hasSoaked reports whether a node has been healthy for long enough. If not, it updates Next.
func (g *gate) hasSoaked(node *Node) bool {
	if !node.hasDesired() || !node.Applied || node.AppliedSince.IsZero() {
		return false
	}
	remaining := node.AppliedSince.Add(g.policy.Soak).Sub(g.now)
	g.Next = store.Sooner(g.Next, remaining)
	return remaining <= 0
}

func (g *gate) admitGroups() {
	groups := lists.Group(g.nodes, func(node *Node) string { return node.Desired })
	proven := make([]bool, len(groups))
	for i, group := range groups {
		members, count := g.canaryOf(group)
		proven[i] = len(namesOf(members, g.hasSoaked)) >= count
		g.countRunning(group, proven[i])
	}
	for i, group := range groups {
		if proven[i] {
			g.admitUpTo(group, len(group), g.share, true)
		} else {
			g.admitCanary(group)
		}
	}
}

// canaryOf returns the nodes of a group that prove its settings, and the number of them that must. A chosen node that is not alive and has not
// started is skipped. If no chosen node is left, nodes that already have the settings are sufficient proof.
func (g *gate) canaryOf(all []*Node) (members []*Node, count int) {
	group := slices.DeleteFunc(slices.Clone(all), func(n *Node) bool { return g.isLost(n) || g.Disputed[n.Name] || g.isHeld(n) })
	if !g.policy.Chosen {
		return group, max(min(g.policy.Canaries, len(group)), 1)
	}
	members = slices.DeleteFunc(slices.Clone(group), func(n *Node) bool { return !n.Canary || !n.Alive && !n.hasDesired() })
	if len(members) > 0 {
		return members, len(members)
	}
	return slices.DeleteFunc(group, func(n *Node) bool { return !n.hasDesired() }), 1
}

func (g *gate) admitCanary(group []*Node) {
	members, count := g.canaryOf(group)
	started, failed := namesOf(members, (*Node).hasDesired), namesOf(members, (*Node).hasFailed)
	switch {
	case len(members) == 0 && g.holds[group[0].Desired].note != "":
		g.rejectStuck(group, g.holds[group[0].Desired].failed, g.holds[group[0].Desired].note)
	case len(members) == 0:
		g.reject(group, "waiting for a canary; rollout.canary.nodeSelector selects no Ready node with the same settings")
	case len(started) >= count && len(started)-len(failed) < count:
		g.rejectStuck(group, failed[0], "blocked by the failed canary: "+text.List(failed)+checkNodes)
	case len(started) >= count:
		g.reject(group, fmt.Sprintf("waiting for the canary: %s%s", text.List(started), unconfirmedOf(members)))
	default:
		g.reject(group, "waiting for the canary")
		from := len(g.Order)
		g.admitUpTo(members, count-len(started), max(count, g.share), false)
		for _, name := range g.Order[from:] {
			g.Canaries[name] = true
		}
	}
}

// unconfirmedOf describes the first node that has the settings and does not confirm them; empty if there is none.
func unconfirmedOf(group []*Node) string {
	for _, node := range group {
		if node.hasDesired() && node.Unconfirmed != "" {
			return "; not confirmed on " + node.Name + ": " + node.Unconfirmed + excludeNode
		}
	}
	return ""
}

// countRunning counts the nodes that use up the limit. These nodes have neither applied their settings nor failed. In an unproven group, nodes that
// have not soaked also count. Failed nodes count against the threshold instead.
func (g *gate) countRunning(group []*Node, proven bool) {
	for _, node := range group {
		isRunning := !node.Applied && !node.Failed || !proven && !g.hasSoaked(node)
		if node.hasDesired() && !g.isLost(node) && !g.Disputed[node.Name] && isRunning {
			g.running++
			g.unconfirmed = cmp.Or(g.unconfirmed, unconfirmedOf([]*Node{node}))
		}
	}
}

// admitUpTo admits at most count nodes of a group while fewer than limit are running; the others get a note.
func (g *gate) admitUpTo(group []*Node, count, limit int, proven bool) {
	from := len(g.Order)
	queue := Queue{Group: from, Room: limit - (g.running - from), GroupRoom: count}
	for _, node := range group {
		if node.hasDesired() {
			continue
		}
		note := g.waitReason(node, count-(len(g.Order)-from), limit, proven)
		if note == "" {
			delete(g.Notes, node.Name)
			g.Admitted[node.Name] = true
			g.Order = append(g.Order, node.Name)
			g.running++
			continue
		}
		g.Notes[node.Name] = note
		if node.Alive && !g.isHeld(node) && !g.isClusterFull(node, proven, 0) {
			queue.Ahead = len(g.Order)
			g.Queued[node.Name] = queue
		}
	}
	if g.running < limit {
		return
	}
	for _, node := range group {
		if note, isWaiting := g.Notes[node.Name]; isWaiting && node.Alive {
			g.Notes[node.Name] = note + g.unconfirmed
		}
	}
}

func (g *gate) waitReason(node *Node, remaining, limit int, proven bool) string {
	switch {
	case g.isHeld(node):
		g.Stuck[node.Name] = g.holds[node.Desired].failed
		return g.holds[node.Desired].note
	case !node.Alive:
		return "waiting until the node and its agent are Ready"
	case remaining <= 0:
		return "waiting for the canary"
	case g.running >= limit:
		return fmt.Sprintf("queued; at most %s at a time", text.Count(limit, "node"))
	case g.isClusterFull(node, proven, len(g.Order)):
		return fmt.Sprintf("queued; at most %s in the cluster at a time; see the condition Tuned of the Nodes", text.Count(g.policy.Cluster.Limit, "node"))
	}
	return ""
}

// isClusterFull reports whether the limit of the cluster is reached, given the number of other nodes that may apply the change. A node without
// workload does not use the limit for proven settings.
func (g *gate) isClusterFull(node *Node, proven bool, otherCount int) bool {
	c := g.policy.Cluster
	return c != nil && !(node.Empty && proven) && c.Running+otherCount >= c.Limit
}

func (g *gate) rejectStuck(group []*Node, failed, note string) {
	g.reject(group, note)
	for _, node := range group {
		if !node.hasDesired() {
			g.Stuck[node.Name] = failed
		}
	}
}

func (g *gate) reject(group []*Node, note string) {
	for _, node := range group {
		if !node.hasDesired() {
			g.Notes[node.Name] = note
		}
	}
}
