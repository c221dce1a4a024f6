package grub_test

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
)

// customEntry is a menu entry of a generator other than 10_linux, which boots the same kernel.
const customEntry = "menuentry 'Mine' --id mine {\n\tlinux /boot/vmlinuz-6.1.0-25-amd64 root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro quiet\n}\n"

func section(name, lines string) string {
	return "### BEGIN /etc/grub.d/" + name + " ###\n" + lines + "### END /etc/grub.d/" + name + " ###\n"
}

// environmentBlock returns GRUB's environment block with these lines.
func environmentBlock(lines string) string {
	return grubcfg.EnvHead + lines + strings.Repeat("#", grubcfg.EnvSize-len(grubcfg.EnvHead)-len(lines))
}

func TestAMenuThatMayNotBeTheOneThatBootsIsNotChanged(t *testing.T) {
	const savedDefault = `set default="0"`
	tests := map[string]struct {
		prepare func(*rig.Machine)
		says    string
	}{
		"the running kernel has an argument of no entry": {func(m *rig.Machine) { m.AddArgument("intel_iommu=on") }, "intel_iommu=on"},
		"the running kernel has another value":           {func(m *rig.Machine) { m.AddArgument("root=ZFS=rpool/ROOT/pve-1") }, "root=ZFS=rpool/ROOT/pve-1"},
		"only another entry passes the argument": {func(m *rig.Machine) {
			m.Write(grubcfg.Debian, m.Read(grubcfg.Debian)+section("40_custom", strings.Replace(customEntry, "quiet", "quiet single", 1)))
			m.AddArgument("single")
		}, "single"},
		"the kernel was loaded from a path of no entry": {func(m *rig.Machine) { m.Replace(loader.CommandLine, "/boot/vmlinuz", "/vmlinuz") }, "BOOT_IMAGE=/vmlinuz-6.1.0-25-amd64"},
		"a removed kernel was loaded from another directory": {func(m *rig.Machine) {
			m.Replace(loader.CommandLine, "/boot/vmlinuz-6.1.0-25-amd64", "/EFI/proxmox/6.1.0-27/vmlinuz-6.1.0-27-amd64")
		}, "BOOT_IMAGE=/EFI/"},
		"another generator made the first entry": {func(m *rig.Machine) {
			m.Replace(grubcfg.Debian, "### BEGIN /etc/grub.d/10_linux", section("09_mine", customEntry)+"### BEGIN /etc/grub.d/10_linux")
		}, "09_mine"},
		"the default is another generator's entry by its ID": {func(m *rig.Machine) {
			m.Write(grubcfg.Debian, m.Read(grubcfg.Debian)+section("40_custom", customEntry))
			m.Replace(grubcfg.Debian, savedDefault, `set default="mine"`)
		}, "40_custom"},
		"the default is another generator's entry by its title": {func(m *rig.Machine) {
			m.Write(grubcfg.Debian, m.Read(grubcfg.Debian)+section("40_custom", customEntry))
			m.Replace(grubcfg.Debian, savedDefault, `set default="Mine"`)
		}, "40_custom"},
		"the default is another generator's entry by its index": {func(m *rig.Machine) {
			m.Write(grubcfg.Debian, m.Read(grubcfg.Debian)+section("40_custom", customEntry))
			m.Replace(grubcfg.Debian, savedDefault, `set default="2"`)
		}, "40_custom"},
		"another generator's entry is saved as the default": {func(m *rig.Machine) {
			m.Write(grubcfg.Debian, m.Read(grubcfg.Debian)+section("40_custom", customEntry))
			m.Replace(grubcfg.Debian, savedDefault, `set default="${saved_entry}"`)
			m.Write(rig.GrubEnv, environmentBlock("saved_entry=mine\n"))
		}, "40_custom"},
		"another generator's entry boots once": {func(m *rig.Machine) {
			m.Write(grubcfg.Debian, m.Read(grubcfg.Debian)+section("40_custom", customEntry))
			m.Write(rig.GrubEnv, environmentBlock("next_entry=mine\n"))
		}, "40_custom"},
		"custom.cfg has the default entry": {func(m *rig.Machine) {
			m.Write(grubcfg.Debian, m.Read(grubcfg.Debian)+section("41_custom", "if [ -f  ${config_directory}/custom.cfg ]; then\n  source ${config_directory}/custom.cfg\nfi\n"))
			m.Write("/boot/grub/custom.cfg", customEntry+"set default=mine\n")
		}, "custom.cfg"},
		"the default is a recovery entry": {func(m *rig.Machine) { m.Replace(grubcfg.Debian, savedDefault, `set default="1>1"`) }, "recovery"},
		"the firmware's GRUB has a menu of its own": {func(m *rig.Machine) {
			m.Write("/sys/firmware/efi/fw_platform_size", "64\n")
			m.Write("/boot/efi/EFI/debian/grub.cfg", m.Read(grubcfg.Debian))
		}, "/boot/efi/EFI/debian/grub.cfg"},
		"Proxmox keeps the menu": {func(m *rig.Machine) { m.Write(life.ProxmoxDisks, "5E2C-71A4\n") }, "proxmox-boot-tool refresh"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			test.prepare(m)
			before := m.Read(grubcfg.Debian)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Unsupported, test.says)
			if len(m.AgentFiles()) > 0 || m.Read(grubcfg.Debian) != before {
				t.Errorf("changed files: got %v, want none", m.AgentFiles())
			}
			if found := m.Subject.Detect(); found.Type != loader.Unsupported || !strings.Contains(found.Message, test.says) {
				t.Errorf("boot loader: got %+v, want it to be unsupported because of %q", found, test.says)
			}
		})
		t.Run(name+", after staging", func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			test.prepare(m)
			found := m.Subject.Detect()
			if found.Type != loader.GrubDebian || found.MayReboot() || !strings.Contains(found.Message, test.says) {
				t.Errorf("boot loader: got %+v, want no reboot for it, because of %q", found, test.says)
			}
			m.Restart()
			m.Apply(nil)
			if strings.Contains(m.Read(grubcfg.Debian), rig.Ihash) || m.FS.Exists(loader.DropIn) {
				t.Error("the argument is not removed")
			}
		})
	}
}

