package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// Condition returns the condition Tuned of a managed node, and whether it has changed and must be written. clientNode is the object after the plan
// is applied.
func Condition(s Snapshot, clientNode *v1alpha1.StorageClientNode, note string, now time.Time) (corev1.NodeCondition, bool) {
	isCurrent := !s.Desired.Managed || clientNode.Spec.Hash == s.Desired.Hash
	verdict := evaluateTuned(clientNode, fleet.ReportOf(s.Node, clientNode, s.AgentReady, ""), isCurrent, note)
	if s.Unfenced != "" {
		verdict.Status, verdict.Reason = corev1.ConditionUnknown, v1alpha1.NodeReasonFenceMissing
		verdict.Message = "The node agent is not rolled out to this node: " + s.Unfenced
	}
	return stampTimes(fleet.FindTuned(s.Node), verdict, now)
}

// evaluateTuned evaluates the state of a managed node. isCurrent is true if its StorageClientNode has the desired settings of the profiles; otherwise
// note is the reason for the wait.
func evaluateTuned(clientNode *v1alpha1.StorageClientNode, report fleet.Report, isCurrent bool, note string) corev1.NodeCondition {
	verdict := func(status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: v1alpha1.TunedNodeCondition, Status: status, Reason: reason, Message: message}
	}
	switch {
	case report.Silent != "":
		return verdict(corev1.ConditionUnknown, v1alpha1.NodeReasonAgentSilent, report.Silent)
	case clientNode.Spec.Release:
		return verdict(corev1.ConditionFalse, v1alpha1.NodeReasonRestoring, cmp.Or(note, noteRestoring))
	case report.Applying || !isCurrent:
		return verdict(corev1.ConditionFalse, v1alpha1.NodeReasonApplying, cmp.Or(note, "Waiting for the agent to report the settings"))
	}
	switch reason := report.Reason(); reason {
	case v1alpha1.NodeReasonSettingsFailed:
		return verdict(corev1.ConditionFalse, reason, failedMessage(report))
	case v1alpha1.NodeReasonApplying:
		return verdict(corev1.ConditionFalse, reason, applyingMessage(report))
	case v1alpha1.NodeReasonRebootPending:
		return verdict(corev1.ConditionFalse, reason, "Takes effect at the next boot: "+text.List(report.Keys(standing.PendingReboot)))
	case v1alpha1.NodeReasonDrifted:
		return verdict(corev1.ConditionFalse, reason, driftedMessage(report.Keys(standing.Drifted, standing.Unstaged)))
	case v1alpha1.NodeReasonTunedWithExceptions:
		return verdict(corev1.ConditionTrue, reason, exceptionsMessage(report))
	default:
		return verdict(corev1.ConditionTrue, reason, text.Count(len(clientNode.Spec.Settings), "setting")+" verified")
	}
}

// withheldKeys stands for the settings that require a reboot and are withheld.
const withheldKeys = "settings that had no effect after a reboot and were removed"

func failedMessage(report fleet.Report) string {
	failed := report.Keys(standing.Failed, standing.RestoreFailed)
	if report.Withheld {
		failed = append(failed, withheldKeys)
		slices.Sort(failed)
	}
	return "Settings failed: " + text.List(failed)
}

func exceptionsMessage(report fleet.Report) string {
	missing, overridden := report.Keys(standing.Unavailable), report.Keys(standing.Overridden, standing.OverriddenAtBoot)
	switch {
	case len(overridden) == 0:
		return "Not supported on this node: " + text.List(missing)
	case len(missing) == 0:
		return "Other files override settings of this node: " + text.List(overridden)
	}
	return "Not supported on this node: " + text.List(missing) + "; other files override settings: " + text.List(overridden)
}

func applyingMessage(report fleet.Report) string {
	if applying := report.Keys(standing.Applying); len(applying) > 0 {
		return "Not applied yet: " + text.List(applying)
	}
	unproven := report.Keys(standing.Proving, standing.Unproven)
	return "Not confirmed over new connections yet: " + text.List(unproven) + text.Labelled(": ", report.UnprovenNote())
}

func driftedMessage(keys []string) string {
	if len(keys) == 1 {
		return keys[0] + " does not have the declared value"
	}
	return text.List(keys) + " do not have the declared values"
}

// stampTimes sets the times of a condition, and reports whether it has changed. lastHeartbeatTime is the time of the last write.
func stampTimes(old *corev1.NodeCondition, next corev1.NodeCondition, now time.Time) (corev1.NodeCondition, bool) {
	at := metav1.NewTime(now)
	next.LastHeartbeatTime, next.LastTransitionTime = at, at
	if old == nil {
		return next, true
	}
	if old.Status == next.Status && old.Reason == next.Reason && old.Message == next.Message {
		return *old, false
	}
	if old.Status == next.Status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	return next, true
}

