package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/text"
)

// canaryKey identifies a group of nodes that are evidence for each other: nodes of one profile that get the same settings that require a reboot.
type canaryKey struct {
	profile, hash string
	release       bool
}

// canary is the state of the canary nodes of a group.
type canary struct {
	members []string
	// pending are the members that are not done; failed is the subset of them that has failed. soakEnd is the time at which the last of the other
	// members has been healthy for long enough.
	pending, failed []string
	// obstacles contains, for each pending member, its name and the reason for which it cannot follow.
	obstacles []string
	soakEnd   time.Time
}

func (n *nodeState) canaryKey(profile string) canaryKey {
	if n.ClientNode.Spec.Release {
		return canaryKey{profile: profile, release: true}
	}
	return canaryKey{profile: profile, hash: n.ClientNode.DesiredBootHash}
}

// checkCanary rejects a node until the canary of every profile that needs its reboot is done and has soaked.
func (p *planner) checkCanary(n *nodeState) (reason, message string) {
	for _, name := range n.need.names {
		key := n.canaryKey(name)
		verdict, known := p.canaries[key]
		if !known {
			verdict = p.evaluateCanary(key)
			p.canaries[key] = verdict
		}
		switch {
		case slices.Contains(verdict.members, n.Name):
		case len(verdict.members) == 0:
			message = fmt.Sprintf("No node of StorageClientProfile %s can be the canary", name)
			if p.profiles[name].Rollout.Canary.NodeSelector != nil {
				message += "; rollout.canary.nodeSelector must select a node that can be rebooted and gets the same settings that require a reboot"
			}
			return v1alpha1.RolloutReasonWaitingForCanary, message
		case len(verdict.failed) > 0:
			return v1alpha1.RolloutReasonCanaryFailed, fmt.Sprintf("The canary of StorageClientProfile %s has failed: %s; %s",
				name, text.List(verdict.failed), retryRemedy(name))
		case len(verdict.pending) > 0:
			return v1alpha1.RolloutReasonWaitingForCanary, fmt.Sprintf("Waiting for the canary of StorageClientProfile %s: %s",
				name, text.List(verdict.obstacles))
		case p.isInFuture(verdict.soakEnd):
			return v1alpha1.RolloutReasonWaitingForCanary, fmt.Sprintf("The canary of StorageClientProfile %s soaks until %s",
				name, formatTime(verdict.soakEnd))
		}
	}
	return "", ""
}

// evaluateCanary evaluates the canary of a group: its first nodes, or the nodes that the profile selects. If no selected node is left, a node that
// has had the settings for long enough is evidence.
func (p *planner) evaluateCanary(key canaryKey) canary {
	rule := p.profiles[key.profile].Rollout.Canary
	selector := match.LabelMatcher(rule.NodeSelector)
	soak := toDuration(rule.SoakSeconds)
	var out canary
	var evidence []string
	for _, n := range p.inCanaryOrder(key.profile) {
		released := n.ClientNode != nil && n.ClientNode.Spec.Release
		if inGroup := n.ClientNode != nil && n.canaryKey(key.profile) == key; !inGroup && !(key.release && (released || p.profiles[key.profile].Deleting)) {
			continue
		}
		if rule.NodeSelector == nil && len(out.members) >= int(*rule.Nodes) {
			break
		}
		done, doneTime := p.doneSince(n)
		end, canComplete := n.soakEnd(doneTime, soak)
		soaked := done && canComplete && !end.After(p.Now)
		if rule.NodeSelector != nil && !selector(n.Labels) {
			if soaked {
				evidence = append(evidence, n.Name)
			}
			continue
		}
		if !soaked && p.cannotBeCanary(n, done) {
			continue
		}
		out.members = append(out.members, n.Name)
		if !done || (!soaked && (n.unavailabilityReason() != "" || !canComplete)) {
			out.pending = append(out.pending, n.Name)
			out.obstacles = append(out.obstacles, n.Name+p.describeLate(n))
			if n.hasFailed() {
				out.failed = append(out.failed, n.Name)
			}
			continue
		}
		if end.After(out.soakEnd) {
			out.soakEnd = end
		}
	}
	if len(out.members) == 0 {
		out.members = evidence
	}
	return out
}

// inCanaryOrder returns the nodes in the order of the rollout, with exceptions. Nodes that have already been rebooted keep their places, and nodes
// that are done come first. A node that could not be rebooted earlier must wait until they have soaked. Nodes whose drain finished without a reboot, or
// that budgets keep, come last, because other nodes are equally good evidence.
func (p *planner) inCanaryOrder(profile string) []*nodeState {
	out, known := p.canaryOrder[profile]
	if known {
		return out
	}
	var ranks [4][]*nodeState
	for _, n := range p.members[profile] {
		done, _ := p.doneSince(n)
		// A released node may not have needed a reboot.
		booted := n.usedAttempts() > 0 || n.ClientNode != nil && !n.ClientNode.Spec.Release && n.isUpToDate()
		rank := 2
		switch {
		case done && booted:
			rank = 0
		case n.isDisrupted(), n.hasFailed():
			rank = 1
		case n.note.DrainAttempts > 0, n.note.HeldSince != nil:
			rank = 3
		}
		ranks[rank] = append(ranks[rank], n)
	}
	out = slices.Concat(ranks[:]...)
	p.canaryOrder[profile] = out
	return out
}

