// Package workload repeats one kind of work on files, so that the requests of a mount can be counted. It only reads, unless it is allowed to write.
// It writes to a separate directory, and removes that.
package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Name is one kind of work.
type Name string

// Names of workloads.
const (
	// ListNames reads only the names in the directory, as ls -U does.
	ListNames Name = "ListNames"
	// ListDirectory reads the directory and then the attributes of each entry, as ls -l does.
	ListDirectory Name = "ListDirectory"
	// Interleaved does the same in parts: it reads some names, and then the attributes of these entries.
	Interleaved Name = "Interleaved"
	// WalkTree does the same in all directories below it.
	WalkTree Name = "WalkTree"
	// ReadSequential reads all files of the directory from start to end.
	ReadSequential Name = "ReadSequential"
	// ReadRandom reads random blocks of these files, each in runs of 4 KiB, as programs read records.
	ReadRandom Name = "ReadRandom"
	// CreateUnlink creates small files and removes them.
	CreateUnlink Name = "CreateUnlink"
	// WriteSequential writes one file from start to end.
	WriteSequential Name = "WriteSequential"
	// CopyFiles copies the files of the directory. The server copies them if file system and server support it (copy_file_range(2)).
	CopyFiles Name = "CopyFiles"
)

// Names are the names of all workloads.
var Names = []Name{ListNames, ListDirectory, Interleaved, WalkTree, ReadSequential, ReadRandom, CreateUnlink, WriteSequential, CopyFiles}

const directoryPrefix = ".storage-client-trial-"

const (
	filesPerPass, blocksPerPass = 200, 256
	runSize                     = 4 << 10
	// entriesPerPart is the number of names that are read before Interleaved reads their attributes.
	entriesPerPart = 100
	// copiedAtOnce is the number of bytes that the server copies before CopyFiles checks whether it must stop.
	copiedAtOnce = 8 << 20
)

// Load is the amount of concurrent work, and its use of caches. Its zero value is the default.
type Load struct {
	// Workers is the number of concurrent workers, default 1. They share the entries and files of a pass. Each reads all names, except the names of files.
	Workers int `json:"workers,omitempty"`
	// BlockKiB is the block size of all workloads that read or write. Default 64, for WriteSequential 1024.
	BlockKiB int `json:"blockKiB,omitempty"`
	// Sync makes WriteSequential wait for each write. Direct makes ReadSequential, ReadRandom and WriteSequential bypass the page cache.
	Sync   bool `json:"sync,omitempty"`
	Direct bool `json:"direct,omitempty"`
	// Cached permits cached attributes of any age (AT_STATX_DONT_SYNC of statx(2)), and reads from the page cache instead of dropping it first.
	Cached bool `json:"cached,omitempty"`
	// ThroughClient makes CopyFiles read and write each file, even if the server could copy it.
	ThroughClient bool `json:"throughClient,omitempty"`
}

// Options describe the work.
type Options struct {
	Load
	Name Name
	// Path is the directory for the work.
	Path string
	// For is the time during which passes start. Pause is the time between two passes.
	For, Pause time.Duration
	// AllowWrites allows workloads that write.
	AllowWrites bool
	// ID ends the name of the directory for writes. Concurrent runs must have different IDs.
	ID string
	// TakeOver is set if no other run has that ID. The remains of a killed program with that ID are then removed.
	TakeOver bool
	// MaxEntries limits the entries of a pass, MaxBytes the bytes of all its workers. Zero for no limit. A pass ends there, at the same place each time.
	MaxEntries int
	MaxBytes   uint64
}

func (o Options) withDefaults() Options {
	block := map[Name]int{WriteSequential: 1024}[o.Name]
	o.Workers, o.BlockKiB = cmp.Or(o.Workers, 1), cmp.Or(o.BlockKiB, block, 64)
	o.MaxBytes = cmp.Or(o.MaxBytes, math.MaxInt64)
	return o
}

// Validate returns an error if the options are invalid.
func (o Options) Validate() error {
	o = o.withDefaults()
	switch {
	case !slices.Contains(Names, o.Name):
		return fmt.Errorf("workload %q: must be one of %v", o.Name, Names)
	case o.Path == "":
		return errors.New("path: must name a directory")
	case o.Workers < 1 || o.Workers > 256:
		return fmt.Errorf("workers %d: must be 1 to 256", o.Workers)
	case o.BlockKiB < 4 || o.BlockKiB > 16384 || o.BlockKiB%4 != 0:
		return fmt.Errorf("block %d KiB: must be a multiple of 4 from 4 to 16384", o.BlockKiB)
	case o.writes() && !o.AllowWrites:
		return fmt.Errorf("workload %s writes, but writes are not allowed", o.Name)
	case o.MaxEntries < 0:
		return fmt.Errorf("entries %d: must be 0 or more", o.MaxEntries)
	case o.writes() && (o.ID == "" || strings.ContainsAny(o.ID, "/.")):
		return fmt.Errorf("id %q: must name a directory", o.ID)
	}
	return nil
}

