package agent

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// laterNote is the note about a journal with the unknown field "later".
const laterNote = "a newer agent wrote the journal: " + journal.File + " has 1 unknown field (later), so only restoring is possible; upgrade this agent"

// editJournal replaces a text in the journal of a host, which must be there.
func editJournal(t *testing.T, dir, old, replacement string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, journal.File))
	check.NoError(t, err)
	if !strings.Contains(string(data), old) {
		t.Fatalf("the journal has no %s:\n%s", old, data)
	}
	hosttest.WriteFile(t, dir, journal.File, strings.Replace(string(data), old, replacement, 1))
}

// addField adds a field of a newer agent to the journal of a host.
func addField(t *testing.T, dir string) {
	t.Helper()
	editJournal(t, dir, `"version": 1,`, `"version": 1, "later": {"a": [1, 2]},`)
}

// hasField reports whether the journal of a host still has the field.
func hasField(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, journal.File))
	return err == nil && strings.Contains(strings.Join(strings.Fields(string(data)), ""), `"later":{"a":[1,2]}`)
}

func TestAnUnprovenValueIsRevertedAfterADowngrade(t *testing.T) {
	for name, isMissing := range map[string]bool{"with a StorageClientNode": false, "without one": true} {
		t.Run(name, func(t *testing.T) {
			w := newConfirmWorld(t)
			w.declare(setting(tcpRmem, fatal))
			w.runPass(w.agent())
			if w.live[tcpRmem] != fatal || w.unconfirmed() == nil {
				t.Fatal("the value is not set")
			}
			addField(t, w.dir)
			w.isMissing = isMissing
			w.runFor(w.agent(), time.Minute)
			if w.live[tcpRmem] != usual || w.unconfirmed() != nil || len(w.files) > 0 {
				t.Errorf("got live value %q, unconfirmed %+v, file %v", w.live[tcpRmem], w.unconfirmed(), w.files)
			}
			if !isMissing && (w.state(tcpRmem) != v1alpha1.SettingFailed || w.message(tcpRmem) != "not changed: "+laterNote) {
				t.Errorf("got %s: %s", w.state(tcpRmem), w.message(tcpRmem))
			}
			if !hasField(w.dir) {
				t.Error("the journal no longer contains the field")
			}
		})
	}
}

// The field appears while this agent proves a value. The value is not kept, although it works.
func TestNoValueIsConfirmedInAJournalOfANewerAgent(t *testing.T) {
	w := newConfirmWorld(t)
	w.declare(setting(tcpRmem, "8192 131072 6291456"))
	a, works := w.agent(), w.proved
	w.proved = func(size int64) error {
		if !hasField(w.dir) {
			addField(t, w.dir)
			if err := a.settings.machine.Journal.Load(); err != nil {
				t.Error(err)
			}
		}
		return works(size)
	}
	w.runFor(a, 2*time.Minute)
	if w.live[tcpRmem] != usual || w.unconfirmed() != nil || len(w.files) > 0 || w.state(tcpRmem) != v1alpha1.SettingFailed {
		t.Errorf("got live value %q, unconfirmed %+v, file %v, %s", w.live[tcpRmem], w.unconfirmed(), w.files, w.state(tcpRmem))
	}
}

// newerWorld is a machine with settings that a newer agent has applied. A boot has applied one of them. The agent of this machine supports
// these settings, but not every field of the journal.
func newerWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.declare(newerSettings()...)
	w.runUntilIdle(w.agent())
	w.boot()
	w.runUntilIdle(w.agent())
	addField(t, w.dir)
	return w
}

func newerSettings() []v1alpha1.NodeSetting {
	return []v1alpha1.NodeSetting{setting(ihash, "16777216"), setting(rmem, "16777216")}
}

