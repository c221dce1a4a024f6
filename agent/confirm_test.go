package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const (
	tcpRmem = "sysctl/net.ipv4.tcp_rmem"
	fatal   = "1 1 1"
	usual   = "4096 131072 6291456"
)

var filer = connect.Server{Name: "filer1", Address: "10.0.0.1:2049", Protocol: connect.NFS, Version: 4}

// newConfirmWorld returns a machine whose new connections fail with the fatal value.
func newConfirmWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.defaults[tcpRmem], w.live[tcpRmem] = usual, usual
	// The catalogue rejects it, unless an administrator of the host permits it.
	w.write(AllowFile, "sysctl/net[.]ipv4[.]tcp_rmem="+fatal+"\n")
	w.proved = func(int64) error { return w.tryConnection("read /openapi/v2") }
	w.tryServer = func(connect.Server) error { return w.tryConnection("no answer") }
	return w
}

// tryConnection returns an error if new connections fail.
func (w *world) tryConnection(operation string) error {
	if w.live[tcpRmem] == fatal || w.outage {
		return errors.New(operation + ": i/o timeout")
	}
	return nil
}

// runFor runs agents for a time. A new one starts after each crash and each reboot.
func (w *world) runFor(a *Agent, d time.Duration) *Agent {
	w.t.Helper()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); w.clock.Step(time.Second) {
		if w.runPass(a) {
			a = w.agent()
		}
	}
	return a
}

// expectWait checks the event that the setting under test waits for.
func (w *world) expectWait(want v1alpha1.SettingWait) {
	w.t.Helper()
	for _, s := range w.clientNode.Status.Settings {
		if s.Key == tcpRmem && s.WaitsFor != want {
			w.t.Errorf("WaitsFor: got %q, want %q: %s", s.WaitsFor, want, s.Message)
		}
	}
}

// runWhileFatal runs passes until the fatal value is reverted. The test fails if that takes much longer than a proof.
func (w *world) runWhileFatal(a *Agent) {
	w.t.Helper()
	for started := w.clock.Now(); w.live[tcpRmem] == fatal; w.runPass(a) {
		if w.clock.Since(started) > 2*confirmWithin {
			w.t.Fatalf("the value is still live after %s", w.clock.Since(started))
		}
		w.clock.Step(time.Second)
	}
}

func (w *world) expect(state v1alpha1.SettingState, live, file string) {
	w.t.Helper()
	if w.state(tcpRmem) != state || w.live[tcpRmem] != live || w.files[tcpRmem] != file {
		w.t.Fatalf("got %s: %s, live value %q, file %q; want %s, %q, %q",
			w.state(tcpRmem), w.message(tcpRmem), w.live[tcpRmem], w.files[tcpRmem], state, live, file)
	}
}

func TestALiveValueIsKeptOnlyAfterNewConnectionsWork(t *testing.T) {
	w := newConfirmWorld(t)
	w.servers = []connect.Server{filer}
	w.defaults[rmem] = "212992"
	proofs := 0
	w.tryServer = func(server connect.Server) error {
		if w.live[tcpRmem] == usual {
			// This server is chosen because it responds now.
			return nil
		}
		proofs++
		want := map[string]journal.UnconfirmedSetting{
			tcpRmem: {Entry: journal.Entry{Original: present(usual), Profile: "p", Applied: "8192 131072 6291456"}, Before: present(usual)},
			rmem:    {Entry: journal.Entry{Original: present("212992"), Profile: "p", Applied: "16777216"}, Before: present("212992")},
		}
		u := w.unconfirmed()
		check.Equal(t, "unconfirmed", want, u.Settings)
		if remaining := u.Deadline.Sub(w.clock.Now()); remaining != confirmWithin || u.BootID != "boot-1" {
			t.Errorf("unexpected deadline: in %s, boot %s", remaining, u.BootID)
		}
		if len(w.files) > 0 || len(w.journal()) > 0 || server != filer {
			t.Errorf("during the proof by %s: file %v, journal %v", server, w.files, w.journal())
		}
		return nil
	}
	w.proved = func(int64) error {
		proofs++
		if len(w.files) > 0 || w.live[tcpRmem] != "8192 131072 6291456" || w.live[rmem] != "16777216" {
			t.Errorf("during the proof: file %v, live value %v", w.files, w.live)
		}
		return nil
	}
	w.writeErr = func(status v1alpha1.StorageClientNodeStatus) error {
		inSync := status.Settings[0].State == v1alpha1.SettingInSync
		if inSync != (w.unconfirmed() == nil) {
			t.Errorf("reported: got %+v; unconfirmed: %+v", status.Settings[0], w.unconfirmed())
		}
		s, want := status.Settings[0], "set, proving over new connections until 22:14:00 UTC"
		if !inSync && (s.State != v1alpha1.SettingPending || s.WaitsFor != v1alpha1.WaitsForProof || s.Message != want) || inSync && s.WaitsFor != "" {
			t.Errorf("got %+v, want Pending: %s", s, want)
		}
		return nil
	}
	w.declare(setting(rmem, "16777216"), setting(tcpRmem, "8192 131072 6291456"))
	w.runPass(w.agent())
	w.expect(v1alpha1.SettingInSync, "8192 131072 6291456", "8192 131072 6291456")
	if proofs != 2 || w.unconfirmed() != nil || w.journal()[tcpRmem].Original.Value != usual {
		t.Errorf("got %d proofs, unconfirmed %+v, journal %+v", proofs, w.unconfirmed(), w.journal())
	}
}

