package plan

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// timeOut lets the drain of node a time out and stores the resulting note.
func timeOut(t *testing.T, f *fixture) v1alpha1.RolloutStatus {
	t.Helper()
	before := f.node("a").ClientNode.Status.Rollout
	f.cordoned("a", time.Hour)
	if before != nil {
		note := f.node("a").ClientNode.Status.Rollout
		note.DrainAttempts, note.RetryAfter, note.DrainedFor = before.DrainAttempts, before.RetryAfter, before.DrainedFor
	}
	f.node("a").Drain = &DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "blocked"}
	note := For(f.Snapshot).Notes["a"]
	f.node("a").Unschedulable, f.node("a").Mark, f.node("a").Drain, f.node("a").Maintenance = false, nil, nil, MaintenanceNone
	f.node("a").ClientNode.Status.Rollout = &note
	delete(f.Claims, "a")
	return note
}

func TestForBacksOffTwiceAsLongAfterEachDrain(t *testing.T) {
	f := cluster("a")
	var got []string
	for range 9 {
		note := timeOut(t, f)
		if note.Phase != v1alpha1.RolloutWaiting || note.Reason != v1alpha1.RolloutReasonDrainTimedOut {
			t.Fatalf("got %+v, want a note about a drain that timed out", note)
		}
		got = append(got, note.RetryAfter.Sub(f.Now).String())
		if again := For(f.Snapshot); again.Notes["a"].Reason != note.Reason || !again.Next.Equal(note.RetryAfter.Time) {
			t.Errorf("before the retry: got %+v, next plan at %s; want the same note", again.Notes["a"], again.Next)
		}
		f.Now = note.RetryAfter.Time
		if steps := lines(For(f.Snapshot)); len(steps) != 1 || steps[0] != "claim a for eda" {
			t.Errorf("at the retry: got %v, want a new claim", steps)
		}
		f.Now = noon
	}
	check.Equal(t, "result", []string{"5m0s", "10m0s", "20m0s", "40m0s", "1h20m0s", "2h40m0s", "5h20m0s", "6h0m0s", "6h0m0s"}, got)
}

// TestForAnAttemptIsCountedOnce lets a manager die between the note and the uncordon.
func TestForAnAttemptIsCountedOnce(t *testing.T) {
	f := cluster("a")
	f.cordoned("a", time.Hour)
	f.node("a").Drain = &DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "blocked"}
	note := For(f.Snapshot).Notes["a"]
	f.node("a").ClientNode.Status.Rollout = &note
	f.Now = f.Now.Add(time.Minute)
	again := For(f.Snapshot).Notes["a"]
	if again.DrainAttempts != 1 || !again.RetryAfter.Equal(note.RetryAfter) {
		t.Errorf("got %d attempts, next at %s; want one attempt, next at %s", again.DrainAttempts, again.RetryAfter, note.RetryAfter)
	}
}

func TestForABackOffEndsWithAChange(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		ends   bool
	}{
		"nothing changes":                      {func(*fixture) {}, false},
		"another field of the profile changes": {func(f *fixture) { f.Profiles[0].Rollout.SettleSeconds = ptr.To[int32](77) }, false},
		"other drain options":                  {func(f *fixture) { f.Profiles[0].Rollout.Drain.DeleteEmptyDirData = true }, true},
		"other live settings":                  {func(f *fixture) { f.node("a").ClientNode.Spec.Hash, f.node("a").ClientNode.Status.Hash = "h9", "h9" }, true},
		"other settings that require a reboot": {func(f *fixture) { f.changeHash("a", "h2") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			timeOut(t, f)
			c.change(f)
			f.node("a").ClientNode.DesiredBootHash = f.node("a").ClientNode.Spec.BootHash
			note := For(f.Snapshot).Notes["a"]
			if got := note.RetryAfter == nil && note.DrainAttempts == 0; got != c.ends {
				t.Errorf("got back-off ended %t, want %t: %+v", got, c.ends, note)
			}
		})
	}
}

// The agent's report determines which profiles need the boot. A new report does not change settings or options.
func TestForABackOffDoesNotEndWithAReport(t *testing.T) {
	f := cluster("a")
	f.profile("web").Rollout.Drain.DeleteEmptyDirData = true
	f.Profiles[1].Priority = 7
	node := f.node("a")
	node.Profiles = append(node.Profiles, "web")
	node.ClientNode.Spec.Settings = append(node.ClientNode.Spec.Settings, v1alpha1.NodeSetting{Key: "kernelArgument/nosmt", Value: "", Profile: "web"})
	timeOut(t, f)
	node.ClientNode.Status.RebootRequiredBy = append(node.ClientNode.Status.RebootRequiredBy, "kernelArgument/nosmt")
	if note := For(f.Snapshot).Notes["a"]; note.RetryAfter == nil || note.DrainAttempts != 1 {
		t.Errorf("got %+v, want the back-off to continue", note)
	}
}

func TestForARetryEndsABackOff(t *testing.T) {
	f := cluster("a")
	timeOut(t, f)
	f.Profiles[0].Retry = "1/a"
	first := For(f.Snapshot)
	note := first.Notes["a"]
	if note.RetryAfter != nil || note.DrainAttempts != 0 || first.Failures != nil {
		t.Fatalf("got %+v, failures %+v; want a new back-off first, and the record of the retry later", note, first.Failures)
	}
	f.node("a").ClientNode.Status.Rollout = &note
	if second := For(f.Snapshot); second.Failures == nil || second.Failures.Profiles["eda"].Retry != "1/a" {
		t.Errorf("got failures %+v, want retry 1/a recorded", second.Failures)
	}
}

