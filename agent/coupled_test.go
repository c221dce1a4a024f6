package agent

import (
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

const (
	background      = "sysctl/vm.dirty_background_ratio"
	backgroundBytes = "sysctl/vm.dirty_background_bytes"
	ratioFile       = "/proc/sys/vm/dirty_background_ratio"
	bytesFile       = "/proc/sys/vm/dirty_background_bytes"
)

// coupleBackground makes vm.dirty_background_bytes effective on the machine.
func (w *world) coupleBackground() {
	w.write(ratioFile, "0\n")
	w.write(bytesFile, "25000000\n")
}

// clearCounterpart simulates the kernel after a write to one parameter of the pair.
func (w *world) clearCounterpart(name string) {
	if other := map[string]string{ratioFile: bytesFile, bytesFile: ratioFile}[name]; other != "" {
		w.write(other, "0\n")
	}
}

func (w *world) readPair() [2]string {
	return [2]string{hosttest.ReadFile(w.t, w.dir, ratioFile), hosttest.ReadFile(w.t, w.dir, bytesFile)}
}

// A profile sets one parameter of a pair, then the other, and then neither. The original value is restored.
func TestTheOriginalsOfAPairOutliveAChangeFromOneToTheOther(t *testing.T) {
	h := newStorageHost(t)
	h.coupleBackground()
	h.write(AllowFile, "sysctl/vm\\.dirty_background_bytes\n")
	h.fs = h.fs.WithHook(func(op host.Op, name string) error {
		if op == host.OpWriteValue {
			h.clearCounterpart(name)
		}
		return nil
	})
	before := h.readPair()
	h.declare(setting(background, "5"))
	a := h.runUntilIdle(h.agent())
	h.expectPair(background, "5\n", "0\n")
	h.declare(setting(backgroundBytes, "80000000"))
	a = h.runUntilIdle(a)
	h.expectPair(backgroundBytes, "0\n", "80000000\n")
	want := map[string]host.Original{backgroundBytes: {Present: true, Value: "25000000", Counterpart: "0"}}
	got := map[string]host.Original{}
	for key, entry := range h.journal() {
		got[key] = entry.Original
	}
	check.Equal(t, "the journal's originals", want, got)
	h.change(func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true })
	h.runUntilIdle(a)
	check.Equal(t, "ratio and bytes", before, h.readPair())
}

func (h *storageHost) expectPair(key, ratio, bytes string) {
	h.t.Helper()
	if got := h.readPair(); got != [2]string{ratio, bytes} {
		h.t.Errorf("ratio and bytes: got %q", got)
	}
	if state := h.state(key); state != v1alpha1.SettingInSync {
		h.t.Errorf("%s: got %s: %s", key, state, h.message(key))
	}
}
