package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

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

func (v *nodeState) canaryKey(profile string) canaryKey {
	if v.ClientNode.Spec.Release {
		return canaryKey{profile: profile, release: true}
	}
	return canaryKey{profile: profile, hash: v.ClientNode.WantedBootHash}
}

// checkCanary holds a node back until the canary of every profile that needs its reboot is done and has soaked.
func (p *planner) checkCanary(v *nodeState) (reason, message string) {
	for _, name := range v.need.names {
		key := v.canaryKey(name)
		verdict, known := p.canaries[key]
		if !known {
			verdict = p.judgeCanary(key)
			p.canaries[key] = verdict
		}
		switch {
		case slices.Contains(verdict.members, v.Name):
		case len(verdict.members) == 0:
			return v1alpha1.RolloutReasonWaitingForCanary, p.describeMissingCanary(name)
		case len(verdict.waits) > 0:
			return v1alpha1.RolloutReasonWaitingForCanary, fmt.Sprintf("The canary of StorageClientProfile %s goes first: %s", name, text.List(verdict.waits))
		case verdict.soaked.After(p.Now):
			p.wakeAt(verdict.soaked)
			return v1alpha1.RolloutReasonWaitingForCanary, fmt.Sprintf("The canary of StorageClientProfile %s soaks until %s", name, formatTime(verdict.soaked))
		}
	}
	return "", ""
}

// waitsForCanary reports whether a node has been held back in this pass by another one, as its canary.
func (p *planner) waitsForCanary(v, other *nodeState) bool {
	return slices.ContainsFunc(v.need.names, func(name string) bool {
		return slices.Contains(p.canaries[v.canaryKey(name)].waits, other.Name)
	})
}

// describeMissingCanary tells what would make a canary.
func (p *planner) describeMissingCanary(profile string) string {
	message := fmt.Sprintf("No node of StorageClientProfile %s can be the canary", profile)
	if p.profiles[profile].Rollout.Canary.NodeSelector != nil {
		message += ": rollout.canary.nodeSelector selects none that gets the same boot settings and can be rebooted"
	}
	return message
}

// judgeCanary looks at the canary of a group: the first of its nodes, or those that the profile chooses. Where none of
// the chosen ones is left, a node that has carried the settings for long enough is proof.
func (p *planner) judgeCanary(key canaryKey) canary {
	profile := p.profiles[key.profile]
	rule := profile.Rollout.Canary
	selector := labelMatcher(rule.NodeSelector)
	soak := toDuration(rule.SoakSeconds)
	var out canary
	var evidence []string
	for _, v := range p.states {
		if !p.inGroup(v, key) {
			continue
		}
		if rule.NodeSelector == nil && len(out.members) >= int(*rule.Nodes) {
			break
		}
		done, since := p.doneSince(v)
		proven := done && !since.Add(soak).After(p.Now)
		if rule.NodeSelector != nil && !selector(v.Labels) {
			if proven {
				evidence = append(evidence, v.Name)
			}
			continue
		}
		if !proven && p.cannotBeCanary(v, done) {
			continue
		}
		out.members = append(out.members, v.Name)
		if !done || (!proven && v.whyUnavailable() != "") {
			out.waits = append(out.waits, v.Name)
			continue
		}
		if end := since.Add(soak); end.After(out.soaked) {
			out.soaked = end
		}
	}
	if len(out.members) == 0 {
		out.members = evidence
	}
	return out
}

// inGroup reports whether a node proves a change for the group, or has it proven by the group.
func (p *planner) inGroup(v *nodeState, key canaryKey) bool {
	if !slices.Contains(v.Profiles, key.profile) {
		return false
	}
	if key.release {
		return p.profiles[key.profile].Deleting || (v.ClientNode != nil && v.ClientNode.Spec.Release)
	}
	return v.ClientNode != nil && v.canaryKey(key.profile) == key
}

// doneSince reports whether a node carries what it is to carry, and since when.
func (p *planner) doneSince(v *nodeState) (bool, time.Time) {
	if v.ClientNode == nil {
		return true, time.Time{}
	}
	if v.isDisrupted() || v.hasFailed() || v.isChanging() || v.need.kind != needNone {
		return false, time.Time{}
	}
	if v.note.Phase == v1alpha1.RolloutUpToDate && v.note.BootHash == v.target {
		return true, v.noteSince()
	}
	return true, p.Now
}

// cannotBeCanary leaves a node out of the canary that cannot be one; what we have begun, and what is just soaking, is not let off.
func (p *planner) cannotBeCanary(v *nodeState, done bool) bool {
	if v.NeverDisrupt || v.Ignored || v.Paused || v.Deleting {
		return true
	}
	return v.whyUnavailable() != "" && !done && !v.isDisrupted() && !v.hasFailed()
}
