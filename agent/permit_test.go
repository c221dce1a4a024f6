package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// pending returns a world with a node that waits for its reboot.
func pending(t *testing.T) (*world, *Agent) {
	t.Helper()
	w := newWorld(t)
	w.declare(declared()...)
	a := w.runUntilIdle(w.agent())
	return w, a
}

func TestAPermitRebootsOnce(t *testing.T) {
	w, a := pending(t)
	w.permit("p1")
	a = w.runUntilIdle(a)
	check.Equal(t, "reboots", []string{"p1"}, w.reboots)
	s := w.clientNode.Status
	if s.BootID != "boot-2" || s.RebootRequired || w.state(ihash) != v1alpha1.SettingInSync {
		t.Errorf("got boot %s, reboot required %v, %s; want boot-2, false, InSync", s.BootID, s.RebootRequired, w.state(ihash))
	}
	check.Equal(t, "reboot", &v1alpha1.RebootStatus{PermitID: "p1", Phase: v1alpha1.RebootStarted}, s.Reboot)
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = nil })
	w.runUntilIdle(a)
	if w.clientNode.Status.Reboot != nil {
		t.Errorf("a withdrawn permit is still reported: %+v", w.clientNode.Status.Reboot)
	}
}

// A setting that the fence reports as Unsupported is never staged, like a setting that the kernel would clamp. The manager treats it as an
// exception and drains the node for the other settings. The agent must accept that reboot.
func TestAPermitIsUsedNextToABootSettingThatTheFenceDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	w.declare(append(declared(), setting("kernelArgument/of_a_later_release", "1"))...)
	a := w.runUntilIdle(w.agent())
	if got := w.state("kernelArgument/of_a_later_release"); got != v1alpha1.SettingUnsupported || w.state(ihash) != v1alpha1.SettingPending {
		t.Fatalf("states: got %s and %s, want Unsupported and Pending", got, w.state(ihash))
	}
	w.permit("p1")
	w.runUntilIdle(a)
	if diff := cmp.Diff([]string{"p1"}, w.reboots); diff != "" {
		t.Errorf("reboots (-want +got):\n%s; %+v", diff, w.clientNode.Status.Reboot)
	}
}

func TestAPermitIsRejected(t *testing.T) {
	pod := "11111111-2222-3333-4444-555555555555"
	tests := map[string]struct {
		arrange func(w *world)
		message string
	}{
		"for another boot hash": {
			func(w *world) { w.clientNode.Spec.RebootPermit.BootHash = "other" }, "the permit is for boot hash",
		},
		"for another boot": {
			func(w *world) { w.clientNode.Spec.RebootPermit.BootID = "boot-0" }, "the permit is for boot boot-0",
		},
		"while a pod's mount is left": {
			func(w *world) { w.busy = []mounts.Busy{{MountPoint: "/k/pods/x", PodUID: pod, FSType: "nfs4"}} },
			"still mounted: /k/pods/x",
		},
		"while a global mount is left": {
			func(w *world) {
				w.busy = []mounts.Busy{{MountPoint: "/k/plugins/x", FSType: "nfs4"}}
				w.clientNode.Spec.RebootPermit.IgnorePodUIDs = []string{""}
			}, "still mounted: /k/plugins/x",
		},
		"while mounts cannot be read": {
			func(w *world) { w.mountErr = errors.New("no mountinfo") }, "no mountinfo",
		},
		"while a mount cannot be understood": {
			func(w *world) { w.malformed = 1 }, "cannot read 1 line of the mount table",
		},
		"when no setting is waiting for a reboot": {
			func(w *world) { w.live[ihash] = "16777216" }, "no setting is waiting for a reboot",
		},
		"with a setting for the next boot that the fence rejects": {
			func(w *world) { w.clientNode.Spec.Settings[0].Value = "-1" }, "the node would fail after its boot with these settings: " + ihash,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, a := pending(t)
			w.permit("p1")
			test.arrange(w)
			a = w.runUntilIdle(a)
			got := w.clientNode.Status.Reboot
			if got == nil || got.Phase != v1alpha1.RebootRefused || !strings.Contains(got.Message, test.message) {
				t.Errorf("reboot: got %+v, want Refused with %q", got, test.message)
			}
			// The obstacle is removed, but the permit already has a result. The manager may withdraw it at any time.
			w.busy, w.malformed, w.mountErr = nil, 0, nil
			w.clientNode.Spec.RebootPermit.BootHash, w.clientNode.Spec.RebootPermit.BootID = w.clientNode.Spec.BootHash, w.bootID()
			w.runUntilIdle(a)
			w.runUntilIdle(w.agent())
			if len(w.reboots) != 0 {
				t.Errorf("unexpected reboots %v", w.reboots)
			}
		})
	}
}

