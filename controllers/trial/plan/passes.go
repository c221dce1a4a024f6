package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountfailures"
	"github.com/storageclient/operator/tuning/mountoptions"
	"github.com/storageclient/operator/tuning/text"
)

const maxVoids = 3

// PassState is the state of a trial's clones that their objects do not contain. Its loss costs one pass.
type PassState struct {
	// Since is the time since which the next pass waits for a node.
	Since time.Time
	// Proven is the UID of the clone's volume whose mount the node's agent has reported with the expected options.
	Proven types.UID
	// Voids is the number of invalid passes in a row. Void is the reason of the last one.
	Voids int
	Void  string
	// Failed is the message of a failed mount of the candidate if its cause is unknown. The original options are mounted next.
	Failed string
}

// nextPass returns the next pass. The name of its clone identifies it.
func (t Trial) nextPass(s PassState) v1alpha1.NodeTrialPass {
	done := armsOf(t.Status.Passes)
	round := t.Status.Rounds + 1
	passes := slices.DeleteFunc(t.passesFrom(round, round), func(pass v1alpha1.NodeTrialPass) bool {
		return done[round][pass.Arm] || s.Failed != "" && pass.Arm == v1alpha1.ArmAfter
	})
	if len(passes) == 0 {
		return v1alpha1.NodeTrialPass{}
	}
	return passes[0]
}

func (t Trial) originOf(pass v1alpha1.NodeTrialPass) origin {
	return origin{
		Name: fmt.Sprintf("%s%s-%d-%s", v1alpha1.ClonePrefix, t.hash(), pass.Round, strings.ToLower(string(pass.Arm))), Hash: t.hash(),
		Volume: t.pv, Server: t.Target.Server, Protocol: t.Target.Clone.Protocol,
	}
}

// armOptions returns the mount options of an arm, and the options that the other arm lacks: they identify the arm of a mount.
func (t Trial) armOptions(arm v1alpha1.TrialArm) (options, declared []string) {
	options, other := t.Target.Clone.Own, t.Target.Clone.Options
	if arm == v1alpha1.ArmAfter {
		options, other = other, options
	}
	return options, slices.DeleteFunc(slices.Clone(options), func(option string) bool { return slices.Contains(other, option) })
}

// startClone starts the trial's next pass on a node without any mount of the server.
func (p *planner) startClone(t Trial) {
	s := p.memory.PassStates[t.UID]
	n, found := p.findNodeFor(t)
	switch {
	case p.Rejections[t.hash()] != "":
		p.fail(t, v1alpha1.TrialReasonNotPossible, "The API server rejected a clone of "+t.Volume+": "+p.Rejections[t.hash()])
	case s.Voids >= maxVoids:
		p.fail(t, v1alpha1.TrialReasonVoid, fmt.Sprintf("%d passes in a row were invalid; the last one: %s", s.Voids, s.Void))
	case !found:
		p.awaitNode(t, s)
	case !p.hasCapacity():
		p.awaitTurn(t, "Waiting for probes to finish")
	default:
		if t.roundNode() == "" || p.Now.Sub(p.memory.Turns[t.queueName()]) >= maxTurn {
			p.memory.Turns[t.queueName()] = p.Now
		}
		s.Since = time.Time{}
		p.memory.PassStates[t.UID] = s
		p.active[t.UID], p.busy[n.Node.Name] = true, true
		pass := t.nextPass(s)
		options, _ := t.armOptions(pass.Arm)
		o := t.originOf(pass)
		p.steps = append(p.steps, CreateClone{Clone{Volume: cloneOf(o, options), VolumeClaim: claimOf(o)}})
	}
}

// awaitNode waits for a node: shortly after a pass, until the mount of the pass is gone. If the node of the round is still not free then, the round
// starts again on any node.
func (p *planner) awaitNode(t Trial, s PassState) {
	if s.Since.IsZero() {
		s.Since = p.Now
	}
	late := p.Now.After(s.Since.Add(reportDelay))
	if late && t.roundNode() != "" {
		s.Since = time.Time{}
		status := t.Status.DeepCopy()
		status.Passes = slices.DeleteFunc(status.Passes, func(pass v1alpha1.TrialPass) bool { return pass.Round > status.Rounds })
		p.writeStatus(t, *status)
	}
	p.memory.PassStates[t.UID] = s
	if !late {
		p.active[t.UID] = true
	}
	p.report(t, v1alpha1.TrialReasonWaiting,
		"Waiting for a node that nodeSelector allows, that has an agent and is in service, whose taints the pods of the claim tolerate, and that has "+
			"no mount of "+t.Target.Server+", because a clone would share its connections")
}

