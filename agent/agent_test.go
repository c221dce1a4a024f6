package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/mounts"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/agent/reporter"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func declared() []v1alpha1.NodeSetting {
	return []v1alpha1.NodeSetting{setting(ihash, "16777216"), setting(rmem, "16777216")}
}

func TestDeclaredSettingsAreAppliedStagedAndReported(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	w.runUntilIdle(w.agent())

	got := w.clientNode.Status
	ready := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(time.Unix(1700000000, 0).UTC()),
		Reason: v1alpha1.NodeReasonRebootPending, Message: "Takes effect at the next boot: " + ihash,
	}
	stalled := ready
	stalled.Type = "Stalled"
	want := v1alpha1.StorageClientNodeStatus{
		ObservedGeneration: 1, Hash: w.clientNode.Spec.Hash, BootID: "boot-1", KernelVersion: "6.1.0-test",
		Conditions: []metav1.Condition{ready, stalled},
		Bootloader: &v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubDebian, Proven: true},
		Settings: []v1alpha1.SettingStatus{
			{Key: ihash, Desired: "16777216", TakesEffect: v1alpha1.EffectReboot, State: v1alpha1.SettingPending, WaitsFor: v1alpha1.WaitsForBoot},
			{
				Key: rmem, Desired: "16777216", Observed: "16777216", Original: "212992",
				TakesEffect: v1alpha1.EffectLive, State: v1alpha1.SettingInSync,
			},
		},
		RebootRequired: true, RebootRequiredBy: []string{ihash},
	}
	check.Equal(t, "status", want, got)
	if w.writes != 2 {
		t.Errorf("got %d status writes for one change, want one for the proof and one for the result", w.writes)
	}
	if len(w.reboots) != 0 {
		t.Errorf("rebooted without a permit")
	}
}

func TestARestartChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	w.runUntilIdle(w.agent())
	w.log = nil
	w.runUntilIdle(w.agent())
	check.Equal(t, "changes after a restart", []string{"status"}, w.log)
}

func TestNothingHappensWithoutAnObject(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	a := w.agent()
	for _, node := range []*v1alpha1.StorageClientNode{nil, w.clientNode.DeepCopy(), nil} {
		a.takeClientNode(node)
	}
	a.runPass(t.Context())
	if len(w.log) != 0 {
		t.Errorf("got changes %v", w.log)
	}
}

func TestRemovalAndRelease(t *testing.T) {
	retain := setting(rmem, "16777216")
	retain.OnRemoval = v1alpha1.DeletionRetain
	tests := map[string]struct {
		before, after []v1alpha1.NodeSetting
		release       bool
		reboot        bool
		live          map[string]string
		journal       []string
		restored      bool
		rebootBy      []string
	}{
		"a setting that is no longer declared is restored": {
			before: []v1alpha1.NodeSetting{setting(rmem, "16777216"), setting(wmem, "16777216")},
			after:  []v1alpha1.NodeSetting{setting(wmem, "16777216")},
			live:   map[string]string{rmem: "212992", wmem: "16777216"}, journal: []string{wmem},
		},
		"a retained setting stays": {
			before: []v1alpha1.NodeSetting{retain}, after: nil,
			live: map[string]string{rmem: "16777216", wmem: "212992"}, journal: []string{rmem},
		},
		"a release restores everything and removes the journal": {
			before: []v1alpha1.NodeSetting{setting(rmem, "16777216")}, after: []v1alpha1.NodeSetting{setting(rmem, "16777216")},
			release: true, live: map[string]string{rmem: "212992", wmem: "212992"}, restored: true,
		},
		"a release with a policy that has become Retain leaves the value": {
			before: []v1alpha1.NodeSetting{setting(rmem, "16777216")}, after: []v1alpha1.NodeSetting{retain},
			release: true, live: map[string]string{rmem: "16777216", wmem: "212992"}, journal: []string{rmem}, restored: true,
		},
		"an effective kernel argument is restored once it is removed from the menu, and still waits for a boot": {
			before: declared(), after: declared(), release: true, reboot: true,
			live:    map[string]string{rmem: "212992", wmem: "212992", ihash: "16777216"},
			journal: []string{ihash}, restored: true, rebootBy: []string{ihash},
		},
		"a kernel argument that never took effect leaves no trace": {
			before: declared(), after: declared(), release: true,
			live: map[string]string{rmem: "212992", wmem: "212992"}, restored: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.declare(test.before...)
			a := w.runUntilIdle(w.agent())
			if test.reboot {
				w.boot()
				a = w.runUntilIdle(w.agent())
			}
			w.declare(test.after...)
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = test.release })
			w.runUntilIdle(a)
			check.Equal(t, "live", test.live, w.live)
			var keys []string
			for key := range w.journal() {
				keys = append(keys, key)
			}
			check.Equal(t, "journal", test.journal, keys)
			check.Equal(t, "restored", test.restored, w.clientNode.Status.Restored)
			check.Equal(t, "rebootRequiredBy", test.rebootBy, w.clientNode.Status.RebootRequiredBy)
		})
	}
}

