package bootloader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

const (
	// onceID is the ID of the entry that is booted once. A tilde sorts before everything else, in GRUB's order as in grubby's, so this entry is always
	// the last in the menu and never the default. "0" would not do: a machine ID may start with it.
	onceID    = "~storage-client"
	onceEntry = entriesDir + "/" + onceID + ".conf"
	onceTitle = "Kernel arguments that storage-client-node-agent tries once"
)

// gatherTrial reads the entry that is booted once. While it waits for its boot or has failed, it is the menu that the staged arguments are in.
func (b entryLoader) gatherTrial(ctx context.Context, f *facts) error {
	armedNow := false
	if !f.image {
		_, armedNow = b.facts.BootFact(f.bootID, factArmed)
	}
	var err error
	if f.trial, err = b.tool.readTrial(b, armedNow); err != nil {
		return err
	}
	f.trial.armedNow, f.trial.printed = armedNow, f.trial.section
	if f.trial.section != "" && f.trial.selected != onceID {
		// The loader has cleared the selection: it has booted this entry, or an entry that a user selected.
		used := map[string]string{trialArmed: trialUsed, trialPermitted: trialFailed}
		f.trial.state = cmp.Or(used[f.trial.state], f.trial.state)
	}
	f.entries = f.menu
	if f.trial.section != "" && f.trial.state != "" && f.notBooted(f.dropIn.args) != nil &&
		b.onceText(f.dropIn.args, f.dropIn.replaces) == f.trial.section {
		f.menu = menu{whole: true, lines: []bootLine{{
			id: onceID, title: onceTitle, args: argumentsOf(splitWords(entryOptions(f.trial.section))),
		}}}
	}
	f.trial.reason = b.untriedReason(*f, func() string { reason, _ := b.findTrialObstacle(ctx); return reason })
	return nil
}

// cutField returns the key and the value of a line of an entry. GRUB accepts several blanks and tabs between them.
func cutField(line string) (key, value string) {
	key, value, _ = strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
	return key, strings.TrimSpace(value)
}

func entryOptions(entry string) string {
	var options []string
	for line := range strings.Lines(entry) {
		if key, value := cutField(line); key == "options" {
			options = append(options, value)
		}
	}
	return strings.Join(options, " ")
}

// onceText returns the entry that is booted once: the default entry with the desired arguments instead of the replaced ones. Empty if there is no
// default entry, or its kernel is missing.
func (b entryLoader) onceText(wanted, replaced []host.Argument) string {
	menu, reason := b.readBooted()
	if reason != "" || menu.entry == nil || menu.entry.text == "" || b.lacksFile(menu, menu.entry) {
		return ""
	}
	text := "title " + onceTitle + "\nversion 0\n"
	for line := range strings.Lines(menu.entry.text) {
		switch key, _ := cutField(line); key {
		case "title", "version", "id", "sort-key", "grub_hotkey", "options", "":
		default:
			text += strings.TrimSpace(line) + "\n"
		}
	}
	options := entryOptions(menu.entry.text)
	if value := menu.variables["kernelopts"]; value != "" {
		options = strings.NewReplacer("$kernelopts", value, "${kernelopts}", value).Replace(options)
	}
	return text + strings.TrimSpace(addWords("options "+cutWords(options, slices.Concat(replaced, wanted)), wanted)) + "\n"
}

// untriedDefaults returns the agent's arguments in permanent entries that the running kernel was not booted with. A trial would return to them.
func (b entryLoader) untriedDefaults() (untried []host.Argument) {
	booted, _ := b.readBooted()
	cmdline, err := b.readCommandLine()
	if err != nil || b.fs.IsImage() {
		return nil
	}
	managed := argumentsWithout(b.managedSinceBoot(b.at.form), cmdline)
	for _, line := range booted.menu.lines {
		args := host.ParseArguments(booted.expand(joinArguments(line.args)))
		untried = append(untried, argumentsWithout(args, append(argumentsWithout(args, managed), untried...))...)
	}
	return untried
}

// lacksFile reports whether the kernel, initrd or image of an entry is missing. Its path is on the file system of its directory, which may be the root's.
func (b entryLoader) lacksFile(menu bootedMenu, entry *menuEntry) bool {
	for line := range strings.Lines(entry.text) {
		key, value := cutField(line)
		first, _, _ := strings.Cut(value, " ")
		if name := menu.expand(first); (key == "linux" || key == "initrd" || key == "efi") && !b.fs.Exists(name) && !b.fs.Exists(path.Join(b.at.boot, name)) {
			return true
		}
	}
	return false
}

