package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Limits of the recorded failures. Failures beyond them are counted but no longer named.
const (
	// maxFailedNodes is the number of nodes that are named for a profile and a boot hash. maxOldBoots is the number of outdated boot hashes that
	// are kept for a profile. No node should have them now: they come from former settings of other profiles.
	maxFailedNodes = 50
	maxOldBoots    = 20
	// maxFailureMessage limits a message, in characters.
	maxFailureMessage = 160
	// maxFailureBytes limits the total size, well within the 1 MiB of a ConfigMap.
	maxFailureBytes = 60 << 10
)

// FailureChange is the new content of the failures' ConfigMap, if it differs from the current one. It is written before any step, because steps
// remove the facts from which failures are derived.
type FailureChange struct {
	// Profiles is the complete new content, by profile.
	Profiles map[string]v1alpha1.ProfileFailures
	// Nodes are the nodes that the change concerns. The caller must read them live before it writes the change.
	Nodes []string
	// All is true if the change concerns all nodes.
	All bool
}

// lostNode is a node that is gone and had a permit.
type lostNode struct {
	v1alpha1.FailedNode
	permit v1alpha1.ClaimedPermit
}

// retry is the content of the retry annotation.
type retry struct {
	value string
	// node is the node to retry, empty for all.
	node string
}

func (r retry) covers(node string) bool { return r.node == "" || r.node == node }

// loadFailures finds the retries that have not been honored, and the failures of profiles whose settings have not changed since the failure.
func (s *Session) loadFailures() {
	s.retries, s.boots = map[string]retry{}, map[string][]v1alpha1.BootFailures{}
	for _, profile := range s.Profiles {
		for _, boot := range s.Failures[profile.Name].Boots {
			if boot.Settings == profile.SettingsHash {
				s.boots[profile.Name] = append(s.boots[profile.Name], boot)
			}
		}
		if profile.Retry != "" && profile.Retry != s.Failures[profile.Name].Retry && !s.UnreadFailures.Has(profile.Name) {
			_, node, _ := strings.Cut(profile.Retry, "/")
			s.retries[profile.Name] = retry{profile.Retry, node}
		}
	}
}

// restoreNote restores a recorded failure in the note of a node. A failed node with a pending retry starts again, unless it has a permit: that
// attempt is not over. A node whose note does not show the failure, for example that of a new StorageClientNode, has still failed.
func (s *Session) restoreNote(n *nodeState) {
	if profiles := s.profilesRetrying(n); len(profiles) > 0 {
		failed, backsOff := n.hasFailed(), n.note.RetryAfter != nil
		if n.permit == nil && (failed || backsOff) {
			if n.resetDrains(); failed {
				n.note = v1alpha1.RolloutStatus{}
			}
			n.resets = profiles
		}
		return
	}
	if (n.note.Phase != "" && n.note.BootHash == n.target) || n.isChanging() {
		return
	}
	for _, name := range n.Profiles {
		for _, boot := range s.boots[name] {
			at := slices.IndexFunc(boot.Nodes, func(failed v1alpha1.FailedNode) bool { return isSameNode(n, failed) })
			if boot.BootHash == n.target && at >= 0 {
				failed := &boot.Nodes[at]
				n.note = v1alpha1.RolloutStatus{
					Phase: v1alpha1.RolloutFailed, Reason: failed.Reason, Message: failed.Message, Since: &failed.At, Attempts: 1, BootHash: n.target,
				}
				return
			}
		}
	}
}

func (s *Session) profilesRetrying(n *nodeState) []string {
	return slices.DeleteFunc(slices.Clone(n.Profiles), func(name string) bool {
		retry, pending := s.retries[name]
		return !pending || !retry.covers(n.Name)
	})
}

func isSameNode(n *nodeState, failed v1alpha1.FailedNode) bool {
	return n != nil && n.Name == failed.Name && n.UID == failed.UID
}

// lostRemedy is part of the message of a lost node.
const lostRemedy = "; if an upgrade of its pool did that, use: kubectl storageclient retry"

// findLost finds claimed nodes that are gone, or that another Node of the same name has replaced. If the claim names a permit, the node was lost to
// it, unless others had marked the node for removal before.
func (p *planner) findLost() {
	for _, name := range slices.Sorted(maps.Keys(p.Claims)) {
		claim, message := p.Claims[name], "The Node was deleted while it had a reboot permit"+lostRemedy
		if n := p.find(name); n != nil {
			if n.claim != nil {
				continue
			}
			message = "The Node was replaced while it had a reboot permit" + lostRemedy
		}
		if claim.Permit == nil || claim.Permit.Leaving != "" {
			continue
		}
		failed := v1alpha1.FailedNode{
			Name: name, UID: claim.NodeUID, At: metav1.Time{Time: p.Now}, Reason: v1alpha1.RolloutReasonNodeLost, Message: message,
		}
		p.lost = append(p.lost, lostNode{failed, *claim.Permit})
	}
}