func TestAKernelArgumentThatTheNextBootStillPassesIsNotRestored(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	w.runUntilIdle(w.agent())
	w.boot()
	a := w.runUntilIdle(w.agent())
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	for _, kept := range []bool{true, false} {
		w.keptArgument = kept
		a = w.runFor(a, 10*time.Minute)
		if got := w.clientNode.Status.Restored; got == kept {
			t.Errorf("kept %t: got restored %t", kept, got)
		}
		r, err := Local{Machine: w.host().Machine, Clock: instantClock{w.clock}}.Run(t.Context(), localreport.Restore, nil)
		if err != nil || r.AsDeclared == kept {
			t.Errorf("kept %t: as restored %t, error %v", kept, r.AsDeclared, err)
		}
	}
}

func TestTheJournalIsRemovedAfterTheRestoringReboot(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	w.runUntilIdle(w.agent())
	w.boot()
	a := w.runUntilIdle(w.agent())
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	a = w.runUntilIdle(a)
	w.permit("restore")
	w.runUntilIdle(a)
	check.Equal(t, "reboots", []string{"restore"}, w.reboots)
	check.Equal(t, "live", w.defaults, w.live)
	if _, err := os.Stat(filepath.Dir(filepath.Join(w.dir, journal.Dir))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the journal still exists: %v", err)
	}
	if s := w.clientNode.Status; !s.Restored || s.RebootRequired || len(s.Settings) != 0 {
		t.Errorf("status: got %+v, want restored and no settings", s)
	}
}

// The life of a node, with a crash of the agent before each of its changes. The next agent continues,
// reaches the same state, keeps the originals, and never reboots without a permit.
func TestACrashAtAnyPointHasTheSameResult(t *testing.T) {
	for dieAt := 1; ; dieAt++ {
		if dieAt > 200 {
			t.Fatal("the test does not end after 200 crashes")
		}
		total := 0
		t.Run(fmt.Sprintf("before step %d", dieAt), func(t *testing.T) {
			w := newWorld(t)
			w.dieAt = dieAt
			runStory(t, w)
			total = w.steps
			if t.Failed() {
				t.Logf("steps: %s", strings.Join(w.log, "\n"))
			}
		})
		if dieAt > total {
			return
		}
	}
}

func runStory(t *testing.T, w *world) {
	t.Helper()
	permits := 0
	reboot := func(a *Agent) *Agent {
		for range 3 {
			if !w.clientNode.Status.RebootRequired {
				break
			}
			permits++
			w.permit(fmt.Sprintf("permit-%d", permits))
			a = w.runUntilIdle(a)
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = nil })
			a = w.runUntilIdle(a)
		}
		return a
	}
	w.declare(declared()...)
	a := reboot(w.runUntilIdle(w.agent()))
	want := maps.Clone(w.defaults)
	want[rmem], want[ihash] = "16777216", "16777216"
	check.Equal(t, "live after the rollout", want, w.live)
	originals := map[string]journal.Entry{
		rmem:  {Original: host.Original{Present: true, Value: "212992"}, Profile: "p", Applied: "16777216"},
		ihash: {Profile: "p", Applied: "16777216"},
	}
	check.Equal(t, "journal after the rollout", originals, w.journal())
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	w.runUntilIdle(reboot(w.runUntilIdle(a)))
	check.Equal(t, "live after the release", w.defaults, w.live)
	if !w.clientNode.Status.Restored || w.journal() != nil || len(w.files) != 0 || len(w.menu) != 0 {
		t.Errorf("after the release: restored %v, journal %v, files %v, menu %v", w.clientNode.Status.Restored, w.journal(), w.files, w.menu)
	}
	used := map[string]int{}
	for _, id := range w.reboots {
		used[id]++
		if used[id] > 1 {
			t.Errorf("permit %s was used twice", id)
		}
	}
}

