package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

func (p *planner) advanceDisruption(n *nodeState) {
	p.addMissingClaim(n)
	if reason := p.findStop(n); (n.Deleting || n.isLeaving()) && n.hasUnusedPermit() && (reason != "" || p.isPermitOver(n)) {
		p.withdrawPermit(n, cmp.Or(reason, v1alpha1.RolloutReasonRebootTimedOut))
	}
	switch {
	case n.Deleting:
		n.maintenance = n.reportedMaintenance
		p.setNote(n, v1alpha1.RolloutReleasing, v1alpha1.RolloutReasonNodeDeleting, "The Node is being deleted; it uses up budget until it is gone; if the Node stays, remove its finalizers")
	case n.isLeaving() && (n.Mark != nil || n.permit != nil):
		p.handleLeavingNode(n)
	case n.permit != nil && n.hasBooted():
		p.acceptBooted(n)
	case n.permit != nil:
		p.awaitBoot(n)
	case n.hasFailed():
		p.keepFailedNode(n)
	case p.endLostAttempt(n):
	default:
		p.prepareNode(n)
	}
}

// handleLeavingNode stops work on a node that others are about to remove: it evicts no more pods and gives no permit. The cordon stays, because
// the others may treat it as theirs. If the taint is removed, the disruption continues. Only a failed reboot is recorded, because it may be the
// reason for the removal.
func (p *planner) handleLeavingNode(n *nodeState) {
	n.maintenance = n.reportedMaintenance
	isLost := false
	if n.permit != nil {
		started := n.permitAnswer().Phase == v1alpha1.RebootStarted
		isLost = (n.hasBooted() && !n.isHealthy() || !n.hasBooted() && started) && p.isOverdue(n)
	}
	switch {
	case n.hasFailed():
		p.keepNote(n)
	case isLost:
		p.setNote(n, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, fmt.Sprintf(
			"The node did not become healthy within %s of its reboot permit, and is about to be removed (%s)", p.rebootTimeout(n), n.leavingMark()))
	default:
		if n.isPermitWaiting() {
			p.withdrawPermit(n, v1alpha1.RolloutReasonNodeLeaving)
		}
		p.setNote(n, v1alpha1.RolloutReleasing, v1alpha1.RolloutReasonNodeLeaving,
			n.describeLeaving()+"; it uses up budget until it is gone, or until the taint is removed")
	}
}

// addMissingClaim adds the claim of a node that the rollout disrupts but whose claim is missing: the node does use up budget.
func (p *planner) addMissingClaim(n *nodeState) {
	if n.claim != nil || (n.permit == nil && !n.isCordonedByRollout()) {
		return
	}
	claim := p.claimFor(n)
	if n.Mark != nil && n.Mark.Profile != "" {
		claim = *n.Mark
	}
	claim.NodeUID, n.claim = n.UID, &claim
	p.describePermit(n, &claim)
	p.addStep(AddClaim{OnNode: OnNode{n.Name}, Claim: claim, Missing: true})
}

// acceptBooted handles a node that has booted since its permit. It returns the node to service once it is healthy, or marks it as failed.
func (p *planner) acceptBooted(n *nodeState) {
	if n.Mark == nil {
		// The cordon is gone, or a user removed the annotation and owns the cordon. Only the claim is left.
		p.returnToService(n, v1alpha1.RolloutReasonAccepted)
		return
	}
	n.maintenance = MaintenanceDrained
	if n.ClientNode == nil {
		p.returnToService(n, v1alpha1.RolloutReasonNothingToDo)
		return
	}
	late := p.isOverdue(n)
	switch {
	case n.hasFailed() && n.note.Reason == v1alpha1.RolloutReasonRebootWithoutEffect:
		// The manager stopped between the two writes of failBooted. The settings without effect may have been removed since.
		p.clearPermit(n, v1alpha1.RolloutReasonRebootWithoutEffect)
		p.keepFailedNode(n)
		return
	case n.isPermitOutdated():
		if n.Ready && n.hasReportedSettings() {
			p.clearPermit(n, v1alpha1.RolloutReasonSettingsChanging)
			p.prepareNode(n)
			return
		}
	case n.isHealthy():
		p.settleNode(n)
		return
	case n.hasSeenSpec() && n.hasReportedSettings() && p.failWithoutEffect(n):
		return
	}
	message := fmt.Sprintf("The node did not become healthy within %s of its reboot permit: %s", p.rebootTimeout(n), n.acceptanceObstacle())
	switch {
	case late && (n.isPermitOutdated() || !n.Ready || p.isInFuture(n.ReadySince.Add(p.rebootTimeout(n)))):
		// A node that hung and was power-cycled gets the full time to become healthy once it is Ready. It then gets another attempt with the
		// settings that are now desired, or its report decides: it may have booted its old boot entry.
		p.setNote(n, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, message)
		return
	case late:
		p.failBooted(n, v1alpha1.RolloutReasonRebootTimedOut, message)
		return
	}
	if end := n.ReadySince.Add(readyGrace); n.Ready && p.exactNow.Before(end) {
		// Its agent is about to write to the same object.
		p.wakeAt(end)
		p.keepNote(n)
		return
	}
	p.setNote(n, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonWaitingForNode, "The node has booted, but is not healthy yet: "+n.acceptanceObstacle())
}

