package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const rmemFile = "/proc/sys/net/core/rmem_max"

func rmemProfile(value string) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{}
	p.Name = "p"
	p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.rmem_max": v1alpha1.SettingText(value), "vm.dirty_ratio": "20"}}
	return p
}

func (b *box) liveValue() string { return strings.TrimSpace(b.tree()[rmemFile]) }

// expectReverted checks that no network setting is kept, and that all others are.
func (b *box) expectReverted(r localreport.Report, message string) {
	b.t.Helper()
	for _, s := range r.Settings {
		if s.Key == rmem && (s.State != v1alpha1.SettingFailed || !strings.Contains(s.Message, message)) {
			b.t.Errorf("got %s: %s, want Failed: %s", s.State, s.Message, message)
		}
		if s.Key != rmem && s.State != v1alpha1.SettingInSync {
			b.t.Errorf("%s: got %s: %s", s.Key, s.State, s.Message)
		}
	}
	if r.AsDeclared {
		b.t.Error("AsDeclared: got true, want false")
	}
	if got := b.liveValue(); got != "212992" || strings.Contains(b.tree()[trace], "rmem_max") {
		b.t.Errorf("got live value %q, file %q", got, b.tree()[trace])
	}
	if err := b.local(true).Machine.Journal.Load(); err != nil {
		b.t.Fatal(err)
	}
	if strings.Contains(b.tree()[journal.File], "rmem_max") {
		b.t.Errorf("got journal %s", b.tree()[journal.File])
	}
}

func TestOneMachineProvesByTheServerThatItMountsFrom(t *testing.T) {
	for name, test := range map[string]struct {
		// tryServer returns the result of the n-th test connection. The first one is opened before any value is set.
		tryServer func(b *box, n int) error
		message   string
	}{
		"it stops responding while the value is effective": {
			tryServer: func(b *box, _ int) error {
				if b.liveValue() != "212992" {
					return errors.New("i/o timeout")
				}
				return nil
			},
			message: "broke new connections, reverted: NFS server filer1 (192.0.2.10:2049): i/o timeout",
		},
		"it responds neither then nor later": {
			tryServer: func(_ *box, n int) error {
				if n > 0 {
					return errors.New("i/o timeout")
				}
				return nil
			},
			message: "so it is not the cause: NFS server filer1",
		},
		"it does not respond before": {
			tryServer: func(*box, int) error { return errors.New("i/o timeout") },
			message:   "not set: no mounted server responds to a new connection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.tryServer = func(n int) error { return test.tryServer(b, n) }
			started := b.clock.Now()
			b.expectReverted(b.apply(rmemProfile("16777216")), test.message)
			if duration := b.clock.Since(started); duration > confirmWithin+retestWithin+2*proofPause {
				t.Errorf("apply: got a duration of %s", duration)
			}
			// On one machine, the user may try again deliberately.
			b.tryServer = nil
			if r := b.apply(rmemProfile("16777216")); !r.AsDeclared || b.liveValue() != "16777216" {
				t.Errorf("second apply: got %+v", r.Settings)
			}
		})
	}
}

func TestAJumpOfTheClockProlongsNoProofOnOneMachine(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		for _, at := range []int{2, int(confirmWithin/proofPause) + 5} {
			b := newBox(t)
			b.tryServer = func(n int) error {
				if n == at {
					b.clock.jump(jump)
				}
				if n > 0 {
					return errors.New("i/o timeout")
				}
				return nil
			}
			b.expectReverted(b.apply(rmemProfile("16777216")), "so it is not the cause: NFS server filer1")
			if want := 1 + int(confirmWithin/proofPause) + 1 + int(retestWithin/proofPause) + 1; b.attempts != want {
				t.Errorf("a jump of %s before attempt %d: got %d attempts, want %d", jump, at, b.attempts, want)
			}
		}
	}
}