func (o Options) writes() bool {
	return o.Name == CreateUnlink || o.Name == WriteSequential || o.Name == CopyFiles
}

// Result is the result of the work.
type Result struct {
	Name Name `json:"name"`
	// Passes are the passes of all workers, in the order of their completion.
	Passes []Pass `json:"passes"`
}

// Pass is one round of the work.
type Pass struct {
	Seconds float64 `json:"seconds"`
	// Units is the number of entries, files or blocks in the pass.
	Units uint64 `json:"units"`
	Bytes uint64 `json:"bytes,omitempty"`
}

// Run runs the work until its time is over, and completes passes that have started. It stops at the first error.
func Run(ctx context.Context, o Options) (Result, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return Result{}, err
	}
	place := o.Path
	if o.writes() {
		place = filepath.Join(o.Path, directoryPrefix+o.ID)
		if err := o.makeDirectory(place); err != nil {
			return Result{}, err
		}
		defer func() { _ = os.RemoveAll(place) }()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A request that waits keeps its place among the running threads for up to 10 ms. With fewer places, workers would wait for each other and
	// not for the storage: on a node with one CPU, 32 workers had 2 requests in flight.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), o.Workers+1)))
	r := Result{Name: o.Name}
	end := time.Now().Add(o.For)
	var mutex sync.Mutex
	var workers sync.WaitGroup
	files := sync.OnceValues(o.files)
	for i := range o.Workers {
		w := worker{Options: o, place: place, number: i, random: rand.New(rand.NewPCG(uint64(i), 1)), files: files}
		w.MaxBytes = max(o.MaxBytes/uint64(o.Workers)/runSize, 1) * runSize
		workers.Go(func() {
			for ; ctx.Err() == nil && (!w.repeats || time.Now().Before(end)); w.repeats = true {
				start := time.Now()
				pass, err := w.pass(ctx)
				if err != nil {
					cancel(fmt.Errorf("%s in %s: %w", o.Name, o.Path, err))
					return
				}
				pass.Seconds = time.Since(start).Seconds()
				mutex.Lock()
				r.Passes = append(r.Passes, pass)
				mutex.Unlock()
				Wait(ctx, o.Pause)
			}
		})
	}
	workers.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return r, cause
	}
	reads := o.Name == ReadSequential || o.Name == ReadRandom || o.Name == CopyFiles
	if ctx.Err() == nil && reads && !slices.ContainsFunc(r.Passes, func(p Pass) bool { return p.Units > 0 }) {
		return r, fmt.Errorf("%s in %s: no file to read, or no file with a block of %d KiB", o.Name, o.Path, o.BlockKiB)
	}
	return r, nil
}

// makeDirectory makes the directory. It does not use the directory of another run.
func (o Options) makeDirectory(place string) error {
	if o.TakeOver {
		if err := os.RemoveAll(place); err != nil {
			return err
		}
	}
	return os.Mkdir(place, 0o700)
}

