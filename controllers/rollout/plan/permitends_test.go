package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// overdue makes a pass find the permit of a node overdue a given time ago.
func (f *fixture) overdue(name string, since time.Duration) {
	claim := f.Claims[name]
	at := ago(since)
	claim.Permit.Overdue = &at
	f.Claims[name] = claim
}

// silent makes the agent of a node silent since the node got its permit.
func (f *fixture) silent(name string) {
	f.node(name).AgentReady = false
	f.node(name).ClientNode.Status.ObservedGeneration = 3
}

// endSteps returns the steps that withdraw the permit of node a and return it to service.
func endSteps(reason, note string) []string {
	return []string{
		"clear the permit of a: " + reason, "note a: " + note, "conditions of a: none", "uncordon a: " + reason, "release the claim of a",
	}
}

// A person has stopped the rollout of a node that has a permit. The response of the agent does not matter before the reboot starts.
func TestForAPermitThatAPersonStops(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		reason string
	}{
		"everything is paused":       {func(f *fixture) { f.Paused = true }, v1alpha1.ReasonPausedByAnnotation},
		"the Node is paused":         {func(f *fixture) { f.node("a").Paused = true }, v1alpha1.RolloutReasonNodePaused},
		"the Node is ignored":        {func(f *fixture) { f.node("a").Ignored = true }, v1alpha1.RolloutReasonNodeIgnored},
		"never-disrupt":              {func(f *fixture) { f.node("a").NeverDisrupt = true }, v1alpha1.RolloutReasonNeverDisrupt},
		"the profile is paused":      {func(f *fixture) { f.Profiles[0].Paused = v1alpha1.ReasonPausedByField }, v1alpha1.ReasonPausedByField},
		"mode Plan":                  {func(f *fixture) { f.Profiles[0].Inert = v1alpha1.ReasonPlanMode }, v1alpha1.ReasonPlanMode},
		"the profile is gone":        {func(f *fixture) { f.Profiles = nil }, v1alpha1.RolloutReasonProfileGone},
		"policy Never":               {func(f *fixture) { f.Profiles[0].Rollout.Reboot.Policy = v1alpha1.RebootNever }, v1alpha1.RolloutReasonRebootPolicyNever},
		"the approval is gone":       {func(f *fixture) { f.Profiles[0].Rollout.Reboot.Policy = v1alpha1.RebootOnApproval }, v1alpha1.RolloutReasonWaitingForApproval},
		"a user has uncordoned it":   {func(f *fixture) { f.node("a").Unschedulable = false }, v1alpha1.RolloutReasonCordonLost},
		"uncordoned, and not marked": {func(f *fixture) { f.node("a").Unschedulable, f.node("a").Mark = false, nil }, v1alpha1.RolloutReasonCordonLost},
	} {
		for _, answer := range []v1alpha1.RebootPhase{"", v1alpha1.RebootWaiting, v1alpha1.RebootRefused, v1alpha1.RebootStarted} {
			t.Run(name+" "+string(answer), func(t *testing.T) {
				f := cluster("a")
				f.permitted("a", time.Minute)
				f.silent("a")
				if answer != "" {
					f.addResponse("a", answer)
				}
				c.change(f)
				got := For(f.Snapshot)
				steps := strings.Join(lines(got), ", ")
				if answer == v1alpha1.RebootStarted {
					if strings.Contains(steps, "clear") || strings.Contains(steps, "uncordon") || strings.Contains(steps, "release") {
						t.Errorf("after the start of the reboot: got steps %s, want the permit, the cordon and the claim to stay", steps)
					}
					return
				}
				// The permit goes first, the claim last.
				clears, releases := strings.Index(steps, "clear the permit of a: "+c.reason), strings.Index(steps, "release the claim of a")
				uncordons := strings.Index(steps, "uncordon a: "+c.reason)
				if clears != 0 || releases < clears || uncordons > releases || uncordons < 0 && f.node("a").Mark != nil {
					t.Errorf("got steps %s, want the permit withdrawn, the node uncordoned and the claim released", steps)
				}
				check.Equal(t, "attempts", 0, got.Notes["a"].Attempts)
			})
		}
	}
}

