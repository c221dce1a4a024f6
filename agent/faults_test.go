package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/api/v1alpha1"
)

// faultyHost is a host with all real subjects and a file system that rejects changes.
type faultyHost struct {
	*tryingHost
	storage *storageHost
	spec    v1alpha1.StorageClientNodeSpec
	reject  func(op host.Op) error
	struck  bool
	host    Host
	// scenes are the states so far. want contains the states of a run without faults, if known.
	scenes, want []scene
}

func newFaultyHost(t *testing.T, reject func(op host.Op) error) *faultyHost {
	t.Helper()
	h := &faultyHost{tryingHost: newTryingHost(t), reject: reject}
	h.storage = storageOn(h.world)
	h.coupleBackground()
	h.fs = h.fs.WithHook(func(op host.Op, name string) error {
		err := h.reject(op)
		h.struck = h.struck || err != nil
		if err == nil && op == host.OpWriteValue {
			h.clearCounterpart(name)
		}
		return err
	})
	h.spec.Settings = append(hostSettings(), setting(rmem, "16777216"), setting(background, "5"), setting(ihash, "1048576"),
		setting("module/sunrpc/tcp_max_slot_table_entries", "128"))
	h.restart()
	return h
}

// restart restarts the agent.
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

// pass runs one pass without the loop. It returns the states and the keys to forget.
func (h *faultyHost) pass() (map[string]v1alpha1.SettingState, bool, error) {
	p, err := h.confirmed()
	if err != nil {
		return nil, false, err
	}
	p.forgetRestored(h.spec.Release)
	out := p.sumUp(h.spec)
	states := map[string]v1alpha1.SettingState{}
	for _, s := range out.settings {
		states[s.Key] = s.State
	}
	if out.restored {
		boot, err := h.host.readBoot()
		if err == nil {
			_, err = h.host.Journal.Remove(boot.id)
		}
		if err != nil {
			return states, false, err
		}
	}
	return states, out.restored, nil
}

// confirmed runs a pass whose settings new connections confirm.
func (h *faultyHost) confirmed() (*pass, error) {
	if err := h.host.Journal.Load(); err != nil {
		return nil, err
	}
	if err := h.host.revertUnconfirmed(h.t.Context(), h.bootID()); err != nil {
		return nil, err
	}
	if err := h.host.Journal.Abandon(); err != nil {
		return nil, err
	}
	for {
		p, err := h.host.beginPass(h.spec, Allowed{})
		if err == nil {
			err = p.carryOut(h.t.Context())
		}
		if err != nil || !p.hasUnconfirmed() {
			return p, err
		}
		if err := p.setUnconfirmed(h.t.Context(), h.spec.Hash, h.bootID(), h.clock.Now); err != nil {
			return nil, err
		}
		if _, open := h.host.Journal.Unconfirmed(); !open {
			return p, nil
		}
		if err := h.host.Journal.Confirm(); err != nil {
			return nil, err
		}
	}
}

// settled runs a pass, and another one after a rejected change, because the loop repeats failed steps. A pass
// with a rejected change must not report success, unless it has reached the same state.
func (h *faultyHost) settled() map[string]v1alpha1.SettingState {
	h.t.Helper()
	h.struck = false
	states, restored, err := h.pass()
	if h.struck {
		if want := h.want[len(h.scenes)]; err == nil && restored == h.spec.Release && cmp.Equal(want.States, states) {
			if diff := cmp.Diff(want.Files, h.everything()); diff != "" {
				h.t.Fatalf("no failure is reported, but the files differ (-want +got):\n%s", diff)
			}
		}
		h.reject = func(host.Op) error { return nil }
		states, _, err = h.pass()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return states
}

// everything returns the files that a pass may change, except for the journal.
func (h *faultyHost) everything() map[string]string {
	files := hosttest.ReadTree(h.t, h.dir, "/etc", "/boot", "/sys", "/run", "/proc/sys", "/proc/1", "/var/lib/storage-client")
	for name := range files {
		if strings.HasSuffix(name, "/boot_id") || strings.HasSuffix(name, "/journal.json") {
			delete(files, name)
		}
	}
	files["tuned"] = fmt.Sprint(h.storage.active, h.storage.enabled)
	return files
}

// scene is the state of a host at one point.
type scene struct {
	States map[string]v1alpha1.SettingState
	Files  map[string]string
}

// life stages a setting, boots, ends the trial, releases the node, and boots again.
func (h *faultyHost) life() []scene {
	h.t.Helper()
	record := func() {
		h.t.Helper()
		h.scenes = append(h.scenes, scene{h.settled(), h.everything()})
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
	return h.scenes
}

// Changes that a full or failing disk rejects are reported. After the disk recovers, the next pass reaches the same state, with
// the same originals.
func TestAFailedChangeAnywhereIsRepaired(t *testing.T) {
	never := func(host.Op) error { return nil }
	clean := newFaultyHost(t, never)
	before := clean.everything()
	want := clean.life()
	if diff := cmp.Diff(before, want[len(want)-1].Files); diff != "" {
		t.Fatalf("host after a run without faults (-before +after):\n%s", diff)
	}
	if s := want[1].States[ihash]; s != v1alpha1.SettingInSync {
		t.Fatalf("argument after the boot, without faults: got %s", s)
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
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n += faultStep {
				count, reject := 0, fault(n)
				h := newFaultyHost(t, func(op host.Op) error { count++; return reject(count, op) })
				h.want = want
				got := h.life()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("after the rejection of change %d (-want +got):\n%s", n, diff)
				}
				if count < n {
					if count < 100 {
						t.Errorf("got only %d changes", count)
					}
					return
				}
			}
		})
	}
}