// TestMountsOfPodsThatStayAreIgnored includes the global mounts of volumes that a driver stages once per node. The driver keeps them while a pod uses
// them.
func TestMountsOfPodsThatStayAreIgnored(t *testing.T) {
	for name, c := range map[string]struct {
		mount   mounts.Busy
		ignored bool
	}{
		"a pod's own mount":                       {mounts.Busy{PodUID: "stays"}, true},
		"a global mount of that pod":              {mounts.Busy{PodUIDs: []string{"stays"}}, true},
		"a global mount of two such pods":         {mounts.Busy{PodUIDs: []string{"static", "stays"}}, true},
		"a global mount that another pod uses":    {mounts.Busy{PodUIDs: []string{"other", "stays"}}, false},
		"a global mount of unknown pods":          {mounts.Busy{}, false},
		"a global mount of more pods than listed": {mounts.Busy{PodUIDs: slices.Repeat([]string{"stays"}, 17)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := pending(t)
			c.mount.MountPoint, c.mount.FSType = "/k/x", "nfs4"
			w.busy = []mounts.Busy{c.mount}
			w.permit("p1")
			w.clientNode.Spec.RebootPermit.IgnorePodUIDs = []string{"stays", "static"}
			w.runUntilIdle(a)
			if rebooted := len(w.reboots) == 1; rebooted != c.ignored {
				t.Errorf("got reboots %v, status %+v; want a reboot: %t", w.reboots, w.clientNode.Status.Reboot, c.ignored)
			}
			reported := w.clientNode.Status.BusyMounts
			if len(reported) != 1 || reported[0].IsIgnored([]string{"stays", "static"}) != c.ignored {
				t.Errorf("got %+v reported to the manager, want it to be ignored: %t", reported, c.ignored)
			}
		})
	}
}

func TestAUsedPermitIsNeverUsedAgain(t *testing.T) {
	w, a := pending(t)
	w.permit("p1")
	// The agent crashes between the journal and the announcement. The next agent finds the permit again.
	w.dieAt = w.steps + permitSteps(t)
	a = w.runUntilIdle(a)
	if len(w.reboots) != 0 {
		t.Fatalf("unexpected reboots %v", w.reboots)
	}
	got := w.clientNode.Status.Reboot
	if got == nil || got.Phase != v1alpha1.RebootFailed || !strings.Contains(got.Message, "permit used, not rebooted") {
		t.Errorf("reboot: got %+v, want Failed", got)
	}
	w.permit("p2")
	w.runUntilIdle(a)
	check.Equal(t, "reboots", []string{"p2"}, w.reboots)
}

// A permit that is not recorded as used might be used again after the boot.
func TestNoRebootWithAPermitThatCannotBeJournalled(t *testing.T) {
	w, a := pending(t)
	w.journalErr = errors.New("no space left on device")
	w.permit("p1")
	a = w.runUntilIdle(a)
	got := w.clientNode.Status.Reboot
	if got == nil || got.Phase != v1alpha1.RebootFailed || !strings.Contains(got.Message, "not recorded in the journal") {
		t.Errorf("reboot: got %+v, want Failed", got)
	}
	w.journalErr = nil
	w.runUntilIdle(a)
	if len(w.reboots) != 0 {
		t.Errorf("unexpected reboots %v", w.reboots)
	}
}

