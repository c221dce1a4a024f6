package plan

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/clocktime"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxCondition is the maximum length of a condition's message, in bytes.
	maxCondition = 240
	// maxTrials is the maximum number of StorageClientTrials that run at a time in the cluster.
	maxTrials = 1
	// maxQueued is the maximum number of unfinished trials of a namespace that are in the queue. Further trials wait for a place in it.
	maxQueued = 10
	// maxExcessReports is the maximum number of status writes in a pass for trials without a place in the queue.
	maxExcessReports = 50
	// maxTurn is the time after which a trial loses its claim to the slot. An order has finished or is lost by then.
	maxTurn = workTimeout + overdue
	// turnAge is the time for which the last turn of a namespace is recorded.
	turnAge = 24 * time.Hour
)

// Choice is the node of a trial, with the time of the choice. Its loss causes another choice.
type Choice struct {
	Node string
	At   time.Time
}

// hash identifies the trial in the IDs of its orders.
func (t Trial) hash() string { return text.Hash(string(t.UID), 8) }

func (t Trial) isOver() bool {
	conditions := t.Status.Conditions
	return meta.IsStatusConditionTrue(conditions, v1alpha1.TrialConditionComplete) ||
		meta.IsStatusConditionTrue(conditions, v1alpha1.TrialConditionFailed)
}

func (t Trial) isTimedOut(now time.Time) bool {
	return t.Status.StartTime != nil && now.After(t.deadline(now))
}

// deadline returns the end of a started trial. Waits for other trials and probes extend it.
func (t Trial) deadline(now time.Time) time.Time {
	waited := time.Duration(t.Status.WaitedSeconds) * time.Second
	if start := t.Status.WaitingSince; start != nil {
		waited += now.Sub(clocktime.Past(start.Time, now))
	}
	return t.Status.StartTime.Add(time.Duration(t.Spec.Timeout())*time.Second + waited)
}

// queue returns the trials in the order of their turns: the namespace with the oldest last turn first, then the oldest trial of the namespace.
// A trial that starts keeps the slot until maxTurn.
func (p *planner) queue() []Trial {
	last := map[types.UID]time.Time{}
	for _, t := range p.Trials {
		turn := p.memory.Turns[t.queueName()]
		_, starts := p.Memory.Choices[t.UID]
		if last[t.UID] = turn; starts && p.Now.Sub(turn) < maxTurn {
			last[t.UID] = time.Time{}.Add(-1)
		}
	}
	queue := slices.Clone(p.Trials)
	slices.SortStableFunc(queue, func(a, b Trial) int { return last[a.UID].Compare(last[b.UID]) })
	return queue
}

// queueName identifies the queue of a trial: each namespace has one for trials that mount, and one for trials that observe.
func (t Trial) queueName() string { return fmt.Sprintf("%s/%t", t.Namespace, t.observes()) }

// recordTurns keeps the last turns of namespaces. After a restart of the manager, the objects show most of them.
func (p *planner) recordTurns() {
	for queue, at := range p.Memory.Turns {
		if p.Now.Sub(at) < turnAge {
			p.memory.Turns[queue] = clocktime.Past(at, p.Now)
		}
	}
	for _, t := range p.Trials {
		if t.observes() && !t.isOver() && !t.Excess {
			p.observers[t.Namespace] = true
		}
		for _, at := range []*metav1.Time{t.Status.CompletionTime, t.Status.WaitingSince} {
			_, known := p.Memory.Turns[t.queueName()]
			if !known && t.Status.Rounds > 0 && at != nil && at.After(p.memory.Turns[t.queueName()]) {
				p.memory.Turns[t.queueName()] = clocktime.Past(at.Time, p.Now)
			}
		}
	}
}

// awaitTurn reports that a trial waits for other trials or probes. Its time does not run.
func (p *planner) awaitTurn(t Trial, message string) { p.await(t, t.Status.DeepCopy(), message) }

