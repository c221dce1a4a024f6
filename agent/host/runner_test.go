package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/test/check"
)

func onThisHost(t *testing.T) Commands {
	t.Helper()
	return NewCommands(open(t, "/"))
}

func TestRunReturnsOutputAndPassesArgumentsAsTheyAre(t *testing.T) {
	out, err := onThisHost(t).Run(t.Context(), "printf", "%s|", "a b", "$HOME", "`id`")
	if err != nil || string(out) != "a b|$HOME|`id`|" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestRunHasAFixedEnvironment(t *testing.T) {
	t.Setenv("SECRET", "leaks")
	out, err := onThisHost(t).Run(t.Context(), "env")
	check.NoError(t, err)
	want := "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nLC_ALL=C\nSYSTEMCTL_FORCE_BUS=1"
	if got := strings.TrimSpace(string(out)); !sameLines(got, want) {
		t.Errorf("environment: got %q, want %q", got, want)
	}
}

func sameLines(got, want string) bool {
	for line := range strings.SplitSeq(got, "\n") {
		// Some shells set this variable themselves.
		if !strings.Contains(want, line) && !strings.HasPrefix(line, "PWD=") {
			return false
		}
	}
	return true
}

func TestRunErrorHoldsCommandStatusAndStandardError(t *testing.T) {
	_, err := onThisHost(t).Run(t.Context(), "ls", "/no/such/file")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() == 0 {
		t.Fatalf("error: got %v", err)
	}
	for _, part := range []string{"ls /no/such/file", "exit status", "No such file or directory"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error: got %q, want it to contain %q", err, part)
		}
	}
}

func TestRunLooksForCommandsInTheHostsRoot(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "usr/sbin/tool", "#!/bin/sh\n")
	check.NoError(t, os.Chmod(filepath.Join(dir, "usr", "sbin", "tool"), 0o755))
	put(t, dir, "usr/bin/noexec", "")
	link(t, dir, "/usr/sbin/tool", "usr/bin/alias")
	c := NewCommands(open(t, dir))
	for name, want := range map[string]string{"tool": "/usr/sbin/tool", "alias": "/usr/bin/alias", "/x/y": "/x/y"} {
		if got, err := c.lookPath(name); got != want || err != nil {
			t.Errorf("%s is found as %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"ls", "noexec", "none"} {
		if _, err := c.Run(t.Context(), name); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("%s: %v, want %v", name, err, exec.ErrNotFound)
		}
	}
	if _, err := c.Run(t.Context()); err == nil {
		t.Error("no error for an empty command line")
	}
}

func TestRunChangesTheRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot(2) requires root: run the tests as root to test host commands in another root directory")
	}
	busybox := staticBinary(t)
	dir := t.TempDir()
	data, err := os.ReadFile(busybox)
	check.NoError(t, err)
	put(t, dir, "usr/bin/probe", string(data))
	check.NoError(t, os.Chmod(filepath.Join(dir, "usr", "bin", "probe"), 0o755))
	put(t, dir, "only-here", "in the root")
	out, err := NewCommands(open(t, dir)).Run(t.Context(), "probe", "/only-here")
	if err != nil || string(out) != "/ in the root" {
		t.Errorf("got %q, %v", out, err)
	}
}

// staticBinary builds a program that prints its directory and a file.
func staticBinary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, "main.go", `package main

import "os"

func main() {
	dir, _ := os.Getwd()
	data, _ := os.ReadFile(os.Args[1])
	os.Stdout.WriteString(dir + " " + string(data))
}
`)
	put(t, dir, "go.mod", "module probe\n")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "probe", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a program to run: %v: %s", err, out)
	}
	return filepath.Join(dir, "probe")
}

func TestRunKillsTheChildrenToo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := filepath.Join(t.TempDir(), "child")
	child := make(chan int, 1)
	go func() {
		defer cancel()
		for {
			// The line is complete once it ends with a line break.
			if text, _ := os.ReadFile(file); strings.HasSuffix(string(text), "\n") {
				id, _ := strconv.Atoi(strings.TrimSpace(string(text)))
				child <- id
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := onThisHost(t).Run(ctx, "sh", "-c", "sleep 600 & echo $! > "+file+"; sleep 600; true")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error: got %v", err)
	}
	// The kernel kills the child before or soon after Run returns, and its new parent collects it. Otherwise, it would continue for 600 s.
	id := <-child
	for runs(id) {
		time.Sleep(time.Millisecond)
	}
}

// runs reports whether a process is still running.
func runs(id int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestOutputIsBounded(t *testing.T) {
	h := &head{limit: 4}
	for range 3 {
		if n, err := h.Write([]byte("abc")); n != 3 || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
	}
	if h.buf.String() != "abca" || !h.cut {
		t.Errorf("output: got %q, truncated %v", h.buf.String(), h.cut)
	}
	e := &tail{limit: 4}
	for _, part := range []string{"abc", "def", "g"} {
		if _, err := e.Write([]byte(part)); err != nil {
			t.Error(err)
		}
	}
	if string(e.buf) != "defg" {
		t.Errorf("output: got %q", e.buf)
	}
}
