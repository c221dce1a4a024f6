package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/shortdir"
)

// If QEMU exits before it requests the disk, for example for lack of memory, the driver must not wait.
func TestAMachineThatFailsAtItsStartIsReported(t *testing.T) {
	dir := shortdir.New(t)
	script := "#!/bin/sh\necho cannot set up guest memory >&2\nexit 1\n"
	check.NoError(t, os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte(script), 0o755))
	t.Setenv("PATH", dir)
	m := &vm{dir: dir, disk: newDisk(make([]byte, block))}
	var err error
	if m.listener, err = (&net.ListenConfig{}).Listen(t.Context(), "unix", m.socket()); err != nil {
		t.Fatal(err)
	}
	defer m.listener.Close()
	go m.serve()
	// If the driver waited for a machine that has exited, it would never return, and go test would show where.
	if _, err := m.lastBoot(t.Context()); err == nil || !strings.Contains(err.Error(), "shut down unexpectedly") || !strings.Contains(err.Error(), "guest memory") {
		t.Errorf("got %v", err)
	}
}
