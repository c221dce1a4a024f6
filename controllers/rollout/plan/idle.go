package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/names"
)

// describe notes how a node stands that we do not hold, and reports whether only its turn has yet to come.
func (p *planner) describe(v *view) bool {
	if v.Client == nil {
		return false
	}
	reason, message := p.hindrance(v)
	switch {
	case reason == "":
		p.note(v, v1alpha1.RolloutWaiting, ReasonWaitingForBudget, "The node waits for its turn")
		return true
	case v.failed() && v.need.kind == needNone && v.healthy():
		p.note(v, v1alpha1.RolloutUpToDate, ReasonNothingToDo, "The node is as declared after all")
	case v.failed():
		p.keep(v)
	case reason == ReasonNothingToDo, reason == ReasonRestoredAtNextBoot:
		p.note(v, v1alpha1.RolloutUpToDate, reason, message)
	case reason == ReasonAttemptsUsedUp:
		p.note(v, v1alpha1.RolloutFailed, reason, message)
	case v.need.kind == needUnknown, reason == ReasonSettingsChanging:
		p.note(v, v1alpha1.RolloutApplying, reason, message)
	default:
		p.note(v, v1alpha1.RolloutWaiting, reason, message)
	}
	return false
}

// hindrance is what keeps a node from being disrupted, whatever the budget says; empty if nothing does.
func (p *planner) hindrance(v *view) (reason, message string) {
	if v.Client == nil {
		return ReasonNothingToDo, "The node is not managed"
	}
	switch v.need.kind {
	case needNone:
		if v.need.later {
			return ReasonRestoredAtNextBoot, "Gone from the boot menu and in force until the next boot: " + names.List(v.Client.Status.RebootRequiredBy)
		}
		return ReasonNothingToDo, "No setting waits for a boot"
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
		return ReasonAgentSilent, "The agent's Pod is not Ready"
	}
	if bad, _ := v.settings(); len(bad) > 0 && !v.Client.Spec.Release {
		return ReasonSettingsFailed, "The node would not be accepted after a boot; failed: " + names.List(bad)
	}
	if v.attempts() >= MaxAttempts {
		return ReasonAttemptsUsedUp, fmt.Sprintf("%d permits have been given for this boot hash and the node needs a reboot again", MaxAttempts)
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
		return ReasonNodePaused, "The Node carries the annotation " + v1alpha1.PausedAnnotation
	case v.Ignored:
		return ReasonNodeIgnored, "The Node carries the annotation " + v1alpha1.IgnoreAnnotation
	case v.NeverDisrupt:
		return ReasonNeverDisrupt, "The Node carries the annotation " + v1alpha1.NeverDisruptAnnotation
	}
	for _, rule := range []func(*planner, string) (string, string){
		(*planner).inert, (*planner).never, (*planner).unapproved, (*planner).stopped,
	} {
		for _, name := range slices.Sorted(slices.Values(v.need.profiles)) {
			if reason, message := rule(p, name); reason != "" {
				return reason, message
			}
		}
	}
	return p.lastControlPlane(v)
}

func (p *planner) inert(name string) (reason, message string) {
	profile := p.profiles[name]
	switch {
	case profile == nil:
		return ReasonProfileGone, fmt.Sprintf("StorageClientProfile %s, which a setting comes from, is not there", name)
	case profile.Inert != "":
		return profile.Inert, fmt.Sprintf("StorageClientProfile %s disrupts nothing: %s", name, profile.Inert)
	case profile.Paused != "":
		return profile.Paused, fmt.Sprintf("StorageClientProfile %s is paused", name)
	}
	return "", ""
}

func (p *planner) never(name string) (reason, message string) {
	if p.profiles[name].Rollout.Reboot.Policy == v1alpha1.RebootNever {
		return ReasonRebootPolicyNever, fmt.Sprintf("StorageClientProfile %s has reboot policy Never", name)
	}
	return "", ""
}

func (p *planner) unapproved(name string) (reason, message string) {
	profile := p.profiles[name]
	if profile.Rollout.Reboot.Policy == v1alpha1.RebootOnApproval && !profile.Approved {
		return ReasonWaitingForApproval, fmt.Sprintf("Plan %s of StorageClientProfile %s waits for its approval", profile.PlanHash, name)
	}
	return "", ""
}

// stopped tells whether as many of a profile's nodes have failed as it allows.
func (p *planner) stopped(name string) (reason, message string) {
	failed := p.budget.failed[name]
	if len(failed) == 0 || len(failed) < int(*p.profiles[name].Rollout.FailureThreshold) {
		return "", ""
	}
	return ReasonFailureThreshold, fmt.Sprintf("StorageClientProfile %s stops at %d failed nodes: %s", name, len(failed), names.List(failed))
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
	return ReasonLastControlPlaneNode, "No other control-plane node is Ready and undisturbed"
}

// admit claims nodes whose turn it is, as far as canary and budgets go.
func (p *planner) admit(idle []*view) {
	var queue []*view
	for _, v := range idle {
		if p.describe(v) {
			queue = append(queue, v)
		}
	}
	line := 0
	for _, v := range queue {
		reason, message := p.queued(v, line)
		if reason != "" {
			line++
			p.note(v, v1alpha1.RolloutWaiting, reason, message)
			continue
		}
		claim := p.claimFor(v)
		v.claim = &claim
		p.budget.add(v)
		p.step(AddClaim{OnNode{v.Name}, claim, false})
		p.note(v, v1alpha1.RolloutClaimed, ReasonClaimed, "The node is about to be cordoned")
		p.wake(p.Now)
	}
}