func TestTheMenuThatBootsIsRecognized(t *testing.T) {
	tests := map[string]struct {
		fixture string
		prepare func(*rig.Machine)
	}{
		"as installed":                         {rig.Debian, func(*rig.Machine) {}},
		"with a second attempt without initrd": {rig.Ubuntu, func(*rig.Machine) {}},
		"booted with staged arguments that are removed since": {rig.Debian, func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
			m.Boot(16777216)
			m.Apply(rig.Settings("audit", "0"))
			m.Apply(nil)
		}},
		"a newer kernel was installed":                          {rig.Debian, func(m *rig.Machine) { m.NewKernel("6.1.0-30-amd64"); m.MakeGrubCfg() }},
		"booted a recovery entry's kernel with fewer arguments": {rig.Debian, func(m *rig.Machine) { m.Replace(loader.CommandLine, " quiet", "") }},
		"the saved default is an entry of 10_linux": {rig.Debian, func(m *rig.Machine) {
			m.Replace(grubcfg.Debian, `set default="0"`, `set default="${saved_entry}"`)
			m.Write(rig.GrubEnv, environmentBlock("saved_entry=gnulinux-advanced-6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11>gnulinux-6.1.0-18-amd64-advanced-6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11\n"))
		}},
		"the saved default is gone": {rig.Debian, func(m *rig.Machine) {
			m.Replace(grubcfg.Debian, `set default="0"`, `set default="${saved_entry}"`)
			m.Write(rig.GrubEnv, environmentBlock("saved_entry=gnulinux-gone\n"))
		}},
		"an argument comes from the environment block": {rig.Debian, func(m *rig.Machine) {
			m.Replace(grubcfg.Debian, "ro  quiet", "ro $kernelopts quiet")
			m.Write(rig.GrubEnv, environmentBlock("kernelopts=mitigations=off iommu=pt\n"))
			m.AddArgument("mitigations=off")
			m.AddArgument("iommu=pt")
		}},
		"an argument comes from a variable of the menu": {rig.Debian, func(m *rig.Machine) {
			m.Replace(grubcfg.Debian, "ro  quiet", "ro quiet $vt_handoff")
			m.Replace(grubcfg.Debian, "menuentry 'Debian GNU/Linux' ", "function gfxmode {\n\tset vt_handoff=vt.handoff=7\n}\nmenuentry 'Debian GNU/Linux' ")
			m.AddArgument("vt.handoff=7")
		}},
		"GRUB names the disk of the kernel": {rig.Debian, func(m *rig.Machine) { m.Replace(loader.CommandLine, "BOOT_IMAGE=", "BOOT_IMAGE=(hd0,gpt2)") }},
		"the firmware's GRUB loads the menu": {rig.Debian, func(m *rig.Machine) {
			m.Write("/sys/firmware/efi/fw_platform_size", "64\n")
			m.Write("/boot/efi/EFI/debian/grub.cfg", "search.fs_uuid 6f4ac8a5 root\nset prefix=($root)'/boot/grub'\nconfigfile $prefix/grub.cfg\n")
		}},
		"a menu on the EFI partition of a machine without EFI": {rig.Debian, func(m *rig.Machine) { m.Write("/boot/efi/EFI/debian/grub.cfg", m.Read(grubcfg.Debian)) }},
		"custom.cfg has an entry that is not the default": {rig.Debian, func(m *rig.Machine) {
			m.Write(grubcfg.Debian, m.Read(grubcfg.Debian)+section("41_custom", "if [ -f  ${config_directory}/custom.cfg ]; then\n  source ${config_directory}/custom.cfg\nfi\n"))
			m.Write("/boot/grub/custom.cfg", customEntry)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, test.fixture)
			test.prepare(m)
			if found := m.Subject.Detect(); !found.MayReboot() {
				t.Errorf("boot loader: got %+v, want it to be proven", found)
			}
		})
	}
}

func TestNoRebootWhileAKernelIsLoadedForKexec(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Write(life.KexecLoaded, "1\n")
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "staged")
	if found := m.Subject.Detect(); found.Type != loader.GrubDebian || found.MayReboot() || !strings.Contains(found.Message, "kexec --unload") {
		t.Errorf("boot loader: got %+v, want no reboot", found)
	}
	m.Write(life.KexecLoaded, "0\n")
	if found := m.Subject.Detect(); !found.MayReboot() {
		t.Errorf("boot loader without a loaded kernel: got %+v", found)
	}
}

func TestADamagedMenuCanBeParsed(t *testing.T) {
	damaged := strings.TrimSuffix(section("42_storage-client", "menuentry 'x' {\n"), "\n") + "\n" + section("10_linux", "\tlinux /boot/vmlinuz-1 ro\n")
	if got := grubcfg.Parse(damaged); len(got.Lines) != 0 || got.Whole {
		t.Errorf("got %+v, want no entry", got)
	}
}
