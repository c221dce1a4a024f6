package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/order"
	"github.com/storageclient/operator/tuning/text"
)

// canaryKey tells apart the groups of nodes that are evidence for each other: those of a profile that get the same boot settings.
type canaryKey struct {
	profile, hash string
	release       bool
}

// canary is the verdict on a group.
type canary struct {
	members []string
	// waits are those that are not done, failed those of them that have failed; soaked is when the last of the others has been healthy for
	// long enough.
	waits, failed []string
	soaked        time.Time
}

func (n *nodeState) canaryKey(profile string) canaryKey {
	if n.ClientNode.Spec.Release {
		return canaryKey{profile: profile, release: true}
	}
	return canaryKey{profile: profile, hash: n.ClientNode.WantedBootHash}
}

// checkCanary refuses a node until the canary of every profile that needs its reboot is done and has soaked.
func (p *planner) checkCanary(n *nodeState) (reason, message string) {
	for _, name := range n.need.names {
		key := n.canaryKey(name)
		verdict, known := p.canaries[key]
		if !known {
			verdict = p.judgeCanary(key)
			p.canaries[key] = verdict
		}
		switch {
		case slices.Contains(verdict.members, n.Name):
		case len(verdict.members) == 0:
			return v1alpha1.RolloutReasonWaitingForCanary, p.describeMissingCanary(name)
		case len(verdict.failed) > 0:
			return v1alpha1.RolloutReasonCanaryFailed, fmt.Sprintf("The canary of StorageClientProfile %s has failed: %s", name, text.List(verdict.failed))
		case len(verdict.waits) > 0:
			return v1alpha1.RolloutReasonWaitingForCanary, fmt.Sprintf("Waiting for the canary of StorageClientProfile %s: %s", name, text.List(verdict.waits))
		case verdict.soaked.After(p.Now):
			p.wakeAt(verdict.soaked)
			return v1alpha1.RolloutReasonWaitingForCanary, fmt.Sprintf("The canary of StorageClientProfile %s soaks until %s", name, formatTime(verdict.soaked))
		}
	}
	return "", ""
}

// waitsForCanary reports whether a node has been refused in this pass for another one, as its canary. A canary waits for none.
func (p *planner) waitsForCanary(n, other *nodeState) bool {
	return slices.ContainsFunc(n.need.names, func(name string) bool {
		verdict := p.canaries[n.canaryKey(name)]
		return slices.Contains(verdict.waits, other.Name) && !slices.Contains(verdict.members, n.Name)
	})
}

// describeMissingCanary says what would make a canary.
func (p *planner) describeMissingCanary(profile string) string {
	message := fmt.Sprintf("No node of StorageClientProfile %s can be the canary", profile)
	if p.profiles[profile].Rollout.Canary.NodeSelector != nil {
		message += ": rollout.canary.nodeSelector selects no node that gets the same boot settings and can be rebooted"
	}
	return message
}

// judgeCanary judges the canary of a group: the first of its nodes, or those that the profile chooses. Where none of
// the chosen ones is left, a node that has carried the settings for long enough is evidence.
func (p *planner) judgeCanary(key canaryKey) canary {
	profile := p.profiles[key.profile]
	rule := profile.Rollout.Canary
	selector := order.LabelMatcher(rule.NodeSelector)
	soak := toDuration(rule.SoakSeconds)
	var out canary
	var evidence []string
	for _, n := range p.inCanaryOrder(key.profile) {
		if !p.inGroup(n, key) {
			continue
		}
		if rule.NodeSelector == nil && len(out.members) >= int(*rule.Nodes) {
			break
		}
		done, since := p.doneSince(n)
		end, well := n.soakEnd(since, soak)
		soaked := done && well && !end.After(p.Now)
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
		if !done || (!soaked && (n.whyUnavailable() != "" || !well)) {
			out.waits = append(out.waits, n.Name)
			if n.hasFailed() {
				out.failed = append(out.failed, n.Name)
			}
			continue
		}
		if end.After(out.soaked) {
			out.soaked = end
		}
	}
	if len(out.members) == 0 {
		out.members = evidence
	}
	return out
}

