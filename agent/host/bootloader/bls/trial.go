package bls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

// The entry that is booted once.
const (
	// OnceID is the ID of the entry that is booted once. A tilde sorts before everything else, in GRUB's order as in grubby's, so this entry is always
	// the last in the menu and never the default. "0" would not do: a machine ID may start with it.
	OnceID    = "~storage-client"
	OnceEntry = EntriesDir + "/" + OnceID + ".conf"
	OnceTitle = "Kernel arguments that storage-client-node-agent tries once"
)

// gatherTrial reads the entry that is booted once. While it waits for its boot or has failed, it is the menu that the staged arguments are in.
func (b Loader) gatherTrial(ctx context.Context, f *loader.Facts) error {
	armedNow := false
	if !f.Image {
		_, armedNow = b.Facts.BootFact(f.BootID, loader.FactArmed)
	}
	var err error
	if f.Trial, err = b.Tool.ReadTrial(b, armedNow); err != nil {
		return err
	}
	f.Trial.ArmedNow, f.Trial.Printed = armedNow, f.Trial.Section
	if f.Trial.Section != "" && f.Trial.Selected != OnceID {
		// The loader has cleared the selection: it has booted this entry, or an entry that a user selected.
		used := map[string]string{loader.TrialArmed: loader.TrialUsed, loader.TrialPermitted: loader.TrialFailed}
		f.Trial.State = cmp.Or(used[f.Trial.State], f.Trial.State)
	}
	f.Entries = f.Menu
	if f.Trial.Section != "" && f.Trial.State != "" && f.NotBooted(f.Record.Args) != nil &&
		b.OnceText(f.Record.Args, f.Record.Replaces) == f.Trial.Section {
		f.Menu = loader.Menu{Whole: true, Lines: []loader.Line{{
			ID: OnceID, Title: OnceTitle, Args: argument.FromWords(argument.Split(EntryOptions(f.Trial.Section))),
		}}}
	}
	f.Trial.Reason = b.UntriedReason(*f, func() string { reason, _ := b.Tool.FindTrialObstacle(ctx, b); return reason })
	return nil
}

// CutField returns the key and the value of a line of an entry. GRUB accepts several blanks and tabs between them.
func CutField(line string) (key, value string) {
	key, value, _ = strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
	return key, strings.TrimSpace(value)
}

// EntryOptions returns all options of an entry.
func EntryOptions(entry string) string {
	var options []string
	for line := range strings.Lines(entry) {
		if key, value := CutField(line); key == "options" {
			options = append(options, value)
		}
	}
	return strings.Join(options, " ")
}

// OnceText returns the entry that is booted once: the default entry with the desired arguments instead of the replaced ones. Empty if there is no
// default entry, or its kernel is missing.
func (b Loader) OnceText(wanted, replaced []host.Argument) string {
	menu, reason := b.ReadBooted()
	if reason != "" || menu.Entry == nil || menu.Entry.Text == "" || b.lacksFile(menu, menu.Entry) {
		return ""
	}
	text := "title " + OnceTitle + "\nversion 0\n"
	for line := range strings.Lines(menu.Entry.Text) {
		switch key, _ := CutField(line); key {
		case "title", "version", "id", "sort-key", "grub_hotkey", "options", "":
		default:
			text += strings.TrimSpace(line) + "\n"
		}
	}
	options := EntryOptions(menu.Entry.Text)
	if value := menu.Variables["kernelopts"]; value != "" {
		options = strings.NewReplacer("$kernelopts", value, "${kernelopts}", value).Replace(options)
	}
	return text + strings.TrimSpace(argument.Add("options "+argument.Cut(options, slices.Concat(replaced, wanted)), wanted)) + "\n"
}

// untriedDefaults returns the agent's arguments in permanent entries that the running kernel was not booted with. A trial would return to them.
func (b Loader) untriedDefaults() (untried []host.Argument) {
	booted, _ := b.ReadBooted()
	cmdline, err := b.ReadCommandLine()
	if err != nil || b.FS.IsImage() {
		return nil
	}
	managed := argument.Without(b.ManagedSinceBoot(b.At.Form), cmdline)
	for _, line := range booted.Menu.Lines {
		args := host.ParseArguments(booted.Expand(argument.Join(line.Args)))
		untried = append(untried, argument.Without(args, append(argument.Without(args, managed), untried...))...)
	}
	return untried
}

// lacksFile reports whether the kernel, initrd or image of an entry is missing. Its path is on the file system of its directory, which may be the root's.
func (b Loader) lacksFile(menu loader.Booted, entry *loader.Entry) bool {
	for line := range strings.Lines(entry.Text) {
		key, value := CutField(line)
		first, _, _ := strings.Cut(value, " ")
		if name := menu.Expand(first); (key == "linux" || key == "initrd" || key == "efi") && !b.FS.Exists(name) && !b.FS.Exists(path.Join(b.At.Boot, name)) &&
			!b.existsInSubvolume(name) {
			return true
		}
	}
	return false
}

