package agent

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	optFS     = "filesystem/opt/data"
	optDropIn = "/etc/systemd/system/opt-data.mount.d/storage-client.conf"
)

// newOptHost returns a host with a data file system at an unusual place.
func newOptHost(t *testing.T) *storageHost {
	h := newStorageHost(t)
	h.write("/run/systemd/generator/opt-data.mount", "[Mount]\nWhat=/dev/sdc1\nWhere=/opt/data\nType=xfs\n")
	h.writeTable("40 30 8:33 / /opt/data rw,relatime - xfs /dev/sdc1 rw,attr2,inode64,logbufs=8,logbsize=32k,noquota\n")
	return h
}

// agentOf returns an agent whose administrator permits the given directories.
func (h *storageHost) agentOf(filesystems ...string) *Agent {
	h.t.Helper()
	a, err := New(Config{Host: h.real(), API: h.world, Allowed: Allowed{Filesystems: filesystems}, Clock: h.clock})
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

func TestTheAgentItselfAdmitsFileSystems(t *testing.T) {
	h := newOptHost(t)
	h.declare(setting(optFS, "xfs:logbsize=256k"), setting("filesystem/*", ":noexec"), setting("filesystem/var/lib/kubelet", ":noexec"))
	h.runUntilIdle(h.agentOf())
	for key, part := range map[string]string{
		optFS: "rejected by this node's agent", "filesystem/*": "also matches the system's file systems",
		"filesystem/var/lib/kubelet": "belongs to the system",
	} {
		if h.state(key) != v1alpha1.SettingUnsupported || !strings.Contains(h.message(key), part) {
			t.Errorf("%s: got %s %s", key, h.state(key), h.message(key))
		}
	}
	if h.fs.Exists(optDropIn) {
		t.Error("staged a rejected setting")
	}
	h.runUntilIdle(h.agentOf("/opt"))
	if h.state(optFS) != v1alpha1.SettingPending || !strings.Contains(hosttest.ReadFile(t, h.dir, optDropIn), "logbsize=256k") {
		t.Errorf("%s: got %s %s", optFS, h.state(optFS), h.message(optFS))
	}
}

func TestAnUpgradeKeepsOptionsThatWereAccepted(t *testing.T) {
	for value, isKept := range map[string]bool{"xfs:logbsize=256k": true, "xfs:logbsize=256k,noexec": false} {
		h := newOptHost(t)
		h.declare(setting(optFS, value))
		h.runUntilIdle(h.agentOf("/opt")) // an earlier release permitted every place
		before := hosttest.ReadFile(t, h.dir, optDropIn)
		a := h.runUntilIdle(h.agentOf())
		if got := hosttest.ReadFile(t, h.dir, optDropIn); before == "" || (got == before) != isKept || (got == "") == isKept {
			t.Errorf("%s: drop-in: got %q, want %q", value, got, before)
		}
		if h.state(optFS) != v1alpha1.SettingUnsupported || strings.Contains(h.message(optFS), "the last applied value stays") != isKept {
			t.Errorf("%s: got %s %s", value, h.state(optFS), h.message(optFS))
		}
		h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
		h.runUntilIdle(a)
		if h.fs.Exists(optDropIn) || !h.clientNode.Status.Restored {
			t.Errorf("%s: not restored: %+v", value, h.clientNode.Status.Settings)
		}
	}
}