func (p *planner) failWithoutEffect(n *nodeState) bool {
	switch ineffective := n.settings.Ineffective(); {
	case len(ineffective) > 0:
		p.failBooted(n, v1alpha1.RolloutReasonRebootWithoutEffect, "Settings failed after the reboot: "+standing.Describe(ineffective))
	case n.need.kind == needReboot:
		p.failBooted(n, v1alpha1.RolloutReasonRebootWithoutEffect, "The reboot had no effect on: "+text.List(n.ClientNode.Status.RebootRequiredBy))
	default:
		return false
	}
	return true
}

// failBooted writes the failure into the note before it clears the permit, because the failure is derived from the permit.
func (p *planner) failBooted(n *nodeState, reason, message string) {
	p.writeNoteAhead(n, p.newNote(n, v1alpha1.RolloutFailed, reason, message))
	p.clearPermit(n, reason)
}

func (n *nodeState) acceptanceObstacle() string {
	switch {
	case !n.Ready:
		return "it is not Ready"
	case !n.hasReportedSinceBoot():
		return "its agent has not reported since the boot"
	case !n.hasReportedSettings() || !n.hasSeenSpec():
		return "its agent has not reported the desired settings"
	case n.need.kind == needReboot:
		return "settings still need a reboot: " + text.List(n.ClientNode.Status.RebootRequiredBy)
	}
	return "settings without the desired value: " + standing.Describe(n.settings.Missing())
}

// rebootDeadline returns the time by which the node must be back and healthy. The time counts from the claim if the ID of the permit contains no
// time. For a permit that waited for its host, it counts from the end of that wait; for an overdue permit, from the pass that found it overdue.
func (p *planner) rebootDeadline(n *nodeState) time.Time {
	start := permitTime(n.permit.ID)
	if start.IsZero() {
		start = n.disruptedSince()
	}
	switch noteStart := n.noteSince(); {
	case n.note.Phase != v1alpha1.RolloutRebooting:
	case n.note.Reason == v1alpha1.RolloutReasonHostBusy && !n.isPermitWaiting():
		start = p.Now
	case noteStart.After(start):
		start = noteStart
	}
	if permit := n.claim.Permit; permit != nil && permit.Overdue != nil && !permit.Overdue.After(p.Now) {
		start = permit.Overdue.Time
	}
	return start.Add(p.rebootTimeout(n))
}

func (p *planner) rebootTimeout(n *nodeState) time.Duration {
	return toDuration(p.rulesFor(n).Reboot.TimeoutSeconds)
}

// permitDeadline returns the time by which the agent must have used its permit. It counts from the claim if the permit names no time, or one in the
// future: a clock has jumped.
func (p *planner) permitDeadline(n *nodeState) time.Time {
	for _, start := range []time.Time{permitTime(n.permit.ID), n.disruptedSince()} {
		if !start.IsZero() && !start.After(p.Now) {
			return start.Add(p.rebootTimeout(n))
		}
	}
	return p.Now
}

// overdueSince returns the time since which all passes have found an unused permit overdue, as the claim records it; nil if it is not overdue.
func (p *planner) overdueSince(n *nodeState) *metav1.Time {
	if !n.hasUnusedPermit() || p.isInFuture(p.permitDeadline(n)) {
		return nil
	}
	if permit := n.claim.Permit; permit != nil && permit.Overdue != nil && !permit.Overdue.After(p.Now) {
		return permit.Overdue
	}
	return &metav1.Time{Time: p.Now}
}

