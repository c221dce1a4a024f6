package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// BackOff is the pause after a drain that finished without a reboot. Each further drain of this kind in a row doubles it, up to MaxBackOff.
const (
	BackOff    = 5 * time.Minute
	MaxBackOff = 6 * time.Hour
)

// SkipPause is the minimum pause for a node that could not have been drained. After a longer wait, the pause is as long as the wait, up to BackOff.
const SkipPause = time.Minute

// HeldPause is the time for which budgets alone must have kept a node before lookAhead CordonFirst cordons it.
const HeldPause = 10 * time.Minute

// SkipNode returns the note of a node that is next in the queue but skipped because its drain would not finish. Pods that run to completion
// postpone the node only once: they may have finished by the next attempt. If every node runs such pods, one node must be first. A claim that
// cordons first is made although budgets keep pods.
func (s *Session) SkipNode(node string, claim v1alpha1.Disruption, outlook DrainProgress) (note v1alpha1.RolloutStatus, skip bool) {
	n := s.find(node)
	if n == nil || n.ClientNode == nil {
		return v1alpha1.RolloutStatus{}, false
	}
	outlook = n.withMountsThatStay(outlook, *s.rulesFor(n).Drain.IgnoreDaemonSetMounts)
	if message := sharedBudget(n, outlook.Budgets, s.nodes); message != "" && (outlook.Gone || outlook.Reason == "") {
		outlook = DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: message}
	}
	if outlook.Gone || outlook.Reason == "" {
		return v1alpha1.RolloutStatus{}, false
	}
	pause := SkipPause
	if noteStart := n.noteSince(); !noteStart.IsZero() {
		pause = min(max(s.Now.Sub(noteStart), SkipPause), BackOff)
	}
	if outlook.Reason == v1alpha1.RolloutReasonWaitingForPods {
		if n.note.RetryAfter != nil {
			return v1alpha1.RolloutStatus{}, false
		}
		pause = BackOff
	}
	message, heldSince := outlook.Message, (*metav1.Time)(nil)
	switch lookAhead := s.rulesFor(n).Drain.LookAhead; {
	case !outlook.HeldByBudgets:
	case lookAhead != v1alpha1.LookAheadCordonFirst:
		message += "; to cordon the node and evict these pods first, if no other node can be claimed, set rollout.drain.lookAhead to CordonFirst"
	case claim.CordonFirst:
		return v1alpha1.RolloutStatus{}, false
	default:
		if heldSince = n.note.HeldSince; heldSince == nil {
			heldSince = &metav1.Time{Time: s.Now}
		}
		message += "; from " + formatTime(heldSince.Add(HeldPause)) +
			", if no other node can be claimed, the node is cordoned and these pods are evicted first (rollout.drain.lookAhead)"
	}
	retryAfter := metav1.Time{Time: s.Now.Add(pause)}
	note = s.newNote(n, v1alpha1.RolloutWaiting, outlook.Reason, fmt.Sprintf("Skipped until %s: %s", formatTime(retryAfter.Time), message))
	note.RetryAfter, note.HeldSince, note.DrainedFor = &retryAfter, heldSince, s.drainKey(n)
	return note, true
}

// withMountsThatStay adds the obstacle of a pod that a drain would leave on the node with a mount that blocks the reboot.
func (n *nodeState) withMountsThatStay(outlook DrainProgress, ignoreDaemonSets bool) DrainProgress {
	for _, m := range n.ClientNode.Status.BusyMounts {
		if !ignoreDaemonSets && m.PodUID != "" && slices.Contains(outlook.IgnoredPodUIDs, m.PodUID) {
			return DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: fmt.Sprintf("A drain would leave a DaemonSet or static pod on "+
				"the node, and its mount %s would block the reboot; set rollout.drain.ignoreDaemonSetMounts to true, or reboot the node by hand", m.MountPoint)}
		}
		if pod := outlook.Left[m.PodUID]; pod != "" && m.PodUID != "" {
			return DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: fmt.Sprintf("%s, so a drain would leave it on the node, "+
				"and its mount %s would block the reboot; remove the toleration, or reboot the node by hand", pod, m.MountPoint)}
		}
	}
	return outlook
}

// isHeldLong reports whether budgets alone have kept a node for so long that it may be cordoned first.
func (p *planner) isHeldLong(n *nodeState) bool {
	return n.note.HeldSince != nil && p.rulesFor(n).Drain.LookAhead == v1alpha1.LookAheadCordonFirst && !p.isInFuture(n.note.HeldSince.Add(HeldPause))
}

// isCordonedFirst reports whether the node was claimed although budgets keep its pods.
func (n *nodeState) isCordonedFirst() bool { return n.claim != nil && n.claim.CordonFirst }

