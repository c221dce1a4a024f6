package plan

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
)

const aptLock = "/var/lib/dpkg/lock-frontend is locked by apt-get (process 1234)"

// hostBusy gives a permit to a node whose agent waits for its host.
func (f *fixture) hostBusy(name string, since time.Duration) {
	f.permitted(name, since)
	f.addResponse(name, v1alpha1.RebootWaiting)
	f.node(name).ClientNode.Status.Reboot.Message = aptLock
}

func TestForANodeWhoseHostIsBusy(t *testing.T) {
	withdrawn := func(reason string) []string {
		return []string{
			"clear the permit of a: " + reason, "note a: Releasing " + reason, "conditions of a: none", "uncordon a: " + reason,
			"release the claim of a", "a: Waiting " + reason,
		}
	}
	backsOff := []string{
		"clear the permit of a: HostBusy", "note a: Waiting HostBusy", "conditions of a: none", "uncordon a: HostBusy",
		"release the claim of a", "a: Waiting HostBusy",
	}
	playRows(t, map[string]row{
		"its permit waits, and is no failure": {
			func(f *fixture) { f.hostBusy("a", time.Minute) }, []string{"a: Rebooting HostBusy"},
		},
		"it is released in the end, and backs off": {
			func(f *fixture) { f.hostBusy("a", 16*time.Minute); f.overdue("a", time.Minute) },
			backsOff,
		},
		"no disruption starts during the back-off": {
			func(f *fixture) {
				f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonHostBusy, BackOff-time.Second)
			},
			[]string{"a: Waiting HostBusy"},
		},
		"a new attempt starts after the back-off": {
			func(f *fixture) { f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonHostBusy, BackOff) },
			[]string{"claim a for eda", "a: Claimed Claimed"},
		},
		"a pause withdraws its permit": {
			func(f *fixture) {
				f.hostBusy("a", time.Minute)
				f.Paused = true
			},
			withdrawn("PausedByAnnotation"),
		},
		"its permit outlives the window": {
			func(f *fixture) {
				f.hostBusy("a", time.Minute)
				f.Profiles[0].addWindow("0 2 * * *", 3600)
			},
			[]string{"a: Rebooting HostBusy"},
		},
		"its permit outlives the window, but is overdue": {
			func(f *fixture) {
				f.hostBusy("a", 16*time.Minute)
				f.overdue("a", time.Minute)
				f.Profiles[0].addWindow("0 2 * * *", 3600)
			},
			backsOff,
		},
		"failures of other nodes withdraw its permit": {
			func(f *fixture) {
				f.hostBusy("a", time.Minute)
				f.addFailures("z")
			},
			withdrawn(v1alpha1.RolloutReasonFailureThreshold),
		},
		"another control-plane node that is out withdraws its permit": {
			func(f *fixture) {
				f.hostBusy("a", time.Minute)
				f.node("a").ControlPlane = true
			},
			withdrawn("LastControlPlaneNode"),
		},
		"the time limit of a reboot starts with the reboot": {
			func(f *fixture) {
				f.hostBusy("a", 15*time.Minute)
				f.addNote("a", v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonHostBusy, 15*time.Minute).Attempts = 1
				f.addResponse("a", v1alpha1.RebootStarted)
			},
			[]string{"a: Rebooting RebootStarted"},
		},
		"a started reboot fails after its time limit": {
			func(f *fixture) {
				f.permitted("a", 29*time.Minute)
				f.addNote("a", v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonRebootStarted, 15*time.Minute).Attempts = 1
				f.addResponse("a", v1alpha1.RebootStarted)
			},
			[]string{"a: Failed RebootTimedOut"},
		},
		"a reboot whose start was not observed": {
			func(f *fixture) {
				f.hostBusy("a", 16*time.Minute)
				f.addNote("a", v1alpha1.RolloutRebooting, v1alpha1.RolloutReasonHostBusy, 16*time.Minute).Attempts = 1
				f.rebooted("a")
				f.node("a").Ready = false
			},
			[]string{"a: Rebooting WaitingForNode"},
		},
		"a user uncordons it: the user owns the node": {
			func(f *fixture) {
				f.hostBusy("a", time.Minute)
				f.node("a").Unschedulable = false
			},
			[]string{
				"clear the permit of a: CordonLost", "note a: Waiting CordonLost", "conditions of a: none", "uncordon a: CordonLost",
				"release the claim of a", "a: Waiting CordonLost",
			},
		},
		"others are about to remove it: it needs no reboot": {
			func(f *fixture) {
				f.hostBusy("a", 15*time.Minute)
				f.node("a").Leaving = "karpenter.sh/disrupted"
			},
			[]string{"clear the permit of a: NodeLeaving", "claim of a: no permit", "a: Releasing NodeLeaving"},
		},
	}, oneNode, "a")
}