// failures are the failed nodes of a profile.
type failures struct {
	names []string
	// omitted is the number of failed nodes that are not named.
	omitted int
}

func (f failures) count() int { return len(f.names) + f.omitted }

func (f failures) String() string {
	if f.omitted > 0 {
		return fmt.Sprintf("%s, and %d before them", text.List(f.names), f.omitted)
	}
	return text.List(f.names)
}

// countFailures counts the failed nodes of a profile: existing nodes by their notes, and nodes that are gone by the record. Failures of a boot hash
// that no node should have now do not count.
func (p *planner) countFailures(profile string) failures {
	if counted, isCounted := p.failed[profile]; isCounted {
		return counted
	}
	desired := p.desiredTargets(profile)
	out := failures{names: lists.Pick(p.members[profile], func(n *nodeState) (string, bool) { return n.Name, n.hasFailed() })}
	retry, pending := p.retries[profile]
	for _, boot := range p.boots[profile] {
		if !desired.Has(boot.BootHash) {
			continue
		}
		for _, failed := range boot.Nodes {
			switch n := p.find(failed.Name); {
			case pending && retry.covers(failed.Name):
			case !isSameNode(n, failed):
				out.names = append(out.names, failed.Name+" (gone)")
			case !n.hasFailed() && !p.isOver(profile, boot.BootHash, failed):
				out.names = append(out.names, failed.Name)
			}
		}
		if !pending || retry.node != "" {
			out.omitted += boot.More
		}
	}
	for _, lost := range p.lost {
		recorded := slices.ContainsFunc(p.boots[profile], func(b v1alpha1.BootFailures) bool {
			return b.BootHash == lost.permit.BootHash && indexOfNode(b.Nodes, lost.FailedNode) >= 0
		})
		if p.isLostTo(lost, profile) && desired.Has(lost.permit.BootHash) && !recorded {
			out.names = append(out.names, lost.Name+" (gone)")
		}
	}
	slices.Sort(out.names)
	p.failed[profile] = out
	return out
}

// countNewFailures also counts the nodes that this plan marks as failed: no other node may be claimed in the same plan.
func (p *planner) countNewFailures() {
	for _, n := range p.states {
		note := p.plan.Notes[n.Name]
		if n.hasFailed() || n.isRetryDue || note.Phase != v1alpha1.RolloutFailed || note.BootHash != n.target {
			continue
		}
		for _, profile := range n.Profiles {
			failed := p.countFailures(profile)
			if !slices.Contains(failed.names, n.Name) { // The record of an unused permit may be there before its note.
				failed.names = append(slices.Clone(failed.names), n.Name)
				slices.Sort(failed.names)
				p.failed[profile] = failed
			}
		}
	}
}

// desiredTargets returns the targets at which the nodes of a profile have failed, or can fail.
func (p *planner) desiredTargets(profile string) sets.Set[string] {
	out := sets.New[string]()
	for _, n := range p.members[profile] {
		if n.ClientNode == nil {
			continue
		}
		if out.Insert(n.target); !n.ClientNode.Spec.Release {
			out.Insert(n.ClientNode.DesiredBootHash)
		}
	}
	return out
}

// isLostTo reports whether a node was lost to settings that a profile still declares.
func (p *planner) isLostTo(lost lostNode, profile string) bool {
	hash, found := lost.permit.Profiles[profile]
	known := p.profiles[profile]
	return found && known != nil && hash == known.SettingsHash
}

// isLossUnrecorded reports whether a node was lost to a profile whose recorded failures cannot be read. Only its claim contains the loss then.
func (p *planner) isLossUnrecorded(node string) bool {
	return slices.ContainsFunc(p.lost, func(lost lostNode) bool {
		return lost.Name == node && slices.ContainsFunc(sets.List(p.UnreadFailures), func(profile string) bool { return p.isLostTo(lost, profile) })
	})
}

func indexOfNode(nodes []v1alpha1.FailedNode, node v1alpha1.FailedNode) int {
	return slices.IndexFunc(nodes, func(f v1alpha1.FailedNode) bool { return f.Name == node.Name && f.UID == node.UID })
}

