package plan

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// advanceDisruption takes a node that we hold one step further, or lets it go.
func (p *planner) advanceDisruption(v *nodeState) {
	p.addMissingClaim(v)
	switch {
	case v.Deleting:
		v.maintenance = v.maintenanceShown
		p.setNote(v, v1alpha1.RolloutReleasing, v1alpha1.RolloutReasonNodeDeleting, "The Node is being deleted; it is left alone and holds budget until it is gone")
	case v.permit != nil && v.hasBooted():
		p.acceptBooted(v)
	case v.permit != nil:
		p.awaitBoot(v)
	case v.hasFailed():
		p.keepFailedNode(v)
	default:
		p.prepareNode(v)
	}
}

// addMissingClaim enters a node again that is disrupted by us and whose claim is missing: it does use up budget.
func (p *planner) addMissingClaim(v *nodeState) {
	if v.claim != nil || (v.permit == nil && !v.isCordonedByUs()) {
		return
	}
	claim := p.claimFor(v)
	if v.Mark != nil && v.Mark.Profile != "" {
		claim = *v.Mark
	}
	v.claim = &claim
	p.addStep(AddClaim{OnNode{v.Name}, claim, true})
}

// acceptBooted looks whether a node that has booted since its permit is as it has to be.
func (p *planner) acceptBooted(v *nodeState) {
	if v.Mark == nil {
		// The cordon has been undone already, or somebody made it theirs: nothing of ours is left but the claim.
		p.returnToService(v, v1alpha1.RolloutReasonAccepted)
		return
	}
	v.maintenance = MaintenanceDrained
	if v.ClientNode == nil {
		p.returnToService(v, v1alpha1.RolloutReasonNothingToDo)
		return
	}
	late := p.isOverdue(v)
	switch {
	case v.hasFailed() && v.note.Reason == v1alpha1.RolloutReasonRebootWithoutEffect:
		// A manager died between the two writes of failBooted; what had no effect may have been taken out since.
		p.clearPermit(v, v1alpha1.RolloutReasonRebootWithoutEffect)
		p.keepFailedNode(v)
		return
	case v.isPermitOutdated():
		if v.Ready && v.hasReportedSettings() {
			p.clearPermit(v, v1alpha1.RolloutReasonSettingsChanging)
			p.prepareNode(v)
			return
		}
	case v.isHealthy():
		p.settleNode(v)
		return
	case v.hasSeenSpec() && v.hasReportedSettings() && p.failWithoutEffect(v):
		return
	}
	message := fmt.Sprintf("The node was not back and well %s after its permit: %s", p.rebootTimeout(v), v.whyNotAccepted())
	switch {
	case late && (v.isPermitOutdated() || p.isReturning(v)):
		// Once the node is back, it is tried with what is asked for now, or judged by what it says: it may be as declared, or
		// have come up with its old boot entry.
		p.setNote(v, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, message)
		return
	case late:
		p.failBooted(v, v1alpha1.RolloutReasonRebootTimedOut, message)
		return
	}
	if end := v.ReadySince.Add(readyGrace); v.Ready && p.exactNow.Before(end) {
		// Its agent is about to write to the same object.
		p.wakeAt(end)
		p.keepNote(v)
		return
	}
	p.setNote(v, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonWaitingForNode, "The node has booted: "+v.whyNotAccepted())
}

// isReturning reports whether a node that has booted late is on its way: one that hung, and whose power somebody cut. From
// being Ready on, it has as long to be well as any other.
func (p *planner) isReturning(v *nodeState) bool {
	if !v.Ready {
		return true
	}
	end := v.ReadySince.Add(p.rebootTimeout(v))
	if !p.Now.Before(end) {
		return false
	}
	p.wakeAt(end)
	return true
}

// failWithoutEffect fails a node that came back and says itself that it is not as declared.
func (p *planner) failWithoutEffect(v *nodeState) bool {
	bad, _ := v.unmetSettings()
	switch {
	case len(bad) > 0 && !v.ClientNode.Spec.Release:
		p.failBooted(v, v1alpha1.RolloutReasonRebootWithoutEffect, "After the boot these settings failed: "+text.List(bad))
	case v.need.kind == needReboot:
		p.failBooted(v, v1alpha1.RolloutReasonRebootWithoutEffect, "The boot had no effect on: "+text.List(v.ClientNode.Status.RebootRequiredBy))
	default:
		return false
	}
	return true
}

// failBooted writes the failure down before the permit, from which it follows, is cleared.
func (p *planner) failBooted(v *nodeState, reason, message string) {
	p.writeNoteAhead(v, p.newNote(v, v1alpha1.RolloutFailed, reason, message))
	p.clearPermit(v, reason)
}

