// Package bls changes boot loader specification entries, tries arguments in an entry for one boot, and restores their files.
package bls

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
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// Files of boot loader entries.
const (
	EntriesDir = "/boot/loader/entries"
	// EntriesSource is the name, in messages, of entries that contain an argument that the agent does not manage.
	EntriesSource = EntriesDir + "/*.conf"
	// LaterFile contains the arguments that kernel-install gives to the entry of a new kernel. grubby also updates it (8.40-64 and newer).
	LaterFile = "/etc/kernel/cmdline"
)

// Loader is a loader with boot loader entries: GRUB, whose entries grubby changes, or systemd-boot.
type Loader struct {
	loader.Base
	Tool Tool
}

// Tool is the part of a loader with entries that differs between the tools.
type Tool interface {
	// ReadBooted returns the menu with the entry that it boots by default, or the reason why arguments do not reach that entry.
	ReadBooted(b Loader) (m loader.Booted, reason string)
	// Compare returns the order of two entries in the menu.
	Compare(a, b *loader.Entry) int
	// ReadMenu reads the permanent entries that change changes.
	ReadMenu(ctx context.Context, b Loader) (loader.Menu, error)
	// ReadLater reads the arguments of kernels that are installed later.
	ReadLater(b Loader, f *loader.Facts) error
	// Change changes the entries and the arguments of later kernels. before are the current files.
	Change(ctx context.Context, b Loader, f loader.Facts, next loader.Change, before map[string]host.SavedFile) error
	// ReadTrial reads the entry that is booted once, its state, and the entry that is selected for the next boot.
	ReadTrial(b Loader, armedNow bool) (loader.Trial, error)
	// WriteTrial writes the entry that is booted once and its state, and selects the entry if it must be booted. An empty text removes both.
	WriteTrial(b Loader, text, state string) error
	// FindTrialObstacle returns the reason why the loader cannot boot another entry once and return to the default entry on its own, and whether that
	// is temporary. The reason is empty if it can.
	FindTrialObstacle(ctx context.Context, b Loader) (reason string, temporary bool)
}

// CanRetain is false for images: the addon reaches the trial too.
func (b Loader) CanRetain() bool { return b.At.Addon == "" }

// ReadBooted implements Loader.
func (b Loader) ReadBooted() (loader.Booted, string) { return b.Tool.ReadBooted(b) }

// Detection is not proven while a permanent entry has an argument without a trial, or while another program changes the entries.
func (b Loader) Detection() loader.Detection {
	untried := b.untriedDefaults()
	switch {
	case !b.Found.Proven:
		return b.Found
	case b.Delay != "":
		return loader.Detection{Type: b.Found.Type, Message: "the node is not rebooted yet: " + b.Delay}
	case len(untried) == 0:
		return b.Found
	}
	return loader.Detection{Type: b.Found.Type, Message: "the boot entries have " + argument.Join(untried) + ", which has neither booted nor a trial boot, e.g. " +
		"because an earlier release staged it, and the node is not rebooted for it: reboot the node by hand once, or edit the profile"}
}

// ReadMenu implements Loader.
func (b Loader) ReadMenu(ctx context.Context) (loader.Menu, error) { return b.Tool.ReadMenu(ctx, b) }

// ReadFacts reads the facts that the evaluation needs on a host with boot entries. A present value of a requested argument is foreign if the agent
// did not set it and one condition holds: all entries pass the value, or it differs from the requested value.
func (b Loader) ReadFacts(ctx context.Context, f *loader.Facts, settings []host.Setting) error {
	if err := errors.Join(b.gatherTrial(ctx, f), b.ReadRecords(f)); err != nil {
		return err
	}
	if b.Delay != "" {
		b.checkHold(ctx)
	}
	for _, setting := range settings {
		for _, present := range f.Entries.ValuesOf(setting.Name) {
			same := present.Value == setting.Value
			if !argument.Has(f.ManagedArguments(), present) && (!same || f.Entries.HoldsArgument(present)) {
				f.Foreign = append(f.Foreign, loader.Source{File: b.At.Title, Arg: present})
			}
		}
	}
	return b.Tool.ReadLater(b, f)
}

// ReadLater implements Tool for a loader whose entries kernel-install makes.
func (b Loader) ReadLater(f *loader.Facts) (err error) {
	var file string
	f.Written, file, err = b.LaterArguments()
	later := f.Written
	f.LackedLater = func(arg host.Argument) string {
		if file == "" || argument.Has(later, arg) {
			return ""
		}
		return "kernels installed later will not have it: " + file + " lacks it"
	}
	return err
}