// isPermitOver reports whether an unused permit was overdue in an earlier pass already.
func (p *planner) isPermitOver(n *nodeState) bool {
	overdue := p.overdueSince(n)
	return overdue != nil && !p.isInFuture(overdue.Add(overduePause))
}

func (p *planner) isOverdue(n *nodeState) bool { return !p.isInFuture(p.rebootDeadline(n)) }

// settleNode watches a healthy node for a while, and then returns it to service. Another boot in that time, observed or not, restarts the watch.
func (p *planner) settleNode(n *nodeState) {
	start := p.Now
	if n.note.Phase == v1alpha1.RolloutSettling && n.note.BootID == n.BootID {
		start = n.noteSince()
	}
	end := start.Add(toDuration(p.rulesFor(n).SettleSeconds))
	if p.isInFuture(end) {
		note := p.newNote(n, v1alpha1.RolloutSettling, v1alpha1.RolloutReasonSettling,
			"Settings verified after the reboot; watching until "+formatTime(end))
		note.BootID, note.Since = n.BootID, &metav1.Time{Time: start}
		p.storeNote(n, note)
		return
	}
	p.returnToService(n, v1alpha1.RolloutReasonAccepted)
}

// returnToService uncordons a node, then releases its claim, then writes the note and clears a permit that is older than the boot.
func (p *planner) returnToService(n *nodeState, reason string) {
	n.maintenance = MaintenanceNone
	p.updateMaintenance(n)
	if n.Mark != nil {
		p.addStep(Uncordon{OnNode{n.Name}, reason})
	}
	p.removeGuards(n)
	if n.claim != nil {
		p.addStep(ReleaseClaim{OnNode{n.Name}})
		n.released = true
		// The freed budget counts once the claim is gone: for the same pass, or for the next.
		p.wakeAt(p.Now)
	}
	p.plan.Draining.Delete(n.Name)
	permit := n.permit
	n.permit = nil
	p.describeIdle(n)
	if n.permit = permit; permit != nil {
		// The agent responds immediately: a note written after that would meet a conflict.
		p.writeNote(n)
		p.clearPermit(n, reason)
	}
}

// endDisruption returns a node to service. It writes the note first: if another manager, about to stop, gives the permit now, it meets a conflict.
func (p *planner) endDisruption(n *nodeState, reason string) {
	p.writeNoteAhead(n, p.newNote(n, v1alpha1.RolloutReleasing, reason, "Returning the node to service"))
	p.returnToService(n, reason)
}

// keepFailedNode keeps a failed node cordoned. It accepts the node if it becomes healthy later.
func (p *planner) keepFailedNode(n *nodeState) {
	n.maintenance = MaintenanceDrained
	switch {
	case n.isCordonedByRollout() && n.hasRecovered():
		p.settleNode(n)
		return
	case !n.isCordonedByRollout(), n.Ready && n.hasFailedUnrebooted():
		p.returnToService(n, n.note.Reason)
	}
	p.keepNote(n)
}

const permitText = "The agent has its permit and reboots the node"

