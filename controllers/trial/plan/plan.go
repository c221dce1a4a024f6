// Package plan decides which option sets are probed, on which nodes, and with which results. It also decides on the progress of StorageClientTrials.
// It uses neither a client nor a clock.
//
// The isolated mounts of probes and trials are orders for a node's trial runner, in a separate network namespace. A volume that cannot be mounted
// there has neither a probe nor a trial that mounts. The first mount by a pod shows whether its options work.
//
// The objects hold the state of a trial: the label of the Node, and spec.trial and status.trial of the StorageClientNode. All other state may be lost.
// A manager that restarts continues existing orders, removes labels that are not needed, and repeats probes without a result. A probe leaves nothing
// behind, so a repetition only costs a mount.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/clocktime"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/volume/optionset"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxNodes is the maximum number of nodes with a probe or a trial at a time.
	maxNodes = 2
	// timeout is the maximum duration of one trial.
	timeout = time.Minute
	// overdue is the additional time before a missing result counts as lost: a removed agent never reports.
	overdue = time.Minute
	// maxProbeWait is the maximum time that an option set waits for a probe. After that, only a mount by a pod can be evidence.
	maxProbeWait = 10 * time.Minute
	// maxProbe is the maximum time for all mounts of a probe together, whatever prevents its result.
	maxProbe = time.Hour
	// podDelay is the maximum time until a node's trial runner exists, runnerDelay until it is Ready.
	podDelay    = 20 * time.Second
	runnerDelay = 2 * time.Minute
	// rejectedRetryDelay is the time after which a rejected option set is probed again: the server may have changed.
	rejectedRetryDelay = time.Hour
	// runAsUser is the user that reads the root: the account nobody, which has no rights on any server.
	runAsUser = 65534
)

// Node is a node with the state that trials need.
type Node struct {
	Node *corev1.Node
	// ClientNode is the StorageClientNode. Nil if there is none.
	ClientNode *v1alpha1.StorageClientNode
	// Writable is true if the StorageClientNode may get an order now. Runner is the state of its trial runner.
	Writable bool
	Runner   Runner
}

// Runner is the state of a node's trial runner.
type Runner struct {
	// Exists is true if its Pod exists, Ready if the Pod is Ready and not being deleted.
	Exists, Ready bool
}

// Snapshot is the input of a plan.
type Snapshot struct {
	Candidates []volumeplan.ProbeCandidate
	// Trials are all trials, oldest first. Probes take precedence.
	Trials []Trial
	// Nodes are all nodes of the cluster, in any order.
	Nodes []Node
	// Failure is the message of the writes that failed in the last pass. Empty if there were none.
	Failure  string
	Profiles *fleet.ProfileSet
	Memory   Memory
	Now      time.Time
}

// Memory is the state that the objects do not contain. It is immutable.
type Memory struct {
	Results map[volumeplan.ProbeKey]Result
	// Waiting are the sets that wait for a result.
	Waiting map[volumeplan.ProbeKey]Waiting
	// Choices are the nodes of StorageClientTrials that run.
	Choices map[types.UID]Choice
	// LostTurns are the reasons why the last orders of StorageClientTrials had no result.
	LostTurns map[types.UID]string
	// Turns are the starts of the last turns, by queue.
	Turns map[string]time.Time
}

// Result is the result of a probe, with its time.
type Result struct {
	volumeplan.Probe
	At time.Time
}

// Waiting is a set that waits since a given time, with the chosen node. Node is empty before the choice.
type Waiting struct {
	// Started is the start of the probe, Since the start of its current mount.
	Started time.Time
	Since   time.Time
	Node    string
	Chosen  time.Time
	// First is a mount that worked, on the first node. A node may lie: another one must confirm it.
	First volumeplan.Probe
}

// Step is one write.
type Step interface {
	// Subject returns the name of the Node or the StorageClientTrial that the step changes.
	Subject() string
}

// SetLabel adds the label that places a trial runner on a node, or removes it.
type SetLabel struct {
	Node
	Labelled bool
}

// SetOrder sets or removes the order of a node.
type SetOrder struct {
	Node
	// Order is nil to remove the order.
	Order *v1alpha1.NodeTrial
}

// SetSample requests a sample of a volume's mounts from a node, or removes the request.
type SetSample struct {
	Node
	// Sample is nil to remove the request.
	Sample *v1alpha1.NodeSample
}

