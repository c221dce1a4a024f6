package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
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
	message := "Not confirmed over new connections yet: " + text.List(report.Keys(standing.Proving, standing.Unproven))
	if note := report.UnprovenNote(); note != "" {
		message += ": " + note
	}
	return message
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