// A live setting changes while the agent is silent, so it is unknown which profile needs the reboot. Each profile with a setting that may wait for the
// boot counts, and no other.
func TestForAPermitWhoseProfilesAreUnknown(t *testing.T) {
	const bootKey = "kernelArgument/dhash_entries"
	reported := func(state v1alpha1.SettingState) []v1alpha1.SettingStatus {
		return []v1alpha1.SettingStatus{{Key: bootKey, State: state, TakesEffect: v1alpha1.EffectReboot}}
	}
	for name, test := range map[string]struct {
		key      string
		reported []v1alpha1.SettingStatus
		release  bool
		ends     bool
	}{
		"a setting for the boot":                             {key: bootKey, ends: true},
		"a setting that waits for the boot":                  {key: bootKey, reported: reported(v1alpha1.SettingPending), ends: true},
		"a setting for the boot that is effective":           {key: bootKey, reported: reported(v1alpha1.SettingInSync)},
		"a setting that was effective, and is being removed": {key: bootKey, reported: reported(v1alpha1.SettingInSync), release: true, ends: true},
		"a live setting":                                     {key: "sysctl/vm.dirty_ratio"},
	} {
		f := cluster("a")
		f.profile("lab").Paused = v1alpha1.ReasonPausedByField
		f.permitted("a", time.Minute)
		f.silent("a")
		c := f.node("a").ClientNode
		c.Spec.Settings, c.Spec.Hash = append(c.Spec.Settings, v1alpha1.NodeSetting{Key: test.key, Profile: "lab"}), "h1, live"
		c.Status.Settings = append(c.Status.Settings, test.reported...)
		if test.release {
			c.Spec.Release = true
			c.Status.Rollout.BootHash = releaseTarget + c.Spec.BootHash
		}
		f.node("a").Profiles = append(f.node("a").Profiles, "lab")
		if got := lines(For(f.Snapshot)); (len(got) > 0 && got[0] == "clear the permit of a: PausedByField") != test.ends {
			t.Errorf("%s of a paused profile: got steps %v, want the permit withdrawn: %t", name, got, test.ends)
		}
	}
}

// The agent does not use its permit. A second pass, at least a minute after the first, withdraws it.
func TestForAnOverduePermit(t *testing.T) {
	timedOut := append(endSteps("RebootTimedOut", "Failed RebootTimedOut"), "a: Failed RebootTimedOut")
	waits, first := []string{"a: Rebooting PermitGiven"}, []string{"claim of a: permit", "a: Rebooting PermitGiven"}
	build := func() *fixture {
		f := cluster("a")
		f.permitted("a", 16*time.Minute)
		f.silent("a")
		f.overdue("a", time.Minute)
		return f
	}
	jumped := func(f *fixture, claim time.Duration) {
		f.permitted("a", claim)
		n := f.node("a")
		n.ClientNode.Status.Rollout.Since = &metav1.Time{Time: noon.Add(7 * 24 * time.Hour)}
		n.ClientNode.Spec.RebootPermit.ID = permitID(&nodeState{Node: n}, *n.ClientNode.Status.Rollout)
		f.silent("a")
	}
	playRows(t, map[string]row{
		"in its time":                              {func(f *fixture) { f.permitted("a", 15*time.Minute-time.Second); f.silent("a") }, waits},
		"in the first pass":                        {func(f *fixture) { f.Claims["a"].Permit.Overdue = nil }, first},
		"in a pass soon after that":                {func(f *fixture) { f.overdue("a", time.Minute-time.Second) }, waits},
		"in a pass a minute after that":            {func(*fixture) {}, timedOut},
		"its agent has seen it":                    {func(f *fixture) { f.node("a").ClientNode.Status.ObservedGeneration = 4 }, timedOut},
		"the window has closed":                    {func(f *fixture) { f.Profiles[0].addWindow("0 2 * * *", 3600) }, timedOut},
		"the first pass had a wrong clock":         {func(f *fixture) { f.overdue("a", -time.Hour) }, first},
		"it is in its time after all":              {func(f *fixture) { f.permitted("a", time.Minute); f.silent("a"); f.overdue("a", time.Hour) }, first},
		"its claim is missing":                     {func(f *fixture) { delete(f.Claims, "a") }, []string{"claim a again for eda", "a: Rebooting PermitGiven"}},
		"a clock jumped when it was given":         {func(f *fixture) { jumped(f, 16*time.Minute) }, first},
		"a clock jumped, and the claim is newer":   {func(f *fixture) { jumped(f, 14*time.Minute) }, waits},
		"a clock was wrong since before the claim": {func(f *fixture) { jumped(f, -24*time.Hour) }, first},
		"it is not Ready: it stays claimed and cordoned": {
			func(f *fixture) { f.node("a").Ready = false },
			[]string{"clear the permit of a: RebootTimedOut", "note a: Failed RebootTimedOut", "claim of a: permit", "a: Failed RebootTimedOut"},
		},
		"its Node is being deleted": {
			func(f *fixture) { f.node("a").Deleting = true },
			[]string{"clear the permit of a: RebootTimedOut", "claim of a: no permit", "a: Releasing NodeDeleting"},
		},
		"others are about to remove it": {
			func(f *fixture) { f.node("a").Leaving = disrupted },
			[]string{"clear the permit of a: RebootTimedOut", "claim of a: no permit", "a: Releasing NodeLeaving"},
		},
		"a person stops it while others are about to remove it": {
			func(f *fixture) { f.Claims["a"].Permit.Overdue = nil; f.node("a").Leaving, f.Paused = disrupted, true },
			[]string{"clear the permit of a: PausedByAnnotation", "claim of a: no permit", "a: Releasing NodeLeaving"},
		},
		"a user uncordons it while others are about to remove it": {
			func(f *fixture) {
				f.Claims["a"].Permit.Overdue = nil
				f.node("a").Leaving, f.node("a").Unschedulable = disrupted, false
			},
			[]string{"clear the permit of a: CordonLost", "claim of a: no permit", "a: Releasing NodeLeaving"},
		},
		"its reboot has started late": {func(f *fixture) { f.addResponse("a", v1alpha1.RebootStarted) }, waits},
		"its reboot has started late, long ago": {
			func(f *fixture) { f.addResponse("a", v1alpha1.RebootStarted); f.overdue("a", 15*time.Minute) }, []string{"a: Failed RebootTimedOut"},
		},
		"its reboot has started in its time": {
			func(f *fixture) { f.addResponse("a", v1alpha1.RebootStarted); f.Claims["a"].Permit.Overdue = nil }, []string{"a: Failed RebootTimedOut"},
		},
		"it has rebooted late": {
			func(f *fixture) { f.rebooted("a"); f.node("a").Ready = false }, []string{"a: Rebooting WaitingForNode"},
		},
	}, build, "a")
}