// WriteStatus writes the status of a StorageClientTrial.
type WriteStatus struct {
	Trial  *v1alpha1.StorageClientTrial
	Status *v1alpha1.StorageClientTrialStatus
}

// Subject implements Step.
func (n Node) Subject() string { return n.Node.Name }

// Subject implements Step.
func (s WriteStatus) Subject() string { return s.Trial.Namespace + "/" + s.Trial.Name }

// Plan contains the next writes and the new Memory.
type Plan struct {
	Steps  []Step
	Memory Memory
	// Busy is true if the next pass must come soon.
	Busy bool
}

// For decides on the next writes. It plans at most one step per node: the next one depends on its result.
func For(s Snapshot) Plan {
	p := &planner{
		Snapshot:       s,
		busy:           map[string]bool{},
		running:        map[volumeplan.ProbeKey]bool{},
		byHash:         map[string]volumeplan.ProbeCandidate{},
		byTrial:        map[string]Trial{},
		active:         map[types.UID]bool{},
		writes:         map[types.UID]bool{},
		queued:         map[types.UID]bool{},
		samples:        map[string]int{},
		observers:      map[string]bool{},
		awaitedSamples: map[string]bool{},
		memory: Memory{
			Results:   map[volumeplan.ProbeKey]Result{},
			Waiting:   map[volumeplan.ProbeKey]Waiting{},
			Choices:   map[types.UID]Choice{},
			LostTurns: map[types.UID]string{},
			Turns:     map[string]time.Time{},
		},
	}
	for _, t := range s.Trials {
		p.byTrial[t.hash()] = t
		if reason, lost := s.Memory.LostTurns[t.UID]; lost && !t.isOver() {
			p.memory.LostTurns[t.UID] = reason
		}
	}
	slices.SortFunc(p.Nodes, func(a, b Node) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	for _, c := range s.Candidates {
		p.byHash[hashOf(c)] = c
		if previous, known := s.Memory.Results[c.ProbeKey]; known {
			p.memory.Results[c.ProbeKey] = previous
		}
	}
	for key, previous := range s.Memory.Results {
		// Their profiles report the reason after the first volume has the options.
		if previous.Verdict == optionset.ProbeInconclusive && s.Now.Before(previous.At.Add(maxProbe)) {
			p.memory.Results[key] = previous
		}
	}
	p.recordTurns()
	for _, n := range p.Nodes {
		p.followOrder(n)
		p.countSample(n)
	}
	for _, c := range s.Candidates {
		p.follow(c)
		p.limit(c)
	}
	for _, t := range p.queue() {
		p.advance(t)
	}
	p.clearSamples()
	for _, n := range p.Nodes {
		if isLabelled(n.Node) && !p.busy[n.Node.Name] {
			p.steps = append(p.steps, SetLabel{Node: n})
		}
	}
	isBusy := len(p.memory.Waiting) > 0 || len(p.active) > 0 || p.isClearing || len(p.steps) > 0
	return Plan{Steps: p.steps, Memory: p.memory, Busy: isBusy}
}

type planner struct {
	Snapshot
	memory Memory
	steps  []Step
	// busy are the nodes that have or get a trial. running are the sets with an order.
	busy    map[string]bool
	running map[volumeplan.ProbeKey]bool
	byHash  map[string]volumeplan.ProbeCandidate
	// byTrial are the StorageClientTrials by hash. active are the trials with an order or a node. writes are the trials with a planned status.
	byTrial        map[string]Trial
	active, writes map[types.UID]bool
	// queued are the trials that wait for others. excess is the number of reports about trials without a place in the queue.
	queued map[types.UID]bool
	excess int
	// sampling is the number of nodes with a sample in progress, samples by queue. awaitedSamples are the nodes with a sample that a trial waits for.
	sampling int
	samples  map[string]int
	// observers are the namespaces with an unfinished trial that observes.
	observers      map[string]bool
	awaitedSamples map[string]bool
	// starting is the number of trials about to get an order. isClearing is true while a finished order still exists.
	starting   int
	isClearing bool
}

// followOrder records the result of an order, and removes an order that is finished or no longer needed.
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
	c, isKnown := p.byHash[hash]
	switch {
	case !isKnown:
	case status != nil && status.ID == order.ID && status.Phase != v1alpha1.TrialRunning:
		p.conclude(c, EvaluateProbe(n.Node.Name, describeOrder(order), *status))
	case p.Now.After(issued.Add(timeout + overdue)), clocktime.IsAhead(issued, p.Now):
		p.conclude(c, unknown("the agent on "+n.Node.Name+" did not report the result of a probe"))
	default:
		p.running[c.ProbeKey] = true
		p.memory.Waiting[c.ProbeKey] = p.waiting(c)
		return
	}
	p.clearOrder(n)
}

