package plan

import (
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

// maxCondition bounds the message of a condition, in bytes.
const maxCondition = 240

// maxTrials is how many StorageClientTrials run at a time in the cluster.
const maxTrials = 1

// Choice is the node that a trial is to run on, and when it was chosen. Losing it costs another choice.
type Choice struct {
	Node string
	At   time.Time
}

// hash names the trial in the ids of its orders.
func (t Trial) hash() string { return hex.EncodeToString(digest(string(t.UID))) }

func (t Trial) isOver() bool {
	conditions := t.Status.Conditions
	return meta.IsStatusConditionTrue(conditions, v1alpha1.TrialConditionComplete) || meta.IsStatusConditionTrue(conditions, v1alpha1.TrialConditionFailed)
}

func (t Trial) isTimedOut(now time.Time) bool {
	start := t.Status.StartTime
	return start != nil && now.After(start.Add(time.Duration(t.Spec.Timeout())*time.Second))
}

// followWork takes what an order for a trial has brought, and takes the order away once that is kept.
func (p *planner) followWork(n Node) {
	order, status := n.ClientNode.Spec.Trial, n.ClientNode.Status.Trial
	hash, issued := parseID(order.ID)
	t, wanted := p.byTrial[hash]
	if wanted && !t.isOver() && !t.isTimedOut(p.Now) {
		p.underWay[t.UID] = true
		answered := status != nil && status.ID == order.ID && status.Phase != v1alpha1.TrialRunning
		switch {
		case answered && p.takeRounds(t, n, status.Passes):
			return
		// A node that somebody else has a use for: that its work has ended says nothing then.
		case answered && !status.Succeeded && t.Status.Rounds < order.Passes[0].Round && n.Writable && !n.Node.Spec.Unschedulable:
			p.concludeWork(t, *status)
		case !answered && !n.Node.Spec.Unschedulable && !p.Now.After(issued.Add(workTimeout+overdue)):
			p.tell(t, v1alpha1.TrialReasonRunning, t.runsText(order.Passes[0].Round, n.Node.Name))
			return
		}
	}
	p.isClearing = true
	if n.Writable {
		p.steps = append(p.steps, SetOrder{Node: n})
	}
}

// concludeWork ends a trial whose order brought no round. Where the server lets nobody in from another network, the driver mounts clones.
func (p *planner) concludeWork(t Trial, status v1alpha1.NodeTrialStatus) {
	if t.Status.Rounds == 0 && t.isKeptOut(status) && t.cloneObstacle() == "" {
		p.changeToClones(t)
		return
	}
	reason, message := failureOf(status)
	p.fail(t, reason, message)
}

// isKeptOut says whether the volume's own list could not be mounted in the runner's network, neither before the candidate nor after it,
// and that is not for its options. A mount that was made has the proof of its connections.
func (t Trial) isKeptOut(status v1alpha1.NodeTrialStatus) bool {
	isMounted := slices.ContainsFunc(status.Proofs, func(proof v1alpha1.TrialProof) bool { return proof.Type == v1alpha1.ProofTransports })
	return status.Phase == v1alpha1.TrialFinished && !isMounted && len(status.Passes) == 0 && (status.Own == nil || !status.Own.Succeeded) &&
		causeOf(status, t.Target.AsksOtherwise) != v1alpha1.MountFailureOptions
}

// failureOf says how an order that brought no round has failed.
func failureOf(status v1alpha1.NodeTrialStatus) (reason, message string) {
	switch message = text.Line(status.Message); {
	case status.Phase == v1alpha1.TrialRefused:
		return v1alpha1.TrialReasonNotPossible, message
	case status.Phase == v1alpha1.TrialVoid:
		return v1alpha1.TrialReasonVoid, message
	case status.Own != nil && status.Own.Succeeded:
		return v1alpha1.TrialReasonNotMounted, message + "; with the volume's own list it could be mounted"
	}
	return v1alpha1.TrialReasonNotMounted, message
}

// takeRounds keeps rounds that are new. The order stays until they are.
func (p *planner) takeRounds(t Trial, n Node, answer []v1alpha1.TrialPass) bool {
	passes := completeRounds(answer, t.Status.Rounds, n.Node.Name)
	if len(passes) == 0 {
		return false
	}
	p.keepPasses(t, n.Node.Name, passes)
	return true
}

func (p *planner) keepPasses(t Trial, node string, passes []v1alpha1.TrialPass) {
	status := t.Status.DeepCopy()
	status.Passes = append(status.Passes, passes...)
	status.Rounds, status.Node = roundsIn(status.Passes), node
	status.RoundsWanted, status.RoundsReason = t.decideRounds(status)
	p.writeStatus(t, *status)
}

func (t Trial) runsText(round int32, node string) string {
	return fmt.Sprintf("Round %d of %d runs on %s", round, t.roundsWanted(), node)
}

// advance brings a trial to its next order, or to its end.
func (p *planner) advance(t Trial) {
	if t.observes() {
		p.observe(t)
		return
	}
	wanted := t.roundsWanted()
	switch {
	case t.isOver(), p.writes[t.UID]:
	case t.Status.StartTime == nil:
		p.tell(t, v1alpha1.TrialReasonWaiting, "Waits for its turn")
	case t.isTimedOut(p.Now) && t.Status.Rounds == 0:
		p.fail(t, v1alpha1.TrialReasonTimedOut, fmt.Sprintf("no round was complete after %d s; it was last told: %s", t.Spec.Timeout(), t.lastMessage()))
	case t.Status.Rounds > 0 && (t.isTimedOut(p.Now) || t.Status.Rounds >= wanted):
		p.finish(t)
	case p.underWay[t.UID]:
	case t.Impossible != "":
		p.fail(t, v1alpha1.TrialReasonNotPossible, t.Impossible)
	case t.Lacks != "":
		p.tell(t, v1alpha1.TrialReasonWaiting, "Waits: "+t.Lacks)
	case t.Status.Volume == "":
		p.begin(t)
	case len(p.underWay) >= maxTrials:
		p.tell(t, v1alpha1.TrialReasonWaiting, "Waits for another trial to end")
	case t.Status.Route == v1alpha1.RouteClone:
		p.bringClone(t)
	default:
		p.bringWork(t, wanted)
	}
}

// begin keeps the two lists that are compared: from now on, nothing changes them.
func (p *planner) begin(t Trial) {
	if t.Target.Obstacle != "" {
		p.changeToClones(t)
		return
	}
	status := t.Status.DeepCopy()
	status.Volume, status.Before, status.After, status.Route = t.Volume, t.Target.Own, t.Target.Options, v1alpha1.RouteOwnNetwork
	p.writeStatus(t, *status)
}

// changeToClones has all passes be clones. It gets both lists as the volume has them: the driver is still to make of them what mount gets.
func (p *planner) changeToClones(t Trial) {
	status := t.Status.DeepCopy()
	status.Volume, status.Route = t.Volume, v1alpha1.RouteClone
	status.Before, status.After = mountoptions.TakeApart(t.Target.Clone.Own), mountoptions.TakeApart(t.Target.Clone.Options)
	p.writeStatus(t, *status)
}

// bringWork brings a trial to a node with a trial runner, and hands it the next rounds.
func (p *planner) bringWork(t Trial, wanted int32) {
	choice, chosen := p.Memory.Choices[t.UID]
	n, there := p.nodeOf(choice.Node)
	if !chosen || !there || !isFree(n) || !t.selects(n) {
		if n, there = p.findFree(t); !there || !p.hasRoom() {
			p.tell(t, v1alpha1.TrialReasonWaiting, "Waits for a node: none that it may run on is in service, has an agent and no other trial. A profile that selects a node brings its agent, except in mode Plan")
			return
		}
		choice = Choice{Node: n.Node.Name, At: p.Now}
	} else if !p.hasRoom() {
		p.tell(t, v1alpha1.TrialReasonWaiting, "Waits for probes to end")
		return
	}
	p.underWay[t.UID], p.busy[n.Node.Name] = true, true
	p.memory.Choices[t.UID] = choice
	since := p.Now.Sub(choice.At)
	switch {
	case n.Runner.Ready && isLabelled(n.Node):
		p.steps = append(p.steps, SetOrder{Node: n, Order: t.order(wanted, p.Now)})
	case !n.Runner.There && since > podDelay:
		p.fail(t, v1alpha1.TrialReasonNotPossible, fmt.Sprintf("no Pod of DaemonSet %s came to %s", v1alpha1.TrialDaemonSet, n.Node.Name))
	case since > runnerDelay:
		p.fail(t, v1alpha1.TrialReasonNotPossible, fmt.Sprintf("the Pod of DaemonSet %s on %s did not become Ready", v1alpha1.TrialDaemonSet, n.Node.Name))
	case !isLabelled(n.Node):
		p.steps = append(p.steps, SetLabel{Node: n, Labelled: true})
	}
}

// findFree takes the node of the rounds before, then one that bears the label already, before others.
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
		if label, has := n.Node.Labels[key]; !has || label != string(value) {
			return false
		}
	}
	return true
}