// tuned may take longer to start than the maximum duration of a proof.
func TestTheProofTimeStartsAfterAllSettingsAreSet(t *testing.T) {
	w := newConfirmWorld(t)
	w.setting = 2 * confirmWithin
	w.declare(setting(tcpRmem, "8192 131072 6291456"))
	w.runFor(w.agent(), time.Minute)
	w.expect(v1alpha1.SettingInSync, "8192 131072 6291456", "8192 131072 6291456")

	w.declare(setting(tcpRmem, fatal))
	a := w.agent()
	w.runPass(a)
	set := w.clock.Now()
	w.runWhileFatal(a)
	if duration := w.clock.Since(set); duration > confirmWithin+time.Second {
		t.Errorf("reverted %s after all values were set", duration)
	}
}

func TestAValueThatBreaksNewConnectionsIsRevertedAndNotTriedAgain(t *testing.T) {
	tests := map[string]struct {
		servers []connect.Server
		message string
	}{
		"to the API server": {message: "reverted: set together: " + rmem + ", " + tcpRmem + "; API server: read /openapi/v2: i/o timeout"},
		"to both":           {servers: []connect.Server{filer}, message: "NFS server filer1 (10.0.0.1:2049): no answer: i/o timeout; API server"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newConfirmWorld(t)
			w.servers = test.servers
			w.declare(setting(tcpRmem, fatal), setting(rmem, "16777216"))
			started := w.clock.Now()
			a := w.agent()
			w.runPass(a)
			w.runWhileFatal(a)
			if duration := w.clock.Since(started); duration > confirmWithin+time.Second {
				t.Errorf("reverted after %s", duration)
			}
			w.expect(v1alpha1.SettingFailed, usual, "")
			if w.live[rmem] != "212992" || w.files[rmem] != "" || w.state(rmem) != v1alpha1.SettingFailed || len(w.journal()) > 0 {
				t.Errorf("settings that were set together: live values %v, %s, journal %v", w.live, w.state(rmem), w.journal())
			}
			if got := w.message(tcpRmem); !strings.HasPrefix(got, "broke new connections, reverted: ") || !strings.Contains(got, test.message) {
				t.Errorf("message: got %q, want %q", got, test.message)
			}

			w.log, w.sizes = nil, nil
			w.runFor(w.runFor(a, time.Hour), 0)
			w.boot()
			w.runFor(w.agent(), time.Hour)
			for _, change := range w.log {
				if strings.HasPrefix(change, "try ") {
					t.Fatalf("got another attempt: %v", w.log)
				}
			}
			w.expect(v1alpha1.SettingFailed, usual, "")

			w.declare(setting(tcpRmem, "8192 131072 6291456"), setting(rmem, "16777216"))
			w.runFor(w.agent(), time.Second)
			w.expect(v1alpha1.SettingInSync, "8192 131072 6291456", "8192 131072 6291456")
		})
	}
}

// The host does not support another setting of the same spec at first. Later, that setting is proven alone.
func TestAValueThatBreaksNewConnectionsIsNotTriedAgainAfterAnotherProof(t *testing.T) {
	w := newConfirmWorld(t)
	w.cannot[rmem] = host.Unsupported
	w.declare(setting(tcpRmem, fatal), setting(rmem, "16777216"))
	a := w.runFor(w.agent(), 2*time.Minute)
	w.expect(v1alpha1.SettingFailed, usual, "")
	if w.state(rmem) != v1alpha1.SettingUnsupported {
		t.Fatalf("the other: got %s: %s", w.state(rmem), w.message(rmem))
	}
	delete(w.cannot, rmem)
	w.log = nil
	w.runFor(a, time.Hour)
	if w.state(rmem) != v1alpha1.SettingInSync || w.files[rmem] != "16777216" {
		t.Errorf("the other: got %s: %s", w.state(rmem), w.message(rmem))
	}
	w.boot()
	w.runFor(w.agent(), time.Hour)
	if slices.Contains(w.log, "try "+tcpRmem) || !slices.Contains(w.log, "try "+rmem) {
		t.Errorf("got steps %v", w.log)
	}
	w.expect(v1alpha1.SettingFailed, usual, "")
}