// permitSteps counts the changes up to the announcement of a reboot.
func permitSteps(t *testing.T) int {
	t.Helper()
	w, a := pending(t)
	w.permit("p1")
	before := w.steps
	w.runPass(a)
	for i, step := range w.log[before:] {
		if step == "status" {
			return i + 1
		}
	}
	t.Fatal("the reboot is not announced")
	return 0
}

func TestNoRebootWithoutItsAnnouncement(t *testing.T) {
	w, a := pending(t)
	w.writeErr = func(status v1alpha1.StorageClientNodeStatus) error {
		if status.Reboot != nil && status.Reboot.Phase == v1alpha1.RebootStarted {
			return errors.New("admission refuses")
		}
		return nil
	}
	w.permit("p1")
	a = w.runUntilIdle(a)
	w.writeErr = nil
	w.runUntilIdle(a)
	w.runUntilIdle(w.agent())
	if len(w.reboots) != 0 {
		t.Errorf("unexpected reboots %v", w.reboots)
	}
	got := w.clientNode.Status.Reboot
	if got == nil || got.Phase != v1alpha1.RebootFailed {
		t.Errorf("reboot: got %+v, want Failed", got)
	}
}

func TestAPermitThatIsWithdrawnInBetweenIsNotUsed(t *testing.T) {
	w, a := pending(t)
	w.permit("p1")
	// The manager withdraws it after the live read of the agent.
	w.writeErr = func(v1alpha1.StorageClientNodeStatus) error {
		w.writeErr = nil
		w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = nil })
		return nil
	}
	w.runUntilIdle(a)
	if len(w.reboots) != 0 {
		t.Errorf("unexpected reboots %v", w.reboots)
	}
}

// The end of a permit is a time of the API server. The agent's clock does not matter.
func TestAPermitEnds(t *testing.T) {
	end := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		end, date time.Time
		clock     time.Duration
		phase     v1alpha1.RebootPhase
	}{
		"in its last second":                {end, end, 0, v1alpha1.RebootStarted},
		"a second later":                    {end, end.Add(time.Second), 0, v1alpha1.RebootRefused},
		"days later":                        {end, end.Add(77 * time.Hour), 0, v1alpha1.RebootRefused},
		"in its time, and a clock is ahead": {end, end.Add(-time.Minute), 1000 * time.Hour, v1alpha1.RebootStarted},
		"later, and a clock is behind":      {end, end.Add(time.Minute), -1000 * time.Hour, v1alpha1.RebootRefused},
		"the API server names no time":      {end, time.Time{}, 0, ""},
		"of an older manager":               {time.Time{}, time.Time{}, 0, v1alpha1.RebootStarted},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := pending(t)
			w.clock.SetTime(end.Add(test.clock))
			w.date = test.date
			w.permitUntil("p1", test.end)
			a = w.runUntilIdle(a)
			got := v1alpha1.RebootPhase("")
			if reboot := w.clientNode.Status.Reboot; reboot != nil {
				got = reboot.Phase
			}
			if got != test.phase || (len(w.reboots) == 1) != (test.phase == v1alpha1.RebootStarted) {
				t.Errorf("got reboots %v and status %+v, want phase %q", w.reboots, w.clientNode.Status.Reboot, test.phase)
			}
			if test.phase != "" {
				return
			}
			if w.clientNode.Status.ObservedGeneration == w.clientNode.Generation {
				t.Error("the undecided permit is reported")
			}
			w.date = end
			w.clock.Step(time.Minute)
			if w.runUntilIdle(a); len(w.reboots) != 1 {
				t.Errorf("with a date: got status %+v, want a reboot", w.clientNode.Status.Reboot)
			}
		})
	}
}