// awaitBoot waits for the agent to use its permit. A permit that is no longer valid, that a person has stopped or that is over is withdrawn. A window
// that closes lets the agent use it until then.
func (p *planner) awaitBoot(n *nodeState) {
	n.maintenance = MaintenanceDrained
	answer := n.permitAnswer()
	if answer.Phase == v1alpha1.RebootStarted {
		p.awaitStarted(n)
		return
	}
	if n.hasFailed() && answer.Phase == v1alpha1.RebootFailed {
		// The node is back and would get another attempt.
		p.clearPermit(n, n.note.Reason)
		p.keepFailedNode(n)
		return
	}
	stopped := p.findStop(n)
	isCordonLost := stopped == v1alpha1.RolloutReasonCordonLost
	switch {
	case answer.Phase == v1alpha1.RebootFailed && !isCordonLost:
		// The host may still go down, so the node stays unchanged for a while, regardless of other changes.
		p.endRejectedAttempt(n, answer)
	case isCordonLost:
		p.withdrawPermit(n, v1alpha1.RolloutReasonCordonLost)
		p.backOffFrom(n, v1alpha1.RolloutReasonCordonLost, cordonLostText)
	case n.Mark == nil, n.isPermitOutdated(), n.hasSeenSpec() && n.need.kind == needNone:
		p.withdrawPermit(n, v1alpha1.RolloutReasonSettingsChanging)
		p.prepareNode(n)
	case stopped != "":
		p.withdrawPermit(n, stopped)
		p.endDisruption(n, stopped)
	case answer.Phase == v1alpha1.RebootRefused:
		p.endRejectedAttempt(n, answer)
	case answer.Phase == v1alpha1.RebootWaiting:
		p.awaitHost(n, answer.Message)
	case p.isPermitOver(n):
		p.withdrawPermit(n, v1alpha1.RolloutReasonRebootTimedOut)
		p.backOffFrom(n, v1alpha1.RolloutReasonRebootTimedOut, p.unusedText(n))
	case n.hasFailed(), n.note.Phase == v1alpha1.RolloutRebooting && n.note.Reason == v1alpha1.RolloutReasonPermitGiven:
		p.keepNote(n)
	default:
		p.setNote(n, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, permitText)
	}
}

func (p *planner) unusedText(n *nodeState) string {
	return fmt.Sprintf("The agent did not use its reboot permit within %s; check the log of its Pod", p.rebootTimeout(n))
}

// endLostAttempt uncounts an attempt that only the note still contains: the manager stopped right before or after the permit was there. It reports
// whether the permit was overdue, and then ends the disruption in the same way.
func (p *planner) endLostAttempt(n *nodeState) bool {
	isNoted := n.note.Phase == v1alpha1.RolloutRebooting && n.note.BootHash == n.target
	if !isNoted || n.need.kind == needNone || isUsed(ptr.Deref(n.ClientNode.Status.Reboot, v1alpha1.RebootStatus{}).Phase) {
		return false
	}
	n.note.Phase, n.note.Since, n.note.Attempts = v1alpha1.RolloutDraining, nil, n.note.Attempts-1
	overdue := ptr.Deref(ptr.Deref(n.claim, v1alpha1.Disruption{}).Permit, v1alpha1.ClaimedPermit{}).Overdue
	isOver := overdue != nil && !p.isInFuture(overdue.Add(overduePause))
	if !isOver || n.Mark == nil || p.findStop(n) != "" || n.note.Reason == v1alpha1.RolloutReasonHostBusy {
		return false
	}
	p.backOffFrom(n, v1alpha1.RolloutReasonRebootTimedOut, p.unusedText(n))
	return true
}

// findStop returns the reason why a person has stopped a node with a permit, empty if there is none. While the agent has not reported, any profile
// whose settings that require a reboot were not all effective in its last report may need the boot.
func (p *planner) findStop(n *nodeState) string {
	if n.note.Reason == v1alpha1.RolloutReasonCordonLost || !n.Unschedulable {
		return v1alpha1.RolloutReasonCordonLost
	}
	wide := *n
	if n.need.kind == needUnknown {
		wide.need.names = slices.Concat(n.need.names, lists.Pick(n.ClientNode.Spec.Settings, func(s v1alpha1.NodeSetting) (string, bool) {
			mayWait := n.ClientNode.Spec.Release || slices.ContainsFunc(n.settings.Settings, func(known standing.Setting) bool { return known.Key == s.Key })
			return s.Profile, mayWait && nodesettings.TakesEffectAtBoot(s.Key)
		}))
	}
	reason, _ := p.checkStops(&wide)
	return reason
}

// awaitStarted waits for a reboot that the agent has started. The permit can no longer be withdrawn.
func (p *planner) awaitStarted(n *nodeState) {
	if !n.Unschedulable {
		p.cordonNode(n)
	}
	switch {
	case p.isOverdue(n):
		p.setNote(n, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, fmt.Sprintf(
			"The reboot started, but the node still has its old boot ID %s after the permit; reboot the node by hand", p.rebootTimeout(n)))
	case n.note.Phase == v1alpha1.RolloutRebooting && n.note.Reason == v1alpha1.RolloutReasonPermitGiven:
		// The status that the agent reported contains the rest.
		p.keepNote(n)
	default:
		p.setNote(n, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonRebootStarted, "The node is rebooting")
	}
}