// The manager stops between the withdrawal of a permit and its note, or before the permit. The next manager ends the attempt in the same way.
func TestForAnAttemptThatOnlyTheNoteContains(t *testing.T) {
	timedOut := slices.Concat(endSteps("RebootTimedOut", "Failed RebootTimedOut")[1:], []string{"a: Failed RebootTimedOut"})
	build := func() *fixture {
		f := cluster("a")
		f.permitted("a", 16*time.Minute)
		f.silent("a")
		f.overdue("a", time.Minute)
		f.node("a").ClientNode.Spec.RebootPermit = nil
		return f
	}
	noted := func(change func(*v1alpha1.RolloutStatus)) func(*fixture) {
		return func(f *fixture) { change(f.node("a").ClientNode.Status.Rollout) }
	}
	playRows(t, map[string]row{
		"it was overdue":                      {func(*fixture) {}, timedOut},
		"it was overdue, and a window closes": {func(f *fixture) { f.Profiles[0].addWindow("0 2 * * *", 3600) }, timedOut},
		"a person has stopped it": {func(f *fixture) { f.Paused = true }, []string{
			"note a: Releasing PausedByAnnotation", "conditions of a: none", "uncordon a: PausedByAnnotation", "release the claim of a", "a: Waiting PausedByAnnotation",
		}},
		"a user has uncordoned it, and the cordon was restored": {
			noted(func(note *v1alpha1.RolloutStatus) { note.Reason = v1alpha1.RolloutReasonCordonLost }),
			[]string{"note a: Waiting CordonLost", "conditions of a: none", "uncordon a: CordonLost", "release the claim of a", "a: Waiting CordonLost"},
		},
		"it was never given": {func(f *fixture) { f.Claims["a"].Permit.Overdue = nil }, []string{
			"drain a", "claim of a: no permit", "conditions of a: Draining", "a: Draining Draining",
		}},
	}, build, "a")
	for name, test := range map[string]struct {
		change func(*fixture)
		want   int32
	}{
		"it was overdue":          {func(*fixture) {}, 0},
		"it was never given":      {func(f *fixture) { f.Claims["a"].Permit.Overdue = nil }, 0},
		"its host was busy":       {func(f *fixture) { f.node("a").ClientNode.Status.Rollout.Reason = v1alpha1.RolloutReasonHostBusy }, 0},
		"a person has stopped it": {func(f *fixture) { f.Paused = true }, 0},
		"the agent has used it":   {func(f *fixture) { f.node("a").ClientNode.Status.Reboot.Phase = v1alpha1.RebootStarted }, 1},
		"the node has rebooted":   {func(f *fixture) { f.rebooted("a") }, 1},
	} {
		f := build()
		f.node("a").ClientNode.Status.Reboot = &v1alpha1.RebootStatus{Phase: v1alpha1.RebootWaiting}
		test.change(f)
		if got := For(f.Snapshot).Notes["a"].Attempts; got != test.want {
			t.Errorf("%s: got %d attempts, want %d", name, got, test.want)
		}
	}
}

// A live setting changes during a drain. A paused profile that does not need the reboot must not end it.
func TestForADrainWhoseProfilesAreUnknown(t *testing.T) {
	f := cluster("a")
	f.profile("lab").Paused = v1alpha1.ReasonPausedByField
	f.cordoned("a", time.Minute)
	c := f.node("a").ClientNode
	c.Spec.Settings, c.Spec.Hash = append(c.Spec.Settings, v1alpha1.NodeSetting{Key: "kernelArgument/dhash_entries", Profile: "lab"}), "h1, live"
	f.node("a").Profiles = append(f.node("a").Profiles, "lab")
	check.Equal(t, "plan", []string{"a: Draining Applying"}, lines(For(f.Snapshot), "a"))
}

