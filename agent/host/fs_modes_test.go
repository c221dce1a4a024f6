package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/storageclient/operator/test/check"
)

func TestReadOnlyFileSystemRejectsEveryChange(t *testing.T) {
	dir := t.TempDir()
	check.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o600))
	files, err := OpenFS(dir)
	check.NoError(t, err)
	defer files.Close()
	files = files.AsReadOnly()
	for name, change := range map[string]func() error{
		"write":       func() error { return files.WriteFileAtomic("/f", []byte("new"), 0o600) },
		"write value": func() error { return files.WriteValue("/f", "new") },
		"remove":      func() error { return files.Remove("/f") },
		"rename":      func() error { return files.Rename("/f", "/g") },
		"mkdir":       func() error { return files.MkdirAll("/d", 0o755) },
		"chmod":       func() error { return files.Chmod("/f", 0o777) },
	} {
		if err := change(); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("entries: got %v, error %v", entries, err)
	}
	if data, err := files.ReadFile("/f"); err != nil || string(data) != "old" {
		t.Errorf("content: got %q, error %v", data, err)
	}
}

func TestImageHasNoRunningSystem(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"proc/sys/kernel/osrelease", "sys/module/nfs/x", "run/sysctl.d/a.conf", "etc/a.conf"} {
		check.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		check.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	check.NoError(t, os.Symlink("/proc/sys", filepath.Join(dir, "etc/live")))
	files, err := OpenFS(dir)
	check.NoError(t, err)
	defer files.Close()
	if !files.RunsKernel() {
		t.Error("a tree with a /proc of its own is accepted as an image")
	}
	image := files.AsImage()
	for _, name := range []string{"/proc/sys/kernel/osrelease", "/sys/module/nfs/x", "/run/sysctl.d/a.conf", "/etc/live/kernel/osrelease", "/proc"} {
		if _, err := image.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("read %s: %v", name, err)
		}
		if err := image.WriteValue(name, "1"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("write %s: %v", name, err)
		}
	}
	if names, err := image.DropIns([]string{"/etc", "/run/sysctl.d"}, ".conf"); err != nil || len(names) != 1 || names[0] != "/etc/a.conf" {
		t.Errorf("drop-ins %v, %v", names, err)
	}
	check.NoError(t, os.Remove(filepath.Join(dir, "proc/sys/kernel/osrelease")))
	if files.RunsKernel() {
		t.Error("a tree without a running kernel is rejected as an image")
	}
}

func TestSpaceOfAFileSystem(t *testing.T) {
	files, err := OpenFS("/")
	check.NoError(t, err)
	defer files.Close()
	if space, err := files.FreeSpace(t.TempDir()); err != nil || space.Free == 0 || space.ReadOnly {
		t.Errorf("space = %+v, %v", space, err)
	}
	if _, err := files.FreeSpace("/nonexistent/x"); err == nil {
		t.Error("no error for a missing name")
	}
}
