package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
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
