package agent

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

// isAsked is what of the spec a report is an answer to.
type isAsked struct {
	// carriedOut is whether the settings were gone through, release whether the host is to be as it was.
	carriedOut, release bool
}

// conditionsOf sums up a status for whoever goes by conditions. was are those reported last: a condition that stays keeps its time.
func conditionsOf(status *v1alpha1.StorageClientNodeStatus, asked isAsked, was []metav1.Condition, now time.Time) []metav1.Condition {
	ready := judgeReady(status, asked)
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
func judgeReady(status *v1alpha1.StorageClientNodeStatus, asked isAsked) metav1.Condition {
	verdict := func(is metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ClientNodeConditionReady, Status: is, Reason: reason, Message: message}
	}
	var failed, unconfirmed, drifted, exceptions []string
	for _, s := range status.Settings {
		switch {
		case s.State == v1alpha1.SettingFailed:
			failed = append(failed, s.Key)
		case catalogue.IsUnconfirmed(s):
			unconfirmed = append(unconfirmed, s.Key)
		case s.State == v1alpha1.SettingDrifted:
			drifted = append(drifted, s.Key)
		case s.State == v1alpha1.SettingClamped, s.State == v1alpha1.SettingUnsupported, s.State == v1alpha1.SettingShadowed:
			exceptions = append(exceptions, s.Key)
		}
	}
	switch {
	case len(failed) > 0:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonSettingsFailed, "Settings failed: "+text.List(failed))
	case status.Restored:
		return verdict(metav1.ConditionTrue, v1alpha1.NodeReasonRestored, "Original values restored")
	case asked.release:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonRestoring, "Restoring the original values")
	case !asked.carriedOut:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonApplying, "The settings have not been applied yet")
	case len(unconfirmed) > 0:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonApplying, "Not confirmed over new connections yet: "+text.List(unconfirmed))
	case len(status.RebootRequiredBy) > 0:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonRebootPending, "Takes effect at the next boot: "+text.List(status.RebootRequiredBy))
	case len(drifted) > 0:
		return verdict(metav1.ConditionFalse, v1alpha1.NodeReasonDrifted, "Changed by something else: "+text.List(drifted))
	case len(exceptions) > 0:
		return verdict(metav1.ConditionTrue, v1alpha1.NodeReasonTunedWithExceptions, "Not as declared on this node: "+text.List(exceptions))
	}
	return verdict(metav1.ConditionTrue, v1alpha1.NodeReasonTuned, text.Count(len(status.Settings), "setting")+" verified")
}
