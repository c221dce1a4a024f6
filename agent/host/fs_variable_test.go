package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/test/check"
)

func TestVariableIsWrittenAndRemoved(t *testing.T) {
	const name = "/efivars/LoaderEntryOneShot-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	dir := t.TempDir()
	f := open(t, dir)
	put(t, dir, "efivars/other", "")
	var ops []Op
	hooked := f.WithHook(func(op Op, _ string) error { ops = append(ops, op); return nil })
	for range 2 {
		check.NoError(t, hooked.WriteVariable(name, []byte("\x07\x00\x00\x00a\x00\x00\x00")))
		if data, err := f.ReadFile(name); err != nil || string(data) != "\x07\x00\x00\x00a\x00\x00\x00" {
			t.Errorf("got %q, %v", data, err)
		}
		makeImmutable(t, filepath.Join(dir, name))
	}
	for range 2 {
		check.NoError(t, hooked.WriteVariable(name, nil))
		if f.Exists(name) {
			t.Error("the variable is left")
		}
	}
	if len(ops) < 4 {
		t.Errorf("operations: %v", ops)
	}
	if err := f.WriteVariable("/missing/X", []byte("x")); err == nil {
		t.Error("without a directory: got no error")
	}
}

// makeImmutable sets the flag, where the file system has flags and the process may set them.
func makeImmutable(t *testing.T, name string) {
	t.Helper()
	file, err := os.Open(name)
	check.NoError(t, err)
	defer file.Close()
	if err := unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, immutableFlag); err != nil {
		t.Logf("flags are NOT tested here: %v", err)
	}
}
