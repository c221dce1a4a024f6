package bootloader

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

type presentMenu struct {
	data    []byte
	mode    fs.FileMode
	version menuVersion
}

// readPresent reads the menu in place when no program is writing it, after the new menu was made: a kernel installation may have replaced it.
func (g grubDebian) readPresent() (presentMenu, error) {
	info, err := g.fs.Lstat(g.at.menu)
	if err != nil {
		return presentMenu{}, err
	}
	if !info.Mode().IsRegular() {
		return presentMenu{}, fmt.Errorf("%s is not a regular file", g.at.menu)
	}
	present := presentMenu{mode: info.Mode().Perm(), version: g.menuVersion(g.at.menu)}
	present.data, err = g.readSettled(g.at.menu)
	return present, err
}

// exchangeMenu replaces the present menu with a new one. If none of the agent's arguments is desired, it restores the original bytes instead,
// provided that these are still valid.
func (g grubDebian) exchangeMenu(f facts, next change, present presentMenu, made []byte) error {
	file, hasOriginal := g.facts.KeptFiles()[g.at.menu]
	hasOriginal = hasOriginal && g.isOriginalGood(f, next, file, present.data, made)
	if hasOriginal && len(next.desired) == 0 {
		return g.restoreMenu(f, next, file.Original)
	}
	if !hasOriginal && len(next.desired) > 0 && !holdsManaged(present.data, f.managedArguments()) {
		original, err := g.fs.SaveFile(g.at.menu)
		if err != nil {
			return err
		}
		hasOriginal, file = true, host.FileRecord{Original: original}
	}
	if err := g.keepMenu(file, hasOriginal, present.data, made); err != nil {
		return err
	}
	if g.menuVersion(g.at.menu) != present.version {
		return fmt.Errorf("read %s: %w", g.at.menu, errBusy)
	}
	if err := g.fs.Chmod(g.scratch(), present.mode); err != nil {
		return err
	}
	return g.fs.Rename(g.scratch(), g.at.menu)
}

// isOriginalGood reports whether the host would have its original menu without the agent. That is the case if the present menu is the original. It is
// also the case if the agent wrote exactly the present menu, and the generator still prints the same. If no argument is desired, the new menu must
// pass none of the agent's arguments. Otherwise, another file sets them now, and the original is no longer valid.
func (g grubDebian) isOriginalGood(f facts, next change, file host.FileRecord, present, made []byte) bool {
	managed := append(f.managedArguments(), next.desired...)
	switch {
	case bytes.Equal(present, file.Original.Data):
		return true
	case len(next.desired) == 0 && holdsManaged(made, managed):
		return false
	}
	return isRecordedMenu(file, present) && printSame(present, made, managed)
}

// keepMenu journals the original menu, and the hashes of the agent's menus: the next one, and the present one until the next one is in place. It
// clears the record of a menu without an original.
func (g grubDebian) keepMenu(file host.FileRecord, hasOriginal bool, present, next []byte) error {
	all := g.facts.KeptFiles()
	if all == nil {
		all = map[string]host.FileRecord{}
	}
	previous, existed := all[g.at.menu]
	delete(all, g.at.menu)
	if hasOriginal {
		file.Left = menuDigests(next)
		if isRecordedMenu(previous, present) {
			file.Left = menuDigests(present, next)
		}
		all[g.at.menu] = file
	}
	if hasOriginal == existed && (!existed || previous.Left == file.Left && previous.Original.Equal(file.Original)) {
		return nil
	}
	return g.facts.KeepFiles(all)
}

func menuDigests(menus ...[]byte) string {
	var hashes []string
	for _, menu := range menus {
		hashes = append(hashes, digest(host.SavedFile{Data: menu}))
	}
	return strings.Join(slices.Compact(hashes), " ")
}

func isRecordedMenu(file host.FileRecord, menu []byte) bool {
	return slices.Contains(strings.Fields(file.Left), digest(host.SavedFile{Data: menu}))
}

// printSame reports whether two of the agent's menus differ only by its arguments and its section.
func printSame(a, b []byte, managed []host.Argument) bool {
	return slices.Equal(readMenuText(string(a), managed).all, readMenuText(string(b), managed).all)
}

// holdsManaged reports whether a menu has the agent's section, or an entry with one of its arguments.
func holdsManaged(menu []byte, managed []host.Argument) bool {
	if parseTrial(string(menu)).section != "" {
		return true
	}
	return slices.ContainsFunc(parseMenu(string(menu)).lines, func(line bootLine) bool {
		return slices.ContainsFunc(line.args, func(arg host.Argument) bool { return hasArgument(managed, arg) })
	})
}

// restoreMenu restores the original menu. The agent no longer manages arguments that the original passes.
func (g grubDebian) restoreMenu(f facts, next change, original host.SavedFile) error {
	before := parseMenu(string(original.Data))
	foreign := slices.DeleteFunc(slices.Clone(next.stale), func(arg host.Argument) bool { return !hasArgument(before.valuesOf(arg.Name), arg) })
	if err := g.fs.RestoreFile(g.at.menu, original); err != nil {
		return err
	}
	return errors.Join(g.fs.Remove(g.scratch()), g.disown(f, foreign))
}

// cutArguments removes the agent's arguments and section from the menu in place. Every other byte stays.
func (g grubDebian) cutArguments(stale []host.Argument) error {
	present, err := g.readPresent()
	if err != nil {
		return err
	}
	data, err := withoutSection(string(present.data))
	if err != nil {
		return fmt.Errorf("%w from %s", err, g.at.menu)
	}
	if data = withoutArguments(data, stale); data != string(present.data) {
		if err := g.fs.WriteFileAtomic(g.at.menu, []byte(data), present.mode); err != nil {
			return err
		}
	}
	g.changedByOthers = []string{g.at.menu}
	return g.fs.Remove(g.scratch())
}

// withoutArguments returns a menu without the given arguments in the entries from 10_linux.
func withoutArguments(data string, args []host.Argument) string {
	entryLines := map[int]bool{}
	for _, line := range parseMenu(data).lines {
		entryLines[line.number] = true
	}
	var b strings.Builder
	number := 0
	for line := range strings.Lines(data) {
		if number++; entryLines[number] {
			line = cutWords(line, args)
		}
		b.WriteString(line)
	}
	return b.String()
}