func TestAValueThatIsReplacedStaysInTheFileUntilTheNewOneIsProven(t *testing.T) {
	w := newConfirmWorld(t)
	w.declare(setting(tcpRmem, "8192 131072 6291456"))
	a := w.runFor(w.agent(), time.Second)
	w.declare(setting(tcpRmem, fatal))
	w.runPass(a)
	w.expect(v1alpha1.SettingPending, fatal, "8192 131072 6291456")
	w.runFor(a, confirmWithin+2*time.Second)
	w.expect(v1alpha1.SettingFailed, "8192 131072 6291456", "8192 131072 6291456")
	if got := w.journal()[tcpRmem]; got.Applied != "8192 131072 6291456" || got.Original.Value != usual {
		t.Errorf("unexpected journal %+v", got)
	}
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	w.runFor(a, time.Second)
	if w.live[tcpRmem] != usual || len(w.files) > 0 || !w.clientNode.Status.Restored {
		t.Errorf("released: live value %v, file %v", w.live, w.files)
	}
}

// A busy API server that rejects the reads has been reached: it neither proves a value nor breaks a connection.
func TestABusyAPIServerProvesNothing(t *testing.T) {
	const value = "8192 131072 6291456"
	for _, canary := range []bool{false, true} {
		t.Run(fmt.Sprintf("canary %t", canary), func(t *testing.T) {
			w := newConfirmWorld(t)
			busy := true
			w.proved = func(int64) error {
				if busy {
					return fmt.Errorf("read: %w", reporter.ErrBusy)
				}
				return nil
			}
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Canary = canary })
			w.declare(setting(tcpRmem, value))
			a := w.runFor(w.agent(), confirmWithin-time.Second)
			w.expect(v1alpha1.SettingPending, value, "")
			if len(w.sizes) < 3 {
				t.Errorf("got %d attempts, want repetitions until the deadline", len(w.sizes))
			}
			w.runFor(a, 5*time.Second)
			w.expect(v1alpha1.SettingPending, usual, "")
			w.expectWait(v1alpha1.WaitsForConnections)
			if want := "verification timed out: API server: read: the API server is busy"; !strings.Contains(w.message(tcpRmem), want) {
				t.Errorf("message: got %q, want %q", w.message(tcpRmem), want)
			}
			if failed := w.clientNode.Status.Settings[0].FailedConnections; len(failed) > 0 || w.unconfirmed() != nil || a.settings.outcome.failed {
				t.Errorf("got failed connections %v, unconfirmed %+v, failed %t", failed, w.unconfirmed(), a.settings.outcome.failed)
			}
			busy = false
			w.runFor(a, time.Hour)
			w.expect(v1alpha1.SettingInSync, value, value)
		})
	}
}

func TestABusyAPIServerHidesNoBrokenConnection(t *testing.T) {
	for name, test := range map[string]struct {
		set, unset error
		server     error
		state      v1alpha1.SettingState
		failed     []string
	}{
		"a server breaks":                             {set: reporter.ErrBusy, server: errors.New("no answer"), state: v1alpha1.SettingFailed, failed: []string{"filer1"}},
		"a server breaks, always busy":                {set: reporter.ErrBusy, unset: reporter.ErrBusy, server: errors.New("no answer"), state: v1alpha1.SettingFailed, failed: []string{"filer1"}},
		"the API server breaks, and is busy after it": {set: errors.New("i/o timeout"), unset: reporter.ErrBusy, state: v1alpha1.SettingPending},
	} {
		t.Run(name, func(t *testing.T) {
			w := newConfirmWorld(t)
			w.servers = []connect.Server{filer}
			w.proved = func(int64) error {
				if w.live[tcpRmem] == usual {
					return test.unset
				}
				return test.set
			}
			w.tryServer = func(connect.Server) error {
				if w.live[tcpRmem] == usual {
					return nil
				}
				return test.server
			}
			w.declare(setting(tcpRmem, "8192 131072 6291456"))
			w.runFor(w.agent(), confirmWithin+retestWithin+5*time.Second)
			w.expect(test.state, usual, "")
			check.Equal(t, "failed connections", test.failed, w.clientNode.Status.Settings[0].FailedConnections)
		})
	}
}

func TestAnUnrelatedOutageIsNoFailure(t *testing.T) {
	w := newConfirmWorld(t)
	w.outage = true
	w.declare(setting(tcpRmem, "8192 131072 6291456"))
	a := w.runFor(w.agent(), confirmWithin+retestWithin+10*time.Second)
	w.expect(v1alpha1.SettingPending, usual, "")
	w.expectWait(v1alpha1.WaitsForConnections)
	if want := "with and without it, so it is not the cause: API server: read /openapi/v2"; !strings.Contains(w.message(tcpRmem), want) {
		t.Errorf("message: got %q, want %q", w.message(tcpRmem), want)
	}
	if w.unconfirmed() != nil || a.settings.outcome.failed {
		t.Errorf("got unconfirmed %+v, failed %t", w.unconfirmed(), a.settings.outcome.failed)
	}
	tries := func() (n int) {
		for _, change := range w.log {
			if change == "try "+tcpRmem {
				n++
			}
		}
		return n
	}
	a = w.runFor(a, 2*time.Hour)
	if n := tries(); n < 5 || n > 12 {
		t.Errorf("got %d attempts in two hours, want longer and longer pauses", n)
	}
	w.outage = false
	w.runFor(a, maxRetry+2*driftInterval)
	w.expect(v1alpha1.SettingInSync, "8192 131072 6291456", "8192 131072 6291456")
}

