package workload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"
)

func directory(t *testing.T, files, size int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRun(t *testing.T) {
	dir := directory(t, 3, 1<<20)
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "below", "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[Name]Pass{
		ListNames: {Units: 4}, ListDirectory: {Units: 4}, WalkTree: {Units: 6}, ReadSequential: {Units: 3, Bytes: 3 << 20},
		ReadRandom: {Units: 3 * blocksPerPass, Bytes: 3 * blocksPerPass * 4096}, CreateUnlink: {Units: filesPerPass},
		WriteSequential: {Units: blocksPerPass, Bytes: blocksPerPass * 4096}, CopyFiles: {Units: 3, Bytes: 3 << 20},
	} {
		t.Run(string(name), func(t *testing.T) {
			o := Options{Name: name, Path: dir, Workers: 2, BlockKiB: 4, AllowWrites: true, ID: "1", Sync: true}
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Passes) != 2 {
				t.Fatalf("got %d passes of two workers without time", len(r.Passes))
			}
			for _, p := range r.Passes {
				if p.Units != want.Units || p.Bytes != want.Bytes || p.Seconds <= 0 {
					t.Errorf("got %+v, want %+v", p, want)
				}
			}
			if leftovers, _ := filepath.Glob(filepath.Join(dir, ".storage-client-trial-*")); len(leftovers) > 0 {
				t.Errorf("leftover files: %v", leftovers)
			}
		})
	}
}

// The workload runs until its time is over, and removes its files when it is stopped.
func TestRunIsStopped(t *testing.T) {
	dir := t.TempDir()
	// A slow machine gets more time for the first pass.
	for bound := 20 * time.Millisecond; ; bound *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		r, err := Run(ctx, Options{Name: CreateUnlink, Path: dir, For: time.Hour, Workers: 1, BlockKiB: 4, AllowWrites: true, ID: "1"})
		cancel()
		if err != nil && len(r.Passes) > 0 {
			break
		}
		if err == nil || bound > time.Minute {
			t.Fatalf("got %d passes, error %v", len(r.Passes), err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("leftover files: %v, %v", entries, err)
	}
}

func TestValidate(t *testing.T) {
	good := Options{Name: CreateUnlink, Path: "/x", Workers: 1, BlockKiB: 4, AllowWrites: true, ID: "1"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for word, change := range map[string]func(*Options){
		"workload": func(o *Options) { o.Name = "Delete" }, "path": func(o *Options) { o.Path = "" }, "workers": func(o *Options) { o.Workers = 0 },
		"block": func(o *Options) { o.BlockKiB = 6 }, "attributes": func(o *Options) { o.Attributes = "None" }, "allowed": func(o *Options) { o.AllowWrites = false }, "id": func(o *Options) { o.ID = "../x" },
	} {
		o := good
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: the workload ran", word)
		}
	}
}

// Files of another writer under the same name stay unchanged.
func TestRunDoesNotUseAForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, directoryPrefix+"1", "theirs")
	if err := os.MkdirAll(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Name: CreateUnlink, Path: dir, Workers: 1, BlockKiB: 4, AllowWrites: true, ID: "1"}); err == nil {
		t.Error("Run uses the directory of another writer")
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
}

// A killed program cannot remove its directory. The next run of the same trial removes it.
func TestRunRemovesWhatAKilledOneHasLeft(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, directoryPrefix+"1", "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Name: CreateUnlink, Path: dir, Workers: 1, BlockKiB: 4, AllowWrites: true, ID: "1", TakeOver: true}); err != nil {
		t.Fatal(err)
	}
	if leftovers, err := os.ReadDir(dir); err != nil || len(leftovers) > 0 {
		t.Errorf("leftover files: %v, error %v", leftovers, err)
	}
}

func TestNothingToRead(t *testing.T) {
	if _, err := Run(t.Context(), Options{Name: ReadRandom, Path: t.TempDir(), Workers: 1, BlockKiB: 4}); err == nil {
		t.Error("no error for an empty directory")
	}
}

func TestAlignedBuffer(t *testing.T) {
	for _, size := range []int{4096, 65536, 1 << 20} {
		if b := alignedBuffer(size); len(b) != size || uintptr(unsafe.Pointer(&b[0]))%4096 != 0 {
			t.Errorf("unaligned buffer: %d bytes at %p", len(b), &b[0])
		}
	}
}

// Every method of reading attributes reaches each entry once, even if the directory is read in several parts.
func TestAttributesOfEachEntry(t *testing.T) {
	dir := directory(t, 2*entriesPerPart+7, 0)
	for _, how := range allAttributes {
		o := Options{Name: ListDirectory, Path: dir, Workers: 1, BlockKiB: 4, Attributes: how}
		for entries, want := range map[int]uint64{0: 2*entriesPerPart + 7, entriesPerPart + 3: entriesPerPart + 3, 5000: 2*entriesPerPart + 7} {
			o.MaxEntries = entries
			r, err := Run(t.Context(), o)
			if err != nil || r.Passes[0].Units != want {
				t.Errorf("%q, at most %d entries: %+v, %v, want %d", how, entries, r.Passes, err, want)
			}
		}
	}
	// The attributes belong to the link, not to its target.
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Name: ListDirectory, Path: dir, Workers: 1, BlockKiB: 4, Attributes: Cached}); err != nil {
		t.Errorf("a dangling link is not read as an entry: %v", err)
	}
}

// Both methods copy the maximum number of bytes, and not more.
func TestCopyFiles(t *testing.T) {
	dir := directory(t, 2, 1<<20)
	for _, through := range []bool{false, true} {
		o := Options{Name: CopyFiles, Path: dir, Workers: 1, BlockKiB: 64, AllowWrites: true, ID: "1", ThroughClient: through, MaxBytes: 3 << 19}
		r, err := Run(t.Context(), o)
		if err != nil || r.Passes[0].Bytes != 3<<19 {
			t.Errorf("through the client %v: %+v, %v, want 1.5 MiB", through, r.Passes, err)
		}
	}
	if _, err := Run(t.Context(), Options{Name: CopyFiles, Path: dir, Workers: 1, BlockKiB: 64, ID: "1"}); err == nil {
		t.Error("no error for a write without permission")
	}
}
