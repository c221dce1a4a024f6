package bootloader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	entriesDir = "/boot/loader/entries"
	// entriesSource is the name, in messages, of entries that contain an argument that the agent does not manage.
	entriesSource = entriesDir + "/*.conf"
	// kernelCmdline contains the arguments that kernel-install gives to the entry of a new kernel. grubby also updates it (8.40-64 and newer).
	kernelCmdline = "/etc/kernel/cmdline"
)

// entryLoader is a loader with boot loader entries: GRUB, whose entries grubby changes, or systemd-boot.
type entryLoader struct {
	base
	tool entryTool
}

// entryTool is the part of a loader with entries that differs between the tools.
type entryTool interface {
	// readBooted returns the menu with the entry that it boots by default, or the reason why arguments do not reach that entry.
	readBooted(b entryLoader) (m bootedMenu, reason string)
	// compare returns the order of two entries in the menu.
	compare(a, b *menuEntry) int
	// readMenu reads the permanent entries that change changes.
	readMenu(ctx context.Context, b entryLoader) (menu, error)
	// readLater reads the arguments of kernels that are installed later.
	readLater(b entryLoader, f *facts) error
	// change changes the entries and the arguments of later kernels. before are the current files.
	change(ctx context.Context, b entryLoader, f facts, next change, before map[string]host.SavedFile) error
	// readTrial reads the entry that is booted once, its state, and the entry that is selected for the next boot.
	readTrial(b entryLoader, armedNow bool) (trial, error)
	// writeTrial writes the entry that is booted once and its state, and selects the entry if it must be booted. An empty text removes both.
	writeTrial(b entryLoader, text, state string) error
	// findTrialObstacle returns the reason why the loader cannot boot another entry once and return to the default entry on its own, and whether that
	// is temporary. The reason is empty if it can.
	findTrialObstacle(ctx context.Context, b entryLoader) (reason string, temporary bool)
}

// canRetain is false for images: the addon reaches the trial too.
func (b entryLoader) canRetain() bool { return b.at.addon == "" }

func (b entryLoader) readBooted() (bootedMenu, string) { return b.tool.readBooted(b) }

// detection is not proven while a permanent entry has an argument without a trial, or while another program changes the entries.
func (b entryLoader) detection() Detection {
	untried := b.untriedDefaults()
	switch {
	case !b.found.Proven:
		return b.found
	case b.delay != "":
		return Detection{Type: b.found.Type, Message: "the node is not rebooted yet: " + b.delay}
	case len(untried) == 0:
		return b.found
	}
	return Detection{Type: b.found.Type, Message: "the boot entries have " + joinArguments(untried) + ", which has neither booted nor a trial boot, e.g. " +
		"because an earlier release staged it, and the node is not rebooted for it: reboot the node by hand once, or edit the profile"}
}

func (b entryLoader) readMenu(ctx context.Context) (menu, error) { return b.tool.readMenu(ctx, b) }

// readFacts reads the facts that the evaluation needs on a host with boot entries. A present value of a requested argument is foreign if the agent
// did not set it and one condition holds: all entries pass the value, or it differs from the requested value.
func (b entryLoader) readFacts(ctx context.Context, f *facts, settings []host.Setting) error {
	if err := errors.Join(b.gatherTrial(ctx, f), b.readRecords(f)); err != nil {
		return err
	}
	if b.delay != "" {
		b.checkHold(ctx)
	}
	for _, setting := range settings {
		for _, present := range f.entries.valuesOf(setting.Name) {
			same := present.Value == setting.Value
			if !hasArgument(f.managedArguments(), present) && (!same || f.entries.holdsArgument(present)) {
				f.foreign = append(f.foreign, source{file: b.at.title, arg: present})
			}
		}
	}
	return b.tool.readLater(b, f)
}

// readLater implements entryTool for a loader whose entries kernel-install makes.
func (b entryLoader) readLater(f *facts) (err error) {
	var file string
	f.written, file, err = b.laterArguments()
	later := f.written
	f.lackedLater = func(arg host.Argument) string {
		if file == "" || hasArgument(later, arg) {
			return ""
		}
		return "kernels installed later will not have it: " + file + " lacks it"
	}
	return err
}

// laterFiles contain the arguments of kernels that are installed later. kernel-install reads only the first that exists.
var laterFiles = []string{kernelCmdline, "/usr/lib/kernel/cmdline"}

// laterArguments returns the arguments in the first of laterFiles. Since systemd 254, kernel-install ignores comments.
func (b entryLoader) laterArguments() (args []host.Argument, file string, err error) {
	for _, file := range laterFiles {
		data, err := b.fs.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return host.ParseArguments(comment.ReplaceAllString(string(data), "")), file, err
	}
	return nil, "", nil
}

var comment = regexp.MustCompile(`(?m)^\s*#.*$`)