func TestNoValueIsSetWithoutARespondingServer(t *testing.T) {
	w := newConfirmWorld(t)
	w.servers = []connect.Server{filer, {Name: "filer2", Address: "10.0.0.2:2049", Protocol: connect.NFS}}
	w.tryServer = func(connect.Server) error { return errors.New("no route to host") }
	w.declare(setting(tcpRmem, "8192 131072 6291456"), setting(ihash, "1048576"))
	a := w.runFor(w.agent(), time.Minute)
	w.expect(v1alpha1.SettingPending, usual, "")
	w.expectWait(v1alpha1.WaitsForConnections)
	if want := "not set: no mounted server responds to a new connection: NFS server filer1 (10.0.0.1:2049): no route to host; NFS server filer2"; !strings.Contains(w.message(tcpRmem), want) {
		t.Errorf("message: got %q, want %q", w.message(tcpRmem), want)
	}
	if w.menu[ihash] != "1048576" {
		t.Error("a setting that needs no proof waits")
	}
	// One responding server is enough.
	w.tryServer = func(server connect.Server) error {
		if server.Name == "filer1" {
			return errors.New("no route to host")
		}
		return w.tryConnection("no answer")
	}
	w.runFor(a, 5*time.Minute)
	w.expect(v1alpha1.SettingInSync, "8192 131072 6291456", "8192 131072 6291456")
}

func TestAProvenValueIsNotProvenAgain(t *testing.T) {
	w := newConfirmWorld(t)
	w.declare(setting(tcpRmem, "8192 131072 6291456"))
	w.runFor(w.agent(), time.Second)
	w.sizes = nil
	w.runFor(w.agent(), 2*time.Minute)
	w.boot()
	a := w.runFor(w.agent(), 2*time.Minute)
	w.live[tcpRmem] = usual
	w.runFor(a, 2*time.Minute)
	w.expect(v1alpha1.SettingInSync, "8192 131072 6291456", "8192 131072 6291456")
	if len(w.sizes) > 0 {
		t.Errorf("got another proof after a restart, a boot and drift: %v", w.sizes)
	}
}

func TestAnEffectiveValueNeedsOnlyItsFile(t *testing.T) {
	w := newConfirmWorld(t)
	w.declare(setting(tcpRmem, "4096\t131072  6291456"), setting(rmem, "212992"))
	w.clientNode.Spec.Settings[0].Value = usual
	w.runFor(w.agent(), time.Second)
	w.expect(v1alpha1.SettingInSync, usual, usual)
	if len(w.sizes) > 0 {
		t.Errorf("got proofs: %v, want none", w.sizes)
	}
}

func TestACanaryReadsMore(t *testing.T) {
	for canary, want := range map[bool]int64{true: 1 << 20, false: 64 << 10} {
		w := newConfirmWorld(t)
		w.declare(setting(tcpRmem, "8192 131072 6291456"))
		w.clientNode.Spec.Canary = canary
		w.runFor(w.agent(), time.Second)
		if diff := cmp.Diff([]int64{want}, w.sizes); diff != "" {
			t.Errorf("canary %t (-want +got):\n%s", canary, diff)
		}
	}
}

func TestOnlyTheCanaryMakesItsFirstAttemptAtOnce(t *testing.T) {
	for canary, want := range map[bool]int{true: 1, false: 0} {
		w := newConfirmWorld(t)
		w.declare(setting(tcpRmem, "8192 131072 6291456"))
		w.clientNode.Spec.Canary = canary
		a := w.agent()
		a.settings.proof.jitter = func(d time.Duration) time.Duration { return d }
		w.runPass(a)
		if len(w.sizes) != want {
			t.Errorf("canary %t: got %d immediate attempts, want %d", canary, len(w.sizes), want)
		}
		w.runFor(a, proofJitter+time.Second)
		w.expect(v1alpha1.SettingInSync, "8192 131072 6291456", "8192 131072 6291456")
	}
}

func TestANewSpecFirstRevertsTheValuesUnderTest(t *testing.T) {
	tests := map[string]struct {
		change func(w *world)
		want   string
	}{
		"another value": {func(w *world) { w.declare(setting(tcpRmem, "8192 131072 6291456")) }, "8192 131072 6291456"},
		"no value":      {func(w *world) { w.declare() }, usual},
		"a release": {func(w *world) {
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
		}, usual},
		"no StorageClientNode": {func(w *world) { w.isMissing = true }, usual},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newConfirmWorld(t)
			w.declare(setting(tcpRmem, fatal))
			a := w.runFor(w.agent(), time.Second)
			if w.live[tcpRmem] != fatal {
				t.Fatal("the value is not set")
			}
			test.change(w)
			w.runFor(a, time.Second)
			if w.live[tcpRmem] != test.want || w.unconfirmed() != nil {
				t.Errorf("got live value %q, unconfirmed %+v", w.live[tcpRmem], w.unconfirmed())
			}
		})
	}
}

