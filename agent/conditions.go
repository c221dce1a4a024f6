package agent

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// request is what of the spec a report answers.
type request struct {
	// carriedOut is whether the settings were gone through, release whether the host is to be as it was.
	carriedOut, release bool
}

// conditionsOf sums up a status for whoever goes by conditions. was are those reported last: a condition that stays keeps its time.
func conditionsOf(spec *v1alpha1.StorageClientNodeSpec, status *v1alpha1.StorageClientNodeStatus, asked request, was []metav1.Condition, now time.Time) []metav1.Condition {
	ready := judgeReady(status, standing.Read(spec, status, ""), asked)
	stalled := metav1.Condition{Type: v1alpha1.ClientNodeConditionStalled, Status: metav1.ConditionFalse, Reason: ready.Reason, Message: ready.Message}
	if ready.Reason == v1alpha1.NodeReasonSettingsFailed {
		stalled.Status = metav1.ConditionTrue
	}
	var conditions []metav1.Condition
	for _, c := range []metav1.Condition{ready, stalled} {
		if before := meta.FindStatusCondition(was, c.Type); before != nil {
			conditions = append(conditions, *before)
		}
		c.ObservedGeneration, c.LastTransitionTime = status.ObservedGeneration, metav1.NewTime(now.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&conditions, c)
	}
	return conditions
}

// judgeReady has the reasons of the Node condition Tuned, by what the agent alone can tell.
func judgeReady(status *v1alpha1.StorageClientNodeStatus, report standing.Report, asked request) metav1.Condition {
	verdict := func(is metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ClientNodeConditionReady, Status: is, Reason: reason, Message: message}
	}
	failed := report.Keys(standing.Failed, standing.RestoreFailed)
	reboot := slices.Concat(report.Keys(standing.PendingReboot, standing.RestoreAtBoot), status.RebootRequiredBy)
	slices.Sort(reboot)
	reboot = slices.Compact(reboot)
	switch {
	case len(failed) > 0:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonSettingsFailed, "Settings failed: "+text.List(failed))
	case status.Restored:
		return verdict(metav1.ConditionTrue, v1alpha1.NodeReasonRestored, "Original values restored")
	case asked.release:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonRestoring, "Restoring the original values")
	case !asked.carriedOut:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonApplying, "The settings have not been applied yet")
	case report.Has(standing.Applying):
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonApplying, "Not applied yet: "+text.List(report.Keys(standing.Applying)))
	case report.Has(standing.Proving, standing.Unproven):
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonApplying,
			"Not confirmed over new connections yet: "+text.List(report.Keys(standing.Proving, standing.Unproven)))
	case len(reboot) > 0:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonRebootPending, "Takes effect at the next boot: "+text.List(reboot))
	case report.Has(standing.Drifted, standing.Unstaged):
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonDrifted, "Changed by something else: "+text.List(report.Keys(standing.Drifted, standing.Unstaged)))
	case len(report.Exceptions()) > 0:
		return verdict(metav1.ConditionTrue, v1alpha1.NodeReasonTunedWithExceptions, "Not as declared on this node: "+text.List(report.Exceptions()))
	}
	return verdict(metav1.ConditionTrue, v1alpha1.NodeReasonTuned, text.Count(len(status.Settings), "setting")+" verified")
}
