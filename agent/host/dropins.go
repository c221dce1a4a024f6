package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
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

// namesShown is how many names a message holds before it only counts.
const namesShown = 3

// Names puts names into a message: sorted, each once, three of them and how many more there are, so that the
// message does not change with the order of a listing.
func Names(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) <= namesShown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
}

// Keep makes a file of our own name hold a text, or not be there where the text is empty. It makes the directory, and
// changes nothing where all is as it is to be.
func (f FS) Keep(name, text string) error {
	if text == "" {
		return f.Remove(name)
	}
	if err := f.Tidy(name); err != nil {
		return err
	}
	data, err := f.ReadFile(name)
	if err == nil && string(data) == text {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return f.WriteFileAtomic(name, []byte(text), 0o644)
}
