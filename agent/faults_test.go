package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1alpha1 "github.com/storageclient/operator/api/v1alpha1"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
)

// faultyHost is a host with all real subjects, whose file system refuses changes.
type faultyHost struct {
	*tryingHost
	storage *storageHost
	spec    v1alpha1.StorageClientNodeSpec
	refuse  func(op host.Op) error
	struck  bool
	host    Host
}

func newFaultyHost(t *testing.T, refuse func(op host.Op) error) *faultyHost {
	t.Helper()
	h := &faultyHost{tryingHost: newTryingHost(t), refuse: refuse}
	h.storage = storageOn(h.world)
	h.fs = h.fs.WithHook(func(op host.Op, _ string) error {
		err := h.refuse(op)
		h.struck = h.struck || err != nil
		return err
	})
	h.spec.Settings = append(hostSettings(), setting(rmem, "16777216"), setting(ihash, "1048576"),
		setting("module/sunrpc/tcp_max_slot_table_entries", "128"))
	h.restart()
	return h
}

// restart is a restart of the agent.
func (h *faultyHost) restart() {
	h.host = NewHost(h.fs, h, h.world, "/var/lib/kubelet")
	h.host.attended = true
}

// Run implements host.Runner.
func (h *faultyHost) Run(ctx context.Context, argv ...string) ([]byte, error) {
	if slices.Contains([]string{"grub-mkconfig", "grub-probe", "journalctl", "dmesg"}, argv[0]) {
		return h.commands.Run(ctx, argv...)
	}
	return h.storage.Run(ctx, argv...)
}

// pass is one pass of the agent, without its loop. It tells the states and what is to be forgotten.
func (h *faultyHost) pass() (map[string]v1alpha1.SettingState, bool, error) {
	p, err := h.host.begin(h.spec, nil)
	if err == nil {
		err = p.carryOut(h.t.Context())
	}
	if err != nil {
		return nil, false, err
	}
	p.forget(h.spec.Release)
	out := p.outcome(h.spec)
	states := map[string]v1alpha1.SettingState{}
	for _, s := range out.settings {
		states[s.Key] = s.State
	}
	if out.restored {
		boot, err := h.host.boot()
		if err == nil {
			_, err = h.host.Journal.Remove(boot.id)
		}
		if err != nil {
			return states, false, err
		}
	}
	return states, out.restored, nil
}

// settled is a pass, with the one after a pass in which a change was refused, as the loop repeats what has failed.
func (h *faultyHost) settled() map[string]v1alpha1.SettingState {
	h.t.Helper()
	h.struck = false
	states, _, err := h.pass()
	if h.struck {
		h.refuse = func(host.Op) error { return nil }
		states, _, err = h.pass()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return states
}

// everything are the files that a pass may change, but for the journal.
func (h *faultyHost) everything() map[string]string {
	files := hosttest.Tree(h.t, h.dir, "/etc", "/boot", "/sys", "/run", "/proc/sys", "/proc/1", "/var/lib/storage-client")
	for name := range files {
		if strings.HasSuffix(name, "/boot_id") || strings.HasSuffix(name, "/journal.json") {
			delete(files, name)
		}
	}
	files["tuned"] = fmt.Sprint(h.storage.active, h.storage.enabled)
	return files
}

// scene is how a host stands at one point of its story.
type scene struct {
	States map[string]v1alpha1.SettingState
	Files  map[string]string
}

// life stages, boots, ends the trial, releases and boots again.
func (h *faultyHost) life() []scene {
	h.t.Helper()
	var scenes []scene
	record := func() {
		h.t.Helper()
		scenes = append(scenes, scene{h.settled(), h.everything()})
	}
	reboot := func() {
		h.boots++
		h.writeBootID()
		h.start("")
		h.restart()
	}
	record()
	reboot()
	record()
	h.spec.Release = true
	record()
	reboot()
	record()
	return scenes
}

// What a full or failing disk refuses is reported, and once it no longer does, the next pass comes to the same end, with
// the same originals.
func TestARefusedChangeAnywhereIsMadeUpFor(t *testing.T) {
	never := func(host.Op) error { return nil }
	clean := newFaultyHost(t, never)
	before := clean.everything()
	want := clean.life()
	if diff := cmp.Diff(before, want[len(want)-1].Files); diff != "" {
		t.Fatalf("without a fault the story leaves (-before +after):\n%s", diff)
	}
	if s := want[1].States[ihash]; s != v1alpha1.SettingInSync {
		t.Fatalf("without a fault the argument is %s after the boot", s)
	}
	grows := []host.Op{host.OpMkdir, host.OpCreate, host.OpWrite, host.OpSync}
	faults := map[string]func(n int) func(count int, op host.Op) error{
		"one change fails with EIO": func(n int) func(int, host.Op) error {
			return func(count int, _ host.Op) error {
				if count == n {
					return syscall.EIO
				}
				return nil
			}
		},
		"the disk is full from one change on": func(n int) func(int, host.Op) error {
			return func(count int, op host.Op) error {
				if count >= n && slices.Contains(grows, op) {
					return syscall.ENOSPC
				}
				return nil
			}
		},
		"nothing can be changed from one change on": func(n int) func(int, host.Op) error {
			return func(count int, _ host.Op) error {
				if count >= n {
					return errors.New("read-only file system")
				}
				return nil
			}
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				count, refused := 0, fault(n)
				h := newFaultyHost(t, func(op host.Op) error { count++; return refused(count, op) })
				got := h.life()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("with change %d refused (-want +got):\n%s", n, diff)
				}
				if count < n {
					if n < 100 {
						t.Errorf("only %d changes", n-1)
					}
					return
				}
			}
		})
	}
}
