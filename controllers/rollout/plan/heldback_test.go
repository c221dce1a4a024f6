package plan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

var heldByBudgets = DrainProgress{
	Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "Eviction of Pod a/db blocked by PodDisruptionBudget a/pdb", HeldByBudgets: true,
}

// held is a cluster whose first profile has lookAhead CordonFirst. Budgets alone have kept the named nodes for a time.
func held(since time.Duration, names ...string) *fixture {
	f := cluster("a", "b", "c")
	f.Profiles[0].Rollout.Drain.LookAhead = v1alpha1.LookAheadCordonFirst
	f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](1)
	for _, name := range names {
		f.hold(name, since)
	}
	return f
}

// hold records that budgets alone have kept a node for a time. Its pause is over.
func (f *fixture) hold(name string, since time.Duration) {
	s := NewSession(f.Snapshot)
	note, _ := s.SkipNode(name, v1alpha1.Disruption{}, heldByBudgets)
	note.HeldSince, note.RetryAfter = &metav1.Time{Time: f.Now.Add(-since)}, &metav1.Time{Time: f.Now}
	f.node(name).ClientNode.Status.Rollout = &note
}

// claims returns the planned claims, each with its mode.
func claims(p Plan) []string {
	var out []string
	for _, step := range p.Steps {
		if claim, ok := step.(AddClaim); ok {
			out = append(out, map[bool]string{true: "cordon first ", false: ""}[claim.Claim.CordonFirst]+claim.Node)
		}
	}
	return out
}

func TestForNodesThatBudgetsKeep(t *testing.T) {
	for name, c := range map[string]struct {
		f    *fixture
		want []string
	}{
		"another node can be claimed": {held(HeldPause, "a"), []string{"b"}},
		"another node can be claimed, and so can this one": {func() *fixture {
			f := held(HeldPause, "a", "c")
			f.Budget, f.Profiles[0].Rollout.MaxUnavailable = 2, ptr.To(intstr.FromInt32(2))
			f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](3)
			return f
		}(), []string{"b"}},
		"another node can be claimed, and this one is not kept for long": {func() *fixture {
			f := held(HeldPause-time.Second, "a", "c")
			f.Budget, f.Profiles[0].Rollout.MaxUnavailable = 2, ptr.To(intstr.FromInt32(2))
			f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](3)
			return f
		}(), []string{"b", "a"}},
		"another node was claimed in the last pass": {func() *fixture {
			f := held(HeldPause, "a", "c")
			f.Budget, f.Profiles[0].Rollout.MaxUnavailable = 2, ptr.To(intstr.FromInt32(2))
			f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](3)
			f.cordoned("b", time.Minute)
			return f
		}(), []string{"cordon first a"}},
		"no other node can be claimed": {held(HeldPause, "a", "b", "c"), []string{"cordon first a"}},
		"not for ten minutes yet":      {held(HeldPause-time.Second, "a", "b", "c"), []string{"a"}},
		"lookAhead is DryRun": {func() *fixture {
			f := held(HeldPause, "a", "b", "c")
			f.Profiles[0].Rollout.Drain.LookAhead = v1alpha1.LookAheadDryRun
			for _, name := range []string{"a", "b", "c"} {
				f.node(name).ClientNode.Status.Rollout.DrainedFor = ""
			}
			return f
		}(), []string{"a"}},
		"another node is cordoned first": {func() *fixture {
			f := held(HeldPause, "b", "c")
			f.Budget, f.Profiles[0].Rollout.MaxUnavailable = 2, ptr.To(intstr.FromInt32(2))
			f.Profiles[0].Rollout.Canary.Nodes = ptr.To[int32](3)
			f.cordoned("a", time.Minute)
			claim := f.Claims["a"]
			claim.CordonFirst = true
			f.Claims["a"] = claim
			return f
		}(), []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", c.want, claims(For(c.f.Snapshot)))
		})
	}
}