// roundNode returns the node of the current round: passes are compared on one node. Empty if no round has started.
func (t Trial) roundNode() string {
	for _, pass := range t.Status.Passes {
		if pass.Round > t.Status.Rounds {
			return pass.Node
		}
	}
	return ""
}

// findNodeFor finds a node for the next pass without any mount of the server. If a round has started, it must be the node of the round.
func (p *planner) findNodeFor(t Trial) (Node, bool) {
	name := t.roundNode()
	for _, n := range p.Nodes {
		if !p.busy[n.Node.Name] && (name == "" || n.Node.Name == name) && isFree(n) && t.selects(n) &&
			p.mayHaveClone(&n, t.originOf(v1alpha1.NodeTrialPass{})) {
			return n, true
		}
	}
	return Node{}, false
}

// followPass records the result of a trial's clone, continues with it, or deletes it if it is finished or no longer needed.
func (p *planner) followPass(clone Clone, t Trial) {
	if clone.Pod != nil {
		p.busy[clone.Pod.Spec.NodeName] = true
	}
	// A clone whose deletion takes long, for example on a lost node, frees the slot. Its own trial waits for it.
	isLate := clone.isLeaving() && p.Now.Sub(p.memory.Turns[t.queueName()]) >= maxTurn
	switch {
	case t.isOver(), isLate && t.isTimedOut(p.Now):
	case isLate:
		p.report(t, v1alpha1.TrialReasonWaiting, "Waiting for the deletion of clone "+clone.Volume.Name)
		p.writes[t.UID] = true // The trial only waits, and its time runs.
	default:
		p.active[t.UID] = true
	}
	s := p.memory.PassStates[t.UID]
	pass := t.nextPass(s)
	if !p.isPassDesired(clone, t, pass) || p.concludePass(clone, t, pass, s) {
		p.collect(clone)
	}
}

// isPassDesired reports whether a clone belongs to the trial's next pass, and its node is free.
func (p *planner) isPassDesired(clone Clone, t Trial, pass v1alpha1.NodeTrialPass) bool {
	if t.isOver() || t.isTimedOut(p.Now) || t.pv == nil || t.Status.Route != v1alpha1.RouteClone || clone.isLeaving() {
		return false
	}
	options, _ := t.armOptions(pass.Arm)
	if clone.Volume.Name != t.originOf(pass).Name || !slices.Equal(clone.Volume.Spec.MountOptions, options) {
		return false
	}
	return clone.Pod == nil || isFree(p.nodeNamed(clone.Pod.Spec.NodeName))
}

// concludePass reports whether a pass is finished, and records its result. The clone stays until the result is recorded.
func (p *planner) concludePass(clone Clone, t Trial, pass v1alpha1.NodeTrialPass, s PassState) (isFinished bool) {
	o := t.originOf(pass)
	failure, final := clone.failure(p.Now, t.Target.ChangesRequests)
	switch {
	case p.Rejections[o.Hash] != "":
		p.fail(t, v1alpha1.TrialReasonNotPossible, "The API server rejected a clone of "+t.Volume+": "+p.Rejections[o.Hash])
		return true
	case clone.Pod == nil && !final:
		p.continueClone(clone, o, func() (Node, bool) { return p.findNodeFor(t) }, t.passPod)
		return false
	case clone.Pod == nil:
		p.voidPass(t, s, fmt.Sprintf("a clone of %s had neither a bound claim nor a node for its Pod within %s", t.Volume, cloneTimeout))
		return true
	case clone.Pod.Status.Phase != corev1.PodPending && clone.Pod.Status.Phase != "": // The kubelet has mounted the clone.
		return p.followStarted(clone, t, pass, s)
	case final && failure != "":
		p.concludeFailure(t, pass, s, failure)
		return true
	case final:
		p.voidPass(t, s, fmt.Sprintf("the Pod of a clone of %s did not start on %s within %s", t.Volume, clone.Pod.Spec.NodeName, cloneTimeout))
		return true
	}
	return false
}