// whyNotAccepted tells what a node lacks to be accepted.
func (v *nodeState) whyNotAccepted() string {
	switch {
	case !v.Ready:
		return "it is not Ready"
	case !v.hasReportedSinceBoot():
		return "its agent has not reported since the boot"
	case !v.hasReportedSettings() || !v.hasSeenSpec():
		return "its agent has not reported the declared settings"
	case v.need.kind == needReboot:
		return "still waiting for a boot: " + text.List(v.ClientNode.Status.RebootRequiredBy)
	}
	bad, waiting := v.unmetSettings()
	return "not as declared: " + text.List(slices.Concat(bad, waiting))
}

// rebootDeadline is when the node has to be back and well. A permit whose id does not tell counts from the claim.
func (p *planner) rebootDeadline(v *nodeState) time.Time {
	given := permitTime(v.permit.ID)
	if given.IsZero() {
		given = v.disruptedSince()
	}
	return given.Add(p.rebootTimeout(v))
}

func (p *planner) rebootTimeout(v *nodeState) time.Duration {
	return toDuration(p.rulesFor(v).Reboot.TimeoutSeconds)
}

func (p *planner) isOverdue(v *nodeState) bool {
	deadline := p.rebootDeadline(v)
	if p.Now.Before(deadline) {
		p.wakeAt(deadline)
		return false
	}
	return true
}

// settleNode watches a node that is well for a while, and returns it to service.
func (p *planner) settleNode(v *nodeState) {
	since := p.Now
	if v.note.Phase == v1alpha1.RolloutSettling {
		since = v.noteSince()
	}
	end := since.Add(toDuration(p.rulesFor(v).SettleSeconds))
	if p.Now.Before(end) {
		p.wakeAt(end)
		p.setNote(v, v1alpha1.RolloutSettling, v1alpha1.RolloutReasonSettling, "The node came back as declared and settles until "+formatTime(end))
		return
	}
	p.returnToService(v, v1alpha1.RolloutReasonAccepted)
}

// returnToService returns a node to service: uncordon, then the claim, then the note and a permit that a boot has outlived.
func (p *planner) returnToService(v *nodeState, reason string) {
	v.maintenance = MaintenanceNone
	p.updateMaintenance(v)
	if v.Mark != nil {
		p.addStep(Uncordon{OnNode{v.Name}, reason})
	}
	p.removeGuards(v)
	if v.claim != nil {
		p.addStep(ReleaseClaim{OnNode{v.Name}})
		// What it held is for the next pass to give away.
		p.wakeAt(p.Now)
	}
	permit := v.permit
	v.permit = nil
	p.describeIdle(v)
	if v.permit = permit; permit != nil {
		// The agent answers at once: a note after that would meet a conflict.
		p.writeNote(v)
		p.clearPermit(v, reason)
	}
}

// endDisruption releases a node that might get its permit at this moment from a manager that is about to end: writing the note
// first makes that permit a conflict.
func (p *planner) endDisruption(v *nodeState, reason string) {
	p.writeNoteAhead(v, p.newNote(v, v1alpha1.RolloutReleasing, reason, "The node is returned to service"))
	p.returnToService(v, reason)
}

// backOffFrom releases a node and leaves it alone for a while. That is written ahead: the uncordoned node does not tell.
func (p *planner) backOffFrom(v *nodeState, reason, message string) {
	status := p.newNote(v, v1alpha1.RolloutWaiting, reason, message)
	p.writeNoteAhead(v, status)
	p.returnToService(v, reason)
	p.storeNote(v, status)
	p.wakeAt(p.Now.Add(BackOff))
}

// keepFailedNode keeps a failed node as its profile says, and accepts it once it is well after all.
func (p *planner) keepFailedNode(v *nodeState) {
	v.maintenance = MaintenanceDrained
	switch {
	case v.isCordonedByUs() && v.hasRecovered():
		p.settleNode(v)
		return
	case !v.isCordonedByUs(), p.rulesFor(v).OnNodeFailure == v1alpha1.FailureUncordon && v.Ready:
		p.returnToService(v, v.note.Reason)
	}
	p.keepNote(v)
}

