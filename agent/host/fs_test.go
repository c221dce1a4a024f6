package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/test/check"
)

var errCrash = errors.New("crash")

// crashAt fails at the n-th change and at all later ones, as if the process died there.
func crashAt(n int) Hook {
	count := 0
	return func(Op, string) error {
		count++
		if count >= n {
			return errCrash
		}
		return nil
	}
}

func open(t *testing.T, dir string) FS {
	t.Helper()
	f, err := OpenFS(dir)
	check.NoError(t, err)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func put(t *testing.T, dir, name, data string) {
	t.Helper()
	file := filepath.Join(dir, name)
	check.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	check.NoError(t, os.WriteFile(file, []byte(data), 0o644))
}

func link(t *testing.T, dir, target, name string) {
	t.Helper()
	file := filepath.Join(dir, name)
	check.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	check.NoError(t, os.Symlink(target, file))
}

func TestReadFollowsLinksAsTheHostWould(t *testing.T) {
	outside := t.TempDir()
	put(t, outside, "secret", "outside")
	dir := t.TempDir()
	put(t, dir, "usr/bin/mawk", "awk")
	link(t, dir, "usr/bin", "bin")
	link(t, dir, "/etc/alternatives/awk", "usr/bin/awk")
	link(t, dir, "../../usr/bin/mawk", "etc/alternatives/awk")
	link(t, dir, "../../../../../../../usr/bin/mawk", "up")
	link(t, dir, filepath.Join(outside, "secret"), "absolute")
	link(t, dir, strings.Repeat("../", 20)+filepath.Join(outside, "secret")[1:], "relative")
	link(t, dir, "loop", "loop")

	tests := map[string]struct {
		name, want string
		err        error
	}{
		"a plain file":                                        {name: "/usr/bin/mawk", want: "awk"},
		"a relative link of a directory":                      {name: "/bin/mawk", want: "awk"},
		"an absolute link starts at the host's root":          {name: "/bin/awk", want: "awk"},
		"dots above the root stay at the root":                {name: "/up", want: "awk"},
		"dots in the name itself stay in the root":            {name: "/../../usr/bin/mawk", want: "awk"},
		"an absolute link to our own files does not leave":    {name: "/absolute", err: fs.ErrNotExist},
		"a relative link to our own files does not leave":     {name: "/relative", err: fs.ErrNotExist},
		"a missing file":                                      {name: "/usr/bin/gawk", err: fs.ErrNotExist},
		"a missing directory":                                 {name: "/opt/bin/gawk", err: fs.ErrNotExist},
		"a link to itself is an error and not a hanging loop": {name: "/loop", err: syscall.ELOOP},
	}
	f := open(t, dir)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			data, err := f.ReadFile(test.name)
			if !errors.Is(err, test.err) {
				t.Fatalf("error: got %v, want %v", err, test.err)
			}
			if string(data) != test.want {
				t.Errorf("read %q, want %q", data, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), test.name) {
				t.Errorf("error %q does not name %s", err, test.name)
			}
		})
	}
}

func TestWritesStayInTheRoot(t *testing.T) {
	outside := t.TempDir()
	dir := t.TempDir()
	link(t, dir, outside, "etc")
	f := open(t, dir)

	if err := f.WriteFileAtomic("/etc/x.conf", []byte("x"), 0o644); err == nil {
		t.Error("no error for a write through a link out of the root")
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) > 0 {
		t.Errorf("outside the root: %v, %v", entries, err)
	}
}

// A name leads to the same file, whether the kernel reports that it has no links or each element is read.
func TestLinksAreFoundAsByAWalk(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a/b/file", "")
	for name, target := range map[string]string{
		"a/b/up": "../../a", "a/abs": "/a/b", "top": "/", "loop": "loop", "dangling": "a/missing/file", "a/b/file-link": "file", "a/over": "../../../a",
	} {
		link(t, dir, target, name)
	}
	f := open(t, dir)
	elements := []string{"a", "b", "file", "up", "abs", "top", "loop", "dangling", "file-link", "over", "missing", "..", "."}
	without, total := 0, 0
	for n := range len(elements) * len(elements) * len(elements) * len(elements) {
		var parts []string
		for rest := n; rest > 0; rest /= len(elements) {
			parts = append(parts, elements[rest%len(elements)])
		}
		name := "/" + strings.Join(parts, "/")
		for _, follow := range []bool{false, true} {
			got, gotErr := f.resolveLinks(name, follow)
			want, wantErr := f.followLinks(name, follow)
			if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Fatalf("%s, follow %t: got %q, %v, want %q, %v", name, follow, got, gotErr, want, wantErr)
			}
			if total++; f.hasNoLinks("."+path.Clean(name), follow) {
				without++
			}
		}
	}
	if without == 0 || without == total {
		t.Errorf("got %d of %d names without links", without, total)
	}
}