func TestTheOriginalOutlivesChangesAndForeignValues(t *testing.T) {
	w := newWorld(t)
	w.declare(setting(rmem, "16777216"))
	a := w.runUntilIdle(w.agent())
	w.live[rmem] = "4194304"
	w.declare(setting(rmem, "33554432"))
	w.runUntilIdle(a)
	want := map[string]journal.Entry{
		rmem: {Original: host.Original{Present: true, Value: "212992"}, Profile: "p", Applied: "33554432"},
	}
	check.Equal(t, "journal", want, w.journal())
}

func TestNothingIsChangedWithoutAJournal(t *testing.T) {
	const newer = "a newer agent wrote the journal"
	tests := map[string]struct{ file, content, message string }{
		"an empty journal": {journal.File, "", "parse /var/lib/storage-client/journal/journal.json"},
		"a torn journal":   {journal.File, `{"version": 1, "entr`, "parse"},
		"a newer journal":  {journal.File, `{"version": 7}`, newer},
		"a wrong type":     {journal.File, `{"version": 1, "entries": {"sysctl/a": {"original": "1"}}}`, newer},
		"no object":        {journal.File, `[]`, "parse"},
		"a lost journal":   {trace, "net.core.rmem_max = 1\n", "is missing, but " + trace + " exists"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write(test.file, test.content)
			w.declare(declared()...)
			a := w.runUntilIdle(w.agent())
			w.permit("p1")
			w.runUntilIdle(a)
			check.Equal(t, "live", w.defaults, w.live)
			if len(w.menu) != 0 || len(w.files) != 0 || len(w.reboots) != 0 {
				t.Errorf("got changes: menu %v, files %v, reboots %v", w.menu, w.files, w.reboots)
			}
			for _, key := range []string{rmem, ihash} {
				if w.state(key) != v1alpha1.SettingFailed || !strings.Contains(w.message(key), test.message) {
					t.Errorf("%s: got %s %q, want Failed with %q", key, w.state(key), w.message(key), test.message)
				}
			}
			// With a journal that can be read in part, the agent reports on each setting.
			if hash := w.clientNode.Status.Hash; hash != "" && test.message != newer {
				t.Errorf("got reported hash %s, want none", hash)
			}
			if got, _ := os.ReadFile(filepath.Join(w.dir, test.file)); string(got) != test.content {
				t.Errorf("%s was overwritten with %q", test.file, got)
			}
			if r := w.clientNode.Status.Reboot; r.Phase != v1alpha1.RebootRefused || r.Message != "the settings could not be applied" && !strings.Contains(r.Message, newer) {
				t.Errorf("permit: got %+v, want Refused", r)
			}
		})
	}
}

func TestARepairedJournalIsUsed(t *testing.T) {
	w := newWorld(t)
	w.write(journal.File, "")
	w.declare(declared()...)
	a := w.agent()
	for range 3 {
		w.clock.Step(maxRetry)
		w.runPass(a)
	}
	w.write(journal.File, `{"version": 1}`)
	w.clock.Step(driftInterval)
	w.runPass(a)
	if w.state(rmem) != v1alpha1.SettingInSync {
		t.Errorf("got %s %q, want InSync", w.state(rmem), w.message(rmem))
	}
}

func TestNothingIsChangedWhenTheJournalCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	w.journalErr = errors.New("no space left on device")
	w.declare(declared()...)
	w.runUntilIdle(w.agent())
	if diff := cmp.Diff(w.defaults, w.live); diff != "" || len(w.files) != 0 || len(w.menu) != 0 {
		t.Errorf("changed: files %v, menu %v, live (-want +got):\n%s", w.files, w.menu, diff)
	}
	if w.state(rmem) != v1alpha1.SettingFailed || !strings.Contains(w.message(rmem), "no space left on device") {
		t.Errorf("got %s %q, want Failed with a reason", w.state(rmem), w.message(rmem))
	}
}