// StorageCondition returns the condition StorageReachable of a managed node, and whether it has changed and must be written.
func StorageCondition(s Snapshot, clientNode *v1alpha1.StorageClientNode, now time.Time) (corev1.NodeCondition, bool) {
	verdict := evaluateStorage(clientNode, agentpod.SilentReason(s.Node, clientNode, s.AgentReady))
	if s.Unfenced != "" {
		verdict.Status, verdict.Reason = corev1.ConditionUnknown, v1alpha1.StorageReasonAgentSilent
		verdict.Message = "The node agent is not rolled out to this node: " + s.Unfenced
	}
	return stampTimes(fleet.FindStorageReachable(s.Node), verdict, now)
}

// evaluateStorage also reports storage as unreachable if it responds to some requests (Stuck), or responds with stale handles: pods hang or fail on
// such storage as well, and users have no other condition for it.
func evaluateStorage(clientNode *v1alpha1.StorageClientNode, silent string) corev1.NodeCondition {
	verdict := corev1.NodeCondition{Type: v1alpha1.StorageReachableNodeCondition, Status: corev1.ConditionTrue, Reason: v1alpha1.StorageReasonReachable}
	failing := lists.Filter(clientNode.Status.Servers, fleet.IsFailing)
	isSilent := func(s v1alpha1.ServerStatus) bool { return s.State == v1alpha1.ServerSilent }
	switch {
	case silent != "":
		verdict.Status, verdict.Reason, verdict.Message = corev1.ConditionUnknown, v1alpha1.StorageReasonAgentSilent, silent
	case len(failing) > 0:
		verdict.Status, verdict.Reason = corev1.ConditionFalse, v1alpha1.StorageReasonServerStuck
		if slices.ContainsFunc(failing, isSilent) {
			verdict.Reason = v1alpha1.StorageReasonServerSilent
		}
		verdict.Message = failingText(failing)
	case slices.ContainsFunc(clientNode.Status.Servers, fleet.IsStale):
		verdict.Status, verdict.Reason = corev1.ConditionFalse, v1alpha1.StorageReasonStaleHandles
		verdict.Message = failingText(lists.Filter(clientNode.Status.Servers, fleet.IsStale))
	case len(clientNode.Status.Servers) == 0:
		verdict.Message = "The node has no mounts from storage servers"
	default:
		verdict.Message = "No storage server has overdue requests from this node"
	}
	return verdict
}

// failingText describes servers and their users. Servers that do not respond at all come first.
func failingText(failing []v1alpha1.ServerStatus) string {
	sorted := slices.Clone(failing)
	slices.SortStableFunc(sorted, func(a, b v1alpha1.ServerStatus) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Server, b.Server))
	})
	return text.InOrder(lists.Each(sorted, fleet.ServerText), "; ")
}

const (
	// passingAfter is the time for which a node applies settings, or its agent is silent, before a condition reports it. Most nodes are done by
	// then, so an earlier write would be useless.
	passingAfter = 30 * time.Second
	// rewordAfter is the minimum time before such a condition is written again if only its message has changed.
	rewordAfter = 5 * time.Minute
)

// Patience delays conditions about temporary states. It records the start of each state: a manager that has just started waits again. The zero
// Patience delays none.
type Patience struct {
	startTimes map[conditionKey]time.Time
}

type conditionKey struct {
	node string
	kind corev1.NodeConditionType
}

// NewPatience returns a Patience that records states.
func NewPatience() Patience { return Patience{startTimes: map[conditionKey]time.Time{}} }

// Forget must be called when a Node is gone.
func (p Patience) Forget(node string) {
	for _, kind := range []corev1.NodeConditionType{v1alpha1.TunedNodeCondition, v1alpha1.StorageReachableNodeCondition} {
		delete(p.startTimes, conditionKey{node, kind})
	}
}

// Hold returns the time for which a node's condition must not be replaced by the next one; 0: replace it now. old is the current condition, nil if
// there is none.
func (p Patience) Hold(node string, old *corev1.NodeCondition, next corev1.NodeCondition, now time.Time) time.Duration {
	if p.startTimes == nil {
		return 0
	}
	key := conditionKey{node, next.Type}
	if !isPassing(next) {
		delete(p.startTimes, key)
		return 0
	}
	if old != nil && old.Status == next.Status && old.Reason == next.Reason {
		return max(rewordAfter-now.Sub(old.LastHeartbeatTime.Time), 0)
	}
	if _, known := p.startTimes[key]; !known {
		p.startTimes[key] = now
	}
	return max(passingAfter-now.Sub(p.startTimes[key]), 0)
}

// isPassing reports whether a condition describes a temporary state.
func isPassing(condition corev1.NodeCondition) bool {
	// StorageReasonAgentSilent has the same value.
	return condition.Reason == v1alpha1.NodeReasonApplying || condition.Reason == v1alpha1.NodeReasonAgentSilent
}