func TestWriteReplacesALinkAndNotItsTarget(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "usr/lib/x.conf", "the package's")
	link(t, dir, "../usr/lib/x.conf", "etc/x.conf")
	f := open(t, dir)

	check.NoError(t, f.WriteFileAtomic("/etc/x.conf", []byte("ours"), 0o644))
	for name, want := range map[string]string{"/etc/x.conf": "ours", "/usr/lib/x.conf": "the package's"} {
		if data, err := f.ReadFile(name); err != nil || string(data) != want {
			t.Errorf("%s: got %q, error %v, want %q", name, data, err, want)
		}
	}
}

func TestWriteFileAtomicSurvivesACrashAtEveryStep(t *testing.T) {
	for n := 1; ; n++ {
		dir := t.TempDir()
		put(t, dir, "etc/x.conf", "old")
		f := open(t, dir)
		err := f.WithHook(crashAt(n)).WriteFileAtomic("/etc/x.conf", []byte("new"), 0o640)
		if err == nil {
			if n < 6 {
				t.Errorf("got only %d steps: create, write, sync, rename and syncdir are expected", n-1)
			}
			return
		}
		if !errors.Is(err, errCrash) {
			t.Fatalf("step %d: %v", n, err)
		}
		if data, err := f.ReadFile("/etc/x.conf"); err != nil || string(data) != "old" && string(data) != "new" {
			t.Errorf("after a crash at step %d: the file contains %q, error %v", n, data, err)
		}
		if err := f.WriteFileAtomic("/etc/x.conf", []byte("new"), 0o640); err != nil {
			t.Errorf("repeat after a crash at step %d: %v", n, err)
		}
		if diff := cmp.Diff([]string{"x.conf -rw-r-----"}, list(t, f, "/etc")); diff != "" {
			t.Errorf("after the repeat of step %d (-want +got):\n%s", n, diff)
		}
	}
}

func TestAFileBeingWrittenIsNoDropIn(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "etc/x.d/a.conf", "")
	f := open(t, dir)
	steps := 0
	hook := func(op Op, _ string) error {
		if op == OpRename {
			return errCrash
		}
		steps++
		return nil
	}
	if err := f.WithHook(hook).WriteFileAtomic("/etc/x.d/b.conf", []byte("b"), 0o644); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	found, err := f.Glob("/etc/x.d", "*")
	if diff := cmp.Diff([]string{"/etc/x.d/a.conf"}, found); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestRemoveAlsoDeletesRemnantsOfACrashedWrite(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "etc/x.conf", "old")
	put(t, dir, "etc/.x.conf"+tempSuffix, "half")
	f := open(t, dir)

	check.NoError(t, f.RemoveTemp("/etc/x.conf"))
	check.Equal(t, "after Tidy", []string{"x.conf -rw-r--r--"}, list(t, f, "/etc"))
	put(t, dir, "etc/.x.conf"+tempSuffix, "half")
	check.NoError(t, f.Remove("/etc/x.conf"))
	if got := list(t, f, "/etc"); len(got) > 0 {
		t.Errorf("leftover files: %v", got)
	}
	if err := f.Remove("/etc/x.conf"); err != nil {
		t.Errorf("remove a missing file: %v", err)
	}
	if err := f.Remove("/opt/none/x.conf"); err != nil {
		t.Errorf("remove a file in a missing directory: %v", err)
	}
}

func TestRenameSyncsFirstAndOnlyWithinADirectory(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "boot/grub.cfg", "old")
	put(t, dir, "boot/grub.cfg.new", "new")
	var ops []Op
	f := open(t, dir).WithHook(func(op Op, _ string) error { ops = append(ops, op); return nil })

	check.NoError(t, f.Rename("/boot/grub.cfg.new", "/boot/grub.cfg"))
	check.Equal(t, "steps", []Op{OpSync, OpRename, OpSyncDir}, ops)
	if err := f.Rename("/boot/grub.cfg", "/grub.cfg"); err == nil {
		t.Error("no error for a rename to another directory")
	}
}