func TestTheFenceHasTheLastWord(t *testing.T) {
	tests := map[string]struct {
		setting v1alpha1.NodeSetting
		allow   string
		want    v1alpha1.SettingState
		message string
	}{
		"an unknown parameter": {
			setting: setting("sysctl/kernel.core_pattern", "/tmp/x"), want: v1alpha1.SettingUnsupported, message: "rejected",
		},
		"a value out of range": {setting: setting(rmem, "1"), want: v1alpha1.SettingFailed, message: "rejected"},
		"a value with which no new connection works": {
			setting: setting(tcpRmem, "1 1 1"), want: v1alpha1.SettingFailed, message: "number 2 must be at least 2304 bytes",
		},
		"such a value that the list of the host names": {
			setting: setting(tcpRmem, "1 1 1"), allow: "sysctl/net[.]ipv4[.]tcp_rmem=1 1 1\n", want: v1alpha1.SettingInSync,
		},
		"a value with unsafe bytes": {
			setting: setting(rmem, "1\nkernel.core_pattern=|/x"), want: v1alpha1.SettingFailed, message: "rejected",
		},
		"a subject that this agent does not have": {
			setting: setting("module/sunrpc/tcp_max_slot_table_entries", "128"), want: v1alpha1.SettingUnsupported,
			message: "this node's agent does not support module",
		},
		"a parameter that the list of the host permits": {
			setting: setting("sysctl/kernel.some_thing", "1"), allow: "# ours\n\nsysctl/kernel[.]some_.*\n",
			want: v1alpha1.SettingInSync,
		},
		"a host's list that is broken": {
			setting: setting("sysctl/kernel.some_thing", "1"), allow: "sysctl/(\n",
			want: v1alpha1.SettingUnsupported, message: AllowFile + " is ignored",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if test.allow != "" {
				w.write(AllowFile, test.allow)
			}
			w.declare(test.setting)
			w.runUntilIdle(w.agent())
			key := test.setting.Key
			if w.state(key) != test.want || !strings.Contains(w.message(key), test.message) {
				t.Errorf("got %s %q, want %s with %q", w.state(key), w.message(key), test.want, test.message)
			}
			if _, applied := w.files[key]; applied != (test.want == v1alpha1.SettingInSync) {
				t.Errorf("applied: %v", w.files)
			}
		})
	}
}

func TestARejectedValueLeavesTheLastAcceptedOne(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	a := w.runUntilIdle(w.agent())
	w.declare(setting(ihash, "16777216"), setting(rmem, "1"))
	w.runUntilIdle(a)
	if w.live[rmem] != "16777216" || w.state(rmem) != v1alpha1.SettingFailed {
		t.Errorf("got live value %s, state %s; want the old value and Failed", w.live[rmem], w.state(rmem))
	}
}

func TestLoweredNumbersAreReported(t *testing.T) {
	w := newWorld(t)
	w.defaults[tcpRmem], w.live[tcpRmem] = "4096 131072 33554432", "4096 131072 33554432"
	w.declare(setting(tcpRmem, "4096 1048576 16777216"), setting(rmem, "16777216"))
	for range 2 { // again after a restart, from the journal
		w.runUntilIdle(w.agent())
		if want := "number 3 decreases from the node's original 33554432 to 16777216"; w.state(tcpRmem) != v1alpha1.SettingInSync || !strings.Contains(w.message(tcpRmem), want) {
			t.Errorf("got %s %q, want InSync with %q", w.state(tcpRmem), w.message(tcpRmem), want)
		}
		check.Equal(t, "message of a raised value", "", w.message(rmem))
	}
}