// LaterFiles contain the arguments of kernels that are installed later. kernel-install reads only the first that exists.
var LaterFiles = []string{LaterFile, "/usr/lib/kernel/cmdline"}

// LaterArguments returns the arguments in the first of LaterFiles. Since systemd 254, kernel-install ignores comments.
func (b Loader) LaterArguments() (args []host.Argument, file string, err error) {
	for _, file := range LaterFiles {
		data, err := b.FS.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return host.ParseArguments(comment.ReplaceAllString(string(data), "")), file, err
	}
	return nil, "", nil
}

var comment = regexp.MustCompile(`(?m)^\s*#.*$`)

// ChangeMenu makes every entry pass exactly the desired arguments of the agent. Untried arguments are only in the entry that is booted once, and the
// other entries keep the arguments that they replace. First, it journals the original files durably.
func (b Loader) ChangeMenu(ctx context.Context, f loader.Facts, next loader.Change) error {
	proven := next
	if next.Trial.Printed != "" {
		proven.Desired = append(argument.Without(next.Desired, f.NotBooted(next.Desired)), next.Retained...)
		proven.Stale, proven.Trial = argument.Without(next.Stale, next.Retained), loader.NextTrial{}
	}
	if next.Trial.Printed == "" || f.Record.Unfinished || f.Entries.FindProblem(proven.Desired, proven.Stale) != "" {
		// grubby would also change the entry that is booted once, and may take the arguments of later kernels from it.
		if err := b.EndTrial(f); err != nil {
			return err
		}
		if err := b.changeEntries(ctx, f, proven); err != nil {
			return err
		}
	} else if _, err := b.keepFiles(f, next); err != nil {
		return err
	}
	if next.Trial.Printed == "" {
		return nil
	}
	return b.Tool.WriteTrial(b, b.OnceText(next.Desired, next.Stale), next.Trial.State)
}

// changeEntries changes the entries with grubby. If grubby fails, or its result is not the desired one, it restores the files to their state before
// this change.
func (b Loader) changeEntries(ctx context.Context, f loader.Facts, next loader.Change) error {
	before, err := b.keepFiles(f, next)
	if err == nil {
		// The first read may have seen partial files, which are repaired now.
		f.Menu, err = b.ReadMenu(ctx)
	}
	if err != nil {
		return err
	}
	if len(next.Desired) == 0 {
		err = b.revertFiles(ctx, f, next, before)
	} else {
		err = b.runTool(ctx, f, next, before)
	}
	if err == nil {
		return nil
	}
	if err = errors.Join(err, b.RestoreFiles(before)); b.isIncomplete() {
		err = loader.TemporaryError(err.Error())
	}
	return err
}

// runTool changes the files, if necessary, and verifies the result.
func (b Loader) runTool(ctx context.Context, f loader.Facts, next loader.Change, before map[string]host.SavedFile) error {
	if err := b.Tool.Change(ctx, b, f, next, before); err != nil {
		return err
	}
	if err := b.checkEntries(ctx, f, next.Desired, next.Stale); err != nil {
		return err
	}
	return b.recordResults(before)
}

// ChangeLater edits the LaterFile from before the change: grubby keeps only one line of it, or makes it from the last entry. If no other program
// has made the file, the agent copies the vendor's file and adds its arguments there. If the vendor has none either, kernel-install reads
// /proc/cmdline, which has the desired arguments after their boot.
func (b Loader) ChangeLater(next loader.Change, before map[string]host.SavedFile) error {
	if err := b.FS.RestoreFile(LaterFile, before[LaterFile]); err != nil {
		return err
	}
	file, err := b.FS.Resolve(LaterFile)
	if err != nil {
		return err
	}
	saved, unchanged := before[file], before[file]
	if record, ok := b.Facts.KeptFiles()[file]; !saved.Present || ok && isManaged(record) {
		saved, unchanged = host.SavedFile{Present: true, Mode: 0o644}, host.SavedFile{}
		if len(next.Desired) > 0 {
			saved.Data, err = b.FS.ReadIfThere(LaterFiles[1])
		}
	}
	holdsArguments := func(line string) bool { return !comment.MatchString(line) && strings.TrimSpace(line) != "" }
	if err != nil || !slices.ContainsFunc(strings.Split(string(saved.Data), "\n"), holdsArguments) {
		return errors.Join(err, b.FS.RestoreFile(file, unchanged))
	}
	if err := b.FS.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	return b.EditArguments(file, saved, holdsArguments, next)
}

