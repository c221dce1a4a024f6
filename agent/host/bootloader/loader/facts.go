package loader

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
)

// ReadRecords reads the facts about the boot.
func (h *Host) ReadRecords(f *Facts) error {
	if f.Image {
		return nil
	}
	var err error
	if value, ok := h.Facts.BootFact(f.BootID, FactStagedSince); ok {
		f.StagedSince = host.ParseArguments(value)
	}
	f.AtBoot, err = h.atBoot(f.BootID, *f)
	return err
}

// atBoot returns the agent's arguments that the menu passed when this boot started: in all entries or, after an interrupted change, in the booted
// entry. They are recorded at the first read in a boot that finds any, and at the latest before the first change.
func (h *Host) atBoot(bootID string, f Facts) ([]host.Argument, error) {
	if value, ok := h.Facts.BootFact(bootID, factAtBoot); ok {
		return host.ParseArguments(value), nil
	}
	if !f.Record.Present {
		return nil, nil
	}
	args := slices.DeleteFunc(f.Record.ManagedArguments(), func(arg host.Argument) bool {
		return !f.Menu.HoldsArgument(arg) && !argument.Has(f.Cmdline, arg)
	})
	return args, h.RecordAtBoot(bootID, args)
}

// RecordAtBoot records the arguments of the menu at the start of the boot, once.
func (h *Host) RecordAtBoot(bootID string, args []host.Argument) error {
	if _, ok := h.Facts.BootFact(bootID, factAtBoot); ok {
		return nil
	}
	return h.Facts.SetBootFact(bootID, factAtBoot, argument.Join(args))
}

// Facts contains everything that the boot loaders know about a host at one moment.
type Facts struct {
	// Image is true if no kernel runs. There are no facts about a boot then.
	Image   bool
	BootID  string
	Cmdline []host.Argument
	Record  Record
	Menu    Menu
	// Entries are the boot entries without the entry that is booted once. They differ from menu while its arguments are untried.
	Entries Menu
	Foreign []Source
	// AtBoot are the agent's arguments in the menu when this boot started.
	AtBoot []host.Argument
	// StagedSince are the arguments that the agent has staged in this boot, even if they were removed later.
	StagedSince []host.Argument
	// Written are the arguments in the files that grubby changes before the agent has replaced the entries.
	Written []host.Argument
	// LackedLater returns a note if kernels that are installed later will lack the argument. Nil if they have all arguments of the menu.
	LackedLater func(arg host.Argument) string
	Trial       Trial
	// Failed are arguments that have failed a trial, and are not tried with others.
	Failed []host.Argument
	// Unprinted names the line of the menu that a new one would lose. Empty if no such line is known.
	Unprinted UnprintedError
}

// Source is a file of another owner that sets an argument.
type Source struct {
	File string
	Arg  host.Argument
}

// ManagedArguments returns the arguments that the agent may have added to the menu or the running kernel, even if a user removed the drop-in.
func (f Facts) ManagedArguments() []host.Argument {
	managed := f.Record.ManagedArguments()
	for _, args := range [][]host.Argument{f.AtBoot, f.StagedSince} {
		managed = append(managed, argument.Without(args, managed)...)
	}
	return managed
}

// ReplacedByFailed returns the booted values that stay in place of the arguments that have failed a trial. They may be only in the trial's section,
// which has Debian's previous entry.
func (f Facts) ReplacedByFailed() []host.Argument {
	known := append(f.ManagedArguments(), host.ParseArguments(f.Trial.Section)...)
	return slices.DeleteFunc(slices.Clone(f.Cmdline), func(arg host.Argument) bool {
		return !argument.HasName(f.Failed, arg.Name) || argument.Has(f.Failed, arg) || !argument.Has(known, arg)
	})
}

// StaleArguments returns the agent's arguments that are not desired and that no foreign file sets.
func (f Facts) StaleArguments(wanted []host.Argument) []host.Argument {
	stale := argument.Without(f.ManagedArguments(), wanted)
	for _, other := range f.Foreign {
		stale = argument.Without(stale, []host.Argument{other.Arg})
	}
	return stale
}

