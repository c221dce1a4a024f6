// Package plan decides which sets of options are probed, on which nodes, what the results say, and what becomes of StorageClientTrials. It
// has no client and no clock.
//
// There are two ways to a mount that is nobody's: an order for a node's trial runner, in a network namespace of its own, and where that
// cannot be or shows nothing, a clone of a volume, which the volume's driver mounts for a Pod of ours.
//
// Where a trial stands is read from the objects: the label of the Node, spec.trial and status.trial of the client node, and the objects of
// clones. What is remembered beside them may be lost: a manager that starts anew takes up orders and clones that are there, takes labels
// and clones away that nobody needs, and probes again what it has no result of. A probe leaves nothing behind, so that costs a mount and
// nothing else.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxNodes is how many nodes have a probe or a trial at a time.
	maxNodes = 2
	// timeout is how long one trial may take.
	timeout = time.Minute
	// overdue is how much later than that its result is given up: an agent that has gone never tells.
	overdue = time.Minute
	// patience is how long a set of options waits for a probe before a mount by a pod has to show it.
	patience = 10 * time.Minute
	// podDelay is how long a node's trial runner may take to be there at all, runnerDelay to be Ready.
	podDelay    = 20 * time.Second
	runnerDelay = 2 * time.Minute
	// retryRefused is after how long a refused set of options is probed again: a server may have changed.
	retryRefused = time.Hour
	// runAsUser reads the root: nobody, who has no rights of its own on any server.
	runAsUser = 65534
)

// Node is one node, as trials see it.
type Node struct {
	Node *corev1.Node
	// ClientNode is nil where there is none.
	ClientNode *v1alpha1.StorageClientNode
	// Writable is whether the client node may get an order now, Runner how its trial runner stands.
	Writable bool
	Runner   Runner
	// Image is that of its agent, PullSecrets name what it is pulled with.
	Image       string
	PullSecrets []corev1.LocalObjectReference
}

// Runner is how the trial runner of a node stands.
type Runner struct {
	// There is whether its Pod is, Ready whether it is Ready and stays.
	There, Ready bool
}

// Snapshot is all that a plan rests on.
type Snapshot struct {
	Candidates []volumeplan.ProbeCandidate
	// Trials are all that there are, the oldest first: probes come before them.
	Trials []Trial
	// Nodes are all of the cluster, in any order, Clones all that there are.
	Nodes  []Node
	Clones []Clone
	// Servers are those of volumes, as the volumes have them, by the volumes' names.
	Servers map[string]string
	// Refused says why the API server refused to have a clone made, by the label of its objects.
	Refused  map[string]string
	Profiles *fleet.ProfileSet
	Memory   Memory
	Now      time.Time
}

// Memory is what is known beyond the objects. It is never changed.
type Memory struct {
	// Results are what probes have shown.
	Results map[volumeplan.ProbeKey]Result
	// Waiting are the sets that wait for a result.
	Waiting map[volumeplan.ProbeKey]Waiting
	// Choices are the nodes of StorageClientTrials that run.
	Choices map[types.UID]Choice
	// Passing is what is known of those that run by clones.
	Passing map[types.UID]Passing
	// Left is when nodes had the Pod of a clone last. Where it is lost, a clone may come too soon: then its proofs are missing.
	Left map[string]time.Time
}

// Result is what a probe has shown, and when.
type Result struct {
	volumeplan.Probe
	At time.Time
}

// Waiting is since when a set waits, and on which node it is to be probed, chosen when; empty: none.
type Waiting struct {
	Since  time.Time
	Node   string
	Chosen time.Time
	// ByClone is whether a clone is to show it, Failed what its mount said where that leaves open what is to blame: the volume's own list is
	// mounted in the same way then. Cause is the cause of that failure.
	ByClone bool
	Failed  string
	Cause   v1alpha1.MountFailureCause
}

// Step is one thing to write.
type Step interface {
	// NodeName is the node whose objects the step writes. Empty if it writes none of a node.
	NodeName() string
	// String describes the step in a line.
	String() string
}

// SetLabel brings the trial runner to a node, or removes it.
type SetLabel struct {
	Node
	Labelled bool
}

// SetOrder gives a node its order.
type SetOrder struct {
	Node
	// Order is nil where the node's order is removed.
	Order *v1alpha1.NodeTrial
}

// SetSample has a node count what a volume's mounts do.
type SetSample struct {
	Node
	// Sample is nil where the request is removed.
	Sample *v1alpha1.NodeSample
}

// CreateClone creates the objects that a clone holds.
type CreateClone struct{ Clone }