// The failure of a node can stop the rollout. The note does not promise another attempt then.
func TestTheNoteOfAnUnusedPermitNamesTheRetry(t *testing.T) {
	f := cluster("a")
	f.permitted("a", 16*time.Minute)
	f.overdue("a", time.Minute)
	want := "; next attempt after 2026-09-01T12:05:00Z, unless failureThreshold has stopped the rollout; then use: kubectl storageclient retry"
	if got := For(f.Snapshot).Notes["a"].Message; !strings.HasSuffix(got, want) {
		t.Errorf("got message %q, want %q at its end", got, want)
	}
}

// The node did not reboot, so it returns to service, and gets another attempt after a pause.
func TestForANodeWhosePermitWasNotUsed(t *testing.T) {
	build := func() *fixture {
		f := cluster("a", "b")
		f.Profiles[0].Rollout.FailureThreshold = new(int32(2))
		note := f.addNote("a", v1alpha1.RolloutFailed, v1alpha1.RolloutReasonRebootTimedOut, BackOff)
		note.DrainAttempts, note.RetryAfter = 1, &metav1.Time{Time: noon}
		f.addFailures("a")
		f.addNote("b", v1alpha1.RolloutFailed, "x", time.Hour)
		return f
	}
	cordoned := func(f *fixture) {
		note := *f.node("a").ClientNode.Status.Rollout
		f.cordoned("a", time.Hour)
		f.node("a").Maintenance, f.node("a").ClientNode.Status.Rollout = MaintenanceDrained, &note
	}
	alone := func(f *fixture) { f.Nodes = f.Nodes[:1] }
	playRows(t, map[string]row{
		"it is down": {func(f *fixture) { alone(f); cordoned(f); f.node("a").Ready = false }, []string{"a: Failed RebootTimedOut"}},
		"it is back": {
			func(f *fixture) { alone(f); cordoned(f) },
			[]string{"conditions of a: none", "uncordon a: RebootTimedOut", "release the claim of a", "a: Failed RebootTimedOut"},
		},
		"it was down for longer than its pause": {
			func(f *fixture) {
				alone(f)
				cordoned(f)
				f.node("a").Ready, f.node("a").ClientNode.Status.Rollout.RetryAfter = false, &metav1.Time{Time: noon.Add(-time.Minute)}
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"its pause lasts": {
			func(f *fixture) {
				alone(f)
				f.node("a").ClientNode.Status.Rollout.RetryAfter = &metav1.Time{Time: noon.Add(time.Second)}
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"its pause is over": {alone, []string{"claim a for eda", "a: Claimed Claimed"}},
		"the options of its drain have changed during its pause": {
			func(f *fixture) {
				alone(f)
				note := f.node("a").ClientNode.Status.Rollout
				note.DrainedFor, note.RetryAfter = "other", &metav1.Time{Time: noon.Add(time.Second)}
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"the options of its drain have changed, and its pause is over": {
			func(f *fixture) { alone(f); f.node("a").ClientNode.Status.Rollout.DrainedFor = "other" },
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"its pause is over, and its agent is silent": {
			func(f *fixture) { alone(f); f.silent("a") }, []string{"a: Failed RebootTimedOut"},
		},
		"its failure counts until the node has its settings": {func(*fixture) {}, []string{"a: Failed RebootTimedOut"}},
		"a failure of the release before has no pause": {
			func(f *fixture) {
				alone(f)
				f.node("a").ClientNode.Status.Rollout.RetryAfter = &metav1.Time{Time: noon.Add(-time.Hour)}
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"it has its settings after all": {
			func(f *fixture) {
				alone(f)
				note := f.node("a").ClientNode.Status.Rollout
				f.finish("a", 0)
				f.node("a").ClientNode.Status.Rollout = note
			},
			[]string{"a: UpToDate NothingToDo"},
		},
	}, build, "a")
}

// A record of an unused permit can be there without its note, for example while a policy denies the withdrawal. The node is then one failure.
func TestARecordedFailureIsCountedOnce(t *testing.T) {
	f := cluster("a")
	f.permitted("a", 16*time.Minute)
	f.silent("a")
	f.overdue("a", time.Minute)
	f.addFailures("a")
	p := newPlanner(NewSession(f.Snapshot))
	for _, n := range p.states {
		p.advanceDisruption(n)
	}
	p.countNewFailures()
	if got := p.countFailures("eda").names; !slices.Equal(got, []string{"a"}) {
		t.Errorf("got failures of %q, want one of a", got)
	}
}
