package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxLinks limits the symbolic links in one path. The kernel's limit is 40.
const maxLinks = 40

// resolveLinks converts a name of the host to a name that is relative to the root and leads through no symbolic link. If follow is false, the last
// element may be a link. os.Root itself rejects absolute links, of which a host has many (/etc/sysctl.d/x.conf -> /dev/null, /usr/bin/awk ->
// /etc/alternatives/awk). os.Root still makes the final check, so a link that is put there in between cannot lead out of the root. Missing elements
// are kept: the error occurs when the name is opened.
func (f FS) resolveLinks(name string, follow bool) (string, error) {
	if !path.IsAbs(name) {
		return "", fmt.Errorf("%s: not an absolute name", name)
	}
	rel := cmp.Or(path.Clean(name)[1:], ".")
	if !f.hasNoLinks(rel, follow) {
		var err error
		if rel, err = f.followLinks(name, follow); err != nil {
			return "", err
		}
	}
	return rel, f.hiddenInImage(rel, name)
}

// hasNoLinks reports whether the name leads through no symbolic link until its end or its first missing element. It is also false if the kernel cannot
// tell: openat2(2) needs Linux 5.6. One call replaces a walk from the root for each element.
func (f FS) hasNoLinks(rel string, follow bool) bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	if !follow {
		how.Flags |= unix.O_NOFOLLOW
	}
	conn, err := f.top.SyscallConn()
	if err != nil {
		return false
	}
	found := -1
	// The root may be closed at the same time: Fd could return the number of another file.
	if controlErr := conn.Control(func(top uintptr) { found, err = unix.Openat2(int(top), rel, &how) }); controlErr != nil {
		return false
	}
	if err == nil {
		return unix.Close(found) == nil
	}
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

func (f FS) followLinks(name string, follow bool) (string, error) {
	todo := splitPath(path.Clean(name))
	var done []string
	links := 0
	for len(todo) > 0 {
		element := todo[0]
		todo = todo[1:]
		if element == "." {
			continue
		}
		if element == ".." {
			done = done[:max(0, len(done)-1)]
			continue
		}
		done = append(done, element)
		if len(todo) == 0 && !follow {
			break
		}
		target, err := f.readLink(path.Join(done...))
		if err != nil {
			return "", nameError(err, name)
		}
		if target == "" {
			continue
		}
		links++
		if links > maxLinks {
			return "", &fs.PathError{Op: "resolve", Path: name, Err: syscall.ELOOP}
		}
		done = done[:len(done)-1]
		if path.IsAbs(target) {
			done = nil
		}
		todo = append(splitPath(target), todo...)
	}
	return cmp.Or(path.Join(done...), "."), nil
}

// readLink returns the target of a symbolic link. Empty for other files and for missing files.
func (f FS) readLink(rel string) (string, error) {
	target, err := f.root.Readlink(rel)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTDIR) {
		return "", nil
	}
	return target, err
}

func splitPath(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

// nameError replaces the name below the root in an error with the host's name.
func nameError(err error, name string) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return &fs.PathError{Op: pathErr.Op, Path: name, Err: pathErr.Err}
	}
	var linkErr *os.LinkError
	if errors.As(err, &linkErr) {
		return &fs.PathError{Op: linkErr.Op, Path: name, Err: linkErr.Err}
	}
	return err
}