// Wait waits for a pause, or until the context is done.
func Wait(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

type worker struct {
	Options
	place  string
	number int
	random *rand.Rand
	// files are the files that all workers share. repeats is true after the first pass.
	files   func() ([]fs.DirEntry, error)
	repeats bool
}

func (w worker) pass(ctx context.Context) (Pass, error) {
	switch w.Name {
	case ListNames, ListDirectory, Interleaved:
		return w.listDirectory()
	case WalkTree:
		return w.walkTree(ctx)
	case ReadSequential:
		return w.eachFile(ctx, w.readAll)
	case ReadRandom:
		return w.eachFile(ctx, w.readBlocks)
	case CreateUnlink:
		return w.createFiles(ctx)
	case CopyFiles:
		return w.eachFile(ctx, w.copyFile)
	default:
		return w.writeFile(ctx)
	}
}

func byName(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }

// readParts reads the directory in parts, up to MaxEntries.
func (o Options) readParts(each func([]fs.DirEntry) error) (err error) {
	dir, err := os.Open(o.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	for size := cmp.Or(o.MaxEntries, math.MaxInt); size > 0; {
		part, err := dir.ReadDir(min(entriesPerPart, size))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := errors.Join(err, each(part)); err != nil {
			return err
		}
		size -= len(part)
	}
	return nil
}

func (w worker) isShare(number int) bool { return number%w.Workers == w.number }

// listDirectory keeps only the worker's share of the names.
func (w worker) listDirectory() (p Pass, err error) {
	number, share := 0, []fs.DirEntry(nil)
	ask := func() error {
		for _, entry := range share {
			if err := w.readAttributes(filepath.Join(w.Path, entry.Name()), entry); err != nil {
				return err
			}
		}
		p.Units, share = p.Units+uint64(len(share)), nil
		return nil
	}
	err = w.readParts(func(part []fs.DirEntry) error {
		if w.Name == ListNames {
			p.Units += uint64(len(part))
			return nil
		}
		for _, entry := range part {
			if number++; w.isShare(number) {
				share = append(share, entry)
			}
		}
		if w.Name == Interleaved {
			return ask()
		}
		return nil
	})
	slices.SortFunc(share, byName)
	if err == nil {
		err = ask()
	}
	return p, err
}

// readAttributes reads the attributes of an entry. An entry that is gone in the meantime is not an error.
func (w worker) readAttributes(path string, entry fs.DirEntry) (err error) {
	if w.Cached {
		const flags = unix.AT_STATX_DONT_SYNC | unix.AT_SYMLINK_NOFOLLOW
		err = unix.Statx(unix.AT_FDCWD, path, flags, unix.STATX_BASIC_STATS, &unix.Statx_t{})
	} else {
		_, err = entry.Info()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (w worker) walkTree(ctx context.Context) (p Pass, err error) {
	number := 0
	err = fs.WalkDir(tree{w.Options, os.DirFS(w.Path)}, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if number++; w.isShare(number) {
			if err := w.readAttributes(filepath.Join(w.Path, path), entry); err != nil {
				return err
			}
			p.Units++
		}
		if number == w.MaxEntries {
			return filepath.SkipAll
		}
		return ctx.Err()
	})
	return p, err
}

// tree reads no more entries of a directory than a pass needs.
type tree struct {
	Options
	fs.FS
}

// ReadDir implements fs.ReadDirFS.
func (t tree) ReadDir(name string) (entries []fs.DirEntry, err error) {
	t.Path = filepath.Join(t.Path, name)
	err = t.readParts(func(part []fs.DirEntry) error {
		entries = append(entries, part...)
		return nil
	})
	slices.SortFunc(entries, byName)
	return entries, err
}

// eachFile reads the worker's share of the files. If there are fewer files than workers, it reads the worker's part of each file.
func (w worker) eachFile(ctx context.Context, read func(ctx context.Context, file *os.File, parts int, p *Pass) error) (p Pass, err error) {
	entries, err := w.files()
	if err != nil {
		return p, err
	}
	parts := 1
	if len(entries) < w.Workers && w.Name != CopyFiles {
		parts = w.Workers
	}
	for number, entry := range entries {
		if parts == 1 && !w.isShare(number) || ctx.Err() != nil || w.nextSize(p, 1) == 0 {
			continue
		}
		file, err := w.open(entry, parts == 1 || w.repeats)
		if err != nil {
			return p, err
		}
		if err := errors.Join(read(ctx, file, parts, &p), file.Close()); err != nil {
			return p, err
		}
	}
	return p, nil
}

// files returns the files of the directory. It evicts files that several workers share: a worker must not evict pages that others have read.
func (o Options) files() ([]fs.DirEntry, error) {
	entries, err := tree{Options: o}.ReadDir(".")
	entries = slices.DeleteFunc(entries, func(entry fs.DirEntry) bool { return !entry.Type().IsRegular() })
	for i := 0; i < len(entries) && len(entries) < o.Workers && err == nil; i++ {
		var file *os.File
		if file, err = o.open(entries[i], true); err == nil {
			err = file.Close()
		}
	}
	return entries, err
}

// open opens a file. It can drop it from this node's cache, because reads from the cache do not measure the mount.
func (o Options) open(entry fs.DirEntry, evicts bool) (*os.File, error) {
	flags := os.O_RDONLY
	if o.Direct {
		flags |= unix.O_DIRECT
	}
	file, err := os.OpenFile(filepath.Join(o.Path, entry.Name()), flags, 0)
	if err == nil && evicts && !o.Cached {
		if err = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			err = fmt.Errorf("evict from the cache: %w", errors.Join(err, file.Close()))
		}
	}
	return file, err
}

// nextSize returns the size of the next request: size, or less at the end of the worker's share of MaxBytes. O_DIRECT requires whole runs.
func (w worker) nextSize(p Pass, size int) int {
	return int(min((w.MaxBytes-p.Bytes)/runSize*runSize, uint64(size)))
}

// readAll reads the worker's part of the file. The worker with the last part counts the file.
func (w worker) readAll(ctx context.Context, file *os.File, parts int, p *Pass) error {
	buffer := alignedBuffer(w.BlockKiB << 10)
	at, end := int64(0), int64(math.MaxInt64)
	if parts > 1 {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		size := int64(len(buffer))
		startOf := func(part int) int64 { return (info.Size() + size - 1) / size * int64(part) / int64(parts) * size }
		if at = startOf(w.number); w.number < parts-1 {
			end = startOf(w.number + 1)
		}
	}
	if end == math.MaxInt64 {
		p.Units++
	}
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return err
	}
	for at < end && ctx.Err() == nil && w.nextSize(*p, 1) > 0 {
		n, err := file.Read(buffer[:w.nextSize(*p, len(buffer))])
		at, p.Bytes = at+int64(n), p.Bytes+uint64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w worker) readBlocks(ctx context.Context, file *os.File, parts int, p *Pass) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := int64(w.BlockKiB) << 10
	blocks := info.Size() / size
	buffer := alignedBuffer(runSize)
	for i := 0; i < max(blocksPerPass/parts, 1) && blocks > 0 && ctx.Err() == nil && w.nextSize(*p, 1) > 0; i++ {
		start := w.random.Int64N(blocks) * size
		for at := start; at < start+size; at += runSize {
			n, err := file.ReadAt(buffer[:w.nextSize(*p, runSize)], at)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			p.Bytes += uint64(n)
		}
		p.Units++
	}
	return nil
}

func (w worker) createFiles(ctx context.Context) (p Pass, err error) {
	name := func(i int) string { return filepath.Join(w.place, fmt.Sprintf("%d-%d", w.number, i)) }
	for i := 0; i < filesPerPass && ctx.Err() == nil; i++ {
		file, err := os.OpenFile(name(i), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return p, err
		}
		if err := file.Close(); err != nil {
			return p, err
		}
		p.Units++
	}
	for i := range p.Units {
		if err := os.Remove(name(int(i))); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (w worker) writeFile(ctx context.Context) (p Pass, err error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if w.Direct {
		flags |= unix.O_DIRECT
	}
	if w.Sync {
		flags |= unix.O_DSYNC
	}
	file, err := os.OpenFile(filepath.Join(w.place, fmt.Sprintf("file-%d", w.number)), flags, 0o600)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffer := alignedBuffer(w.BlockKiB << 10)
	for i := 0; i < blocksPerPass && ctx.Err() == nil && w.nextSize(p, 1) > 0; i++ {
		n, err := file.Write(buffer[:w.nextSize(p, len(buffer))])
		if err != nil {
			return p, err
		}
		p.Units++
		p.Bytes += uint64(n)
	}
	return p, nil
}

// copyFile copies in parts, so that it stops soon after its context is canceled: only a copy that stops in time is removed.
func (w worker) copyFile(ctx context.Context, from *os.File, _ int, p *Pass) (err error) {
	name := filepath.Join(w.place, fmt.Sprintf("copy-%d", w.number))
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// Close writes the remaining data.
	defer func() { err = errors.Join(err, to.Close(), os.Remove(name)) }()
	p.Units++
	var writer io.Writer = to
	size, buffer := copiedAtOnce, alignedBuffer(w.BlockKiB<<10)
	if w.ThroughClient {
		// The server copies only from a file to a file.
		writer, size = struct{ io.Writer }{to}, len(buffer)
	}
	for part := w.nextSize(*p, size); part > 0 && ctx.Err() == nil; part = w.nextSize(*p, size) {
		n, err := io.CopyBuffer(writer, io.LimitReader(from, int64(part)), buffer)
		if p.Bytes += uint64(n); err != nil || n < int64(part) {
			return err
		}
	}
	return nil
}

// alignedBuffer returns a buffer with the alignment that O_DIRECT requires. A large allocation of Go starts at a page of at least 8 KiB.
func alignedBuffer(size int) []byte { return make([]byte, max(size, 64<<10))[:size] }