func (t Trial) order(wanted int32, now time.Time) *v1alpha1.NodeTrial {
	work := t.Spec.Workload
	return &v1alpha1.NodeTrial{
		ID: fmt.Sprintf("%s-%d", t.hash(), now.Unix()), Kind: v1alpha1.TrialTrial, Volume: t.Volume,
		Server: t.Target.Server, Path: t.Target.Path, FSType: t.Target.FSType, MountOptions: t.Target.Options, OwnMountOptions: t.Target.Own,
		RunAsUser: t.Spec.User(), TimeoutSeconds: int32(workTimeout.Seconds()), Passes: t.nextPasses(wanted),
		Work: &v1alpha1.NodeTrialWork{Name: work.Name, Path: work.Path, AllowWrites: work.AllowWrites, PauseSeconds: int32(t.pause().Seconds())},
	}
}

// finish judges what was measured.
func (p *planner) finish(t Trial) {
	v := t.judge()
	status := t.Status.DeepCopy()
	status.Verdict, status.Results = v1alpha1.TrialVerdict(v.Outcome), resultsOf(v.Results)
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

// tell says what a trial that is not over waits for, or does.
func (p *planner) tell(t Trial, reason, message string) {
	p.goOn(t, t.Status.DeepCopy(), reason, message)
}

// goOn writes what has come of a trial that is not over.
func (p *planner) goOn(t Trial, status *v1alpha1.StorageClientTrialStatus, reason, message string) {
	setConditions(status, t.Generation, p.Now, reason, message, map[string]bool{v1alpha1.TrialConditionReconciling: true})
	p.writeStatus(t, *status)
}

// setConditions sets all of them: those that are named are True.
func setConditions(status *v1alpha1.StorageClientTrialStatus, generation int64, now time.Time, reason, message string, isTrue map[string]bool) {
	for _, kind := range []string{
		v1alpha1.TrialConditionComplete, v1alpha1.TrialConditionFailed, v1alpha1.TrialConditionReconciling, v1alpha1.TrialConditionStalled,
	} {
		value := metav1.ConditionFalse
		if isTrue[kind] {
			value = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: text.CutBytes(message, maxCondition), ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
}

func (t Trial) lastMessage() string {
	if condition := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.TrialConditionComplete); condition != nil {
		return condition.Message
	}
	return "nothing"
}

// describeStatus says in a line how a trial stands.
func describeStatus(status *v1alpha1.StorageClientTrialStatus) string {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.TrialConditionComplete)
	if condition == nil {
		return "seen"
	}
	if len(status.Samples) > 0 {
		return condition.Reason + ": " + condition.Message
	}
	return fmt.Sprintf("%s, %s complete: %s", condition.Reason, text.Count(int(status.Rounds), "round"), condition.Message)
}

// writeStatus writes once a pass, and nothing that stands there already.
func (p *planner) writeStatus(t Trial, status v1alpha1.StorageClientTrialStatus) {
	status.ObservedGeneration = t.Generation
	if status.StartTime == nil {
		status.StartTime = ptr.To(metav1.NewTime(p.Now))
	}
	if p.writes[t.UID] || equality.Semantic.DeepEqual(status, t.Status) {
		return
	}
	p.writes[t.UID] = true
	p.steps = append(p.steps, WriteStatus{Trial: t.StorageClientTrial, Status: &status})
}