// inCanaryOrder is the order of the rollout, but that those keep their places who have gone, first of them who is done: one that could not
// go when they went is not to go before they have soaked. Those whose drain has ended without a reboot come last: others are evidence
// just as well.
func (p *planner) inCanaryOrder(profile string) []*nodeState {
	out, known := p.canaryOrder[profile]
	if !known {
		var ranks [4][]*nodeState
		for _, n := range p.members[profile] {
			rank := p.canaryRank(n)
			ranks[rank] = append(ranks[rank], n)
		}
		out = slices.Concat(ranks[:]...)
		p.canaryOrder[profile] = out
	}
	return out
}

func (p *planner) canaryRank(n *nodeState) int {
	done, _ := p.doneSince(n)
	switch {
	case done && n.isEvidence():
		return 0
	case n.isDisrupted(), n.hasFailed():
		return 1
	case n.note.DrainAttempts > 0:
		return 3
	}
	return 2
}

// isEvidence reports whether a node that is done has booted with what is wanted: one that is released may have had nothing to boot for.
func (n *nodeState) isEvidence() bool {
	return n.attemptsGiven() > 0 || (n.ClientNode != nil && !n.ClientNode.Spec.Release && n.note.Phase == v1alpha1.RolloutUpToDate && n.note.BootHash == n.target)
}

// inGroup reports whether a node of the profile is in the group.
func (p *planner) inGroup(n *nodeState, key canaryKey) bool {
	if key.release {
		return p.profiles[key.profile].Deleting || (n.ClientNode != nil && n.ClientNode.Spec.Release)
	}
	return n.ClientNode != nil && n.canaryKey(key.profile) == key
}

// doneSince reports whether a node carries what is wanted, and since when.
func (p *planner) doneSince(n *nodeState) (bool, time.Time) {
	if n.ClientNode == nil {
		return true, time.Time{}
	}
	if n.isDisrupted() || n.hasFailed() || n.isChanging() || n.need.kind != needNone || n.lacksBootSettings() {
		return false, time.Time{}
	}
	if n.note.Phase == v1alpha1.RolloutUpToDate && n.note.BootHash == n.target {
		return true, n.noteSince()
	}
	return true, p.Now
}

// soakEnd is when a node that has carried its settings since some time has been well with them for the length of a soak, and whether it
// still can be: not while it is out that went out before the end, nor while its storage is. Time that passes over a dead node is no
// evidence, and one that came back in between begins anew.
func (n *nodeState) soakEnd(since time.Time, soak time.Duration) (end time.Time, well bool) {
	end = since.Add(soak)
	if !n.Ready {
		return end, n.UnavailableSince != nil && !n.UnavailableSince.Before(end)
	}
	if n.ReadySince.After(since) && n.ReadySince.Before(end) {
		end = n.ReadySince.Add(soak)
	}
	return end, !n.hasLostStorageBefore(end)
}

// lacksBootSettings reports whether a boot setting of the node is not in force, exceptions aside. Without a reboot due, none of
// the rollout's brings it: it has failed, or waits for a boot of somebody else's, as behind a boot loader that is not proven.
func (n *nodeState) lacksBootSettings() bool {
	return len(onlyBootSettings(n.settings.Missing())) > 0
}

// isNeverRebooted reports whether a node that waits for its reboot gets none, as things stand.
func (p *planner) isNeverRebooted(n *nodeState) bool {
	switch n.need.kind {
	case needNone:
		return !n.isChanging() && n.lacksBootSettings()
	case needReboot:
		refused, _ := n.checkAcceptance()
		last, _ := p.checkControlPlane(n)
		return refused != "" || last == v1alpha1.RolloutReasonLastControlPlaneNode
	case needUnknown:
	}
	return false
}

// cannotBeCanary leaves a node out of the canary that cannot be one. A node that is disrupted, or just soaks, stays in it; where
// others are about to take it away, only one that has failed, or may with its permit.
func (p *planner) cannotBeCanary(n *nodeState, done bool) bool {
	if n.NeverDisrupt || n.Ignored || n.Paused || n.Deleting {
		return true
	}
	if n.Leaving != "" && n.permit == nil && !n.hasFailed() {
		return true
	}
	if done || n.isDisrupted() || n.hasFailed() {
		return false
	}
	return n.whyUnavailable() != "" || p.isNeverRebooted(n) || p.isBackingOff(n) || len(n.failingServers()) > 0
}
