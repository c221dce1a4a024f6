package life

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
)

//go:embed loaders.csv
var loadersCSV string

// alternatives contains pairs of a mark, "ID=name" of os-release or a file, and the tools to use where the mark is found.
var alternatives = sync.OnceValue(func() [][]string {
	table := csv.NewReader(strings.NewReader(loadersCSV))
	table.Comma, table.Comment = ';', '#'
	all, err := table.ReadAll()
	if err != nil {
		panic("boot loaders: " + err.Error())
	}
	return all
})

// detect determines how the host keeps its kernel command line. It only reads. The kind of the boot loader and the place of its menu are nil if the
// agent does not change the boot loader.
func detect(fs host.FS, kinds []loader.Kind) (loader.Detection, loader.Kind, *loader.Place) {
	for _, find := range []func(host.FS) (loader.Detection, bool){detectOSTree, detectDistribution} {
		if found, ok := find(fs); ok {
			return found, loader.Kind{}, nil
		}
	}
	for _, kind := range kinds {
		if found, at := kind.Detect(fs); found.Type != "" {
			return found, kind, at
		}
	}
	return loader.UnsupportedBy(explain(fs, kinds)), loader.Kind{}, nil
}

// explain returns the reason why a host has no known boot loader.
func explain(fs host.FS, kinds []loader.Kind) string {
	for _, other := range alternatives() {
		if file, message := other[0], other[1]; path.IsAbs(file) && fs.Exists(file) {
			return message
		}
	}
	if found := grubcfg.MenuOnEFI(fs); found != "" {
		return found
	}
	for _, kind := range slices.Backward(kinds) {
		if kind.Explain != nil && kind.Explain(fs) != "" {
			return kind.Explain(fs)
		}
	}
	return "found no known boot loader: neither a GRUB menu, nor boot loader entries, nor files of another loader; use the platform's tools"
}

func detectOSTree(fs host.FS) (loader.Detection, bool) {
	return loader.Detection{
		Type:    loader.RPMOSTree,
		Message: "rpm-ostree manages the command line: use rpm-ostree kargs, or kernelArguments of a MachineConfig on OpenShift",
	}, fs.Exists("/run/ostree-booted") || fs.IsImage() && fs.Exists("/sysroot/ostree")
}

func detectDistribution(fs host.FS) (loader.Detection, bool) {
	id := loader.OSRelease(fs, "ID")
	for _, other := range alternatives() {
		if other[0] == "ID="+id {
			return loader.UnsupportedBy(other[1]), true
		}
	}
	return loader.Detection{}, false
}

// OnlyMaintained is the end of a message about arguments that were staged before the agent found that the machine may boot another menu.
const OnlyMaintained = "the agent maintains its menu, but the node is not rebooted for it"

// KexecLoaded contains 1 if a kernel is loaded that a reboot may start without the boot loader. A kernel for crashes does not count.
const KexecLoaded = "/sys/kernel/kexec_loaded"

// Loader returns the boot loader of the host, or an unsupported one if a new menu would lose a line, or if the machine may boot another menu. After
// staging, it always returns the boot loader of the host, so that the arguments can be removed again.
func (s *Subject) Loader() loader.Loader {
	found, kind, at := detect(s.FS, s.Kinds)
	b := loader.Base{Host: s.Host, Found: found, At: loader.Nowhere}
	if at == nil {
		return b
	}
	staged, reason := s.FS.Exists(at.Form.File), s.unexplained(kind.Open(loader.Base{Host: s.Host, Found: found, At: at}))
	if lost := s.KnownUnprinted(at.Menu); lost != "" && !staged {
		reason = lost.Error()
	}
	switch {
	case reason == "":
	case !staged:
		b.Found = loader.UnsupportedBy(reason)
		return b
	default:
		b.Found = loader.Detection{Type: found.Type, Message: reason + "; " + OnlyMaintained}
	}
	if loaded, err := s.FS.ReadValue(KexecLoaded); err == nil && loaded == "1" {
		b.Found = loader.Detection{Type: found.Type, Message: "a kernel is loaded for kexec (" + KexecLoaded + "), and a reboot may start it with its own arguments: " +
			"arguments are staged, and the node is not rebooted for them until kexec --unload"}
	}
	b.At = at
	return kind.Open(b)
}

