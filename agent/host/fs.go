package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxFileSize limits the bytes that ReadFile reads into memory. The largest files are a grub.cfg or a mountinfo, well under 1 MiB each.
	maxFileSize = 16 << 20
	// tempSuffix ends the name of a file that is being written. No reader of a .d directory uses such a file.
	tempSuffix = ".storage-client-tmp"
)

// ReadIfThere reads a file like ReadFile. A missing file is empty.
func (f FS) ReadIfThere(name string) ([]byte, error) {
	data, err := f.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Open opens a file for reading without blocking, even a named pipe without a writer. A missing file is fs.ErrNotExist.
func (f FS) Open(name string) (*os.File, error) { return f.open(name, syscall.O_NONBLOCK) }

func (f FS) open(name string, flags int) (*os.File, error) {
	rel, err := f.resolveLinks(name, true)
	if err != nil {
		return nil, err
	}
	file, err := f.root.OpenFile(rel, os.O_RDONLY|flags, 0)
	return file, nameError(err, name)
}

// ReadFile reads a file of at most 16 MiB. A missing file is fs.ErrNotExist.
func (f FS) ReadFile(name string) ([]byte, error) {
	file, err := f.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	if err != nil {
		return nil, nameError(err, name)
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("read %s: larger than %d bytes", name, maxFileSize)
	}
	return data, nil
}

// ReadValue reads a file of /proc or /sys and trims the surrounding white space.
func (f FS) ReadValue(name string) (string, error) {
	data, err := f.ReadFile(name)
	return strings.TrimSpace(string(data)), err
}

// Stat describes the file that name resolves to.
func (f FS) Stat(name string) (fs.FileInfo, error) { return f.stat(name, true) }

// Lstat describes name itself, even if it is a symbolic link.
func (f FS) Lstat(name string) (fs.FileInfo, error) { return f.stat(name, false) }

func (f FS) stat(name string, followsLast bool) (fs.FileInfo, error) {
	rel, err := f.resolveLinks(name, followsLast)
	if err != nil {
		return nil, err
	}
	info, err := f.root.Lstat(rel)
	return info, nameError(err, name)
}

// Resolve returns the name after all symbolic links are resolved.
func (f FS) Resolve(name string) (string, error) {
	rel, err := f.resolveLinks(name, true)
	return path.Join("/", rel), err
}

// Exists reports whether name resolves to a file. It returns false on every error.
func (f FS) Exists(name string) bool {
	_, err := f.Stat(name)
	return err == nil
}

// ReadDir lists a directory, sorted by name.
func (f FS) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := f.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, nameError(err, name)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Glob lists the names that match pattern, sorted. Only the elements below dir may have wildcards. As in a shell, names that start with a dot are
// omitted. A missing directory has no matches.
func (f FS) Glob(dir, pattern string) ([]string, error) {
	names := []string{path.Clean(dir)}
	for element := range strings.SplitSeq(pattern, "/") {
		var next []string
		for _, parent := range names {
			matches, err := f.matchElement(parent, element)
			if err != nil {
				return nil, err
			}
			next = append(next, matches...)
		}
		names = next
	}
	slices.Sort(names)
	return names, nil
}

func (f FS) matchElement(dir, element string) ([]string, error) {
	entries, err := f.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		ok, err := path.Match(element, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("match %s: %w", element, err)
		}
		if ok && !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, path.Join(dir, entry.Name()))
		}
	}
	return names, nil
}

// WriteFileAtomic replaces name with data so that a crash at any point leaves the old file or the new one. It writes a temporary file in the same
// directory, calls fsync, renames the file, and calls fsync on the directory. The directory must exist. A symbolic link with that name is replaced,
// not followed. On VFAT, a power cut can also leave a new name with an empty file, or the temporary file with its short name only.
func (f FS) WriteFileAtomic(name string, data []byte, perm fs.FileMode) error {
	return f.writeFile(name, data, perm, nil)
}

// writeFile implements WriteFileAtomic. If an owner is given, the file gets its owner and label.
func (f FS) writeFile(name string, data []byte, perm fs.FileMode, owner *SavedFile) error {
	rel, err := f.resolveLinks(name, false)
	if err != nil {
		return err
	}
	temp := tempName(rel)
	err = f.writeTemp(temp, data, perm, owner)
	if err == nil {
		err = f.renameFile(temp, rel)
	}
	if err != nil {
		f.discardTemp(temp)
	}
	return nameError(err, name)
}

func tempName(rel string) string { return path.Join(path.Dir(rel), "."+path.Base(rel)+tempSuffix) }

// writeTemp makes a durable file. First, it removes the remains of an earlier crash.
func (f FS) writeTemp(temp string, data []byte, perm fs.FileMode, owner *SavedFile) error {
	if err := f.callHook(OpCreate, "/"+temp); err != nil {
		return err
	}
	if err := f.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	err = errors.Join(chownTemp(file, owner), labelTemp(file, owner), f.fillTemp(file, temp, data, perm))
	return errors.Join(err, file.Close())
}

func (f FS) fillTemp(file *os.File, temp string, data []byte, perm fs.FileMode) error {
	// The umask must not decide who may read the file.
	if err := file.Chmod(perm); err != nil {
		return err
	}
	if err := f.callHook(OpWrite, "/"+temp); err != nil {
		return err
	}
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := f.callHook(OpSync, "/"+temp); err != nil {
		return err
	}
	return file.Sync()
}

