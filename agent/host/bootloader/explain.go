package bootloader

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// menuEntry is an entry or a submenu, in the order in which GRUB shows them. The root has no ID.
type menuEntry struct {
	id, title, section string
	recovery           bool
	// file and text are the name and the content of a boot loader entry. Empty for an entry of the menu itself.
	file, text string
	// image contains the sections of a unified kernel image. Empty for another entry.
	image kernelImage
	// lines are its lines "linux" if 10_linux printed it.
	lines    []bootLine
	children []*menuEntry
}

// find returns the entry that a value of GRUB's variable "default" selects: indexes, IDs or titles, joined by ">". Nil if there is none.
func (e *menuEntry) find(choice string) *menuEntry {
	step, rest, _ := strings.Cut(choice, ">")
	for i, child := range e.children {
		if step != strconv.Itoa(i) && step != child.id && step != child.title {
			continue
		}
		if len(child.children) > 0 {
			return child.find(cmp.Or(rest, "0"))
		}
		return child
	}
	return nil
}

// proxmoxDisks lists the EFI partitions to which Proxmox's boot tool copies kernels and menus.
const proxmoxDisks = "/etc/kernel/proxmox-boot-uuids"

// unexplained returns the reason why the next boot may not use the menu at its path: another tool keeps the menu that boots, a generator other than
// 10_linux made the default entry, or the running kernel has arguments that the default entry does not pass. Empty if there is no reason. Arguments
// of the agent may have been staged or removed since the boot, and an argument that the profile names is a conflict: both are left out.
func (s *Subject) unexplained(names *grubNames) string {
	if disks, err := s.fs.ReadIfThere(proxmoxDisks); err != nil || strings.TrimSpace(string(disks)) != "" {
		return proxmoxDisks + " is not empty: proxmox-boot-tool keeps the menu on the EFI partitions: add the argument to " + appendTo + " in " +
			defaultFile + " and to /etc/kernel/cmdline, and run proxmox-boot-tool refresh"
	}
	if reason := menuOnEFI(s.fs); reason != "" {
		return reason
	}
	b, reason := s.bootedMenu(names)
	if reason != "" || b.entry == nil || s.fs.IsImage() {
		return reason
	}
	cmdline, err := s.readCommandLine()
	if err != nil {
		return err.Error()
	}
	if reason := b.badImage(cmdline, s.fs); reason != "" {
		return reason
	}
	return b.badArgument(slices.DeleteFunc(argumentsWithout(cmdline, s.managedSinceBoot(names.form)), func(arg host.Argument) bool {
		return arg.Is("BOOT_IMAGE") || isEFIInitrd(arg) || slices.ContainsFunc(s.named, arg.Is)
	}), s.sameDevice)
}