// awaitBoot waits for the agent to use its permit. It is withdrawn only once the agent has answered.
func (p *planner) awaitBoot(v *nodeState) {
	v.maintenance = MaintenanceDrained
	answer := v.permitAnswer()
	if answer.Phase == v1alpha1.RebootStarted {
		p.awaitStarted(v)
		return
	}
	lost := v.note.Reason == v1alpha1.RolloutReasonCordonLost || !v.Unschedulable
	answered := v.hasSeenSpec() || answer.Phase != ""
	switch {
	case answer.Phase == v1alpha1.RebootFailed && !lost:
		// The host may yet go down: the node stays as it is for a while, whatever else has changed.
		p.endRefusedAttempt(v, answer)
	case lost, v.Mark == nil, v.isPermitOutdated(), v.hasSeenSpec() && v.need.kind == needNone:
		p.withdrawPermit(v, lost, answered)
	case answer.Phase == v1alpha1.RebootRefused:
		p.endRefusedAttempt(v, answer)
	case p.isOverdue(v):
		p.failUnanswered(v)
	default:
		p.setNote(v, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, "The agent may reboot the node")
	}
}

// awaitStarted waits for a reboot that the agent has asked for. There is nothing to be withdrawn any more.
func (p *planner) awaitStarted(v *nodeState) {
	if !v.Unschedulable {
		p.cordonNode(v)
	}
	if p.isOverdue(v) {
		message := fmt.Sprintf("The reboot was started and the node has the same boot ID %s later; reboot it by hand", p.rebootTimeout(v))
		p.setNote(v, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, message)
		return
	}
	p.setNote(v, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonRebootStarted, "The node reboots")
}

// endRefusedAttempt ends an attempt that the agent or its host refused.
func (p *planner) endRefusedAttempt(v *nodeState, answer v1alpha1.RebootStatus) {
	status := p.newNote(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonPermitRefused, "No reboot: "+answer.Message)
	p.writeNoteAhead(v, status)
	p.clearPermit(v, v1alpha1.RolloutReasonPermitRefused)
	p.wakeAt(p.Now.Add(RefusalPause))
}

// withdrawPermit takes back a permit that is no longer right, once the agent has answered.
func (p *planner) withdrawPermit(v *nodeState, lost, answered bool) {
	switch {
	case answered && lost:
		p.clearPermit(v, v1alpha1.RolloutReasonWithdrawingPermit)
		p.backOffFrom(v, v1alpha1.RolloutReasonCordonLost, "Somebody uncordoned the node; it is left alone for a while")
	case answered:
		p.clearPermit(v, v1alpha1.RolloutReasonWithdrawingPermit)
		p.prepareNode(v)
	case lost:
		p.writeNoteAhead(v, p.newNote(v, v1alpha1.RolloutReleasing, v1alpha1.RolloutReasonCordonLost, "Somebody uncordoned the node while its agent held a permit; it is given up once the agent has answered"))
		if !v.Unschedulable {
			// The node may go down at any moment: no pod is to come here before the agent has answered.
			p.cordonNode(v)
		}
	default:
		p.setNote(v, v1alpha1.RolloutReleasing, v1alpha1.RolloutReasonWithdrawingPermit, "The permit is no longer right; it is withdrawn once the agent has answered")
	}
}

// failUnanswered fails a node whose agent did nothing about its permit in time. The permit stays where the agent is
// silent: it may yet use it.
func (p *planner) failUnanswered(v *nodeState) {
	message := fmt.Sprintf("The agent did not use its permit within %s", p.rebootTimeout(v))
	p.writeNoteAhead(v, p.newNote(v, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, message))
	if v.hasSeenSpec() {
		p.clearPermit(v, v1alpha1.RolloutReasonRebootTimedOut)
	}
}

// prepareNode leads a node without a permit from its claim to its permit, or lets it go.
func (p *planner) prepareNode(v *nodeState) {
	switch {
	case v.Mark != nil && !v.Unschedulable:
		p.backOffFrom(v, v1alpha1.RolloutReasonCordonLost, "Somebody uncordoned the node; it is left alone for a while")
	case v.Mark == nil && v.Unschedulable:
		p.endDisruption(v, v1alpha1.RolloutReasonCordonedByOthers)
	case v.Mark == nil:
		if reason, _ := p.findObstacle(v); reason != "" {
			p.returnToService(v, reason)
			return
		}
		p.cordonNode(v)
		p.beginDrain(v)
	default:
		p.drainNode(v)
	}
}

// cordonNode makes the node unschedulable with our mark. Our conditions come first: others write to the Node once it is cordoned.
func (p *planner) cordonNode(v *nodeState) {
	mark := p.claimFor(v)
	if v.Mark != nil && !v.Mark.Since.IsZero() {
		mark.Since = v.Mark.Since
	}
	v.maintenance = MaintenanceDraining
	if v.permit != nil {
		v.maintenance = MaintenanceDrained
	}
	p.updateMaintenance(v)
	p.addStep(Cordon{OnNode{v.Name}, mark, p.rulesFor(v).Drain.ExcludeFromLoadBalancersSeconds > 0})
}