func TestAJournalOfANewerAgentAllowsOnlyRestoring(t *testing.T) {
	const notChanged = "not changed: " + laterNote
	applied := map[string]string{rmem: "16777216", wmem: "212992", ihash: "16777216"}
	retained := setting(rmem, "16777216")
	retained.OnRemoval = v1alpha1.DeletionRetain
	for name, test := range map[string]struct {
		settings []v1alpha1.NodeSetting
		drift    map[string]string
		release  bool
		// differs are the live values that differ from the applied ones. messages are the messages of Failed settings.
		differs  map[string]string
		messages map[string]string
		journal  []string
		restored bool
	}{
		"the same": {
			settings: newerSettings(), journal: []string{ihash, rmem},
		},
		"one setting less": {
			settings: newerSettings()[:1], differs: map[string]string{rmem: "212992"}, journal: []string{ihash},
		},
		"a new one": {
			settings: append(newerSettings(), setting(wmem, "16777216")), messages: map[string]string{wmem: notChanged}, journal: []string{ihash, rmem},
		},
		"other values": {
			settings: []v1alpha1.NodeSetting{setting(ihash, "1048576"), setting(rmem, "33554432")},
			messages: map[string]string{ihash: notChanged, rmem: notChanged}, journal: []string{ihash, rmem},
		},
		"one setting less and a new one": {
			settings: []v1alpha1.NodeSetting{setting(ihash, "16777216"), setting(wmem, "16777216")},
			differs:  map[string]string{rmem: "212992"}, messages: map[string]string{wmem: notChanged}, journal: []string{ihash},
		},
		"a value that another program has changed": {
			settings: newerSettings(), drift: map[string]string{rmem: "4194304"},
			differs: map[string]string{rmem: "4194304"}, messages: map[string]string{rmem: notChanged}, journal: []string{ihash, rmem},
		},
		"a release": {
			settings: newerSettings(), release: true,
			differs: map[string]string{rmem: "212992"}, journal: []string{ihash}, restored: true,
		},
		"a release that retains": {
			settings: []v1alpha1.NodeSetting{newerSettings()[0], retained}, release: true, journal: []string{ihash, rmem}, restored: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newerWorld(t)
			maps.Copy(w.live, test.drift)
			w.declare(test.settings...)
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = test.release })
			a := w.runFor(w.agent(), 10*time.Minute)
			live := maps.Clone(applied)
			maps.Copy(live, test.differs)
			check.Equal(t, "live", live, w.live)
			if diff := cmp.Diff(test.journal, slices.Sorted(maps.Keys(w.journal()))); diff != "" || !hasField(w.dir) {
				t.Errorf("the field is in the journal: %t; entries (-want +got):\n%s", hasField(w.dir), diff)
			}
			want, messages := map[string]string{}, map[string]string{}
			maps.Copy(want, test.messages)
			for _, s := range w.clientNode.Status.Settings {
				if s.State == v1alpha1.SettingFailed {
					messages[s.Key] = s.Message
				}
				if s.Drift != nil {
					t.Errorf("%s: got drift %+v, want none", s.Key, s.Drift)
				}
			}
			check.Equal(t, "Failed", want, messages)
			status := w.clientNode.Status
			if status.Restored != test.restored || status.RebootRequired || status.Hash != w.clientNode.Spec.Hash {
				t.Errorf("got restored %t, reboot required by %v, hash %q", status.Restored, status.RebootRequiredBy, status.Hash)
			}
			w.permit("p1")
			w.runUntilIdle(a)
			if r := w.clientNode.Status.Reboot; len(w.reboots) > 0 || r == nil || r.Phase != v1alpha1.RebootRefused || r.Message != "not rebooted: "+laterNote {
				t.Errorf("got reboots %v, %+v", w.reboots, r)
			}
		})
	}
}

// A setting that a newer agent staged waits for a boot. This agent would reject the permit, so no node is drained for it.
func TestNoRebootIsRequestedWithAJournalOfANewerAgent(t *testing.T) {
	w := newWorld(t)
	w.declare(newerSettings()...)
	w.runUntilIdle(w.agent())
	if !w.clientNode.Status.RebootRequired {
		t.Fatal("no reboot is required")
	}
	addField(t, w.dir)
	w.runUntilIdle(w.agent())
	if s := w.clientNode.Status; s.RebootRequired || w.state(ihash) != v1alpha1.SettingFailed || w.message(ihash) != "not changed: "+laterNote {
		t.Errorf("got reboot required by %v, %s: %s", s.RebootRequiredBy, w.state(ihash), w.message(ihash))
	}
	if w.menu[ihash] != "16777216" || w.state(rmem) != v1alpha1.SettingInSync {
		t.Errorf("got menu %v, %s in state %s", w.menu, rmem, w.state(rmem))
	}
}