func (p *planner) await(t Trial, status *v1alpha1.StorageClientTrialStatus, message string) {
	message += text.Labelled("; its last turn: ", p.memory.LostTurns[t.UID])
	if status.WaitingSince == nil {
		status.WaitingSince = ptr.To(metav1.NewTime(p.Now))
	}
	p.queued[t.UID] = true
	p.reportStatus(t, status, v1alpha1.TrialReasonWaiting, message)
}

// reportExcess reports that a trial has no place in the queue of its namespace.
func (p *planner) reportExcess(t Trial) {
	if p.excess < maxExcessReports && t.Status.WaitingSince == nil {
		p.excess++
		p.awaitTurn(t, fmt.Sprintf("Waiting for earlier trials in namespace %s: at most %d are in the queue", t.Namespace, maxQueued))
	}
}

// followWork records the result of an order for a trial, and then removes the order.
func (p *planner) followWork(n Node) {
	order, status := n.ClientNode.Spec.Trial, n.ClientNode.Status.Trial
	hash, issued := parseID(order.ID)
	t, isKnown := p.byTrial[hash]
	if isKnown && !t.isOver() && !t.isTimedOut(p.Now) {
		hasResponded := status != nil && status.ID == order.ID && status.Phase != v1alpha1.TrialRunning
		// A silent agent frees the slot, even if its order cannot be removed yet. So does a Pod that does not terminate.
		isOverdue := p.Now.After(issued.Add(maxTurn)) || clocktime.IsAhead(issued, p.Now)
		isLost := !hasResponded && isOverdue
		if !isOverdue {
			p.active[t.UID] = true
		}
		switch {
		case hasResponded && len(status.Passes) > 0 && t.sysctlProblem(n.Node.Name, *status) != "":
			p.fail(t, v1alpha1.TrialReasonNotPossible, t.sysctlProblem(n.Node.Name, *status))
		case hasResponded && p.recordRounds(t, n, *status):
			return
		// If another controller uses the node, a failure of the work is no evidence.
		case hasResponded && !status.Succeeded && t.Status.Rounds < order.Passes[0].Round && n.Writable && !n.Node.Spec.Unschedulable:
			p.concludeWork(t, *status)
		case !hasResponded && !n.Node.Spec.Unschedulable && !isLost:
			p.report(t, v1alpha1.TrialReasonRunning, fmt.Sprintf("Round %d of %d runs on %s", order.Passes[0].Round, t.plannedRounds(), n.Node.Name))
			return
		case isLost:
			p.memory.LostTurns[t.UID] = fmt.Sprintf("the agent on %s did not respond within %s", n.Node.Name, maxTurn)
		}
	}
	p.clearOrder(n)
}

// concludeWork ends a trial whose order completed no round.
func (p *planner) concludeWork(t Trial, status v1alpha1.NodeTrialStatus) {
	reason, message := failureOf(status)
	if t.Status.Rounds == 0 && t.isKeptOut(status) {
		message += "; the server may reject mounts from the network of pods; " + observeRemedy
	}
	p.fail(t, reason, message)
}

// isKeptOut reports whether the original options failed in the runner's network, both before and after the candidate, for another cause than
// the options. A successful mount has a proof of its connections.
func (t Trial) isKeptOut(status v1alpha1.NodeTrialStatus) bool {
	isMounted := slices.ContainsFunc(status.Proofs, func(proof v1alpha1.TrialProof) bool { return proof.Type == v1alpha1.ProofTransports })
	return status.Phase == v1alpha1.TrialFinished && !isMounted && len(status.Passes) == 0 && (status.Own == nil || !status.Own.Succeeded) &&
		status.Cause != v1alpha1.MountFailureOptions
}

// failureOf returns the cause of an order without a complete round.
func failureOf(status v1alpha1.NodeTrialStatus) (reason, message string) {
	switch message = text.Line(status.Message); {
	case status.Phase == v1alpha1.TrialRefused:
		return v1alpha1.TrialReasonNotPossible, message
	case status.Phase == v1alpha1.TrialVoid:
		return v1alpha1.TrialReasonVoid, message
	case status.Own != nil && status.Own.Succeeded:
		return v1alpha1.TrialReasonNotMounted, message + "; the original mount options work"
	}
	return v1alpha1.TrialReasonNotMounted, message
}

