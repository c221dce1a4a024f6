package plan

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// advance takes a node that we hold one step further, or lets it go.
func (p *planner) advance(v *view) {
	p.reclaim(v)
	switch {
	case v.Deleting:
		v.maintenance = v.shown
		p.note(v, v1alpha1.RolloutReleasing, v1alpha1.RolloutReasonNodeDeleting, "The Node is being deleted; it is left alone and holds budget until it is gone")
	case v.permit != nil && v.booted():
		p.accept(v)
	case v.permit != nil:
		p.awaitBoot(v)
	case v.failed():
		p.keepFailed(v)
	default:
		p.prepare(v)
	}
}

// reclaim enters a node again that is disrupted by us and whose claim is missing: it does use up budget.
func (p *planner) reclaim(v *view) {
	if v.claim != nil || (v.permit == nil && !v.ours()) {
		return
	}
	claim := p.claimFor(v)
	if v.Mark != nil && v.Mark.Profile != "" {
		claim = *v.Mark
	}
	v.claim = &claim
	p.step(AddClaim{OnNode{v.Name}, claim, true})
}

// accept looks whether a node that has booted since its permit is as it has to be.
func (p *planner) accept(v *view) {
	if v.Mark == nil {
		// The cordon has been undone already, or somebody made it theirs: nothing of ours is left but the claim.
		p.release(v, v1alpha1.RolloutReasonAccepted)
		return
	}
	v.maintenance = MaintenanceDrained
	if v.Client == nil {
		p.release(v, v1alpha1.RolloutReasonNothingToDo)
		return
	}
	late := p.overdue(v)
	switch {
	case v.failed() && v.record.Reason == v1alpha1.RolloutReasonRebootWithoutEffect:
		// A manager died between the two writes of failBooted; what had no effect may have been taken out since.
		p.clear(v, v1alpha1.RolloutReasonRebootWithoutEffect)
		p.keepFailed(v)
		return
	case v.superseded():
		if v.Ready && v.reported() {
			p.clear(v, v1alpha1.RolloutReasonSettingsChanging)
			p.prepare(v)
			return
		}
	case v.healthy():
		p.settle(v)
		return
	case v.acknowledged() && v.reported() && p.withoutEffect(v):
		return
	}
	message := fmt.Sprintf("The node was not back and well %s after its permit: %s", p.patience(v), v.missing())
	switch {
	case late && (v.superseded() || p.returning(v)):
		// Once the node is back, it is tried with what is asked for now, or judged by what it says: it may be as declared, or
		// have come up with its old boot entry.
		p.note(v, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, message)
		return
	case late:
		p.failBooted(v, v1alpha1.RolloutReasonRebootTimedOut, message)
		return
	}
	if end := v.ReadySince.Add(answerTime); v.Ready && p.exact.Before(end) {
		// Its agent is about to write to the same object.
		p.wake(end)
		p.keep(v)
		return
	}
	p.note(v, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonWaitingForNode, "The node has booted: "+v.missing())
}

// returning reports whether a node that has booted late is on its way: one that hung, and whose power somebody cut. From
// being Ready on, it has as long to be well as any other.
func (p *planner) returning(v *view) bool {
	if !v.Ready {
		return true
	}
	end := v.ReadySince.Add(p.patience(v))
	if !p.Now.Before(end) {
		return false
	}
	p.wake(end)
	return true
}

// withoutEffect fails a node that came back and says itself that it is not as declared.
func (p *planner) withoutEffect(v *view) bool {
	bad, _ := v.settings()
	switch {
	case len(bad) > 0 && !v.Client.Spec.Release:
		p.failBooted(v, v1alpha1.RolloutReasonRebootWithoutEffect, "After the boot these settings failed: "+text.List(bad))
	case v.need.kind == needReboot:
		p.failBooted(v, v1alpha1.RolloutReasonRebootWithoutEffect, "The boot had no effect on: "+text.List(v.Client.Status.RebootRequiredBy))
	default:
		return false
	}
	return true
}

// failBooted writes the failure down before the permit, from which it follows, is cleared.
func (p *planner) failBooted(v *view, reason, message string) {
	p.ahead(v, p.status(v, v1alpha1.RolloutFailed, reason, message))
	p.clear(v, reason)
}

