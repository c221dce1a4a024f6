package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"
)

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