// recordRounds records new rounds, and reports whether there are any. The order stays until they are recorded.
func (p *planner) recordRounds(t Trial, n Node, answer v1alpha1.NodeTrialStatus) bool {
	passes := completeRounds(answer.Passes, t.Status.Rounds, n.Node.Name)
	if len(passes) == 0 {
		return false
	}
	p.recordPasses(t, n.Node.Name, passes, answer.Sysctls)
	return true
}

// sysctlProblem returns the reason why the passes of a response cannot be compared with earlier rounds: the node's sysctls differ. Empty if they can.
func (t Trial) sysctlProblem(node string, answer v1alpha1.NodeTrialStatus) string {
	for _, name := range catalogue.NetNSSysctls() {
		if first, actual := t.Status.Sysctls[name], answer.Sysctls[name]; first != actual && len(t.Status.Sysctls) > 0 {
			return fmt.Sprintf("Sysctl %s is %q on %s, but was %q in the first round; keep it the same, and create another trial for one node",
				name, actual, node, first)
		}
	}
	return ""
}

func (p *planner) recordPasses(t Trial, node string, passes []v1alpha1.TrialPass, sysctls map[string]v1alpha1.SettingText) {
	status := t.Status.DeepCopy()
	status.Load, status.Sysctls = &t.Spec.Workload.TrialLoad, sysctls
	// A manager of the release before recorded the passes on a clone one by one. The round has run again.
	status.Passes = lists.Filter(status.Passes, func(pass v1alpha1.TrialPass) bool { return pass.Round <= status.Rounds })
	status.Passes = append(status.Passes, passes...)
	status.Rounds, status.Node = roundsIn(status.Passes), node
	status.RoundsWanted, status.RoundsReason = t.decideRounds(status)
	p.writeStatus(t, *status)
}

// advance advances a trial to its next order, or to its end.
func (p *planner) advance(t Trial) {
	if t.observes() {
		p.observe(t)
		return
	}
	planned := t.plannedRounds()
	switch {
	case t.isOver(), p.writes[t.UID], p.queued[t.UID]:
	case t.Excess:
		p.reportExcess(t)
	case t.Status.StartTime == nil:
		p.awaitTurn(t, "Waiting for its turn")
	case t.isTimedOut(p.Now) && t.Status.Rounds == 0:
		p.fail(t, v1alpha1.TrialReasonTimedOut, fmt.Sprintf("No round finished within %d s; last message: %s", t.Spec.Timeout(), t.lastMessage()))
	case t.Status.Rounds > 0 && (t.isTimedOut(p.Now) || t.Status.Rounds >= planned):
		p.finish(t)
	case p.active[t.UID]:
	case t.Impossible != "":
		p.fail(t, v1alpha1.TrialReasonNotPossible, t.Impossible)
	case t.Missing != "":
		p.report(t, v1alpha1.TrialReasonWaiting, "Waiting: "+t.Missing)
	case t.Status.Volume == "":
		p.start(t)
	case len(p.active) >= maxTrials:
		p.awaitTurn(t, "Waiting for another trial to finish")
	default:
		p.startWork(t, planned)
	}
}

// start records both mount options that are compared: they are fixed from now on.
func (p *planner) start(t Trial) {
	status := t.Status.DeepCopy()
	status.Volume = t.Volume
	status.Before, status.After = t.Target.Own, t.Target.Options
	p.writeStatus(t, *status)
}