// missing tells what a node lacks to be accepted.
func (v *view) missing() string {
	switch {
	case !v.Ready:
		return "it is not Ready"
	case !v.believable():
		return "its agent has not reported since the boot"
	case !v.reported() || !v.acknowledged():
		return "its agent has not reported the declared settings"
	case v.need.kind == needReboot:
		return "still waiting for a boot: " + text.List(v.Client.Status.RebootRequiredBy)
	}
	bad, waiting := v.settings()
	return "not as declared: " + text.List(slices.Concat(bad, waiting))
}

// deadline is when the node has to be back and well. A permit whose id does not tell counts from the claim.
func (p *planner) deadline(v *view) time.Time {
	given := permitTime(v.permit.ID)
	if given.IsZero() {
		given = v.heldSince()
	}
	return given.Add(p.patience(v))
}

func (p *planner) patience(v *view) time.Duration {
	return seconds(p.lead(v).Reboot.TimeoutSeconds)
}

func (p *planner) overdue(v *view) bool {
	deadline := p.deadline(v)
	if p.Now.Before(deadline) {
		p.wake(deadline)
		return false
	}
	return true
}

// settle watches a node that is well for a while, and returns it to service.
func (p *planner) settle(v *view) {
	since := p.Now
	if v.record.Phase == v1alpha1.RolloutSettling {
		since = v.recordSince()
	}
	end := since.Add(seconds(p.lead(v).SettleSeconds))
	if p.Now.Before(end) {
		p.wake(end)
		p.note(v, v1alpha1.RolloutSettling, v1alpha1.RolloutReasonSettling, "The node came back as declared and settles until "+stamp(end))
		return
	}
	p.release(v, v1alpha1.RolloutReasonAccepted)
}

// release returns a node to service: uncordon, then the claim, then the note and a permit that a boot has outlived.
func (p *planner) release(v *view, reason string) {
	v.maintenance = MaintenanceNone
	p.maintain(v)
	if v.Mark != nil {
		p.step(Uncordon{OnNode{v.Name}, reason})
	}
	p.unguard(v)
	if v.claim != nil {
		p.step(ReleaseClaim{OnNode{v.Name}})
		// What it held is for the next pass to give away.
		p.wake(p.Now)
	}
	permit := v.permit
	v.permit = nil
	p.describe(v)
	if v.permit = permit; permit != nil {
		// The agent answers at once: a note after that would meet a conflict.
		p.record(v)
		p.clear(v, reason)
	}
}

// letGo releases a node that might get its permit at this moment from a manager that is about to end: writing the note
// first makes that permit a conflict.
func (p *planner) letGo(v *view, reason string) {
	p.ahead(v, p.status(v, v1alpha1.RolloutReleasing, reason, "The node is returned to service"))
	p.release(v, reason)
}

// giveUp releases a node and leaves it alone for a while. That is written ahead: the uncordoned node does not tell.
func (p *planner) giveUp(v *view, reason, message string) {
	status := p.status(v, v1alpha1.RolloutWaiting, reason, message)
	p.ahead(v, status)
	p.release(v, reason)
	p.set(v, status)
	p.wake(p.Now.Add(BackOff))
}

// keepFailed keeps a failed node as its profile says, and accepts it once it is well after all.
func (p *planner) keepFailed(v *view) {
	v.maintenance = MaintenanceDrained
	switch {
	case v.ours() && v.recovered():
		p.settle(v)
		return
	case !v.ours(), p.lead(v).OnNodeFailure == v1alpha1.FailureUncordon && v.Ready:
		p.release(v, v.record.Reason)
	}
	p.keep(v)
}

