package bootloader

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
)

// customEntry is a menu entry of a generator other than 10_linux, which boots the same kernel.
const customEntry = "menuentry 'Mine' --id mine {\n\tlinux /boot/vmlinuz-6.1.0-25-amd64 root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro quiet\n}\n"

func section(name, lines string) string {
	return "### BEGIN /etc/grub.d/" + name + " ###\n" + lines + "### END /etc/grub.d/" + name + " ###\n"
}

// environmentBlock returns GRUB's environment block with these lines.
func environmentBlock(lines string) string {
	return envHead + lines + strings.Repeat("#", envSize-len(envHead)-len(lines))
}

func (m *machine) addArgument(argument string) {
	m.write(commandLine, strings.TrimSpace(m.read(commandLine))+" "+argument+"\n")
}

func TestAMenuThatMayNotBeTheOneThatBootsIsNotChanged(t *testing.T) {
	const savedDefault = `set default="0"`
	tests := map[string]struct {
		prepare func(*machine)
		says    string
	}{
		"the running kernel has an argument of no entry": {func(m *machine) { m.addArgument("intel_iommu=on") }, "intel_iommu=on"},
		"the running kernel has another value":           {func(m *machine) { m.addArgument("root=ZFS=rpool/ROOT/pve-1") }, "root=ZFS=rpool/ROOT/pve-1"},
		"only another entry passes the argument": {func(m *machine) {
			m.write(grubCfg, m.read(grubCfg)+section("40_custom", strings.Replace(customEntry, "quiet", "quiet single", 1)))
			m.addArgument("single")
		}, "single"},
		"the kernel was loaded from a path of no entry": {func(m *machine) { m.replace(commandLine, "/boot/vmlinuz", "/vmlinuz") }, "BOOT_IMAGE=/vmlinuz-6.1.0-25-amd64"},
		"a removed kernel was loaded from another directory": {func(m *machine) {
			m.replace(commandLine, "/boot/vmlinuz-6.1.0-25-amd64", "/EFI/proxmox/6.1.0-27/vmlinuz-6.1.0-27-amd64")
		}, "BOOT_IMAGE=/EFI/"},
		"another generator made the first entry": {func(m *machine) {
			m.replace(grubCfg, "### BEGIN /etc/grub.d/10_linux", section("09_mine", customEntry)+"### BEGIN /etc/grub.d/10_linux")
		}, "09_mine"},
		"the default is another generator's entry by its ID": {func(m *machine) {
			m.write(grubCfg, m.read(grubCfg)+section("40_custom", customEntry))
			m.replace(grubCfg, savedDefault, `set default="mine"`)
		}, "40_custom"},
		"the default is another generator's entry by its title": {func(m *machine) {
			m.write(grubCfg, m.read(grubCfg)+section("40_custom", customEntry))
			m.replace(grubCfg, savedDefault, `set default="Mine"`)
		}, "40_custom"},
		"the default is another generator's entry by its index": {func(m *machine) {
			m.write(grubCfg, m.read(grubCfg)+section("40_custom", customEntry))
			m.replace(grubCfg, savedDefault, `set default="2"`)
		}, "40_custom"},
		"another generator's entry is saved as the default": {func(m *machine) {
			m.write(grubCfg, m.read(grubCfg)+section("40_custom", customEntry))
			m.replace(grubCfg, savedDefault, `set default="${saved_entry}"`)
			m.write(grubEnv, environmentBlock("saved_entry=mine\n"))
		}, "40_custom"},
		"another generator's entry boots once": {func(m *machine) {
			m.write(grubCfg, m.read(grubCfg)+section("40_custom", customEntry))
			m.write(grubEnv, environmentBlock("next_entry=mine\n"))
		}, "40_custom"},
		"custom.cfg has the default entry": {func(m *machine) {
			m.write(grubCfg, m.read(grubCfg)+section("41_custom", "if [ -f  ${config_directory}/custom.cfg ]; then\n  source ${config_directory}/custom.cfg\nfi\n"))
			m.write("/boot/grub/custom.cfg", customEntry+"set default=mine\n")
		}, "custom.cfg"},
		"the default is a recovery entry": {func(m *machine) { m.replace(grubCfg, savedDefault, `set default="1>1"`) }, "recovery"},
		"the firmware's GRUB has a menu of its own": {func(m *machine) {
			m.write("/sys/firmware/efi/fw_platform_size", "64\n")
			m.write("/boot/efi/EFI/debian/grub.cfg", m.read(grubCfg))
		}, "/boot/efi/EFI/debian/grub.cfg"},
		"Proxmox keeps the menu": {func(m *machine) { m.write(proxmoxDisks, "5E2C-71A4\n") }, "proxmox-boot-tool refresh"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			test.prepare(m)
			before := m.read(grubCfg)
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Unsupported, test.says)
			if len(m.agentFiles()) > 0 || m.read(grubCfg) != before {
				t.Errorf("changed files: got %v, want none", m.agentFiles())
			}
			if found := m.subject.Detect(); found.Type != Unsupported || !strings.Contains(found.Message, test.says) {
				t.Errorf("boot loader: got %+v, want it to be unsupported because of %q", found, test.says)
			}
		})
		t.Run(name+", after staging", func(t *testing.T) {
			m := newMachine(t, debian)
			m.apply(settings(ihash, seed))
			test.prepare(m)
			found := m.subject.Detect()
			if found.Type != GrubDebian || found.MayReboot() || !strings.Contains(found.Message, test.says) {
				t.Errorf("boot loader: got %+v, want no reboot for it, because of %q", found, test.says)
			}
			m.restart()
			m.apply(nil)
			if strings.Contains(m.read(grubCfg), ihash) || m.fs.Exists(DropIn) {
				t.Error("the argument is not removed")
			}
		})
	}
}