// clearOrder removes an order. The runner's network namespace may still have the sysctls of the order, even if the runner died. The order stays until
// the Pod with that namespace is gone, so that no other work gets it, whatever the manager forgets.
func (p *planner) clearOrder(n Node) {
	p.isClearing = true
	hasChanged := len(n.ClientNode.Spec.Trial.Sysctls) > 0
	switch {
	case hasChanged && isLabelled(n.Node):
		p.steps = append(p.steps, SetLabel{Node: n})
	case hasChanged && n.Runner.Exists:
	case n.Writable:
		p.steps = append(p.steps, SetOrder{Node: n})
	}
}

// conclude records the result of a probe. A mount that worked on one node counts once another node confirms it. A probe without a result does not
// replace an earlier rejection.
func (p *planner) conclude(c volumeplan.ProbeCandidate, probe volumeplan.Probe) {
	w := p.waiting(c)
	switch {
	case probe.Verdict == optionset.ProbeWorked && w.First.Node == "":
		p.memory.Waiting[c.ProbeKey] = Waiting{Since: p.Now, First: probe}
		p.running[c.ProbeKey] = true
		return
	case probe.Verdict == optionset.ProbeWorked:
		probe.Text = w.First.Text + ", and " + probe.Node + " confirmed it"
	case probe.Verdict == optionset.ProbeInconclusive && w.First.Node != "":
		probe.Text = w.First.Text + ", but no other node confirmed it: " + probe.Text
	}
	if previous := p.memory.Results[c.ProbeKey]; previous.Verdict == optionset.ProbeRefused && probe.Verdict == optionset.ProbeInconclusive {
		probe = previous.Probe
	}
	p.memory.Results[c.ProbeKey] = Result{Probe: probe, At: p.Now}
	delete(p.memory.Waiting, c.ProbeKey)
}

func unknown(reason string) volumeplan.Probe {
	return volumeplan.Probe{Verdict: optionset.ProbeInconclusive, Text: reason}
}

// follow advances a candidate to its order, or records why it gets none.
func (p *planner) follow(c volumeplan.ProbeCandidate) {
	result, known := p.memory.Results[c.ProbeKey]
	isRetryDue := known && result.Verdict == optionset.ProbeRefused && p.Now.After(result.At.Add(rejectedRetryDelay))
	switch {
	case p.running[c.ProbeKey], known && !isRetryDue:
		return
	case c.Target.Obstacle != "":
		p.conclude(c, unknown(c.Target.Obstacle))
		return
	}
	w := p.waiting(c)
	if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return p.isSelected(n.Node, c) && n.Node.Name != w.First.Node }) {
		p.conclude(c, unknown("the profile selects no node"))
		return
	}
	if w.Node != "" {
		if node := p.nodeNamed(w.Node); !p.busy[w.Node] && isFree(node) && p.isSelected(node.Node, c) {
			p.setOrder(c, node, w)
			return
		}
		w.Node = ""
	}
	if p.Now.After(w.Since.Add(maxProbeWait)) {
		p.conclude(c, unknown("no node with an agent was free for a probe within "+maxProbeWait.String()))
		return
	}
	if node, found := p.findNode(c, w); found && p.hasCapacity() {
		w.Node, w.Chosen = node.Node.Name, p.Now
		p.busy[w.Node] = true
		p.starting++
		if !isLabelled(node.Node) {
			p.steps = append(p.steps, SetLabel{Node: node, Labelled: true})
		}
	}
	p.memory.Waiting[c.ProbeKey] = w
}

// limit ends a probe that has had no result for too long: for example, a write of its order fails again and again.
func (p *planner) limit(c volumeplan.ProbeCandidate) {
	w, isWaiting := p.memory.Waiting[c.ProbeKey]
	if _, known := p.memory.Results[c.ProbeKey]; known && !isWaiting {
		return
	}
	if !isWaiting {
		w = p.waiting(c)
	}
	w.Started = cmp.Or(p.waiting(c).Started, p.Now)
	if p.memory.Waiting[c.ProbeKey] = w; p.Now.After(w.Started.Add(maxProbe)) {
		p.conclude(c, unknown(fmt.Sprintf("the probe had no result within %s; last failed write: %s", maxProbe, cmp.Or(text.Line(p.Failure), "none"))))
	}
}

