package reaper

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/test/check"
)

// runTest makes this program a run that a test interrupts.
const runTest = "SCO_REAPER_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(runTest) == "" {
		os.Exit(m.Run())
	}
	be := beRun
	if os.Getenv(runTest) == "replaced" {
		be = beReplaced
	}
	if err := be(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beReplaced acts as a run that starts a program and then replaces itself by another program, which outlives the run.
func beReplaced() error {
	if err := Start(); err != nil {
		return err
	}
	child := exec.CommandContext(context.Background(), "sleep", "1000")
	if err := child.Start(); err != nil {
		return err
	}
	script := `while kill -0 "$0" || [ -e "$1" ]; do sleep 0.1; done 2>/dev/null; echo "$TMPDIR"`
	return syscall.Exec("/bin/sh", []string{"sh", "-c", script, strconv.Itoa(child.Process.Pid), os.TempDir()}, Environ())
}

// beRun starts a program in the same way as envtest, prints its process ID and the temporary directory, and exits at the end of its
// input.
func beRun() error {
	if err := Start(os.Getenv(runTest)); err != nil {
		return err
	}
	// The shell starts another process, in another session.
	child := exec.CommandContext(context.Background(), "sh", "-c", "setsid sleep 1000 & echo $!; wait")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	grandchild, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		mounted := filepath.Join(os.TempDir(), "mounted point")
		if err := os.Mkdir(mounted, 0o700); err != nil {
			return err
		}
		if err := unix.Mount(os.Getenv("SCO_REAPER_TEST_MOUNT"), mounted, "", unix.MS_BIND, ""); err != nil {
			fmt.Fprintln(os.Stderr, "mounts are left out:", err)
		}
	}
	fmt.Printf("%d\n%s%s\n", child.Process.Pid, grandchild, os.TempDir())
	_, err = bufio.NewReader(os.Stdin).ReadByte()
	return err
}

// run contains the test's data about a run.
type run struct {
	cmd       *exec.Cmd
	processes []process
	tmp       string
	// also is a directory that the run registers for removal. mounted is a directory whose content it has mounted.
	also, mounted string
}

// startRun starts a run below the given command, and returns when it has started all processes.
func startRun(t *testing.T, above ...string) run {
	t.Helper()
	r := run{also: filepath.Join(t.TempDir(), "also"), mounted: t.TempDir()}
	for _, name := range []string{filepath.Join(r.also, "disk"), filepath.Join(r.mounted, "precious")} {
		check.NoError(t, os.MkdirAll(name, 0o700))
	}
	argv := append(slices.Clone(above), os.Args[0])
	r.cmd = exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	r.cmd.Env = append(os.Environ(), runTest+"="+r.also, "SCO_REAPER_TEST_MOUNT="+r.mounted, "TMPDIR="+t.TempDir())
	r.cmd.Stderr = os.Stderr
	if _, err := r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := r.cmd.StdoutPipe()
	check.NoError(t, err)
	check.NoError(t, r.cmd.Start())
	t.Cleanup(func() { _ = r.cmd.Wait() })
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		id, err := strconv.Atoi(lines.Text())
		if err != nil {
			r.tmp = lines.Text()
			break
		}
		p, err := find(id)
		check.NoError(t, err)
		r.processes = append(r.processes, p)
	}
	if len(r.processes) != 2 || !strings.Contains(r.tmp, dirPrefix) {
		t.Fatalf("got processes %v and directory %q of the run", r.processes, r.tmp)
	}
	return r
}

// awaitNothingLeft returns when no trace of the run remains. The timeout of the test limits the wait.
func (r run) awaitNothingLeft(t *testing.T) {
	t.Helper()
	left := func() bool {
		gone := func(name string) bool { _, err := os.Lstat(name); return os.IsNotExist(err) }
		return slices.ContainsFunc(r.processes, process.runs) || !gone(r.tmp) || !gone(r.also)
	}
	for left() {
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := os.Stat(filepath.Join(r.mounted, "precious")); err != nil {
		t.Errorf("the content of the mount was removed: %v", err)
	}
}

func TestARunIsCleanedUp(t *testing.T) {
	for name, end := range map[string]func(*testing.T, run){
		"that is killed": func(t *testing.T, r run) {
			if err := r.cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		},
		"that is interrupted": func(t *testing.T, r run) {
			if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRun(t)
			end(t, r)
			r.awaitNothingLeft(t)
		})
	}
}

// The go command exits before the test that it has started.
func TestARunWhoseParentIsKilledIsCleanedUp(t *testing.T) {
	r := startRun(t, "sh", "-c", `"$@"; true`, "sh")
	ids := marked(runTest + "=" + r.also)
	check.NoError(t, r.cmd.Process.Kill())
	r.awaitNothingLeft(t)
	for _, p := range ids {
		if p.ID != r.cmd.Process.Pid && p.runs() {
			t.Errorf("process %d of the run still exists", p.ID)
		}
	}
}

func TestAProgramThatReplacesARunOutlivesIt(t *testing.T) {
	tmp := t.TempDir()
	run := exec.CommandContext(t.Context(), os.Args[0])
	run.Env = append(os.Environ(), runTest+"=replaced", "TMPDIR="+tmp)
	run.Stderr = os.Stderr
	if out, err := run.Output(); err != nil || string(out) != tmp+"\n" {
		t.Errorf("got output %q, error %v", out, err)
	}
}

func TestDirectoriesOfKilledReapersAreRemoved(t *testing.T) {
	self, err := find(os.Getpid())
	check.NoError(t, err)
	parent := t.TempDir()
	for name, test := range map[string]struct {
		owner any
		stays bool
	}{
		"of a finished run":                      {owner: process{ID: self.ID, Began: "1"}},
		"of a running run":                       {owner: self, stays: true},
		"of a run that has just created it":      {stays: true},
		"of another program with a similar name": {owner: "someone-else", stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp(parent, dirPrefix)
			check.NoError(t, err)
			if test.owner != nil {
				text, err := json.Marshal(test.owner)
				check.NoError(t, err)
				check.NoError(t, os.WriteFile(filepath.Join(dir, ownerFile), text, 0o600))
			}
			removeStale(parent)
			if _, err := os.Stat(dir); (err == nil) != test.stays {
				t.Errorf("after the start of another run: %v", err)
			}
		})
	}
}

func TestOnlyMarkedProcessesAreKilled(t *testing.T) {
	other := exec.CommandContext(t.Context(), "sleep", "1000")
	other.Env = []string{runVariable + "=another", "X" + runVariable + "=ours", "NOTE=" + runVariable + "=ours"}
	check.NoError(t, other.Start())
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	p, err := find(other.Process.Pid)
	check.NoError(t, err)
	order{Run: "ours"}.endProcesses()
	if !p.runs() {
		t.Error("a process of another run was killed")
	}
}