// startTime is the time that a drain may need until its first eviction. A pod whose grace period is the whole timeout is evicted in that time.
const startTime = 15 * time.Second

// drainOptions returns the options of the drain of a node. They contain no time limit once a pod was evicted: a pod that needs long may leave in
// time, and otherwise the evictions so far had no effect. They contain CordonFirst only if the node was claimed for that.
func (p *planner) drainOptions(n *nodeState) v1alpha1.Drain {
	options := p.rulesFor(n).Drain
	if max(n.note.Evictions, n.Evicted) > 0 {
		options.TimeoutSeconds = nil
	}
	if options.LookAhead = ""; n.isCordonedFirst() {
		options.LookAhead = v1alpha1.LookAheadCordonFirst
	}
	return options
}

// timeLeft returns the time in which the pods of a drain must leave that has not evicted any; zero if there is no limit. A wait for a Job may leave
// too little for the grace periods of the other pods.
func (p *planner) timeLeft(n *nodeState) time.Duration {
	options := p.drainOptions(n)
	remaining := p.drainDeadline(n).Sub(p.Now)
	if options.TimeoutSeconds == nil || remaining >= toDuration(options.TimeoutSeconds)-startTime {
		return 0
	}
	return max(remaining, time.Nanosecond)
}

// backOffFrom returns a node to service and starts a pause. It writes the note first because the uncordoned node does not show the reason. After an
// unused permit, the node has failed, and a node that is not Ready keeps its claim and its cordon until it is back.
func (p *planner) backOffFrom(n *nodeState, reason, message string) {
	phase := v1alpha1.RolloutWaiting
	if reason == v1alpha1.RolloutReasonRebootTimedOut {
		phase = v1alpha1.RolloutFailed
	}
	if n.note.Phase != phase || !p.isBackingOff(n) || n.note.HeldSince != nil {
		pause := BackOff
		for i := int32(0); i < n.note.DrainAttempts && pause < MaxBackOff; i++ {
			pause = min(2*pause, MaxBackOff)
		}
		n.note.DrainAttempts++
		n.note.RetryAfter = &metav1.Time{Time: p.Now.Add(pause)}
		n.note.DrainedFor, n.note.HeldSince = p.drainKey(n), nil
	}
	message += "; next attempt after " + formatTime(n.note.RetryAfter.Time)
	if phase == v1alpha1.RolloutFailed {
		message += ", unless failureThreshold has stopped the rollout; then use: kubectl storageclient retry"
	}
	note := p.newNote(n, phase, reason, message)
	p.writeNoteAhead(n, note)
	if phase == v1alpha1.RolloutWaiting || n.Ready {
		p.returnToService(n, reason)
	}
	p.storeNote(n, note)
	p.wakeAt(n.note.RetryAfter.Time)
}

func (p *planner) isBackingOff(n *nodeState) bool {
	return n.note.RetryAfter != nil && p.Now.Before(n.note.RetryAfter.Time)
}

// checkBackOff rejects a node during its pause. It repeats the reason and message of the note that started the pause.
func (p *planner) checkBackOff(n *nodeState) (reason, message string) {
	if !p.isBackingOff(n) || n.isCordonedFirst() {
		return "", ""
	}
	p.wakeAt(n.note.RetryAfter.Time)
	reportedReasons := []string{
		v1alpha1.RolloutReasonDrainBlocked, v1alpha1.RolloutReasonWaitingForPods, v1alpha1.RolloutReasonSettingsFailed,
		v1alpha1.RolloutReasonStorageUnreachable,
	}
	if isBackOff(n.note.Reason) || slices.Contains(reportedReasons, n.note.Reason) {
		return n.note.Reason, n.note.Message
	}
	return v1alpha1.RolloutReasonBackingOff, fmt.Sprintf("Consecutive drains without a reboot: %d; next attempt after %s",
		n.note.DrainAttempts, formatTime(n.note.RetryAfter.Time))
}

func (n *nodeState) resetDrains() {
	n.note.DrainAttempts, n.note.RetryAfter, n.note.HeldSince, n.note.DrainedFor = 0, nil, nil, ""
}

// drainKey identifies the purpose and the method of a drain: the settings of the node, and the drain options of each of its profiles. The agent
// decides which settings need the boot, so its report must not change the key.
func (s *Session) drainKey(n *nodeState) string {
	spec := ptr.Deref(n.ClientNode, ClientNode{}).Spec
	key := []string{n.target, spec.Hash}
	for _, name := range lists.Distinct(n.Profiles, sourcesOf(spec.Settings)) {
		if profile := s.profiles[name]; profile != nil {
			key = append(key, text.JSON(profile.Rollout.Drain))
		}
	}
	return text.Hash(strings.Join(key, "\n"), 8)
}
