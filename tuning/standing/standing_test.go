package standing

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/nodesettings"
)

const (
	rmem  = "sysctl/net.core.rmem_max"
	ratio = "sysctl/vm.dirty_ratio"
	ihash = "kernelArgument/ihash_entries"
)

// always contains the standings of one state for each effect, in the order Live, NextMount, NewTransport, Reboot, Action, none.
type always [6]Standing

var effects = []v1alpha1.SettingEffect{
	v1alpha1.EffectLive, v1alpha1.EffectNextMount, v1alpha1.EffectNewTransport, v1alpha1.EffectReboot, v1alpha1.EffectAction, "",
}

func TestOf(t *testing.T) {
	for name, test := range map[string]struct {
		state               v1alpha1.SettingState
		usual, due, removed always
	}{
		"in sync": {
			v1alpha1.SettingInSync, all(Effective), all(PendingReboot), all(Restoring),
		},
		"pending": {
			v1alpha1.SettingPending, always{Unproven, Deferred, Deferred, PendingReboot, Applying, Applying},
			always{Unproven, PendingReboot, PendingReboot, PendingReboot, Applying, Applying},
			always{Restoring, Restoring, Restoring, RestoreAtBoot, Restoring, Restoring},
		},
		"drifted": {
			v1alpha1.SettingDrifted, always{Drifted, Drifted, Drifted, Unstaged, Drifted, Drifted},
			always{Drifted, Drifted, Drifted, Unstaged, Drifted, Drifted}, all(Restoring),
		},
		"shadowed": {
			v1alpha1.SettingShadowed, always{Overridden, Overridden, Overridden, OverriddenAtBoot, Overridden, Overridden},
			always{PendingReboot, PendingReboot, PendingReboot, OverriddenAtBoot, PendingReboot, PendingReboot}, all(Restoring),
		},
		"clamped":                  {v1alpha1.SettingClamped, all(Unavailable), all(PendingReboot), all(Restoring)},
		"unsupported":              {v1alpha1.SettingUnsupported, all(Unavailable), all(PendingReboot), all(Restoring)},
		"failed":                   {v1alpha1.SettingFailed, all(Failed), all(Failed), all(RestoreFailed)},
		"a state of a later agent": {"Sleeping", all(Applying), all(Applying), all(Restoring)},
	} {
		t.Run(name, func(t *testing.T) {
			var usual, due, removed always
			for i, effect := range effects {
				status := v1alpha1.SettingStatus{Key: ratio, State: test.state, TakesEffect: effect}
				usual[i], due[i], removed[i] = Of(status, false), Of(status, true), ofRemoved(status)
			}
			for _, one := range []struct {
				name      string
				want, got always
			}{{"not due", test.usual, usual}, {"due", test.due, due}, {"removed", test.removed, removed}} {
				if diff := cmp.Diff(one.want, one.got); diff != "" {
					t.Errorf("%s, by effect (-want +got):\n%s", one.name, diff)
				}
			}
		})
	}
}

func all(s Standing) always { return always{s, s, s, s, s, s} }

// The field decides, regardless of the key and the message.
func TestTheStandingOfAPendingLiveSettingDependsOnWaitsFor(t *testing.T) {
	for waitsFor, want := range map[v1alpha1.SettingWait][2]Standing{
		v1alpha1.WaitsForProof: {Proving, Proving}, v1alpha1.WaitsForConnections: {Unproven, Unproven}, v1alpha1.WaitsForModule: {Deferred, PendingReboot},
		"": {Unproven, Unproven}, "Sleep": {Unproven, Unproven},
	} {
		for _, key := range []string{rmem, ratio} {
			status := v1alpha1.SettingStatus{
				Key: key, State: v1alpha1.SettingPending, TakesEffect: v1alpha1.EffectLive, WaitsFor: waitsFor, Message: "set, proving over new connections until 12:00:00 UTC",
			}
			if got := [2]Standing{Of(status, false), Of(status, true)}; got != want {
				t.Errorf("%s, waits for %s: got %v, want %v", key, waitsFor, got, want)
			}
		}
	}
}

