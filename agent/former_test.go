package agent

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/report"
	"github.com/storageclient/operator/api/v1alpha1"
)

// renamed maps the file names at commit 682a90a to the current ones.
var renamed = map[string]string{
	"/etc/sysctl.d/99-zz-storage-client.conf":      "/etc/sysctl.d/zz-storage-client.conf",
	"/etc/modprobe.d/storage-client.conf":          "/etc/modprobe.d/zz-storage-client.conf",
	"/etc/nfsmount.conf.d/storage-client.conf":     "/etc/nfsmount.conf.d/zz-storage-client.conf",
	"/etc/default/grub.d/zz-storage-client.cfg":    "/etc/default/grub.d/zz-storage-client.cfg",
	"/etc/nfs.conf.d/zz-storage-client.conf":       "/etc/nfs.conf.d/zz-storage-client.conf",
	"/proc/sys/net/core/rmem_max":                  "/proc/sys/net/core/rmem_max",
	"/sys/module/nfs/parameters/max_session_slots": "/sys/module/nfs/parameters/max_session_slots",
}

// newFormerBox returns a host with the files of commit 682a90a.
func newFormerBox(t *testing.T) *box {
	t.Helper()
	b := newBoxOf(t, "ubuntu-24.04-cloudimg")
	hosttest.OverlayFormer(t, b.dir, "682a90a")
	return b
}

// formerStates contains the unchanged states of the settings of 682a90a.
var formerStates = map[string]string{
	rmem: "InSync", flush: "InSync", dirty: "InSync", slots: "InSync", sessions: "InSync", nfsAll: "InSync", readAhead4: "InSync", ihash: "Pending",
}

func TestFilesOfAnEarlierReleaseAreTakenOverOnce(t *testing.T) {
	b := newFormerBox(t)
	before := b.tree()
	planned := b.compare(report.Plan)
	for _, s := range planned.Settings {
		if want := formerStates[s.Key]; want != string(s.State) || s.Action != "" {
			t.Errorf("plan: %s: got %s (%s), action %q", s.Key, s.State, s.Message, s.Action)
		}
		if s.Key == rmem && !strings.Contains(s.Message, "99-zz-storage-client.conf, the name of an earlier release") {
			t.Errorf("plan: message of %s: got %q", s.Key, s.Message)
		}
	}
	if diff := cmp.Diff(formerStates, states(b.apply())); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	b.expectTakenOver(before)
	after := b.tree()
	if diff := cmp.Diff(formerStates, states(b.apply())); diff != "" {
		t.Errorf("second apply: states (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(after, b.tree()); diff != "" {
		t.Errorf("host after a second apply (-before +after):\n%s", diff)
	}
}

// expectTakenOver checks that the tree differs only in the file names.
func (b *box) expectTakenOver(before map[string]string) {
	b.t.Helper()
	want := maps.Clone(before)
	for former, name := range renamed {
		data := before[former]
		if data == "" {
			b.t.Errorf("the fixture has no %s", former)
		}
		delete(want, former)
		want[name] = data
	}
	got := b.tree()
	// The current release records more facts about this boot than the earlier one.
	if diff := cmp.Diff(parseEntries(b.t, before[journal.File]), b.entries()); diff != "" {
		b.t.Errorf("journal (-before +after):\n%s", diff)
	}
	delete(want, journal.File)
	delete(got, journal.File)
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("the host (-want +got):\n%s", diff)
	}
}

func TestAnAgentTakesFilesOverSilently(t *testing.T) {
	b := newFormerBox(t)
	before := b.tree()
	w := newWorld(t)
	w.dir, w.fs = b.dir, b.fs
	w.real = func() Host {
		made := NewHost(b.fs, b.commands, w, "/var/lib/kubelet")
		made.Mounts = w
		return made
	}
	var settings []v1alpha1.NodeSetting
	for key, entry := range b.entries() {
		s := setting(key, entry.Applied)
		s.Profile = entry.Profile
		settings = append(settings, s)
	}
	w.declare(settings...)
	a := w.agent()
	for range 3 {
		w.runPass(a)
		w.clock.Step(driftInterval)
		for _, s := range w.clientNode.Status.Settings {
			if want := formerStates[s.Key]; want != string(s.State) || s.Drift != nil {
				t.Errorf("%s: got %s (%s), drift %+v", s.Key, s.State, s.Message, s.Drift)
			}
		}
	}
	delete(before, "/proc/sys/kernel/random/boot_id")
	tree := b.tree()
	for former, name := range renamed {
		if _, exists := tree[former]; exists && former != name || tree[name] != before[former] {
			t.Errorf("%s: %q, want %q", name, tree[name], before[former])
		}
	}
	if diff := cmp.Diff(parseEntries(t, before[journal.File]), b.entries()); diff != "" {
		t.Errorf("journal (-before +after):\n%s", diff)
	}
}

