package bootloader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/grub"
)

const (
	// upstreamScript is a grub2-mkconfig that reads no drop-ins on its own, like the upstream version.
	upstreamScript = "if test -f ${sysconfdir}/default/grub ; then\n  . ${sysconfdir}/default/grub\nfi\n"
	azureMenu      = "### BEGIN /etc/grub.d/10_linux ###\nmenuentry 'AzureLinux GNU/Linux' --class azurelinux $menuentry_id_option 'gnulinux-simple-1' {\n" +
		"\tlinux\t/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n}\n### END /etc/grub.d/10_linux ###\n"
)

// azureFiles contains the boot configuration of Azure Linux 3: microsoft/azurelinux, toolkit/resources/assets/grub2/grub.
var azureFiles = map[string]string{
	"/etc/os-release":          "NAME=\"Microsoft Azure Linux\"\nID=azurelinux\nPRETTY_NAME=\"Microsoft Azure Linux 3.0\"\n",
	"/usr/sbin/grub2-mkconfig": upstreamScript,
	"/boot/grub2/grub.cfg":     azureMenu,
	defaultFile: "GRUB_TIMEOUT=0\nGRUB_DISABLE_RECOVERY=true\nGRUB_CMDLINE_LINUX=\"lockdown=integrity\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"loglevel=3\"\n" +
		"for dropin in /etc/default/grub.d/*.cfg ; do\n    if [ -e \"$dropin\" ]; then\n        . \"$dropin\"\n    fi\ndone\n",
}

// newAzure returns an Azure Linux whose GRUB can write to its environment block. An agent runs after each boot.
func newAzure(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, debian)
	for _, name := range []string{"/boot", "/usr/sbin/grub-mkconfig", "/etc/default"} {
		m.remove(name)
	}
	for name, data := range azureFiles {
		m.write(name, data)
	}
	m.names = grub2Names
	m.write("/boot/vmlinuz-6.6.51.1-5.azl3", "")
	m.write("/boot/initrd.img-6.6.51.1-5.azl3", "")
	m.write(commandLine, "BOOT_IMAGE=/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n")
	m.makeTrying()
	if err := os.Chmod(filepath.Join(m.dir, grub2Cfg), 0o400); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLifecycleOfAnArgumentOnAzureLinux(t *testing.T) {
	m := newAzure(t)
	before := hosttest.ReadTree(t, m.dir, "/boot", "/etc")
	m.apply(settings(ihash, "1048576"))
	expect(t, m.observe(ihash, "1048576"), host.Pending, "trial boot: ")
	if !strings.Contains(m.read(grub2Cfg), "ro lockdown=integrity loglevel=3 ihash_entries=1048576") {
		t.Errorf("the menu is\n%s", m.read(grub2Cfg))
	}
	if info, err := os.Stat(filepath.Join(m.dir, grub2Cfg)); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("mode of the menu: got %v, error %v", info.Mode(), err)
	}
	if found := m.subject.Detect(); found.Type != Grub2Mkconfig || !found.MayReboot() || found.Message != "" {
		t.Errorf("the boot loader permits no reboot: %+v", found)
	}
	m.prepareReboot()
	m.expectBoot(m.start(1048576), false, true)
	m.apply(settings(ihash, "1048576"))
	expect(t, m.observe(ihash, "1048576"), host.InSync)
	m.apply(nil)
	expect(t, m.restore(ihash, host.Original{}), host.Pending, "effective until the next reboot")
	if diff := cmp.Diff(before, hosttest.ReadTree(t, m.dir, "/boot", "/etc")); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

// Real boots have shown grub2-mkconfig only with trials. Without one, the arguments are staged, and the node is not rebooted.
func TestAzureLinuxIsNotRebootedWithoutATrial(t *testing.T) {
	tests := map[string]struct {
		prepare func(*machine)
		says    []string
	}{
		"there is no environment block": {func(m *machine) { m.remove(m.grub().env()) }, []string{"grub2-editenv /boot/grub2/grubenv create"}},
		"GRUB cannot write to the block": {func(m *machine) { m.commands.Output["grub2-probe --target=fs /boot/grub2"] = "btrfs\n" },
			[]string{"/boot/grub2/grubenv on btrfs"}},
		"the check fails": {func(m *machine) { delete(m.commands.Output, "grub2-probe --target=fs /boot/grub2") }, []string{"cannot check whether"}},
		"the saved entry is the default": {func(m *machine) {
			m.write(defaultFile, "GRUB_DEFAULT=saved\n"+m.read(defaultFile))
			m.updateGrub()
		}, []string{"/boot/grub2/grub.cfg line 16", "set GRUB_DEFAULT=0 in /etc/default/grub and run grub2-mkconfig -o /boot/grub2/grub.cfg"}},
		"the menu does not read the block": {func(m *machine) { m.replaceInMenus("load_env", "true") },
			[]string{"/boot/grub2/grub.cfg does not read /boot/grub2/grubenv: run grub2-mkconfig -o"}},
		"an earlier release has staged without a trial": {func(m *machine) {
			m.attended = false
			m.restart()
			m.apply(settings(ihash, seed))
			m.attended = true
		}, []string{"the argument was staged without one"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newAzure(t)
			test.prepare(m)
			for range 2 {
				m.restart()
				m.apply(settings(ihash, seed))
				expect(t, m.observe(ihash, seed), host.Pending, "no fallback entry")
				found := m.subject.Detect()
				if found.Type != Grub2Mkconfig || found.MayReboot() {
					t.Errorf("the boot loader permits a reboot: %+v", found)
				}
				for _, says := range append(test.says, DropIn) {
					if !strings.Contains(found.Message, says) {
						t.Errorf("message: got %q, want it to contain %q", found.Message, says)
					}
				}
			}
		})
	}
}

