package plan

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

func TestForDecisionsThatSchedulesDoNotMeet(t *testing.T) {
	playRows(t, map[string]row{
		"an empty node whose agent's Pod is not Ready gets no permit": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.node("a").Drain = &DrainProgress{Gone: true}
				f.node("a").AgentReady = false
			},
			[]string{"a: Draining AgentSilent"},
		},
		"a failed node that is not Ready stays cordoned": {
			func(f *fixture) {
				f.cordoned("a", time.Hour)
				f.node("a").Ready, f.node("a").Maintenance = false, MaintenanceDrained
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, time.Minute)
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"a node that waits only for the removal of settings that are no longer desired is tuned": {
			func(f *fixture) {
				f.finish("a", time.Hour)
				f.node("a").Untuned = true
				status := &f.node("a").ClientNode.Status
				status.RebootRequired, status.RebootRequiredBy = true, []string{"kernelArgument/dhash_entries"}
			},
			[]string{"remove the untuned taint of a", "a: UpToDate RestoredAtNextBoot"},
		},
		"a node that waits for desired settings that no boot hash covers is not": {
			func(f *fixture) {
				f.finish("a", time.Hour)
				f.node("a").Untuned = true
				client := f.node("a").ClientNode
				client.Spec.Settings = append(client.Spec.Settings, v1alpha1.NodeSetting{Key: "module/nfs/x", Profile: "eda"})
				client.Status.Settings = append(client.Status.Settings, v1alpha1.SettingStatus{Key: "module/nfs/x", State: v1alpha1.SettingInSync})
				client.Status.RebootRequired, client.Status.RebootRequiredBy = true, []string{"module/nfs/x"}
			},
			[]string{"a: UpToDate EffectiveAtNextBoot"},
		},
		"an ignored Node is skipped": {
			func(f *fixture) { f.node("a").Ignored = true }, []string{"a: Waiting NodeIgnored"},
		},
	}, oneNode, "a")
}

// The canary is node a, which soaks for ten minutes. Node b is next.
func TestForAnUnhealthyCanaryIsNoEvidence(t *testing.T) {
	const soak = 600
	minute := func(n int) *time.Time { return ptr.To(noon.Add(-time.Duration(n) * time.Minute)) }
	waits, claimed := "b: Waiting WaitingForCanary", "b: Claimed Claimed"
	for name, c := range map[string]struct {
		change func(*fixture)
		want   string
	}{
		"it has been well for long enough": {func(f *fixture) { f.finish("a", 10*time.Minute) }, claimed},
		"it soaks":                         {func(f *fixture) { f.finish("a", 9*time.Minute) }, waits},
		"it has failed and reports no due setting, without a soak": {func(f *fixture) {
			failWithoutNeed(f)
			f.Profiles[0].Rollout.Canary.SoakSeconds = ptr.To[int32](0)
		}, "b: Waiting CanaryFailed"},
		"it went out while it soaked, and the time is over": {func(f *fixture) {
			f.finish("a", 30*time.Minute)
			f.node("a").Ready, f.node("a").OutSince = false, *minute(25)
		}, waits},
		"it is out of service, since an unknown time": {func(f *fixture) {
			f.finish("a", 30*time.Minute)
			f.node("a").Ready = false
		}, waits},
		"it went out after its soak": {func(f *fixture) {
			f.finish("a", 30*time.Minute)
			f.node("a").Ready, f.node("a").OutSince = false, *minute(19)
		}, claimed},
		"it came back a moment ago": {func(f *fixture) {
			f.finish("a", 14*time.Minute)
			f.node("a").ReadySince = *minute(5)
		}, waits},
		"it has been back for a soak": {func(f *fixture) {
			f.finish("a", 19*time.Minute)
			f.node("a").ReadySince = *minute(10)
		}, claimed},
		"it flapped after its soak": {func(f *fixture) {
			f.finish("a", 30*time.Minute)
			f.node("a").ReadySince, f.node("a").OutSince = *minute(1), *minute(2)
		}, claimed},
		"it came back after its soak, and was out during the soak": {func(f *fixture) {
			f.finish("a", 30*time.Minute)
			f.node("a").ReadySince, f.node("a").OutSince = *minute(1), *minute(25)
		}, waits},
		"it came back after its soak, and was out since an unknown time": {func(f *fixture) {
			f.finish("a", 30*time.Minute)
			f.node("a").ReadySince = *minute(1)
		}, waits},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a", "b")
			f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](soak)}
			f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](2)
			c.change(f)
			if got := lines(For(f.Snapshot), "b"); got[len(got)-1] != c.want {
				t.Errorf("got %q, want %q last", got, c.want)
			}
		})
	}
}

// failWithoutNeed makes node a fail because of a setting that has since been removed from its desired settings.
func failWithoutNeed(f *fixture) {
	f.finish("a", time.Hour)
	f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootWithoutEffect, time.Hour)
	f.node("a").ClientNode.Withheld = []string{f.node("a").ClientNode.Spec.Settings[0].Key}
}