func (p *planner) waiting(c volumeplan.ProbeCandidate) Waiting {
	if w, known := p.Memory.Waiting[c.ProbeKey]; known {
		return w
	}
	return Waiting{Since: p.Now}
}

// setOrder sets the order after the trial runner of the chosen node is Ready.
func (p *planner) setOrder(c volumeplan.ProbeCandidate, n Node, w Waiting) {
	elapsed := p.Now.Sub(w.Chosen)
	switch {
	case n.Runner.Ready && isLabelled(n.Node):
		p.steps = append(p.steps, SetOrder{Node: n, Order: orderFor(c, p.Now)})
	case !n.Runner.Exists && elapsed > podDelay:
		p.conclude(c, unknown(fmt.Sprintf("DaemonSet %s created no Pod for Node %s", v1alpha1.TrialDaemonSet, n.Node.Name)))
		return
	case elapsed > runnerDelay:
		p.conclude(c, unknown(fmt.Sprintf("the Pod of DaemonSet %s on %s did not become Ready", v1alpha1.TrialDaemonSet, n.Node.Name)))
		return
	case !isLabelled(n.Node):
		p.steps = append(p.steps, SetLabel{Node: n, Labelled: true})
	}
	p.busy[n.Node.Name] = true
	p.starting++
	p.memory.Waiting[c.ProbeKey] = w
}

func (p *planner) isSelected(node *corev1.Node, c volumeplan.ProbeCandidate) bool {
	return slices.ContainsFunc(c.Profiles, func(name string) bool {
		profile := p.Profiles.ByName(name)
		return profile != nil && profile.Selects(node)
	})
}

// isFree reports whether a node may have a trial: in service, with a responsive agent, and without any disruption.
func isFree(n Node) bool {
	return n.ClientNode != nil && n.ClientNode.Spec.Trial == nil && n.Writable && !n.Node.Spec.Unschedulable
}

func (p *planner) hasCapacity() bool { return len(p.running)+len(p.active)+p.starting < maxNodes }

// findNode prefers a node that already has the label.
func (p *planner) findNode(c volumeplan.ProbeCandidate, w Waiting) (chosen Node, found bool) {
	for _, n := range p.Nodes {
		if p.busy[n.Node.Name] || n.Node.Name == w.First.Node || !isFree(n) || !p.isSelected(n.Node, c) {
			continue
		}
		if isLabelled(n.Node) {
			return n, true
		}
		if !found {
			chosen, found = n, true
		}
	}
	return chosen, found
}

// nodeNamed returns a node by name, zero if there is none.
func (p *planner) nodeNamed(name string) Node {
	for _, n := range p.Nodes {
		if n.Node.Name == name {
			return n
		}
	}
	return Node{}
}

func isLabelled(node *corev1.Node) bool { return metav1.HasLabel(node.ObjectMeta, v1alpha1.TrialLabel) }

func orderFor(c volumeplan.ProbeCandidate, now time.Time) *v1alpha1.NodeTrial {
	return &v1alpha1.NodeTrial{
		ID: fmt.Sprintf("%s-%d", hashOf(c), now.Unix()), Kind: v1alpha1.TrialProbe, Volume: c.Volume.Name,
		Server: c.Target.Server, Path: c.Target.Path, FSType: c.Target.FSType, MountOptions: c.Target.Options, OwnMountOptions: c.Target.Own,
		RunAsUser: runAsUser, TimeoutSeconds: int32(timeout.Seconds()),
	}
}

// hashOf identifies a candidate in the ID of an order. It excludes the volume: any other volume of the set is equivalent.
func hashOf(c volumeplan.ProbeCandidate) string {
	return text.Hash(c.Set+"\x00"+c.Server, 8)
}

// parseID returns the candidate's hash and the time from an order's ID.
func parseID(id string) (hash string, issued time.Time) {
	hash, at, _ := strings.Cut(id, "-")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return hash, time.Time{}
	}
	return hash, time.Unix(seconds, 0)
}
