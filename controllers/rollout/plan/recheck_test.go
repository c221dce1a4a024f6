package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/windows"
)

// TestRecheck changes the rules between a plan and its writes.
func TestRecheck(t *testing.T) {
	closing, err := windows.ParseSet([]v1alpha1.Window{{Schedule: "0 11 * * *", DurationSeconds: 3601}})
	check.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*Rules)
		want   string
	}{
		"the rules are unchanged": {func(*Rules) {}, ""},
		"a window that is still open": {
			func(r *Rules) { r.Profiles[0].Windows = closing }, "",
		},
		"a window that has closed in the meantime": {
			func(r *Rules) { r.Profiles[0].Windows, r.Now = closing, noon.Add(time.Minute) }, v1alpha1.RolloutReasonWaitingForWindow,
		},
		"everything is paused": {func(r *Rules) { r.Paused = true }, v1alpha1.ReasonPausedByAnnotation},
		"the profile is paused": {
			func(r *Rules) { r.Profiles[0].Paused = v1alpha1.ReasonPausedByField }, v1alpha1.ReasonPausedByField,
		},
		"the profile only plans": {func(r *Rules) { r.Profiles[0].Inert = v1alpha1.ReasonPlanMode }, v1alpha1.ReasonPlanMode},
		"the profile is gone":    {func(r *Rules) { r.Profiles = nil }, v1alpha1.RolloutReasonProfileGone},
		"the approval is withdrawn": {
			func(r *Rules) { r.Profiles[0].Rollout.Reboot.Policy = v1alpha1.RebootOnApproval }, v1alpha1.RolloutReasonWaitingForApproval,
		},
		"the policy is Never": {
			func(r *Rules) { r.Profiles[0].Rollout.Reboot.Policy = v1alpha1.RebootNever }, v1alpha1.RolloutReasonRebootPolicyNever,
		},
		"other settings that require a reboot are desired": {func(r *Rules) { r.DesiredBootHashes["a"] = "h2" }, v1alpha1.RolloutReasonSettingsChanging},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a", "b")
			f.cordoned("a", time.Minute)
			// Another control-plane node is out, and the snapshot contains it.
			f.node("a").ControlPlane = true
			rules := Rules{Now: noon, Profiles: []Profile{f.Profiles[0]}, DesiredBootHashes: map[string]string{"a": "h1"}}
			c.change(&rules)
			for _, step := range []Step{AddClaim{OnNode: OnNode{"a"}}, Cordon{OnNode: OnNode{"a"}}, GivePermit{OnNode: OnNode{"a"}}} {
				if got := NewSession(f.Snapshot).Recheck(rules, step); got != c.want {
					t.Errorf("%s: got %q, want %q", step, got, c.want)
				}
			}
		})
	}
}

func TestRecheckOfNodesThatHaveTheirPermitOrAreNotManaged(t *testing.T) {
	f := cluster("a", "b")
	f.permitted("a", time.Minute)
	f.node("b").ClientNode = nil
	rules := Rules{Now: noon, Paused: true, Profiles: f.Profiles}
	check.Equal(t, "rejection of the cordon of a node that may go down", "", NewSession(f.Snapshot).Recheck(rules, Cordon{OnNode: OnNode{"a"}}))
	for _, node := range []string{"b", "gone"} {
		if reason := NewSession(f.Snapshot).Recheck(rules, AddClaim{OnNode: OnNode{node}}); reason == "" {
			t.Errorf("claim of %s: got no rejection, want one", node)
		}
	}
}

// A profile requests the reboot for a removed setting only since the plan, and it is paused.
func TestRecheckFindsTheProfilesThatNowNeedTheReboot(t *testing.T) {
	f := cluster("a")
	f.profile("web").Paused = v1alpha1.ReasonPausedByField
	n := f.node("a")
	n.Profiles = []string{"eda", "web"}
	n.ClientNode.Status.RebootRequiredBy = append(n.ClientNode.Status.RebootRequiredBy, "kernelArgument/nosmt")
	for _, restores := range []bool{false, true} {
		rules := Rules{Now: noon, Profiles: slices.Clone(f.Profiles), DesiredBootHashes: map[string]string{"a": "h1"}}
		rules.Profiles[1].Rollout.Reboot.RestoreReboot = restores
		want := map[bool]string{true: v1alpha1.ReasonPausedByField}[restores]
		if got := NewSession(f.Snapshot).Recheck(rules, AddClaim{OnNode: OnNode{"a"}}); got != want {
			t.Errorf("restoreReboot %t: got %q, want %q", restores, got, want)
		}
	}
}