// awaitHost keeps the permit of a node whose host is busy and must not be interrupted. It does so no longer than the timeout of a reboot, and while
// neither failures nor other control-plane nodes prevent the reboot. A window that closes lets the agent use its permit until then.
func (p *planner) awaitHost(n *nodeState, holders string) {
	switch reason, _ := firstReason(n, ofEachProfile(p.checkFailures), p.checkControlPlane); {
	case reason != "":
		p.withdrawPermit(n, reason)
		p.endDisruption(n, reason)
	case p.isPermitOver(n):
		p.withdrawPermit(n, v1alpha1.RolloutReasonHostBusy)
		p.backOffFrom(n, v1alpha1.RolloutReasonHostBusy, fmt.Sprintf("The host was busy for %s: %s", p.rebootTimeout(n), holders))
	default:
		p.setNote(n, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonHostBusy, "The host is busy; the agent reboots it when it is free: "+holders)
	}
}

// endRejectedAttempt ends an attempt that the agent or its host rejected. After the drain's timeout, a rejection ends the disruption.
func (p *planner) endRejectedAttempt(n *nodeState, answer v1alpha1.RebootStatus) {
	if answer.Phase == v1alpha1.RebootRefused && !p.Now.Before(p.drainDeadline(n)) {
		p.withdrawPermit(n, v1alpha1.RolloutReasonPermitRefused)
		p.backOffFrom(n, v1alpha1.RolloutReasonPermitRefused, fmt.Sprintf(
			"The agent did not reboot the node within %s of its drain: %s", toDuration(p.rulesFor(n).Drain.TimeoutSeconds), answer.Message))
		return
	}
	n.dropUnusedAttempt()
	p.writeNoteAhead(n, p.newNote(n, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonPermitRefused, "Not rebooted: "+answer.Message))
	p.clearPermit(n, v1alpha1.RolloutReasonPermitRefused)
	p.wakeAt(p.Now.Add(RefusalPause))
}

// withdrawPermit withdraws a permit. If the API server rejects that, a node that a user has uncordoned is cordoned again: it may still reboot.
func (p *planner) withdrawPermit(n *nodeState, reason string) {
	step := ClearPermit{OnNode: OnNode{n.Name}, ID: n.permit.ID, Reason: reason}
	if !n.Unschedulable {
		step.Cordon = ptr.To(p.cordonOf(n))
		step.Note = p.newNote(n, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonCordonLost, cordonLostText)
	}
	n.dropUnusedAttempt()
	// It comes first: a missing claim that cannot be added must not delay it.
	p.plan.Steps = slices.Insert(p.plan.Steps, 0, Step(step))
	n.permit = nil
}

const cordonLostText = "Another user or controller uncordoned the node"

// prepareNode takes a node without a permit from its claim to its permit, or returns it to service.
func (p *planner) prepareNode(n *nodeState) {
	switch {
	case n.Mark != nil && (!n.Unschedulable || n.note.Reason == v1alpha1.RolloutReasonCordonLost && !n.note.Phase.IsInService()):
		p.backOffFrom(n, v1alpha1.RolloutReasonCordonLost, cordonLostText)
	case n.Mark == nil && n.Unschedulable:
		p.endDisruption(n, v1alpha1.RolloutReasonCordonedByOthers)
	case n.Mark == nil:
		if reason, _ := p.findObstacle(n); reason != "" {
			p.returnToService(n, reason)
			return
		}
		p.cordonNode(n)
		p.startDrain(n)
	default:
		p.drainNode(n)
	}
}

// cordonNode makes the node unschedulable and annotates it. The conditions are written first: once the Node is cordoned, others write to it.
func (p *planner) cordonNode(n *nodeState) {
	if n.maintenance = MaintenanceDraining; n.permit != nil {
		n.maintenance = MaintenanceDrained
	}
	p.updateMaintenance(n)
	p.addStep(p.cordonOf(n))
}

func (p *planner) cordonOf(n *nodeState) Cordon {
	mark := p.claimFor(n)
	if n.Mark != nil && !n.Mark.Since.IsZero() {
		mark.Since = n.Mark.Since
	}
	return Cordon{OnNode{n.Name}, mark, p.rulesFor(n).Drain.ExcludeFromLoadBalancersSeconds > 0}
}