// followStarted follows a pass whose clone is mounted. Its result counts only if the agent reports the mount's options and no other of the server.
func (p *planner) followStarted(clone Clone, t Trial, pass v1alpha1.NodeTrialPass, s PassState) (isFinished bool) {
	options, declared := t.armOptions(pass.Arm)
	node := clone.Pod.Spec.NodeName
	_, doubt, hasOtherMount := p.checkMount(clone, t.originOf(pass), declared)
	if doubt == "" {
		s.Proven = clone.Volume.UID
		p.memory.PassStates[t.UID] = s
	}
	result, err := clone.result(expectedTransports(t.Target.Clone.Protocol, options))
	switch {
	case hasOtherMount:
		p.voidPass(t, s, doubt)
	case errors.Is(err, errNoResult):
		if p.Now.Before(clone.Pod.CreationTimestamp.Add(podLifetime*time.Second + overdue)) {
			p.report(t, v1alpha1.TrialReasonRunning, t.runsText(pass.Round, node))
			return false
		}
		p.voidPass(t, s, "the Pod of a clone on "+node+" did not report its result")
	case err != nil:
		p.voidPass(t, s, "the Pod of a clone on "+node+" "+err.Error())
	case result.Void != "":
		p.voidPass(t, s, result.Void)
	case result.Failed != "":
		p.fail(t, v1alpha1.TrialReasonNotMounted, fmt.Sprintf("%s, round %d: %s", pass.Arm, pass.Round, result.Failed))
	case s.Proven != clone.Volume.UID && !clone.isOverdue(p.Now):
		return false
	case s.Proven != clone.Volume.UID:
		p.voidPass(t, s, doubt)
	default:
		return p.recordPass(t, node, v1alpha1.TrialPass{Round: pass.Round, Arm: pass.Arm, Node: node, Phases: result.Phases}, s)
	}
	return true
}

// recordPass records the measurements of a pass. If the candidate failed before, a mount with the original options proves that it is the cause.
func (p *planner) recordPass(t Trial, node string, pass v1alpha1.TrialPass, s PassState) (isFinished bool) {
	if s.Failed != "" {
		p.fail(t, v1alpha1.TrialReasonNotMounted, s.Failed+"; the original mount options work")
		return true
	}
	s.Voids, s.Void = 0, ""
	p.memory.PassStates[t.UID] = s
	p.recordPasses(t, node, []v1alpha1.TrialPass{pass}, nil)
	return false
}

// voidPass counts an invalid pass. The pass runs again until maxVoids in a row are invalid.
func (p *planner) voidPass(t Trial, s PassState, reason string) {
	s.Voids, s.Void = s.Voids+1, reason
	p.memory.PassStates[t.UID] = s
}

// concludeFailure decides on the consequence of a failed mount of a clone. A cause outside the options may be temporary.
func (p *planner) concludeFailure(t Trial, pass v1alpha1.NodeTrialPass, s PassState, failure string) {
	failure = text.Line(mountfailures.Brief(failure))
	cause := mountfailures.CauseOf(failure, t.Target.ChangesRequests)
	failed := fmt.Sprintf("%s, round %d: %s", pass.Arm, pass.Round, failure)
	switch {
	case cause == mountfailures.Elsewhere:
		p.voidPass(t, s, "the clone could not be mounted: "+failed)
	case pass.Arm != v1alpha1.ArmAfter:
		p.fail(t, v1alpha1.TrialReasonNotPossible, "A clone could not be mounted with the original mount options: "+failed)
	case cause == mountfailures.Options:
		p.fail(t, v1alpha1.TrialReasonNotMounted, failed)
	case len(t.Status.Passes) > 0:
		p.fail(t, v1alpha1.TrialReasonNotMounted, failed+"; the original mount options work")
	default:
		s.Failed = failed
		p.memory.PassStates[t.UID] = s
	}
}

