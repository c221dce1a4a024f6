package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/standing"
)

// reportOf returns a report about rmem and wmem.
func reportOf(standings ...standing.Standing) standing.Report {
	var r standing.Report
	for i, s := range standings {
		r.Settings = append(r.Settings, standing.Setting{Key: []string{rmem, wmem}[i], Standing: s})
	}
	return r
}

func TestEvaluateTuned(t *testing.T) {
	for name, test := range map[string]struct {
		report  fleet.Report
		stale   bool
		release bool
		status  corev1.ConditionStatus
		reason  string
	}{
		"all read back":                                {status: corev1.ConditionTrue, reason: v1alpha1.NodeReasonTuned},
		"an agent that is silent":                      {report: fleet.Report{Silent: "not Ready", Report: reportOf(standing.Failed)}, status: corev1.ConditionUnknown, reason: v1alpha1.NodeReasonAgentSilent},
		"a release":                                    {release: true, status: corev1.ConditionFalse, reason: v1alpha1.NodeReasonRestoring},
		"settings not reported yet":                    {report: fleet.Report{Report: standing.Report{Applying: true}}, status: corev1.ConditionFalse, reason: v1alpha1.NodeReasonApplying},
		"queued settings":                              {stale: true, status: corev1.ConditionFalse, reason: v1alpha1.NodeReasonApplying},
		"a failure comes before a reboot":              {report: fleet.Report{Report: reportOf(standing.Failed, standing.PendingReboot)}, status: corev1.ConditionFalse, reason: v1alpha1.NodeReasonSettingsFailed},
		"a removal that failed":                        {report: fleet.Report{Report: reportOf(standing.RestoreFailed, standing.PendingReboot)}, status: corev1.ConditionFalse, reason: v1alpha1.NodeReasonSettingsFailed},
		"a reboot comes before drift":                  {report: fleet.Report{Report: reportOf(standing.Drifted, standing.PendingReboot)}, status: corev1.ConditionFalse, reason: v1alpha1.NodeReasonRebootPending},
		"a setting that the agent has not applied yet": {report: fleet.Report{Report: reportOf(standing.Applying, standing.PendingReboot)}, status: corev1.ConditionFalse, reason: v1alpha1.NodeReasonApplying},
		"drift":                                  {report: fleet.Report{Report: reportOf(standing.Drifted)}, status: corev1.ConditionFalse, reason: v1alpha1.NodeReasonDrifted},
		"an unavailable setting is an exception": {report: fleet.Report{Report: reportOf(standing.Unavailable)}, status: corev1.ConditionTrue, reason: v1alpha1.NodeReasonTunedWithExceptions},
	} {
		t.Run(name, func(t *testing.T) {
			clientNode := clientNodeWith()
			clientNode.Spec.Release = test.release
			got := evaluateTuned(clientNode, test.report, !test.stale, "")
			if got.Status != test.status || got.Reason != test.reason {
				t.Errorf("got %s %s, want %s %s", got.Status, got.Reason, test.status, test.reason)
			}
		})
	}
}

func TestAConditionExplainsAMissingAgent(t *testing.T) {
	s := snapshotOf(clientNodeWith(), profile("p", nil))
	s.Unfenced = "apply the manifest"
	got, written := Condition(s, s.ClientNode, "Paused", now)
	want := corev1.NodeCondition{
		Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionUnknown, Reason: v1alpha1.NodeReasonFenceMissing,
		Message: "The node agent is not rolled out to this node: apply the manifest", LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}
	if diff := cmp.Diff(want, got); diff != "" || !written {
		t.Errorf("got written %t (-want +got):\n%s", written, diff)
	}
}

func TestEvaluateTunedListsExceptions(t *testing.T) {
	clientNode := clientNodeWith()
	for want, report := range map[string]fleet.Report{
		"Not supported on this node: " + rmem:                                              {Report: reportOf(standing.Unavailable)},
		"Other files override settings of this node: " + rmem:                              {Report: reportOf(standing.Overridden)},
		"Not supported on this node: " + wmem + "; other files override settings: " + rmem: {Report: reportOf(standing.OverriddenAtBoot, standing.Unavailable)},
	} {
		if got := evaluateTuned(clientNode, report, true, ""); got.Message != want || got.Reason != v1alpha1.NodeReasonTunedWithExceptions {
			t.Errorf("%s: %q, want %q", got.Reason, got.Message, want)
		}
	}
}

func TestStampTimes(t *testing.T) {
	before := metav1.NewTime(now.Add(-time.Hour))
	old := corev1.NodeCondition{
		Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionFalse, Reason: v1alpha1.NodeReasonApplying, Message: "m",
		LastHeartbeatTime: before, LastTransitionTime: before,
	}
	for name, test := range map[string]struct {
		conditions []corev1.NodeCondition
		change     func(*corev1.NodeCondition)
		transition time.Time
		written    bool
	}{
		"a first condition is written":                     {transition: now, written: true},
		"an equal condition is not":                        {conditions: []corev1.NodeCondition{old}, transition: before.Time},
		"another reason keeps the time of the status":      {conditions: []corev1.NodeCondition{old}, change: func(c *corev1.NodeCondition) { c.Reason = v1alpha1.NodeReasonRebootPending }, transition: before.Time, written: true},
		"another status sets it":                           {conditions: []corev1.NodeCondition{old}, change: func(c *corev1.NodeCondition) { c.Status = corev1.ConditionTrue }, transition: now, written: true},
		"conditions of other controllers are not included": {conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}, transition: now, written: true},
	} {
		t.Run(name, func(t *testing.T) {
			next := corev1.NodeCondition{Type: v1alpha1.TunedNodeCondition, Status: old.Status, Reason: old.Reason, Message: old.Message}
			if test.change != nil {
				test.change(&next)
			}
			got, written := stampTimes(fleet.FindTuned(&corev1.Node{Status: corev1.NodeStatus{Conditions: test.conditions}}), next, now)
			check.Equal(t, "written", test.written, written)
			check.Equal(t, "transition time", test.transition, got.LastTransitionTime.Time)
			if written && !got.LastHeartbeatTime.Time.Equal(now) {
				t.Errorf("heartbeat time %s, want %s", got.LastHeartbeatTime, now)
			}
		})
	}
}
