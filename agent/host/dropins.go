package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// ConfigDirs returns the directories with a name, such as "modprobe.d", from which the host's programs read files, in their order.
func ConfigDirs(name string) []string {
	dirs := []string{"etc", "run", "usr/local/lib", "usr/lib", "lib"}
	return lists.Each(dirs, func(dir string) string { return path.Join("/", dir, name) })
}

// DropIns lists the files of .d directories in the order in which their readers (systemd-sysctl, sysctl --system, modprobe) apply them: by base name
// across all directories. A file masks files with the same name in later directories of dirs.
func (f FS) DropIns(dirs []string, suffix string) ([]string, error) {
	byName := map[string]string{}
	for _, dir := range dirs {
		files, err := f.Glob(dir, "*"+suffix)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if _, masked := byName[path.Base(file)]; !masked {
				byName[path.Base(file)] = file
			}
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) }), nil
}

// ListNames returns text.List of the names without duplicates.
func ListNames(names []string) string { return text.List(lists.Distinct(names)) }

// KeepOwnFile calls KeepFile for a file that earlier releases named differently, and removes the file with the former name.
func (f FS) KeepOwnFile(file OwnFile, content string) error {
	if err := f.KeepFile(file.Name, content); err != nil {
		return err
	}
	return file.RemoveFormer(f)
}

// KeepFile calls KeepFileMode for a file that every user may read.
func (f FS) KeepFile(name, content string) error { return f.KeepFileMode(name, content, 0o644) }

// KeepFileMode writes content to a file of the agent if it differs, or removes the file if content is empty. It creates the directory.
func (f FS) KeepFileMode(name, content string, perm fs.FileMode) error {
	if content == "" {
		return f.Remove(name)
	}
	if err := f.RemoveTemp(name); err != nil {
		return err
	}
	data, err := f.ReadFile(name)
	if err == nil && string(data) == content {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return f.WriteFileAtomic(name, []byte(content), perm)
}

// OwnHeader is the start of every file that only the agent writes.
const OwnHeader = "# Written by storage-client-node-agent. What is changed here is overwritten.\n"

// OwnText returns the text of a file that only the agent writes. Empty without a body.
func OwnText(body string) string { return text.Labelled(OwnHeader, body) }

// ownMark is the start of these files in all releases.
const ownMark = "# Written by storage-client-node-agent."

// OwnFile is a file that only the agent writes. Former is its name in earlier releases, in the same directory.
type OwnFile struct {
	Name, Former string
}

// NameOn returns the name of the file on a host. It is the former name only if no file has the new name.
func (o OwnFile) NameOn(f FS) string {
	if _, err := f.Lstat(o.Name); errors.Is(err, fs.ErrNotExist) && o.hasFormer(f) {
		return o.Former
	}
	return o.Name
}

// TakeOver gives the file its new name, durably and in one step, so that one of the two names has the values at any time. If both files exist, an
// earlier release has written the former one since, and TakeOver keeps that one.
func (o OwnFile) TakeOver(f FS) error {
	if !o.hasFormer(f) {
		return nil
	}
	if err := f.Rename(o.Former, o.Name); err != nil {
		return fmt.Errorf("rename %s to %s: %w", o.Former, path.Base(o.Name), err)
	}
	return f.RemoveTemp(o.Former)
}

// FormerNote returns a note, with the reason, if the file still has its former name. Empty if it does not. err is the result of TakeOver.
func (o OwnFile) FormerNote(f FS, err error) string {
	if o.NameOn(f) == o.Name {
		return ""
	}
	note := "still in " + o.Former + ", the name of an earlier release"
	if err != nil {
		note += ": " + err.Error()
	}
	return note
}

// RemoveFormer removes the file with the former name.
func (o OwnFile) RemoveFormer(f FS) error {
	if !o.hasFormer(f) {
		return nil
	}
	return f.Remove(o.Former)
}

// hasFormer reports whether the agent's file has its former name. It ignores a file with that name from another program or user.
func (o OwnFile) hasFormer(f FS) bool {
	info, err := f.Lstat(o.Former)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	data, err := f.ReadFile(o.Former)
	return err == nil && strings.HasPrefix(string(data), ownMark)
}