// isIncomplete reports whether any entry lacks a file, as while a kernel is installed or removed.
func (b entryLoader) isIncomplete() bool {
	menu, _ := b.readBooted()
	return slices.ContainsFunc(menu.menu.root.children, func(entry *menuEntry) bool { return b.lacksFile(menu, entry) })
}

// checkHold ends the wait for a temporary obstacle that has gone, or that has lasted too long: the arguments are staged, or have failed.
func (b entryLoader) checkHold(ctx context.Context) {
	now, err := b.bootClock.SinceBoot()
	if _, temporary := b.findTrialObstacle(ctx); err != nil || now >= b.delayEnd || !temporary && !b.isIncomplete() {
		b.delay = ""
	}
}

func (b entryLoader) findTrialObstacle(ctx context.Context) (reason string, temporary bool) {
	return b.tool.findTrialObstacle(ctx, b)
}

var errNoKernel = errors.New("the kernel or initrd of the default entry is missing")

// prepareTrial returns an error instead of no trial if the arguments have a trial already, or will have one: they must not reach the default entry.
func (b entryLoader) prepareTrial(ctx context.Context, f facts, wanted []host.Argument) nextTrial {
	untried := f.notBooted(wanted)
	if len(untried) == 0 || !b.attended && !f.trial.isOver() {
		return nextTrial{}
	}
	reason, temporary := b.findTrialObstacle(ctx)
	isUntried := func(arg host.Argument) bool { return f.entries.holdsArgument(arg) && !f.isRetained(arg) }
	isBlocked := false
	switch {
	case !b.attended:
		reason = "no agent is running on this host to complete it"
	case reason == "" && slices.ContainsFunc(f.notBooted(f.managedArguments()), isUntried):
		reason, isBlocked = "the default entry has not been booted either, and no other entry is known: reboot the node by hand once", true
	case reason == "":
		return f.nextTrial(b.onceText(wanted, f.staleArguments(wanted)), untried)
	}
	if temporary || isBlocked || f.trial.isPresent() || slices.ContainsFunc(untried, func(arg host.Argument) bool { return isOnlyRecorded(f, arg) }) {
		err := fmt.Errorf("%s cannot have a trial boot: %s", joinArguments(untried), reason)
		if temporary {
			err = temporaryError{err}
		}
		return nextTrial{err: err}
	}
	return nextTrial{}
}

func (b entryLoader) writeTrial(text, state string) error {
	return b.tool.writeTrial(b, text, state)
}

// isOnlyRecorded reports whether an argument had a trial that was disarmed: it was staged, but no default entry has it.
func isOnlyRecorded(f facts, arg host.Argument) bool {
	return f.dropIn.hasTrial && hasArgument(f.dropIn.lastArguments(), arg) && !hasArgument(f.entries.valuesOf(arg.Name), arg)
}

// disarm relies on the loaders to boot the default entry if the selected one is missing.
func (b entryLoader) disarm() error {
	t, err := b.tool.readTrial(b, true)
	if err != nil || t.selected != onceID {
		return err
	}
	return b.writeTrial("", "")
}

// undoChange does not arm the previous trial: its arguments are not the desired ones.
func (b entryLoader) undoChange(f facts) error {
	if f.trial.isDue() {
		f.trial = trial{}
	}
	return b.writeTrial(f.trial.section, f.trial.state)
}

// endTrial removes an entry whose arguments are in all entries now, or that a power cut has left empty.
func (b entryLoader) endTrial(f facts) error {
	if !f.trial.isPresent() && !b.fs.Exists(b.at.onceEntry()) {
		return nil
	}
	return b.writeTrial("", "")
}

// rearm writes the entry again: a kernel may have been installed or removed since.
func (b entryLoader) rearm(permitted bool) error {
	drop, err := b.readDropIn(b.at.form)
	if err != nil || !b.fs.Exists(b.at.onceEntry()) {
		return err
	}
	text := b.onceText(drop.args, drop.replaces)
	if text == "" {
		return errors.Join(errNoKernel, b.disarm())
	}
	return b.writeTrial(text, readyStates[permitted])
}

func (b entryLoader) removeTemp() error { return b.fs.RemoveTemp(b.at.onceEntry()) }