// queued is why it is not a node's turn, empty if it is. ahead is how many have been refused in this pass.
func (p *planner) queued(v *view, ahead int) (reason, message string) {
	if reason, message := p.behindCanary(v); reason != "" {
		return reason, message
	}
	if reason, message := p.lastControlPlane(v); reason != "" {
		return reason, message
	}
	if v.Manager {
		if others := p.unfinished(v); len(others) > 0 {
			return ReasonManagerNodeLast, "The manager's own node goes last, after " + names.List(others)
		}
	}
	return p.overBudget(v, ahead)
}

// unfinished are the nodes that go, or will go, before the manager's own.
func (p *planner) unfinished(manager *view) []string {
	var out []string
	for _, v := range p.views {
		if v == manager || v.Client == nil || v.held() || v.unavailable() != "" {
			continue
		}
		switch p.plan.Rollout[v.Name].Reason {
		case ReasonWaitingForBudget, ReasonWaitingForCanary, ReasonSettingsChanging, ReasonApplying:
			out = append(out, v.Name)
		}
	}
	return out
}

func (p *planner) claimFor(v *view) Claim {
	claim := Claim{Since: metav1.Time{Time: p.Now}}
	if v.Client != nil {
		claim.BootHash = v.Client.Spec.BootHash
	}
	if names := slices.Concat(v.need.profiles, v.holder()); len(names) > 0 {
		claim.Profile = names[0]
	}
	return claim
}

func inWords(reason string) string {
	switch reason {
	case ReasonNodeDeleting:
		return "being deleted"
	case ReasonCordonedByOthers:
		return "cordoned by others"
	}
	return "not Ready"
}

// canaryKey tells the nodes apart that prove a change for each other: those of a profile that get the same boot settings.
type canaryKey struct {
	profile, hash string
	release       bool
}

// canary is the verdict on a group.
type canary struct {
	members []string
	// waits are those that are not done, soaked is when the last of the others has been well for long enough.
	waits  []string
	soaked time.Time
}

func (v *view) canaryKey(profile string) canaryKey {
	if v.Client.Spec.Release {
		return canaryKey{profile: profile, release: true}
	}
	return canaryKey{profile: profile, hash: v.Client.WantedBootHash}
}

// behindCanary holds a node back until the canary of every profile that needs its reboot is done and has soaked.
func (p *planner) behindCanary(v *view) (reason, message string) {
	for _, name := range slices.Sorted(slices.Values(v.need.profiles)) {
		key := v.canaryKey(name)
		verdict, known := p.canary[key]
		if !known {
			verdict = p.judgeCanary(key)
			p.canary[key] = verdict
		}
		switch {
		case slices.Contains(verdict.members, v.Name):
		case len(verdict.members) == 0:
			return ReasonWaitingForCanary, fmt.Sprintf("No node of StorageClientProfile %s can be the canary", name)
		case len(verdict.waits) > 0:
			return ReasonWaitingForCanary, fmt.Sprintf("The canary of StorageClientProfile %s goes first: %s", name, names.List(verdict.waits))
		case verdict.soaked.After(p.Now):
			p.wake(verdict.soaked)
			return ReasonWaitingForCanary, fmt.Sprintf("The canary of StorageClientProfile %s soaks until %s", name, stamp(verdict.soaked))
		}
	}
	return "", ""
}

func (p *planner) judgeCanary(key canaryKey) canary {
	profile := p.profiles[key.profile]
	rule := profile.Rollout.Canary
	selector := labelsOf(rule.NodeSelector)
	soak := seconds(rule.SoakSeconds)
	var out canary
	for _, v := range p.views {
		if !p.inGroup(v, key) {
			continue
		}
		if rule.NodeSelector == nil && len(out.members) >= int(*rule.Nodes) {
			break
		}
		if rule.NodeSelector != nil && !selector(v) {
			continue
		}
		done, since := p.done(v)
		proven := done && !since.Add(soak).After(p.Now)
		if !proven && p.unfit(v, done) {
			continue
		}
		out.members = append(out.members, v.Name)
		if !done || (!proven && v.unavailable() != "") {
			out.waits = append(out.waits, v.Name)
			continue
		}
		if end := since.Add(soak); end.After(out.soaked) {
			out.soaked = end
		}
	}
	return out
}

// inGroup reports whether a node proves a change for the group, or has it proven by the group.
func (p *planner) inGroup(v *view, key canaryKey) bool {
	if !slices.Contains(v.Profiles, key.profile) {
		return false
	}
	if key.release {
		return p.profiles[key.profile].Deleting || (v.Client != nil && v.Client.Spec.Release)
	}
	return v.Client != nil && v.canaryKey(key.profile) == key
}

// done reports whether a node carries what it is to carry, and since when.
func (p *planner) done(v *view) (bool, time.Time) {
	if v.Client == nil {
		return true, time.Time{}
	}
	if v.held() || v.failed() || v.stale() || v.need.kind != needNone {
		return false, time.Time{}
	}
	if v.record.Phase == v1alpha1.RolloutUpToDate && v.record.BootHash == v.target {
		return true, v.recordSince()
	}
	return true, p.Now
}

// unfit leaves a node out of the canary that cannot be one; what we have begun, and what is just soaking, is not let off.
func (p *planner) unfit(v *view, done bool) bool {
	if v.NeverDisrupt || v.Ignored || v.Paused || v.Deleting {
		return true
	}
	return v.unavailable() != "" && !done && !v.held() && !v.failed()
}
