package plan

import (
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// A note about a state that ends within seconds is a needless write.
func TestForWritesNoNoteForAShortState(t *testing.T) {
	draining := &DrainProgress{Reason: v1alpha1.RolloutReasonDraining, Message: "Waiting for Pod x/y to terminate"}
	blocked := &DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "Eviction of Pod x/y blocked by PodDisruptionBudget x/z"}
	cordoned := func(f *fixture, since time.Duration, progress *DrainProgress) {
		f.cordoned("a", since)
		f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonWaitingForBudget, time.Hour)
		f.node("a").Drain = progress
	}
	applying := func(f *fixture, since time.Duration) {
		f.finish("a", time.Hour)
		n := f.node("a")
		n.ClientNode.Spec.Hash, n.ApplyingSince = "h2", noon.Add(-since)
	}
	for name, c := range map[string]struct {
		change func(*fixture)
		want   []string
		next   time.Duration
	}{
		"a drain that has just started": {
			func(f *fixture) { cordoned(f, drainNoteDelay-time.Second, draining) }, []string{"a: Waiting WaitingForBudget"}, minTerminationInterval,
		},
		"a drain that takes longer": {
			func(f *fixture) { cordoned(f, drainNoteDelay, draining) }, []string{"a: Draining Draining"}, minTerminationInterval,
		},
		"a blocked drain is reported at once": {
			func(f *fixture) { cordoned(f, time.Second, blocked) }, []string{"a: Draining DrainBlocked"}, MinDrainInterval,
		},
		"pods that were inspected a moment ago are not inspected again, regardless of the note": {
			func(f *fixture) {
				cordoned(f, time.Second, nil)
				f.node("a").Inspected = noon
			},
			[]string{"a: Waiting WaitingForBudget"}, minTerminationInterval,
		},
		"settings that the agent has just received": {
			func(f *fixture) { applying(f, applyingNoteDelay-time.Second) }, []string{"a: UpToDate "}, time.Second,
		},
		"settings that take longer": {
			func(f *fixture) { applying(f, applyingNoteDelay) }, []string{"a: Applying Applying"}, 0,
		},
		"settings since an unknown time": {
			func(f *fixture) {
				applying(f, 0)
				f.node("a").ApplyingSince = time.Time{}
			},
			[]string{"a: Applying Applying"}, 0,
		},
		"an agent that has never reported": {
			func(f *fixture) {
				n := f.node("a")
				n.ClientNode.Status = v1alpha1.StorageClientNodeStatus{}
			},
			[]string{"a:  "}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			c.change(f)
			got := For(f.Snapshot)
			check.Equal(t, "plan", c.want, lines(got, "a"))
			if c.next > 0 && !got.Next.Equal(noon.Add(c.next)) || c.next == 0 && !got.Next.IsZero() {
				t.Errorf("next plan: got at %s, want %s after %s", got.Next, c.next, noon)
			}
		})
	}
}

// The agent's report shows that the reboot has started. A note would only repeat it.
func TestForKeepsTheNoteOfAPermitWhileTheNodeReboots(t *testing.T) {
	f := cluster("a")
	f.permitted("a", time.Minute)
	before := *f.node("a").ClientNode.Status.Rollout
	f.addResponse("a", v1alpha1.RebootStarted)
	if note := For(f.Snapshot).Notes["a"]; !SameNote(note, before) {
		t.Errorf("got note %+v, want the previous one: %+v", note, before)
	}
}