func TestAStoppedAgentRevertsUnconfirmedValues(t *testing.T) {
	w := newConfirmWorld(t)
	w.declare(setting(tcpRmem, fatal))
	a := w.agent()
	ctx, cancel := context.WithCancel(t.Context())
	w.proved = func(int64) error {
		if w.live[tcpRmem] != fatal {
			t.Error("the value is not set")
		}
		cancel()
		return errors.New("the agent stops")
	}
	a.Run(ctx)
	if w.live[tcpRmem] != usual || w.unconfirmed() != nil || len(w.files) > 0 {
		t.Errorf("got live value %q, unconfirmed %+v, file %v", w.live[tcpRmem], w.unconfirmed(), w.files)
	}
}

// The wall clock jumps at some moment of a proof: chrony steps it, or a virtual machine is resumed.
func TestAJumpOfTheClockDoesNotAffectAProof(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour, -30 * time.Second, 30 * time.Second} {
		for _, after := range []time.Duration{0, time.Second, confirmWithin - time.Second, confirmWithin, confirmWithin + 5*time.Second} {
			t.Run(fmt.Sprintf("%s after %s", jump, after), func(t *testing.T) {
				// The events of each second, with and without the jump.
				var histories [2][]string
				for i := range histories {
					w := newConfirmWorld(t)
					w.declare(setting(tcpRmem, fatal))
					a := w.agent()
					for passed := time.Duration(0); passed < 2*time.Minute; passed += time.Second {
						if passed == after && i == 1 {
							w.clock.jump(jump)
						}
						w.runPass(a)
						histories[i] = append(histories[i], fmt.Sprintf("%s: %s, unconfirmed %t, %d attempts", passed, w.live[tcpRmem], w.unconfirmed() != nil, len(w.sizes)))
						w.clock.Step(time.Second)
					}
					w.expect(v1alpha1.SettingFailed, usual, "")
					// One at once, one after each pause, and one at the end with the old value.
					if want := int(confirmWithin/proofPause) + 1; len(w.sizes) != want {
						t.Errorf("got %d attempts, want %d", len(w.sizes), want)
					}
				}
				if diff := cmp.Diff(histories[0], histories[1]); diff != "" {
					t.Errorf("with the jump (-without +with):\n%s", diff)
				}
			})
		}
	}
}

// A new agent needs no API server to revert the values of its predecessor. It tries them once more.
func TestAKilledAgentLeavesNoUnconfirmedValue(t *testing.T) {
	for _, boots := range []bool{false, true} {
		t.Run(fmt.Sprintf("boots: %t", boots), func(t *testing.T) {
			w := newConfirmWorld(t)
			w.declare(setting(tcpRmem, fatal))
			for attempt := range 3 {
				w.runPass(w.agent())
				if tried := w.live[tcpRmem] == fatal; tried != (attempt < 2) {
					t.Fatalf("attempt %d: tried %t: %s", attempt, tried, w.message(tcpRmem))
				}
				if boots {
					w.boot()
				}
				w.isMissing = true
				w.runPass(w.agent())
				w.isMissing = false
				if w.live[tcpRmem] != usual || w.unconfirmed() != nil || len(w.files) > 0 {
					t.Fatalf("got live value %q, unconfirmed %+v, file %v", w.live[tcpRmem], w.unconfirmed(), w.files)
				}
			}
			w.expect(v1alpha1.SettingFailed, usual, "")
			if !strings.Contains(w.message(tcpRmem), "stopped twice") {
				t.Errorf("message: got %q", w.message(tcpRmem))
			}
		})
	}
}

func TestTheAttemptThatOutlastsAProofIsTheLast(t *testing.T) {
	for _, jump := range []time.Duration{0, -time.Hour, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			w := newConfirmWorld(t)
			fails := w.proved
			w.proved = func(size int64) error {
				if w.live[tcpRmem] == fatal {
					w.clock.Step(proofTimeout)
					w.clock.jump(jump)
				}
				return fails(size)
			}
			w.declare(setting(tcpRmem, fatal))
			a := w.agent()
			started := a.settings.machine.fromNow(0)
			for range int(confirmWithin / time.Second) {
				w.runPass(a)
				if duration := a.settings.machine.fromNow(0) - started; duration >= confirmWithin && w.live[tcpRmem] == fatal {
					t.Errorf("the fatal value is still live %s after it was set", duration)
				}
				w.clock.Step(time.Second)
			}
			w.expect(v1alpha1.SettingFailed, usual, "")
		})
	}
}

