package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const (
	// siteFile is read after the files of packages and of the agent.
	siteFile = "/etc/sysctl.d/zzz-site.conf"
	// aksFile is a file of Azure's nodes.
	aksFile = "/etc/sysctl.d/999-sysctl-aks.conf"
)

// TestAFileThatOverridesTheAgentsFileCausesNoReboot covers a boot at which another program's file wins. The agent sets its value again,
// which is not drift and does not block the kernel argument that the node is rebooted for.
func TestAFileThatOverridesTheAgentsFileCausesNoReboot(t *testing.T) {
	h := newTryingHost(t)
	h.write(siteFile, "net.core.rmem_max = 4096\n")
	h.declare(setting(ihash, "1048576"), setting(rmem, "16777216"))
	a := h.runUntilIdle(h.agent())
	h.expectShadowed()
	if status := h.clientNode.Status; !status.RebootRequired || len(status.RebootRequiredBy) != 1 || status.RebootRequiredBy[0] != ihash {
		t.Errorf("got reboot required by %v", status.RebootRequiredBy)
	}
	h.permit("permit-1")
	if !h.runPass(a) || len(h.reboots) != 1 {
		t.Fatalf("no reboot, status %+v", h.clientNode.Status.Reboot)
	}
	h.start("")
	h.write("/proc/sys/net/core/rmem_max", "4096\n") // by systemd-sysctl, from that file
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.RebootPermit = nil })
	h.runUntilIdle(h.agent())
	h.expectShadowed()
	if h.state(ihash) != v1alpha1.SettingInSync || h.clientNode.Status.RebootRequired {
		t.Errorf("state after the boot: got %s, reboot required by %v", h.state(ihash), h.clientNode.Status.RebootRequiredBy)
	}
	for _, s := range h.clientNode.Status.Settings {
		if s.Drift != nil {
			t.Errorf("%s counts as drift: %+v", s.Key, s.Drift)
		}
	}
}

func (h *tryingHost) expectShadowed() {
	h.t.Helper()
	if got := strings.TrimSpace(hosttest.ReadFile(h.t, h.dir, "/proc/sys/net/core/rmem_max")); got != "16777216" {
		h.t.Errorf("got live value %s", got)
	}
	if h.state(rmem) != v1alpha1.SettingShadowed || !strings.Contains(h.message(rmem), siteFile) {
		h.t.Errorf("got %s: %s, want Shadowed by %s", h.state(rmem), h.message(rmem), siteFile)
	}
}

// A wrong live value is drift, regardless of files, and is set again.
func TestAShadowedValueThatDriftsIsHealed(t *testing.T) {
	h := newTryingHost(t)
	h.write(siteFile, "net.core.rmem_max = 4096\n")
	h.declare(setting(rmem, "16777216"))
	a := h.runUntilIdle(h.agent())
	h.write("/proc/sys/net/core/rmem_max", "4096\n") // sysctl --system
	h.clock.Step(driftInterval)
	h.runUntilIdle(a)
	h.expectShadowed()
	if drift := h.clientNode.Status.Settings[0].Drift; drift == nil || drift.Count != 1 {
		t.Errorf("drift: got %+v, want a count of 1", drift)
	}
}

// The agent also does not reboot for a value that no boot can set while the file exists.
func TestAFileThatWinsAtBootRejectsThePermit(t *testing.T) {
	const sessions, conf = "module/nfs/max_session_slots", "/etc/modprobe.d/zz.conf"
	h := newTryingHost(t)
	parameter := "/sys/module/nfs/parameters/max_session_slots"
	h.write(parameter, "64\n")
	check.NoError(t, os.Chmod(filepath.Join(h.dir, parameter), 0o444))
	h.write(conf, "options nfs max_session_slots=64\n")
	h.declare(setting(ihash, "1048576"), setting(sessions, "180"))
	a := h.runUntilIdle(h.agent())
	if h.state(sessions) != v1alpha1.SettingShadowed || !strings.Contains(h.message(sessions), conf) {
		t.Errorf("got %s: %s", h.state(sessions), h.message(sessions))
	}
	for _, s := range h.clientNode.Status.Settings {
		if s.Key == sessions && s.TakesEffect != v1alpha1.EffectReboot {
			t.Errorf("effect: got %s, want a boot", s.TakesEffect)
		}
	}
	h.permit("permit-1")
	h.runUntilIdle(a)
	if answer := h.clientNode.Status.Reboot; len(h.reboots) > 0 || answer == nil || !strings.Contains(answer.Message, sessions) {
		t.Errorf("got reboots %v, result %+v", h.reboots, answer)
	}
	// Once the file is removed, a boot sets the value.
	check.NoError(t, os.Remove(filepath.Join(h.dir, conf)))
	h.clock.Step(driftInterval)
	h.runUntilIdle(a)
	if h.state(sessions) != v1alpha1.SettingPending {
		t.Errorf("got %s: %s, want a setting that waits for a boot", h.state(sessions), h.message(sessions))
	}
}
