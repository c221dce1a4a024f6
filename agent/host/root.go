package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrReadOnly is the error of every change to a file system from AsReadOnly.
var ErrReadOnly = errors.New("changes are not allowed")

// Op names one change to the host. It is the smallest unit that a crash can interrupt.
type Op string

// Operations. WriteFileAtomic runs its operations in this order.
const (
	OpMkdir      Op = "mkdir"
	OpCreate     Op = "create"
	OpWrite      Op = "write"
	OpSync       Op = "sync"
	OpChmod      Op = "chmod"
	OpRename     Op = "rename"
	OpSyncDir    Op = "syncdir"
	OpRemove     Op = "remove"
	OpWriteValue Op = "writevalue"
)

// Hook is called before every change. If it returns an error, the change does not happen and returns that error.
type Hook func(op Op, name string) error

// FS is the host's file system, rooted at the directory where the host is mounted. Names are absolute, as on the host. FS follows symbolic links,
// including absolute ones, as a process on the host would. They never lead out of the root. The zero value is not usable.
type FS struct {
	root *os.Root
	// top is the directory of the root.
	top             *os.File
	dir             string
	hook            Hook
	image, readOnly bool
}

// OpenFS opens the host's file system below dir, e.g. /host, or / on the host itself.
func OpenFS(dir string) (FS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return FS{}, fmt.Errorf("open host root: %w", err)
	}
	top, err := root.Open(".")
	if err != nil {
		return FS{}, errors.Join(fmt.Errorf("open host root: %w", err), root.Close())
	}
	return FS{root: root, top: top, dir: path.Clean(dir)}, nil
}

// WithHook returns the same file system with a hook before each change. Tests use it to fail the n-th change.
func (f FS) WithHook(hook Hook) FS {
	f.hook = hook
	return f
}

// Dir returns the directory at which the host is mounted.
func (f FS) Dir() string { return f.dir }

// Close closes the root.
func (f FS) Close() error { return errors.Join(f.root.Close(), f.top.Close()) }

func (f FS) callHook(op Op, name string) error {
	if f.readOnly {
		return fmt.Errorf("%s %s: %w", op, name, ErrReadOnly)
	}
	if f.hook == nil {
		return nil
	}
	if err := f.hook(op, name); err != nil {
		return fmt.Errorf("%s %s: %w", op, name, err)
	}
	return nil
}

// kernelDirs contain the state of a running system. In the tree of an image, they are empty, or belong to the machine that makes the image.
var kernelDirs = []string{"proc", "sys", "run"}

// hiddenInImage returns the error for a name, relative to the root, that an image does not have.
func (f FS) hiddenInImage(rel, name string) error {
	if !f.image {
		return nil
	}
	for _, dir := range kernelDirs {
		if rel == dir || strings.HasPrefix(rel, dir+"/") {
			return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
	}
	return nil
}

// ErrLocked means that another process is changing this host.
var ErrLocked = errors.New("another node agent is running on this host")

// RunsKernel reports whether the tree is the running system and not an image. A tree without its own /proc is an image. A tree with the /proc of the
// machine that makes the image, which grub-mkconfig needs, is an image too: that machine's init has another root.
func (f FS) RunsKernel() bool {
	if !f.Exists("/proc/sys/kernel/osrelease") {
		return false
	}
	here, err := os.Stat(f.dir)
	if err != nil {
		return false
	}
	// This magic link leads to the root of init itself, and not to the path that it shows.
	init, err := os.Stat(filepath.Join(f.dir, "proc/1/root"))
	return err != nil || os.SameFile(here, init)
}

// AsImage returns the same file system as the tree of an image. It hides /proc, /sys and /run, because they would belong to another machine.
func (f FS) AsImage() FS {
	f.image = true
	return f
}

// IsImage reports whether there is no kernel whose values could be read or set.
func (f FS) IsImage() bool { return f.image }

// AsReadOnly returns the same file system, in which every change fails with ErrReadOnly.
func (f FS) AsReadOnly() FS {
	f.readOnly = true
	return f
}

// IsReadOnly reports whether every change fails.
func (f FS) IsReadOnly() bool { return f.readOnly }

// Lock prevents other agents from changing this host until unlock is called or the process ends. It returns ErrLocked if another agent holds the
// lock. The lock is on the root directory itself, so it leaves no file behind, and means the same to a process in a container.
func (f FS) Lock() (unlock func() error, err error) {
	dir, err := f.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("lock host: %w", err)
	}
	err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock host: %w", err), dir.Close())
	}
	return dir.Close, nil
}

// Space is the remaining space of a file system.
type Space struct {
	// Free is the space that can still be written, in bytes.
	Free uint64
	// ReadOnly is true if the file system cannot be written.
	ReadOnly bool
}

// stReadOnly is ST_RDONLY of statfs(2).
const stReadOnly = 1

// FreeSpace returns the remaining space of the file system that contains name.
func (f FS) FreeSpace(name string) (Space, error) {
	file, err := f.open(name, 0)
	if err != nil {
		return Space{}, err
	}
	defer file.Close()
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(int(file.Fd()), &stat); err != nil {
		return Space{}, fmt.Errorf("statfs %s: %w", name, err)
	}
	return Space{Free: stat.Bavail * uint64(stat.Bsize), ReadOnly: stat.Flags&stReadOnly != 0}, nil
}