// drainNode drains a node that the rollout has cordoned, as long as the node needs the reboot.
func (p *planner) drainNode(n *nodeState) {
	n.maintenance = MaintenanceDraining
	isPermitRejected := n.note.Phase == v1alpha1.RolloutDraining && n.note.Reason == v1alpha1.RolloutReasonPermitRefused
	if isPermitRejected && p.isInFuture(n.noteSince().Add(RefusalPause)) {
		p.keepNote(n)
		return
	}
	if n.need.kind == needNone {
		if n.usedAttempts() > 0 && !n.ClientNode.Spec.Release {
			p.acceptRebootedAnyway(n)
			return
		}
		p.endDisruption(n, v1alpha1.RolloutReasonNothingToDo)
		return
	}
	reason, _ := p.checkRules(n)
	if reason == "" && n.Leaving != "" {
		reason = v1alpha1.RolloutReasonNodeLeaving
	}
	if reason != "" {
		p.endDisruption(n, reason)
		return
	}
	if n.need.kind == needUnknown || n.isChanging() {
		// The node stays drained until its need is known again, at most for the timeout of its drain.
		reason, message := n.unknownNeedReason()
		if p.isInFuture(p.drainDeadline(n)) {
			p.setNote(n, v1alpha1.RolloutDraining, reason, message)
			return
		}
		p.backOffFrom(n, v1alpha1.RolloutReasonDrainTimedOut, "The drain timed out: "+message)
		return
	}
	if reason, message := n.checkAcceptance(); reason != "" {
		p.backOffFrom(n, reason, message)
		return
	}
	if end := p.drainStart(n); p.isInFuture(end) {
		p.setNote(n, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonLeavingLoadBalancers,
			"Waiting until "+formatTime(end)+" for external load balancers to remove the node")
		return
	}
	p.plan.Draining.Insert(n.Name)
	nextInspection := p.nextInspectionAfter(n.Inspected)
	switch inspected := dependsOnPods(n.drainReason()) && p.exactNow.Before(nextInspection); {
	case n.Drain != nil:
		p.finishDrain(n)
	case inspected && !n.note.Phase.IsInService():
		p.wakeAt(nextInspection)
		p.keepNote(n)
	case inspected:
		p.wakeAt(nextInspection)
		p.setDrainNote(n, "Draining the node")
	default:
		p.addStep(Drain{OnNode: OnNode{n.Name}, Options: p.drainOptions(n), Evicted: n.note.Evictions, TimeLeft: p.timeLeft(n)})
		p.setDrainNote(n, "Draining the node")
		p.wakeAt(p.nextInspectionAfter(p.exactNow))
	}
}

// startDrain evicts the first pods as soon as the node is cordoned, unless external load balancers get time first.
func (p *planner) startDrain(n *nodeState) {
	options := p.drainOptions(n)
	if options.ExcludeFromLoadBalancersSeconds > 0 {
		p.setNote(n, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, "The node is cordoned")
		p.wakeAt(p.Now)
		return
	}
	p.plan.Draining.Insert(n.Name)
	p.addStep(Drain{OnNode: OnNode{n.Name}, Options: options, AfterCordon: true})
	p.setDrainNote(n, "Draining the node")
	p.wakeAt(p.nextInspectionAfter(p.exactNow))
}

// drainStart returns the earliest time for evictions. External load balancers drop the node before that.
func (p *planner) drainStart(n *nodeState) time.Time {
	return n.disruptedSince().Add(time.Duration(p.rulesFor(n).Drain.ExcludeFromLoadBalancersSeconds) * time.Second)
}

func (p *planner) drainDeadline(n *nodeState) time.Time {
	return p.drainStart(n).Add(toDuration(p.rulesFor(n).Drain.TimeoutSeconds))
}

// acceptRebootedAnyway accepts a node that no longer needs a reboot although the attempt in its note finished without one: its host went down after
// it had rejected the reboot, or a user rebooted it. The node must be as healthy as after a permitted boot.
func (p *planner) acceptRebootedAnyway(n *nodeState) {
	switch {
	case n.isHealthy():
		p.settleNode(n)
	case p.isInFuture(p.drainDeadline(n)):
		p.setNote(n, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonWaitingForNode,
			"The node no longer needs a reboot, but is not healthy yet: "+n.acceptanceObstacle())
	default:
		p.endDisruption(n, v1alpha1.RolloutReasonNothingToDo)
	}
}