func TestTheMenuThatBootsIsRecognized(t *testing.T) {
	tests := map[string]struct {
		fixture string
		prepare func(*machine)
	}{
		"as installed":                         {debian, func(*machine) {}},
		"with a second attempt without initrd": {ubuntu, func(*machine) {}},
		"booted with staged arguments that are removed since": {debian, func(m *machine) {
			m.apply(settings(ihash, seed, "audit", "0"))
			m.boot(16777216)
			m.apply(settings("audit", "0"))
			m.apply(nil)
		}},
		"a newer kernel was installed":                          {debian, func(m *machine) { m.newKernel("6.1.0-30-amd64"); m.makeGrubCfg() }},
		"booted a recovery entry's kernel with fewer arguments": {debian, func(m *machine) { m.replace(commandLine, " quiet", "") }},
		"the saved default is an entry of 10_linux": {debian, func(m *machine) {
			m.replace(grubCfg, `set default="0"`, `set default="${saved_entry}"`)
			m.write(grubEnv, environmentBlock("saved_entry=gnulinux-advanced-6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11>gnulinux-6.1.0-18-amd64-advanced-6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11\n"))
		}},
		"the saved default is gone": {debian, func(m *machine) {
			m.replace(grubCfg, `set default="0"`, `set default="${saved_entry}"`)
			m.write(grubEnv, environmentBlock("saved_entry=gnulinux-gone\n"))
		}},
		"an argument comes from the environment block": {debian, func(m *machine) {
			m.replace(grubCfg, "ro  quiet", "ro $kernelopts quiet")
			m.write(grubEnv, environmentBlock("kernelopts=mitigations=off iommu=pt\n"))
			m.addArgument("mitigations=off")
			m.addArgument("iommu=pt")
		}},
		"an argument comes from a variable of the menu": {debian, func(m *machine) {
			m.replace(grubCfg, "ro  quiet", "ro quiet $vt_handoff")
			m.replace(grubCfg, "menuentry 'Debian GNU/Linux' ", "function gfxmode {\n\tset vt_handoff=vt.handoff=7\n}\nmenuentry 'Debian GNU/Linux' ")
			m.addArgument("vt.handoff=7")
		}},
		"GRUB names the disk of the kernel": {debian, func(m *machine) { m.replace(commandLine, "BOOT_IMAGE=", "BOOT_IMAGE=(hd0,gpt2)") }},
		"the firmware's GRUB loads the menu": {debian, func(m *machine) {
			m.write("/sys/firmware/efi/fw_platform_size", "64\n")
			m.write("/boot/efi/EFI/debian/grub.cfg", "search.fs_uuid 6f4ac8a5 root\nset prefix=($root)'/boot/grub'\nconfigfile $prefix/grub.cfg\n")
		}},
		"a menu on the EFI partition of a machine without EFI": {debian, func(m *machine) { m.write("/boot/efi/EFI/debian/grub.cfg", m.read(grubCfg)) }},
		"custom.cfg has an entry that is not the default": {debian, func(m *machine) {
			m.write(grubCfg, m.read(grubCfg)+section("41_custom", "if [ -f  ${config_directory}/custom.cfg ]; then\n  source ${config_directory}/custom.cfg\nfi\n"))
			m.write("/boot/grub/custom.cfg", customEntry)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, test.fixture)
			test.prepare(m)
			if found := m.subject.Detect(); !found.MayReboot() {
				t.Errorf("boot loader: got %+v, want it to be proven", found)
			}
		})
	}
}

func TestNoRebootWhileAKernelIsLoadedForKexec(t *testing.T) {
	m := newMachine(t, debian)
	m.write(kexecLoaded, "1\n")
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "staged")
	if found := m.subject.Detect(); found.Type != GrubDebian || found.MayReboot() || !strings.Contains(found.Message, "kexec --unload") {
		t.Errorf("boot loader: got %+v, want no reboot", found)
	}
	m.write(kexecLoaded, "0\n")
	if found := m.subject.Detect(); !found.MayReboot() {
		t.Errorf("boot loader without a loaded kernel: got %+v", found)
	}
}

func TestADamagedMenuCanBeParsed(t *testing.T) {
	damaged := strings.TrimSuffix(section("42_storage-client", "menuentry 'x' {\n"), "\n") + "\n" + section("10_linux", "\tlinux /boot/vmlinuz-1 ro\n")
	if got := parseMenu(damaged); len(got.lines) != 0 || got.whole {
		t.Errorf("got %+v, want no entry", got)
	}
}
