package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/test/check"
)

func TestFileIsRestoredExactly(t *testing.T) {
	const name = "/etc/f"
	write := func(data string, mode fs.FileMode) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			check.NoError(t, errors.Join(os.RemoveAll(file), os.WriteFile(file, []byte(data), mode), os.Chmod(file, mode)))
		}
	}
	states := map[string]func(*testing.T, string){
		"absent": func(t *testing.T, file string) {
			check.NoError(t, os.RemoveAll(file))
		},
		"some bytes":           write("a  b\n\n", 0o644),
		"other bytes":          write("c", 0o644),
		"the same, but secret": write("a  b\n\n", 0o600),
		"a link": func(t *testing.T, file string) {
			check.NoError(t, errors.Join(os.RemoveAll(file), os.Symlink("../nowhere", file)))
		},
	}
	crash := errors.New("crash")
	for former, prepare := range states {
		for current, change := range states {
			t.Run(former+", now "+current, func(t *testing.T) {
				for at := 1; ; at++ {
					dir := t.TempDir()
					put(t, dir, "etc/other", "")
					f := open(t, dir)
					prepare(t, filepath.Join(dir, name))
					saved, err := f.SaveFile(name)
					check.NoError(t, err)
					change(t, filepath.Join(dir, name))
					between, count := saveNow(t, f, name), 0
					err = f.WithHook(func(Op, string) error {
						if count++; count >= at {
							return crash
						}
						return nil
					}).RestoreFile(name, saved)
					if now := saveNow(t, f, name); err != nil && !now.Equal(saved) && !now.Equal(between) {
						t.Fatalf("after a crash at change %d: got %+v", at, now)
					}
					if count < at {
						if now := saveNow(t, f, name); err != nil || !now.Equal(saved) {
							t.Errorf("got %+v, want %+v, error %v", now, saved, err)
						}
						if former == current && count > 0 {
							t.Errorf("got %d changes of an unchanged file", count)
						}
						return
					}
					if err := f.RestoreFile(name, saved); err != nil || !saveNow(t, f, name).Equal(saved) {
						t.Fatalf("restore after a crash at change %d: %v", at, err)
					}
				}
			})
		}
	}
}

func saveNow(t *testing.T, f FS, name string) SavedFile {
	t.Helper()
	saved, err := f.SaveFile(name)
	check.NoError(t, err)
	return saved
}

func TestFileIsRestoredWithItsLabel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can label files: run the tests as root to test the labels of saved files")
	}
	const name = "/etc/f"
	dir := t.TempDir()
	put(t, dir, name, "was")
	label := "system_u:object_r:bootloader_etc_t:s0\x00"
	check.NoError(t, unix.Setxattr(filepath.Join(dir, name), labelAttribute, []byte(label), 0))
	f := open(t, dir)
	saved, err := f.SaveFile(name)
	if err != nil || saved.Label != label {
		t.Fatalf("saved with the label %q, %v", saved.Label, err)
	}
	// A program of the host replaces the file.
	check.NoError(t, f.WriteFileAtomic(name, []byte("is"), 0o600))
	check.NoError(t, f.RestoreFile(name, saved))
	if restored, err := f.SaveFile(name); err != nil || restored.Label != label {
		t.Errorf("restored with the label %q, %v", restored.Label, err)
	}
	// An older release saved files without their labels.
	saved.Label, saved.Data = "", []byte("before")
	if err := f.RestoreFile(name, saved); err != nil {
		t.Error(err)
	}
}

// On vfat, a new file has the label of the mount, and no label can be set.
func TestLabelThatCannotBeSetAndIsRight(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can label files: run the tests as root to test the labels of saved files")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	check.NoError(t, err)
	defer file.Close()
	saved := SavedFile{Present: true, Label: "system_u:object_r:dosfs_t:s0\x00"}
	check.NoError(t, labelTemp(file, &saved))
	setLabel = func(int, string, []byte, int) error { return unix.EOPNOTSUPP }
	defer func() { setLabel = unix.Fsetxattr }()
	if err := labelTemp(file, &saved); err != nil {
		t.Errorf("the same label: %v", err)
	}
	saved.Label = "system_u:object_r:boot_t:s0\x00"
	if err := labelTemp(file, &saved); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("another label: got error %v", err)
	}
}

func TestFilesThatCannotBeRestoredAreNotSaved(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "large", strings.Repeat("x", maxSavedSize+1))
	put(t, dir, "etc/f", "")
	f := open(t, dir)
	for name, part := range map[string]string{"/large": "more than 64 KiB", "/etc": "not a regular file"} {
		if _, err := f.SaveFile(name); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %q", name, err, part)
		}
	}
	if saved, err := f.SaveFile("/etc/f/below"); err != nil || saved.Present {
		t.Errorf("below a file: %+v, %v", saved, err)
	}
}