func (n *nodeState) unknownNeedReason() (reason, message string) {
	switch {
	case !n.hasReportedSinceBoot():
		return v1alpha1.RolloutReasonAgentSilent, "The agent has not reported since the node's last boot; check its Pod"
	case !n.hasReportedSettings():
		return v1alpha1.RolloutReasonApplying, "The agent has not reported the desired settings yet; if it stays silent, check its Pod"
	}
	return v1alpha1.RolloutReasonSettingsChanging, "The new settings that require a reboot have not reached the node yet; see its condition Tuned"
}

func (p *planner) finishDrain(n *nodeState) {
	busy := n.busyMounts(*p.rulesFor(n).Drain.IgnoreDaemonSetMounts)
	switch {
	case !n.Drain.Gone:
		p.awaitDrain(n, n.Drain.Reason, n.Drain.Message+text.Labelled(". ", n.Drain.Remarks))
	case len(busy) > 0:
		p.awaitDrain(n, v1alpha1.RolloutReasonMountsBusy, "Mounts still in use: "+text.List(busy))
	case !n.AgentReady:
		p.awaitDrain(n, v1alpha1.RolloutReasonAgentSilent, "The agent's Pod is not Ready")
	case !n.hasSeenSpec():
		p.awaitDrain(n, v1alpha1.RolloutReasonApplying, "The agent has not seen the latest StorageClientNode yet")
	case len(n.failingServers()) > 0:
		p.awaitDrain(n, v1alpha1.RolloutReasonStorageUnreachable, "The node's shutdown would hang")
	case sharedBudget(n, n.Drain.Budgets, p.states) != "":
		p.awaitDrain(n, v1alpha1.RolloutReasonDrainBlocked, sharedBudget(n, n.Drain.Budgets, p.states))
	case p.isInFuture(p.volumesDeadline(n)):
		p.awaitDrain(n, v1alpha1.RolloutReasonVolumesInUse, fmt.Sprintf("Waiting until %s, so that evicted pods can start on other nodes; the Node still reports volumes in use: %s",
			formatTime(p.volumesDeadline(n)), text.List(n.VolumesInUse)))
	case !p.takeRoom(n, p.permittedClaim(n), maxPermitBytes):
		p.awaitDrain(n, v1alpha1.RolloutReasonWaitingForBudget, noRoom)
	default:
		p.startAttempt(n)
	}
}

func (p *planner) permittedClaim(n *nodeState) v1alpha1.Disruption {
	claim := *n.claim
	claim.NodeUID, claim.Permit = n.UID, p.permitOf(n, n.target)
	for _, name := range slices.Sorted(maps.Keys(n.Drain.Budgets)) {
		claim.Permit.Budgets = append(claim.Permit.Budgets, slices.Repeat([]string{name}, n.Drain.Budgets[name].Pods)...)
	}
	return claim
}

// volumesDeadline returns the end of the wait for the volumes of pods that have left, so that these pods can start on other nodes; zero if there is
// none: after a rejected permit, or if a pod with volumes stays, because the Node does not show which pods use a volume.
func (p *planner) volumesDeadline(n *nodeState) time.Time {
	if len(n.VolumesInUse) == 0 || n.Drain.KeepsVolumes || n.note.Reason == v1alpha1.RolloutReasonPermitRefused {
		return time.Time{}
	}
	start := p.Now
	if n.note.Reason == v1alpha1.RolloutReasonVolumesInUse {
		start = n.noteSince()
	}
	return slices.MinFunc([]time.Time{start.Add(volumesPatience), p.drainDeadline(n)}, time.Time.Compare)
}

// awaitDrain continues a drain, or ends it when it times out. If a storage server does not respond, the note gives that as the reason.
func (p *planner) awaitDrain(n *nodeState, reason, message string) {
	timedOut := v1alpha1.RolloutReasonDrainTimedOut
	if failing := n.failingServers(); len(failing) > 0 {
		reason, timedOut = v1alpha1.RolloutReasonStorageUnreachable, v1alpha1.RolloutReasonStorageUnreachable
		message = describeServers(failing, n.Drain) + ". " + message
	}
	if !p.Now.Before(p.drainDeadline(n)) || n.Drain != nil && n.Drain.TooLate {
		timeout := toDuration(p.rulesFor(n).Drain.TimeoutSeconds)
		p.backOffFrom(n, timedOut, fmt.Sprintf("The drain did not finish within %s: %s", timeout, message))
		return
	}
	p.wakeAt(p.nextInspectionAfter(p.exactNow))
	if reason == v1alpha1.RolloutReasonDraining {
		p.setDrainNote(n, message)
		return
	}
	p.setNote(n, v1alpha1.RolloutDraining, reason, message)
}