// A connection may take some time to work again after a fatal value is reverted. That is not an outage, even if the clock jumps.
func TestConnectionsHaveTimeToWorkAgain(t *testing.T) {
	for _, jump := range []time.Duration{0, -time.Hour, time.Hour} {
		for after, want := range map[time.Duration]v1alpha1.SettingState{
			retestWithin - 2*proofPause: v1alpha1.SettingFailed,
			retestWithin + 2*proofPause: v1alpha1.SettingPending,
		} {
			t.Run(fmt.Sprintf("%s, working after %s", jump, after), func(t *testing.T) {
				w := newConfirmWorld(t)
				w.outage = true
				w.declare(setting(tcpRmem, fatal))
				a := w.agent()
				w.runPass(a)
				w.runWhileFatal(a)
				if s := a.settings.outcome.settings[0]; s.State != v1alpha1.SettingPending || s.WaitsFor != v1alpha1.WaitsForConnections {
					t.Errorf("after the revert and before the next attempt: got %+v", s)
				}
				for passed := time.Duration(0); passed < time.Minute; passed += time.Second {
					if passed == 5*time.Second {
						w.clock.jump(jump)
					}
					w.outage = passed < after
					w.runPass(a)
					w.clock.Step(time.Second)
				}
				if w.state(tcpRmem) != want || w.live[tcpRmem] != usual {
					t.Errorf("%s: %s, live value %q; want %s", w.state(tcpRmem), w.message(tcpRmem), w.live[tcpRmem], want)
				}
			})
		}
	}
}

func TestALoopWakesForTheNextAttemptAfterAJumpOfTheClock(t *testing.T) {
	for _, jump := range []time.Duration{0, -time.Hour, time.Hour} {
		w := newConfirmWorld(t)
		w.declare(setting(tcpRmem, fatal))
		a := w.agent()
		w.runPass(a)
		w.clock.jump(jump)
		if wait := a.wakeAt().Sub(w.clock.Now()); wait > proofPause {
			t.Errorf("after a jump of %s: the loop sleeps for %s", jump, wait)
		}
	}
}

// A proof reports the status. If the generation of the permit is reported without Started, the manager may withdraw the permit.
func TestNothingIsProvenWhileAPermitIsUndecided(t *testing.T) {
	w := newConfirmWorld(t)
	w.declare(setting(tcpRmem, "8192 131072 6291456"))
	w.permit("p1")
	w.getErr = errors.New("connection refused")
	a := w.runFor(w.agent(), 30*time.Second)
	if len(w.sizes) > 0 || w.live[tcpRmem] != usual || w.clientNode.Status.ObservedGeneration != 0 {
		t.Errorf("got %d attempts, live value %q, generation %d is reported", len(w.sizes), w.live[tcpRmem], w.clientNode.Status.ObservedGeneration)
	}
	w.getErr = nil
	w.runFor(a, 2*time.Minute)
	w.expect(v1alpha1.SettingInSync, "8192 131072 6291456", "8192 131072 6291456")
}

// A loop that wakes for work that is not yet possible occupies a whole processor.
func TestTheLoopDoesNotWakeForWorkThatAProofDelays(t *testing.T) {
	for name, prepare := range map[string]func(*world, *Agent){
		"the check for drift, once the proof takes longer than a minute": func(w *world, _ *Agent) { w.outage = true },
		"a status whose last write has failed": func(w *world, a *Agent) {
			a.settings.proof.jitter = func(d time.Duration) time.Duration { return d }
			w.declare()
			w.writeErr = func(v1alpha1.StorageClientNodeStatus) error { return errors.New("no answer") }
			w.runPass(a)
			w.clock.Step(2 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newConfirmWorld(t)
			a := w.agent()
			prepare(w, a)
			w.declare(setting(tcpRmem, fatal))
			for range int((confirmWithin + retestWithin) / time.Second) {
				w.runPass(a)
				if wait := a.wakeAt().Sub(w.clock.Now()); wait <= 0 {
					t.Fatalf("the loop wakes at once, but %s has waited for %s", name, -wait)
				}
				w.clock.Step(time.Second)
			}
		})
	}
}

func TestTheRemainingTimeOfAProof(t *testing.T) {
	const now = time.Hour
	for name, test := range map[string]struct {
		deadline time.Duration
		bootID   string
		err      error
		want     time.Duration
	}{
		"a deadline ahead":                             {deadline: now + 15*time.Second, want: 15 * time.Second},
		"all of the time":                              {deadline: now + confirmWithin, want: confirmWithin},
		"more than all of the time":                    {deadline: now + confirmWithin + 1},
		"a deadline that is over":                      {deadline: now - time.Second},
		"a journal of the release before, without one": {},
		"another boot":                                 {deadline: now + 15*time.Second, bootID: "boot-0"},
		"a clock that cannot be read":                  {deadline: now + 15*time.Second, err: errors.New("no such clock")},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newMachineClock()
			clock.booted, clock.err = clock.Now().Add(-now), test.err
			u := journal.Unconfirmed{BootID: "boot-1", DeadlineSinceBoot: test.deadline, Deadline: clock.Now().Add(15 * time.Second)}
			if test.bootID != "" {
				u.BootID = test.bootID
			}
			check.Equal(t, "result", test.want, (Machine{BootClock: clock}).timeToProve(u, "boot-1"))
		})
	}
}