// An at-least value derives from the original in the journal. It is the same in every pass, after a restart, and after a boot.
func TestAtLeastValuesDeriveFromTheOriginal(t *testing.T) {
	const original = "4096 131072 33554432"
	for name, test := range map[string]struct{ minimum, live string }{
		"one number is raised":   {"4096 1048576 16777216", "4096 1048576 33554432"},
		"the kernel has it all":  {"4096 65536 16777216", original},
		"all numbers are raised": {"8192 1048576 67108864", "8192 1048576 67108864"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.defaults[tcpRmem], w.live[tcpRmem] = original, original
			w.declare(setting(tcpRmem, "at-least "+test.minimum))
			w.runUntilIdle(w.agent())
			w.boot()
			w.runUntilIdle(w.agent())
			if w.live[tcpRmem] != test.live || w.files[tcpRmem] != test.live || w.state(tcpRmem) != v1alpha1.SettingInSync {
				t.Errorf("got live value %q, file %q, state %s; want %q", w.live[tcpRmem], w.files[tcpRmem], w.state(tcpRmem), test.live)
			}
			if entry := w.journal()[tcpRmem]; entry.Original.Value != original || entry.Applied != "at-least "+test.minimum {
				t.Errorf("unexpected journal %+v", entry)
			}
			// An exact value and an at-least value again: the original does not change.
			w.declare(setting(tcpRmem, "4096 16384 65536"))
			w.runUntilIdle(w.agent())
			w.declare(setting(tcpRmem, "at-least "+test.minimum))
			w.runUntilIdle(w.agent())
			check.Equal(t, "live value after an exact value", test.live, w.live[tcpRmem])
			w.declare()
			w.runUntilIdle(w.agent())
			if w.live[tcpRmem] != original || len(w.journal()) != 0 {
				t.Errorf("got live value %q, journal %v; want the original", w.live[tcpRmem], w.journal())
			}
		})
	}
}

// An upgrade of the agent does not revert values that the earlier agent applied and this one would reject.
func TestAnUpgradeKeepsAppliedValuesThatItsCatalogueRejects(t *testing.T) {
	const before = "1000 1000 1000"
	retain := setting(tcpRmem, before)
	retain.OnRemoval = v1alpha1.DeletionRetain
	for name, test := range map[string]struct {
		after []v1alpha1.NodeSetting
		state v1alpha1.SettingState
		live  string
	}{
		"unchanged":              {[]v1alpha1.NodeSetting{setting(tcpRmem, before)}, v1alpha1.SettingInSync, before},
		"another rejected value": {[]v1alpha1.NodeSetting{setting(tcpRmem, "1 1 1")}, v1alpha1.SettingFailed, before},
		"a value that is right":  {[]v1alpha1.NodeSetting{setting(tcpRmem, "4096 131072 16777216")}, v1alpha1.SettingInSync, "4096 131072 16777216"},
		"no longer declared":     {nil, "", "4096 131072 6291456"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.defaults[tcpRmem], w.live[tcpRmem] = "4096 131072 6291456", "4096 131072 6291456"
			w.write(AllowFile, "sysctl/net[.]ipv4[.]tcp_rmem=.*\n")
			w.declare(setting(tcpRmem, before))
			w.runUntilIdle(w.agent())
			w.write(AllowFile, "")
			w.declare(test.after...)
			w.runUntilIdle(w.agent())
			if w.live[tcpRmem] != test.live || w.state(tcpRmem) != test.state {
				t.Errorf("got live value %q, state %s; want %q and %s", w.live[tcpRmem], w.state(tcpRmem), test.live, test.state)
			}
		})
	}
	t.Run("retained", func(t *testing.T) {
		w := newWorld(t)
		w.write(AllowFile, "sysctl/net[.]ipv4[.]tcp_rmem=.*\n")
		w.declare(retain)
		w.runUntilIdle(w.agent())
		w.write(AllowFile, "")
		w.declare()
		w.runUntilIdle(w.agent())
		if w.live[tcpRmem] != before {
			t.Errorf("live value: got %q, want the retained value", w.live[tcpRmem])
		}
	})
}

func TestUnsupportedSettingsAreNeitherJournalledNorApplied(t *testing.T) {
	for _, state := range []host.State{host.Unsupported, host.Clamped, host.Failed} {
		t.Run(string(state), func(t *testing.T) {
			w := newWorld(t)
			w.cannot[rmem] = state
			w.declare(setting(rmem, "16777216"))
			a := w.runUntilIdle(w.agent())
			if len(w.journal()) != 0 || len(w.files) != 0 || w.state(rmem) != v1alpha1.SettingState(state) {
				t.Errorf("got journal %v, files %v, state %s; want none and %s", w.journal(), w.files, w.state(rmem), state)
			}
			// The obstacle is removed, for example its module is loaded.
			delete(w.cannot, rmem)
			w.clock.Step(maxRetry)
			w.runUntilIdle(a)
			if w.state(rmem) != v1alpha1.SettingInSync || w.journal()[rmem].Original.Value != "212992" {
				t.Errorf("got state %s, journal %v; want InSync and the original", w.state(rmem), w.journal())
			}
		})
	}
}

