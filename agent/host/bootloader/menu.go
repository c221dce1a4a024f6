package bootloader

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/agent/host"
)

// maxCommandLine is the maximum length of a command line in bytes, without the final NUL. COMMAND_LINE_SIZE is 2048 on x86 and arm64, and the kernel
// truncates longer lines silently.
const maxCommandLine = 2047

// menu is the part of a grub.cfg that comes from 10_linux: the entries that GRUB_CMDLINE_LINUX_DEFAULT reaches, and their recovery entries.
type menu struct {
	lines []bootLine
	// root contains the entries and submenus of all generators except the agent's.
	root menuEntry
	// whole is true if every section and block that starts also ends.
	whole bool
}

// bootLine is one line "linux". An entry may have several, as on Ubuntu's images that first try to boot without an initrd.
type bootLine struct {
	// id is the entry's ID, or its title if it has none. nth is the index of the line in the entry.
	id    string
	nth   int
	title string
	// recovery marks an entry that does not get GRUB_CMDLINE_LINUX_DEFAULT.
	recovery bool
	kernel   string
	args     []host.Argument
	// number is the line number in the file, from 1. Zero if the line is not from a file.
	number int
}

// findProblem returns the reason why the menu does not pass exactly the desired arguments. Each must occur once, and in normal entries only. No stale
// argument may occur. Empty if there is no problem.
func (m menu) findProblem(wanted, stale []host.Argument) string {
	if !m.whole {
		return "the menu is incomplete"
	}
	for _, line := range m.lines {
		if text := line.findProblem(wanted, stale); text != "" {
			return text
		}
	}
	if !slices.ContainsFunc(m.lines, func(line bootLine) bool { return !line.recovery }) {
		return "the menu has no entry from 10_linux"
	}
	return ""
}

func (l bootLine) findProblem(wanted, stale []host.Argument) string {
	for _, arg := range stale {
		if hasArgument(l.args, arg) {
			return fmt.Sprintf("entry %q still has %s", l.title, arg)
		}
	}
	for _, arg := range wanted {
		named := 0
		for _, have := range l.args {
			if have.Is(arg.Name) {
				named++
			}
		}
		switch exact := countArgument(l.args, arg); {
		case l.recovery && exact > 0:
			return fmt.Sprintf("recovery entry %q has %s", l.title, arg)
		case !l.recovery && named != exact:
			return fmt.Sprintf("entry %q has another value of %s", l.title, arg.Name)
		case !l.recovery && exact != 1:
			return fmt.Sprintf("entry %q has %s %d times", l.title, arg, exact)
		}
	}
	return ""
}

// holdsArgument reports whether every normal entry passes exactly this argument, and no recovery entry does.
func (m menu) holdsArgument(arg host.Argument) bool {
	return m.findProblem([]host.Argument{arg}, nil) == ""
}

// passesArgument is holdsArgument without the check of recovery entries, which GRUB_CMDLINE_LINUX reaches too.
func (m menu) passesArgument(arg host.Argument) bool {
	recovery := func(line bootLine) bool { return line.recovery }
	normal := menu{whole: m.whole, lines: slices.DeleteFunc(slices.Clone(m.lines), recovery)}
	return normal.holdsArgument(arg)
}

func (m menu) valuesOf(name string) []host.Argument {
	var found []host.Argument
	for _, line := range m.lines {
		for _, arg := range line.args {
			if arg.Is(name) && !hasArgument(found, arg) {
				found = append(found, arg)
			}
		}
	}
	return found
}

// tooLong returns a message about the first entry whose command line would be truncated if the arguments were exchanged.
func (m menu) tooLong(remove, add []host.Argument) string {
	for _, line := range m.lines {
		args := argumentsWithout(line.args, remove)
		if !line.recovery {
			args = append(args, argumentsWithout(add, args)...)
		}
		// GRUB puts BOOT_IMAGE in front.
		length := len("BOOT_IMAGE=" + line.kernel + " " + joinArguments(args))
		if length > maxCommandLine {
			return fmt.Sprintf("the command line of entry %q would be %d bytes long, but the kernel accepts only %d",
				line.title, length, maxCommandLine)
		}
	}
	return ""
}

// matchLine returns the line with the same entry and index as a line of another version of the menu.
func (m menu) matchLine(l bootLine) (bootLine, bool) {
	i := slices.IndexFunc(m.lines, func(line bootLine) bool { return line.id == l.id && line.nth == l.nth })
	if i < 0 {
		return bootLine{}, false
	}
	return m.lines[i], true
}