// The retried profile selects the node, but does not need its reboot. A claim in the pass that resets the node could start another pause, which the
// next pass would reset again, forever.
func TestForARetryOfAProfileWithoutARebootResetsANodeOnce(t *testing.T) {
	for name, change := range map[string]func(*fixture){
		"a node that budgets keep": func(f *fixture) { f.hold("a", time.Minute) },
		"a node during its pause":  func(f *fixture) { timeOut(t, f) },
		"a failed node":            func(f *fixture) { f.addNote("a", v1alpha1.RolloutFailed, "x", time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.profile("live")
			f.node("a").Profiles = append(f.node("a").Profiles, "live")
			change(f)
			f.Profiles[1].Retry = "1"
			first := For(f.Snapshot)
			note := first.Notes["a"]
			if got := claims(first); len(got) > 0 || note.RetryAfter != nil || note.HeldSince != nil || note.Phase != v1alpha1.RolloutWaiting || first.Failures != nil {
				t.Fatalf("got claims %v, note %+v, failures %+v; want only the reset in the first pass", got, note, first.Failures)
			}
			f.node("a").ClientNode.Status.Rollout = &note
			second := For(f.Snapshot)
			if got := claims(second); len(got) != 1 || second.Failures == nil || second.Failures.Profiles["live"].Retry != "1" {
				t.Errorf("got claims %v, failures %+v; want the node claimed and retry 1 recorded", got, second.Failures)
			}
		})
	}
}

func TestForANodeWhoseDrainTimedOutIsNoCanary(t *testing.T) {
	f := cluster("a", "b", "c")
	f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](1)
	note := timeOut(t, f)
	want := []string{"claim b for eda", "a: Waiting DrainTimedOut", "b: Claimed Claimed", "c: Waiting WaitingForCanary"}
	check.Equal(t, "plan", want, lines(For(f.Snapshot), "a", "b", "c"))
	// The back-off is over. Node b is done, and is equally good evidence.
	f.Now = note.RetryAfter.Time
	f.finish("b", time.Hour)
	want = []string{"claim a for eda", "claim c for eda"}
	check.Equal(t, "plan", want, lines(For(f.Snapshot)))
}

func TestSkipNode(t *testing.T) {
	blocked := DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "Eviction of Pod a/b blocked by PodDisruptionBudget a/c"}
	jobs := DrainProgress{Reason: v1alpha1.RolloutReasonWaitingForPods, Message: "Waiting for pod a/job to finish"}
	for name, c := range map[string]struct {
		change  func(*fixture)
		outlook DrainProgress
		// until is the duration of the pause. Zero means no pause.
		until time.Duration
	}{
		"no obstacle is known":             {func(*fixture) {}, DrainProgress{}, 0},
		"a budget that allows no eviction": {func(*fixture) {}, blocked, SkipPause},
		"no eviction for three minutes":    {func(f *fixture) { f.addNote("a", v1alpha1.RolloutWaiting, "x", 3*time.Minute) }, blocked, 3 * time.Minute},
		"no eviction for hours":            {func(f *fixture) { f.addNote("a", v1alpha1.RolloutWaiting, "x", 3*time.Hour) }, blocked, BackOff},
		"jobs":                             {func(*fixture) {}, jobs, BackOff},
		"jobs, and it has been skipped once": {func(f *fixture) {
			f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonDrainTimedOut, time.Hour)
		}, jobs, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			c.change(f)
			note, passed := NewSession(f.Snapshot).SkipNode("a", v1alpha1.Disruption{}, c.outlook)
			if passed != (c.until > 0) {
				t.Fatalf("got back-off %t, want %t", passed, c.until > 0)
			}
			if !passed {
				return
			}
			if got := note.RetryAfter.Sub(noon); got != c.until || note.Reason != c.outlook.Reason || !strings.Contains(note.Message, c.outlook.Message) {
				t.Errorf("got back-off of %s, %s: %s", got, note.Reason, note.Message)
			}
			f.node("a").ClientNode.Status.Rollout = &note
			if next := For(f.Snapshot); len(next.Steps) > 0 || next.Notes["a"].Message != note.Message {
				t.Errorf("next plan: got %v, %+v; want no change", lines(next), next.Notes["a"])
			}
		})
	}
}

func TestForASkippedNodeIsNoCanary(t *testing.T) {
	f := cluster("a", "b")
	f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](1)
	note, _ := NewSession(f.Snapshot).SkipNode("a", v1alpha1.Disruption{}, DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "blocked"})
	f.node("a").ClientNode.Status.Rollout = &note
	want := []string{"claim b for eda", "a: Waiting DrainBlocked"}
	check.Equal(t, "plan", want, lines(For(f.Snapshot), "a"))
	// The back-off is over while b boots and then soaks. b had started instead.
	f.Profiles[0].Rollout.Canary.SoakSeconds = ptr.To[int32](60)
	f.Now = note.RetryAfter.Time
	f.permitted("b", time.Minute)
	check.Equal(t, "while b boots", []string{"a: Waiting WaitingForCanary"}, lines(For(f.Snapshot), "a"))
	f = cluster("a", "b")
	f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
	f.node("a").ClientNode.Status.Rollout = &note
	f.Now = note.RetryAfter.Time
	for since, want := range map[time.Duration]string{59 * time.Second: "a: Waiting WaitingForCanary", time.Minute: "a: Claimed Claimed"} {
		f.finish("b", since-f.Now.Sub(noon))
		f.node("b").ClientNode.Status.Rollout.Attempts = 1
		if got := lines(For(f.Snapshot), "a"); got[len(got)-1] != want {
			t.Errorf("%s after b is done: got %v, want %s last", since, got, want)
		}
	}
}