// errNoResult means that the Pod is still running.
var errNoResult = errors.New("there is no result yet")

// expectedTransports returns the number of connections of a mount with the given options. Zero if unknown.
func expectedTransports(protocol v1alpha1.VolumeProtocol, options []string) int32 {
	if protocol != v1alpha1.ProtocolNFS {
		return 0
	}
	if n, ok := mountoptions.NFS.Nconnect(options); ok {
		return int32(n)
	}
	return 1
}

// result returns the result of a pass from the Pod. It validates all values: the Pod's program is trusted, but the files that it works on are not.
func (c Clone) result(transports int32) (v1alpha1.ClonePass, error) {
	var termination *corev1.ContainerStateTerminated
	for _, status := range c.Pod.Status.ContainerStatuses {
		if status.Name == cloneContainer {
			termination = status.State.Terminated
		}
	}
	phase := c.Pod.Status.Phase
	switch {
	case termination == nil && phase != corev1.PodFailed && phase != corev1.PodSucceeded:
		return v1alpha1.ClonePass{}, errNoResult
	case termination == nil || termination.Message == "":
		return v1alpha1.ClonePass{}, fmt.Errorf("finished without a result: %s", describeEnd(c.Pod, termination))
	}
	result, err := decodePass(termination.Message)
	if err == nil && len(result.Phases) > 0 && result.Transports != transports {
		err = fmt.Errorf("had %s, but its mount options request %d", text.Count(int(result.Transports), "connection"), transports)
	}
	return result, err
}

func describeEnd(pod *corev1.Pod, termination *corev1.ContainerStateTerminated) string {
	if termination == nil {
		return text.CutBytes(text.Line(pod.Status.Reason+" "+pod.Status.Message), v1alpha1.MaxClonePassText)
	}
	return fmt.Sprintf("%s, exit code %d", termination.Reason, termination.ExitCode)
}

// Limits of the values from a clone's Pod, far above the values of any pass.
const (
	maxPassTime  = 2 * podLifetime * 1000 * 1000
	maxPassCount = 1 << 50
)

var (
	passOperation    = regexp.MustCompile(`\A[A-Z][A-Z0-9_]{0,23}\z`)
	errUnreadable    = errors.New("returned an unreadable result")
	errUnlikelyPass  = errors.New("returned impossible numbers")
	errUnknownPhases = errors.New("returned phases other than First and Repeated")
)

func decodePass(message string) (result v1alpha1.ClonePass, err error) {
	decoder := json.NewDecoder(strings.NewReader(message))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&result); err != nil || len(message) > v1alpha1.MaxClonePassBytes || message[decoder.InputOffset():] != "" {
		return v1alpha1.ClonePass{}, errUnreadable
	}
	if result.Failed != "" || result.Void != "" {
		return v1alpha1.ClonePass{Failed: sanitizeText(result.Failed), Void: sanitizeText(result.Void)}, nil
	}
	if len(result.Phases) != len(v1alpha1.PassPhases) {
		return v1alpha1.ClonePass{}, errUnknownPhases
	}
	for i, phase := range result.Phases {
		if phase.Name != v1alpha1.PassPhases[i] {
			return v1alpha1.ClonePass{}, errUnknownPhases
		}
		if !isLikely(phase) {
			return v1alpha1.ClonePass{}, errUnlikelyPass
		}
	}
	return result, nil
}

// sanitizeText limits a text to a form that is valid in a message.
func sanitizeText(s string) string { return text.CutBytes(text.Line(s), v1alpha1.MaxClonePassText) }

func isLikely(phase v1alpha1.TrialPassPhase) bool {
	names := map[string]bool{}
	numbers := []int64{phase.Units, phase.BytesSent, phase.BytesReceived}
	for _, o := range phase.Operations {
		if names[o.Name] || !passOperation.MatchString(o.Name) {
			return false
		}
		names[o.Name] = true
		numbers = append(numbers, o.Count)
	}
	return len(phase.Operations) <= v1alpha1.MaxTrialOperations && phase.Microseconds >= 0 && phase.Microseconds <= maxPassTime &&
		!slices.ContainsFunc(numbers, func(n int64) bool { return n < 0 || n > maxPassCount })
}