func TestFailuresAreReportedAndTriedAgain(t *testing.T) {
	tests := map[string]func(w *world, err error){
		"the original cannot be read": func(w *world, err error) { w.originalErr = err },
		"the subject does not work":   func(w *world, err error) { w.applyErr = err },
	}
	for name, breaks := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			breaks(w, errors.New("disk on fire"))
			w.declare(declared()...)
			a := w.agent()
			w.runPass(a)
			if w.state(rmem) != v1alpha1.SettingFailed || !strings.Contains(w.message(rmem), "disk on fire") {
				t.Errorf("got %s %q, want Failed with a reason", w.state(rmem), w.message(rmem))
			}
			check.Equal(t, "hash", w.clientNode.Spec.Hash, w.clientNode.Status.Hash)
			w.clock.Step(driftInterval - time.Second)
			w.runPass(a)
			w.clock.Step(driftInterval + time.Second)
			w.runPass(a)
			w.clock.Step(driftInterval)
			w.runPass(a)
			if w.state(rmem) != v1alpha1.SettingFailed || !strings.Contains(w.message(rmem), "disk on fire") {
				t.Errorf("got %s %q before the next attempt, want Failed with a reason", w.state(rmem), w.message(rmem))
			}
			w.permit("p1")
			w.runUntilIdle(a)
			if len(w.reboots) != 0 || w.clientNode.Status.Reboot.Phase != v1alpha1.RebootRefused {
				t.Errorf("got reboots %v for a setting that is not staged, status %+v", w.reboots, w.clientNode.Status.Reboot)
			}
			breaks(w, nil)
			w.clock.Step(maxRetry)
			w.runUntilIdle(a)
			if w.state(rmem) != v1alpha1.SettingInSync || w.live[rmem] != "16777216" {
				t.Errorf("got %s, live value %s; want InSync", w.state(rmem), w.live[rmem])
			}
		})
	}
}

func TestFailedSettingsAreTriedLessAndLessOften(t *testing.T) {
	w := newWorld(t)
	w.applyErr = errors.New("disk on fire")
	w.declare(setting(rmem, "16777216"))
	a := w.agent()
	for range 60 {
		w.runPass(a)
		w.clock.Step(driftInterval)
	}
	if w.applies < 4 || w.applies > 8 {
		t.Errorf("got %d attempts in an hour, want 4 to 8", w.applies)
	}
	if w.state(rmem) != v1alpha1.SettingFailed || !strings.Contains(w.message(rmem), "disk on fire") {
		t.Errorf("got %s %q between two attempts, want Failed with a reason", w.state(rmem), w.message(rmem))
	}
}

func TestMountsAreReadAgain(t *testing.T) {
	w := newWorld(t)
	w.mountErr = errors.New("no mountinfo")
	w.declare(setting(rmem, "16777216"))
	a := w.runUntilIdle(w.agent())
	w.mountErr = nil
	w.runUntilIdle(a)
	if got := w.clientNode.Status.BusyMountsOmitted; got != 0 {
		t.Errorf("got %d unknown mounts, want none", got)
	}
	w.mounts = []mounts.Mount{{MountPoint: "/m", FSType: "nfs", Connections: 4}}
	w.runUntilIdle(a)
	if got := w.clientNode.Status.Mounts; len(got) != 1 || got[0].Connections != 4 {
		t.Errorf("mounts: got %+v, want the new numbers within a minute", got)
	}
}

