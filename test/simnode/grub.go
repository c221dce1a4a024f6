package simnode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host/hosttest/grub"
)

// maxStarts is the maximum number of power cycles of a machine that does not boot.
const maxStarts = 3

// menu is the form of the output of Debian's 10_linux, which follows grub.Header: one entry, and its recovery entry in a submenu. The
// output of other generators follows.
const menu = `### BEGIN /etc/grub.d/10_linux ###
menuentry 'Debian GNU/Linux' --class debian --class gnu-linux $menuentry_id_option 'gnulinux-simple-sim' {
	linux	%[1]s %[2]s
	initrd	/boot/initrd.img
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-sim' {
	menuentry 'Debian GNU/Linux, with Linux %[4]s' --class debian $menuentry_id_option 'gnulinux-%[4]s-advanced-sim' {
		linux	%[1]s %[2]s
		initrd	/boot/initrd.img
	}
	menuentry 'Debian GNU/Linux, with Linux %[4]s (recovery mode)' --class debian $menuentry_id_option 'gnulinux-%[4]s-recovery-sim' {
		linux	%[1]s %[3]s
		initrd	/boot/initrd.img
	}
}
### END /etc/grub.d/10_linux ###
`

// commands runs the host commands of a simulated machine. It implements host.Runner.
type commands struct{ machine *Machine }

// Run simulates the effects of a command that the agent relies on.
func (c commands) Run(_ context.Context, argv ...string) ([]byte, error) {
	switch {
	case len(argv) == 3 && argv[0] == "grub-mkconfig" && argv[1] == "-o":
		return nil, c.machine.makeMenu(argv[2])
	case argv[0] == "grub-probe" && slices.Contains(argv, "--target=fs"):
		return []byte("ext2\n"), nil
	case argv[0] == "grub-probe":
		// A partition, with nothing like LVM in between.
		return []byte("\n"), nil
	case argv[0] == "journalctl" || argv[0] == "dmesg":
		return []byte(c.machine.Log()), nil
	}
	return nil, fmt.Errorf("run %s: not on a simulated machine", strings.Join(argv, " "))
}

// makeMenu simulates grub-mkconfig. It sources the assignments in name order, and later ones win.
func (m *Machine) makeMenu(name string) error {
	sources, err := filepath.Glob(m.hostPath("/etc/default/grub.d/*.cfg"))
	if err != nil {
		return fmt.Errorf("list grub.d of the simulated machine: %w", err)
	}
	slices.Sort(sources)
	variables := map[string]string{}
	for _, source := range append([]string{m.hostPath("/etc/default/grub")}, sources...) {
		data, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("read %s: %w", source, err)
		}
		for line := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
				variables[name] = os.Expand(strings.Trim(value, `"`), func(name string) string { return variables[name] })
			}
		}
	}
	always := strings.TrimSpace(rootArgs + " " + variables["GRUB_CMDLINE_LINUX"])
	normal := strings.TrimSpace(always + " " + variables["GRUB_CMDLINE_LINUX_DEFAULT"])
	generated, err := grub.GeneratedMenu(m.dir)
	if err != nil {
		return fmt.Errorf("generate the menu of the simulated machine: %w", err)
	}
	return m.writeFile(name, fmt.Sprintf(grub.Header, "0")+"\n"+fmt.Sprintf(menu, kernelImage, normal, always+" single", KernelVersion)+generated)
}

// bootArguments starts GRUB and returns the arguments that the menu passes to the kernel. If the kernel hangs with them, a power cycle
// starts GRUB again.
func (m *Machine) bootArguments() ([]string, error) {
	for range maxStarts {
		boot, err := grub.Start(m.dir)
		if err != nil {
			return nil, fmt.Errorf("boot the simulated machine: %w", err)
		}
		if !slices.ContainsFunc(boot.Arguments, m.hangsWith) {
			return boot.Arguments, nil
		}
	}
	return nil, fmt.Errorf("boot the simulated machine: it hangs at each of %d starts", maxStarts)
}

func (m *Machine) hangsWith(argument string) bool {
	name, _, _ := strings.Cut(argument, "=")
	return slices.Contains(m.options.HangingArguments, name)
}
