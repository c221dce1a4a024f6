package plan

import (
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestForTheLifeOfADisruption(t *testing.T) {
	module := "module/nfs/recover_lost_locks"
	blocked := &DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "Pod x/y is kept by PodDisruptionBudget x/z"}
	excluded := func(f *fixture, since time.Duration) {
		f.cordoned("a", since)
		f.Profiles[0].Rollout.Drain.ExcludeFromLoadBalancersSeconds = 60
	}
	playRows(t, map[string]row{
		"the drain waits for the load balancers": {
			func(f *fixture) { excluded(f, 59*time.Second) }, []string{"a: Draining LeavingLoadBalancers"},
		},
		"the drain starts after that time": {
			func(f *fixture) { excluded(f, time.Minute) }, []string{"drain a", "a: Draining Draining"},
		},
		"the time for load balancers does not count for the drain": {
			func(f *fixture) {
				excluded(f, 15*time.Minute+59*time.Second)
				f.node("a").Drain = blocked
			},
			[]string{"a: Draining DrainBlocked"},
		},
		"the uncordon removes the guards": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.node("a").Guarded, f.Paused = true, true
			},
			[]string{
				"note a: Releasing PausedByAnnotation", "conditions of a: none", "uncordon a: PausedByAnnotation",
				"release the claim of a", "a: Waiting PausedByAnnotation",
			},
		},
		"guards are removed if a user removed the annotation of a claimed node": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.node("a").Guarded, f.node("a").Mark = true, nil
			},
			[]string{
				"note a: Releasing CordonedByOthers", "conditions of a: none", "remove the protection annotations of a", "release the claim of a",
				"a: Waiting CordonedByOthers",
			},
		},
		"guards are removed if they are the last trace of the operator": {
			func(f *fixture) {
				f.finish("a", time.Hour)
				f.node("a").Guarded = true
			},
			[]string{"remove the protection annotations of a", "a: UpToDate NothingToDo"},
		},
		"no node is rebooted for settings that no plan hash covers": {
			func(f *fixture) {
				client := f.node("a").ClientNode
				client.Spec.Settings[0].Key, client.Status.Settings[0].Key = module, module
				client.Status.RebootRequiredBy = []string{module}
			},
			[]string{"a: UpToDate EffectiveAtNextBoot"},
		},
		"a node that went down after its host rejected the reboot settles as after any boot": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.rebooted("a")
				f.addNote("a", v1alpha1.RolloutDraining, v1alpha1.RolloutReasonPermitRefused, 2*time.Minute).Attempts = 1
			},
			[]string{"a: Settling Settling"},
		},
		"a node that went down after its host rejected the reboot must become healthy": {
			func(f *fixture) {
				f.cordoned("a", time.Minute)
				f.rebooted("a")
				f.node("a").Ready = false
				f.addNote("a", v1alpha1.RolloutDraining, v1alpha1.RolloutReasonPermitRefused, 2*time.Minute).Attempts = 1
			},
			[]string{"a: Draining WaitingForNode"},
		},
		"a failed node is not accepted after settings without effect were withheld": {
			func(f *fixture) {
				f.cordoned("a", time.Hour)
				f.node("a").Maintenance = MaintenanceDrained
				f.rebooted("a")
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootWithoutEffect, time.Minute)
				client := f.node("a").ClientNode
				client.Withheld = []string{client.Spec.Settings[0].Key}
				client.Spec.Settings, client.Status.Settings = nil, nil
			},
			[]string{"a: Failed RebootWithoutEffect"},
		},
		"a failed node is not accepted after a change of settings that has not reached it": {
			func(f *fixture) {
				f.cordoned("a", time.Hour)
				f.node("a").Maintenance = MaintenanceDrained
				f.rebooted("a")
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootWithoutEffect, time.Minute)
				client := f.node("a").ClientNode
				client.DesiredBootHash = "h2"
				client.Spec.Settings, client.Status.Settings = nil, nil
			},
			[]string{"a: Failed RebootWithoutEffect"},
		},
		"a failed node in service is not accepted after such a change": {
			func(f *fixture) {
				f.rebooted("a")
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootWithoutEffect, time.Minute)
				client := f.node("a").ClientNode
				client.DesiredBootHash = "h2"
				client.Spec.Settings, client.Status.Settings = nil, nil
			},
			[]string{"a: Failed RebootWithoutEffect"},
		},
		"a failed node with a permit is not accepted after settings without effect were withheld": {
			func(f *fixture) {
				f.permitted("a", time.Hour)
				f.rebooted("a")
				f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootWithoutEffect, time.Minute)
				client := f.node("a").ClientNode
				client.Withheld = []string{client.Spec.Settings[0].Key}
				client.Spec.Settings, client.Status.Settings = nil, nil
			},
			[]string{"clear the permit of a: RebootWithoutEffect", "a: Failed RebootWithoutEffect"},
		},
	}, oneNode, "a")
}

