package agent

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/hosttest"
	grubsim "github.com/storageclient/operator/agent/host/hosttest/grub"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const grubEnv = "/boot/grub/grubenv"

// tryingHost is a world on a copied host whose GRUB supports trial boots.
type tryingHost struct {
	*world
	commands *hosttest.Commands
	original map[string]string
}

func newTryingHost(t *testing.T) *tryingHost {
	t.Helper()
	h := &tryingHost{world: newWorld(t)}
	h.dir = hosttest.CopyHost(t, "debian-12")
	fs, err := host.OpenFS(h.dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	h.fs = fs.WithHook(func(op host.Op, name string) error {
		h.step(string(op) + " " + name)
		return h.journalErr
	})
	h.commands = &hosttest.Commands{Dir: h.dir, KernelLog: kernelLog(262144), Output: map[string]string{
		"grub-probe --target=abstraction /boot/grub": "\n", "grub-probe --target=fs /boot/grub": "ext2\n",
	}}
	h.write(grubEnv, grubsim.PadBlock(grubsim.EmptyBlock))
	h.write("/etc/grub.d/40_custom", "#!/bin/sh\nexec tail -n +3 $0\n")
	check.NoError(t, os.Chmod(filepath.Join(h.dir, "/etc/grub.d/40_custom"), 0o755))
	if _, err := h.commands.Run(t.Context(), "grub-mkconfig", "-o", grubCfg); err != nil {
		t.Fatal(err)
	}
	h.writeBootID()
	h.real = func() Host {
		made := NewHost(h.fs, h.commands, h.world, "/var/lib/kubelet")
		made.Mounts = h.world
		return made
	}
	h.original = h.tree()
	return h
}

func (h *tryingHost) tree() map[string]string {
	return hosttest.ReadTree(h.t, h.dir, "/etc", "/boot", "/var")
}

// start starts GRUB. The kernel hangs with the given arguments.
func (h *tryingHost) start(hangs string) {
	h.t.Helper()
	for range 3 {
		boot, err := grubsim.Start(h.dir)
		if err != nil {
			h.t.Fatal(err)
		}
		line := strings.Join(boot.Arguments, " ")
		if hangs == "" || !strings.Contains(line, hangs+"=") {
			h.write("/proc/cmdline", "BOOT_IMAGE="+boot.Kernel+" "+line+"\n")
			h.commands.KernelLog = kernelLog(262144)
			if strings.Contains(line, "ihash_entries=1048576") {
				h.commands.KernelLog = kernelLog(1048576)
			}
			return
		}
	}
	h.t.Fatalf("the machine hangs at every start")
}

// stage declares an argument and runs the agent until it is staged.
func (h *tryingHost) stage() *Agent {
	h.t.Helper()
	h.declare(setting(ihash, "1048576"))
	a := h.runUntilIdle(h.agent())
	if h.state(ihash) != v1alpha1.SettingPending || !strings.Contains(h.message(ihash), "trial boot: ") {
		h.t.Fatalf("staged: got %+v", h.clientNode.Status.Settings)
	}
	return a
}

// permitted gives a permit and runs the resulting reboot.
func (h *tryingHost) permitted(a *Agent, hangs string) *Agent {
	h.t.Helper()
	h.permit("permit-1")
	if !h.runPass(a) || len(h.reboots) != 1 {
		h.t.Fatalf("no reboot, status %+v", h.clientNode.Status.Reboot)
	}
	h.start(hangs)
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = nil })
	return h.runUntilIdle(h.agent())
}

func TestAnArgumentIsTheDefaultOnceTheAgentIsBack(t *testing.T) {
	h := newTryingHost(t)
	a := h.permitted(h.stage(), "")
	if s := h.state(ihash); s != v1alpha1.SettingInSync {
		t.Errorf("got %s: %s", s, h.message(ihash))
	}
	if diff := cmp.Diff(h.original[grubEnv], h.tree()[grubEnv]); diff != "" || h.fs.Exists(grubcfg.Generator) {
		t.Errorf("the trial is still pending: %s", diff)
	}
	h.start("")
	if !strings.Contains(h.tree()[grubCfg], "ihash_entries=1048576") || strings.Contains(h.tree()[grubCfg], "storage-client") {
		t.Error("the menu has no argument, or still has the previous entry")
	}
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	h.runUntilIdle(a)
	remaining := h.tree()
	maps.DeleteFunc(remaining, func(name, _ string) bool { return strings.Contains(name, "journal") })
	check.Equal(t, "after the release", h.original, remaining)
}

func TestAnArgumentThatHangsTheNodeIsReportedAndReverted(t *testing.T) {
	h := newTryingHost(t)
	a := h.permitted(h.stage(), "ihash_entries")
	if h.state(ihash) != v1alpha1.SettingFailed || !strings.Contains(h.message(ihash), "the machine did not start with it") {
		t.Errorf("got %s: %s", h.state(ihash), h.message(ihash))
	}
	if h.clientNode.Status.RebootRequired {
		t.Error("the node requests another reboot")
	}
	h.permit("permit-2")
	if h.runPass(a); h.clientNode.Status.Reboot.Phase != v1alpha1.RebootRefused {
		t.Errorf("a second permit: %+v", h.clientNode.Status.Reboot)
	}
	// The manager removes the argument again.
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Settings, spec.RebootPermit = nil, nil })
	h.runUntilIdle(a)
	remaining := h.tree()
	maps.DeleteFunc(remaining, func(name, _ string) bool { return strings.Contains(name, "journal") })
	check.Equal(t, "after the withdrawal", h.original, remaining)
}

func TestAPermittedRebootIsTriedEvenIfTheTrialWasUsedUp(t *testing.T) {
	h := newTryingHost(t)
	h.stage()
	// The power is cut, and again while the machine starts.
	h.boot()
	h.start("ihash_entries")
	a := h.runUntilIdle(h.agent())
	if !h.clientNode.Status.RebootRequired {
		t.Errorf("the node does not request a permit: %+v", h.clientNode.Status.Settings)
	}
	h.permitted(a, "")
	if line := h.read("/proc/cmdline"); !strings.Contains(line, "ihash_entries=1048576") {
		t.Errorf("booted %s", line)
	}
}

func TestNoRebootWithoutItsTrial(t *testing.T) {
	h := newTryingHost(t)
	a := h.stage()
	h.journalErr = errors.New("input/output error")
	h.permit("permit-1")
	h.runPass(a)
	if s := h.clientNode.Status.Reboot; len(h.reboots) > 0 || s == nil || s.Phase != v1alpha1.RebootRefused || !strings.Contains(s.Message, "cannot arm the trial boot") {
		t.Errorf("got reboots %v, status %+v", h.reboots, s)
	}
}

// A retained argument stays when the agent is removed. No later agent would end its trial.
func TestAReleaseEndsTheTrialOfWhatIsRetained(t *testing.T) {
	h := newTryingHost(t)
	a := h.stage()
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) {
		spec.Settings[0].OnRemoval, spec.Release = v1alpha1.DeletionRetain, true
	})
	h.runUntilIdle(a)
	if !h.clientNode.Status.Restored || h.tree()[grubEnv] != h.original[grubEnv] {
		t.Fatalf("got status %+v", h.clientNode.Status)
	}
	for range 2 {
		h.start("")
		if line := h.read("/proc/cmdline"); !strings.Contains(line, "ihash_entries=1048576") {
			t.Errorf("booted %s", line)
		}
	}
}

func (h *tryingHost) read(name string) string {
	h.t.Helper()
	return hosttest.ReadFile(h.t, h.dir, name)
}
