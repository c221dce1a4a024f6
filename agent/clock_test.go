package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	day  = 24 * time.Hour
	good = "8192 131072 6291456"
)

func TestTheClockOfTheTestsIsLikeTimeNow(t *testing.T) {
	c := newMachineClock()
	before := c.Now()
	c.jump(-day)
	c.Step(time.Second)
	if now := c.Now(); now.Sub(before) != time.Second || now.Round(0).Sub(before.Round(0)) != time.Second-day || now.Unix() != 1700000001-86400 {
		t.Errorf("got %s, %s later by the monotonic clock", now, now.Sub(before))
	}
}

// liveChanges are all ways in which the agent changes the running machine. Each runs a world to its end.
var liveChanges = map[string]struct {
	// end is the state of the setting in the end. Empty if it is released.
	end v1alpha1.SettingState
	// prepare returns a world, and a function that runs it.
	prepare func(t *testing.T) (w *world, run func())
}{
	"a value that works": {v1alpha1.SettingInSync, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() { w.declare(setting(tcpRmem, good)); w.runFor(w.agent(), time.Minute) }
	}},
	"a value that works, after a random delay and a busy API server": {v1alpha1.SettingInSync, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.declare(setting(tcpRmem, good))
			a := w.agent()
			a.settings.proof.jitter = func(d time.Duration) time.Duration { return d }
			w.outage = true
			w.runFor(a, proofJitter+proofPause+time.Second)
			w.outage = false
			w.runFor(a, time.Minute)
		}
	}},
	"a value that breaks connections": {v1alpha1.SettingFailed, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() { w.declare(setting(tcpRmem, fatal)); w.runFor(w.agent(), 2*time.Minute) }
	}},
	"a value that breaks connections, on a canary": {v1alpha1.SettingFailed, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Canary = true })
			w.declare(setting(tcpRmem, fatal))
			w.runFor(w.agent(), 2*time.Minute)
		}
	}},
	"an outage during the proof, and another attempt": {v1alpha1.SettingInSync, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.declare(setting(tcpRmem, good))
			w.outage = true
			a := w.runFor(w.agent(), 90*time.Second)
			w.outage = false
			w.runFor(a, 3*time.Minute)
		}
	}},
	"no server responds before the change": {v1alpha1.SettingInSync, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		w.servers = []connect.Server{filer}
		return w, func() {
			w.declare(setting(tcpRmem, good))
			w.outage = true
			a := w.runFor(w.agent(), 30*time.Second)
			w.outage = false
			w.runFor(a, 3*time.Minute)
		}
	}},
	"an agent that is killed while it proves": {v1alpha1.SettingFailed, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.declare(setting(tcpRmem, fatal))
			for range 3 {
				w.runFor(w.agent(), 7*time.Second)
			}
			w.runFor(w.agent(), time.Minute)
		}
	}},
	"a boot while it proves": {v1alpha1.SettingFailed, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.declare(setting(tcpRmem, fatal))
			w.runFor(w.agent(), 7*time.Second)
			w.boot()
			w.runFor(w.agent(), 2*time.Minute)
		}
	}},
	"another program changes a value": {v1alpha1.SettingInSync, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.declare(setting(tcpRmem, good))
			a := w.runFor(w.agent(), 5*time.Second)
			w.live[tcpRmem] = usual
			w.runFor(a, 2*driftInterval)
		}
	}},
	"another program keeps changing a value": {v1alpha1.SettingDrifted, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.declare(setting(tcpRmem, good))
			a := w.runFor(w.agent(), 5*time.Second)
			for range 8 {
				w.live[tcpRmem] = usual
				w.clock.Step(driftInterval)
				w.runFor(a, 2*time.Second)
			}
		}
	}},
	"a failed step": {v1alpha1.SettingInSync, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.applyErr = errors.New("disk on fire")
			w.declare(setting(tcpRmem, good))
			a := w.runFor(w.agent(), 90*time.Second)
			w.applyErr = nil
			w.runFor(a, 4*time.Minute)
		}
	}},
	"a revert that fails at first": {v1alpha1.SettingFailed, func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.restoreErr = errors.New("disk on fire")
			w.declare(setting(tcpRmem, fatal))
			a := w.runFor(w.agent(), confirmWithin+15*time.Second)
			w.restoreErr = nil
			w.runFor(a, time.Minute)
		}
	}},
	"the originals are restored": {"", func(t *testing.T) (*world, func()) {
		w := newConfirmWorld(t)
		return w, func() {
			w.declare(setting(tcpRmem, good))
			a := w.runFor(w.agent(), 5*time.Second)
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
			w.runFor(a, time.Minute)
		}
	}},
	"the read-ahead of a new mount": {v1alpha1.SettingInSync, func(t *testing.T) (*world, func()) {
		h := newStorageHost(t)
		return h.world, func() {
			h.declare(setting(readAhead4, "15360"))
			a := h.runFor(h.agent(), 5*time.Second)
			h.write("/sys/class/bdi/0:60/read_ahead_kb", "128\n")
			h.writeTable(fmt.Sprintf("40 30 0:60 / %s rw - nfs4 filer:/b rw,vers=4.1\n", pod))
			h.runFor(a, mountwatch.Interval+time.Second)
			h.write(window, "64\n")
			h.runFor(a, 2*driftInterval)
		}
	}},
}

// The wall clock is set by a day before each step of each live change. The same changes must be made at the same times.
func TestNoLiveChangeDependsOnTheWallClock(t *testing.T) {
	for name, change := range liveChanges {
		t.Run(name, func(t *testing.T) {
			play := func(jumpAt int, jumpBy time.Duration) (*world, map[string]string) {
				w, run := change.prepare(t)
				w.jumpAt, w.jumpBy = jumpAt, jumpBy
				run()
				end := map[string]string{"unconfirmed": strconv.FormatBool(w.unconfirmed() != nil), "live": w.live[tcpRmem], "file": w.files[tcpRmem]}
				for _, s := range w.clientNode.Status.Settings {
					end[s.Key] = fmt.Sprint(s.State, " ", s.WaitsFor, " ", s.Message)
				}
				return w, end
			}
			want, wantEnd := play(0, 0)
			if len(want.events) < 2 {
				t.Fatalf("got only the events %v", want.events)
			}
			for _, s := range want.clientNode.Status.Settings {
				if s.State != change.end {
					t.Fatalf("without a jump: got %s: %s, %s; want %s", s.Key, s.State, s.Message, change.end)
				}
			}
			for at := 1; at <= want.steps; at++ {
				step := want.log[at-1]
				// A write of a long change is tried the first time and the last time that it occurs.
				if step != "status" && want.steps > 60 && slices.Contains(want.log[:at-1], step) && slices.Contains(want.log[at:], step) {
					continue
				}
				for _, jump := range []time.Duration{-day, day} {
					got, end := play(at, jump)
					if diff := cmp.Diff(want.events, got.events) + cmp.Diff(wantEnd, end); diff != "" {
						t.Fatalf("a jump by %s before step %d, %s (-without +with):\n%s", jump, at, got.log[min(at, len(got.log))-1], diff)
					}
					if got.writes < want.writes-1 {
						t.Fatalf("a jump by %s before step %d: got %d writes of the status, want %d", jump, at, got.writes, want.writes)
					}
				}
			}
		})
	}
}