// checkFailures rejects a node while the number of failed nodes of a profile has reached its threshold.
func (p *planner) checkFailures(name string) (reason, message string) {
	if p.UnreadFailures.Has(name) {
		return v1alpha1.RolloutReasonFailureThreshold, fmt.Sprintf(
			"Cannot read the failed nodes of StorageClientProfile %s; correct or remove key %s of ConfigMap %s", name, name, v1alpha1.FailuresConfigMap)
	}
	failed := p.countFailures(name)
	if failed.count() == 0 || failed.count() < int(*p.profiles[name].Rollout.FailureThreshold) {
		return "", ""
	}
	return v1alpha1.RolloutReasonFailureThreshold, fmt.Sprintf("StorageClientProfile %s stopped after %s failed: %s; %s",
		name, text.Count(failed.count(), "node"), failed, retryRemedy(name))
}

func retryRemedy(profile string) string {
	return "change settings that require a reboot, or retry: kubectl storageclient retry " + profile
}

func (p *planner) permitOf(n *nodeState, target string) *v1alpha1.ClaimedPermit {
	out := &v1alpha1.ClaimedPermit{BootHash: target, Profiles: map[string]string{}}
	for _, name := range n.Profiles {
		if profile := p.profiles[name]; profile != nil {
			out.Profiles[name] = profile.SettingsHash
		}
	}
	return out
}

// describePermit updates the permit in a claim. A mark for removal by others counts only if the node was Ready at that time. A node that is down
// after its permit may be removed because of the reboot.
func (p *planner) describePermit(n *nodeState, claim *v1alpha1.Disruption) {
	failed := p.finalNote(n).Phase == v1alpha1.RolloutFailed
	switch {
	case n.permit != nil && claim.Permit == nil:
		target := n.note.BootHash
		if n.note.Phase == "" {
			target = n.permit.BootHash
		}
		claim.NodeUID, claim.Permit = n.UID, p.permitOf(n, target)
	case n.permit == nil && !failed:
		claim.Permit = nil
	}
	if claim.Permit == nil {
		return
	}
	permit := *claim.Permit
	switch {
	case n.Leaving == "":
		permit.Leaving = ""
	case permit.Leaving == "" && n.Ready && !failed:
		permit.Leaving = n.Leaving
	}
	if n.permit == nil || n.hasUnusedPermit() {
		permit.Overdue = p.overdueSince(n)
	}
	claim.Permit = &permit
}

func (p *planner) writeClaim(n *nodeState, claim v1alpha1.Disruption) {
	if n.claim.Encode() != claim.Encode() {
		p.addStep(UpdateClaim{OnNode{n.Name}, claim})
	}
	n.claim = &claim
}

func (p *planner) finalNote(n *nodeState) v1alpha1.RolloutStatus {
	if note, found := p.plan.Notes[n.Name]; found {
		return note
	}
	return n.note
}

func (p *planner) recordFailures() {
	change := &FailureChange{Profiles: map[string]v1alpha1.ProfileFailures{}}
	for _, profile := range p.Profiles {
		if p.UnreadFailures.Has(profile.Name) {
			continue
		}
		next := p.failuresOf(profile.Name)
		if retry, pending := p.retries[profile.Name]; pending && !p.resetting.Has(profile.Name) {
			next.Retry, change.All = retry.value, true
			p.wakeAt(p.Now)
		}
		if next.Retry != "" || len(next.Boots) > 0 {
			change.Profiles[profile.Name] = next
		}
	}
	p.boundFailures(change.Profiles)
	if !maps.EqualFunc(change.Profiles, p.Failures, func(a, b v1alpha1.ProfileFailures) bool { return a.Encode() == b.Encode() }) {
		change.Nodes = sets.List(p.changed)
		p.plan.Failures = change
	}
}

