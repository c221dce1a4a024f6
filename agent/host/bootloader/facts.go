package bootloader

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// facts contains everything that the boot loaders know about a host at one moment.
type facts struct {
	// image is true if no kernel runs. There are no facts about a boot then.
	image   bool
	bootID  string
	cmdline []host.Argument
	dropIn  dropIn
	menu    menu
	// entries are the boot entries without the entry that is booted once. They differ from menu while its arguments are untried.
	entries menu
	foreign []source
	// atBoot are the agent's arguments in the menu when this boot started.
	atBoot []host.Argument
	// stagedSince are the arguments that the agent has staged in this boot, even if they were removed later.
	stagedSince []host.Argument
	// written are the arguments in the files that grubby changes before the agent has replaced the entries.
	written []host.Argument
	// lackedLater returns a note if kernels that are installed later will lack the argument. Nil if they have all arguments of the menu.
	lackedLater func(arg host.Argument) string
	trial       trial
	// failed are arguments that have failed a trial, and are not tried with others.
	failed []host.Argument
	// unprinted names the line of the menu that a new one would lose. Empty if no such line is known.
	unprinted unprintedError
}

type source struct {
	file string
	arg  host.Argument
}

// managedArguments returns the arguments that the agent may have added to the menu or the running kernel, even if a user removed the drop-in.
func (f facts) managedArguments() []host.Argument {
	managed := f.dropIn.managedArguments()
	for _, args := range [][]host.Argument{f.atBoot, f.stagedSince} {
		managed = append(managed, argumentsWithout(args, managed)...)
	}
	return managed
}

// replacedByFailed returns the booted values that stay in place of the arguments that have failed a trial. They may be only in the trial's section,
// which has Debian's previous entry.
func (f facts) replacedByFailed() []host.Argument {
	known := append(f.managedArguments(), host.ParseArguments(f.trial.section)...)
	return slices.DeleteFunc(slices.Clone(f.cmdline), func(arg host.Argument) bool {
		return !hasName(f.failed, arg.Name) || hasArgument(f.failed, arg) || !hasArgument(known, arg)
	})
}

// staleArguments returns the agent's arguments that are not desired and that no foreign file sets.
func (f facts) staleArguments(wanted []host.Argument) []host.Argument {
	stale := argumentsWithout(f.managedArguments(), wanted)
	for _, other := range f.foreign {
		stale = argumentsWithout(stale, []host.Argument{other.arg})
	}
	return stale
}

// notBooted returns the arguments that the running kernel was not booted with. The others are proven, because the agent is running.
func (f facts) notBooted(args []host.Argument) []host.Argument {
	if f.image {
		return nil
	}
	return argumentsWithout(args, f.cmdline)
}

func (f facts) nextTrial(printed string, untried []host.Argument) nextTrial {
	if f.trial.isOver() && len(argumentsWithout(untried, f.dropIn.lastArguments())) == 0 {
		// Staging arguments again does not repeat a trial that they have failed.
		return nextTrial{printed: printed, state: f.trial.state}
	}
	return nextTrial{printed: printed, state: trialArmed}
}

// managedSinceBoot returns the agent's arguments that the running kernel or the menu may have.
func (h *Host) managedSinceBoot(format form) []host.Argument {
	drop, _ := h.readDropIn(format)
	managed := drop.managedArguments()
	if bootID, err := h.fs.ReadValue(bootIDFile); err == nil {
		for _, name := range []string{factAtBoot, factStagedSince} {
			value, _ := h.facts.BootFact(bootID, name)
			managed = append(managed, host.ParseArguments(value)...)
		}
	}
	return managed
}

// isRetained reports whether an argument stayed in the default entries during the trial of another value: an earlier kernel was booted with it.
func (f facts) isRetained(arg host.Argument) bool {
	return f.dropIn.hasTrial && hasArgument(f.dropIn.replaces, arg)
}

// missingArguments returns the arguments that are passed less often than before. Another name for the same root device is not missing.
func (h *Host) missingArguments(before, after, managed []host.Argument) []host.Argument {
	var missing []host.Argument
	for _, arg := range argumentsWithout(before, managed) {
		if countArgument(after, arg) >= countArgument(before, arg) || hasArgument(missing, arg) {
			continue
		}
		if root, ok := lastNamed(after, "root"); arg.Is("root") && ok && h.sameDevice(arg.Value, root.Value) {
			continue
		}
		missing = append(missing, arg)
	}
	return missing
}

func (h *Host) sameDevice(a, b string) bool {
	deviceA, errA := h.fs.Resolve(deviceName(a))
	deviceB, errB := h.fs.Resolve(deviceName(b))
	return errA == nil && errB == nil && deviceA == deviceB && h.fs.Exists(deviceA)
}

func deviceName(root string) string {
	for tag, dir := range map[string]string{"UUID=": "by-uuid", "PARTUUID=": "by-partuuid", "LABEL=": "by-label", "PARTLABEL=": "by-partlabel"} {
		if value, ok := strings.CutPrefix(root, tag); ok {
			return path.Join("/dev/disk", dir, strings.Trim(value, `"'`))
		}
	}
	return path.Join("/", root)
}

// disown clears the agent's records of arguments that an original also contains.
func (h *Host) disown(f facts, foreign []host.Argument) error {
	if len(foreign) == 0 || f.image {
		return nil
	}
	return errors.Join(
		h.facts.SetBootFact(f.bootID, factStagedSince, joinArguments(argumentsWithout(f.stagedSince, foreign))),
		h.facts.SetBootFact(f.bootID, factAtBoot, joinArguments(argumentsWithout(f.atBoot, foreign))),
	)
}