// Detect returns the means by which the host keeps its kernel command line. It considers the result of the last attempt to stage.
func (s *Subject) Detect() loader.Detection { return s.Loader().Detection() }

// ProxmoxDisks lists the EFI partitions to which Proxmox's boot tool copies kernels and menus.
const ProxmoxDisks = "/etc/kernel/proxmox-boot-uuids"

// unexplained returns the reason why the next boot may not use the menu at its path: another tool keeps the menu that boots, a generator other than
// 10_linux made the default entry, or the running kernel has arguments that the default entry does not pass. Empty if there is no reason. Arguments
// of the agent may have been staged or removed since the boot, and an argument that the profile names is a conflict: both are left out.
func (s *Subject) unexplained(l loader.Loader) string {
	if disks, err := s.FS.ReadIfThere(ProxmoxDisks); err != nil || strings.TrimSpace(string(disks)) != "" {
		return ProxmoxDisks + " is not empty: proxmox-boot-tool keeps the menu on the EFI partitions: add the argument to " + loader.AppendTo + " in " +
			loader.DefaultFile + " and to /etc/kernel/cmdline, and run proxmox-boot-tool refresh"
	}
	if reason := grubcfg.MenuOnEFI(s.FS); reason != "" {
		return reason
	}
	b, reason := l.ReadBooted()
	if reason != "" || b.Entry == nil || s.FS.IsImage() {
		return reason
	}
	cmdline, err := s.ReadCommandLine()
	if err != nil {
		return err.Error()
	}
	if reason := badImage(&b, cmdline, s.FS); reason != "" {
		return reason
	}
	return badArgument(&b, slices.DeleteFunc(argument.Without(cmdline, s.ManagedSinceBoot(l.Form())), func(arg host.Argument) bool {
		return arg.Is("BOOT_IMAGE") || isEFIInitrd(arg) || slices.ContainsFunc(s.named, arg.Is)
	}), s.SameDevice)
}

// isEFIInitrd reports whether an argument is the initrd that systemd-boot passes to the kernel.
func isEFIInitrd(arg host.Argument) bool {
	return arg.Is("initrd") && strings.HasPrefix(arg.Value, `\`)
}

// badImage returns a message if no entry loads the running kernel. After the removal of that kernel, another one in its directory is enough.
func badImage(b *loader.Booted, cmdline []host.Argument, fs host.FS) string {
	arg, _ := argument.Last(cmdline, "BOOT_IMAGE")
	image := grubcfg.ImagePath(arg.Value)
	if b.Reported {
		return ""
	}
	if image == "" {
		return "GRUB is installed, but did not load the running kernel (no BOOT_IMAGE in " + loader.CommandLine + "): " + loader.OtherMenu
	}
	removed := !fs.Exists(path.Join("/boot", path.Base(image)))
	if slices.ContainsFunc(b.Menu.Lines, func(line loader.Line) bool {
		kernel := grubcfg.ImagePath(b.Expand(line.Kernel))
		return kernel == image || removed && path.Dir(kernel) == path.Dir(image)
	}) {
		return ""
	}
	return fmt.Sprintf("%s has %s, which no entry of %s loads: %s", loader.CommandLine, arg, b.Names.Menu, loader.OtherMenu)
}

// badArgument returns a message about the first argument that the default entry does not pass. Empty if it passes all. Another name for the same
// root device is the same argument: a menu of an image build names it by label, and a new one by UUID.
func badArgument(b *loader.Booted, args []host.Argument, sameDevice func(a, b string) bool) string {
	var passed []host.Argument
	for _, line := range b.Entry.Lines {
		for _, arg := range line.Args {
			passed = append(passed, host.ParseArguments(b.Expand(arg.String()))...)
		}
	}
	root, _ := argument.Last(passed, "root")
	for _, arg := range argument.Without(args, passed) {
		if arg.Is("root") && sameDevice(arg.Value, root.Value) {
			continue
		}
		place := cmp.Or(b.Entry.File, b.Names.Menu)
		if number := b.Entry.Lines[0].Number; number > 0 {
			place += fmt.Sprintf(" (line %d)", number)
		}
		return fmt.Sprintf("%s has %s, which the default entry of %s does not pass: %s", loader.CommandLine, arg, place, loader.OtherMenu)
	}
	return ""
}