func TestNoValueIsTriedWithoutAClock(t *testing.T) {
	w := newConfirmWorld(t)
	w.clock.err = errors.New("read CLOCK_BOOTTIME: invalid argument")
	if _, err := New(Config{Host: w.host(), API: w, Clock: w.clock}); !errors.Is(err, w.clock.err) {
		t.Errorf("the agent starts: %v", err)
	}
	broken := w.clock.err
	w.clock.err = nil
	a := w.agent()
	w.clock.err = broken
	w.declare(setting(tcpRmem, "8192 131072 6291456"))
	w.runFor(a, time.Second)
	if want := "no settings changed on this node: " + broken.Error(); w.live[tcpRmem] != usual || w.message(tcpRmem) != want {
		t.Errorf("got live value %q, %q; want %q", w.live[tcpRmem], w.message(tcpRmem), want)
	}

	w.clock.err = nil
	w.declare(setting(tcpRmem, fatal))
	w.runPass(a)
	w.expect(v1alpha1.SettingPending, fatal, "")
	w.clock.err = broken
	w.runPass(a)
	if w.live[tcpRmem] != usual {
		t.Errorf("got live value %q though its time cannot be measured", w.live[tcpRmem])
	}
}

// An agent that cannot yet revert the values of its predecessor does not prove them either. Their time is over, and no record contains the
// server for their proof.
func TestAnAgentDoesNotProveValuesOfAnotherAgent(t *testing.T) {
	for name, edit := range map[string]func(data string) string{
		"of this release":       func(data string) string { return data },
		"of the release before": withoutFact,
		"with a strange deadline": func(data string) string {
			return regexp.MustCompile(`("unconfirmedDeadline": )"[^"]*"`).ReplaceAllString(data, `$1"2400h"`)
		},
		"with a deadline that is no time": func(data string) string {
			return regexp.MustCompile(`("unconfirmedDeadline": )"[^"]*"`).ReplaceAllString(data, `$1"soon"`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newConfirmWorld(t)
			w.outage = true
			w.declare(setting(tcpRmem, "8192 131072 6291456"))
			w.runPass(w.agent())
			w.outage, w.restoreErr = false, errors.New("read-only file system")
			w.write(journal.File, edit(hosttest.ReadFile(t, w.dir, journal.File)))
			a := w.runFor(w.agent(), 2*time.Minute)
			if w.live[tcpRmem] != "8192 131072 6291456" || w.unconfirmed() == nil || len(w.files) > 0 {
				t.Fatalf("got live value %q, unconfirmed %+v, file %v", w.live[tcpRmem], w.unconfirmed(), w.files)
			}
			check.Equal(t, "message", "no settings changed on this node: cannot revert "+tcpRmem+": read-only file system", w.message(tcpRmem))
			w.restoreErr, w.log = nil, nil
			w.runFor(a, maxRetry+2*driftInterval)
			reverted, tried := slices.Index(w.log, "restore "+tcpRmem), slices.Index(w.log, "try "+tcpRmem)
			if reverted < 0 || tried < reverted {
				t.Errorf("got steps %v, want a revert, and then an attempt by this agent", w.log)
			}
			w.expect(v1alpha1.SettingInSync, "8192 131072 6291456", "8192 131072 6291456")
		})
	}
}

// withoutFact converts a journal to the previous release, which has no deadline by the boot clock.
func withoutFact(data string) string {
	return regexp.MustCompile(`"unconfirmedDeadline": "[^"]*"`).ReplaceAllString(data, `"other": ""`)
}

func TestAValueThatTheKernelRejectsIsRevertedAndNotProven(t *testing.T) {
	w := newConfirmWorld(t)
	w.rejected = map[string]error{tcpRmem: errors.New("the kernel set 2 instead of 1")}
	w.declare(setting(tcpRmem, "8192 131072 6291456"), setting(rmem, "16777216"))
	w.runFor(w.agent(), time.Second)
	w.expect(v1alpha1.SettingFailed, usual, "")
	if w.state(rmem) != v1alpha1.SettingInSync || w.files[rmem] != "16777216" || len(w.journal()) != 1 {
		t.Errorf("the other: %s, journal %v", w.state(rmem), w.journal())
	}
}

