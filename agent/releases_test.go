package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
)

// hostReleases are the commits whose agents wrote the hosts in test/fixtures/former. journalReleases are the commits whose agents wrote the journals
// in testdata/releases. The newest one is the release before.
var (
	hostReleases    = []string{"3733d37f"}
	journalReleases = []string{"bc1e4c0", "3733d37f"}
)

// formerFiles are the files on these hosts that the agent keeps byte for byte.
var formerFiles = []string{
	"/etc/sysctl.d/zz-storage-client.conf",
	"/etc/modprobe.d/zz-storage-client.conf",
	"/etc/nfsmount.conf.d/zz-storage-client.conf",
	"/etc/default/grub.d/zz-storage-client.cfg",
	"/etc/nfs.conf.d/zz-storage-client.conf",
	"/proc/sys/net/core/rmem_max",
	"/sys/module/nfs/parameters/max_session_slots",
}

// formerStates contains the states of the settings of these hosts. They do not change.
var formerStates = map[string]string{
	rmem: "InSync", flush: "InSync", dirty: "InSync", slots: "InSync", sessions: "InSync", nfsAll: "InSync", readAhead4: "InSync", ihash: "Pending",
}

func (b *box) entries() map[string]journal.Entry {
	b.t.Helper()
	records := journal.New(b.fs)
	if err := records.Load(); err != nil {
		b.t.Fatal(err)
	}
	return records.Entries()
}

func TestHostsOfEarlierReleasesAreKeptAndRestored(t *testing.T) {
	for _, commit := range hostReleases {
		t.Run(commit, func(t *testing.T) {
			b := newBoxOf(t, "ubuntu-24.04-cloudimg")
			pristine := b.tree()
			hosttest.OverlayFormer(t, b.dir, commit)
			before, journalled := b.tree(), b.entries()
			check.Equal(t, "states", formerStates, states(b.apply()))
			if diff := cmp.Diff(journalled, b.entries()); diff != "" || len(journalled) != len(formerStates) {
				t.Errorf("%d entries of the journal (-before +after):\n%s", len(journalled), diff)
			}
			after := b.tree()
			for _, name := range formerFiles {
				if before[name] == "" || after[name] != before[name] {
					t.Errorf("%s: got %q, want %q", name, after[name], before[name])
				}
			}
			for _, s := range b.restore().Settings {
				if s.State != isSet {
					t.Errorf("restored %s: got %s: %s", s.Key, s.State, s.Message)
				}
			}
			restored := b.tree()
			// It is an action, and a plain file only in the tree.
			delete(pristine, "/proc/sys/net/ipv4/route/flush")
			delete(restored, "/proc/sys/net/ipv4/route/flush")
			check.Equal(t, "the restored host", pristine, restored)
		})
	}
}

// newReleaseWorld returns a machine with a journal of an earlier release, and the values that its agent has set.
func newReleaseWorld(t *testing.T, commit, state string) *world {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "releases", commit, state+".json"))
	check.NoError(t, err)
	w := newConfirmWorld(t)
	w.write(journal.File, string(data))
	w.live[ihash], w.menu[ihash] = "2097152", "2097152"
	w.defaults[rmem] = "212992"
	return w
}