// NotBooted returns the arguments that the running kernel was not booted with. The others are proven, because the agent is running.
func (f Facts) NotBooted(args []host.Argument) []host.Argument {
	if f.Image {
		return nil
	}
	return argument.Without(args, f.Cmdline)
}

// NextTrial returns the trial that prints a text, in the state that it has now.
func (f Facts) NextTrial(printed string, untried []host.Argument) NextTrial {
	if f.Trial.IsOver() && len(argument.Without(untried, f.Record.LastArguments())) == 0 {
		// Staging arguments again does not repeat a trial that they have failed.
		return NextTrial{Printed: printed, State: f.Trial.State}
	}
	return NextTrial{Printed: printed, State: TrialArmed}
}

// ManagedSinceBoot returns the agent's arguments that the running kernel or the menu may have.
func (h *Host) ManagedSinceBoot(format Form) []host.Argument {
	drop, _ := h.ReadRecord(format)
	managed := drop.ManagedArguments()
	if bootID, err := h.FS.ReadValue(BootIDFile); err == nil {
		for _, name := range []string{factAtBoot, FactStagedSince} {
			value, _ := h.Facts.BootFact(bootID, name)
			managed = append(managed, host.ParseArguments(value)...)
		}
	}
	return managed
}

// IsRetained reports whether an argument stayed in the default entries during the trial of another value: an earlier kernel was booted with it.
func (f Facts) IsRetained(arg host.Argument) bool {
	return f.Record.HasTrial && argument.Has(f.Record.Replaces, arg)
}

// MissingArguments returns the arguments that are passed less often than before. Another name for the same root device is not missing.
func (h *Host) MissingArguments(before, after, managed []host.Argument) []host.Argument {
	var missing []host.Argument
	for _, arg := range argument.Without(before, managed) {
		if argument.Count(after, arg) >= argument.Count(before, arg) || argument.Has(missing, arg) {
			continue
		}
		if root, ok := argument.Last(after, "root"); arg.Is("root") && ok && h.SameDevice(arg.Value, root.Value) {
			continue
		}
		missing = append(missing, arg)
	}
	return missing
}

// SameDevice reports whether two names of a root device are the same device.
func (h *Host) SameDevice(a, b string) bool {
	deviceA, errA := h.FS.Resolve(DeviceName(a))
	deviceB, errB := h.FS.Resolve(DeviceName(b))
	return errA == nil && errB == nil && deviceA == deviceB && h.FS.Exists(deviceA)
}

// DeviceName returns the path of a device that a tag or a path names.
func DeviceName(root string) string {
	for tag, dir := range map[string]string{"UUID=": "by-uuid", "PARTUUID=": "by-partuuid", "LABEL=": "by-label", "PARTLABEL=": "by-partlabel"} {
		if value, ok := strings.CutPrefix(root, tag); ok {
			return path.Join("/dev/disk", dir, strings.Trim(value, `"'`))
		}
	}
	return path.Join("/", root)
}

// Disown clears the agent's records of arguments that an original also contains.
func (h *Host) Disown(f Facts, foreign []host.Argument) error {
	if len(foreign) == 0 || f.Image {
		return nil
	}
	return errors.Join(
		h.Facts.SetBootFact(f.BootID, FactStagedSince, argument.Join(argument.Without(f.StagedSince, foreign))),
		h.Facts.SetBootFact(f.BootID, factAtBoot, argument.Join(argument.Without(f.AtBoot, foreign))),
	)
}

// RecordArmed records that a trial was armed in this boot.
func (h *Host) RecordArmed() error {
	bootID, err := h.FS.ReadValue(BootIDFile)
	if err != nil {
		return err
	}
	return h.Facts.SetBootFact(bootID, FactArmed, "true")
}