func TestSettingsChangeOnceTheFieldIsRemoved(t *testing.T) {
	w := newerWorld(t)
	w.declare(append(newerSettings(), setting(wmem, "16777216"))...)
	a := w.runFor(w.agent(), time.Minute)
	if w.state(wmem) != v1alpha1.SettingFailed {
		t.Fatalf("got %s: %s", w.state(wmem), w.message(wmem))
	}
	var tree map[string]any
	check.NoError(t, json.Unmarshal([]byte(hosttest.ReadFile(t, w.dir, journal.File)), &tree))
	delete(tree, "later")
	data, err := json.Marshal(tree)
	check.NoError(t, err)
	w.write(journal.File, string(data))
	w.runFor(a, 5*time.Minute)
	if w.state(wmem) != v1alpha1.SettingInSync || w.live[wmem] != "16777216" {
		t.Errorf("got %s: %s", w.state(wmem), w.message(wmem))
	}
}

// A newer agent may know subjects that this one does not, and values of a form that this one does not accept.
func TestUnsupportedKeysDoNotPreventOtherRestores(t *testing.T) {
	for name, test := range map[string]struct {
		entry, key, message string
		journal             []string
		restored            bool
	}{
		"an unknown subject": {
			entry: `"later/x": {"original": {"present": true, "value": "1"}, "applied": "2"}`,
			key:   "later/x", message: "cannot restore: this node's agent does not support later; upgrade the agent", journal: []string{"later/x"},
		},
		"a key without a subject": {
			entry: `"later": {"original": {"present": true, "value": "1"}, "applied": "2"}`,
			key:   "later", message: "cannot restore: this node's agent does not support later; upgrade the agent", journal: []string{"later"},
		},
		"a value of an unknown form": {
			entry: `"` + wmem + `": {"original": {"present": true, "value": "212992"}, "applied": "at most 1"}`, restored: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.declare(setting(rmem, "16777216"))
			w.runUntilIdle(w.agent())
			editJournal(t, w.dir, `"entries": {`, `"entries": {`+test.entry+`,`)
			w.live[wmem], w.files[wmem] = "1", "1"
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
			a := w.runUntilIdle(w.agent())
			if w.live[rmem] != "212992" || len(w.files) > 0 || test.restored && w.live[wmem] != "212992" {
				t.Errorf("got live value %v, file %v", w.live, w.files)
			}
			check.Equal(t, "journal", test.journal, slices.Sorted(maps.Keys(w.journal())))
			if status := w.clientNode.Status; status.Restored != test.restored || w.message(test.key) != test.message || a.settings.outcome.failed == test.restored {
				t.Errorf("got restored %t, %+v", status.Restored, status.Settings)
			}
		})
	}
}

// One of two unproven values is of a subject that only the newer agent has. The other is reverted, and the journal keeps the one for
// an agent that supports it; until then this agent only restores.
func TestAnUnprovenValueOfAnUnknownSubjectStaysRecorded(t *testing.T) {
	for name, ending := range map[string]func(w *world){
		"with a StorageClientNode": func(*world) {},
		"without one":              func(w *world) { w.isMissing = true },
		"after a boot":             (*world).boot,
	} {
		t.Run(name, func(t *testing.T) {
			w := newConfirmWorld(t)
			w.declare(setting(rmem, "16777216"))
			w.runFor(w.agent(), time.Second)
			w.declare(setting(rmem, "16777216"), setting(tcpRmem, fatal))
			w.runPass(w.agent())
			editJournal(t, w.dir, `"settings": {`, `"settings": {"later/x": {"entry": {"original": {"present": false}, "applied": "2"}, "before": {"present": false}},`)
			ending(w)
			a := w.runFor(w.agent(), time.Minute)
			w.isMissing = false
			a = w.runFor(a, 20*time.Minute)
			want := map[string]journal.UnconfirmedSetting{"later/x": {Entry: journal.Entry{Applied: "2"}}}
			if u := w.unconfirmed(); w.live[tcpRmem] != usual || u == nil || u.Reverted || !cmp.Equal(u.Settings, want) {
				t.Fatalf("got live value %q, unconfirmed %+v", w.live[tcpRmem], u)
			}
			if got := w.message(tcpRmem); got != "not changed: a newer agent set later/x and did not confirm it, so only restoring is possible; upgrade this agent" {
				t.Errorf("message: got %q", got)
			}
			w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
			w.runFor(a, time.Minute)
			if w.live[rmem] != "212992" || len(w.files) > 0 || w.clientNode.Status.Restored || w.state("later/x") != v1alpha1.SettingFailed {
				t.Errorf("got live value %v, file %v, %+v", w.live, w.files, w.clientNode.Status)
			}
			if u := w.unconfirmed(); u == nil || !cmp.Equal(u.Settings, want) {
				t.Errorf("got unconfirmed %+v", u)
			}
		})
	}
}

