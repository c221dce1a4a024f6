package host

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/text"
)

// DropIns lists the files of .d directories in the order in which their readers (systemd-sysctl, sysctl
// --system, modprobe) take them up: by base name over all directories, where a file masks those of the same
// name in directories further back in dirs.
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
	files := make([]string, 0, len(byName))
	for _, file := range byName {
		files = append(files, file)
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return files, nil
}

// ListNames is text.List with each name once.
func ListNames(names []string) string {
	return text.List(slices.Compact(slices.Sorted(slices.Values(names))))
}

// KeepOwnFile is KeepFile of a file that had another name once, and leaves nothing under that.
func (f FS) KeepOwnFile(file OwnFile, content string) error {
	if err := f.KeepFile(file.Name, content); err != nil {
		return err
	}
	return file.RemoveFormer(f)
}

// KeepFile makes a file of our own name hold that content, or not be there where it is empty. It makes the directory, and
// changes nothing where all is as it is to be.
func (f FS) KeepFile(name, content string) error {
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
	return f.WriteFileAtomic(name, []byte(content), 0o644)
}
