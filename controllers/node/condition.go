package node

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/text"
)

// tuned says how a managed node stands, for its condition Tuned. current is whether its object holds what the
// profiles want; note says what it waits for where it does not.
func tuned(scn *v1alpha1.StorageClientNode, report fleet.Report, current bool, note string) corev1.NodeCondition {
	verdict := func(status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: v1alpha1.TunedNodeCondition, Status: status, Reason: reason, Message: message}
	}
	switch {
	case report.Silent != "":
		return verdict(corev1.ConditionUnknown, v1alpha1.NodeReasonAgentSilent, report.Silent)
	case scn.Spec.Release:
		return verdict(corev1.ConditionFalse, v1alpha1.NodeReasonRestoring, "the node "+cmp.Or(note, "is being restored"))
	case report.Applying || !current:
		return verdict(corev1.ConditionFalse, v1alpha1.NodeReasonApplying, cmp.Or(note, "the agent has not reported the settings yet"))
	case len(report.Failed) > 0:
		return verdict(corev1.ConditionFalse, v1alpha1.NodeReasonSettingsFailed, "failed: "+text.List(report.Failed))
	case len(report.RebootPending) > 0:
		return verdict(corev1.ConditionFalse, v1alpha1.NodeReasonRebootPending, "takes effect at the next boot: "+text.List(report.RebootPending))
	case len(report.Drifted) > 0:
		return verdict(corev1.ConditionFalse, v1alpha1.NodeReasonDrifted, "not as declared: "+text.List(report.Drifted))
	case len(report.Exceptions) > 0:
		return verdict(corev1.ConditionTrue, v1alpha1.NodeReasonTunedWithExceptions, "cannot be had on this node: "+text.List(report.Exceptions))
	}
	return verdict(corev1.ConditionTrue, v1alpha1.NodeReasonTuned, fmt.Sprintf("%d settings were read back", len(scn.Spec.Settings)))
}

// stamped fills in the times of a condition, and reports whether it has to be written at all: not while it says
// what it said. lastHeartbeatTime tells since when the node stands as it does, which the live gate goes by; a
// heartbeat of its own the condition has none.
func stamped(conditions []corev1.NodeCondition, next corev1.NodeCondition, now time.Time) (corev1.NodeCondition, bool) {
	at := metav1.NewTime(now)
	next.LastHeartbeatTime, next.LastTransitionTime = at, at
	old := conditionOf(conditions)
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

func conditionOf(conditions []corev1.NodeCondition) *corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == v1alpha1.TunedNodeCondition {
			return &conditions[i]
		}
	}
	return nil
}