// discardTemp cleans up after an error that is already being returned. The next write removes any remains.
func (f FS) discardTemp(temp string) {
	if f.callHook(OpRemove, "/"+temp) == nil {
		_ = f.root.Remove(temp)
	}
}

// Rename durably replaces to with from, in the same directory. It syncs the content of from first, because another program may have written it.
func (f FS) Rename(from, to string) error {
	if path.Dir(path.Clean(from)) != path.Dir(path.Clean(to)) {
		return fmt.Errorf("rename %s to %s: not in the same directory", from, to)
	}
	relFrom, err := f.resolveLinks(from, false)
	if err != nil {
		return err
	}
	relTo, err := f.resolveLinks(to, false)
	if err != nil {
		return err
	}
	if err := f.syncPath(OpSync, relFrom); err != nil {
		return err
	}
	return nameError(f.renameFile(relFrom, relTo), to)
}

// renameFile durably renames a file. On VFAT, a rename does not write the content of the new name, and a sync of the directory does not either
// (fs/fat/namei_vfat.c). The sync of the file writes it, in a single sector.
func (f FS) renameFile(from, to string) error {
	if err := f.callHook(OpRename, "/"+to); err != nil {
		return err
	}
	pinned, isVFAT := f.pinOnVFAT(to)
	defer pinned.Close()
	if err := f.root.Rename(from, to); err != nil {
		return err
	}
	if err := f.syncDir(path.Dir(to)); err != nil || !isVFAT {
		return err
	}
	return f.syncPath(OpSync, to)
}

// vfatMagic is the type of VFAT in statfs(2). A test replaces it.
var vfatMagic int64 = unix.MSDOS_SUPER_MAGIC

// pinOnVFAT keeps the clusters of a file until pinned is closed. Without it, a power cut could leave the name of a removed or replaced file with
// clusters that are free. The file may be missing: pinned is nil then, and on other file systems.
func (f FS) pinOnVFAT(rel string) (pinned *os.File, isVFAT bool) {
	dir, err := f.root.Open(path.Dir(rel))
	if err != nil {
		return nil, false
	}
	defer dir.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &stat); err != nil || stat.Type != vfatMagic {
		return nil, false
	}
	pinned, _ = f.root.OpenFile(rel, unix.O_PATH, 0)
	return pinned, true
}

// Remove durably removes name, and the remains of a crash while it was written. A missing file is not an error.
func (f FS) Remove(name string) error {
	rel, err := f.resolveLinks(name, false)
	if err != nil {
		return err
	}
	for _, rel := range []string{rel, tempName(rel)} {
		if err := f.removeOne(rel); err != nil {
			return nameError(err, name)
		}
	}
	return nil
}

// RemoveEmpty durably removes a directory if it is empty. A missing directory is not an error.
func (f FS) RemoveEmpty(dir string) error {
	entries, err := f.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return f.Remove(dir)
}

func (f FS) removeOne(rel string) error {
	if _, err := f.root.Lstat(rel); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := f.callHook(OpRemove, "/"+rel); err != nil {
		return err
	}
	pinned, _ := f.pinOnVFAT(rel)
	defer pinned.Close()
	if err := f.root.Remove(rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.syncDir(path.Dir(rel))
}

// RemoveTemp removes the remains of a crash while name was written. It keeps name itself.
func (f FS) RemoveTemp(name string) error {
	rel, err := f.resolveLinks(name, false)
	if err != nil {
		return err
	}
	return nameError(f.removeOne(tempName(rel)), name)
}

// Chmod sets the permission bits of a file.
func (f FS) Chmod(name string, perm fs.FileMode) error {
	rel, err := f.resolveLinks(name, true)
	if err != nil {
		return err
	}
	if err := f.callHook(OpChmod, name); err != nil {
		return err
	}
	return nameError(f.root.Chmod(rel, perm), name)
}

// MkdirAll makes a directory and its parents, each durably. Existing directories stay unchanged.
func (f FS) MkdirAll(name string, perm fs.FileMode) error {
	name = path.Clean("/" + name)
	if name == "/" || f.Exists(name) {
		return nil
	}
	parent := path.Dir(name)
	if err := f.MkdirAll(parent, perm); err != nil {
		return err
	}
	rel, err := f.resolveLinks(name, false)
	if err != nil {
		return err
	}
	if err := f.callHook(OpMkdir, name); err != nil {
		return err
	}
	if err := f.root.Mkdir(rel, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return nameError(err, name)
	}
	return f.syncDir(path.Dir(rel))
}

// WriteValue writes to an existing file of /proc or /sys, in one write, as these files require. It opens the file like a shell's ">", and neither
// creates nor renames it. If the kernel rejects the value, WriteValue returns that error.
func (f FS) WriteValue(name, value string) error {
	rel, err := f.resolveLinks(name, true)
	if err != nil {
		return err
	}
	if err := f.callHook(OpWriteValue, name); err != nil {
		return err
	}
	file, err := f.root.OpenFile(rel, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return nameError(err, name)
	}
	_, err = file.WriteString(value + "\n")
	return nameError(errors.Join(err, file.Close()), name)
}

func (f FS) syncDir(rel string) error { return f.syncPath(OpSyncDir, rel) }

func (f FS) syncPath(op Op, rel string) error {
	if err := f.callHook(op, "/"+rel); err != nil {
		return err
	}
	file, err := f.root.Open(rel)
	if err != nil {
		return nameError(err, "/"+rel)
	}
	return nameError(errors.Join(file.Sync(), file.Close()), "/"+rel)
}
