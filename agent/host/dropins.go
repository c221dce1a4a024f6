package host

import (
	"errors"
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