func (p *planner) failuresOf(profile string) v1alpha1.ProfileFailures {
	out := v1alpha1.ProfileFailures{Retry: p.Failures[profile].Retry}
	retry, pending := p.retries[profile]
	pending = pending && !p.resetting.Has(profile)
	for _, boot := range p.boots[profile] {
		if pending && retry.node == "" {
			boot.More = 0
		}
		boot.Nodes = slices.DeleteFunc(slices.Clone(boot.Nodes), func(failed v1alpha1.FailedNode) bool {
			if pending && retry.covers(failed.Name) {
				return true
			}
			isOver := p.isOver(profile, boot.BootHash, failed)
			if isOver {
				p.changed.Insert(failed.Name)
			}
			return isOver
		})
		out.Boots = append(out.Boots, boot)
	}
	for _, lost := range p.lost {
		if p.isLostTo(lost, profile) {
			p.addFailure(&out, profile, lost.permit.BootHash, lost.FailedNode)
		}
	}
	for _, n := range p.members[profile] {
		note := p.finalNote(n)
		isLeaving := n.claim != nil && n.claim.Permit != nil && n.claim.Permit.Leaving != ""
		if n.ClientNode != nil && note.Phase == v1alpha1.RolloutFailed && note.BootHash == n.target && !n.isChanging() && !isLeaving {
			p.addFailure(&out, profile, n.target, v1alpha1.FailedNode{
				Name: n.Name, UID: n.UID, Reason: note.Reason, Message: text.Cut(note.Message, maxFailureMessage), At: ptr.Deref(note.Since, metav1.Time{}),
			})
		}
	}
	out.Boots = slices.DeleteFunc(out.Boots, func(b v1alpha1.BootFailures) bool { return len(b.Nodes)+b.More == 0 })
	return out
}

// isOver reports whether an existing node shows that its recorded failure is over. The node has the desired settings after all, should have other
// settings, or has left the profile. A different note, for example after an uncordon, does not end a failure.
func (p *planner) isOver(profile, bootHash string, failed v1alpha1.FailedNode) bool {
	n := p.find(failed.Name)
	switch {
	case !isSameNode(n, failed):
		return false
	case !slices.Contains(n.Profiles, profile):
		return true
	}
	return n.ClientNode != nil && (n.target != bootHash || n.isChanging() || n.hasRecovered())
}

// addFailure adds a node to the failures of a profile, or updates its reason.
func (p *planner) addFailure(failures *v1alpha1.ProfileFailures, profile, bootHash string, failed v1alpha1.FailedNode) {
	at := slices.IndexFunc(failures.Boots, func(b v1alpha1.BootFailures) bool { return b.BootHash == bootHash })
	if at < 0 {
		at = len(failures.Boots)
		failures.Boots = append(failures.Boots, v1alpha1.BootFailures{BootHash: bootHash, Settings: p.profiles[profile].SettingsHash})
	}
	boot := &failures.Boots[at]
	if i := indexOfNode(boot.Nodes, failed); i >= 0 {
		if known := &boot.Nodes[i]; failed.Reason != v1alpha1.RolloutReasonNodeLost && known.Reason != failed.Reason {
			known.Reason, known.Message = failed.Reason, failed.Message
			p.changed.Insert(failed.Name)
		}
		return
	}
	boot.Nodes = append(boot.Nodes, failed)
	slices.SortStableFunc(boot.Nodes, func(a, b v1alpha1.FailedNode) int { return a.At.Compare(b.At.Time) })
	p.changed.Insert(failed.Name)
}

// boundFailures limits the size of the record: the oldest nodes are counted instead of named. This applies only to nodes that are gone and whose
// claims are gone, so that no node is counted twice.
func (p *planner) boundFailures(profiles map[string]v1alpha1.ProfileFailures) {
	for name, failures := range profiles {
		// Drop the oldest boot hashes that no node of the profile should have.
		excess, desired := len(failures.Boots)-maxOldBoots, p.desiredTargets(name)
		failures.Boots = slices.DeleteFunc(failures.Boots, func(b v1alpha1.BootFailures) bool {
			drop := excess > 0 && !desired.Has(b.BootHash)
			if drop {
				excess--
			}
			return drop
		})
		profiles[name] = failures
	}
	for _, limit := range []int{maxFailedNodes, maxFailedNodes / 2, maxFailedNodes / 5, 1, 0} {
		size := 0
		for name, failures := range profiles {
			for i := range failures.Boots {
				p.countOldest(&failures.Boots[i], limit)
			}
			size += len(name) + len(failures.Encode())
		}
		if size <= maxFailureBytes {
			return
		}
	}
}

func (p *planner) countOldest(boot *v1alpha1.BootFailures, limit int) {
	excess := len(boot.Nodes) - limit
	boot.Nodes = slices.DeleteFunc(slices.Clone(boot.Nodes), func(failed v1alpha1.FailedNode) bool {
		claim, claimed := p.Claims[failed.Name]
		if excess <= 0 || isSameNode(p.find(failed.Name), failed) || (claimed && claim.NodeUID == failed.UID) {
			return false
		}
		excess--
		boot.More++
		return true
	})
}