// The permit ends while another writer delays the announcement, or while the host is busy. In the first case, it is used up already.
func TestAPermitThatEndsBeforeItsAnnouncementIsNotUsed(t *testing.T) {
	end := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for name, date := range map[string]time.Time{"another time": end.Add(time.Second), "no time": {}} {
		w, a := pending(t)
		w.date = end
		w.writeErr = func(v1alpha1.StorageClientNodeStatus) error {
			w.writeErr, w.date = nil, date
			w.bump()
			return nil
		}
		w.permitUntil("p1", end)
		w.runUntilIdle(a)
		if got := w.clientNode.Status.Reboot; len(w.reboots) != 0 || got == nil || got.Phase != v1alpha1.RebootFailed {
			t.Errorf("%s: got reboots %v and status %+v, want Failed", name, w.reboots, got)
		}
	}
	w, a := pending(t)
	w.date, w.holders = end, []string{"apt-get"}
	w.permitUntil("p1", end)
	a = w.runUntilIdle(a)
	w.date, w.holders = end.Add(time.Second), nil
	w.clock.Step(time.Minute)
	w.runUntilIdle(a)
	if got := w.clientNode.Status.Reboot; len(w.reboots) != 0 || got == nil || got.Phase != v1alpha1.RebootRefused {
		t.Errorf("after a busy host: got reboots %v and status %+v, want Refused", w.reboots, got)
	}
}

func TestAForeignStatusWriteDoesNotCostThePermit(t *testing.T) {
	w, a := pending(t)
	w.permit("p1")
	w.writeErr = func(v1alpha1.StorageClientNodeStatus) error {
		w.writeErr = nil
		w.bump()
		return nil
	}
	w.runUntilIdle(a)
	if len(w.reboots) != 1 {
		t.Errorf("no reboot, status %+v", w.clientNode.Status.Reboot)
	}
}

func TestAnUndecidedPermitIsNotReported(t *testing.T) {
	w, a := pending(t)
	w.getErr = errors.New("connection refused")
	w.permit("p1")
	w.runUntilIdle(a)
	if got := w.clientNode.Status.ObservedGeneration; got == w.clientNode.Generation {
		t.Errorf("generation %d is reported, so the manager might withdraw the permit", got)
	}
	w.gets = 0
	for range 100 {
		w.runPass(a)
	}
	if w.gets > 1 {
		t.Errorf("got %d immediate reads while the API server does not respond", w.gets)
	}
	w.getErr = nil
	w.clock.Step(time.Minute)
	w.runUntilIdle(a)
	if len(w.reboots) != 1 {
		t.Errorf("no reboot, status %+v", w.clientNode.Status.Reboot)
	}
}

func TestANewerSpecIsAppliedBeforeThePermit(t *testing.T) {
	w, a := pending(t)
	w.permit("p1")
	stale := w.clientNode.DeepCopy()
	w.declare(setting(ihash, "33554432"))
	w.clientNode.Spec.RebootPermit.BootHash = "boot-hash"
	a.takeClientNode(stale)
	a.runPass(t.Context())
	if len(w.reboots) != 0 {
		t.Fatalf("rebooted for an old spec")
	}
	w.clock.Step(time.Minute)
	w.runUntilIdle(a)
	if len(w.reboots) != 1 || w.live[ihash] != "33554432" {
		t.Errorf("got reboots %v, live value %s; want one reboot with the newer value", w.reboots, w.live[ihash])
	}
}

func TestAPermitThatTheStatusReportsAsStartedIsNotUsed(t *testing.T) {
	w, a := pending(t)
	w.permit("p1")
	w.clientNode.Status.Reboot = &v1alpha1.RebootStatus{PermitID: "p1", Phase: v1alpha1.RebootStarted}
	w.runUntilIdle(a)
	got := w.clientNode.Status.Reboot
	if len(w.reboots) != 0 || got == nil || got.Phase != v1alpha1.RebootFailed {
		t.Errorf("got reboots %v, status %+v; want no reboot and Failed", w.reboots, got)
	}
}

func TestAHostThatRejectsTheRebootIsReported(t *testing.T) {
	w, a := pending(t)
	w.rebootErr = errors.New("operation inhibited")
	w.permit("p1")
	a = w.runUntilIdle(a)
	got := w.clientNode.Status.Reboot
	if got == nil || got.Phase != v1alpha1.RebootFailed || !strings.Contains(got.Message, "operation inhibited") {
		t.Errorf("reboot: got %+v, want Failed with a reason", got)
	}
	w.rebootErr = nil
	w.runUntilIdle(a)
	w.runUntilIdle(w.agent())
	if len(w.reboots) != 0 {
		t.Errorf("unexpected reboots %v", w.reboots)
	}
}
