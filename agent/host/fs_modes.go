package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

var (
	// ErrReadOnly is what every change to a file system of AsReadOnly comes to.
	ErrReadOnly = errors.New("nothing may be changed")
	// ErrLocked means that another process changes this host.
	ErrLocked = errors.New("another node agent is running on this host")
)

// kernelDirs hold what belongs to a running system. In the tree of an image they are empty, or those of the machine
// that the image is made on.
var kernelDirs = []string{"proc", "sys", "run"}

// RunsKernel tells whether the tree is that of the running system, and not that of an image. A tree without a /proc
// of its own is an image. So is one in which the /proc of the machine that the image is made on is mounted, as
// grub-mkconfig needs it there: that machine's init has another root.
func (f FS) RunsKernel() bool {
	if !f.Exists("/proc/sys/kernel/osrelease") {
		return false
	}
	here, err := os.Stat(f.dir)
	if err != nil {
		return false
	}
	// A magic link, which leads to the root of init itself and not to the path that it shows.
	init, err := os.Stat(filepath.Join(f.dir, "proc/1/root"))
	return err != nil || os.SameFile(here, init)
}

// AsImage returns the same file system, taken for the tree of an image: /proc, /sys and /run are not there, since
// they would be another machine's.
func (f FS) AsImage() FS {
	f.image = true
	return f
}

// IsImage tells whether there is no kernel whose values could be read or set.
func (f FS) IsImage() bool { return f.image }

// AsReadOnly returns the same file system, in which every change is refused with ErrReadOnly.
func (f FS) AsReadOnly() FS {
	f.readOnly = true
	return f
}

// IsReadOnly tells whether every change is refused.
func (f FS) IsReadOnly() bool { return f.readOnly }

// hiddenInImage is the error for a name, relative to the root, that an image does not have.
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

// Lock keeps every other agent from changing this host until unlock is called or the process ends. It is ErrLocked
// where another one holds it. The lock is on the root directory itself, so that it leaves nothing behind and means
// the same to a process in a container.
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

// Space is what a file system has left.
type Space struct {
	// Free is what may still be written, in bytes.
	Free uint64
	// ReadOnly is true where nothing may be written.
	ReadOnly bool
}

// stReadOnly is ST_RDONLY of statfs(2).
const stReadOnly = 1

// FreeSpace tells what is left of the file system that holds name.
func (f FS) FreeSpace(name string) (Space, error) {
	rel, err := f.resolveLinks(name, true)
	if err != nil {
		return Space{}, err
	}
	file, err := f.root.Open(rel)
	if err != nil {
		return Space{}, nameError(err, name)
	}
	defer file.Close()
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(int(file.Fd()), &stat); err != nil {
		return Space{}, fmt.Errorf("statfs %s: %w", name, err)
	}
	return Space{Free: stat.Bavail * uint64(stat.Bsize), ReadOnly: stat.Flags&stReadOnly != 0}, nil
}