func TestConflictsOnAzureLinuxNameItsOwnFiles(t *testing.T) {
	m := newAzure(t)
	expect(t, m.observe("loglevel", "7"), host.Failed, "conflict: /etc/default/grub sets loglevel=3")
	m.replace(grub2Cfg, "loglevel=3", "loglevel=3 audit=1")
	expect(t, m.observe("audit", "0"), host.Failed, "conflict: /boot/grub2/grub.cfg sets audit=1")
}

func TestOnlyBashAppendsToAVariable(t *testing.T) {
	const file = "/etc/default/grub.d/90-perf.cfg"
	for shell, want := range map[string]host.State{"bash": host.Failed, "sh": host.Failed, "dash": host.Pending, "busybox": host.Pending} {
		t.Run(shell, func(t *testing.T) {
			m := newAzure(t)
			m.write("/usr/bin/"+shell, "")
			if shell != "sh" {
				if err := os.Symlink(shell, filepath.Join(m.dir, "/usr/bin/sh")); err != nil {
					t.Fatal(err)
				}
			}
			m.write(file, "GRUB_CMDLINE_LINUX_DEFAULT+=\" ihash_entries=4194304 iommu=pt\"\n")
			m.apply(settings(ihash, seed))
			got := m.observe(ihash, seed)
			expect(t, got, want)
			if want == host.Failed {
				expect(t, got, want, "conflict: "+file+" sets ihash_entries=4194304")
			}
		})
	}
}

// fedoraBlock is the part of Fedora's 00_header that reads the block. Debian's is debianBlock.
const (
	debianBlock = "if [ -s $prefix/grubenv ]; then\n  set have_grubenv=true\n  load_env\nfi\n"
	fedoraBlock = "if [ -f ${config_directory}/grubenv ]; then\n  load_env -f ${config_directory}/grubenv\nelif [ -s $prefix/grubenv ]; then\n  load_env\nfi\n"
)

// The menu reads the block in its own directory, and GRUB writes that of its prefix. If they are not the same file, an argument is not tried at each start.
func TestBlockThatGRUBReadsButDoesNotWrite(t *testing.T) {
	tests := map[string]struct {
		prepare func(*machine)
		tries   int
	}{
		"the other has no state":    {func(m *machine) { m.write("/boot/efi/grubenv", grub.PadBlock(grub.EmptyBlock)) }, 0},
		"there is no other":         {func(*machine) {}, 0},
		"the other is a copy of it": {func(m *machine) { m.write("/boot/efi/grubenv", m.read(m.grub().env())) }, 1},
		"the other has an old state": {func(m *machine) {
			m.write("/boot/efi/grubenv", grub.PadBlock(grub.EmptyBlock+trialVariable+"="+trialFailed+"\n"))
		}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newAzure(t)
			m.replaceInMenus(debianBlock, fedoraBlock)
			m.apply(settings(ihash, seed))
			if found := m.subject.Detect(); !found.MayReboot() {
				t.Errorf("not rebooted: %+v", found)
			}
			m.prepareReboot()
			test.prepare(m)
			for n := range 4 {
				boot, err := grub.StartFrom(m.dir, "/boot/efi")
				if err != nil {
					t.Fatal(err)
				}
				m.expectBoot(boot, n >= test.tries, n < test.tries)
			}
			m.bootWith("root=UUID=1 ro lockdown=integrity loglevel=3 BOOT_IMAGE=/boot/vmlinuz-6.6.51.1-5.azl3", 262144)
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Failed, "not passed")
		})
	}
}

func TestAzureLinuxWithFedorasHeaderHasTrials(t *testing.T) {
	m := newAzure(t)
	m.replaceInMenus(debianBlock, fedoraBlock)
	m.apply(settings(ihash, seed))
	m.prepareReboot()
	m.expectBoot(m.start(16777216), false, true)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.commands.AfterMenu = nil
	m.replaceInMenus(debianBlock, strings.ReplaceAll(fedoraBlock, "${config_directory}", "($root)/other"))
	m.apply(settings(ihash, "1048576"))
	if found := m.subject.Detect(); found.MayReboot() || !strings.Contains(found.Message, "does not read") {
		t.Errorf("a menu with the block of another directory: %+v", found)
	}
}