func TestOneMachineWithoutAServer(t *testing.T) {
	b := newBox(t)
	b.servers = nil
	plan := b.compare(localreport.Plan, rmemProfile("16777216"))
	if !strings.HasPrefix(plan.Settings[0].Proof, "cannot be proven: ") || plan.Settings[1].Proof != "" {
		t.Errorf("plan: got %+v", plan.Settings)
	}
	b.expectReverted(b.apply(rmemProfile("16777216")), "use --no-confirm")

	l := b.local(true)
	l.NoConfirm = true
	r, err := l.Run(t.Context(), localreport.Apply, []v1alpha1.StorageClientProfile{rmemProfile("16777216")})
	if err != nil || !r.AsDeclared || b.liveValue() != "16777216" || b.attempts > 0 {
		t.Errorf("--no-confirm: error %v, settings %+v", err, r.Settings)
	}
	// Values that were applied in this way need no proof later.
	if r := b.apply(rmemProfile("16777216")); !r.AsDeclared {
		t.Errorf("second apply: got %+v", r.Settings)
	}
}

func TestThePlanDescribesTheProof(t *testing.T) {
	b := newBox(t)
	settings := b.compare(localreport.Plan, rmemProfile("16777216")).Settings
	if want := "kept if a new connection to NFS server filer1 (192.0.2.10:2049) works within 40s, otherwise reverted"; settings[0].Proof != want || settings[1].Proof != "" {
		t.Errorf("plan: got %+v", settings)
	}
	if b.attempts > 0 {
		t.Error("the plan makes connections")
	}
	b.apply(rmemProfile("16777216"))
	if s := b.compare(localreport.Plan, rmemProfile("16777216")).Settings[0]; s.Proof != "" {
		t.Errorf("after the proof: got %+v", s)
	}
}

func TestAStoppedCommandRevertsTheValue(t *testing.T) {
	b := newBox(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.tryServer = func(n int) error {
		if n > 0 {
			cancel()
			return errors.New("i/o timeout")
		}
		return nil
	}
	if _, err := b.local(true).Run(ctx, localreport.Apply, []v1alpha1.StorageClientProfile{rmemProfile("16777216")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if b.liveValue() != "212992" || strings.Contains(b.tree()[journal.File], "rmem_max") {
		t.Errorf("got live value %q, journal %s", b.liveValue(), b.tree()[journal.File])
	}
}

// A killed command leaves the value effective and recorded in the journal. The next command reverts it first.
func TestTheNextCommandRevertsTheValueOfAKilledCommand(t *testing.T) {
	for name, next := range map[string]func(b *box){
		"by the next apply": func(b *box) { b.apply(rmemProfile("33554432")) },
		"by a restore":      func(b *box) { b.restore() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.tryServer = func(n int) error {
				if n > 0 {
					panic(errCrash)
				}
				return nil
			}
			func() {
				defer func() {
					if recover() != any(errCrash) {
						t.Fatal("the command was not killed")
					}
				}()
				b.apply(rmemProfile("16777216"))
			}()
			if b.liveValue() != "16777216" || strings.Contains(b.tree()[trace], "rmem_max") {
				t.Fatalf("got live value %q, file %q", b.liveValue(), b.tree()[trace])
			}
			b.tryServer = func(int) error {
				if got := b.liveValue(); got != "212992" && got != "33554432" {
					t.Errorf("%q is still the live value", got)
				}
				return nil
			}
			b.clock.Step(time.Hour)
			next(b)
			if name == "by a restore" && b.liveValue() != "212992" {
				t.Errorf("got live value %q", b.liveValue())
			}
			l := b.local(true)
			check.NoError(t, l.Machine.Journal.Load())
			if u, open := l.Machine.Journal.Unconfirmed(); open {
				t.Errorf("got unconfirmed %+v", u)
			}
			if entry, ok := l.Machine.Journal.Entries()[rmem]; ok && entry.Original.Value != "212992" {
				t.Errorf("got original %+v", entry.Original)
			}
		})
	}
}