// drainNode empties a node that we have cordoned, as long as it is to be rebooted.
func (p *planner) drainNode(v *nodeState) {
	v.maintenance = MaintenanceDraining
	if p.isPausedAfterRefusal(v) {
		p.keepNote(v)
		return
	}
	if v.need.kind == needNone && v.attemptsGiven() > 0 && !v.ClientNode.Spec.Release {
		p.acceptRebootedAnyway(v)
		return
	}
	if v.need.kind == needNone {
		p.endDisruption(v, v1alpha1.RolloutReasonNothingToDo)
		return
	}
	if reason, _ := p.checkRules(v); reason != "" {
		p.endDisruption(v, reason)
		return
	}
	if v.need.kind == needUnknown || v.isChanging() {
		p.awaitReport(v)
		return
	}
	if end := p.drainStart(v); p.Now.Before(end) {
		p.wakeAt(end)
		p.setNote(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonLeavingLoadBalancers, "External load balancers have until "+formatTime(end)+" to let go of the node")
		return
	}
	if due := p.nextInspection(v); v.Drain == nil && p.exactNow.Before(due) {
		p.wakeAt(due)
		p.keepNote(v)
		return
	}
	if v.Drain == nil {
		p.addStep(Drain{OnNode{v.Name}, p.rulesFor(v).Drain, false})
		p.setNote(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, "The node is being drained")
		p.wakeAt(p.nextInspectionAfter(p.exactNow))
		return
	}
	p.finishDrain(v)
}

// beginDrain has the first pods evicted as soon as the node is cordoned, where nobody is given time before that.
func (p *planner) beginDrain(v *nodeState) {
	options := p.rulesFor(v).Drain
	if options.ExcludeFromLoadBalancersSeconds > 0 {
		p.setNote(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, "The node is cordoned")
		p.wakeAt(p.Now)
		return
	}
	p.addStep(Drain{OnNode{v.Name}, options, true})
	p.setNote(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, "The node is being drained")
	p.wakeAt(p.nextInspectionAfter(p.exactNow))
}

// drainStart is when pods may be evicted: external load balancers come first.
func (p *planner) drainStart(v *nodeState) time.Time {
	return v.disruptedSince().Add(time.Duration(p.rulesFor(v).Drain.ExcludeFromLoadBalancersSeconds) * time.Second)
}

// drainDeadline is when a drain has taken too long.
func (p *planner) drainDeadline(v *nodeState) time.Time {
	return p.drainStart(v).Add(toDuration(p.rulesFor(v).Drain.TimeoutSeconds))
}

// acceptRebootedAnyway looks at a node that needs no reboot any more although the attempt on record has ended without one:
// its host went down after it had refused to, or somebody rebooted it. It has to look as well as after a permitted boot.
func (p *planner) acceptRebootedAnyway(v *nodeState) {
	end := p.drainDeadline(v)
	switch {
	case v.isHealthy():
		p.settleNode(v)
	case p.Now.Before(end):
		p.wakeAt(end)
		p.setNote(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonWaitingForNode, "The node waits for no boot any more: "+v.whyNotAccepted())
	default:
		p.endDisruption(v, v1alpha1.RolloutReasonNothingToDo)
	}
}

// isPausedAfterRefusal reports whether the agent or its host has refused the reboot a moment ago.
func (p *planner) isPausedAfterRefusal(v *nodeState) bool {
	if v.note.Phase != v1alpha1.RolloutDraining || v.note.Reason != v1alpha1.RolloutReasonPermitRefused {
		return false
	}
	end := v.noteSince().Add(RefusalPause)
	if !p.Now.Before(end) {
		return false
	}
	p.wakeAt(end)
	return true
}

// awaitReport keeps a drained node for as long as its drain may take, until it is known again what it needs.
func (p *planner) awaitReport(v *nodeState) {
	reason, message := v.whyNeedUnknown()
	end := p.drainDeadline(v)
	if p.Now.Before(end) {
		p.wakeAt(end)
		p.setNote(v, v1alpha1.RolloutDraining, reason, message)
		return
	}
	p.backOffFrom(v, v1alpha1.RolloutReasonDrainTimedOut, "The node is released: "+message)
}

// whyNeedUnknown says why a node's need is not known.
func (v *nodeState) whyNeedUnknown() (reason, message string) {
	switch {
	case !v.hasReportedSinceBoot():
		return v1alpha1.RolloutReasonAgentSilent, "The agent has not reported since the node's last boot"
	case !v.hasReportedSettings():
		return v1alpha1.RolloutReasonApplying, "The agent has not reported the declared settings yet"
	}
	return v1alpha1.RolloutReasonSettingsChanging, "The declared boot settings are on their way to the node"
}