// doneSince reports whether a node has its desired settings, and since when.
func (p *planner) doneSince(n *nodeState) (bool, time.Time) {
	if n.ClientNode == nil {
		return true, time.Time{}
	}
	if n.isDisrupted() || n.hasFailed() || n.isChanging() || n.need.kind != needNone || n.lacksBootSettings() {
		return false, time.Time{}
	}
	if n.isUpToDate() {
		return true, n.noteSince()
	}
	return true, p.Now
}

func (n *nodeState) isUpToDate() bool {
	return n.note.Phase == v1alpha1.RolloutUpToDate && n.note.BootHash == n.target
}

// soakEnd returns the end of the soak of a node that has had its settings since the given time. canComplete is false if the node, or one of its
// storage servers, failed before the end, by an agent's clock that may be ahead. Time during which a node is down is no evidence: a node that went
// out before the end starts again when it is back. So does a node that came back after the start and may have gone out before the end.
func (n *nodeState) soakEnd(start time.Time, soak time.Duration) (end time.Time, canComplete bool) {
	end = start.Add(soak)
	switch wasOut := n.OutSince.Before(end); {
	case wasOut && !n.Ready:
		return end, false
	case wasOut && n.ReadySince.After(start):
		end = n.ReadySince.Add(soak)
	}
	return end, !slices.ContainsFunc(n.failingServers(), func(s v1alpha1.ServerStatus) bool { return s.Since == nil || s.Since.Time.Before(end.Add(MaxSkew)) })
}

// MaxSkew is the largest difference between the API server's clock and the clock of a node or controller for which its times count.
const MaxSkew = 10 * time.Minute

// lacksBootSettings reports whether a setting that requires a reboot is not effective on the node, exceptions aside. If no reboot is due, the rollout
// will not reboot for it. The setting has failed, or it waits for a boot by another user, for example because the boot loader is not proven.
func (n *nodeState) lacksBootSettings() bool { return len(onlyBootSettings(n.settings.Missing())) > 0 }

// lateSince returns the time since which a node that is not disrupted cannot get or report its settings; zero if it can.
func (n *nodeState) lateSince() time.Time {
	switch {
	case n.AgentSilent:
		return n.SilentSince
	case n.isChanging():
		return n.BehindSince
	case n.need.kind == needUnknown:
		return n.ApplyingSince
	}
	return time.Time{}
}

// isLate reports whether other nodes no longer wait for a node: until then, it may still get or report its settings.
func (p *planner) isLate(n *nodeState) bool {
	start := n.lateSince()
	return !start.IsZero() && !p.isInFuture(start.Add(livegate.LostAfter))
}

// describeLate returns the reason for which a canary node cannot be rebooted yet, empty if there is none. The note of the node gets the reason, too.
func (p *planner) describeLate(n *nodeState) string {
	if n.isDisrupted() || n.hasFailed() || n.lateSince().IsZero() {
		return ""
	}
	reason, message := n.unknownNeedReason()
	if n.AgentSilent {
		reason, message = v1alpha1.RolloutReasonAgentSilent, "Its agent has been silent since "+formatTime(n.SilentSince)+"; check its Pod"
	}
	if n.need.kind == needNone {
		p.setSettledNote(n, v1alpha1.RolloutApplying, reason, message)
	}
	return fmt.Sprintf(" (%s)", strings.ToLower(message[:1])+message[1:])
}

// cannotBeCanary reports whether a node cannot be a canary. A node that is disrupted, or that only soaks, stays in the canary. If others are about
// to remove the node, it stays only if it has failed, or has a permit and may still fail.
func (p *planner) cannotBeCanary(n *nodeState, done bool) bool {
	if n.NeverDisrupt || n.Ignored || n.Paused || n.Deleting {
		return true
	}
	if n.Leaving != "" && n.permit == nil && !n.hasFailed() {
		return true
	}
	if done || n.isDisrupted() || n.hasFailed() && !n.hasFailedUnrebooted() {
		return false
	}
	// Under the current rules, the node gets no reboot.
	never := n.need.kind == needNone && !n.isChanging() && n.lacksBootSettings()
	if n.need.kind == needReboot {
		obstacle, _ := n.checkAcceptance()
		reason, _ := p.checkControlPlane(n)
		onlyNode, _ := p.checkOnlyNode(n)
		never = obstacle != "" || reason == v1alpha1.RolloutReasonLastControlPlaneNode || onlyNode != ""
	}
	return never || n.unavailabilityReason() != "" || p.isBackingOff(n) || p.isLate(n) || len(n.failingServers()) > 0
}
