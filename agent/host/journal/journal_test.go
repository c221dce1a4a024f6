package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/test/check"
)

func open(t *testing.T) (host.FS, string) {
	t.Helper()
	dir := t.TempDir()
	fs, err := host.OpenFS(dir)
	check.NoError(t, err)
	t.Cleanup(func() { _ = fs.Close() })
	return fs, dir
}

func load(t *testing.T, fs host.FS) *Journal {
	t.Helper()
	j := New(fs)
	check.NoError(t, j.Load())
	return j
}

var entry = Entry{Original: host.Original{Present: true, Value: "1"}, Profile: "p", Applied: "2"}

func TestTheFirstOriginalStays(t *testing.T) {
	fs, _ := open(t)
	j := load(t, fs)
	check.NoError(t, j.Record(map[string]Entry{"sysctl/a": entry}))
	later := Entry{Original: host.Original{Present: true, Value: "2"}, Profile: "q", Retain: true, Applied: "3"}
	check.NoError(t, j.Record(map[string]Entry{"sysctl/a": later}))
	want := map[string]Entry{"sysctl/a": {Original: entry.Original, Profile: "q", Retain: true, Applied: "3"}}
	check.Equal(t, "entries", want, load(t, fs).Entries())
	check.NoError(t, j.Forget("sysctl/a"))
	check.NoError(t, j.Record(map[string]Entry{"sysctl/a": later}))
	check.Equal(t, "entries after the removal of one", map[string]Entry{"sysctl/a": later}, load(t, fs).Entries())
}

func TestTheFormOfTheDocument(t *testing.T) {
	fs, dir := open(t)
	j := load(t, fs)
	check.NoError(t, j.Record(map[string]Entry{"sysctl/a": entry, "kernelArgument/b": {Applied: "x", Retain: true, Retained: true}}))
	check.NoError(t, j.UsePermit("id-1", "boot-1"))
	check.NoError(t, j.SetBootFact("boot-1", "ihash", "16777216"))
	got, err := os.ReadFile(filepath.Join(dir, File))
	check.NoError(t, err)
	want := `{
  "version": 1,
  "entries": {
    "kernelArgument/b": {
      "original": {
        "present": false
      },
      "retain": true,
      "applied": "x",
      "retained": true
    },
    "sysctl/a": {
      "original": {
        "present": true,
        "value": "1"
      },
      "profile": "p",
      "applied": "2"
    }
  },
  "permits": [
    {
      "id": "id-1",
      "bootID": "boot-1"
    }
  ],
  "boot": {
    "id": "boot-1",
    "facts": {
      "ihash": "16777216"
    }
  }
}
`
	check.Equal(t, "journal", want, string(got))
	info, err := os.Stat(filepath.Join(dir, File))
	check.NoError(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v, want 0600", info.Mode())
	}
}

func TestPermits(t *testing.T) {
	fs, _ := open(t)
	j := load(t, fs)
	for i := range maxPermits + 20 {
		check.NoError(t, j.UsePermit(fmt.Sprintf("id-%d", i), "boot-1"))
	}
	j = load(t, fs)
	if err := j.UsePermit("id-200", "boot-2"); err == nil {
		t.Error("a permit was used twice")
	}
	if in, used := j.UsedPermit("id-275"); !used || in != "boot-1" {
		t.Errorf("last permit: got %v in %q, want used in boot-1", used, in)
	}
	if _, used := j.UsedPermit("id-0"); used {
		t.Error("the number of recorded permits is not limited")
	}
}

func TestAPermitCountsAsUsedWhenWritingFails(t *testing.T) {
	fs, _ := open(t)
	full := errors.New("no space left on device")
	j := load(t, fs.WithHook(func(host.Op, string) error { return full }))
	if err := j.UsePermit("id", "boot"); !errors.Is(err, full) {
		t.Fatalf("got %v, want %v", err, full)
	}
	if _, used := j.UsedPermit("id"); !used {
		t.Error("a permit that may be on the disk does not count as used")
	}
}

func TestBootFactsAreOfOneBoot(t *testing.T) {
	fs, _ := open(t)
	j := load(t, fs)
	check.NoError(t, j.SetBootFact("boot-1", "a", "1"))
	check.NoError(t, j.SetBootFact("boot-1", "b", "2"))
	j = load(t, fs)
	if value, ok := j.BootFact("boot-1", "a"); !ok || value != "1" {
		t.Errorf("got %q, %v; want 1", value, ok)
	}
	check.NoError(t, j.SetBootFact("boot-2", "b", "3"))
	if _, ok := j.BootFact("boot-1", "a"); ok {
		t.Error("a fact of another boot is still recorded")
	}
	if _, ok := j.BootFact("boot-2", "a"); ok {
		t.Error("a fact of another boot is returned for this one")
	}
}