// CollectClone deletes the objects that a clone holds.
type CollectClone struct{ Clone }

// WriteStatus writes the status of a StorageClientTrial.
type WriteStatus struct {
	Trial  *v1alpha1.StorageClientTrial
	Status *v1alpha1.StorageClientTrialStatus
}

// NodeName implements Step.
func (n Node) NodeName() string { return n.Node.Name }

// NodeName implements Step.
func (c Clone) NodeName() string { return "" }

// NodeName implements Step.
func (s WriteStatus) NodeName() string { return "" }

func (s SetLabel) String() string {
	if !s.Labelled {
		return "unlabel " + s.NodeName()
	}
	return "label " + s.NodeName()
}

func (s SetOrder) String() string {
	if s.Order == nil {
		return "clear " + s.NodeName()
	}
	ordered := fmt.Sprintf("order %s: %s:%s %s", s.NodeName(), s.Order.Server, s.Order.Path, strings.Join(s.Order.MountOptions, ","))
	if s.Order.Kind == v1alpha1.TrialTrial {
		ordered += fmt.Sprintf(", %s from round %d", text.Count(len(s.Order.Passes), "pass", "passes"), s.Order.Passes[0].Round)
	}
	return ordered
}

func (s SetSample) String() string {
	if s.Sample == nil {
		return "take the request back from " + s.NodeName()
	}
	return fmt.Sprintf("ask %s for %d s of %s", s.NodeName(), s.Sample.Seconds, s.Sample.Volumes[0])
}

func (s CreateClone) String() string { return "clone " + s.Clone.String() }

func (s CollectClone) String() string { return "collect " + s.Clone.String() }

func (s WriteStatus) String() string {
	return fmt.Sprintf("report %s/%s: %s", s.Trial.Namespace, s.Trial.Name, describeStatus(s.Status))
}

// Plan is what is to be written now, and what to remember.
type Plan struct {
	Steps  []Step
	Memory Memory
	// Busy is whether there is something to look for soon.
	Busy bool
}