func TestForNamesTheReasonOfABusyHost(t *testing.T) {
	for _, since := range []time.Duration{time.Minute, 15 * time.Minute} {
		f := cluster("a")
		f.hostBusy("a", since)
		if message := For(f.Snapshot).Notes["a"].Message; !strings.Contains(message, aptLock) {
			t.Errorf("%s after the permit: got message %q, want %q in it", since, message, aptLock)
		}
	}
}

// An unused permit is no attempt. The count stays the same if its withdrawal is decided twice, for example after a crash between
// two writes.
func TestForAnUnusedPermitIsNoAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		want   int32
	}{
		"a rejected permit": {func(f *fixture) { f.addResponse("a", v1alpha1.RebootRefused) }, 0},
		"a rejected permit that is withdrawn a second time": {
			func(f *fixture) {
				f.addResponse("a", v1alpha1.RebootRefused)
				f.node("a").ClientNode.Status.Rollout = new(For(f.Snapshot).Notes["a"])
			}, 0,
		},
		"a permit that waited to the end": {
			func(f *fixture) {
				f.addResponse("a", v1alpha1.RebootWaiting)
				f.overdue("a", time.Minute)
			}, 0,
		},
		"a permit that the agent has not used": {func(f *fixture) { f.overdue("a", time.Minute) }, 0},
		"a permit that waited until a pause": {
			func(f *fixture) {
				f.addResponse("a", v1alpha1.RebootWaiting)
				f.Paused = true
			}, 0,
		},
		"a permit that waited until a user uncordoned the node": {
			func(f *fixture) {
				f.addResponse("a", v1alpha1.RebootWaiting)
				f.node("a").Unschedulable = false
			}, 0,
		},
		"a permit that waited until others took the node": {
			func(f *fixture) {
				f.addResponse("a", v1alpha1.RebootWaiting)
				f.node("a").Leaving = "karpenter.sh/disrupted"
			}, 0,
		},
		"a permit whose reboot the host rejected is used up": {func(f *fixture) { f.addResponse("a", v1alpha1.RebootFailed) }, 1},
		"a permit without a response may still be used":      {func(f *fixture) { f.node("a").ClientNode.Status.ObservedGeneration = 3 }, 1},
		"a permit with an unknown ID is counted as in the note": {
			func(f *fixture) {
				f.node("a").ClientNode.Spec.RebootPermit.ID = "x"
				f.addResponse("a", v1alpha1.RebootRefused)
			}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster("a")
			f.permitted("a", 15*time.Minute)
			c.change(f)
			if got := For(f.Snapshot).Notes["a"].Attempts; got != c.want {
				t.Errorf("got %d attempts, want %d", got, c.want)
			}
		})
	}
}

// TestForRefusalsEndInService plays an agent that rejects every permit. A pause follows each rejection, and no node fails. After
// the time limit of a drain, the node returns to service.
func TestForRefusalsEndInService(t *testing.T) {
	f := cluster("a")
	f.cordoned("a", 0)
	n := f.node("a")
	permits, start := sets.New[string](), f.Now
	for ; n.Mark != nil && f.Now.Sub(start) < time.Hour; f.Now = f.Now.Add(10 * time.Second) {
		n.Drain = &DrainProgress{Gone: true}
		got := For(f.Snapshot)
		for _, step := range got.Steps {
			switch step := step.(type) {
			case GivePermit:
				permits.Insert(step.Permit.ID)
				n.ClientNode.Spec.RebootPermit = &step.Permit
			case ClearPermit:
				n.ClientNode.Spec.RebootPermit = nil
			case Uncordon:
				n.Mark, n.Unschedulable = nil, false
			case ReleaseClaim:
				delete(f.Claims, "a")
			case UpdateClaim:
				f.Claims["a"] = step.Claim
			}
		}
		n.ClientNode.Status.Rollout, n.ClientNode.Status.Reboot = new(got.Notes["a"]), nil
		if permit := n.ClientNode.Spec.RebootPermit; permit != nil {
			n.ClientNode.Status.Reboot = &v1alpha1.RebootStatus{PermitID: permit.ID, Phase: v1alpha1.RebootRefused, Message: "still mounted"}
		}
	}
	took, note := f.Now.Sub(start), *n.ClientNode.Status.Rollout
	if took < 15*time.Minute || took > 18*time.Minute || note.Phase != v1alpha1.RolloutWaiting || note.Reason != v1alpha1.RolloutReasonPermitRefused || note.Attempts != 0 {
		t.Errorf("after %s: got %+v, want a node in service after its rejected permit", took, note)
	}
	if permits.Len() < 10 || permits.Len() > 16 {
		t.Errorf("got %d permits within %s, want 10 to 16", permits.Len(), took)
	}
	if !strings.Contains(note.Message, "still mounted") {
		t.Errorf("got message %q, want the busy mount in it", note.Message)
	}
}
