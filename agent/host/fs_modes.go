package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

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
