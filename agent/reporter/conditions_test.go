package reporter

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// conditions returns both conditions of a first report at a time.
func conditions(ready, stalled metav1.ConditionStatus, reason, message string, at time.Time) []metav1.Condition {
	c := metav1.Condition{Type: "Ready", Status: ready, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(at.UTC()), Reason: reason, Message: message}
	other := c
	other.Type, other.Status = "Stalled", stalled
	return []metav1.Condition{c, other}
}

// specOf returns a spec with all settings of a status.
func specOf(status v1alpha1.StorageClientNodeStatus) *v1alpha1.StorageClientNodeSpec {
	spec := &v1alpha1.StorageClientNodeSpec{}
	for _, s := range status.Settings {
		spec.Settings = append(spec.Settings, v1alpha1.NodeSetting{Key: s.Key})
	}
	return spec
}

func TestConditionsSummarizeTheSettings(t *testing.T) {
	settings := func(states ...v1alpha1.SettingState) v1alpha1.StorageClientNodeStatus {
		status := v1alpha1.StorageClientNodeStatus{ObservedGeneration: 7}
		for i, state := range states {
			status.Settings = append(status.Settings, v1alpha1.SettingStatus{Key: string(rune('a' + i)), State: state})
		}
		return status
	}
	due := settings(v1alpha1.SettingPending, v1alpha1.SettingDrifted)
	due.RebootRequired, due.RebootRequiredBy = true, []string{"a"}
	due.Settings[0].TakesEffect = v1alpha1.EffectReboot
	atBoot := settings(v1alpha1.SettingPending)
	atBoot.Settings[0].TakesEffect = v1alpha1.EffectReboot
	atMount, action := settings(v1alpha1.SettingPending), settings(v1alpha1.SettingPending)
	atMount.Settings[0].TakesEffect, action.Settings[0].TakesEffect = v1alpha1.EffectNextMount, v1alpha1.EffectAction
	restored := settings()
	restored.Restored = true
	for name, test := range map[string]struct {
		status              v1alpha1.StorageClientNodeStatus
		carriedOut, release bool
		ready, stalled      metav1.ConditionStatus
		reason, message     string
	}{
		"no setting was processed yet":             {settings(), false, false, "False", "False", "Applying", "The settings have not been applied yet"},
		"all read back":                            {settings(v1alpha1.SettingInSync, v1alpha1.SettingInSync), true, false, "True", "False", "Tuned", "2 settings verified"},
		"one failed, which counts most":            {settings(v1alpha1.SettingFailed, v1alpha1.SettingDrifted), true, false, "False", "True", "SettingsFailed", "Settings failed: a"},
		"a reboot is due":                          {due, true, false, "False", "False", "RebootPending", "Takes effect at the next boot: a"},
		"a boot is due that is not staged":         {atBoot, true, false, "False", "False", "RebootPending", "Takes effect at the next boot: a"},
		"another program changed a value":          {settings(v1alpha1.SettingInSync, v1alpha1.SettingDrifted), true, false, "False", "False", "Drifted", "Changed by another program: b"},
		"a setting that the node does not support": {settings(v1alpha1.SettingClamped, v1alpha1.SettingUnsupported, v1alpha1.SettingShadowed), true, false, "True", "False", "TunedWithExceptions", "Not as declared on this node: a, b, c"},
		"a setting that waits for the next mount":  {atMount, true, false, "True", "False", "Tuned", "1 setting verified"},
		"an action that was not done yet":          {action, true, false, "False", "False", "Applying", "Not applied yet: a"},
		"the originals are being restored":         {settings(v1alpha1.SettingInSync), true, true, "False", "False", "Restoring", "Restoring the original values"},
		"the originals are restored":               {restored, false, true, "True", "False", "Restored", "Original values restored"},
		"an original that cannot be restored":      {settings(v1alpha1.SettingFailed), false, true, "False", "True", "SettingsFailed", "Settings failed: a"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := specOf(test.status)
			spec.Release = test.release
			got := Conditions(spec, &test.status, test.carriedOut, nil, time.Unix(1000, 5))
			want := conditions(test.ready, test.stalled, test.reason, test.message, time.Unix(1000, 0))
			for i := range want {
				want[i].ObservedGeneration = 7
			}
			check.Equal(t, "result", want, got)
		})
	}
}

// An unchanged condition causes no write. Otherwise, an idle node would write forever.
func TestAnUnchangedConditionKeepsItsTime(t *testing.T) {
	status := v1alpha1.StorageClientNodeStatus{Settings: []v1alpha1.SettingStatus{{Key: "a", State: v1alpha1.SettingInSync}}}
	first := Conditions(specOf(status), &status, true, nil, time.Unix(1000, 0))
	later := Conditions(specOf(status), &status, true, first, time.Unix(2000, 0))
	check.Equal(t, "later", first, later)
	status.Settings[0].State = v1alpha1.SettingFailed
	failed := Conditions(specOf(status), &status, true, later, time.Unix(3000, 0))
	for _, c := range failed {
		if !c.LastTransitionTime.Time.Equal(time.Unix(3000, 0)) {
			t.Errorf("%s changed at %s, want 3000", c.Type, c.LastTransitionTime)
		}
	}
	check.Equal(t, "the conditions reported before were changed", metav1.ConditionFalse, meta.FindStatusCondition(later, "Stalled").Status)
}

// A node is not booted only to remove a setting, unless a profile requests it. Until then, the node is as declared.
func TestARemovedSettingThatWaitsForABootDoesNotCount(t *testing.T) {
	spec := &v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{{Key: "a"}}}
	status := &v1alpha1.StorageClientNodeStatus{
		Settings:       []v1alpha1.SettingStatus{{Key: "a", State: v1alpha1.SettingInSync}, {Key: "b", State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectReboot}},
		RebootRequired: true, RebootRequiredBy: []string{"b"},
	}
	ready := Conditions(spec, status, true, nil, time.Unix(1000, 0))[0]
	if ready.Status != metav1.ConditionTrue || ready.Reason != v1alpha1.NodeReasonTuned || ready.Message != "1 setting verified" {
		t.Errorf("got %s %s: %s", ready.Status, ready.Reason, ready.Message)
	}
}

func TestTheNextAgentKeepsTheTimes(t *testing.T) {
	reported := conditions("True", "False", "Tuned", "1 setting verified", time.Unix(1000, 0))
	clientNode := &v1alpha1.StorageClientNode{Status: v1alpha1.StorageClientNodeStatus{Conditions: reported}}
	check.Equal(t, "result", reported, (&Reporter{}).Former(clientNode))
}