// awaitBoot waits for the agent to use its permit. It is withdrawn only once the agent has answered.
func (p *planner) awaitBoot(v *view) {
	v.maintenance = MaintenanceDrained
	answer := v.answer()
	if answer.Phase == v1alpha1.RebootStarted {
		p.awaitStarted(v)
		return
	}
	lost := v.record.Reason == v1alpha1.RolloutReasonCordonLost || !v.Unschedulable
	answered := v.acknowledged() || answer.Phase != ""
	switch {
	case answer.Phase == v1alpha1.RebootFailed && !lost:
		// The host may yet go down: the node stays as it is for a while, whatever else has changed.
		p.refused(v, answer)
	case lost, v.Mark == nil, v.superseded(), v.acknowledged() && v.need.kind == needNone:
		p.withdraw(v, lost, answered)
	case answer.Phase == v1alpha1.RebootRefused:
		p.refused(v, answer)
	case p.overdue(v):
		p.unanswered(v)
	default:
		p.note(v, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, "The agent may reboot the node")
	}
}

// awaitStarted waits for a reboot that the agent has asked for. There is nothing to be withdrawn any more.
func (p *planner) awaitStarted(v *view) {
	if !v.Unschedulable {
		p.cordon(v)
	}
	if p.overdue(v) {
		message := fmt.Sprintf("The reboot was started and the node has the same boot ID %s later; reboot it by hand", p.patience(v))
		p.note(v, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, message)
		return
	}
	p.note(v, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonRebootStarted, "The node reboots")
}

// refused ends an attempt that the agent or its host refused.
func (p *planner) refused(v *view, answer v1alpha1.RebootStatus) {
	status := p.status(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonPermitRefused, "No reboot: "+answer.Message)
	p.ahead(v, status)
	p.clear(v, v1alpha1.RolloutReasonPermitRefused)
	p.wake(p.Now.Add(RefusalPause))
}

// withdraw takes back a permit that is no longer right, once the agent has answered.
func (p *planner) withdraw(v *view, lost, answered bool) {
	switch {
	case answered && lost:
		p.clear(v, v1alpha1.RolloutReasonWithdrawingPermit)
		p.giveUp(v, v1alpha1.RolloutReasonCordonLost, "Somebody uncordoned the node; it is left alone for a while")
	case answered:
		p.clear(v, v1alpha1.RolloutReasonWithdrawingPermit)
		p.prepare(v)
	case lost:
		p.ahead(v, p.status(v, v1alpha1.RolloutReleasing, v1alpha1.RolloutReasonCordonLost, "Somebody uncordoned the node while its agent held a permit; it is given up once the agent has answered"))
		if !v.Unschedulable {
			// The node may go down at any moment: no pod is to come here before the agent has answered.
			p.cordon(v)
		}
	default:
		p.note(v, v1alpha1.RolloutReleasing, v1alpha1.RolloutReasonWithdrawingPermit, "The permit is no longer right; it is withdrawn once the agent has answered")
	}
}

// unanswered fails a node whose agent did nothing about its permit in time. The permit stays where the agent is
// silent: it may yet use it.
func (p *planner) unanswered(v *view) {
	message := fmt.Sprintf("The agent did not use its permit within %s", p.patience(v))
	p.ahead(v, p.status(v, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, message))
	if v.acknowledged() {
		p.clear(v, v1alpha1.RolloutReasonRebootTimedOut)
	}
}

// prepare leads a node without a permit from its claim to its permit, or lets it go.
func (p *planner) prepare(v *view) {
	switch {
	case v.Mark != nil && !v.Unschedulable:
		p.giveUp(v, v1alpha1.RolloutReasonCordonLost, "Somebody uncordoned the node; it is left alone for a while")
	case v.Mark == nil && v.Unschedulable:
		p.letGo(v, v1alpha1.RolloutReasonCordonedByOthers)
	case v.Mark == nil:
		if reason, _ := p.hindrance(v); reason != "" {
			p.release(v, reason)
			return
		}
		p.cordon(v)
		p.beginDrain(v)
	default:
		p.drain(v)
	}
}

// cordon makes the node unschedulable with our mark. Our conditions come first: others write to the Node once it is cordoned.
func (p *planner) cordon(v *view) {
	mark := p.claimFor(v)
	if v.Mark != nil && !v.Mark.Since.IsZero() {
		mark.Since = v.Mark.Since
	}
	v.maintenance = MaintenanceDraining
	if v.permit != nil {
		v.maintenance = MaintenanceDrained
	}
	p.maintain(v)
	p.step(Cordon{OnNode{v.Name}, mark, p.lead(v).Drain.ExcludeFromLoadBalancersSeconds > 0})
}

