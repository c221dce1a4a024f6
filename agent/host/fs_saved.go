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

// SavedFile is the state of a file: its bytes or its link target, and its owner.
type SavedFile struct {
	// Present is false if there was no file.
	Present bool `json:"present"`
	// Data contains the bytes of a regular file.
	Data []byte `json:"data,omitempty"`
	// Link is the target of a symbolic link. Empty for a regular file.
	Link string `json:"link,omitempty"`
	// Mode contains the permission bits of a regular file.
	Mode fs.FileMode `json:"mode,omitempty"`
	// UID and GID are the owner.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
	// Label is the SELinux label of a regular file. Empty if it has none.
	Label string `json:"label,omitempty"`
}

// Equal reports whether both files have the same bytes, permissions, owner and label. Labels are compared only if both are known.
func (s SavedFile) Equal(other SavedFile) bool {
	return s.Present == other.Present && s.Link == other.Link && s.Mode == other.Mode && s.UID == other.UID &&
		s.GID == other.GID && bytes.Equal(s.Data, other.Data) && (s.Label == other.Label || s.Label == "" || other.Label == "")
}

// FileRecord is a file as saved before a program of the host changed it for the agent.
type FileRecord struct {
	// Original is the file before the change.
	Original SavedFile `json:"original"`
	// Left is the hash of a file that the program created. Empty while that is unknown. For a grub.cfg, it is the hash of the menu with which the
	// agent replaced it. While one menu replaces another, it is both hashes, separated by a blank.
	Left string `json:"left,omitempty"`
}

const (
	labelAttribute = "security.selinux"
	maxLabel       = 4096
)

// labelOf returns the SELinux label of a file. Empty if it has none.
func labelOf(file *os.File) (string, error) {
	label := make([]byte, maxLabel)
	n, err := unix.Fgetxattr(int(file.Fd()), labelAttribute, label)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the label of %s: %w", file.Name(), err)
	}
	return string(label[:n]), nil
}

// setLabel sets an attribute of an open file. Tests replace it.
var setLabel = unix.Fsetxattr

func labelTemp(file *os.File, owner *SavedFile) error {
	if owner == nil || owner.Label == "" {
		return nil
	}
	// On vfat, all files have the label of the mount, which cannot be set.
	if label, err := labelOf(file); err == nil && label == owner.Label {
		return nil
	}
	if err := setLabel(int(file.Fd()), labelAttribute, []byte(owner.Label), 0); err != nil {
		return fmt.Errorf("set the label %q: %w", strings.TrimRight(owner.Label, "\x00"), err)
	}
	return nil
}

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

// maxSavedSize limits the size of a saved file, in bytes. The largest is a grub.cfg: Debian 12's has 7.7 KiB for two kernels.
const maxSavedSize = 64 << 10

// SaveFile reads the state of a file. It does not follow a symbolic link. It returns an error for anything other than a link or a regular file of at
// most 64 KiB. A missing file is not an error.
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
		return SavedFile{}, fmt.Errorf("%s is too large to save: more than %d KiB", name, maxSavedSize>>10)
	}
	saved.Mode = info.Mode().Perm()
	if saved.Data, err = f.ReadFile(name); err != nil {
		return saved, err
	}
	saved.Label, err = f.readLabel(name)
	return saved, err
}

func (f FS) readLabel(name string) (string, error) {
	file, err := f.open(name, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return labelOf(file)
}

// RestoreFile restores a file durably and verifies it. A crash at any point leaves one of the two states.
func (f FS) RestoreFile(name string, saved SavedFile) error {
	now, err := f.SaveFile(name)
	if err == nil && now.Equal(saved) {
		return nil
	}
	switch {
	case !saved.Present:
		err = f.Remove(name)
	case saved.Link != "":
		err = f.writeLink(name, saved.Link)
	default:
		err = f.writeFile(name, saved.Data, saved.Mode, &saved)
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", name, err)
	}
	if now, err = f.SaveFile(name); err == nil && !now.Equal(saved) {
		err = errors.New("it differs from the saved file")
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", name, err)
	}
	return nil
}

// writeLink replaces name with a symbolic link, as writeFile does with a file.
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
	if err = f.renameFile(temp, rel); err != nil {
		f.discardTemp(temp)
	}
	return err
}

// SyncFile makes a file that another program wrote durable, and its name too.
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