// changeMenu makes every entry pass exactly the desired arguments of the agent. Untried arguments are only in the entry that is booted once, and the
// other entries keep the arguments that they replace. First, it journals the original files durably.
func (b entryLoader) changeMenu(ctx context.Context, f facts, next change) error {
	proven := next
	if next.trial.printed != "" {
		proven.desired = append(argumentsWithout(next.desired, f.notBooted(next.desired)), next.retained...)
		proven.stale, proven.trial = argumentsWithout(next.stale, next.retained), nextTrial{}
	}
	if next.trial.printed == "" || f.dropIn.unfinished || f.entries.findProblem(proven.desired, proven.stale) != "" {
		// grubby would also change the entry that is booted once, and may take the arguments of later kernels from it.
		if err := b.endTrial(f); err != nil {
			return err
		}
		if err := b.changeEntries(ctx, f, proven); err != nil {
			return err
		}
	} else if _, err := b.keepFiles(f, next); err != nil {
		return err
	}
	if next.trial.printed == "" {
		return nil
	}
	return b.writeTrial(b.onceText(next.desired, next.stale), next.trial.state)
}

// changeEntries changes the entries with grubby. If grubby fails, or its result is not the desired one, it restores the files to their state before
// this change.
func (b entryLoader) changeEntries(ctx context.Context, f facts, next change) error {
	before, err := b.keepFiles(f, next)
	if err == nil {
		// The first read may have seen partial files, which are repaired now.
		f.menu, err = b.readMenu(ctx)
	}
	if err != nil {
		return err
	}
	if len(next.desired) == 0 {
		err = b.revertFiles(ctx, f, next, before)
	} else {
		err = b.runTool(ctx, f, next, before)
	}
	if err == nil {
		return nil
	}
	if err = errors.Join(err, b.restoreFiles(before)); b.isIncomplete() {
		err = temporaryError{err}
	}
	return err
}

// runTool changes the files, if necessary, and verifies the result.
func (b entryLoader) runTool(ctx context.Context, f facts, next change, before map[string]host.SavedFile) error {
	if err := b.tool.change(ctx, b, f, next, before); err != nil {
		return err
	}
	if err := b.checkEntries(ctx, f, next.desired, next.stale); err != nil {
		return err
	}
	return b.recordResults(before)
}

// changeLater edits the kernelCmdline from before the change: grubby keeps only one line of it, or makes it from the last entry. If no other program
// has made the file, the agent copies the vendor's file and adds its arguments there. If the vendor has none either, kernel-install reads
// /proc/cmdline, which has the desired arguments after their boot.
func (b entryLoader) changeLater(next change, before map[string]host.SavedFile) error {
	if err := b.fs.RestoreFile(kernelCmdline, before[kernelCmdline]); err != nil {
		return err
	}
	file, err := b.fs.Resolve(kernelCmdline)
	if err != nil {
		return err
	}
	saved, unchanged := before[file], before[file]
	if record, ok := b.facts.KeptFiles()[file]; !saved.Present || ok && isManaged(record) {
		saved, unchanged = host.SavedFile{Present: true, Mode: 0o644}, host.SavedFile{}
		if len(next.desired) > 0 {
			saved.Data, err = b.fs.ReadIfThere(laterFiles[1])
		}
	}
	holdsArguments := func(line string) bool { return !comment.MatchString(line) && strings.TrimSpace(line) != "" }
	if err != nil || !slices.ContainsFunc(strings.Split(string(saved.Data), "\n"), holdsArguments) {
		return errors.Join(err, b.fs.RestoreFile(file, unchanged))
	}
	if err := b.fs.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	return b.editArguments(file, saved, holdsArguments, next)
}

func (b entryLoader) checkEntries(ctx context.Context, f facts, wanted, stale []host.Argument) error {
	made, err := b.readMenu(ctx)
	if err != nil {
		return err
	}
	if text := cmp.Or(made.findProblem(wanted, stale), made.tooLong(nil, nil)); text != "" {
		return errors.New("verify the boot entries: " + text)
	}
	for _, line := range f.menu.lines {
		successor, ok := made.matchLine(line)
		if !ok {
			return temporaryError{fmt.Errorf("the boot entry %q is gone", line.title)}
		}
		if missing := b.missingArguments(line.args, successor.args, append(f.managedArguments(), wanted...)); len(missing) > 0 {
			return fmt.Errorf("the boot entry %q would lose %s", line.title, joinArguments(missing))
		}
	}
	return nil
}

func (b entryLoader) contains(name, text string) bool {
	data, err := b.fs.ReadFile(name)
	return err == nil && strings.Contains(comment.ReplaceAllString(string(data), ""), text)
}

// editArguments removes the stale arguments from all lines with arguments, and adds the missing ones to the last. It leaves the words for init.
func (b entryLoader) editArguments(file string, saved host.SavedFile, holdsArguments func(line string) bool, next change) error {
	if !saved.Present {
		return temporaryError{errors.New(file + " was just made")}
	}
	lines := strings.SplitAfter(string(saved.Data), "\n")
	last, present := -1, []host.Argument(nil)
	for i, line := range lines {
		if holdsArguments(line) {
			last, lines[i] = i, cutWords(line, next.stale)
			present = append(present, host.ParseArguments(line)...)
		}
	}
	if missing := argumentsWithout(next.desired, present); len(missing) > 0 {
		if last < 0 {
			return errors.New(file + " has no arguments")
		}
		lines[last] = addWords(lines[last], missing)
	}
	saved.Data = []byte(strings.Join(lines, ""))
	return b.fs.RestoreFile(file, saved)
}

// appended is an argument that no kernel has.
const appended = "storage-client-appended"
