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

// readPresent reads the menu in place when no program is writing it. It is called after the new one was made, since the installation of a
// kernel may have replaced it.
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

// exchangeMenu replaces the present menu by a new one. If no argument of ours is desired any more, it restores the bytes from before our first
// change instead, as long as these are good.
func (g grubDebian) exchangeMenu(f facts, next change, present presentMenu, made []byte) error {
	file, kept := g.facts.KeptFiles()[g.at.menu]
	if kept && !g.isOriginalGood(f, next, file, present.data, made) {
		kept = false
	}
	if kept && len(next.wanted) == 0 {
		return g.putBackMenu(f, next, file.Original)
	}
	if !kept && len(next.wanted) > 0 && !holdsOurs(present.data, f.ourArguments()) {
		original, err := g.fs.SaveFile(g.at.menu)
		if err != nil {
			return err
		}
		kept, file = true, host.KeptFile{Original: original}
	}
	if err := g.keepMenu(file, kept, present.data, made); err != nil {
		return err
	}
	if g.menuVersion(g.at.menu) != present.version {
		return fmt.Errorf("read %s: %w", g.at.menu, errBusy)
	}
	if err := g.fs.Chmod(g.at.scratch(), present.mode); err != nil {
		return err
	}
	return g.fs.Rename(g.at.scratch(), g.at.menu)
}

// isOriginalGood reports whether the host would still have the menu from before our first change without us. The present menu is that
// one, or it is one of ours to the byte and the generator prints the same now. If the new menu passes an argument of ours that is not desired,
// another file sets it now.
func (g grubDebian) isOriginalGood(f facts, next change, file host.KeptFile, present, made []byte) bool {
	ours := append(f.ourArguments(), next.wanted...)
	switch {
	case bytes.Equal(present, file.Original.Data):
		return true
	case len(next.wanted) == 0 && holdsOurs(made, ours):
		return false
	}
	return wasLeft(file, present) && printSame(present, made, ours)
}

// keepMenu journals the menu from before our first change, and the hashes of the menus that are ours: the next one, and the present one
// until that is in place. It clears the record of a menu without an original.
func (g grubDebian) keepMenu(file host.KeptFile, kept bool, present, next []byte) error {
	all := g.facts.KeptFiles()
	if all == nil {
		all = map[string]host.KeptFile{}
	}
	was, had := all[g.at.menu]
	delete(all, g.at.menu)
	if kept {
		file.Left = leftBy(next)
		if wasLeft(was, present) {
			file.Left = leftBy(present, next)
		}
		all[g.at.menu] = file
	}
	if kept == had && (!had || was.Left == file.Left && was.Original.Equal(file.Original)) {
		return nil
	}
	return g.facts.KeepFiles(all)
}

func leftBy(menus ...[]byte) string {
	var hashes []string
	for _, menu := range menus {
		if hash := digest(host.SavedFile{Data: menu}); !slices.Contains(hashes, hash) {
			hashes = append(hashes, hash)
		}
	}
	return strings.Join(hashes, " ")
}

// wasLeft reports whether a menu is one of ours to the byte.
func wasLeft(file host.KeptFile, menu []byte) bool {
	return slices.Contains(strings.Fields(file.Left), digest(host.SavedFile{Data: menu}))
}

// printSame reports whether two menus of ours differ by our arguments and our section alone.
func printSame(a, b []byte, ours []host.Argument) bool {
	return slices.Equal(readMenuText(string(a), ours).all, readMenuText(string(b), ours).all)
}

// holdsOurs reports whether an entry of a menu passes an argument of ours, or the menu has our section.
func holdsOurs(menu []byte, ours []host.Argument) bool {
	if parseTrial(string(menu)).section != "" {
		return true
	}
	for _, line := range parseMenu(string(menu)).lines {
		if slices.ContainsFunc(line.args, func(arg host.Argument) bool { return hasArgument(ours, arg) }) {
			return true
		}
	}
	return false
}

// putBackMenu restores the menu from before our first change. An argument that it passes itself is not ours any more.
func (g grubDebian) putBackMenu(f facts, next change, original host.SavedFile) error {
	before := parseMenu(string(original.Data))
	theirs := slices.DeleteFunc(slices.Clone(next.stale), func(arg host.Argument) bool { return !hasArgument(before.valuesOf(arg.Name), arg) })
	if err := g.fs.PutBack(g.at.menu, original); err != nil {
		return err
	}
	return errors.Join(g.fs.Remove(g.at.scratch()), g.disown(f, theirs))
}

// cutArguments removes our arguments and our section from the menu in place. Every other byte stays.
func (g grubDebian) cutArguments(stale []host.Argument) error {
	present, err := g.readPresent()
	if err != nil {
		return err
	}
	data, err := withoutSection(string(present.data))
	if err != nil {
		return fmt.Errorf("%w of %s", err, g.at.menu)
	}
	if data = withoutArguments(data, stale); data != string(present.data) {
		if err := g.fs.WriteFileAtomic(g.at.menu, []byte(data), present.mode); err != nil {
			return err
		}
	}
	g.changedByOthers = []string{g.at.menu}
	return g.fs.Remove(g.at.scratch())
}

// withoutArguments returns a menu without some arguments in the entries that 10_linux has made.
func withoutArguments(data string, args []host.Argument) string {
	ours := map[int]bool{}
	for _, line := range parseMenu(data).lines {
		ours[line.number] = true
	}
	var b strings.Builder
	number := 0
	for line := range strings.Lines(data) {
		if number++; ours[number] {
			line = cutWords(line, args)
		}
		b.WriteString(line)
	}
	return b.String()
}

// cutWords returns a line without some arguments. The words after "--" are for init.
func cutWords(line string, args []host.Argument) string {
	kernels, init, forInit := strings.Cut(line, " -- ")
	if forInit {
		init = " -- " + init
	} else if strings.HasSuffix(kernels, "\n") {
		kernels, init = strings.TrimSuffix(kernels, "\n"), "\n"
	}
	words := slices.DeleteFunc(strings.Split(kernels, " "), func(word string) bool { return hasArgument(args, host.NewArgument(word)) })
	return strings.Join(words, " ") + init
}