// States of a trial.
const (
	// TrialVariable is the agent's variable in GRUB's environment block. The agent sets it to TrialArmed when it stages, and to TrialPermitted right
	// before a permitted reboot. Before GRUB boots the new arguments, it changes these values to TrialUsed and TrialFailed. If GRUB finds one of the
	// latter, it boots the previous entry. The power may fail in any boot, so a boot without a permit is no proof: TrialUsed is tried once more with
	// a permit.
	TrialVariable  = "storage_client_trial"
	TrialArmed     = "armed"
	TrialPermitted = "permitted"
	TrialUsed      = "used"
	TrialFailed    = "failed"

	// FactArmed is the name of the boot fact that records that a trial was armed in the boot.
	FactArmed = "trial-armed"
)

// Trial is the state of a trial in the environment block, in /etc/grub.d and in the menu.
type Trial struct {
	// State is the value of the trial variable. Empty if unset.
	State string
	// Printed is the output of the agent's generator. section is the copy of it in the menu.
	Printed, Section string
	// Selected is the ID of the boot loader entry of the next boot. Empty for the default.
	Selected string
	ArmedNow bool
	// First is the text of the menu's first entry. Empty if 10_linux did not make it.
	First string
	// Defaults are the values that the menu sets as the default entry, and lines are their line numbers. loads reports whether the menu reads the
	// environment block, and clears whether it clears the entry of the next boot there. ids reports whether it identifies entries by ID.
	Defaults           []string
	Lines              []int
	Loads, Clears, IDs bool
	// Seen reports whether the menu reads any block.
	Seen bool
	// EnvErr is the reason why GRUB could not write to the environment block, if the file itself shows one.
	EnvErr error
	// Reason is the reason why the staged arguments have no trial, or no entry to return to. Empty if they have both, or do not need them.
	Reason string
}

// IsPresent reports whether any part of a trial is present.
func (t Trial) IsPresent() bool { return t.State != "" || t.Printed != "" || t.Section != "" }

// IsDue reports whether GRUB boots the new arguments next and is ready to return to the previous entry.
func (t Trial) IsDue() bool {
	return t.Section != "" && (t.State == TrialArmed || t.State == TrialPermitted)
}

// IsOver reports whether GRUB has booted the new arguments once and boots the previous entry from now on.
func (t Trial) IsOver() bool {
	return t.Section != "" && (t.State == TrialUsed || t.State == TrialFailed)
}

// IsBroken reports whether GRUB boots the new arguments, but cannot return to the previous entry.
func (t Trial) IsBroken() bool { return t.Section != "" && t.Reason != "" }

// TrialNote describes, for an argument that waits for its boot, the consequence of a failed boot.
func (t Trial) TrialNote() string {
	switch {
	case t.Reason != "":
		return "; the boot menu has no fallback entry: " + t.Reason
	case t.IsOver() && t.Selected != "":
		return ", but only with a permit, and after the boot of the selected entry " + t.Selected
	case t.IsOver():
		return ", but only with a permit: a boot without one failed, because of a power loss or this argument, or booted another entry, and the " +
			"machine boots the previous entry until then"
	case t.IsDue():
		return "; trial boot: if the machine does not start with it, the boot after that uses the previous entry"
	}
	return ""
}

// UntriedReason returns the reason why the staged arguments have no trial. Empty if they have one, or do not need one.
func (h *Host) UntriedReason(f Facts, findObstacle func() string) string {
	if f.NotBooted(f.Record.Args) == nil || f.Trial.Section != "" || !h.Attended {
		return ""
	}
	return cmp.Or(findObstacle(), "the argument was staged without one")
}

// NextTrial is the trial of the arguments to stage: the desired output of the generator, and the value of the variable. Both are empty if the
// arguments need no trial, or cannot have one.
type NextTrial struct {
	Printed, State string
	// Err is the reason why the arguments must not be staged without a trial. Nil if they may be.
	Err error
}

// ReadyStates are the states of a trial that is ready, by whether the reboot is permitted.
var ReadyStates = map[bool]string{true: TrialPermitted, false: TrialArmed}