// On VFAT, the content of a new name follows the name, and the clusters of the previous file are in use until both are durable. test/powercut
// checks the result on a real VFAT.
func TestAFileOnVFATIsSyncedAfterItsName(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "efi/loader/a.conf", "old")
	var stat unix.Statfs_t
	check.NoError(t, unix.Statfs(dir, &stat))
	vfatMagic = stat.Type
	t.Cleanup(func() { vfatMagic = unix.MSDOS_SUPER_MAGIC })
	var ops []Op
	var held []bool
	f := open(t, dir).WithHook(func(op Op, _ string) error {
		ops = append(ops, op)
		if op == OpSyncDir {
			held = append(held, isHeld(t, filepath.Join(dir, "efi/loader/a.conf")))
		}
		return nil
	})
	check.NoError(t, f.WriteFileAtomic("/efi/loader/a.conf", []byte("new"), 0o644))
	check.NoError(t, f.Remove("/efi/loader/a.conf"))
	check.Equal(t, "steps", []Op{OpCreate, OpWrite, OpSync, OpRename, OpSyncDir, OpSync, OpRemove, OpSyncDir}, ops)
	check.Equal(t, "the previous file is open at the sync of the directory", []bool{true, true}, held)
}

// isHeld reports whether this process has a file open that had a name and was replaced or removed.
func isHeld(t *testing.T, name string) bool {
	t.Helper()
	open, err := filepath.Glob("/proc/self/fd/*")
	check.NoError(t, err)
	return slices.ContainsFunc(open, func(fd string) bool {
		target, err := os.Readlink(fd)
		return err == nil && target == name+" (deleted)"
	})
}

func TestWriteValueRequiresAnExistingFile(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "proc/sys/vm/dirty_ratio", "212992\n")
	f := open(t, dir)

	check.NoError(t, f.WriteValue("/proc/sys/vm/dirty_ratio", "7"))
	if value, err := f.ReadValue("/proc/sys/vm/dirty_ratio"); value != "7" || err != nil {
		t.Errorf("read back %q, %v", value, err)
	}
	if err := f.WriteValue("/proc/sys/vm/none", "7"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing parameter: %v", err)
	}
}

func TestMkdirAllRepeatsAfterACrash(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	for n := 1; n <= 3; n++ {
		if err := f.WithHook(crashAt(n)).MkdirAll("/etc/default/grub.d", 0o755); !errors.Is(err, errCrash) {
			t.Fatalf("step %d: %v", n, err)
		}
	}
	if err := f.MkdirAll("/etc/default/grub.d", 0o755); err != nil || !f.Exists("/etc/default/grub.d") {
		t.Errorf("the directory was not created: %v", err)
	}
}

func TestDropInsAreReadByBaseNameAndMasked(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"etc/sysctl.d/10-a.conf", "etc/sysctl.d/60-z.conf", "etc/sysctl.d/README", "etc/sysctl.d/.hidden.conf",
		"run/sysctl.d/50-m.conf", "usr/lib/sysctl.d/10-a.conf", "usr/lib/sysctl.d/55-n.conf",
	} {
		put(t, dir, name, "")
	}
	link(t, dir, "/dev/null", "etc/sysctl.d/55-n.conf")
	got, err := open(t, dir).DropIns([]string{"/etc/sysctl.d", "/run/sysctl.d", "/none", "/usr/lib/sysctl.d"}, ".conf")
	want := []string{"/etc/sysctl.d/10-a.conf", "/run/sysctl.d/50-m.conf", "/etc/sysctl.d/55-n.conf", "/etc/sysctl.d/60-z.conf"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestNamesAreSortedAndCapped(t *testing.T) {
	tests := map[string]struct {
		names []string
		want  string
	}{
		"none":             {nil, ""},
		"each once":        {[]string{"b", "a", "b"}, "a, b"},
		"three":            {[]string{"c", "b", "a"}, "a, b, c"},
		"more than three":  {[]string{"e", "d", "c", "b", "a"}, "a, b, c and 2 more"},
		"repeated, capped": {[]string{"d", "c", "b", "a", "a"}, "a, b, c and 1 more"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, ListNames(test.names))
		})
	}
}

func list(t *testing.T, f FS, dir string) []string {
	t.Helper()
	entries, err := f.ReadDir(dir)
	check.NoError(t, err)
	var names []string
	for _, entry := range entries {
		info, err := entry.Info()
		check.NoError(t, err)
		names = append(names, fmt.Sprintf("%s %s", entry.Name(), info.Mode()))
	}
	return names
}

func TestTheUmaskDoesNotDecideWhoMayRead(t *testing.T) {
	f := open(t, t.TempDir())
	check.NoError(t, f.WriteFileAtomic("/x", nil, 0o666))
	check.Equal(t, "result", []string{"x -rw-rw-rw-"}, list(t, f, "/"))
}

// A named pipe instead of the file must not block the agent.
func TestOpenDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	check.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	// An open that waits for a writer never returns, and go test shows where.
	file, err := f.Open("/pipe")
	check.NoError(t, err)
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Open("/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