// sharedBudget describes a budget that does not allow all pods that stay on a node to go down in addition to the pods of nodes with permits, empty if
// there is none. The API server counts the pods of those nodes as running until they go down.
func sharedBudget(n *nodeState, shares map[string]BudgetShare, all []*nodeState) string {
	for _, budget := range slices.Sorted(maps.Keys(shares)) {
		share, pods := shares[budget], shares[budget].Pods
		var nodes []string
		for _, other := range all {
			if other.Name == n.Name || other.permit == nil || other.claim == nil || other.claim.Permit == nil {
				continue
			}
			for _, name := range other.claim.Permit.Budgets {
				if name == budget {
					pods++
					nodes = append(nodes, other.Name)
				}
			}
		}
		switch {
		case pods <= share.Allowed:
		case len(nodes) > 0:
			return fmt.Sprintf("PodDisruptionBudget %s also covers pods on %s, which has a reboot permit or has failed", budget, text.List(slices.Compact(nodes)))
		default:
			return fmt.Sprintf("PodDisruptionBudget %s allows %d disruptions, but the reboot would stop %d of its pods; remove their tolerations, or "+
				"reboot the node by hand", budget, share.Allowed, pods)
		}
	}
	return ""
}

func (n *nodeState) busyMounts(ignoreDaemonSets bool) []string {
	var busy []string
	for _, m := range n.ClientNode.Status.BusyMounts {
		switch pod := n.Drain.Left[m.PodUID]; {
		case pod != "":
			busy = append(busy, fmt.Sprintf("%s (%s)", m.MountPoint, pod))
		case !ignoreDaemonSets || !m.IsIgnored(n.Drain.IgnoredPodUIDs):
			busy = append(busy, m.MountPoint)
		}
	}
	if omitted := n.ClientNode.Status.BusyMountsOmitted; omitted > 0 {
		busy = append(busy, fmt.Sprintf("%d not listed", omitted))
	}
	return busy
}

// startAttempt records the start of an attempt in the note, and gives the permit.
func (p *planner) startAttempt(n *nodeState) {
	message := permitText
	if n.Drain != nil {
		message += text.Labelled(". ", n.Drain.Remarks)
	}
	note := p.newNote(n, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, message)
	note.Since, note.RetryAfter = &metav1.Time{Time: p.Now}, nil
	if note.Attempts++; note.Attempts > MaxAttempts {
		p.writeNoteAhead(n, p.newNote(n, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonAttemptsUsedUp, attemptsUsedUpText))
		return
	}
	// The claim records the permit before it is given.
	p.writeClaim(n, p.permittedClaim(n))
	p.writeNoteAhead(n, note)
	p.addStep(SetMaintenance{OnNode{n.Name}, MaintenanceDrained, true})
	n.maintenance, n.reportedMaintenance = MaintenanceDrained, MaintenanceDrained
	// The manager withdraws the permit before that, if it runs.
	notAfter := metav1.Time{Time: p.Now.Add(p.rebootTimeout(n) + 2*overduePause)}
	permit := v1alpha1.RebootPermit{ID: permitID(n, note), BootHash: n.ClientNode.Spec.BootHash, BootID: n.BootID, NotAfter: &notAfter}
	if *p.rulesFor(n).Drain.IgnoreDaemonSetMounts {
		const maxIgnoredPods = 256
		podUIDs := slices.Compact(slices.Sorted(slices.Values(n.Drain.IgnoredPodUIDs)))
		permit.IgnorePodUIDs = podUIDs[:min(len(podUIDs), maxIgnoredPods)]
	}
	p.addStep(GivePermit{OnNode{n.Name}, permit})
	n.permit = &permit
	p.wakeAt(p.Now.Add(p.rebootTimeout(n)))
}