// Every standing has its row in table 2.
func TestEachStandingHasItsRule(t *testing.T) {
	var names []string
	for s := Effective; int(s) < len(rules); s++ {
		names = append(names, s.String())
		if rules[s].reason == "" {
			t.Errorf("%s: got no reason", s)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != 15 || int(Failed) != 14 {
		t.Errorf("got %d names, the worst is %d: %v", len(names), Failed, names)
	}
}

func node(settings ...v1alpha1.SettingStatus) *v1alpha1.StorageClientNode {
	n := &v1alpha1.StorageClientNode{}
	n.Spec.Hash, n.Status.Hash, n.Status.ObservedGeneration = "h", "h", 1
	n.Spec.Settings = []v1alpha1.NodeSetting{{Key: ihash, Profile: "boot"}, {Key: rmem, Profile: "live"}, {Key: ratio, Profile: "live"}}
	n.Status.Settings = settings
	return n
}

func statusOf(key string, state v1alpha1.SettingState, effect v1alpha1.SettingEffect, message ...string) v1alpha1.SettingStatus {
	return v1alpha1.SettingStatus{Key: key, State: state, TakesEffect: effect, Message: slices.Concat(message, []string{""})[0]}
}

func TestRead(t *testing.T) {
	live, boot := v1alpha1.EffectLive, v1alpha1.EffectReboot
	good := func(key string) v1alpha1.SettingStatus { return statusOf(key, v1alpha1.SettingInSync, live) }
	for name, test := range map[string]struct {
		change  func(*v1alpha1.StorageClientNode)
		status  []v1alpha1.SettingStatus
		profile string
		want    Report
	}{
		"all is effective": {status: []v1alpha1.SettingStatus{good(ihash), good(rmem), good(ratio)}},
		"settings by their keys, wherever they stand in the report": {
			status: []v1alpha1.SettingStatus{statusOf(ratio, v1alpha1.SettingDrifted, live, "9"), statusOf(ihash, v1alpha1.SettingPending, boot), good(rmem)},
			want:   Report{Settings: []Setting{{Key: ihash, Standing: PendingReboot, boots: true}, {Key: ratio, Message: "9", Standing: Drifted}}},
		},
		"of one profile": {
			status:  []v1alpha1.SettingStatus{statusOf(ratio, v1alpha1.SettingDrifted, live), statusOf(ihash, v1alpha1.SettingPending, boot), good(rmem), statusOf("x/y", v1alpha1.SettingFailed, live)},
			profile: "boot",
			want:    Report{Settings: []Setting{{Key: ihash, Standing: PendingReboot, boots: true}}},
		},
		"what is removed": {
			status: []v1alpha1.SettingStatus{good(ihash), good(rmem), good(ratio), statusOf("a/x", v1alpha1.SettingFailed, boot, "no"), statusOf("a/y", v1alpha1.SettingPending, boot)},
			want:   Report{Settings: []Setting{{Key: "a/x", Message: "no", Standing: RestoreFailed, boots: true}, {Key: "a/y", Standing: RestoreAtBoot, boots: true}}},
		},
		"what the agent does not report": {
			status: []v1alpha1.SettingStatus{good(ihash), good(ratio)},
			want:   Report{Settings: []Setting{{Key: rmem, Standing: Applying}}},
		},
		"what requires a reboot": {
			status: []v1alpha1.SettingStatus{good(ihash), good(rmem), good(ratio)},
			change: func(n *v1alpha1.StorageClientNode) {
				n.Status.RebootRequiredBy = []string{ihash, "kernelArgument/gone"}
			},
			want: Report{Settings: []Setting{{Key: ihash, Standing: PendingReboot}}},
		},
		"another hash": {
			status: []v1alpha1.SettingStatus{good(ihash), good(rmem), good(ratio)},
			change: func(n *v1alpha1.StorageClientNode) { n.Status.Hash = "g" },
			want:   Report{Applying: true},
		},
		"no generation": {
			status: []v1alpha1.SettingStatus{good(ihash), good(rmem), good(ratio)},
			change: func(n *v1alpha1.StorageClientNode) { n.Status.ObservedGeneration = 0 },
			want:   Report{Applying: true},
		},
		"a reboot without effect, and what it did not bring is left out": {
			status: []v1alpha1.SettingStatus{good(ihash), good(rmem), good(ratio)},
			change: func(n *v1alpha1.StorageClientNode) {
				n.Spec.BootHash = "both"
				n.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutFailed, Reason: v1alpha1.RolloutReasonRebootWithoutEffect, BootHash: "both"}
			},
			want: Report{Withheld: true},
		},
		"a reboot without effect, and nothing is left out": {
			status: []v1alpha1.SettingStatus{good(ihash), good(rmem), good(ratio)},
			change: func(n *v1alpha1.StorageClientNode) {
				_, n.Spec.BootHash = nodesettings.Hashes(n.Spec.Settings)
				n.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutFailed, Reason: v1alpha1.RolloutReasonRebootWithoutEffect, BootHash: n.Spec.BootHash}
			},
		},
		"a reboot without effect that was for other settings": {
			status: []v1alpha1.SettingStatus{good(ihash), good(rmem), good(ratio)},
			change: func(n *v1alpha1.StorageClientNode) {
				n.Spec.BootHash = "both"
				n.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutFailed, Reason: v1alpha1.RolloutReasonRebootWithoutEffect, BootHash: "former"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := node(test.status...)
			if test.change != nil {
				test.change(n)
			}
			got := Read(&n.Spec, &n.Status, test.profile)
			check.Equal(t, "result", test.want, got, cmpopts.EquateEmpty(), cmp.AllowUnexported(Setting{}))
		})
	}
}