// drain empties a node that we have cordoned, as long as it is to be rebooted.
func (p *planner) drain(v *view) {
	v.maintenance = MaintenanceDraining
	if p.pausing(v) {
		p.keep(v)
		return
	}
	if v.need.kind == needNone && v.attempts() > 0 && !v.Client.Spec.Release {
		p.rebootedAfterAll(v)
		return
	}
	if v.need.kind == needNone {
		p.letGo(v, v1alpha1.RolloutReasonNothingToDo)
		return
	}
	if reason, _ := p.forbidden(v); reason != "" {
		p.letGo(v, reason)
		return
	}
	if v.need.kind == needUnknown || v.stale() {
		p.hold(v)
		return
	}
	if end := p.drainBegins(v); p.Now.Before(end) {
		p.wake(end)
		p.note(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonLeavingLoadBalancers, "External load balancers have until "+stamp(end)+" to let go of the node")
		return
	}
	if due := p.nextLook(v); v.Drain == nil && p.exact.Before(due) {
		p.wake(due)
		p.keep(v)
		return
	}
	if v.Drain == nil {
		p.step(Drain{OnNode{v.Name}, p.lead(v).Drain, false})
		p.note(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, "The node is being drained")
		p.wake(p.lookAfter(p.exact))
		return
	}
	p.drained(v)
}

// beginDrain has the first pods evicted as soon as the node is cordoned, where nobody is given time before that.
func (p *planner) beginDrain(v *view) {
	options := p.lead(v).Drain
	if options.ExcludeFromLoadBalancersSeconds > 0 {
		p.note(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, "The node is cordoned")
		p.wake(p.Now)
		return
	}
	p.step(Drain{OnNode{v.Name}, options, true})
	p.note(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDraining, "The node is being drained")
	p.wake(p.lookAfter(p.exact))
}

// drainBegins is when pods may be evicted: external load balancers come first.
func (p *planner) drainBegins(v *view) time.Time {
	return v.heldSince().Add(time.Duration(p.lead(v).Drain.ExcludeFromLoadBalancersSeconds) * time.Second)
}

// drainEnds is when a drain has taken too long.
func (p *planner) drainEnds(v *view) time.Time {
	return p.drainBegins(v).Add(seconds(p.lead(v).Drain.TimeoutSeconds))
}

// rebootedAfterAll looks at a node that needs no reboot any more although the attempt on record has ended without one:
// its host went down after it had refused to, or somebody rebooted it. It has to look as well as after a permitted boot.
func (p *planner) rebootedAfterAll(v *view) {
	end := p.drainEnds(v)
	switch {
	case v.healthy():
		p.settle(v)
	case p.Now.Before(end):
		p.wake(end)
		p.note(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonWaitingForNode, "The node waits for no boot any more: "+v.missing())
	default:
		p.letGo(v, v1alpha1.RolloutReasonNothingToDo)
	}
}

// pausing reports whether the agent or its host has refused the reboot a moment ago.
func (p *planner) pausing(v *view) bool {
	if v.record.Phase != v1alpha1.RolloutDraining || v.record.Reason != v1alpha1.RolloutReasonPermitRefused {
		return false
	}
	end := v.recordSince().Add(RefusalPause)
	if !p.Now.Before(end) {
		return false
	}
	p.wake(end)
	return true
}

// hold keeps a drained node for as long as its drain may take, until it is known again what it needs.
func (p *planner) hold(v *view) {
	reason, message := v.silence()
	end := p.drainEnds(v)
	if p.Now.Before(end) {
		p.wake(end)
		p.note(v, v1alpha1.RolloutDraining, reason, message)
		return
	}
	p.giveUp(v, v1alpha1.RolloutReasonDrainTimedOut, "The node is released: "+message)
}

// silence says why a node's need is not known.
func (v *view) silence() (reason, message string) {
	switch {
	case !v.believable():
		return v1alpha1.RolloutReasonAgentSilent, "The agent has not reported since the node's last boot"
	case !v.reported():
		return v1alpha1.RolloutReasonApplying, "The agent has not reported the declared settings yet"
	}
	return v1alpha1.RolloutReasonSettingsChanging, "The declared boot settings are on their way to the node"
}

