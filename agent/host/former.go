package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// OwnHeader begins every file that only the agent writes.
const OwnHeader = "# Written by storage-client-node-agent. What is changed here is overwritten.\n"

// ownMark is what all releases have begun such files with.
const ownMark = "# Written by storage-client-node-agent."

// OwnFile is a file that only the agent writes, and the name that earlier releases had for it in the same directory.
type OwnFile struct {
	Name, Former string
}

// NameOn is the name under which a host has the file: the former one only where there is none of the new name.
func (o OwnFile) NameOn(f FS) string {
	if _, err := f.Lstat(o.Name); errors.Is(err, fs.ErrNotExist) && o.hasFormer(f) {
		return o.Former
	}
	return o.Name
}

// TakeOver gives the file its new name, durably and in one step, so that one of both holds the values at any time. Where both are
// there, an earlier release has written the former one since: that is the one to keep.
func (o OwnFile) TakeOver(f FS) error {
	if !o.hasFormer(f) {
		return nil
	}
	if err := f.Rename(o.Former, o.Name); err != nil {
		return fmt.Errorf("rename %s to %s: %w", o.Former, path.Base(o.Name), err)
	}
	return f.RemoveTemp(o.Former)
}

// FormerNote says that the file still has its former name, and why; empty where it does not. err is what TakeOver returned.
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

// RemoveFormer removes what has the former name.
func (o OwnFile) RemoveFormer(f FS) error {
	if !o.hasFormer(f) {
		return nil
	}
	return f.Remove(o.Former)
}

// hasFormer is false for a file that is somebody else's, whatever its name.
func (o OwnFile) hasFormer(f FS) bool {
	info, err := f.Lstat(o.Former)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	data, err := f.ReadFile(o.Former)
	return err == nil && strings.HasPrefix(string(data), ownMark)
}