// startWork assigns a node with a trial runner to a trial, and orders the next rounds.
func (p *planner) startWork(t Trial, planned int32) {
	choice, chosen := p.Memory.Choices[t.UID]
	n := p.nodeNamed(choice.Node)
	if !chosen || p.busy[choice.Node] || !isFree(n) || !t.selects(n) {
		var found bool
		if n, found = p.findFree(t); found && !p.hasCapacity() {
			p.awaitTurn(t, "Waiting for probes to finish")
			return
		} else if !found {
			p.report(t, v1alpha1.TrialReasonWaiting,
				"Waiting for a node that nodeSelector allows, that is in service, and that has an agent and no other trial; "+
					"a profile that selects a node brings its agent, except in mode Plan")
			return
		}
		if choice = (Choice{Node: n.Node.Name, At: p.Now}); !chosen {
			p.memory.Turns[t.queueName()] = p.Now
		}
	} else if !p.hasCapacity() {
		p.awaitTurn(t, "Waiting for probes to finish")
		return
	}
	p.active[t.UID], p.busy[n.Node.Name] = true, true
	p.memory.Choices[t.UID] = choice
	elapsed := p.Now.Sub(choice.At)
	switch {
	case n.Runner.Ready && isLabelled(n.Node) && t.Status.Rounds == 0 && t.Spec.ReadAheadKiB > 0 && t.Spec.ReadAheadKiB == p.readAheadOf(t, n) &&
		slices.Equal(t.Target.Options, t.Target.Own):
		p.fail(t, v1alpha1.TrialReasonNotPossible, fmt.Sprintf("Mounts of %s already have a read-ahead of %d KiB", t.Volume, t.Spec.ReadAheadKiB))
	case n.Runner.Ready && isLabelled(n.Node):
		p.steps = append(p.steps, SetOrder{Node: n, Order: t.newOrder(planned, p.readAheadOf(t, n), p.Now)})
	case !n.Runner.Exists && elapsed > podDelay:
		p.fail(t, v1alpha1.TrialReasonNotPossible, fmt.Sprintf("DaemonSet %s created no Pod for Node %s", v1alpha1.TrialDaemonSet, n.Node.Name))
	case elapsed > runnerDelay:
		p.fail(t, v1alpha1.TrialReasonNotPossible, fmt.Sprintf("The Pod of DaemonSet %s on %s did not become Ready", v1alpha1.TrialDaemonSet, n.Node.Name))
	case !isLabelled(n.Node):
		p.steps = append(p.steps, SetLabel{Node: n, Labelled: true})
	}
}

// findFree prefers the node of previous rounds, then a node that already has the label.
func (p *planner) findFree(t Trial) (chosen Node, found bool) {
	rank := func(n Node) int {
		switch {
		case n.Node.Name == t.Status.Node:
			return 2
		case isLabelled(n.Node):
			return 1
		}
		return 0
	}
	for _, n := range p.Nodes {
		if !p.busy[n.Node.Name] && isFree(n) && t.selects(n) && (!found || rank(n) > rank(chosen)) {
			chosen, found = n, true
		}
	}
	return chosen, found
}

func (t Trial) selects(n Node) bool {
	for key, value := range t.Spec.NodeSelector {
		if label, ok := n.Node.Labels[key]; !ok || label != string(value) {
			return false
		}
	}
	return true
}

// readAheadOf returns the read-ahead window of Before: the one in the first round, so that the rounds are comparable. Until then it is the window of
// the volume's mounts, on this node if possible. Zero if no node has a mount.
func (p *planner) readAheadOf(t Trial, n Node) int32 {
	if i := slices.IndexFunc(t.Status.Passes, func(pass v1alpha1.TrialPass) bool { return pass.Arm == v1alpha1.ArmBefore }); i >= 0 {
		return t.Status.Passes[i].ReadAheadKiB
	}
	for _, n := range append([]Node{n}, p.Nodes...) {
		if n.ClientNode == nil {
			continue
		}
		for _, m := range n.ClientNode.Status.Mounts {
			if m.Volume == t.Volume && m.ReadAheadKiB > 0 {
				return m.ReadAheadKiB
			}
		}
	}
	return 0
}

