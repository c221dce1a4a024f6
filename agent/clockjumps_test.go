package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"
)

const years = 365 * day

// The wall clock is set by an hour to decades while a value is being proved, also right before a restart of the agent or a boot, and back again. A fatal
// value is live for 40 s at most in each of its proofs, by the boot clock, and a good one is kept.
func TestNoJumpOfTheClockProlongsOrEndsAProof(t *testing.T) {
	interruptions := map[string]func(w *world, a *Agent) *Agent{
		"none":      func(_ *world, a *Agent) *Agent { return a },
		"a restart": func(w *world, _ *Agent) *Agent { return w.agent() },
		"two restarts": func(w *world, _ *Agent) *Agent {
			w.runPass(w.agent())
			return w.agent()
		},
		"a boot": func(w *world, _ *Agent) *Agent { w.boot(); return w.agent() },
		"a boot that sets the clock": func(w *world, _ *Agent) *Agent {
			w.boot()
			w.clock.jump(-w.clock.Now().Sub(time.Unix(0, 0)))
			return w.agent()
		},
	}
	for name, interrupt := range interruptions {
		for _, jump := range []time.Duration{-time.Hour, day, -10 * years, 10 * years} {
			for _, at := range []time.Duration{0, 20 * time.Second, confirmWithin - 2*time.Second} {
				for _, returns := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s after %s, back again %t", name, jump, at, returns), func(t *testing.T) {
						w := newConfirmWorld(t)
						w.declare(setting(tcpRmem, fatal))
						a := w.agent()
						w.runPass(a)
						if w.live[tcpRmem] != fatal || w.unconfirmed() == nil {
							t.Fatal("the value is not set")
						}
						// An interrupted proof starts once more.
						since, limit := w.clock.Now(), 2*confirmWithin
						if name == "none" {
							limit = confirmWithin + time.Second
						}
						a = w.runFor(a, at)
						w.clock.jump(jump)
						a = interrupt(w, a)
						if returns {
							a = w.runFor(a, time.Second)
							w.clock.jump(-jump)
						}
						for ; w.live[tcpRmem] == fatal; w.runPass(a) {
							if spent := w.clock.Since(since); spent > limit {
								t.Fatalf("the value is still live after %s", spent)
							}
							w.clock.Step(time.Second)
						}
						w.runFor(a, 3*time.Minute)
						if w.live[tcpRmem] != usual || w.files[tcpRmem] != "" || w.unconfirmed() != nil || w.state(tcpRmem) != v1alpha1.SettingFailed {
							t.Errorf("got live value %q, file %q, %s: %s", w.live[tcpRmem], w.files[tcpRmem], w.state(tcpRmem), w.message(tcpRmem))
						}
					})
				}
			}
		}
	}
	for _, jump := range []time.Duration{-time.Hour, time.Hour, -10 * years, 10 * years} {
		t.Run(fmt.Sprintf("a good value, %s", jump), func(t *testing.T) {
			w := newConfirmWorld(t)
			w.declare(setting(tcpRmem, good))
			w.outage = true
			a := w.runFor(w.agent(), 5*time.Second)
			w.clock.jump(jump)
			a = w.runFor(a, 5*time.Second)
			if w.live[tcpRmem] != good || w.unconfirmed() == nil {
				t.Fatalf("got live value %q, %s: %s, want the proof to go on", w.live[tcpRmem], w.state(tcpRmem), w.message(tcpRmem))
			}
			w.outage = false
			w.runFor(a, 20*time.Second)
			if w.state(tcpRmem) != v1alpha1.SettingInSync || w.files[tcpRmem] != good {
				t.Errorf("got file %q, %s: %s", w.files[tcpRmem], w.state(tcpRmem), w.message(tcpRmem))
			}
		})
	}
}
