package grub

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

type presentMenu struct {
	data    []byte
	mode    fs.FileMode
	version loader.MenuVersion
}

// readPresent reads the menu in place when no program is writing it, after the new menu was made: a kernel installation may have replaced it.
func (g mkconfig) readPresent() (presentMenu, error) {
	info, err := g.FS.Lstat(g.At.Menu)
	if err != nil {
		return presentMenu{}, err
	}
	if !info.Mode().IsRegular() {
		return presentMenu{}, fmt.Errorf("%s is not a regular file", g.At.Menu)
	}
	present := presentMenu{mode: info.Mode().Perm(), version: g.MenuVersion(g.At.Menu)}
	present.data, err = g.ReadSettled(g.At.Menu)
	return present, err
}

// exchangeMenu replaces the present menu with a new one. If none of the agent's arguments is desired, it restores the original bytes instead,
// provided that these are still valid.
func (g mkconfig) exchangeMenu(f loader.Facts, next loader.Change, present presentMenu, made []byte) error {
	file, hasOriginal := g.Facts.KeptFiles()[g.At.Menu]
	hasOriginal = hasOriginal && g.isOriginalGood(f, next, file, present.data, made)
	if hasOriginal && len(next.Desired) == 0 {
		return g.restoreMenu(f, next, file.Original)
	}
	if !hasOriginal && len(next.Desired) > 0 && !holdsManaged(present.data, f.ManagedArguments()) {
		original, err := g.FS.SaveFile(g.At.Menu)
		if err != nil {
			return err
		}
		hasOriginal, file = true, host.FileRecord{Original: original}
	}
	if err := g.keepMenu(file, hasOriginal, present.data, made); err != nil {
		return err
	}
	if g.MenuVersion(g.At.Menu) != present.version {
		return fmt.Errorf("read %s: %w", g.At.Menu, grubcfg.ErrBusy)
	}
	if err := g.FS.Chmod(g.scratch(), present.mode); err != nil {
		return err
	}
	return g.FS.Rename(g.scratch(), g.At.Menu)
}

// isOriginalGood reports whether the host would have its original menu without the agent. That is the case if the present menu is the original. It is
// also the case if the agent wrote exactly the present menu, and the generator still prints the same. If no argument is desired, the new menu must
// pass none of the agent's arguments. Otherwise, another file sets them now, and the original is no longer valid.
func (g mkconfig) isOriginalGood(f loader.Facts, next loader.Change, file host.FileRecord, present, made []byte) bool {
	managed := append(f.ManagedArguments(), next.Desired...)
	switch {
	case bytes.Equal(present, file.Original.Data):
		return true
	case len(next.Desired) == 0 && holdsManaged(made, managed):
		return false
	}
	return isRecordedMenu(file, present) && printSame(present, made, managed)
}

// keepMenu journals the original menu, and the hashes of the agent's menus: the next one, and the present one until the next one is in place. It
// clears the record of a menu without an original.
func (g mkconfig) keepMenu(file host.FileRecord, hasOriginal bool, present, next []byte) error {
	all := g.Facts.KeptFiles()
	if all == nil {
		all = map[string]host.FileRecord{}
	}
	previous, existed := all[g.At.Menu]
	delete(all, g.At.Menu)
	if hasOriginal {
		file.Left = menuDigests(next)
		if isRecordedMenu(previous, present) {
			file.Left = menuDigests(present, next)
		}
		all[g.At.Menu] = file
	}
	if hasOriginal == existed && (!existed || previous.Left == file.Left && previous.Original.Equal(file.Original)) {
		return nil
	}
	return g.Facts.KeepFiles(all)
}

func menuDigests(menus ...[]byte) string {
	var hashes []string
	for _, menu := range menus {
		hashes = append(hashes, loader.Digest(host.SavedFile{Data: menu}))
	}
	return strings.Join(slices.Compact(hashes), " ")
}

func isRecordedMenu(file host.FileRecord, menu []byte) bool {
	return slices.Contains(strings.Fields(file.Left), loader.Digest(host.SavedFile{Data: menu}))
}

// printSame reports whether two of the agent's menus differ only by its arguments and its section.
func printSame(a, b []byte, managed []host.Argument) bool {
	return slices.Equal(readMenuText(string(a), managed).all, readMenuText(string(b), managed).all)
}

// holdsManaged reports whether a menu has the agent's section, or an entry with one of its arguments.
func holdsManaged(menu []byte, managed []host.Argument) bool {
	if grubcfg.ParseTrial(string(menu)).Section != "" {
		return true
	}
	return slices.ContainsFunc(grubcfg.Parse(string(menu)).Lines, func(line loader.Line) bool {
		return slices.ContainsFunc(line.Args, func(arg host.Argument) bool { return argument.Has(managed, arg) })
	})
}

// restoreMenu restores the original menu. The agent no longer manages arguments that the original passes.
func (g mkconfig) restoreMenu(f loader.Facts, next loader.Change, original host.SavedFile) error {
	before := grubcfg.Parse(string(original.Data))
	foreign := slices.DeleteFunc(slices.Clone(next.Stale), func(arg host.Argument) bool { return !argument.Has(before.ValuesOf(arg.Name), arg) })
	if err := g.FS.RestoreFile(g.At.Menu, original); err != nil {
		return err
	}
	return errors.Join(g.FS.Remove(g.scratch()), g.Disown(f, foreign))
}

// cutArguments removes the agent's arguments and section from the menu in place. Every other byte stays.
func (g mkconfig) cutArguments(stale []host.Argument) error {
	present, err := g.readPresent()
	if err != nil {
		return err
	}
	data, err := WithoutSection(string(present.data))
	if err != nil {
		return fmt.Errorf("%w from %s", err, g.At.Menu)
	}
	if data = withoutArguments(data, stale); data != string(present.data) {
		if err := g.FS.WriteFileAtomic(g.At.Menu, []byte(data), present.mode); err != nil {
			return err
		}
	}
	g.ChangedByOthers = []string{g.At.Menu}
	return g.FS.Remove(g.scratch())
}

// withoutArguments returns a menu without the given arguments in the entries from 10_linux.
func withoutArguments(data string, args []host.Argument) string {
	entryLines := map[int]bool{}
	for _, line := range grubcfg.Parse(data).Lines {
		entryLines[line.Number] = true
	}
	var b strings.Builder
	number := 0
	for line := range strings.Lines(data) {
		if number++; entryLines[number] {
			line = argument.Cut(line, args)
		}
		b.WriteString(line)
	}
	return b.String()
}