// finishDrain gives the permit to a node that is empty, and waits or gives up where it is not.
func (p *planner) finishDrain(v *nodeState) {
	options := p.rulesFor(v).Drain
	busy := v.busyMounts(*options.IgnoreDaemonSetMounts)
	switch {
	case !v.Drain.Gone:
		p.awaitDrain(v, v.Drain.Reason, v.Drain.Message)
	case len(busy) > 0:
		p.awaitDrain(v, v1alpha1.RolloutReasonMountsBusy, "Mounts are still in use: "+text.List(busy))
	case !v.AgentReady:
		p.awaitDrain(v, v1alpha1.RolloutReasonAgentSilent, "The agent's Pod is not Ready")
	case !v.hasSeenSpec():
		p.awaitDrain(v, v1alpha1.RolloutReasonApplying, "The agent has not seen the StorageClientNode as it stands")
	default:
		p.beginAttempt(v)
	}
}

// awaitDrain lets a drain go on, or ends it when its time is over.
func (p *planner) awaitDrain(v *nodeState, reason, message string) {
	options := p.rulesFor(v).Drain
	end := p.drainDeadline(v)
	if p.Now.Before(end) {
		p.wakeAt(p.nextInspectionAfter(p.exactNow))
		p.setNote(v, v1alpha1.RolloutDraining, reason, message)
		return
	}
	message = fmt.Sprintf("The drain did not end within %s: %s", toDuration(options.TimeoutSeconds), message)
	if options.OnTimeout == v1alpha1.DrainWait {
		p.wakeAt(p.nextInspectionAfter(p.exactNow))
		p.setNote(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDrainTimedOut, message)
		return
	}
	p.backOffFrom(v, v1alpha1.RolloutReasonDrainTimedOut, message)
}

// busyMounts are the workloads' mounts that hold the reboot back.
func (v *nodeState) busyMounts(ignoreLeft bool) []string {
	var busy []string
	for _, m := range v.ClientNode.Status.BusyMounts {
		if !ignoreLeft || m.PodUID == "" || !slices.Contains(v.Drain.LeftPodUIDs, m.PodUID) {
			busy = append(busy, m.MountPoint)
		}
	}
	if omitted := v.ClientNode.Status.BusyMountsOmitted; omitted > 0 {
		busy = append(busy, fmt.Sprintf("%d that are not listed", omitted))
	}
	return busy
}

// beginAttempt writes down that an attempt begins, and gives the permit. One that is on record and was never given is given now.
func (p *planner) beginAttempt(v *nodeState) {
	status := p.newNote(v, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, "The agent may reboot the node")
	status.Since = &metav1.Time{Time: p.Now}
	if !v.isAttemptUnused() {
		status.Attempts++
	}
	if status.Attempts > MaxAttempts {
		message := fmt.Sprintf("%d permits have been given for this boot hash and the node still needs a reboot", MaxAttempts)
		p.writeNoteAhead(v, p.newNote(v, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonAttemptsUsedUp, message))
		return
	}
	p.writeNoteAhead(v, status)
	p.addStep(SetMaintenance{OnNode{v.Name}, MaintenanceDrained, true})
	v.maintenance, v.maintenanceShown = MaintenanceDrained, MaintenanceDrained
	permit := p.newPermit(v, status)
	p.addStep(GivePermit{OnNode{v.Name}, permit})
	v.permit = &permit
	p.wakeAt(p.Now.Add(p.rebootTimeout(v)))
}

// isAttemptUnused reports whether the attempt on record never became a permit that the agent has answered.
func (v *nodeState) isAttemptUnused() bool {
	if v.note.Phase != v1alpha1.RolloutRebooting || v.note.BootHash != v.target {
		return false
	}
	return v.ClientNode.Status.Reboot == nil || v.ClientNode.Status.Reboot.PermitID != newPermitID(v, v.note)
}

func (p *planner) newPermit(v *nodeState, attempt v1alpha1.RolloutStatus) v1alpha1.RebootPermit {
	permit := v1alpha1.RebootPermit{ID: newPermitID(v, attempt), BootHash: v.ClientNode.Spec.BootHash, BootID: v.BootID}
	if *p.rulesFor(v).Drain.IgnoreDaemonSetMounts {
		const most = 256
		left := slices.Compact(slices.Sorted(slices.Values(v.Drain.LeftPodUIDs)))
		permit.IgnorePodUIDs = left[:min(len(left), most)]
	}
	return permit
}