func TestTheWorstStandingDecides(t *testing.T) {
	for name, test := range map[string]struct {
		standings []Standing
		want      string
	}{
		"nothing":                                 {nil, v1alpha1.NodeReasonTuned},
		"what waits for a mount":                  {[]Standing{Deferred}, v1alpha1.NodeReasonTuned},
		"an exception, and what waits":            {[]Standing{Deferred, Overridden}, v1alpha1.NodeReasonTunedWithExceptions},
		"drift, and an exception":                 {[]Standing{Drifted, OverriddenAtBoot}, v1alpha1.NodeReasonDrifted},
		"what waits for a boot, and what drifted": {[]Standing{Unstaged, PendingReboot}, v1alpha1.NodeReasonRebootPending},
		"what is not proven, and a boot":          {[]Standing{PendingReboot, Proving}, v1alpha1.NodeReasonApplying},
		"a removal that failed, and drift":        {[]Standing{RestoreFailed, Drifted}, v1alpha1.NodeReasonSettingsFailed},
		"what is not applied, and a boot":         {[]Standing{PendingReboot, Applying}, v1alpha1.NodeReasonApplying},
		"a failure, and what is not proven":       {[]Standing{Unproven, Failed}, v1alpha1.NodeReasonSettingsFailed},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				var r Report
				for _, s := range test.standings {
					r.Settings = append(r.Settings, Setting{Standing: s})
				}
				check.Equal(t, "result", test.want, r.Reason())
				slices.Reverse(test.standings)
			}
		})
	}
	check.Equal(t, "reason with withheld settings", v1alpha1.NodeReasonSettingsFailed, (Report{Withheld: true}).Reason())
}

func TestDescribe(t *testing.T) {
	settings := []Setting{{Key: "b", Message: "in the way"}, {Key: "a"}, {Key: "c", Message: "x, y"}, {Key: "d", Message: "z"}}
	if got, want := Describe(settings), "a; b: in the way; c: x, y and 1 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDrift(t *testing.T) {
	state := func(state v1alpha1.SettingState, count int32) v1alpha1.SettingStatus {
		s := v1alpha1.SettingStatus{State: state}
		if count > 0 {
			s.Drift = &v1alpha1.Drift{Count: count}
		}
		return s
	}
	inSync := v1alpha1.SettingInSync
	for name, test := range map[string]struct {
		before, after v1alpha1.SettingStatus
		unknown       bool
		healed        int32
		started       bool
	}{
		"nothing happened":             {before: state(inSync, 2), after: state(inSync, 2)},
		"healed for the first time":    {before: state(inSync, 0), after: state(inSync, 1), healed: 1},
		"healed several times":         {before: state(inSync, 1), after: state(inSync, 4), healed: 3},
		"a record that starts again":   {before: state(inSync, 4), after: state(inSync, 1), healed: 1},
		"a record that is removed":     {before: state(inSync, 4), after: state(inSync, 0)},
		"drifted":                      {before: state(inSync, 0), after: state(v1alpha1.SettingDrifted, 0), started: true},
		"another file":                 {before: state(v1alpha1.SettingPending, 0), after: state(v1alpha1.SettingShadowed, 0), started: true},
		"still drifted":                {before: state(v1alpha1.SettingShadowed, 0), after: state(v1alpha1.SettingDrifted, 0)},
		"a setting that was not there": {unknown: true, after: state(v1alpha1.SettingDrifted, 2), healed: 2},
		"failed":                       {before: state(inSync, 0), after: state(v1alpha1.SettingFailed, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			before := &test.before
			if test.unknown {
				before = nil
			}
			if healed, started := Drift(before, test.after); healed != test.healed || started != test.started {
				t.Errorf("got healed %d, started %t; want %d, %t", healed, started, test.healed, test.started)
			}
		})
	}
}