func TestLiveDriftIsHealedAndBootDriftWaitsForAPermit(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	w.runUntilIdle(w.agent())
	w.boot()
	a := w.runUntilIdle(w.agent())

	w.live[rmem] = "4096"
	w.runUntilIdle(a)
	if w.live[rmem] != "16777216" || w.state(rmem) != v1alpha1.SettingInSync {
		t.Errorf("got live value %s, %s; want it reset", w.live[rmem], w.state(rmem))
	}
	// Effective, but missing from the menu: staged again, without a reboot.
	delete(w.menu, ihash)
	w.runUntilIdle(a)
	if w.state(ihash) != v1alpha1.SettingInSync || w.menu[ihash] == "" || w.clientNode.Status.RebootRequired {
		t.Errorf("got %s, menu %v, reboot required %v; want it staged again", w.state(ihash), w.menu, w.clientNode.Status.RebootRequired)
	}
	// Neither effective nor in the menu: staged again, and a reboot waits for its permit.
	delete(w.menu, ihash)
	w.boot()
	a = w.runUntilIdle(w.agent())
	if w.state(ihash) != v1alpha1.SettingPending || !w.clientNode.Status.RebootRequired || len(w.reboots) != 0 {
		t.Errorf("got %s, reboot required %v, reboots %v; want Pending, true, none",
			w.state(ihash), w.clientNode.Status.RebootRequired, w.reboots)
	}
	w.permit("p1")
	w.runUntilIdle(a)
	if w.state(ihash) != v1alpha1.SettingInSync || len(w.reboots) != 1 {
		t.Errorf("got %s after reboots %v; want InSync after the permitted reboot", w.state(ihash), w.reboots)
	}
}

// driftCount returns the metric of the only setting.
func driftCount(t *testing.T, a *Agent) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.settings.drift)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("got %d families, %v", len(families), err)
	}
	return families[0].Metric[0].GetCounter().GetValue()
}

func TestASettingThatKeepsChangingIsNoLongerReset(t *testing.T) {
	w := newWorld(t)
	w.declare(setting(rmem, "16777216"))
	a := w.runUntilIdle(w.agent())
	heals := 0
	for range 20 {
		w.live[rmem] = "4096"
		w.clock.Step(driftInterval)
		w.runPass(a)
		if w.live[rmem] == "16777216" {
			heals++
		}
	}
	w.clock.Step(reporter.Interval + reporter.Interval/2)
	w.runPass(a)
	if counted := driftCount(t, a); heals != maxHeals || counted != maxHeals {
		t.Errorf("got %d heals and a count of %v, want %d", heals, counted, maxHeals)
	}
	if w.state(rmem) != v1alpha1.SettingDrifted || w.message(rmem) != leftAloneMessage {
		t.Errorf("got %s %q, want Drifted with a reason", w.state(rmem), w.message(rmem))
	}
	w.clock.Step(healWindow)
	w.runPass(a)
	if w.live[rmem] != "16777216" {
		t.Errorf("the drift is not healed after an hour")
	}
}

func TestDriftIsHealedWhileTheAPIServerIsAway(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	a := w.runUntilIdle(w.agent())
	away := errors.New("connection refused")
	w.getErr, w.writeErr = away, func(v1alpha1.StorageClientNodeStatus) error { return away }
	w.live[rmem] = "4096"
	w.runUntilIdle(a)
	check.Equal(t, "live value after the reset", "16777216", w.live[rmem])
}

func TestStatusWritesAreFew(t *testing.T) {
	w := newWorld(t)
	w.declare(setting(rmem, "16777216"))
	a := w.runUntilIdle(w.agent())
	w.writes = 0
	for i := range 120 {
		w.busy = []mounts.Busy{{MountPoint: fmt.Sprintf("/m%d", i), FSType: "nfs"}}
		w.runPass(a)
		w.clock.Step(time.Second)
	}
	if w.writes == 0 || w.writes > 12 {
		t.Errorf("got %d writes in two minutes of changes, want 1 to 12", w.writes)
	}
	w.writes = 0
	w.busy = nil
	w.clock.Step(mountwatch.Interval)
	w.runPass(a)
	if w.writes != 1 || len(w.clientNode.Status.BusyMounts) != 0 {
		t.Errorf("got %d writes, busy mounts %v; want an immediate report that the last mount is gone", w.writes, w.clientNode.Status.BusyMounts)
	}
	w.writes = 0
	w.runUntilIdle(a)
	if w.writes != 0 {
		t.Errorf("got %d writes without a change, want none", w.writes)
	}
}

func TestUnknownMountsHoldAReboot(t *testing.T) {
	tests := map[string]func(*world){
		"a table that cannot be read":      func(w *world) { w.mountErr = errors.New("no mountinfo") },
		"a line that cannot be understood": func(w *world) { w.malformed = 1 },
	}
	for name, arrange := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			arrange(w)
			w.declare(declared()...)
			w.runUntilIdle(w.agent())
			if w.clientNode.Status.BusyMountsOmitted == 0 {
				t.Errorf("unknown mounts are reported as no mounts")
			}
		})
	}
}