// existsInSubvolume reports whether a file exists whose path begins at the top of a btrfs file system. GRUB resolves paths from there, and the host has
// mounted a subvolume at the directory of kernels, or at / if that directory is no mount. The last mount at a point covers the earlier ones.
func (b Loader) existsInSubvolume(name string) bool {
	table, _ := b.FS.ReadIfThere("/proc/1/mountinfo")
	subvolumes := map[string]string{}
	for line := range strings.Lines(string(table)) {
		// ID, parent, device, path in the file system, mount point
		if words := strings.Fields(line); len(words) >= 5 {
			subvolumes[words[4]] = ""
			if strings.Contains(line, " - btrfs ") {
				subvolumes[words[4]] = words[3]
			}
		}
	}
	point := b.At.Boot
	if _, isMount := subvolumes[point]; !isMount {
		point = "/"
	}
	top := subvolumes[point]
	below, found := strings.CutPrefix(name, top+"/")
	return found && top != "" && top != "/" && b.FS.Exists(path.Join(point, below))
}

// isIncomplete reports whether any entry lacks a file, as while a kernel is installed or removed.
func (b Loader) isIncomplete() bool {
	menu, _ := b.ReadBooted()
	return slices.ContainsFunc(menu.Menu.Root.Children, func(entry *loader.Entry) bool { return b.lacksFile(menu, entry) })
}

// checkHold ends the wait for a temporary obstacle that has gone, or that has lasted too long: the arguments are staged, or have failed.
func (b Loader) checkHold(ctx context.Context) {
	now, err := b.BootClock.SinceBoot()
	if _, temporary := b.Tool.FindTrialObstacle(ctx, b); err != nil || now >= b.DelayEnd || !temporary && !b.isIncomplete() {
		b.Delay = ""
	}
}

// ErrNoKernel is temporary while a kernel is installed.
var ErrNoKernel = errors.New("the kernel or initrd of the default entry is missing")

// PrepareTrial returns an error instead of no trial if the arguments have a trial already, or will have one: they must not reach the default entry.
func (b Loader) PrepareTrial(ctx context.Context, f loader.Facts, wanted []host.Argument) loader.NextTrial {
	untried := f.NotBooted(wanted)
	if len(untried) == 0 || !b.Attended && !f.Trial.IsOver() {
		return loader.NextTrial{}
	}
	reason, temporary := b.Tool.FindTrialObstacle(ctx, b)
	isUntried := func(arg host.Argument) bool { return f.Entries.HoldsArgument(arg) && !f.IsRetained(arg) }
	isBlocked := false
	switch {
	case !b.Attended:
		reason = "no agent is running on this host to complete it"
	case reason == "" && slices.ContainsFunc(f.NotBooted(f.ManagedArguments()), isUntried):
		reason, isBlocked = "the default entry has not been booted either, and no other entry is known: reboot the node by hand once", true
	case reason == "":
		return f.NextTrial(b.OnceText(wanted, f.StaleArguments(wanted)), untried)
	}
	if temporary || isBlocked || f.Trial.IsPresent() || slices.ContainsFunc(untried, func(arg host.Argument) bool { return isOnlyRecorded(f, arg) }) {
		err := fmt.Errorf("%s cannot have a trial boot: %s", argument.Join(untried), reason)
		if temporary {
			err = loader.TemporaryError(err.Error())
		}
		return loader.NextTrial{Err: err}
	}
	return loader.NextTrial{}
}

// isOnlyRecorded reports whether an argument had a trial that was disarmed: it was staged, but no default entry has it.
func isOnlyRecorded(f loader.Facts, arg host.Argument) bool {
	return f.Record.HasTrial && argument.Has(f.Record.LastArguments(), arg) && !argument.Has(f.Entries.ValuesOf(arg.Name), arg)
}

// Disarm relies on the loaders to boot the default entry if the selected one is missing.
func (b Loader) Disarm() error {
	t, err := b.Tool.ReadTrial(b, true)
	if err != nil || t.Selected != OnceID {
		return err
	}
	return b.Tool.WriteTrial(b, "", "")
}

// UndoChange does not arm the previous trial: its arguments are not the desired ones.
func (b Loader) UndoChange(f loader.Facts) error {
	if f.Trial.IsDue() {
		f.Trial = loader.Trial{}
	}
	return b.Tool.WriteTrial(b, f.Trial.Section, f.Trial.State)
}

// EndTrial removes an entry whose arguments are in all entries now, or that a power cut has left empty.
func (b Loader) EndTrial(f loader.Facts) error {
	if !f.Trial.IsPresent() && !b.FS.Exists(b.At.OnceEntry()) {
		return nil
	}
	return b.Tool.WriteTrial(b, "", "")
}

// Rearm writes the entry again: a kernel may have been installed or removed since.
func (b Loader) Rearm(permitted bool) error {
	drop, err := b.ReadRecord(b.At.Form)
	if err != nil || !b.FS.Exists(b.At.OnceEntry()) {
		return err
	}
	text := b.OnceText(drop.Args, drop.Replaces)
	if text == "" {
		return errors.Join(ErrNoKernel, b.Disarm())
	}
	return b.Tool.WriteTrial(b, text, loader.ReadyStates[permitted])
}

// RemoveTemp implements Loader.
func (b Loader) RemoveTemp() error { return b.FS.RemoveTemp(b.At.OnceEntry()) }