func TestOneMachineWithAJournalOfANewerAgent(t *testing.T) {
	b := newBox(t)
	before := b.tree()
	b.apply(eda())
	addField(t, b.dir)
	other := profile("eda", map[string]string{"net.core.rmem_max": "33554432", "net.core.wmem_max": "16777216"})
	const notChanged = "not changed: " + laterNote
	for command, r := range map[string]localreport.Report{localreport.Plan: b.compare(localreport.Plan, other), localreport.Apply: b.apply(other)} {
		for _, s := range r.Settings {
			switch s.Key {
			case rmem, wmem:
				if s.State != v1alpha1.SettingFailed || s.Message != notChanged || command == localreport.Plan && s.Action != localreport.Leave {
					t.Errorf("%s: got %+v", command, s)
				}
			case ihash:
				if command == localreport.Apply && s.State != v1alpha1.SettingInSync {
					t.Errorf("%s: got %+v", command, s)
				}
			}
		}
		if r.AsDeclared || len(r.Settings) != 3 {
			t.Errorf("%s: got %+v", command, r)
		}
	}
	// The setting that is no longer declared is restored, the other is unchanged.
	b.expectText("/proc/sys/net/core/rmem_max", "16777216")
	b.expectText(trace, "net.core.rmem_max = 16777216")
	if strings.Contains(hosttest.ReadFile(t, b.dir, grubCfg), "ihash_entries") || !hasField(b.dir) {
		t.Errorf("the menu has the argument, or the journal no longer contains the field: %s", b.tree()[journal.File])
	}
	b.expect(b.compare(localreport.Observe), true, "", map[string]string{rmem: "InSync"})
	b.expect(b.restore(), true, "", map[string]string{rmem: "InSync"})
	after := b.tree()
	if !hasField(b.dir) || len(b.journal()) > 0 {
		t.Errorf("got journal %s", after[journal.File])
	}
	for _, name := range []string{grubCfg, journal.File} {
		delete(before, name)
		delete(after, name)
	}
	check.Equal(t, "the host after restore", before, after)
}

func TestNoReadAheadIsChangedInAJournalOfANewerAgent(t *testing.T) {
	h := newStorageHost(t)
	h.writeTable(podVolume)
	h.write(second, "256\n")
	h.declare(setting(readAhead4, "15360"))
	h.readAhead(1024)
	a := h.runUntilIdle(h.agent())
	addField(t, h.dir)
	expect := func(name, hostWindow, volume, message string) {
		t.Helper()
		m := h.clientNode.Status.Mounts[len(h.clientNode.Status.Mounts)-1]
		if got := h.windows(); got != [2]string{hostWindow, volume} || !strings.Contains(m.Message, message) {
			t.Errorf("%s: windows %v, want %s and %s; message %q", name, got, hostWindow, volume, m.Message)
		}
	}
	a = h.runUntilIdle(a)
	expect("the same", "15360", "1024", "")
	h.readAhead(2048)
	a = h.runUntilIdle(a)
	expect("another value", "15360", "1024", "not changed: "+laterNote)
	h.readAhead(1024)
	h.write(second, "512\n")
	h.runDriftPass(a)
	h.runDriftPass(a)
	expect("another program changed it", "15360", "512", "not changed: "+laterNote)
	h.writeTable()
	check.NoError(t, os.Remove(filepath.Join(h.dir, second)))
	h.runDriftPass(a)
	h.writeTable(podVolume)
	h.write(second, "256\n")
	h.clock.Step(mountwatch.Interval)
	h.runPass(a)
	h.runDriftPass(a)
	expect("a new mount", "15360", "256", "not changed: "+laterNote)
	h.readAhead(2048)
	h.declare()
	a = h.runUntilIdle(a)
	expect("the type is declared no more", "128", "256", "not changed: "+laterNote)
	h.readAhead(0)
	h.runUntilIdle(a)
	if len(h.journal()) > 0 || !hasField(h.dir) {
		t.Errorf("journal without declared settings: got %v", h.journal())
	}
}