// drained gives the permit to a node that is empty, and waits or gives up where it is not.
func (p *planner) drained(v *view) {
	options := p.lead(v).Drain
	busy := v.busyMounts(*options.IgnoreDaemonSetMounts)
	switch {
	case !v.Drain.Gone:
		p.await(v, v.Drain.Reason, v.Drain.Message)
	case len(busy) > 0:
		p.await(v, v1alpha1.RolloutReasonMountsBusy, "Mounts are still in use: "+text.List(busy))
	case !v.AgentReady:
		p.await(v, v1alpha1.RolloutReasonAgentSilent, "The agent's Pod is not Ready")
	case !v.acknowledged():
		p.await(v, v1alpha1.RolloutReasonApplying, "The agent has not seen the StorageClientNode as it stands")
	default:
		p.attempt(v)
	}
}

// await lets a drain go on, or ends it when its time is over.
func (p *planner) await(v *view, reason, message string) {
	options := p.lead(v).Drain
	end := p.drainEnds(v)
	if p.Now.Before(end) {
		p.wake(p.lookAfter(p.exact))
		p.note(v, v1alpha1.RolloutDraining, reason, message)
		return
	}
	message = fmt.Sprintf("The drain did not end within %s: %s", seconds(options.TimeoutSeconds), message)
	if options.OnTimeout == v1alpha1.DrainWait {
		p.wake(p.lookAfter(p.exact))
		p.note(v, v1alpha1.RolloutDraining, v1alpha1.RolloutReasonDrainTimedOut, message)
		return
	}
	p.giveUp(v, v1alpha1.RolloutReasonDrainTimedOut, message)
}

// busyMounts are the workloads' mounts that hold the reboot back.
func (v *view) busyMounts(ignoreLeft bool) []string {
	var busy []string
	for _, m := range v.Client.Status.BusyMounts {
		if !ignoreLeft || m.PodUID == "" || !slices.Contains(v.Drain.LeftPodUIDs, m.PodUID) {
			busy = append(busy, m.MountPoint)
		}
	}
	if omitted := v.Client.Status.BusyMountsOmitted; omitted > 0 {
		busy = append(busy, fmt.Sprintf("%d that are not listed", omitted))
	}
	return busy
}

// attempt writes down that an attempt begins, and gives the permit. One that is on record and was never given is given now.
func (p *planner) attempt(v *view) {
	status := p.status(v, v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonPermitGiven, "The agent may reboot the node")
	status.Since = &metav1.Time{Time: p.Now}
	if !v.unused() {
		status.Attempts++
	}
	if status.Attempts > MaxAttempts {
		message := fmt.Sprintf("%d permits have been given for this boot hash and the node still needs a reboot", MaxAttempts)
		p.ahead(v, p.status(v, v1alpha1.RolloutFailed, v1alpha1.RolloutReasonAttemptsUsedUp, message))
		return
	}
	p.ahead(v, status)
	p.step(Maintain{OnNode{v.Name}, MaintenanceDrained, true})
	v.maintenance, v.shown = MaintenanceDrained, MaintenanceDrained
	permit := p.permit(v, status)
	p.step(Permit{OnNode{v.Name}, permit})
	v.permit = &permit
	p.wake(p.Now.Add(p.patience(v)))
}

// unused reports whether the attempt on record never became a permit that the agent has answered.
func (v *view) unused() bool {
	if v.record.Phase != v1alpha1.RolloutRebooting || v.record.BootHash != v.target {
		return false
	}
	return v.Client.Status.Reboot == nil || v.Client.Status.Reboot.PermitID != permitID(v, v.record)
}

func (p *planner) permit(v *view, attempt v1alpha1.RolloutStatus) v1alpha1.RebootPermit {
	permit := v1alpha1.RebootPermit{ID: permitID(v, attempt), BootHash: v.Client.Spec.BootHash, BootID: v.BootID}
	if *p.lead(v).Drain.IgnoreDaemonSetMounts {
		const most = 256
		left := slices.Compact(slices.Sorted(slices.Values(v.Drain.LeftPodUIDs)))
		permit.IgnorePodUIDs = left[:min(len(left), most)]
	}
	return permit
}
