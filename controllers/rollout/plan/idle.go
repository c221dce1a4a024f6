package plan

import (
	"cmp"
	"fmt"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// describeIdle notes how a node stands that we do not hold, and reports whether only its turn has yet to come.
func (p *planner) describeIdle(v *nodeState) bool {
	if v.ClientNode == nil {
		return false
	}
	reason, message := p.findObstacle(v)
	if len(v.forgiven) > 0 {
		message += fmt.Sprintf("; out of service since %s, for so long that it no longer uses up the budget of StorageClientProfile %s",
			formatTime(*v.UnavailableSince), text.List(v.forgiven))
	}
	switch {
	case reason == "":
		p.setNote(v, v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonWaitingForBudget, "The node waits for its turn")
		return true
	case v.hasFailed() && v.hasRecovered():
		p.setNote(v, v1alpha1.RolloutUpToDate, v1alpha1.RolloutReasonNothingToDo, "The node is as declared after all")
	case v.hasFailed():
		p.keepNote(v)
	case reason == v1alpha1.RolloutReasonNothingToDo, reason == v1alpha1.RolloutReasonRestoredAtNextBoot, reason == v1alpha1.RolloutReasonEffectiveAtNextBoot:
		p.setNote(v, v1alpha1.RolloutUpToDate, reason, message)
	case reason == v1alpha1.RolloutReasonAttemptsUsedUp:
		p.setNote(v, v1alpha1.RolloutFailed, reason, message)
	case v.need.kind == needUnknown, reason == v1alpha1.RolloutReasonSettingsChanging:
		p.setNote(v, v1alpha1.RolloutApplying, reason, message)
	default:
		p.setNote(v, v1alpha1.RolloutWaiting, reason, message)
	}
	return false
}

// findObstacle is what keeps a node from being disrupted, whatever the budget says; empty if nothing does.
func (p *planner) findObstacle(v *nodeState) (reason, message string) {
	if v.ClientNode == nil {
		return v1alpha1.RolloutReasonNothingToDo, "The node is not managed"
	}
	switch v.need.kind {
	case needNone:
		if len(v.need.uncovered) > 0 {
			return v1alpha1.RolloutReasonEffectiveAtNextBoot, "No node is rebooted for these, they take effect whenever it boots: " + text.List(v.need.uncovered)
		}
		if v.need.removalsOnly {
			return v1alpha1.RolloutReasonRestoredAtNextBoot, "Gone from the boot menu and in force until the next boot: " + text.List(v.ClientNode.Status.RebootRequiredBy)
		}
		return v1alpha1.RolloutReasonNothingToDo, "No setting waits for a boot"
	case needUnknown:
		return v.whyNeedUnknown()
	case needReboot:
	}
	if v.hasFailed() {
		return cmp.Or(v.note.Reason, string(v1alpha1.RolloutFailed)), v.note.Message
	}
	if reason, message := p.checkRules(v); reason != "" {
		return reason, message
	}
	if v.isChanging() {
		return v.whyNeedUnknown()
	}
	if reason := v.whyUnavailable(); reason != "" {
		return reason, "The node is out of service: " + unavailableInWords(reason)
	}
	if !v.AgentReady {
		return v1alpha1.RolloutReasonAgentSilent, "The agent's Pod is not Ready"
	}
	if bad, _ := v.unmetSettings(); len(bad) > 0 && !v.ClientNode.Spec.Release {
		return v1alpha1.RolloutReasonSettingsFailed, "The node would not be accepted after a boot; failed: " + text.List(bad)
	}
	if v.attemptsGiven() >= MaxAttempts {
		return v1alpha1.RolloutReasonAttemptsUsedUp, fmt.Sprintf("%d permits have been given for this boot hash and the node needs a reboot again", MaxAttempts)
	}
	if v.note.Phase == v1alpha1.RolloutWaiting && isBackOff(v.note.Reason) {
		if end := v.noteSince().Add(BackOff); p.Now.Before(end) {
			p.wakeAt(end)
			return v.note.Reason, v.note.Message
		}
	}
	return "", ""
}

// checkRules is what keeps a node from being disrupted, and ends a disruption that has no permit yet. Every profile that
// needs the reboot has to allow it.
func (p *planner) checkRules(v *nodeState) (reason, message string) {
	switch {
	case p.Paused:
		return v1alpha1.ReasonPausedByAnnotation, "Everything is paused by the annotation on the manager's namespace"
	case v.Paused:
		return v1alpha1.RolloutReasonNodePaused, "The Node carries the annotation " + v1alpha1.PausedAnnotation
	case v.Ignored:
		return v1alpha1.RolloutReasonNodeIgnored, "The Node carries the annotation " + v1alpha1.IgnoreAnnotation
	case v.NeverDisrupt:
		return v1alpha1.RolloutReasonNeverDisrupt, "The Node carries the annotation " + v1alpha1.NeverDisruptAnnotation
	}
	for _, rule := range []func(*planner, string) (string, string){
		(*planner).checkActing, (*planner).checkPolicy, (*planner).checkApproval, (*planner).checkFailures,
	} {
		for _, name := range v.need.names {
			if reason, message := rule(p, name); reason != "" {
				return reason, message
			}
		}
	}
	if reason, message := p.checkWindows(v); reason != "" {
		return reason, message
	}
	return p.checkControlPlane(v)
}

func (p *planner) checkActing(name string) (reason, message string) {
	profile := p.profiles[name]
	switch {
	case profile == nil:
		return v1alpha1.RolloutReasonProfileGone, fmt.Sprintf("StorageClientProfile %s, which a setting comes from, is not there", name)
	case profile.Inert != "":
		return profile.Inert, fmt.Sprintf("StorageClientProfile %s disrupts nothing: %s", name, profile.Inert)
	case profile.Paused != "":
		return profile.Paused, fmt.Sprintf("StorageClientProfile %s is paused", name)
	}
	return "", ""
}

func (p *planner) checkPolicy(name string) (reason, message string) {
	if p.profiles[name].Rollout.Reboot.Policy == v1alpha1.RebootNever {
		return v1alpha1.RolloutReasonRebootPolicyNever, fmt.Sprintf("StorageClientProfile %s has reboot policy Never", name)
	}
	return "", ""
}

func (p *planner) checkApproval(name string) (reason, message string) {
	profile := p.profiles[name]
	if profile.Rollout.Reboot.Policy == v1alpha1.RebootOnApproval && !profile.Approved {
		return v1alpha1.RolloutReasonWaitingForApproval, fmt.Sprintf("Plan %s of StorageClientProfile %s waits for its approval", profile.PlanHash, name)
	}
	return "", ""
}

// checkFailures tells whether as many of a profile's nodes have failed as it allows.
func (p *planner) checkFailures(name string) (reason, message string) {
	failed := p.budgets.failed[name]
	if len(failed) == 0 || len(failed) < int(*p.profiles[name].Rollout.FailureThreshold) {
		return "", ""
	}
	return v1alpha1.RolloutReasonFailureThreshold, fmt.Sprintf("StorageClientProfile %s stops at %d failed nodes: %s", name, len(failed), text.List(failed))
}

// checkControlPlane keeps one control-plane node Ready and undisturbed at all times.
func (p *planner) checkControlPlane(v *nodeState) (reason, message string) {
	if !v.ControlPlane {
		return "", ""
	}
	for _, other := range p.states {
		if other != v && other.ControlPlane && other.whyUnavailable() == "" && !other.isDisrupted() && !other.hasFailed() {
			return "", ""
		}
	}
	return v1alpha1.RolloutReasonLastControlPlaneNode, "No other control-plane node is Ready and undisturbed"
}

func unavailableInWords(reason string) string {
	switch reason {
	case v1alpha1.RolloutReasonNodeDeleting:
		return "being deleted"
	case v1alpha1.RolloutReasonCordonedByOthers:
		return "cordoned by others"
	}
	return "not Ready"
}
