package bootloader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

const (
	// envSize and envHead define the format of GRUB's environment block (info grub, "The GRUB environment block"): one "name=value" per line, then "#" up to the end.
	envSize = 1024
	envHead = "# GRUB Environment Block\n"
	// nextEntry is the variable that selects the entry of the next boot. The menu clears it before that boot.
	nextEntry = "next_entry"
	// fallbackCounting is the section of a menu in which GRUB counts boots down while boot_counter is set (greenboot). At the end, it boots the second entry.
	fallbackCounting = "08_fallback_counting"
)

// errNoBlock reports that GRUB could not write to a file.
var errNoBlock = errors.New("not an environment block")

type environment string

// readEnvironment returns a block and its permissions. It returns an error if GRUB could not write to the file.
func (g grubBase) readEnvironment(file string) (environment, fs.FileMode, error) {
	info, err := g.fs.Lstat(file)
	if err != nil {
		return "", 0, err
	}
	if !info.Mode().IsRegular() || info.Size() != envSize {
		return "", 0, fmt.Errorf("%s is %w: not a regular file of %d bytes", file, errNoBlock, envSize)
	}
	data, err := g.fs.ReadFile(file)
	if err == nil && !strings.HasPrefix(string(data), envHead) {
		err = fmt.Errorf("%s is %w: unexpected first line", file, errNoBlock)
	}
	return environment(data), info.Mode().Perm(), err
}

func (e environment) contentLines() []string {
	return strings.SplitAfter(strings.TrimRight(string(e), "#"), "\n")
}

func (e environment) value(name string) string {
	for _, line := range e.contentLines() {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSuffix(value, "\n")
		}
	}
	return ""
}

// with returns the block with a variable set, or without it if the value is empty. All other lines keep every byte.
func (e environment) with(name, value string) environment {
	lines := slices.DeleteFunc(e.contentLines(), func(line string) bool { return strings.HasPrefix(line, name+"=") })
	if value != "" {
		lines = append(lines, name+"="+value+"\n")
	}
	text := strings.Join(lines, "")
	return environment(text + strings.Repeat("#", max(0, envSize-len(text))))
}

func (h *Host) recordArmed() error {
	bootID, err := h.fs.ReadValue(bootIDFile)
	if err != nil {
		return err
	}
	return h.facts.SetBootFact(bootID, factArmed, "true")
}

// setTrial sets the trial variable for GRUB's next start, or removes it if the value is empty. If the loader has an entry that is booted once, it also
// selects that entry, but never instead of another entry that a user has selected. It replaces the file as a whole: grub-editenv would empty it
// first, and a crash would lose the variables of other programs.
func (g grubBase) setTrial(value string) error {
	file := g.env()
	if err := g.fs.RemoveTemp(file); err != nil {
		return err
	}
	env, perm, err := g.readEnvironment(file)
	if value == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoBlock)) {
		return nil
	}
	if err != nil {
		return err
	}
	next, ready := env, value == trialArmed || value == trialPermitted
	if ready {
		if err := g.recordArmed(); err != nil {
			return err
		}
	}
	switch selected := env.value(nextEntry); {
	case g.at.once == "":
	case ready && (selected == "" || selected == g.at.once):
		next = next.with(nextEntry, g.at.once)
	case ready:
		value = trialArmed
	case selected == g.at.once:
		next = next.with(nextEntry, "")
	}
	if next = next.with(trialVariable, value); len(next) > envSize {
		return fmt.Errorf("%s has no space for %s", file, trialVariable)
	}
	if next == env {
		return nil
	}
	return g.fs.WriteFileAtomic(file, []byte(next), perm)
}

// writableFS are the file systems, by their names in grub-probe, on which GRUB can write a block of a file. They keep the block in place and do not
// checksum it.
var writableFS = []string{"ext2", "fat", "xfs"}

// findWriteObstacle runs the checks of Debian's 00_header, and only once: a disk does not change its format while it is mounted.
func (g grubBase) findWriteObstacle(ctx context.Context) string {
	if g.writable != nil {
		return *g.writable
	}
	probe := []string{"grub-probe"}
	if g.at.menu == grub2Cfg {
		probe = []string{"grub2-probe"}
	}
	abstraction, err := g.runner.Run(ctx, probe[0], "--target=abstraction", path.Dir(g.at.menu))
	var kind []byte
	if err == nil {
		kind, err = g.runner.Run(ctx, probe[0], "--target=fs", path.Dir(g.at.menu))
	}
	if err != nil {
		return "cannot check whether GRUB can write to " + g.env() + ": " + err.Error()
	}
	found, reason := strings.Fields(string(abstraction)+" "+string(kind)), ""
	if i := slices.IndexFunc(found, func(name string) bool { return !slices.Contains(writableFS, name) }); i >= 0 {
		reason = "GRUB cannot write to " + g.env() + " on " + found[i]
	}
	g.writable = &reason
	return reason
}
