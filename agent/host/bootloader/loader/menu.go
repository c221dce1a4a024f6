package loader

import (
	"fmt"
	"os"
	"slices"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
)

// Entry is an entry or a submenu, in the order in which GRUB shows them. The root has no ID.
type Entry struct {
	ID, Title, Section string
	Recovery           bool
	// File and text are the name and the content of a boot loader entry. Empty for an entry of the menu itself.
	File, Text string
	// Lines are its lines "linux" if 10_linux printed it.
	Lines    []Line
	Children []*Entry
}

// Booted is a menu with the values of its variables, and the entry that it boots.
type Booted struct {
	Names     *Place
	Menu      Menu
	Variables map[string]string
	Entry     *Entry
	// Reported is true if the loader itself reports which entry has loaded the kernel. token is the directory of that kernel's system, see token.
	Reported bool
	Token    string
}

// Expand replaces the variables of the menu in a text.
func (b *Booted) Expand(text string) string {
	return os.Expand(text, func(name string) string { return b.Variables[name] })
}

// OtherMenu is the end of messages about a machine that may boot another menu.
const OtherMenu = "the machine may boot another menu: set the argument in the boot loader that loaded the kernel, or reboot once if this menu has " +
	"changed since"

// maxCommandLine is the maximum length of a command line in bytes, without the final NUL. COMMAND_LINE_SIZE is 2048 on x86 and arm64, and the kernel
// truncates longer lines silently.
const maxCommandLine = 2047

// Menu is the part of a grub.cfg that comes from 10_linux: the entries that GRUB_CMDLINE_LINUX_DEFAULT reaches, and their recovery entries.
type Menu struct {
	Lines []Line
	// Root contains the entries and submenus of all generators except the agent's.
	Root Entry
	// Whole is true if every section and block that starts also ends.
	Whole bool
}

// Line is one line "linux". An entry may have several, as on Ubuntu's images that first try to boot without an initrd.
type Line struct {
	// ID is the entry's ID, or its title if it has none. nth is the index of the line in the entry.
	ID    string
	Nth   int
	Title string
	// Recovery marks an entry that does not get GRUB_CMDLINE_LINUX_DEFAULT.
	Recovery bool
	Kernel   string
	Args     []host.Argument
	// Number is the line number in the file, from 1. Zero if the line is not from a file.
	Number int
}

// FindProblem returns the reason why the menu does not pass exactly the desired arguments. Each must occur once, and in normal entries only. No stale
// argument may occur. Empty if there is no problem.
func (m Menu) FindProblem(wanted, stale []host.Argument) string {
	if !m.Whole {
		return "the menu is incomplete"
	}
	for _, line := range m.Lines {
		if text := line.FindProblem(wanted, stale); text != "" {
			return text
		}
	}
	if !slices.ContainsFunc(m.Lines, func(line Line) bool { return !line.Recovery }) {
		return "the menu has no entry from 10_linux"
	}
	return ""
}

// FindProblem is FindProblem of a menu, for one line.
func (l Line) FindProblem(wanted, stale []host.Argument) string {
	for _, arg := range stale {
		if argument.Has(l.Args, arg) {
			return fmt.Sprintf("entry %q still has %s", l.Title, arg)
		}
	}
	for _, arg := range wanted {
		named := 0
		for _, have := range l.Args {
			if have.Is(arg.Name) {
				named++
			}
		}
		switch exact := argument.Count(l.Args, arg); {
		case l.Recovery && exact > 0:
			return fmt.Sprintf("recovery entry %q has %s", l.Title, arg)
		case !l.Recovery && named != exact:
			return fmt.Sprintf("entry %q has another value of %s", l.Title, arg.Name)
		case !l.Recovery && exact != 1:
			return fmt.Sprintf("entry %q has %s %d times", l.Title, arg, exact)
		}
	}
	return ""
}

// HoldsArgument reports whether every normal entry passes exactly this argument, and no recovery entry does.
func (m Menu) HoldsArgument(arg host.Argument) bool {
	return m.FindProblem([]host.Argument{arg}, nil) == ""
}

// PassesArgument is HoldsArgument without the check of recovery entries, which GRUB_CMDLINE_LINUX reaches too.
func (m Menu) PassesArgument(arg host.Argument) bool {
	recovery := func(line Line) bool { return line.Recovery }
	normal := Menu{Whole: m.Whole, Lines: slices.DeleteFunc(slices.Clone(m.Lines), recovery)}
	return normal.HoldsArgument(arg)
}

// ValuesOf returns the different values of an argument in the menu.
func (m Menu) ValuesOf(name string) []host.Argument {
	var found []host.Argument
	for _, line := range m.Lines {
		for _, arg := range line.Args {
			if arg.Is(name) && !argument.Has(found, arg) {
				found = append(found, arg)
			}
		}
	}
	return found
}

// TooLong returns a message about the first entry whose command line would be truncated if the arguments were exchanged.
func (m Menu) TooLong(remove, add []host.Argument) string {
	for _, line := range m.Lines {
		args := argument.Without(line.Args, remove)
		if !line.Recovery {
			args = append(args, argument.Without(add, args)...)
		}
		// GRUB puts BOOT_IMAGE in front.
		length := len("BOOT_IMAGE=" + line.Kernel + " " + argument.Join(args))
		if length > maxCommandLine {
			return fmt.Sprintf("the command line of entry %q would be %d bytes long, but the kernel accepts only %d",
				line.Title, length, maxCommandLine)
		}
	}
	return ""
}

// MatchLine returns the line with the same entry and index as a line of another version of the menu.
func (m Menu) MatchLine(l Line) (Line, bool) {
	i := slices.IndexFunc(m.Lines, func(line Line) bool { return line.ID == l.ID && line.Nth == l.Nth })
	if i < 0 {
		return Line{}, false
	}
	return m.Lines[i], true
}
