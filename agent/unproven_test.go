package agent

import (
	"testing"

	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// A node is not rebooted for settings of an unproven boot loader, regardless of its type.
func TestAnUnprovenBootLoaderIsStagedAndNotRebooted(t *testing.T) {
	for _, kind := range []string{loader.GrubBLS, loader.GrubDebian} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.bootloader = loader.Detection{Type: kind}
			w.declare(setting(rmem, "16777216"), setting(ihash, "16777216"))
			a := w.runUntilIdle(w.agent())
			if w.menu[ihash] != "16777216" || w.state(ihash) != v1alpha1.SettingPending {
				t.Errorf("got menu %v, state %s", w.menu, w.state(ihash))
			}
			w.expectNoReboot(a, "p1")
			// Another user or program boots the node.
			w.boot()
			w.runUntilIdle(w.agent())
			check.Equal(t, "state after the boot", v1alpha1.SettingInSync, w.state(ihash))
			// An argument that is no longer desired is removed from the menu, which does not require a reboot either.
			w.declare(setting(rmem, "16777216"))
			a = w.runUntilIdle(w.agent())
			if _, staged := w.menu[ihash]; staged || w.state(ihash) != v1alpha1.SettingPending {
				t.Errorf("got menu %v, state %s after the removal from the profile", w.menu, w.state(ihash))
			}
			w.expectNoReboot(a, "p2")
			w.bootloader.Proven = true
			w.declare(setting(rmem, "16777216"), setting(ihash, "8388608"))
			w.runUntilIdle(w.agent())
			if !w.clientNode.Status.RebootRequired {
				t.Error("no reboot is required for a boot loader that is proven")
			}
		})
	}
}

// expectNoReboot fails if the status requests a reboot, or if a permit causes one.
func (w *world) expectNoReboot(a *Agent, permit string) {
	w.t.Helper()
	if status := w.clientNode.Status; status.RebootRequired || len(status.RebootRequiredBy) > 0 {
		w.t.Errorf("a reboot is required by %v", status.RebootRequiredBy)
	}
	w.permit(permit)
	w.runUntilIdle(a)
	if len(w.reboots) > 0 || w.clientNode.Status.Reboot == nil || w.clientNode.Status.Reboot.Phase != v1alpha1.RebootRefused {
		w.t.Errorf("got reboots %v, result %+v", w.reboots, w.clientNode.Status.Reboot)
	}
	w.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = nil })
	w.runUntilIdle(a)
}

// The test detects a real tree: the node is booted without GRUB after the agent has changed it.
func TestANodeThatWasBootedPastGRUBIsNotRebooted(t *testing.T) {
	h := newTryingHost(t)
	h.declare(setting(ihash, "1048576"))
	h.runUntilIdle(h.agent())
	if status := h.clientNode.Status; !status.RebootRequired || !status.Bootloader.Proven {
		t.Fatalf("got reboot required %t, boot loader %+v", status.RebootRequired, status.Bootloader)
	}
	h.boots++
	h.writeBootID()
	hosttest.WriteFile(t, h.dir, "/proc/cmdline", "root=/dev/sda1 ro single\n")
	h.declare(setting(ihash, "2097152"))
	a := h.runUntilIdle(h.agent())
	loader := h.clientNode.Status.Bootloader
	if loader.Type != v1alpha1.BootloaderGrubDebian || loader.Proven || h.state(ihash) != v1alpha1.SettingPending {
		t.Errorf("got boot loader %+v, state %s", loader, h.state(ihash))
	}
	h.expectNoReboot(a, "p1")
}