func (b Loader) checkEntries(ctx context.Context, f loader.Facts, wanted, stale []host.Argument) error {
	made, err := b.ReadMenu(ctx)
	if err != nil {
		return err
	}
	if text := cmp.Or(made.FindProblem(wanted, stale), made.TooLong(nil, nil)); text != "" {
		return errors.New("verify the boot entries: " + text)
	}
	for _, line := range f.Menu.Lines {
		successor, ok := made.MatchLine(line)
		if !ok {
			return loader.TemporaryError(fmt.Sprintf("the boot entry %q is gone", line.Title))
		}
		if missing := b.MissingArguments(line.Args, successor.Args, append(f.ManagedArguments(), wanted...)); len(missing) > 0 {
			return fmt.Errorf("the boot entry %q would lose %s", line.Title, argument.Join(missing))
		}
	}
	return nil
}

// Contains reports whether a script has the text outside its comments.
func (b Loader) Contains(name, text string) bool {
	data, err := b.FS.ReadFile(name)
	return err == nil && strings.Contains(comment.ReplaceAllString(string(data), ""), text)
}

// EditArguments removes the stale arguments from all lines with arguments, and adds the missing ones to the last. It leaves the words for init.
func (b Loader) EditArguments(file string, saved host.SavedFile, holdsArguments func(line string) bool, next loader.Change) error {
	if !saved.Present {
		return loader.TemporaryError(file + " was just made")
	}
	lines := strings.SplitAfter(string(saved.Data), "\n")
	last, present := -1, []host.Argument(nil)
	for i, line := range lines {
		if holdsArguments(line) {
			last, lines[i] = i, argument.Cut(line, next.Stale)
			present = append(present, host.ParseArguments(line)...)
		}
	}
	if missing := argument.Without(next.Desired, present); len(missing) > 0 {
		if last < 0 {
			return errors.New(file + " has no arguments")
		}
		lines[last] = argument.Add(lines[last], missing)
	}
	saved.Data = []byte(strings.Join(lines, ""))
	return b.FS.RestoreFile(file, saved)
}

// Appended is an argument that no kernel has.
const Appended = "storage-client-appended"

// ReadEntries returns the boot loader entries in the order in which the loader shows them, without the entry that is booted once.
func (b Loader) ReadEntries() ([]*loader.Entry, error) {
	files, err := b.FS.Glob(b.At.Entries, "*.conf")
	if err != nil {
		return nil, err
	}
	var entries []*loader.Entry
	for _, file := range files {
		if file == b.At.OnceEntry() {
			continue
		}
		// kernel-install may have removed the file since.
		data, err := b.FS.ReadIfThere(file)
		if err != nil {
			return nil, err
		}
		entry := &loader.Entry{ID: strings.TrimSuffix(path.Base(file), ".conf"), Section: b.At.Entries, File: file, Text: string(data)}
		line, number := loader.Line{}, 0
		for text := range strings.Lines(entry.Text) {
			number++
			switch key, value := CutField(text); key {
			case "title":
				entry.Title = value
			case "linux":
				line.Kernel = value
			case "options":
				line.Number = number
			}
		}
		if line.ID, line.Title, line.Args = entry.ID, entry.Title, host.ParseArguments(EntryOptions(entry.Text)); line.Kernel != "" {
			entry.Lines = []loader.Line{line}
		}
		entries = append(entries, entry)
	}
	slices.SortStableFunc(entries, b.Tool.Compare)
	return entries, nil
}

var versionSegments = regexp.MustCompile(`[~+^.-]|\d+|[A-Za-z]+`)

// VersionKey returns a key that sorts versions. marks are the characters that count, in their order, with "$" for the end of a version. Letters
// follow, and then numbers. A longer number is larger, without leading zeros.
func VersionKey(version, marks string) string {
	key := ""
	for _, segment := range versionSegments.FindAllString(version, -1) {
		digits, mark := strings.TrimLeft(segment, "0"), strings.Index(marks, segment)
		switch {
		case mark >= 0:
			key += string(rune(mark))
		case strings.ContainsAny(segment, "~+^.-"):
		case segment[0] > '9':
			key += string(rune(len(marks))) + segment
		default:
			key += fmt.Sprintf("%c%04d%s", len(marks)+1, len(digits), digits)
		}
	}
	return key + string(rune(strings.Index(marks, "$")))
}
