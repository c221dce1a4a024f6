package reporter

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// Conditions returns the conditions that summarize a status. carriedOut is true if all settings were processed. former are the last
// reported conditions: an unchanged condition keeps its transition time.
func Conditions(
	spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus, carriedOut bool, former []metav1.Condition, now time.Time,
) []metav1.Condition {
	ready := readyCondition(spec, status, carriedOut)
	stalled := metav1.Condition{Type: v1alpha1.ClientNodeConditionStalled, Status: metav1.ConditionFalse, Reason: ready.Reason, Message: ready.Message}
	if ready.Reason == v1alpha1.NodeReasonSettingsFailed {
		stalled.Status = metav1.ConditionTrue
	}
	var conditions []metav1.Condition
	for _, c := range []metav1.Condition{ready, stalled} {
		if before := meta.FindStatusCondition(former, c.Type); before != nil {
			conditions = append(conditions, *before)
		}
		c.ObservedGeneration, c.LastTransitionTime = status.ObservedGeneration, metav1.NewTime(now.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&conditions, c)
	}
	return conditions
}

// readyCondition returns the Ready condition. It uses the reasons of the Node condition Tuned that depend only on the data of the agent.
func readyCondition(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus, carriedOut bool) metav1.Condition {
	verdict := func(state metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ClientNodeConditionReady, Status: state, Reason: reason, Message: message}
	}
	report := standing.Read(spec, status, "")
	failed := report.Keys(standing.Failed, standing.RestoreFailed)
	switch {
	case len(failed) > 0:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonSettingsFailed, "Settings failed: "+text.List(failed))
	case status.Restored:
		return verdict(metav1.ConditionTrue, v1alpha1.NodeReasonRestored, "Original values restored")
	case spec.Release:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonRestoring, "Restoring the original values")
	case !carriedOut:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonApplying, "The settings have not been applied yet")
	}
	switch reason := report.Reason(); reason {
	case v1alpha1.NodeReasonApplying:
		return verdict(metav1.ConditionFalse, reason, applyingMessage(report))
	case v1alpha1.NodeReasonRebootPending:
		return verdict(metav1.ConditionFalse, reason, "Takes effect at the next boot: "+text.List(report.Keys(standing.PendingReboot)))
	case v1alpha1.NodeReasonDrifted:
		return verdict(metav1.ConditionFalse, reason, "Changed by another program: "+text.List(report.Keys(standing.Drifted, standing.Unstaged)))
	case v1alpha1.NodeReasonTunedWithExceptions:
		return verdict(metav1.ConditionTrue, reason, "Not as declared on this node: "+text.List(report.Exceptions()))
	default:
		return verdict(metav1.ConditionTrue, reason, text.Count(len(spec.Settings), "setting")+" verified")
	}
}

func applyingMessage(report standing.Report) string {
	if applying := report.Keys(standing.Applying); len(applying) > 0 {
		return "Not applied yet: " + text.List(applying)
	}
	return "Not confirmed over new connections yet: " + text.List(report.Keys(standing.Proving, standing.Unproven))
}