func TestAFailedLoadForbidsEveryChange(t *testing.T) {
	fs, dir := open(t)
	check.NoError(t, load(t, fs).Record(map[string]Entry{"sysctl/a": entry}))
	j := load(t, fs)
	check.NoError(t, os.WriteFile(filepath.Join(dir, File), []byte("{"), 0o600))
	if err := j.Load(); !errors.Is(err, ErrUnreadable) {
		t.Fatalf("Load: %v, want ErrUnreadable", err)
	}
	_, removeErr := j.Remove("boot")
	for name, err := range map[string]error{
		"Record": j.Record(map[string]Entry{"x/y": entry}), "Forget": j.Forget("sysctl/a"),
		"UsePermit": j.UsePermit("id", "boot"), "SetBootFact": j.SetBootFact("boot", "a", "1"), "Remove": removeErr,
		"a journal that was never loaded": New(fs).Record(nil),
	} {
		if !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v, want ErrUnreadable", name, err)
		}
	}
	if data, _ := os.ReadFile(filepath.Join(dir, File)); string(data) != "{" {
		t.Errorf("the unreadable journal was overwritten with %q", data)
	}
}

func TestRemove(t *testing.T) {
	tests := map[string]struct {
		arrange func(j *Journal) error
		removed bool
	}{
		"an empty journal":               {func(j *Journal) error { return j.SetBootFact("now", "a", "1") }, true},
		"no journal at all":              {func(*Journal) error { return nil }, true},
		"a permit used in another boot":  {func(j *Journal) error { return j.UsePermit("id", "before") }, true},
		"a permit used in this boot":     {func(j *Journal) error { return j.UsePermit("id", "now") }, false},
		"a setting that is not back yet": {func(j *Journal) error { return j.Record(map[string]Entry{"a/b": entry}) }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fs, dir := open(t)
			j := load(t, fs)
			check.NoError(t, test.arrange(j))
			removed, err := j.Remove("now")
			check.NoError(t, err)
			_, err = os.Stat(filepath.Join(dir, parent))
			if removed != test.removed || errors.Is(err, os.ErrNotExist) != test.removed {
				t.Errorf("removed: got %v, want %v; error of the directory: %v", removed, test.removed, err)
			}
		})
	}
}

// A crash at any point of a write leaves the old or the new journal.
func TestACrashLeavesTheOldOrTheNew(t *testing.T) {
	before, after := map[string]Entry{"sysctl/a": entry}, map[string]Entry{"sysctl/a": entry, "sysctl/b": entry}
	for at := 1; ; at++ {
		fs, _ := open(t)
		check.NoError(t, load(t, fs).Record(before))
		steps := 0
		crashing := fs.WithHook(func(host.Op, string) error {
			steps++
			if steps == at {
				panic("crash")
			}
			return nil
		})
		func() {
			defer func() { _ = recover() }()
			check.NoError(t, load(t, crashing).Record(map[string]Entry{"sysctl/b": entry}))
		}()
		got := load(t, fs).Entries()
		if !cmp.Equal(got, before) && !cmp.Equal(got, after) {
			t.Errorf("journal after a crash before step %d: got %v", at, got)
		}
		if steps < at {
			if !cmp.Equal(got, after) {
				t.Errorf("journal without a crash: got %v", got)
			}
			return
		}
	}
}

func TestNoWriteWithoutADifference(t *testing.T) {
	fs, _ := open(t)
	check.NoError(t, load(t, fs).Record(map[string]Entry{"sysctl/a": entry}))
	writes := 0
	j := load(t, fs.WithHook(func(host.Op, string) error { writes++; return nil }))
	check.NoError(t, j.Record(map[string]Entry{"sysctl/a": entry}))
	check.NoError(t, j.Forget("sysctl/z"))
	check.Equal(t, "changes to the disk", 0, writes)
}

// TestAFailedRecordIsWrittenByTheNextAttempt has a write that fails once. Otherwise the host would be changed without a saved original.
func TestAFailedRecordIsWrittenByTheNextAttempt(t *testing.T) {
	fs, _ := open(t)
	check.NoError(t, load(t, fs).Record(map[string]Entry{"sysctl/a": {Applied: "1"}, "sysctl/c": {Applied: "3"}}))
	full := errors.New("no space left on device")
	isFull := true
	j := load(t, fs.WithHook(func(host.Op, string) error {
		if isFull {
			return full
		}
		return nil
	}))
	before, second := j.Entries(), map[string]Entry{"sysctl/b": {Applied: "2"}}
	for name, update := range map[string]func() error{
		"Record": func() error { return j.Record(second) }, "Forget": func() error { return j.Forget("sysctl/c") },
	} {
		if err := update(); !errors.Is(err, full) {
			t.Errorf("%s: got error %v, want %v", name, err, full)
		}
		if diff := cmp.Diff(before, j.Entries()); diff != "" {
			t.Errorf("entries after a failed %s (-want +got):\n%s", name, diff)
		}
	}
	isFull = false
	check.NoError(t, j.Record(second))
	check.NoError(t, j.Forget("sysctl/c"))
	want := map[string]Entry{"sysctl/a": {Applied: "1"}, "sysctl/b": {Applied: "2"}}
	check.Equal(t, "entries on the disk after the second attempt", want, load(t, fs).Entries())
}