// journalTests are the tests of a journal that an earlier release left in a state.
var journalTests = map[string]struct {
	state string
	check func(t *testing.T, w *world)
}{
	"a value under test is reverted to the confirmed value, without an API server": {"proving", func(t *testing.T, w *world) {
		w.live[tcpRmem], w.files[tcpRmem], w.isMissing = fatal, good, true
		w.runPass(w.agent())
		if w.live[tcpRmem] != good || w.unconfirmed() != nil || w.journal()[tcpRmem].Applied != good {
			t.Errorf("got live value %q, unconfirmed %+v, journal %+v", w.live[tcpRmem], w.unconfirmed(), w.journal())
		}
	}},
	"a value under test is not effective after a boot": {"proving", func(t *testing.T, w *world) {
		w.live[tcpRmem], w.files[tcpRmem], w.isMissing = fatal, good, true
		w.boot()
		w.runPass(w.agent())
		if w.live[tcpRmem] != good || w.unconfirmed() != nil {
			t.Errorf("got live value %q, unconfirmed %+v", w.live[tcpRmem], w.unconfirmed())
		}
	}},
	"a value under test is reverted in a journal with unknown fields, which stay": {"proving", func(t *testing.T, w *world) {
		w.live[tcpRmem], w.files[tcpRmem], w.isMissing = fatal, good, true
		addField(t, w.dir)
		w.runPass(w.agent())
		if w.live[tcpRmem] != good || w.unconfirmed() != nil || !hasField(w.dir) {
			t.Errorf("got live value %q, unconfirmed %+v, the field %t", w.live[tcpRmem], w.unconfirmed(), hasField(w.dir))
		}
	}},
	"a rejected value is not tried again": {"rejected", func(t *testing.T, w *world) {
		w.declare(setting(tcpRmem, fatal), setting(rmem, "16777216"))
		var document struct{ Attempts struct{ Hash, Why string } }
		check.NoError(t, json.Unmarshal([]byte(hosttest.ReadFile(t, w.dir, journal.File)), &document))
		w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Hash = document.Attempts.Hash })
		w.runFor(w.agent(), 2*time.Minute)
		if slices.ContainsFunc(w.log, func(step string) bool { return strings.HasPrefix(step, "try ") }) {
			t.Errorf("tried again: %v", w.log)
		}
		if w.state(tcpRmem) != v1alpha1.SettingFailed || w.message(tcpRmem) != document.Attempts.Why {
			t.Errorf("got %s: %s, want Failed: %s", w.state(tcpRmem), w.message(tcpRmem), document.Attempts.Why)
		}
	}},
	"a used permit does not reboot the host again": {"rebooted", func(t *testing.T, w *world) {
		delete(w.live, ihash)
		w.declare(setting(ihash, "2097152"))
		w.permit("permit-1")
		w.runFor(w.agent(), time.Minute)
		if reboot := w.clientNode.Status.Reboot; len(w.reboots) > 0 || reboot == nil || reboot.Phase != v1alpha1.RebootFailed {
			t.Errorf("got reboots %v, status %+v", w.reboots, reboot)
		}
	}},
	"a permit that was used before the boot counts as started": {"rebooted", func(t *testing.T, w *world) {
		w.declare(setting(ihash, "2097152"))
		w.permit("permit-1")
		w.boot()
		w.runFor(w.agent(), time.Minute)
		if reboot := w.clientNode.Status.Reboot; len(w.reboots) > 0 || reboot == nil || reboot.Phase != v1alpha1.RebootStarted {
			t.Errorf("got reboots %v, status %+v", w.reboots, reboot)
		}
	}},
	"the original values are restored": {"applied", func(t *testing.T, w *world) {
		w.live[tcpRmem], w.files[tcpRmem] = good, good
		w.declare(setting(tcpRmem, good), setting(ihash, "2097152"))
		a := w.runFor(w.agent(), 5*time.Second)
		if w.state(tcpRmem) != v1alpha1.SettingInSync || len(w.sizes) > 0 {
			t.Errorf("before: got %s: %s, %d proofs", w.state(tcpRmem), w.message(tcpRmem), len(w.sizes))
		}
		w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
		w.runFor(a, 5*time.Second)
		if w.live[tcpRmem] != usual || len(w.files) > 0 || len(w.menu) > 0 {
			t.Errorf("got live value %q, files %v, menu %v", w.live[tcpRmem], w.files, w.menu)
		}
	}},
}

func TestJournalsOfEarlierReleases(t *testing.T) {
	for _, commit := range journalReleases {
		for name, test := range journalTests {
			t.Run(commit+": "+name, func(t *testing.T) { test.check(t, newReleaseWorld(t, commit, test.state)) })
		}
	}
}

// The agent of the release before has applied hugepagesz, which the administrator permits. An upgrade does not restore it.
func TestAnUpgradeKeepsHugepagesz(t *testing.T) {
	const size, pages = "kernelArgument/hugepagesz", "kernelArgument/hugepages"
	allow, err := catalogue.NewAllowList([]string{size, pages})
	check.NoError(t, err)
	spec := v1alpha1.StorageClientNodeSpec{Settings: []v1alpha1.NodeSetting{{Key: pages, Value: "64", Profile: "p"}, {Key: size, Value: "1G", Profile: "p"}}}
	applied := map[string]journal.Entry{pages: {Profile: "p", Applied: "64"}, size: {Profile: "p", Applied: "1G"}}
	planned := makePlan(spec, applied, fence{allowed: allow, subjects: map[string]bool{catalogue.KernelArguments: true}})
	for key, it := range planned {
		if it.restore != nil {
			t.Errorf("%s is restored: %+v", key, it.rejection)
		}
	}
	check.Equal(t, "planned settings", 2, len(planned))
}
