package plan

import (
	"cmp"
	"fmt"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// describe notes how a node stands that we do not hold, and reports whether only its turn has yet to come.
func (p *planner) describe(v *view) bool {
	if v.Client == nil {
		return false
	}
	reason, message := p.hindrance(v)
	if len(v.forgiven) > 0 {
		message += fmt.Sprintf("; out of service since %s, for so long that it no longer uses up the budget of StorageClientProfile %s",
			stamp(*v.UnavailableSince), text.List(v.forgiven))
	}
	switch {
	case reason == "":
		p.note(v, v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonWaitingForBudget, "The node waits for its turn")
		return true
	case v.failed() && v.recovered():
		p.note(v, v1alpha1.RolloutUpToDate, v1alpha1.RolloutReasonNothingToDo, "The node is as declared after all")
	case v.failed():
		p.keep(v)
	case reason == v1alpha1.RolloutReasonNothingToDo, reason == v1alpha1.RolloutReasonRestoredAtNextBoot, reason == v1alpha1.RolloutReasonEffectiveAtNextBoot:
		p.note(v, v1alpha1.RolloutUpToDate, reason, message)
	case reason == v1alpha1.RolloutReasonAttemptsUsedUp:
		p.note(v, v1alpha1.RolloutFailed, reason, message)
	case v.need.kind == needUnknown, reason == v1alpha1.RolloutReasonSettingsChanging:
		p.note(v, v1alpha1.RolloutApplying, reason, message)
	default:
		p.note(v, v1alpha1.RolloutWaiting, reason, message)
	}
	return false
}

// hindrance is what keeps a node from being disrupted, whatever the budget says; empty if nothing does.
func (p *planner) hindrance(v *view) (reason, message string) {
	if v.Client == nil {
		return v1alpha1.RolloutReasonNothingToDo, "The node is not managed"
	}
	switch v.need.kind {
	case needNone:
		if len(v.need.uncovered) > 0 {
			return v1alpha1.RolloutReasonEffectiveAtNextBoot, "No node is rebooted for these, they take effect whenever it boots: " + text.List(v.need.uncovered)
		}
		if v.need.later {
			return v1alpha1.RolloutReasonRestoredAtNextBoot, "Gone from the boot menu and in force until the next boot: " + text.List(v.Client.Status.RebootRequiredBy)
		}
		return v1alpha1.RolloutReasonNothingToDo, "No setting waits for a boot"
	case needUnknown:
		return v.silence()
	case needReboot:
	}
	if v.failed() {
		return cmp.Or(v.record.Reason, string(v1alpha1.RolloutFailed)), v.record.Message
	}
	if reason, message := p.forbidden(v); reason != "" {
		return reason, message
	}
	if v.stale() {
		return v.silence()
	}
	if reason := v.unavailable(); reason != "" {
		return reason, "The node is out of service: " + inWords(reason)
	}
	if !v.AgentReady {
		return v1alpha1.RolloutReasonAgentSilent, "The agent's Pod is not Ready"
	}
	if bad, _ := v.settings(); len(bad) > 0 && !v.Client.Spec.Release {
		return v1alpha1.RolloutReasonSettingsFailed, "The node would not be accepted after a boot; failed: " + text.List(bad)
	}
	if v.attempts() >= MaxAttempts {
		return v1alpha1.RolloutReasonAttemptsUsedUp, fmt.Sprintf("%d permits have been given for this boot hash and the node needs a reboot again", MaxAttempts)
	}
	if v.record.Phase == v1alpha1.RolloutWaiting && backsOff(v.record.Reason) {
		if end := v.recordSince().Add(BackOff); p.Now.Before(end) {
			p.wake(end)
			return v.record.Reason, v.record.Message
		}
	}
	return "", ""
}

// forbidden is what keeps a node from being disrupted, and ends a disruption that has no permit yet. Every profile that
// needs the reboot has to allow it.
func (p *planner) forbidden(v *view) (reason, message string) {
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
		(*planner).inert, (*planner).never, (*planner).unapproved, (*planner).stopped,
	} {
		for _, name := range v.need.names {
			if reason, message := rule(p, name); reason != "" {
				return reason, message
			}
		}
	}
	if reason, message := p.outsideWindows(v); reason != "" {
		return reason, message
	}
	return p.lastControlPlane(v)
}

func (p *planner) inert(name string) (reason, message string) {
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

func (p *planner) never(name string) (reason, message string) {
	if p.profiles[name].Rollout.Reboot.Policy == v1alpha1.RebootNever {
		return v1alpha1.RolloutReasonRebootPolicyNever, fmt.Sprintf("StorageClientProfile %s has reboot policy Never", name)
	}
	return "", ""
}

func (p *planner) unapproved(name string) (reason, message string) {
	profile := p.profiles[name]
	if profile.Rollout.Reboot.Policy == v1alpha1.RebootOnApproval && !profile.Approved {
		return v1alpha1.RolloutReasonWaitingForApproval, fmt.Sprintf("Plan %s of StorageClientProfile %s waits for its approval", profile.PlanHash, name)
	}
	return "", ""
}

// stopped tells whether as many of a profile's nodes have failed as it allows.
func (p *planner) stopped(name string) (reason, message string) {
	failed := p.budget.failed[name]
	if len(failed) == 0 || len(failed) < int(*p.profiles[name].Rollout.FailureThreshold) {
		return "", ""
	}
	return v1alpha1.RolloutReasonFailureThreshold, fmt.Sprintf("StorageClientProfile %s stops at %d failed nodes: %s", name, len(failed), text.List(failed))
}

// lastControlPlane keeps one control-plane node Ready and undisturbed at all times.
func (p *planner) lastControlPlane(v *view) (reason, message string) {
	if !v.ControlPlane {
		return "", ""
	}
	for _, other := range p.views {
		if other != v && other.ControlPlane && other.unavailable() == "" && !other.held() && !other.failed() {
			return "", ""
		}
	}
	return v1alpha1.RolloutReasonLastControlPlaneNode, "No other control-plane node is Ready and undisturbed"
}

func inWords(reason string) string {
	switch reason {
	case v1alpha1.RolloutReasonNodeDeleting:
		return "being deleted"
	case v1alpha1.RolloutReasonCordonedByOthers:
		return "cordoned by others"
	}
	return "not Ready"
}