func TestARecreatedObjectIsReportedAgain(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	a := w.runUntilIdle(w.agent())
	w.clientNode.UID, w.clientNode.Status = "u2", v1alpha1.StorageClientNodeStatus{}
	w.runPass(a)
	if w.clientNode.Status.ObservedGeneration != w.clientNode.Generation {
		t.Errorf("status of the new object: got %+v, want a complete one", w.clientNode.Status)
	}
}

func TestOldTransportsDoNotHoldARelease(t *testing.T) {
	w := newWorld(t)
	w.declare(setting(rmem, "16777216"))
	a := w.runUntilIdle(w.agent())
	w.oldTransports[rmem] = true
	w.declare()
	w.runUntilIdle(a)
	if w.state(rmem) != v1alpha1.SettingPending || len(w.journal()) != 1 {
		t.Errorf("got %s, journal %v; want Pending while an old transport exists", w.state(rmem), w.journal())
	}
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	w.runUntilIdle(a)
	if !w.clientNode.Status.Restored || w.journal() != nil {
		t.Errorf("got restored %v, journal %v; want true, none", w.clientNode.Status.Restored, w.journal())
	}
}

func TestAPermitUsedInThisBootKeepsTheJournal(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	a := w.runUntilIdle(w.agent())
	w.rebootErr = errors.New("refused")
	w.permit("p1")
	a = w.runUntilIdle(a)
	w.rebootErr = nil
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	w.runUntilIdle(a)
	w.clientNode.Status.Reboot = nil
	w.declare(declared()...)
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = false })
	w.runUntilIdle(w.agent())
	if len(w.reboots) != 0 {
		t.Errorf("reboots with a used permit: got %v, want none", w.reboots)
	}
}

func TestRetainedValuesMustPassTheFence(t *testing.T) {
	key := "sysctl/kernel.some_thing"
	retain := setting(key, "1")
	retain.OnRemoval = v1alpha1.DeletionRetain
	w := newWorld(t)
	w.defaults[key], w.live[key] = "0", "0"
	w.write(AllowFile, key+"\n")
	w.declare(retain)
	a := w.runUntilIdle(w.agent())
	w.write(AllowFile, "")
	w.declare()
	w.runUntilIdle(a)
	if w.live[key] != "0" || len(w.journal()) != 0 {
		t.Errorf("got live value %s, journal %v; want the original", w.live[key], w.journal())
	}
}

func TestRunFollowsTheObjectAndEnds(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	a := w.agent()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	written := make(chan struct{})
	w.writeErr = func(status v1alpha1.StorageClientNodeStatus) error {
		if status.Settings[1].State == v1alpha1.SettingInSync {
			close(written)
		}
		return nil
	}
	go func() { a.Run(ctx); close(done) }()
	<-written
	cancel()
	<-done
	if !a.Ready() || !a.Alive() {
		t.Errorf("got ready %v, alive %v; want both", a.Ready(), a.Alive())
	}
	w.clock.Step(stalledAfter)
	if a.Alive() {
		t.Errorf("Alive returns true for a stuck loop")
	}
}

func TestAJumpOfTheClockNeitherHidesAStuckLoopNorMakesOne(t *testing.T) {
	w := newWorld(t)
	w.declare(declared()...)
	a := w.agent()
	w.runPass(a)
	w.clock.jump(time.Hour)
	if !a.Alive() {
		t.Error("Alive returns false after the clock was set forward")
	}
	w.clock.jump(-2 * time.Hour)
	w.clock.Step(stalledAfter)
	if a.Alive() {
		t.Error("Alive returns true for a stuck loop after the clock was set back")
	}
}

func TestTheNodesUIDReachesTheHost(t *testing.T) {
	w := newWorld(t)
	w.declare(setting(rmem, "1"))
	w.clientNode.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", UID: "0b5c-1"}}
	var modules fakeModules
	w.real = func() Host {
		h := w.host()
		h.Modules = &modules
		return h
	}
	w.runPass(w.agent())
	check.Equal(t, "UID", "0b5c-1", modules.uid)
}
