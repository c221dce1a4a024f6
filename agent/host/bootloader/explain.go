package bootloader

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// proxmoxDisks lists the EFI partitions to which Proxmox's boot tool copies kernels and menus.
const proxmoxDisks = "/etc/kernel/proxmox-boot-uuids"

// unexplained returns the reason why the next boot may not use the menu at its path: another tool keeps the menu that boots, a generator other than
// 10_linux made the default entry, or the running kernel has arguments that the default entry does not pass. Empty if there is no reason. Arguments
// of the agent may have been staged or removed since the boot, and an argument that the profile names is a conflict: both are left out.
func (s *Subject) unexplained(l loader) string {
	if disks, err := s.fs.ReadIfThere(proxmoxDisks); err != nil || strings.TrimSpace(string(disks)) != "" {
		return proxmoxDisks + " is not empty: proxmox-boot-tool keeps the menu on the EFI partitions: add the argument to " + appendTo + " in " +
			defaultFile + " and to /etc/kernel/cmdline, and run proxmox-boot-tool refresh"
	}
	if reason := menuOnEFI(s.fs); reason != "" {
		return reason
	}
	b, reason := l.readBooted()
	if reason != "" || b.entry == nil || s.fs.IsImage() {
		return reason
	}
	cmdline, err := s.readCommandLine()
	if err != nil {
		return err.Error()
	}
	if reason := badImage(&b, cmdline, s.fs); reason != "" {
		return reason
	}
	return badArgument(&b, slices.DeleteFunc(argumentsWithout(cmdline, s.managedSinceBoot(l.form())), func(arg host.Argument) bool {
		return arg.Is("BOOT_IMAGE") || isEFIInitrd(arg) || slices.ContainsFunc(s.named, arg.Is)
	}), s.sameDevice)
}

// isEFIInitrd reports whether an argument is the initrd that systemd-boot passes to the kernel.
func isEFIInitrd(arg host.Argument) bool {
	return arg.Is("initrd") && strings.HasPrefix(arg.Value, `\`)
}

// badImage returns a message if no entry loads the running kernel. After the removal of that kernel, another one in its directory is enough.
func badImage(b *bootedMenu, cmdline []host.Argument, fs host.FS) string {
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
func badArgument(b *bootedMenu, args []host.Argument, sameDevice func(a, b string) bool) string {
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