// newOrder returns the next order. readAhead is the read-ahead window of Before.
func (t Trial) newOrder(planned, readAhead int32, now time.Time) *v1alpha1.NodeTrial {
	work, passes := t.Spec.Workload, t.nextPasses(planned)
	for i := range passes {
		if passes[i].ReadAheadKiB = readAhead; passes[i].Arm == v1alpha1.ArmAfter || t.Spec.ReadAheadKiB == 0 {
			passes[i].ReadAheadKiB = t.Spec.ReadAheadKiB
		}
	}
	return &v1alpha1.NodeTrial{
		ID: fmt.Sprintf("%s-%d", t.hash(), now.Unix()), Kind: v1alpha1.TrialTrial, Volume: t.Volume,
		Server: t.Target.Server, Path: t.Target.Path, FSType: t.Target.FSType, MountOptions: t.Target.Options, OwnMountOptions: t.Target.Own,
		Sysctls: t.Spec.Sysctls, RunAsUser: t.Spec.User(), TimeoutSeconds: int32(workTimeout.Seconds()), Passes: passes,
		Work: &v1alpha1.NodeTrialWork{
			Name: work.Name, Path: work.Path, TrialLoad: work.TrialLoad, AllowWrites: work.AllowWrites, PauseSeconds: int32(t.pause().Seconds()),
		},
	}
}

func (p *planner) finish(t Trial) {
	v := t.evaluate()
	status := t.Status.DeepCopy()
	status.Verdict, status.Results = v.Outcome, resultsOf(v.Results)
	p.end(t, status, v1alpha1.TrialReasonDecided, v.Why, false)
}

func (p *planner) fail(t Trial, reason, message string) {
	p.end(t, t.Status.DeepCopy(), reason, message, true)
}

func (p *planner) end(t Trial, status *v1alpha1.StorageClientTrialStatus, reason, message string, failed bool) {
	status.CompletionTime = ptr.To(metav1.NewTime(p.Now))
	setConditions(status, t.Generation, p.Now, reason, message, map[string]bool{
		v1alpha1.TrialConditionComplete: !failed, v1alpha1.TrialConditionFailed: failed, v1alpha1.TrialConditionStalled: failed,
	})
	p.writeStatus(t, *status)
}

func (p *planner) report(t Trial, reason, message string) {
	p.reportStatus(t, t.Status.DeepCopy(), reason, message)
}

func (p *planner) reportStatus(t Trial, status *v1alpha1.StorageClientTrialStatus, reason, message string) {
	setConditions(status, t.Generation, p.Now, reason, message, map[string]bool{v1alpha1.TrialConditionReconciling: true})
	p.writeStatus(t, *status)
}

// setConditions sets all conditions. The given ones are True, all others are False.
func setConditions(status *v1alpha1.StorageClientTrialStatus, generation int64, now time.Time, reason, message string, isTrue map[string]bool) {
	for _, kind := range []string{
		v1alpha1.TrialConditionComplete, v1alpha1.TrialConditionFailed, v1alpha1.TrialConditionReconciling, v1alpha1.TrialConditionStalled,
	} {
		value := metav1.ConditionFalse
		if isTrue[kind] {
			value = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: text.CutBytes(message, maxCondition),
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
}

func (t Trial) lastMessage() string {
	if condition := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.TrialConditionComplete); condition != nil {
		return condition.Message
	}
	return "none"
}

// writeStatus writes at most once per pass, and only a changed status.
func (p *planner) writeStatus(t Trial, status v1alpha1.StorageClientTrialStatus) {
	status.ObservedGeneration = t.Generation
	if status.StartTime == nil || clocktime.IsAhead(status.StartTime.Time, p.Now) {
		status.StartTime = ptr.To(metav1.NewTime(p.Now))
	}
	if start := status.WaitingSince; start != nil && clocktime.IsAhead(start.Time, p.Now) {
		status.WaitingSince = ptr.To(metav1.NewTime(p.Now))
	}
	if start := status.WaitingSince; start != nil && !p.queued[t.UID] {
		status.WaitedSeconds += max(int64(p.Now.Sub(start.Time).Seconds()), 0)
		status.WaitingSince = nil
	}
	if p.writes[t.UID] || equality.Semantic.DeepEqual(status, t.Status) {
		return
	}
	p.writes[t.UID] = true
	p.steps = append(p.steps, WriteStatus{Trial: t.StorageClientTrial, Status: &status})
}