func TestSkipNodeThatBudgetsAloneKeep(t *testing.T) {
	otherReason := heldByBudgets
	otherReason.HeldByBudgets = false
	for name, c := range map[string]struct {
		lookAhead v1alpha1.DrainLookAhead
		claim     v1alpha1.Disruption
		outlook   DrainProgress
		skip      bool
		isHeld    bool
		want      string
	}{
		"by default, the note names the field": {"", v1alpha1.Disruption{}, heldByBudgets, true, false, "set rollout.drain.lookAhead to CordonFirst"},
		"DryRun names the field":               {v1alpha1.LookAheadDryRun, v1alpha1.Disruption{}, heldByBudgets, true, false, "set rollout.drain.lookAhead to CordonFirst"},
		"CordonFirst names the time": {v1alpha1.LookAheadCordonFirst, v1alpha1.Disruption{}, heldByBudgets, true, true,
			"from " + formatTime(noon.Add(HeldPause)) + ", if no other node can be claimed, the node is cordoned and these pods are evicted first"},
		"a claim that cordons first is made":       {v1alpha1.LookAheadCordonFirst, v1alpha1.Disruption{CordonFirst: true}, heldByBudgets, false, false, ""},
		"another obstacle prevents even that":      {v1alpha1.LookAheadCordonFirst, v1alpha1.Disruption{CordonFirst: true}, otherReason, true, false, "blocked by"},
		"another obstacle does not name the field": {v1alpha1.LookAheadDryRun, v1alpha1.Disruption{}, otherReason, true, false, "blocked by PodDisruptionBudget a/pdb"},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.Profiles[0].Rollout.Drain.LookAhead = c.lookAhead
			note, skip := NewSession(f.Snapshot).SkipNode("a", c.claim, c.outlook)
			if skip != c.skip || note.HeldSince != nil != c.isHeld || !strings.Contains(note.Message, c.want) {
				t.Errorf("got skipped %t, held since %v: %s", skip, note.HeldSince, note.Message)
			}
			if !c.outlook.HeldByBudgets && strings.Contains(note.Message, "lookAhead") {
				t.Errorf("got %q, want no advice that does not help", note.Message)
			}
		})
	}
}

// TestForAnotherManagerContinuesANodeThatIsCordonedFirst stops after each write of the first manager.
func TestForAnotherManagerContinuesANodeThatIsCordonedFirst(t *testing.T) {
	f := held(HeldPause, "a", "b", "c")
	f.hold("a", HeldPause)
	f.node("a").ClientNode.Status.Rollout.RetryAfter = &metav1.Time{Time: f.Now.Add(time.Minute)}
	claim := v1alpha1.Disruption{Profile: "eda", BootHash: f.node("a").ClientNode.Spec.BootHash, Since: metav1.Time{Time: f.Now}, CordonFirst: true}
	f.Claims["a"] = claim
	plan := For(f.Snapshot)
	var cordon *Cordon
	for _, step := range plan.Steps {
		switch step := step.(type) {
		case Cordon:
			cordon = &step
		case Drain:
			check.Equal(t, "lookAhead of the drain", v1alpha1.LookAheadCordonFirst, step.Options.LookAhead)
		}
	}
	if cordon == nil || !cordon.Mark.CordonFirst {
		t.Fatalf("got %v, want a cordon that records its mode", lines(plan))
	}
	// The claim is lost. The annotation restores it.
	delete(f.Claims, "a")
	f.node("a").Mark, f.node("a").Unschedulable = &cordon.Mark, true
	isDrained := false
	for _, step := range For(f.Snapshot).Steps {
		switch step := step.(type) {
		case AddClaim:
			if step.Missing && !step.Claim.CordonFirst {
				t.Error("got a claim without its mode")
			}
		case Drain:
			isDrained = step.Options.LookAhead == v1alpha1.LookAheadCordonFirst
		}
	}
	if !isDrained {
		t.Errorf("got %v, want a drain that starts with the pods that budgets keep", lines(For(f.Snapshot)))
	}
}

