package sysctl

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/text"
)

func atLeast(value string) []host.Setting {
	return []host.Setting{{Name: tcpRmem, Value: value, AtLeast: true}}
}

const rmemFile = "/proc/sys/net/ipv4/tcp_rmem"

func TestMinimumIsRaisedAndNeverLowered(t *testing.T) {
	const numbers = "4096 1048576 16777216"
	for name, test := range map[string]struct {
		value, live, want, file string
		changes                 bool
	}{
		"an old kernel": {value: numbers, live: "4096\t131072\t6291456\n", want: numbers, file: numbers, changes: true},
		"a kernel with a larger maximum": {value: "4096 1048576 33554432", live: "4096\t131072\t33554432\n", want: "4096 1048576 33554432",
			file: "4096 1048576 33554432", changes: true},
		"a kernel that has as much in all places":     {value: "8192 2097152 33554432", live: "8192 2097152 33554432", want: "8192 2097152 33554432", file: "8192 2097152 33554432"},
		"another user has raised one number further":  {value: numbers, live: "4096 131072 67108864", want: "4096 1048576 67108864", file: numbers, changes: true},
		"another user has raised all numbers further": {value: numbers, live: "4096 2097152 67108864", want: "4096 2097152 67108864", file: numbers},
	} {
		t.Run(name, func(t *testing.T) {
			dir, fs := debian(t)
			hosttest.WriteFile(t, dir, rmemFile, test.live)
			s := New(fs)
			desired := atLeast(test.value)
			if got := s.Observe(t.Context(), desired)[0]; got.State != host.Drifted {
				t.Errorf("before Apply: got %s %s, want Drifted, because the agent's file is missing", got.State, got.Message)
			}
			hosttest.Apply(t, s, desired)
			live := hosttest.ReadFile(t, dir, rmemFile)
			if normaliseValue(live) != test.want || (live != test.live) != test.changes {
				t.Errorf("live value: got %q, want %q", live, test.want)
			}
			if got := hosttest.ReadFile(t, dir, DropIn); !strings.Contains(got, tcpRmem+" = "+test.file+"\n") {
				t.Errorf("drop-in: got %q, want %q in it", got, test.file)
			}
			hosttest.ExpectState(t, s.Observe(t.Context(), desired)[0], host.InSync)
			// The value is set in this way before its proof.
			hosttest.WriteFile(t, dir, rmemFile, test.live)
			if rejected := s.Set(t.Context(), desired); len(rejected) > 0 || normaliseValue(hosttest.ReadFile(t, dir, rmemFile)) != test.want {
				t.Errorf("set: got %q, rejected %v; want %q", hosttest.ReadFile(t, dir, rmemFile), rejected, test.want)
			}
			changes := 0
			hosttest.Apply(t, New(tracked(fs, &changes)), desired)
			check.Equal(t, "changes of a second Apply", 0, changes)
		})
	}
}

func TestMinimumDriftsOnlyDownwards(t *testing.T) {
	const numbers = "4096 1048576 16777216"
	dir, fs := debian(t)
	s := New(fs)
	hosttest.Apply(t, s, atLeast(numbers))
	for live, want := range map[string]host.State{"4096 1048576 16777215": host.Drifted, "1 2097152 33554432": host.Drifted, "4096 1048576 33554432": host.InSync} {
		hosttest.WriteFile(t, dir, rmemFile, live)
		hosttest.ExpectState(t, s.Observe(t.Context(), atLeast(numbers))[0], want)
	}
	hosttest.WriteFile(t, dir, rmemFile, numbers)
	later := "/etc/sysctl.d/zzzz.conf"
	hosttest.WriteFile(t, dir, later, tcpRmem+" = 4096 2097152 33554432\n")
	hosttest.ExpectState(t, s.Observe(t.Context(), atLeast(numbers))[0], host.InSync)
	hosttest.WriteFile(t, dir, later, tcpRmem+" = 4096 131072 33554432\n")
	hosttest.ExpectState(t, s.Observe(t.Context(), atLeast(numbers))[0], host.Shadowed, later)
}

// The kernel's default of kernel.shmmax has 64 bits.
func TestMinimumKeepsANumberOfSixtyFourBits(t *testing.T) {
	const name, file, limit = "kernel.shmmax", "/proc/sys/kernel/shmmax", "18446744073692774399\n"
	dir, fs := debian(t)
	hosttest.WriteFile(t, dir, file, limit)
	s := New(fs)
	desired := []host.Setting{{Name: name, Value: "68719476736", AtLeast: true}}
	hosttest.Apply(t, s, desired)
	check.Equal(t, "file", limit, hosttest.ReadFile(t, dir, file))
	if rejected := s.Set(t.Context(), desired); len(rejected) > 0 || hosttest.ReadFile(t, dir, file) != limit {
		t.Errorf("set: got %q, rejected %v; want %q", hosttest.ReadFile(t, dir, file), rejected, limit)
	}
	hosttest.ExpectState(t, s.Observe(t.Context(), desired)[0], host.InSync)
}

var integers = regexp.MustCompile(`^-?\d+( -?\d+)*$`)

// All numbers that this machine's kernel shows are parsed, so that a minimum cannot lower one of them.
func TestMinimumKeepsEveryNumberOfThisKernel(t *testing.T) {
	seen := 0
	err := fs.WalkDir(os.DirFS("/proc/sys"), ".", func(name string, _ fs.DirEntry, _ error) error {
		// Directories, and parameters that cannot be read, have no value.
		content, _ := os.ReadFile(filepath.Join("/proc/sys", name))
		value := normaliseNumbers(string(content))
		if !integers.MatchString(value) {
			return nil
		}
		seen++
		if !text.Covers(value, value) || text.Larger(value, value) != value {
			t.Errorf("%s: %q is not a list of numbers", name, value)
		}
		return nil
	})
	if err != nil || seen < 100 {
		t.Errorf("read %d parameters: %v", seen, err)
	}
}

func TestMinimumDoesNotReplaceText(t *testing.T) {
	dir, fs := debian(t)
	hosttest.WriteFile(t, dir, rmemFile, "4096 large\n")
	err := New(fs).Set(t.Context(), atLeast("4096 1048576 16777216"))[tcpRmem]
	if got := hosttest.ReadFile(t, dir, rmemFile); got != "4096 large\n" || err == nil || !strings.Contains(err.Error(), "not a list of whole numbers") {
		t.Errorf("got %q, error %v", got, err)
	}
}
