package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const aptLock = "/var/lib/dpkg/lock-frontend is locked by apt-get (process 1234)"

// waiting is a world whose node has a permit and whose host is busy.
func waiting(t *testing.T) (*world, *Agent) {
	t.Helper()
	w, a := pending(t)
	w.holders = []string{aptLock}
	w.permit("p1")
	return w, w.runUntilIdle(a)
}

// expectWaiting fails unless the permit waits, neither used nor rejected.
func (w *world) expectWaiting(a *Agent, message string) {
	w.t.Helper()
	if _, used := a.settings.machine.Journal.UsedPermit("p1"); used || len(w.reboots) > 0 {
		w.t.Errorf("got permit used %t, reboots %v", used, w.reboots)
	}
	got := w.clientNode.Status.Reboot
	if got == nil || got.PermitID != "p1" || got.Phase != v1alpha1.RebootWaiting || !strings.Contains(got.Message, message) {
		w.t.Errorf("reboot: got %+v, want Waiting with %q", got, message)
	}
	if seen := w.clientNode.Status.ObservedGeneration; seen != w.clientNode.Generation {
		w.t.Errorf("generation %d is reported, want %d, so that the manager may withdraw the permit", seen, w.clientNode.Generation)
	}
}

func TestAPermitWaitsForABusyHost(t *testing.T) {
	w, a := waiting(t)
	w.expectWaiting(a, aptLock)
	w.holders = nil
	w.runUntilIdle(a)
	check.Equal(t, "reboots after the work on the host has ended", []string{"p1"}, w.reboots)
}

func TestAHostThatCannotBeQueriedIsNotRebooted(t *testing.T) {
	w, a := pending(t)
	w.holdersErr = errors.New("no answer from logind")
	w.permit("p1")
	a = w.runUntilIdle(a)
	w.expectWaiting(a, "cannot list the work that a reboot would interrupt: no answer from logind")
}

func TestABusyHostIsCheckedPeriodically(t *testing.T) {
	w, a := waiting(t)
	w.clock.Step(30 * time.Second)
	w.holderReads, w.gets = 0, 0
	for range 60 {
		w.runPass(a)
		w.clock.Step(time.Second)
	}
	if w.holderReads < 3 || w.holderReads > 4 || w.gets != w.holderReads {
		t.Errorf("got %d queries of the host and %d reads of the API server within a minute", w.holderReads, w.gets)
	}
}

func TestARestartedAgentKeepsWaitingWithItsPermit(t *testing.T) {
	w, _ := waiting(t)
	a := w.runUntilIdle(w.agent())
	w.expectWaiting(a, aptLock)
	w.holders = nil
	w.runUntilIdle(w.agent())
	check.Equal(t, "reboots after the work on the host has ended", []string{"p1"}, w.reboots)
}

func TestAPermitThatIsWithdrawnWhileItWaitsIsNotUsed(t *testing.T) {
	w, a := waiting(t)
	stale := w.clientNode.DeepCopy()
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = nil })
	w.holders = nil
	w.clock.Step(time.Minute)
	a.takeClientNode(stale)
	a.runPass(t.Context())
	w.runUntilIdle(a)
	if _, used := a.settings.machine.Journal.UsedPermit("p1"); used || len(w.reboots) > 0 || w.clientNode.Status.Reboot != nil {
		t.Errorf("got used %t, reboots %v, status %+v", used, w.reboots, w.clientNode.Status.Reboot)
	}
}

func TestChangesWhileAPermitWaitsRejectIt(t *testing.T) {
	w, a := waiting(t)
	w.busy = []mounts.Busy{{MountPoint: "/k/plugins/x", FSType: "nfs4"}}
	w.holders = nil
	a = w.runUntilIdle(a)
	w.busy = nil
	w.runUntilIdle(a)
	got := w.clientNode.Status.Reboot
	if len(w.reboots) > 0 || got == nil || got.Phase != v1alpha1.RebootRefused {
		t.Errorf("got reboots %v, status %+v; want none, and a permanent Refused", w.reboots, got)
	}
}

// A running package manager may write the menu that contains the trial boot.
func TestTheTrialBootIsNotArmedWhileTheHostIsBusy(t *testing.T) {
	h := newTryingHost(t)
	h.stage()
	h.boot()
	h.start("ihash_entries")
	a := h.runUntilIdle(h.agent())
	h.holders = []string{aptLock}
	h.permit("permit-1")
	before := len(h.log)
	a = h.runUntilIdle(a)
	if written := slices.DeleteFunc(h.log[before:], func(step string) bool { return step == "status" }); len(written) > 0 {
		t.Errorf("written while the host is busy: %v", written)
	}
	h.holders = nil
	h.permitted(a, "")
}