// A node is not left cordoned for a budget that may never allow.
func TestForAnAttemptThatCordonedFirstEnds(t *testing.T) {
	// Waiting: the manager died before it wrote a note about the drain.
	for _, phase := range []v1alpha1.RolloutPhase{v1alpha1.RolloutDraining, v1alpha1.RolloutWaiting} {
		f := held(HeldPause, "a", "b", "c")
		f.hold("a", HeldPause)
		previous := f.node("a").ClientNode.Status.Rollout.HeldSince
		f.cordoned("a", time.Hour)
		f.node("a").ClientNode.Status.Rollout = &v1alpha1.RolloutStatus{
			Phase: phase, Reason: v1alpha1.RolloutReasonDrainBlocked, BootHash: f.node("a").ClientNode.Spec.BootHash, HeldSince: previous,
			RetryAfter: &metav1.Time{Time: f.Now.Add(time.Minute)},
		}
		claim := f.Claims["a"]
		claim.CordonFirst = true
		f.Claims["a"] = claim
		f.node("a").Drain = &heldByBudgets
		plan := For(f.Snapshot)
		got := strings.Join(lines(plan), "; ")
		if note := plan.Notes["a"]; !strings.Contains(got, "uncordon a") || !note.RetryAfter.Equal(&metav1.Time{Time: f.Now.Add(BackOff)}) || note.HeldSince != nil || note.DrainAttempts != 1 {
			t.Errorf("%s: got %s, note %+v; want an uncordoned node that backs off", phase, got, note)
		}
	}
}

// TestForADrainsFirstEvictionMustFitTheTimeLeft drains with a limit of 15 minutes. A drain that waited has less time. After an eviction, time
// does not stop the others.
func TestForADrainsFirstEvictionMustFitTheTimeLeft(t *testing.T) {
	for since, left := range map[time.Duration]time.Duration{
		0: 0, time.Second: 0, 15 * time.Second: 0, 16 * time.Second: 884 * time.Second, 10 * time.Minute: 5 * time.Minute,
		14*time.Minute + 50*time.Second: 10 * time.Second,
	} {
		for evictions, want := range map[int32]struct {
			timeout int32
			left    time.Duration
		}{0: {900, left}, 1: {}, 70: {}} {
			f, old := cluster("a"), cluster("a")
			f.cordoned("a", since)
			old.cordoned("a", since)
			f.node("a").Evicted = evictions
			old.node("a").ClientNode.Status.Rollout.Evictions = evictions
			for manager, f := range map[string]*fixture{"this manager": f, "an earlier manager": old} {
				var drains []Drain
				for _, step := range For(f.Snapshot).Steps {
					if drain, ok := step.(Drain); ok {
						drains = append(drains, drain)
						if drain.TimeLeft != want.left {
							t.Errorf("%s after the cordon, %d pods evicted by %s: got %s left, want %s", since, evictions, manager, drain.TimeLeft, want.left)
						}
					}
				}
				if len(drains) != 1 {
					t.Fatalf("got %d drains, want one", len(drains))
				}
				for _, drain := range drains {
					if got := ptr.Deref(drain.Options.TimeoutSeconds, 0); got != want.timeout {
						t.Errorf("%s after the cordon, %d pods evicted by %s: got %d seconds, want %d", since, evictions, manager, got, want.timeout)
					}
				}
			}
		}
	}
}

// A drain that is too late for its grace periods ends at once. The note keeps the server's response about a pod that a budget keeps.
func TestADrainThatIsTooLateEndsAtOnce(t *testing.T) {
	f := cluster("a")
	f.cordoned("a", 10*time.Minute)
	f.node("a").Drain = &DrainProgress{TooLate: true, Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "Eviction of Pod eda/web blocked by PodDisruptionBudget eda/keep"}
	plan := For(f.Snapshot)
	note := plan.Notes["a"]
	if note.Reason != v1alpha1.RolloutReasonDrainTimedOut || !strings.Contains(note.Message, "eda/keep") || !strings.Contains(strings.Join(lines(plan), "; "), "uncordon a") {
		t.Errorf("got %v, note %s: %s; want an uncordoned node that backs off, and the budget", lines(plan), note.Reason, note.Message)
	}
}