func TestForTheCordonExcludesTheNodeFromLoadBalancers(t *testing.T) {
	for _, seconds := range []int32{0, 30} {
		f := cluster("a")
		f.Claims["a"] = v1alpha1.Disruption{Profile: "eda", BootHash: "h1", Since: ago(time.Second)}
		f.Profiles[0].Rollout.Drain.ExcludeFromLoadBalancersSeconds = seconds
		steps := For(f.Snapshot).Steps
		cordon, ok := steps[1].(Cordon)
		if !ok || cordon.ExcludeFromLoadBalancers != (seconds > 0) {
			t.Errorf("%d seconds: got second step %+v, want a cordon that matches the delay", seconds, cordon)
		}
		var drains []Step
		for _, step := range steps[2:] {
			if drain, ok := step.(Drain); ok && drain.AfterCordon {
				drains = append(drains, step)
			}
		}
		if len(drains) > 0 != (seconds == 0) {
			t.Errorf("%d seconds: got drains %v after the cordon, want one only without a delay", seconds, drains)
		}
	}
}

func TestForInspectsTheSamePodsOnceAnInterval(t *testing.T) {
	for name, c := range map[string]struct {
		reason          string
		inspectedBefore time.Duration
		want            []string
		next            time.Duration
	}{
		"terminating pods are not inspected again at once":         {v1alpha1.RolloutReasonDraining, 400 * time.Millisecond, []string{"a: Draining Draining"}, 100 * time.Millisecond},
		"terminating pods are inspected again after half a second": {v1alpha1.RolloutReasonDraining, 500 * time.Millisecond, []string{"drain a", "a: Draining Draining"}, 100 * time.Millisecond},
		"blocked pods are not inspected again within a second":     {v1alpha1.RolloutReasonDrainBlocked, 900 * time.Millisecond, []string{"a: Draining DrainBlocked"}, 100 * time.Millisecond},
		"blocked pods are inspected again after a second":          {v1alpha1.RolloutReasonDrainBlocked, time.Second, []string{"drain a", "a: Draining Draining"}, 100 * time.Millisecond},
		"an empty node is inspected while its agent must respond":  {v1alpha1.RolloutReasonMountsBusy, 0, []string{"drain a", "a: Draining Draining"}, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.Now = f.Now.Add(900 * time.Millisecond)
			f.cordoned("a", time.Minute)
			since, client := ago(time.Minute), f.node("a").ClientNode
			client.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutDraining, Reason: c.reason, BootHash: client.Spec.BootHash, Since: &since}
			f.node("a").Inspected = f.Now.Add(-c.inspectedBefore)
			got := For(f.Snapshot)
			check.Equal(t, "plan", c.want, lines(got, "a"))
			if next := got.Next.Sub(f.Now); next != c.next {
				t.Errorf("next plan: got in %s, want in %s", next, c.next)
			}
		})
	}
}
