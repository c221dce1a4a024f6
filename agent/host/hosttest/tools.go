package hosttest

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// RequireTools is a variable of the environment. If it is set, a missing program fails a test that compares with it, instead of skipping it.
const RequireTools = "SCO_REQUIRE_HOST_TOOLS"

// Tool copies a program of this machine and its libraries, or a script and its shell, into the directory of a host. The function that it returns runs the program with that
// directory as root directory, and returns both outputs. Tool skips the test if the program is not installed, or cannot run there.
func Tool(t testing.TB, dir, name string) func(args ...string) string {
	t.Helper()
	skip := t.Skipf
	if os.Getenv(RequireTools) != "" {
		skip = t.Fatalf
	}
	program := findTool(name)
	if program == "" {
		skip("%s is NOT compared with: install its package", name)
	}
	copyTool(t, dir, program, "/tool/"+name)
	run := func(args ...string) (string, error) {
		command := exec.CommandContext(t.Context(), "/tool/"+name, args...)
		command.Env, command.Dir = []string{"LC_ALL=C", "PATH=/tool", "SYSTEMD_LOG_LEVEL=debug", "SYSTEMD_DEVICE_VERIFY_SYSFS=0"}, "/"
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
		if os.Geteuid() != 0 {
			command.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
			command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		}
		out, err := command.CombinedOutput()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = nil
		}
		return string(out), err
	}
	if _, err := run("--version"); err != nil {
		skip("%s is NOT compared with: run the tests as root, or allow user namespaces: %v", name, err)
	}
	return func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// Program returns the path of a program of this machine that needs root. It skips the test if the program is not installed, or the test does not run
// as root.
func Program(t testing.TB, name string) string {
	t.Helper()
	program := findTool(name)
	if program == "" || os.Geteuid() != 0 {
		skip := t.Skipf
		if os.Getenv(RequireTools) != "" {
			skip = t.Fatalf
		}
		skip("%s is NOT run: install its package, and run the tests as root", name)
	}
	return program
}

func findTool(name string) string {
	for _, place := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin", "/usr/lib/systemd", "/lib/systemd") {
		if _, err := exec.LookPath(filepath.Join(place, name)); err == nil {
			return filepath.Join(place, name)
		}
	}
	return ""
}

// libraries matches the lines of "ld.so --list".
var libraries = regexp.MustCompile(`(?m)(/\S+) \(0x`)

func copyTool(t testing.TB, dir, program, name string) {
	t.Helper()
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if line, _, _ := strings.Cut(string(text), "\n"); strings.HasPrefix(line, "#!") {
		copyFile(t, program, filepath.Join(dir, name))
		shell := strings.TrimSpace(line[2:])
		copyTool(t, dir, shell, shell)
		return
	}
	file, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	loader := ""
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			data, err := io.ReadAll(part.Open())
			if err != nil {
				t.Fatal(err)
			}
			loader = string(bytes.TrimRight(data, "\x00"))
		}
	}
	out, err := exec.CommandContext(t.Context(), loader, "--list", program).Output()
	if err != nil {
		t.Fatalf("list the libraries of %s: %v", program, err)
	}
	copyFile(t, program, filepath.Join(dir, name))
	copyFile(t, loader, filepath.Join(dir, loader))
	for _, found := range libraries.FindAllStringSubmatch(string(out), -1) {
		copyFile(t, found[1], filepath.Join(dir, found[1]))
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// WriteLink replaces a file of a host by a symbolic link.
func WriteLink(t testing.TB, dir, name, target string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
}
