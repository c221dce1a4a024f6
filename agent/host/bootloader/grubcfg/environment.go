package grubcfg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// The format of GRUB's environment block, and its variables.
const (
	// EnvSize and EnvHead define the format of GRUB's environment block (info grub, "The GRUB environment block"): one "name=value" per line, then "#" up to the end.
	EnvSize = 1024
	EnvHead = "# GRUB Environment Block\n"
	// NextEntry is the variable that selects the entry of the next boot. The menu clears it before that boot.
	NextEntry = "next_entry"
	// fallbackCounting is the section of a menu in which GRUB counts boots down while boot_counter is set (greenboot). At the end, it boots the second entry.
	fallbackCounting = "08_fallback_counting"
)

// errNoBlock reports that GRUB could not write to a file.
var errNoBlock = errors.New("not an environment block")

// Environment is the content of GRUB's environment block.
type Environment string

// ReadEnvironment returns a block and its permissions. It returns an error if GRUB could not write to the file.
func (g Files) ReadEnvironment(file string) (Environment, fs.FileMode, error) {
	info, err := g.FS.Lstat(file)
	if err != nil {
		return "", 0, err
	}
	if !info.Mode().IsRegular() || info.Size() != EnvSize {
		return "", 0, fmt.Errorf("%s is %w: not a regular file of %d bytes", file, errNoBlock, EnvSize)
	}
	data, err := g.FS.ReadFile(file)
	if err == nil && !strings.HasPrefix(string(data), EnvHead) {
		err = fmt.Errorf("%s is %w: unexpected first line", file, errNoBlock)
	}
	return Environment(data), info.Mode().Perm(), err
}

func (e Environment) contentLines() []string {
	return strings.SplitAfter(strings.TrimRight(string(e), "#"), "\n")
}

// Value returns the value of a variable.
func (e Environment) Value(name string) string {
	for _, line := range e.contentLines() {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSuffix(value, "\n")
		}
	}
	return ""
}

// With returns the block with a variable set, or without it if the value is empty. All other lines keep every byte.
func (e Environment) With(name, value string) Environment {
	lines := slices.DeleteFunc(e.contentLines(), func(line string) bool { return strings.HasPrefix(line, name+"=") })
	if value != "" {
		lines = append(lines, name+"="+value+"\n")
	}
	text := strings.Join(lines, "")
	return Environment(text + strings.Repeat("#", max(0, EnvSize-len(text))))
}

// SetTrial sets the trial variable for GRUB's next start, or removes it if the value is empty. If the loader has an entry that is booted once, it also
// selects that entry, but never instead of another entry that a user has selected. It replaces the file as a whole: grub-editenv would empty it
// first, and a crash would lose the variables of other programs.
func (g Files) SetTrial(value string) error {
	file := g.Env()
	if err := g.FS.RemoveTemp(file); err != nil {
		return err
	}
	env, perm, err := g.ReadEnvironment(file)
	if value == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoBlock)) {
		return nil
	}
	if err != nil {
		return err
	}
	next, ready := env, value == loader.TrialArmed || value == loader.TrialPermitted
	if ready {
		if err := g.RecordArmed(); err != nil {
			return err
		}
	}
	switch selected := env.Value(NextEntry); {
	case g.At.Once == "":
	case ready && (selected == "" || selected == g.At.Once):
		next = next.With(NextEntry, g.At.Once)
	case ready:
		value = loader.TrialArmed
	case selected == g.At.Once:
		next = next.With(NextEntry, "")
	}
	if next = next.With(loader.TrialVariable, value); len(next) > EnvSize {
		return fmt.Errorf("%s has no space for %s", file, loader.TrialVariable)
	}
	if next == env {
		return nil
	}
	return g.FS.WriteFileAtomic(file, []byte(next), perm)
}

// writableFS are the file systems, by their names in grub-probe, on which GRUB can write a block of a file. They keep the block in place and do not
// checksum it.
var writableFS = []string{"ext2", "fat", "xfs"}

// FindWriteObstacle runs the checks of Debian's 00_header, and only once: a disk does not change its format while it is mounted.
func (g Files) FindWriteObstacle(ctx context.Context) string {
	if g.Writable != nil {
		return *g.Writable
	}
	probe := []string{"grub-probe"}
	if g.At.Menu == Grub2 {
		probe = []string{"grub2-probe"}
	}
	abstraction, err := g.Runner.Run(ctx, probe[0], "--target=abstraction", path.Dir(g.At.Menu))
	var kind []byte
	if err == nil {
		kind, err = g.Runner.Run(ctx, probe[0], "--target=fs", path.Dir(g.At.Menu))
	}
	if err != nil {
		return "cannot check whether GRUB can write to " + g.Env() + ": " + err.Error()
	}
	found, reason := strings.Fields(string(abstraction)+" "+string(kind)), ""
	if i := slices.IndexFunc(found, func(name string) bool { return !slices.Contains(writableFS, name) }); i >= 0 {
		reason = "GRUB cannot write to " + g.Env() + " on " + found[i]
	}
	g.Writable = &reason
	return reason
}