// For decides. What it writes of one node is one step: the next is decided by what that has brought.
func For(s Snapshot) Plan {
	p := &planner{
		Snapshot: s, busy: map[string]bool{}, byHash: map[string]volumeplan.ProbeCandidate{}, running: map[volumeplan.ProbeKey]bool{},
		addresses: map[string][]string{}, names: map[string][]string{}, byTrial: map[string]Trial{}, underWay: map[types.UID]bool{}, writes: map[types.UID]bool{}, wanted: map[string]bool{},
		memory: Memory{Results: map[volumeplan.ProbeKey]Result{}, Waiting: map[volumeplan.ProbeKey]Waiting{}, Choices: map[types.UID]Choice{}, Passing: map[types.UID]Passing{}, Left: map[string]time.Time{}},
	}
	for _, t := range s.Trials {
		p.byTrial[t.hash()] = t
		if was, known := s.Memory.Passing[t.UID]; known && !t.isOver() {
			p.memory.Passing[t.UID] = was
		}
	}
	slices.SortFunc(p.Nodes, func(a, b Node) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	for _, c := range s.Candidates {
		p.byHash[hashOf(c)] = c
		if was, known := s.Memory.Results[c.ProbeKey]; known {
			p.memory.Results[c.ProbeKey] = was
		}
	}
	p.rememberNodes()
	for _, n := range p.Nodes {
		p.followOrder(n)
		p.countSample(n)
	}
	for _, clone := range s.Clones {
		p.followClone(clone)
	}
	for _, c := range s.Candidates {
		p.follow(c)
	}
	for _, t := range s.Trials {
		p.advance(t)
	}
	p.takeBackSamples()
	for _, n := range p.Nodes {
		if isLabelled(n.Node) && !p.busy[n.Node.Name] {
			p.steps = append(p.steps, SetLabel{Node: n})
		}
	}
	return Plan{Steps: p.steps, Memory: p.memory, Busy: len(p.memory.Waiting) > 0 || len(p.underWay) > 0 || len(p.memory.Passing) > 0 || p.isClearing || len(p.steps) > 0}
}

type planner struct {
	Snapshot
	memory Memory
	steps  []Step
	// busy are the nodes that have a trial, or are to have one. running are the sets that an order is about.
	busy    map[string]bool
	running map[volumeplan.ProbeKey]bool
	byHash  map[string]volumeplan.ProbeCandidate
	// addresses are those that nodes have of servers, names those under which they have mounted their volumes.
	addresses, names map[string][]string
	// byTrial are the StorageClientTrials by their hashes, underWay those that have an order or a node, writes those whose status is written.
	byTrial          map[string]Trial
	underWay, writes map[types.UID]bool
	// sampling counts the nodes that count for a trial, wanted names those whose sample somebody waits for.
	sampling int
	wanted   map[string]bool
	// beginning counts the trials that are to have an order or a clone; isClearing is whether there is still one that is over.
	beginning  int
	isClearing bool
}

// followOrder takes the result of an order, and takes away what is over or nobody wants any more.
func (p *planner) followOrder(n Node) {
	if n.ClientNode == nil || n.ClientNode.Spec.Trial == nil {
		return
	}
	p.busy[n.Node.Name] = true
	order, status := n.ClientNode.Spec.Trial, n.ClientNode.Status.Trial
	if order.Kind == v1alpha1.TrialTrial {
		p.followWork(n)
		return
	}
	hash, issued := parseID(order.ID)
	c, wanted := p.byHash[hash]
	switch {
	case !wanted:
	case status != nil && status.ID == order.ID && status.Phase != v1alpha1.TrialRunning:
		p.concludeOrder(c, Judge(n.Node.Name, describeOrder(order), c.Target.AsksOtherwise, *status))
	case p.Now.After(issued.Add(timeout + overdue)):
		p.concludeOrder(c, unknown("the agent on "+n.Node.Name+" has not told how a probe ended"))
	default:
		p.running[c.ProbeKey] = true
		p.memory.Waiting[c.ProbeKey] = p.waiting(c)
		return
	}
	p.isClearing = true
	if n.Writable {
		p.steps = append(p.steps, SetOrder{Node: n})
	}
}

// concludeOrder is conclude of a mount in a network namespace of its own. One that shows nothing, since the server refuses that network
// or nobody makes it there, leaves it to a clone.
func (p *planner) concludeOrder(c volumeplan.ProbeCandidate, probe volumeplan.Probe) {
	if probe.Verdict != volumeplan.ProbeUnknown || c.Target.Clone.Obstacle != "" {
		p.conclude(c, probe)
		return
	}
	p.memory.Waiting[c.ProbeKey] = Waiting{Since: p.Now, ByClone: true}
	p.running[c.ProbeKey] = true
}

// conclude keeps what a probe has shown. One that shows nothing does not lift what an earlier one has.
func (p *planner) conclude(c volumeplan.ProbeCandidate, probe volumeplan.Probe) {
	if was := p.memory.Results[c.ProbeKey]; was.Verdict == volumeplan.ProbeRefused && probe.Verdict == volumeplan.ProbeUnknown {
		probe = was.Probe
	}
	p.memory.Results[c.ProbeKey] = Result{Probe: probe, At: p.Now}
	delete(p.memory.Waiting, c.ProbeKey)
}

func unknown(why string) volumeplan.Probe {
	return volumeplan.Probe{Verdict: volumeplan.ProbeUnknown, Text: why}
}

// follow brings a candidate to its order, or says why it gets none.
func (p *planner) follow(c volumeplan.ProbeCandidate) {
	result, known := p.memory.Results[c.ProbeKey]
	again := known && result.Verdict == volumeplan.ProbeRefused && p.Now.After(result.At.Add(retryRefused))
	switch {
	case p.running[c.ProbeKey], known && !again:
		return
	case c.Target.Obstacle != "" && c.Target.Clone.Obstacle != "":
		p.conclude(c, unknown(c.Target.Obstacle+", and "+c.Target.Clone.Obstacle))
		return
	case !slices.ContainsFunc(p.Nodes, func(n Node) bool { return p.isSelected(n.Node, c) }):
		p.conclude(c, unknown("the profile selects no node"))
		return
	}
	w := p.waiting(c)
	if w.ByClone {
		p.followByClone(c, w)
		return
	}
	if w.Node != "" {
		if node, there := p.nodeOf(w.Node); there && p.isUsable(node, c) {
			p.order(c, node, w)
			return
		}
		w.Node = ""
	}
	if p.Now.After(w.Since.Add(patience)) {
		p.conclude(c, unknown("no node with an agent was free for a probe within "+patience.String()))
		return
	}
	if node, found := p.findNode(c, w); found && p.hasRoom() {
		w.Node, w.Chosen = node.Node.Name, p.Now
		p.busy[w.Node] = true
		p.beginning++
		if !isLabelled(node.Node) {
			p.steps = append(p.steps, SetLabel{Node: node, Labelled: true})
		}
	}
	p.memory.Waiting[c.ProbeKey] = w
}

func (p *planner) waiting(c volumeplan.ProbeCandidate) Waiting {
	if w, known := p.Memory.Waiting[c.ProbeKey]; known {
		return w
	}
	return Waiting{Since: p.Now, ByClone: c.Target.Obstacle != ""}
}

// order hands the order over once the trial runner of the chosen node is Ready.
func (p *planner) order(c volumeplan.ProbeCandidate, n Node, w Waiting) {
	since := p.Now.Sub(w.Chosen)
	switch {
	case n.Runner.Ready && isLabelled(n.Node):
		p.steps = append(p.steps, SetOrder{Node: n, Order: orderFor(c, p.Now)})
	case !n.Runner.There && since > podDelay:
		p.concludeOrder(c, unknown(fmt.Sprintf("no Pod of DaemonSet %s came to %s", v1alpha1.TrialDaemonSet, n.Node.Name)))
		return
	case since > runnerDelay:
		p.concludeOrder(c, unknown(fmt.Sprintf("the Pod of DaemonSet %s on %s did not become Ready", v1alpha1.TrialDaemonSet, n.Node.Name)))
		return
	case !isLabelled(n.Node):
		p.steps = append(p.steps, SetLabel{Node: n, Labelled: true})
	}
	p.busy[n.Node.Name] = true
	p.beginning++
	p.memory.Waiting[c.ProbeKey] = w
}

func (p *planner) isSelected(node *corev1.Node, c volumeplan.ProbeCandidate) bool {
	return slices.ContainsFunc(c.Profiles, func(name string) bool {
		profile := p.Profiles.ByName(name)
		return profile != nil && profile.Selects(node)
	})
}

// isFree says whether a node may have a trial: in service, with an agent that answers, and not disrupted by us or anybody.
func isFree(n Node) bool {
	return n.ClientNode != nil && n.ClientNode.Spec.Trial == nil && n.Writable && !n.Node.Spec.Unschedulable
}

// isUsable says whether a node may have the candidate's trial.
func (p *planner) isUsable(n Node, c volumeplan.ProbeCandidate) bool {
	return isFree(n) && p.isSelected(n.Node, c)
}

// hasRoom says whether one more trial may begin.
func (p *planner) hasRoom() bool { return len(p.running)+len(p.underWay)+p.beginning < maxNodes }

// findNode takes a node that bears the label already before others; for a clone, one that has no mount of the server.
func (p *planner) findNode(c volumeplan.ProbeCandidate, w Waiting) (Node, bool) {
	var chosen Node
	found := false
	for _, n := range p.Nodes {
		if p.busy[n.Node.Name] || !p.isUsable(n, c) || w.ByClone && p.mayHaveMounts(n, originOf(c)) {
			continue
		}
		if isLabelled(n.Node) && !w.ByClone {
			return n, true
		}
		if !found {
			chosen, found = n, true
		}
	}
	return chosen, found
}

func (p *planner) nodeOf(name string) (Node, bool) {
	i := slices.IndexFunc(p.Nodes, func(n Node) bool { return n.Node.Name == name })
	if i < 0 || p.busy[name] {
		return Node{}, false
	}
	return p.Nodes[i], true
}

func isLabelled(node *corev1.Node) bool {
	_, labelled := node.Labels[v1alpha1.TrialLabel]
	return labelled
}

func orderFor(c volumeplan.ProbeCandidate, now time.Time) *v1alpha1.NodeTrial {
	return &v1alpha1.NodeTrial{
		ID: fmt.Sprintf("%s-%d", hashOf(c), now.Unix()), Kind: v1alpha1.TrialProbe, Volume: c.Volume.Name,
		Server: c.Target.Server, Path: c.Target.Path, FSType: c.Target.FSType, MountOptions: c.Target.Options, OwnMountOptions: c.Target.Own,
		RunAsUser: runAsUser, TimeoutSeconds: int32(timeout.Seconds()),
	}
}

// hashOf names a candidate in the id of an order. The volume is not part of it: another one of the set does as well.
func hashOf(c volumeplan.ProbeCandidate) string {
	return hex.EncodeToString(digest(c.Set + "\x00" + c.Server))
}

// digest is short: what it names is compared with few others.
func digest(s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return sum[:8]
}

// parseID reads the candidate's hash and the time out of an order's id.
func parseID(id string) (hash string, issued time.Time) {
	hash, at, _ := strings.Cut(id, "-")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return hash, time.Time{}
	}
	return hash, time.Unix(seconds, 0)
}