// isEFIInitrd reports whether an argument is the initrd that systemd-boot passes to the kernel.
func isEFIInitrd(arg host.Argument) bool {
	return arg.Is("initrd") && strings.HasPrefix(arg.Value, `\`)
}

// bootedMenu returns the menu with the entry that it boots by default, or the reason why arguments do not reach that entry.
func (s *Subject) bootedMenu(names *grubNames) (b bootedMenu, reason string) {
	if names.tool == nil {
		return s.grubMenu(names)
	}
	return names.tool.readBooted(s, names)
}

// grubMenu is bootedMenu of a GRUB. The entry is nil if there is no menu: its reader reports the error, or waits until it is written.
func (s *Subject) grubMenu(names *grubNames) (b bootedMenu, reason string) {
	data, err := s.readOnce(names.menu)
	if err != nil {
		return b, ""
	}
	custom, err := s.fs.ReadIfThere(path.Join(path.Dir(names.menu), "custom.cfg"))
	if err != nil {
		return b, err.Error()
	}
	text := string(data)
	if strings.Contains(text, "/custom.cfg") && len(custom) > 0 {
		text += "\n### BEGIN custom.cfg ###\n" + string(custom) + "\n### END custom.cfg ###\n"
	}
	b = bootedMenu{names: names, menu: parseMenu(text), variables: s.menuVariables(names, text)}
	if names.tool != nil {
		entries, err := s.readEntries(names)
		if err != nil {
			return b, err.Error()
		}
		b.menu.root.children = append(entries, b.menu.root.children...)
		for _, entry := range entries {
			b.menu.lines = append(b.menu.lines, entry.lines...)
		}
	}
	if b.menu.root.children == nil {
		return b, ""
	}
	env, _ := s.fs.ReadFile(names.env())
	if count := environment(env).value("boot_counter"); count != "" && strings.Contains(text, fallbackCounting) {
		return b, fmt.Sprintf("%s has boot_counter=%s: GRUB counts boots, and may boot another entry than the default: run grub2-editenv - unset boot_counter",
			names.env(), count)
	}
	return b, b.badDefault(parseTrial(text).defaults)
}

// managedSinceBoot returns the agent's arguments that the running kernel or the menu may have.
func (s *Subject) managedSinceBoot(format form) []host.Argument {
	drop, _ := s.readDropIn(format)
	managed := drop.managedArguments()
	if bootID, err := s.fs.ReadValue(bootIDFile); err == nil {
		for _, name := range []string{factAtBoot, factStagedSince} {
			value, _ := s.facts.BootFact(bootID, name)
			managed = append(managed, host.ParseArguments(value)...)
		}
	}
	return managed
}

// menuVariables returns the values of variables at GRUB's start: of its environment block, or else the last value that the menu sets.
func (s *Subject) menuVariables(names *grubNames, text string) map[string]string {
	variables := map[string]string{}
	for line := range strings.Lines(text) {
		words := splitWords(line)
		if len(words) != 2 || words[0] != "set" {
			continue
		}
		if name, value, ok := strings.Cut(words[1], "="); ok && value != "" && !strings.HasPrefix(value, "$") {
			variables[name] = value
		}
	}
	// Without a block, GRUB reads no variables.
	block, _ := s.fs.ReadFile(path.Join(path.Dir(names.menu), "grubenv"))
	for line := range strings.Lines(string(block)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok && !strings.HasPrefix(name, "#") {
			variables[name] = value
		}
	}
	return variables
}

// bootedMenu is a menu with the values of its variables, and the entry that it boots.
type bootedMenu struct {
	names     *grubNames
	menu      menu
	variables map[string]string
	entry     *menuEntry
	// reported is true if the loader itself reports which entry has loaded the kernel. token is the directory of that kernel's system, see token.
	reported bool
	token    string
}

func (b *bootedMenu) expand(text string) string {
	return os.Expand(text, func(name string) string { return b.variables[name] })
}

// badDefault finds the entry that boots by default, and returns the reason why arguments of 10_linux do not reach it, or the entry of a pending
// grub-reboot. Empty if they do.
func (b *bootedMenu) badDefault(defaults []string) string {
	choice := ""
	for _, value := range defaults {
		if value != "${next_entry}" {
			choice = b.expand(value)
		}
	}
	choices := []string{choice}
	if next := b.variables["next_entry"]; next != "" {
		choices = append(choices, next)
	}
	for _, choice := range slices.Backward(choices) {
		if b.entry = b.menu.root.find(cmp.Or(choice, "0")); b.entry == nil {
			// GRUB boots the first entry if the selected one is missing.
			b.entry = b.menu.root.find("0")
		}
		switch {
		case b.entry == nil:
			return b.names.menu + " has no entry"
		case b.entry.recovery || len(b.entry.lines) == 0:
			return fmt.Sprintf("%s boots entry %q of %s next, which %s does not reach: make an entry of 10_linux the default with GRUB_DEFAULT in %s and run %s, "+
				"or add the argument to that entry", b.names.menu, b.entry.title, b.entry.section, appendTo, defaultFile, b.names.remake)
		}
	}
	return ""
}

const otherMenu = "the machine may boot another menu: set the argument in the boot loader that loaded the kernel, or reboot once if this menu has " +
	"changed since"

// badImage returns a message if no entry loads the running kernel. After the removal of that kernel, another one in its directory is enough.
func (b *bootedMenu) badImage(cmdline []host.Argument, fs host.FS) string {
	arg, _ := lastNamed(cmdline, "BOOT_IMAGE")
	image := imagePath(arg.Value)
	if b.reported {
		return ""
	}
	if image == "" {
		return "GRUB is installed, but did not load the running kernel (no BOOT_IMAGE in " + commandLine + "): " + otherMenu
	}
	removed := !fs.Exists(path.Join("/boot", path.Base(image)))
	if slices.ContainsFunc(b.menu.lines, func(line bootLine) bool {
		kernel := imagePath(b.expand(line.kernel))
		return kernel == image || removed && path.Dir(kernel) == path.Dir(image)
	}) {
		return ""
	}
	return fmt.Sprintf("%s has %s, which no entry of %s loads: %s", commandLine, arg, b.names.menu, otherMenu)
}

// badArgument returns a message about the first argument that the default entry does not pass. Empty if it passes all. Another name for the same
// root device is the same argument: a menu of an image build names it by label, and a new one by UUID.
func (b *bootedMenu) badArgument(args []host.Argument, sameDevice func(a, b string) bool) string {
	var passed []host.Argument
	for _, line := range b.entry.lines {
		for _, arg := range line.args {
			passed = append(passed, host.ParseArguments(b.expand(arg.String()))...)
		}
	}
	root, _ := lastNamed(passed, "root")
	for _, arg := range argumentsWithout(args, passed) {
		if arg.Is("root") && sameDevice(arg.Value, root.Value) {
			continue
		}
		place := cmp.Or(b.entry.file, b.names.menu)
		if number := b.entry.lines[0].number; number > 0 {
			place += fmt.Sprintf(" (line %d)", number)
		}
		return fmt.Sprintf("%s has %s, which the default entry of %s does not pass: %s", commandLine, arg, place, otherMenu)
	}
	return ""
}

// imagePath returns the path of a kernel without GRUB's device: "(hd0,gpt2)/vmlinuz".
func imagePath(image string) string {
	if _, rest, ok := strings.Cut(image, ")"); ok && strings.HasPrefix(image, "(") {
		return rest
	}
	return image
}
