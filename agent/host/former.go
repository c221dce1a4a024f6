package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// OwnHeader is the start of every file that only the agent writes.
const OwnHeader = "# Written by storage-client-node-agent. What is changed here is overwritten.\n"

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
