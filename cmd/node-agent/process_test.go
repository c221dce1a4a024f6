package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/test/check"
)

// asProgram is the environment variable that makes the test binary run as the node agent.
const asProgram = "SCO_NODE_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process starts the node agent in a separate process.
func process(t *testing.T, dir, profile string, args ...string) *exec.Cmd {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], append(args, "--host-root", dir)...)
	child.Env = append(os.Environ(), asProgram+"=1")
	child.Stdin, child.Stderr = strings.NewReader(profile), t.Output()
	return child
}

// serveNull starts an NFS server that responds only to its first call. It reports each later call on the channel.
func serveNull(t *testing.T) (port string, unanswered <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	waiting := make(chan struct{}, 100)
	go func() {
		for first := true; ; first = false {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			call := make([]byte, 4+10*4)
			if _, err := io.ReadFull(connection, call); err != nil {
				continue
			}
			if !first {
				waiting <- struct{}{}
				continue
			}
			reply := append(binary.BigEndian.AppendUint32(nil, 1<<31|8), call[4:8]...)
			_, _ = connection.Write(binary.BigEndian.AppendUint32(reply, 1))
		}
	}()
	_, port, err = net.SplitHostPort(listener.Addr().String())
	check.NoError(t, err)
	return port, waiting
}

// The test kills a node agent (kill -9) while it verifies a value. It then adds fields to the journal, as a newer agent would write them.
// The next process reverts the value, leaves all other values unchanged, and restores settings on request.
func TestAKilledAgentsJournalIsOneOfANewerAgent(t *testing.T) {
	dir := hosttest.CopyHost(t, "debian-12")
	read := func(name string) string { return strings.TrimSpace(hosttest.ReadFile(t, dir, name)) }
	const rmem, dirty = "/proc/sys/net/core/rmem_max", "/proc/sys/vm/dirty_ratio"
	originals := []string{read(rmem), read(dirty)}
	port, unanswered := serveNull(t)
	hosttest.WriteFile(t, dir, "/proc/1/mountinfo", read("/proc/1/mountinfo")+
		"\n900 1 0:90 / /mnt/data rw - nfs4 filer1:/data rw,vers=4.2,proto=tcp,port="+port+",addr=127.0.0.1\n")

	tuning := strings.Replace(good, "{net.core.rmem_max: \"16777216\"}", "{net.core.rmem_max: \"16777216\", vm.dirty_ratio: \"30\"}", 1)
	killed := process(t, dir, tuning, "apply", "-f", "-")
	check.NoError(t, killed.Start())
	exited := make(chan error, 1)
	go func() { exited <- killed.Wait() }()
	select {
	case <-unanswered:
		_ = killed.Process.Kill()
		if err := <-exited; err == nil {
			t.Fatal("got exit status 0 of the killed process")
		}
	case err := <-exited:
		t.Fatalf("the process ended before the test killed it: %v", err)
	}
	if read(rmem) != "16777216" || read(dirty) != "30" {
		t.Fatalf("before the test ends the process: got %s, %s", read(rmem), read(dirty))
	}

	later := read(journal.File)
	if !strings.Contains(later, `"unconfirmedDeadline": "`) {
		t.Errorf("the journal has no deadline by the boot clock:\n%s", later)
	}
	for _, field := range []string{"\"version\": 1", "\"original\": {", "\"entries\": {\n    \"sysctl/vm.dirty_ratio\": {", "\"entry\": {", "\"unconfirmed\": {"} {
		if !strings.Contains(later, field) {
			t.Fatalf("no %s in the journal:\n%s", field, later)
		}
		added := field + "\"later\": {\"a\": 1.50}, "
		if !strings.HasSuffix(field, "{") {
			added = field + ", \"later\": {\"a\": 1.50}"
		}
		later = strings.ReplaceAll(later, field, added)
	}
	hosttest.WriteFile(t, dir, journal.File, later)

	var status *exec.ExitError
	out, err := process(t, dir, strings.Replace(tuning, "30", "40", 1), "apply", "-f", "-").Output()
	if !errors.As(err, &status) || status.ExitCode() != 2 || !strings.Contains(string(out), "so only restoring is possible; upgrade this agent") {
		t.Errorf("apply: %v\n%s", err, out)
	}
	if read(rmem) != originals[0] || read(dirty) != "30" {
		t.Errorf("after the next start: got %s, %s", read(rmem), read(dirty))
	}
	if got := strings.Count(read(journal.File), `"later"`); got != 3 {
		t.Errorf("got %d of 3 unknown fields (journal, entry, original):\n%s", got, read(journal.File))
	}

	if out, err := process(t, dir, "", "restore").Output(); err != nil {
		t.Errorf("restore: %v\n%s", err, out)
	}
	if read(rmem) != originals[0] || read(dirty) != originals[1] {
		t.Errorf("after restore: got %s, %s", read(rmem), read(dirty))
	}
	if _, err := os.Stat(filepath.Join(dir, "/etc/sysctl.d/zz-storage-client.conf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the operator's sysctl file still exists: %v", err)
	}
	if got := strings.Join(strings.Fields(read(journal.File)), ""); !strings.Contains(got, `"later":{"a":1.50}`) || strings.Contains(got, "dirty") {
		t.Errorf("journal %s", got)
	}
}
