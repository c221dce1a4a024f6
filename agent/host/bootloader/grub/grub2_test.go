package grub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest"
	hostgrub "github.com/storageclient/operator/agent/host/hosttest/grub"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestLifecycleOfAnArgumentOnAzureLinux(t *testing.T) {
	m := rig.NewAzure(t)
	before := hosttest.ReadTree(t, m.Dir, "/boot", "/etc")
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	rig.Expect(t, m.Observe(rig.Ihash, "1048576"), host.Pending, "trial boot: ")
	if !strings.Contains(m.Read(grubcfg.Grub2), "ro lockdown=integrity loglevel=3 ihash_entries=1048576") {
		t.Errorf("the menu is\n%s", m.Read(grubcfg.Grub2))
	}
	if info, err := os.Stat(filepath.Join(m.Dir, grubcfg.Grub2)); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("mode of the menu: got %v, error %v", info.Mode(), err)
	}
	if found := m.Subject.Detect(); found.Type != loader.Grub2Mkconfig || !found.MayReboot() || found.Message != "" {
		t.Errorf("the boot loader permits no reboot: %+v", found)
	}
	m.PrepareReboot()
	m.ExpectBoot(m.Start(1048576), false, true)
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	rig.Expect(t, m.Observe(rig.Ihash, "1048576"), host.InSync)
	m.Apply(nil)
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.Pending, "effective until the next reboot")
	check.Equal(t, "after restore", before, hosttest.ReadTree(t, m.Dir, "/boot", "/etc"))
}

// Real boots have shown grub2-mkconfig only with trials. Without one, the arguments are staged, and the node is not rebooted.
func TestAzureLinuxIsNotRebootedWithoutATrial(t *testing.T) {
	tests := map[string]struct {
		prepare func(*rig.Machine)
		says    []string
	}{
		"there is no environment block": {func(m *rig.Machine) { m.Remove(m.Grub().Env()) }, []string{"grub2-editenv /boot/grub2/grubenv create"}},
		"GRUB cannot write to the block": {func(m *rig.Machine) { m.Commands.Output["grub2-probe --target=fs /boot/grub2"] = "btrfs\n" },
			[]string{"/boot/grub2/grubenv on btrfs"}},
		"the check fails": {func(m *rig.Machine) { delete(m.Commands.Output, "grub2-probe --target=fs /boot/grub2") }, []string{"cannot check whether"}},
		"the saved entry is the default": {func(m *rig.Machine) {
			m.Write(loader.DefaultFile, "GRUB_DEFAULT=saved\n"+m.Read(loader.DefaultFile))
			m.UpdateGrub()
		}, []string{"/boot/grub2/grub.cfg line 16", "set GRUB_DEFAULT=0 in /etc/default/grub and run grub2-mkconfig -o /boot/grub2/grub.cfg"}},
		"the menu does not read the block": {func(m *rig.Machine) { m.ReplaceInMenus("load_env", "true") },
			[]string{"/boot/grub2/grub.cfg does not read /boot/grub2/grubenv: run grub2-mkconfig -o"}},
		"an earlier release has staged without a trial": {func(m *rig.Machine) {
			m.Attended = false
			m.Restart()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Attended = true
		}, []string{"the argument was staged without one"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewAzure(t)
			test.prepare(m)
			for range 2 {
				m.Restart()
				m.Apply(rig.Settings(rig.Ihash, rig.Seed))
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "no fallback entry")
				found := m.Subject.Detect()
				if found.Type != loader.Grub2Mkconfig || found.MayReboot() {
					t.Errorf("the boot loader permits a reboot: %+v", found)
				}
				for _, says := range append(test.says, loader.DropIn) {
					if !strings.Contains(found.Message, says) {
						t.Errorf("message: got %q, want it to contain %q", found.Message, says)
					}
				}
			}
		})
	}
}

func TestConflictsOnAzureLinuxNameItsOwnFiles(t *testing.T) {
	m := rig.NewAzure(t)
	rig.Expect(t, m.Observe("loglevel", "7"), host.Failed, "conflict: /etc/default/grub sets loglevel=3")
	m.Replace(grubcfg.Grub2, "loglevel=3", "loglevel=3 audit=1")
	rig.Expect(t, m.Observe("audit", "0"), host.Failed, "conflict: /boot/grub2/grub.cfg sets audit=1")
}

func TestOnlyBashAppendsToAVariable(t *testing.T) {
	const file = "/etc/default/grub.d/90-perf.cfg"
	for shell, want := range map[string]host.State{"bash": host.Failed, "sh": host.Failed, "dash": host.Pending, "busybox": host.Pending} {
		t.Run(shell, func(t *testing.T) {
			m := rig.NewAzure(t)
			m.Write("/usr/bin/"+shell, "")
			if shell != "sh" {
				check.NoError(t, os.Symlink(shell, filepath.Join(m.Dir, "/usr/bin/sh")))
			}
			m.Write(file, "GRUB_CMDLINE_LINUX_DEFAULT+=\" ihash_entries=4194304 iommu=pt\"\n")
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			got := m.Observe(rig.Ihash, rig.Seed)
			rig.Expect(t, got, want)
			if want == host.Failed {
				rig.Expect(t, got, want, "conflict: "+file+" sets ihash_entries=4194304")
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
		prepare func(*rig.Machine)
		tries   int
	}{
		"the other has no state":    {func(m *rig.Machine) { m.Write("/boot/efi/grubenv", hostgrub.PadBlock(hostgrub.EmptyBlock)) }, 0},
		"there is no other":         {func(*rig.Machine) {}, 0},
		"the other is a copy of it": {func(m *rig.Machine) { m.Write("/boot/efi/grubenv", m.Read(m.Grub().Env())) }, 1},
		"the other has an old state": {func(m *rig.Machine) {
			m.Write("/boot/efi/grubenv", hostgrub.PadBlock(hostgrub.EmptyBlock+loader.TrialVariable+"="+loader.TrialFailed+"\n"))
		}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewAzure(t)
			m.ReplaceInMenus(debianBlock, fedoraBlock)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			if found := m.Subject.Detect(); !found.MayReboot() {
				t.Errorf("not rebooted: %+v", found)
			}
			m.PrepareReboot()
			test.prepare(m)
			for n := range 4 {
				boot, err := hostgrub.StartFrom(m.Dir, "/boot/efi")
				check.NoError(t, err)
				m.ExpectBoot(boot, n >= test.tries, n < test.tries)
			}
			m.BootWith("root=UUID=1 ro lockdown=integrity loglevel=3 BOOT_IMAGE=/boot/vmlinuz-6.6.51.1-5.azl3", 262144)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "not passed")
		})
	}
}

func TestAzureLinuxWithFedorasHeaderHasTrials(t *testing.T) {
	m := rig.NewAzure(t)
	m.ReplaceInMenus(debianBlock, fedoraBlock)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.PrepareReboot()
	m.ExpectBoot(m.Start(16777216), false, true)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.Commands.AfterMenu = nil
	m.ReplaceInMenus(debianBlock, strings.ReplaceAll(fedoraBlock, "${config_directory}", "($root)/other"))
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	if found := m.Subject.Detect(); found.MayReboot() || !strings.Contains(found.Message, "does not read") {
		t.Errorf("a menu with the block of another directory: %+v", found)
	}
}
