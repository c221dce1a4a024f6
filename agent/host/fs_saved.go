package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSavedSize bounds the bytes of one file that are kept for putting them back. The largest that is kept is a grub.cfg: Debian 12's has
// 7.7 KiB for two kernels.
const maxSavedSize = 64 << 10

// SavedFile is what a file was: its bytes, or where it led, and whose it was.
type SavedFile struct {
	// Present is false where there was no file.
	Present bool `json:"present"`
	// Data are the bytes of a regular file.
	Data []byte `json:"data,omitempty"`
	// Link is the target of a symbolic link, and empty for a regular file.
	Link string `json:"link,omitempty"`
	// Mode are the permission bits of a regular file.
	Mode fs.FileMode `json:"mode,omitempty"`
	// UID and GID are its owner.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
	// Label is the SELinux label of a regular file, empty where it has none.
	Label string `json:"label,omitempty"`
}

// Equal tells whether both are the same to the byte, with the same permissions, owner and, where both are known, label.
func (s SavedFile) Equal(other SavedFile) bool {
	return s.Present == other.Present && s.Link == other.Link && s.Mode == other.Mode && s.UID == other.UID &&
		s.GID == other.GID && bytes.Equal(s.Data, other.Data) && (s.Label == other.Label || s.Label == "" || other.Label == "")
}

// KeptFile is a file as it was before a program of the host changed it for us.
type KeptFile struct {
	// Original is what the file was before.
	Original SavedFile `json:"original"`
	// Left is the hash of a file that the program has made where there was none. Empty while that is not known. For a grub.cfg, it is the hash
	// of the one that we have put in its place, or two of them with a blank between while one replaces the other.
	Left string `json:"left,omitempty"`
}

// SaveFile reads what a file is, a symbolic link as such. What is neither a link nor a regular file of at most 64 KiB is an
// error; a file that is missing is not.
func (f FS) SaveFile(name string) (SavedFile, error) {
	info, err := f.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return SavedFile{}, nil
	}
	if err != nil {
		return SavedFile{}, err
	}
	saved := SavedFile{Present: true}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		saved.UID, saved.GID = int(stat.Uid), int(stat.Gid)
	}
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		rel, err := f.resolveLinks(name, false)
		if err != nil {
			return SavedFile{}, err
		}
		saved.Link, err = f.root.Readlink(rel)
		return saved, nameError(err, name)
	case !info.Mode().IsRegular():
		return SavedFile{}, fmt.Errorf("%s is not a regular file", name)
	case info.Size() > maxSavedSize:
		return SavedFile{}, fmt.Errorf("%s has %d KiB: more than %d KiB are not kept for putting them back", name, info.Size()>>10, maxSavedSize>>10)
	}
	saved.Mode = info.Mode().Perm()
	if saved.Data, err = f.ReadFile(name); err != nil {
		return saved, err
	}
	saved.Label, err = f.readLabel(name)
	return saved, err
}

const (
	labelAttribute = "security.selinux"
	maxLabel       = 4096
)

// readLabel reads a file's label; one without has an empty one.
func (f FS) readLabel(name string) (string, error) {
	rel, err := f.resolveLinks(name, true)
	if err != nil {
		return "", err
	}
	file, err := f.root.Open(rel)
	if err != nil {
		return "", nameError(err, name)
	}
	defer file.Close()
	label := make([]byte, maxLabel)
	n, err := unix.Fgetxattr(int(file.Fd()), labelAttribute, label)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the label of %s: %w", name, err)
	}
	return string(label[:n]), nil
}

// labelTemp gives a new file the label of the one before.
func labelTemp(file *os.File, owner *SavedFile) error {
	if owner == nil || owner.Label == "" {
		return nil
	}
	if err := unix.Fsetxattr(int(file.Fd()), labelAttribute, []byte(owner.Label), 0); err != nil {
		return fmt.Errorf("set the label %q: %w", strings.TrimRight(owner.Label, "\x00"), err)
	}
	return nil
}

// PutBack makes a file what it was, durably, and reads it back. A crash at any point leaves the one or the other.
func (f FS) PutBack(name string, was SavedFile) error {
	now, err := f.SaveFile(name)
	if err == nil && now.Equal(was) {
		return nil
	}
	switch {
	case !was.Present:
		err = f.Remove(name)
	case was.Link != "":
		err = f.writeLink(name, was.Link)
	default:
		err = f.writeFile(name, was.Data, was.Mode, &was)
	}
	if err != nil {
		return fmt.Errorf("put back %s: %w", name, err)
	}
	if now, err = f.SaveFile(name); err == nil && !now.Equal(was) {
		err = errors.New("it reads back otherwise")
	}
	if err != nil {
		return fmt.Errorf("put back %s: %w", name, err)
	}
	return nil
}

// writeLink replaces name by a symbolic link, as writeFile does by a file.
func (f FS) writeLink(name, target string) error {
	rel, err := f.resolveLinks(name, false)
	if err != nil {
		return err
	}
	temp := tempName(rel)
	if err := f.removeOne(temp); err != nil {
		return err
	}
	if err := f.callHook(OpCreate, "/"+temp); err != nil {
		return err
	}
	if err := f.root.Symlink(target, temp); err != nil {
		return err
	}
	if err := f.renameFile(temp, rel); err != nil {
		f.discardTemp(temp)
		return err
	}
	return f.syncDir(path.Dir(rel))
}

// chownTemp gives a new file to whom the one before belonged.
func chownTemp(file *os.File, owner *SavedFile) error {
	if owner == nil {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == owner.UID && int(stat.Gid) == owner.GID {
		return nil
	}
	return file.Chown(owner.UID, owner.GID)
}

// SyncFile makes durable what somebody else has written to a file, and its name.
func (f FS) SyncFile(name string) error {
	rel, err := f.resolveLinks(name, true)
	if err != nil {
		return err
	}
	if err := f.syncPath(OpSync, rel); err != nil {
		return err
	}
	return f.syncDir(path.Dir(rel))
}