// A crash may happen at any step, with a good or a fatal value. The effective value is then the old one, is unconfirmed in the journal, or
// is confirmed. No file contains an unconfirmed value.
func TestACrashAtAnyStepOfAProofLeavesNoFatalValue(t *testing.T) {
	for _, value := range []string{fatal, "8192 131072 6291456"} {
		t.Run(value, func(t *testing.T) {
			for n := 1; ; n++ {
				w := newConfirmWorld(t)
				w.declare(setting(tcpRmem, value), setting(rmem, "16777216"), setting(ihash, "1048576"))
				w.dieAt = n
				a, died := w.agent(), false
				for range 130 {
					if w.runPass(a) {
						died = true
						w.expectSafe(n, value)
						a = w.agent()
					}
					w.clock.Step(time.Second)
				}
				if value == fatal {
					w.expect(v1alpha1.SettingFailed, usual, "")
				} else {
					w.expect(v1alpha1.SettingInSync, value, value)
				}
				if w.unconfirmed() != nil {
					t.Fatalf("crash %d: unconfirmed %+v", n, w.unconfirmed())
				}
				if !died {
					if n < 15 {
						t.Errorf("got only %d steps", n-1)
					}
					return
				}
			}
		})
	}
}

func (w *world) expectSafe(n int, value string) {
	w.t.Helper()
	u, confirmed := w.unconfirmed(), w.journal()[tcpRmem].Applied == value
	isUnconfirmed := u != nil && u.Settings[tcpRmem].Before.Value == usual
	if w.live[tcpRmem] != usual && !isUnconfirmed && !confirmed {
		w.t.Fatalf("crash %d: the live value %q is not in the journal: %v", n, w.live[tcpRmem], w.log)
	}
	if w.files[tcpRmem] != "" && (!confirmed || value == fatal) {
		w.t.Fatalf("crash %d: the file contains the unconfirmed value %q: %v", n, w.files[tcpRmem], w.log)
	}
}

func present(value string) host.Original { return host.Original{Present: true, Value: value} }

// A server responds when it is chosen, is silent during the proof, and responds again. It sees each test as a new connection. The value is
// reverted, and the report names the connections that failed with it.
func TestAFailedValueNamesTheConnections(t *testing.T) {
	tenant, second := connect.Server{Name: "tenant", Address: "10.9.9.9:2049", Protocol: connect.NFS, Version: 4}, filer
	third := connect.Server{Name: "filer2", Address: "10.0.0.2:2049", Protocol: connect.NFS, Version: 4}
	for name, test := range map[string]struct {
		servers []connect.Server
		fails   []string
		want    []string
	}{
		"one server, while the API server responds":       {servers: []connect.Server{tenant}, fails: []string{"tenant"}, want: []string{"tenant"}},
		"one server, while its witness responds":          {servers: []connect.Server{tenant, second}, fails: []string{"tenant"}, want: []string{"tenant"}},
		"one server and the witness":                      {servers: []connect.Server{tenant, second, third}, fails: []string{"tenant", "filer1", "filer2"}, want: []string{"filer1", "tenant"}},
		"one server and the API server":                   {servers: []connect.Server{tenant, second}, fails: []string{"tenant", v1alpha1.ConnectionAPIServer}, want: []string{v1alpha1.ConnectionAPIServer, "tenant"}},
		"the API server":                                  {servers: []connect.Server{tenant}, fails: []string{v1alpha1.ConnectionAPIServer}, want: []string{v1alpha1.ConnectionAPIServer}},
		"the API server of a host without network mounts": {fails: []string{v1alpha1.ConnectionAPIServer}, want: []string{v1alpha1.ConnectionAPIServer}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newConfirmWorld(t)
			w.servers = test.servers
			try := func(name string) error {
				if w.live[tcpRmem] != usual && slices.Contains(test.fails, name) {
					return errors.New("i/o timeout")
				}
				return nil
			}
			w.tryServer = func(server connect.Server) error { return try(server.Name) }
			w.proved = func(int64) error { return try(v1alpha1.ConnectionAPIServer) }
			w.declare(setting(tcpRmem, "8192 131072 6291456"))
			a := w.runFor(w.agent(), confirmWithin+retestWithin)
			w.expect(v1alpha1.SettingFailed, usual, "")
			got := func() []string { return w.clientNode.Status.Settings[0].FailedConnections }
			check.Equal(t, "failed connections", test.want, got())
			w.runFor(a, time.Hour)
			w.boot()
			w.runFor(w.agent(), time.Minute)
			check.Equal(t, "failed connections after a boot", test.want, got())
		})
	}
}

// A witness that does not work without the value either was no witness.
func TestAWitnessThatStaysSilentIsNoWitness(t *testing.T) {
	w := newConfirmWorld(t)
	tenant := connect.Server{Name: "tenant", Address: "10.9.9.9:2049", Protocol: connect.NFS, Version: 4}
	w.servers = []connect.Server{tenant, filer}
	outage := false
	w.tryServer = func(server connect.Server) error {
		changed := w.live[tcpRmem] != usual
		outage = outage || changed
		if changed || server == filer && outage {
			return errors.New("i/o timeout")
		}
		return nil
	}
	w.proved = func(int64) error { return nil }
	w.declare(setting(tcpRmem, "8192 131072 6291456"))
	w.runFor(w.agent(), confirmWithin+retestWithin)
	check.Equal(t, "failed connections", []string{"tenant"}, w.clientNode.Status.Settings[0].FailedConnections)
}