func (b *box) entries() map[string]journal.Entry {
	b.t.Helper()
	records := journal.New(b.fs)
	if err := records.Load(); err != nil {
		b.t.Fatal(err)
	}
	return records.Entries()
}

func parseEntries(t *testing.T, data string) map[string]journal.Entry {
	t.Helper()
	other := &box{t: t, dir: t.TempDir()}
	hosttest.WriteFile(t, other.dir, journal.File, data)
	fs, err := host.OpenFS(other.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	other.fs = fs
	return other.entries()
}

func TestOneOfBothNamesHoldsTheValuesAfterACrashAtAnyPoint(t *testing.T) {
	errCrashed := errors.New("crashed")
	for n := 1; ; n++ {
		b := newFormerBox(t)
		before, whole, count := b.tree(), b.fs, 0
		b.fs = b.fs.WithHook(func(host.Op, string) error {
			count++
			if count >= n {
				return errCrashed
			}
			return nil
		})
		_, err := b.local(true).Run(t.Context(), report.Apply, nil)
		tree := b.tree()
		for former, name := range renamed {
			_, isFormer := tree[former]
			_, isNew := tree[name]
			if content := tree[name] + tree[former]; former != name && (isFormer == isNew || content != before[former]) {
				t.Errorf("crash at change %d: %s exists: %t, %s exists: %t, content %q", n, former, isFormer, name, isNew, content)
			}
		}
		b.fs = whole
		b.apply()
		b.expectTakenOver(before)
		if count < n {
			if err != nil || n < 9 {
				t.Errorf("got %d changes, error %v: three renames of three steps each are expected", n-1, err)
			}
			return
		}
	}
}

func TestTheNewNameOverridesAFileThatOverrodeTheFormerName(t *testing.T) {
	b := newFormerBox(t)
	hosttest.WriteFile(t, b.dir, aksFile, "net.core.rmem_max = 1048576\n")
	if got := states(b.compare(report.Observe))[rmem]; got != "Shadowed" {
		t.Errorf("state before apply: got %s", got)
	}
	if got := states(b.apply())[rmem]; got != "InSync" {
		t.Errorf("state after apply: got %s", got)
	}
}

func TestRestoreRemovesBothNames(t *testing.T) {
	for name, prepare := range map[string]func(b *box){
		"a host as the earlier release left it": func(*box) {},
		"a host on which it was restored": func(b *box) {
			b.apply()
			for former, name := range renamed {
				hosttest.WriteFile(b.t, b.dir, former, hosttest.ReadFile(b.t, b.dir, name))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFormerBox(t)
			prepare(b)
			for _, s := range b.restore().Settings {
				if s.State != isSet {
					t.Errorf("%s: got %s: %s", s.Key, s.State, s.Message)
				}
			}
			var leftovers []string
			for file := range b.tree() {
				if strings.Contains(filepath.Base(file), "storage-client") || strings.HasPrefix(file, "/var/") {
					leftovers = append(leftovers, file)
				}
			}
			if len(leftovers) > 0 {
				t.Errorf("leftover files: %v", slices.Sorted(slices.Values(leftovers)))
			}
			if got := hosttest.ReadFile(t, b.dir, "/proc/sys/net/core/rmem_max"); got != "212992\n" {
				t.Errorf("rmem_max: got %q", got)
			}
		})
	}
}

func TestAFileOfAnotherProgramKeepsTheFormerName(t *testing.T) {
	b := newFormerBox(t)
	const file, text = "/etc/modprobe.d/storage-client.conf", "options sunrpc tcp_max_slot_table_entries=128\n"
	hosttest.WriteFile(t, b.dir, file, text)
	b.apply()
	b.restore()
	if got := hosttest.ReadFile(t, b.dir, file); got != text {
		t.Errorf("%s: got %q", file, got)
	}
	if _, err := os.Lstat(filepath.Join(b.dir, renamed[file])); !os.IsNotExist(err) {
		t.Errorf("%s: %v", renamed[file], err)
	}
}
