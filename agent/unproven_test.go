package agent

import (
	"testing"

	v1alpha1 "github.com/storageclient/operator/api/v1alpha1"
)

func TestAnUnprovenBootLoaderIsStagedAndNotRebooted(t *testing.T) {
	w := newWorld(t)
	w.bootloader = v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubBLS}
	w.declare(setting(rmem, "16777216"), setting(ihash, "16777216"))
	a := w.settle(w.agent())
	if w.menu[ihash] != "16777216" || w.state(ihash) != v1alpha1.SettingPending {
		t.Errorf("menu %v, state %s", w.menu, w.state(ihash))
	}
	if status := w.node.Status; status.RebootRequired || len(status.RebootRequiredBy) > 0 {
		t.Errorf("a reboot is required by %v", status.RebootRequiredBy)
	}
	w.permit("p1")
	w.settle(a)
	if len(w.reboots) > 0 || w.node.Status.Reboot.Phase != v1alpha1.RebootRefused {
		t.Errorf("reboots %v, answer %+v", w.reboots, w.node.Status.Reboot)
	}
	// Somebody else boots the node.
	w.boot()
	w.settle(w.agent())
	if w.state(ihash) != v1alpha1.SettingInSync {
		t.Errorf("state %s after the boot", w.state(ihash))
	}
	w.bootloader.Proven = true
	w.declare(setting(rmem, "16777216"), setting(ihash, "8388608"))
	w.settle(w.agent())
	if !w.node.Status.RebootRequired {
		t.Error("no reboot is required for a boot loader that is proven")
	}
}
