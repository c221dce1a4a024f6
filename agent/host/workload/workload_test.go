package workload

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/storageclient/operator/test/check"
)

func directory(t *testing.T, files, size int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range files {
		check.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, size), 0o600))
	}
	return dir
}

func TestRun(t *testing.T) {
	dir := directory(t, 3, 1<<20)
	check.NoError(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	check.NoError(t, os.WriteFile(filepath.Join(dir, "below", "x"), nil, 0o600))
	for name, want := range map[Name]Pass{
		ListNames: {Units: 2 * 4}, ListDirectory: {Units: 4}, Interleaved: {Units: 4}, WalkTree: {Units: 6}, ReadSequential: {Units: 3, Bytes: 3 << 20},
		ReadRandom: {Units: 3 * blocksPerPass, Bytes: 3 * blocksPerPass * 4096}, CreateUnlink: {Units: 2 * filesPerPass},
		WriteSequential: {Units: 2 * blocksPerPass, Bytes: 2 * blocksPerPass * 4096}, CopyFiles: {Units: 3, Bytes: 3 << 20},
	} {
		t.Run(string(name), func(t *testing.T) {
			o := Options{Name: name, Path: dir, Load: Load{Workers: 2, BlockKiB: 4, Sync: true}, AllowWrites: true, ID: "1"}
			r, err := Run(t.Context(), o)
			check.NoError(t, err)
			if len(r.Passes) != 2 {
				t.Fatalf("got %d passes of two workers without time", len(r.Passes))
			}
			var got Pass
			for _, p := range r.Passes {
				got.Units, got.Bytes = got.Units+p.Units, got.Bytes+p.Bytes
				if p.Units == 0 || p.Seconds <= 0 {
					t.Errorf("pass of a worker: got %+v", p)
				}
			}
			check.Equal(t, "both workers", want, got)
			if leftovers, _ := filepath.Glob(filepath.Join(dir, ".storage-client-trial-*")); len(leftovers) > 0 {
				t.Errorf("leftover files: %v", leftovers)
			}
		})
	}
}

// The workload runs until its time is over, and removes its files when it is stopped.
func TestWorkersDoNotWaitForACPU(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, Options{Name: ListDirectory, Path: t.TempDir(), Load: Load{Workers: 4}, For: time.Hour, Pause: time.Millisecond})
		done <- err
	}()
	deadline := time.Now().Add(time.Minute)
	for runtime.GOMAXPROCS(0) != 5 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if got := runtime.GOMAXPROCS(0); got != 5 {
		t.Errorf("got %d threads at work for 4 workers, want 5", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := runtime.GOMAXPROCS(0); got != 1 {
		t.Errorf("after the run: got %d, want 1", got)
	}
}

func TestRunIsStopped(t *testing.T) {
	dir := t.TempDir()
	// A slow machine gets more time for the first pass.
	for bound := 20 * time.Millisecond; ; bound *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		r, err := Run(ctx, Options{Name: CreateUnlink, Path: dir, For: time.Hour, AllowWrites: true, ID: "1"})
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
	good := Options{Name: CreateUnlink, Path: "/x", AllowWrites: true, ID: "1"}
	check.NoError(t, good.Validate())
	for word, change := range map[string]func(*Options){
		"workload": func(o *Options) { o.Name = "Delete" }, "path": func(o *Options) { o.Path = "" }, "workers": func(o *Options) { o.Workers = 257 },
		"block": func(o *Options) { o.BlockKiB = 6 }, "allowed": func(o *Options) { o.AllowWrites = false }, "id": func(o *Options) { o.ID = "../x" },
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
	check.NoError(t, os.MkdirAll(foreign, 0o700))
	if _, err := Run(t.Context(), Options{Name: CreateUnlink, Path: dir, AllowWrites: true, ID: "1"}); err == nil {
		t.Error("Run uses the directory of another writer")
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
}

// A killed program cannot remove its directory. The next run of the same trial removes it.
func TestRunRemovesWhatAKilledOneHasLeft(t *testing.T) {
	dir := t.TempDir()
	check.NoError(t, os.MkdirAll(filepath.Join(dir, directoryPrefix+"1", "left"), 0o700))
	if _, err := Run(t.Context(), Options{Name: CreateUnlink, Path: dir, AllowWrites: true, ID: "1", TakeOver: true}); err != nil {
		t.Fatal(err)
	}
	if leftovers, err := os.ReadDir(dir); err != nil || len(leftovers) > 0 {
		t.Errorf("leftover files: %v, error %v", leftovers, err)
	}
}

func TestNothingToRead(t *testing.T) {
	if _, err := Run(t.Context(), Options{Name: ReadRandom, Path: t.TempDir()}); err == nil {
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
	for _, o := range []Options{{Name: ListDirectory}, {Name: Interleaved}, {Name: ListDirectory, Load: Load{Cached: true}}} {
		o.Path = dir
		for entries, want := range map[int]uint64{0: 2*entriesPerPart + 7, entriesPerPart + 3: entriesPerPart + 3, 5000: 2*entriesPerPart + 7} {
			o.MaxEntries = entries
			r, err := Run(t.Context(), o)
			if err != nil || r.Passes[0].Units != want {
				t.Errorf("%s, cached %v, at most %d entries: %+v, %v, want %d", o.Name, o.Cached, entries, r.Passes, err, want)
			}
		}
	}
	// The attributes belong to the link, not to its target.
	check.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	if _, err := Run(t.Context(), Options{Name: ListDirectory, Path: dir, Load: Load{Cached: true}}); err != nil {
		t.Errorf("a dangling link is not read as an entry: %v", err)
	}
}

// Both methods copy the maximum number of bytes, and not more.
func TestCopyFiles(t *testing.T) {
	dir := directory(t, 2, 1<<20)
	for _, through := range []bool{false, true} {
		o := Options{Name: CopyFiles, Path: dir, Load: Load{ThroughClient: through}, AllowWrites: true, ID: "1", MaxBytes: 3 << 19}
		r, err := Run(t.Context(), o)
		if err != nil || r.Passes[0].Bytes != 3<<19 {
			t.Errorf("through the client %v: %+v, %v, want 1.5 MiB", through, r.Passes, err)
		}
	}
	if _, err := Run(t.Context(), Options{Name: CopyFiles, Path: dir, ID: "1"}); err == nil {
		t.Error("no error for a write without permission")
	}
}

// endingContext ends after a number of checks.
type endingContext struct {
	context.Context
	checks *int
}

func (c endingContext) Err() error {
	if *c.checks--; *c.checks < 0 {
		return context.Canceled
	}
	return nil
}

// A stopped copy ends within a file, and removes its copy.
func TestACopyIsStopped(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "large"))
	if err == nil {
		err = file.Truncate(256 << 20)
	}
	check.NoError(t, err)
	defer file.Close()
	for _, through := range []bool{false, true} {
		checks, place, p := 3, t.TempDir(), Pass{}
		w := worker{Options: Options{Name: CopyFiles, Load: Load{BlockKiB: 64, ThroughClient: through}}.withDefaults(), place: place}
		if err := w.copyFile(endingContext{t.Context(), &checks}, file, 1, &p); err != nil || p.Bytes == 0 || p.Bytes > 32<<20 {
			t.Errorf("through the client %v: copied %d bytes, error %v; want 1 byte to 32 MiB", through, p.Bytes, err)
		}
		if entries, err := os.ReadDir(place); err != nil || len(entries) > 0 {
			t.Errorf("through the client %v: leftover files %v, %v", through, entries, err)
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
	}
}

// cachedMiB returns the part of a file in the page cache of this node.
func cachedMiB(t *testing.T, file *os.File) uint64 {
	t.Helper()
	var state unix.Cachestat_t
	if err := unix.Cachestat(uint(file.Fd()), &unix.CachestatRange{}, &state, 0); err != nil {
		t.Skipf("the kernel is older than 6.5, or the file system has no page cache: %v", err)
	}
	return state.Cache * uint64(os.Getpagesize()) >> 20
}

// The names in memory have the limit of the pass, not the size of a directory.
func TestATreeIsReadUpToTheLimit(t *testing.T) {
	dir := directory(t, 3*entriesPerPart, 0)
	for limit, want := range map[int]int{0: 3 * entriesPerPart, 7: 7, entriesPerPart + 7: entriesPerPart + 7, 5 * entriesPerPart: 3 * entriesPerPart} {
		o := Options{Path: filepath.Dir(dir), MaxEntries: limit}
		entries, err := fs.ReadDir(tree{o, os.DirFS(o.Path)}, filepath.Base(dir))
		if err != nil || len(entries) != want {
			t.Errorf("at most %d: got %d entries, error %v; want %d", limit, len(entries), err, want)
		}
	}
}

// A file that several workers share is evicted once, before they read it: a worker that starts later does not evict pages that others have read.
func TestASharedFileIsEvictedOnce(t *testing.T) {
	// A temporary directory is often in memory, and cannot be evicted. This one is not.
	dir, err := os.MkdirTemp("/var/tmp", "workload")
	check.NoError(t, err)
	defer os.RemoveAll(dir)
	file, err := os.Create(filepath.Join(dir, "x"))
	check.NoError(t, err)
	defer file.Close()
	o := Options{Name: ReadSequential, Path: dir, Load: Load{Workers: 2, BlockKiB: 1024}}.withDefaults()
	cached := o
	cached.Cached = true
	for name, test := range map[string]struct {
		options Options
		listed  uint64
	}{
		"evicted": {o, 0},
		"cached":  {cached, 8},
	} {
		if _, err := file.WriteAt(make([]byte, 8<<20), 0); err != nil {
			t.Fatal(err)
		}
		check.NoError(t, file.Sync())
		expect := func(when string, least uint64, err error) {
			t.Helper()
			if got := cachedMiB(t, file); err != nil || got < least || least == 0 && got > 0 {
				t.Errorf("%s, %s: got %d MiB in the cache, error %v; want %d", name, when, got, err, least)
			}
		}
		files := sync.OnceValues(test.options.files)
		_, err := files()
		expect("before the first worker", test.listed, err)
		for number, when := range []string{"after the first worker", "after the last worker"} {
			w := worker{Options: test.options, number: number, files: files}
			_, err = w.pass(t.Context())
			expect(when, uint64(4*(number+1)), err)
		}
	}
}

// After a file of any size, the next request is still a multiple of the alignment that O_DIRECT requires.
func TestARequestAtTheLimitIsAligned(t *testing.T) {
	w := worker{Options: Options{MaxBytes: 1 << 20}}
	for done, want := range map[uint64]int{0: 1 << 18, 5: 1 << 18, 1<<20 - 8192: 8192, 1<<20 - 8191: 4096, 1<<20 - 5: 0, 1 << 20: 0} {
		if got := w.nextSize(Pass{Bytes: done}, 1<<18); got != want {
			t.Errorf("after %d bytes: got %d, want %d", done, got, want)
		}
	}
}

// All workers together stay within the limit, and use most of it, whatever the size of a block.
func TestWorkersStayWithinTheLimit(t *testing.T) {
	dir := directory(t, 2, 8<<20)
	check.NoError(t, os.WriteFile(filepath.Join(dir, "+"), make([]byte, 5), 0o600))
	for _, name := range []Name{ReadSequential, ReadRandom, WriteSequential, CopyFiles} {
		for _, load := range []Load{{Workers: 1, BlockKiB: 4096}, {Workers: 1, BlockKiB: 1024, Direct: true}, {Workers: 3, BlockKiB: 1024}, {Workers: 64, BlockKiB: 1024}, {Workers: 3, BlockKiB: 4}} {
			r, err := Run(t.Context(), Options{Name: name, Path: dir, Load: load, MaxBytes: 2 << 20, AllowWrites: true, ID: "1"})
			var bytes uint64
			for _, p := range r.Passes {
				bytes += p.Bytes
			}
			if err != nil || bytes > 2<<20 || bytes < 1<<16 {
				t.Errorf("%s, %+v: got %d bytes, error %v; want at most 2 MiB", name, load, bytes, err)
			}
		}
	}
}

// Workers share the files, or the parts of fewer files. Together they do the work of one worker, within the same limits.
func TestWorkersShareTheWork(t *testing.T) {
	few, many := directory(t, 2, 1<<20+1), directory(t, 9, 1<<16)
	for name, o := range map[string]Options{
		"entries":                                {Name: ListDirectory, Path: many},
		"entries, of any age":                    {Name: ListDirectory, Path: many, Load: Load{Cached: true}},
		"entries in parts":                       {Name: Interleaved, Path: many},
		"at most as many entries as allowed":     {Name: ListDirectory, Path: many, MaxEntries: 5},
		"entries of a tree":                      {Name: WalkTree, Path: many},
		"at most as many of a tree":              {Name: WalkTree, Path: many, MaxEntries: 5},
		"files":                                  {Name: ReadSequential, Path: many},
		"files in the cache":                     {Name: ReadSequential, Path: many, Load: Load{Cached: true}},
		"parts of large files":                   {Name: ReadSequential, Path: few, Load: Load{BlockKiB: 128}},
		"parts without the cache":                {Name: ReadSequential, Path: few, Load: Load{BlockKiB: 128, Direct: true}},
		"blocks of files":                        {Name: ReadRandom, Path: many, Load: Load{BlockKiB: 4}},
		"blocks of fewer files":                  {Name: ReadRandom, Path: few, Load: Load{BlockKiB: 4}},
		"blocks without the cache":               {Name: ReadRandom, Path: few, Load: Load{BlockKiB: 4, Direct: true}},
		"bytes of blocks":                        {Name: ReadRandom, Path: few, MaxBytes: 1 << 20},
		"bytes of a file that one worker writes": {Name: WriteSequential, Path: few, MaxBytes: 4 << 20},
		"copies":                                 {Name: CopyFiles, Path: many},
		"copies of fewer files":                  {Name: CopyFiles, Path: few},
	} {
		t.Run(name, func(t *testing.T) {
			o.AllowWrites, o.ID = true, "1"
			total := func(workers int) (p Pass) {
				o.Workers = workers
				r, err := Run(t.Context(), o)
				if err != nil || len(r.Passes) != workers {
					t.Fatalf("%d workers: %+v, %v", workers, r, err)
				}
				for _, one := range r.Passes {
					p.Units, p.Bytes = p.Units+one.Units, p.Bytes+one.Bytes
				}
				return p
			}
			if one, four := total(1), total(4); one != four || one.Units == 0 {
				t.Errorf("got %+v of one worker and %+v of four", one, four)
			}
		})
	}
}

// Parts of one file cover it, without an overlap.
func TestPartsOfAFile(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 4097, 5 * 4096, 1<<20 + 5} {
		for _, workers := range []int{2, 3, 64} {
			r, err := Run(t.Context(), Options{Name: ReadSequential, Path: directory(t, 1, size), Load: Load{Workers: workers, BlockKiB: 4}})
			var p Pass
			for _, one := range r.Passes {
				p.Units, p.Bytes = p.Units+one.Units, p.Bytes+one.Bytes
			}
			if err != nil || p != (Pass{Units: 1, Bytes: uint64(size)}) {
				t.Errorf("%d bytes, %d workers: %+v, %v", size, workers, p, err)
			}
		}
	}
}

// A file that is larger than the limit is a file to read.
func TestAFileAboveTheLimit(t *testing.T) {
	r, err := Run(t.Context(), Options{Name: ReadSequential, Path: directory(t, 1, 1<<20), MaxBytes: 1 << 18})
	if err != nil || r.Passes[0].Units != 1 || r.Passes[0].Bytes != 1<<18 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFilesWithoutABlock(t *testing.T) {
	_, err := Run(t.Context(), Options{Name: ReadRandom, Path: directory(t, 3, 4096), Load: Load{BlockKiB: 64}})
	if err == nil || !strings.Contains(err.Error(), "no file with a block of 64 KiB") {
		t.Error(err)
	}
}
