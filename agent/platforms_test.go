package agent

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/localreport"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

var updateDocs = flag.Bool("update", false, "write what is compared instead of comparing it: docs/platforms.md and the answers")

const platformsFile = "../docs/platforms.md"

// platforms are the systems in docs/platforms.md: trees of test/fixtures/hosts with the files of test/fixtures/platforms on top of
// them, after some files were removed. over can name several directories, in their order.
var platforms = []struct {
	name, tree, over string
	without          []string
}{
	{"Ubuntu 22.04 on AKS", "ubuntu-24.04-cloudimg", "ubuntu-22.04-aks", []string{"usr/libexec/nfsrahead"}},
	{"Ubuntu 24.04 on AKS", "ubuntu-24.04-cloudimg", "ubuntu-24.04-aks", nil},
	{"Azure Linux 3", "ubuntu-24.04-cloudimg", "azure-linux-3", []string{"boot", "usr/sbin/grub-mkconfig", "etc/default"}},
	{"Amazon Linux 2023", "rocky-9", "amazon-linux-2023", []string{"etc/tuned", "usr/lib/tuned", "usr/sbin/tuned-adm"}},
	{"RHEL 9 and derivatives", "rocky-9", "rhel-9", nil},
	{"SLES 15", "rocky-9", "sles-15", []string{"boot/loader", "usr/sbin/grubby", "etc/tuned", "usr/lib/tuned", "usr/sbin/tuned-adm"}},
	{"Debian 13", "debian-12", "debian-13", []string{"etc/sysctl.d/99-sysctl.conf"}},
	{"Debian 13 with systemd-boot", "debian-12", "debian-13 debian-13-systemd-boot", []string{"etc/sysctl.d/99-sysctl.conf", "boot", "usr/sbin/grub-mkconfig", "etc/default"}},
	{imagePlatform, "debian-12", "debian-13 debian-13-uki", []string{"etc/sysctl.d/99-sysctl.conf", "boot", "usr/sbin/grub-mkconfig", "etc/default"}},
	{"Talos", "talos", "", nil},
	{"Flatcar", "flatcar", "", nil},
	{"Bottlerocket", "flatcar", "bottlerocket", []string{"oem", "boot", "usr/sbin/mount.nfs"}},
	{"Container-Optimized OS", "flatcar", "container-optimized-os", []string{"oem", "boot", "usr/sbin/mount.nfs"}},
}

const imagePlatform = "Debian 13 with a unified kernel image"

// kernelImage returns the sections of a unified kernel image as systemd-boot reads them. No firmware would load it.
func kernelImage(t *testing.T, cmdline string) string {
	t.Helper()
	var head, content bytes.Buffer
	sections := [][2]string{{".sdmagic", "#### LoaderInfo: systemd-stub 257.8-1~deb13u2 ####"}, {".osrel", "ID=debian\nVERSION=\"13 (trixie)\"\n"}, {".cmdline", cmdline}}
	head.WriteString("MZ" + strings.Repeat("\x00", 58) + "\x40\x00\x00\x00PE\x00\x00")
	err := binary.Write(&head, binary.LittleEndian, pe.FileHeader{Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: uint16(len(sections))})
	for _, s := range sections {
		size, start := uint32(len(s[1])), uint32(512+content.Len())
		section := pe.SectionHeader32{VirtualSize: size, VirtualAddress: start, SizeOfRawData: size, PointerToRawData: start}
		copy(section.Name[:], s[0])
		err = errors.Join(err, binary.Write(&head, binary.LittleEndian, section))
		content.WriteString(s[1])
	}
	check.NoError(t, err)
	return head.String() + strings.Repeat("\x00", 512-head.Len()) + content.String()
}

// fields are the columns of the table, and the settings that represent them.
var fields = []struct{ title, key string }{
	{"`sysctls`", rmem}, {"slot tables, `kernelModules`", slots}, {"`kernelArguments`", ihash}, {"`readAhead`", readAhead4},
	{"`nfsMountDefaults`", nfsAll}, {"`filesystems`", diskFS}, {"`tuned`", profileOf},
}

// platformProfile has a setting for each column.
func platformProfile() v1alpha1.StorageClientProfile {
	p := everything()
	p.Spec.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216"}
	p.Spec.Node.KernelModules = p.Spec.Node.KernelModules[:1]
	p.Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=16777216"}
	p.Spec.Node.Filesystems[0].MountOptions = []v1alpha1.MountOption{"nodev"}
	return p
}

const (
	// dataDisk and share are mounted on every platform. If the platform has systemd, a unit mounts the disk.
	dataDisk = "91 25 8:17 / /mnt/disks/d1 rw,relatime shared:91 - xfs /dev/sdb1 rw,attr2,inode64,logbufs=8,logbsize=32k,noquota\n"
	share    = "92 25 0:52 / /mnt/nfs rw,relatime shared:92 - nfs4 192.0.2.10:/export rw,vers=4.1,proto=tcp,addr=192.0.2.10\n"
	diskUnit = "/run/systemd/generator/mnt-disks-d1.mount"
)

func newPlatform(t *testing.T, at int) *box {
	t.Helper()
	p := platforms[at]
	b := newBoxOf(t, p.tree)
	for _, name := range p.without {
		check.NoError(t, os.RemoveAll(filepath.Join(b.dir, name)))
	}
	for _, over := range strings.Fields(p.over) {
		hosttest.OverlayPlatform(t, b.dir, over)
	}
	if p.name == imagePlatform {
		hosttest.WriteFile(t, b.dir, "/efi/EFI/Linux/8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7-6.12.48+deb13-amd64.efi", kernelImage(t, hosttest.ReadFile(t, b.dir, "/etc/kernel/cmdline")))
	}
	table := hosttest.ReadFile(t, b.dir, "/proc/1/mountinfo")
	for point, line := range map[string]string{" /mnt/disks/d1 ": dataDisk, " /mnt/nfs ": share} {
		if !strings.Contains(table, point) {
			table += line
		}
	}
	hosttest.WriteFile(t, b.dir, "/proc/1/mountinfo", table)
	hosttest.WriteFile(t, b.dir, window, "128\n")
	if b.fs.Exists("/usr/lib/systemd/systemd-sysctl") {
		hosttest.WriteFile(t, b.dir, diskUnit, "[Mount]\nWhat=/dev/sdb1\nWhere=/mnt/disks/d1\nType=xfs\n")
		b.commands.Output["systemctl show --property=NeedDaemonReload mnt-disks-d1.mount"] = "NeedDaemonReload=no\n"
	}
	if p.tree == "talos" {
		b.fs = b.fs.WithHook(func(_ host.Op, name string) error {
			if strings.HasPrefix(name, "/etc/") {
				return syscall.EROFS
			}
			return nil
		})
	}
	if b.fs.Exists("/boot/grub2/grubenv") {
		b.commands.Output["grub2-probe --target=abstraction /boot/grub2"] = "\n"
		b.commands.Output["grub2-probe --target=fs /boot/grub2"] = "xfs\n"
	}
	if b.fs.Exists("/usr/sbin/grub2-mkconfig") {
		if _, err := b.commands.Run(t.Context(), "grub2-mkconfig", "-o", "/boot/grub2/grub.cfg"); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// settle returns the result of an agent that keeps running on the platform.
func (b *box) settle() localreport.Report {
	b.t.Helper()
	l := b.local(true)
	l.Machine.attended, l.NoConfirm = true, true
	r, err := l.Run(b.t.Context(), localreport.Apply, []v1alpha1.StorageClientProfile{platformProfile()})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

const (
	cellWorks   = "yes"
	cellAgent   = "yes, by the agent after each boot"
	cellReboot  = "yes, by a reboot"
	cellStaged  = "staged only"
	cellMount   = "yes, at the next mount"
	cellNothing = "no"
)

// agentAgain is part of messages about settings that no file sets at boot.
var agentAgain = regexp.MustCompile(`(set|sets it|writes) again (at|after) each boot`)

// cellOf returns the word for the state of a setting, and whether its message must be shown.
func cellOf(s localreport.Setting, mayReboot bool) (cell string, showMessage bool) {
	boots := s.TakesEffect == v1alpha1.EffectReboot
	switch {
	case s.State == isNotFor:
		return cellNothing, true
	case s.State == isSet && agentAgain.MatchString(s.Message):
		return cellAgent, true
	case s.State == isSet:
		return cellWorks, false
	case s.State == waits && boots && mayReboot:
		return cellReboot, false
	case s.State == waits && boots:
		return cellStaged, false
	case s.State == waits && s.TakesEffect == v1alpha1.EffectNextMount:
		return cellMount, false
	case s.State == waits:
		return cellAgent, true
	}
	return fmt.Sprintf("%s: %s", s.State, s.Message), false
}

func TestPlatformsMatchTheirDocument(t *testing.T) {
	var table, messages strings.Builder
	table.WriteString("| platform |")
	for _, f := range fields {
		table.WriteString(" " + f.title + " |")
	}
	table.WriteString("\n|---" + strings.Repeat("|---", len(fields)) + "|\n")
	for i, p := range platforms {
		b := newPlatform(t, i)
		before := b.persistentFiles()
		r := b.settle()
		settings := map[string]localreport.Setting{}
		for _, s := range r.Settings {
			settings[s.Key] = s
		}
		table.WriteString("| " + p.name + " |")
		for _, f := range fields {
			cell, showMessage := cellOf(settings[f.key], b.local(false).Machine.Bootloader().MayReboot())
			if settings[f.key].State == fails || strings.Contains(cell, ":") {
				t.Errorf("%s: %s is %s", p.name, f.key, cell)
			}
			table.WriteString(" " + cell + " |")
			if showMessage {
				fmt.Fprintf(&messages, "| %s | %s | %s |\n", p.name, f.title, settings[f.key].Message)
			}
			if f.key == ihash && cell == cellStaged {
				fmt.Fprintf(&messages, "| %s | %s | %s |\n", p.name, f.title, r.Bootloader.Message)
			}
		}
		table.WriteString("\n")
		for _, s := range b.restore().Settings {
			if s.State != isSet && s.State != waits {
				t.Errorf("%s: restore of %s is %s: %s", p.name, s.Key, s.State, s.Message)
			}
		}
		if diff := cmp.Diff(before, b.persistentFiles()); diff != "" {
			t.Errorf("%s: the host after restore (-before +after):\n%s", p.name, diff)
		}
	}
	want := "# Platforms\n\nSupport for the fields of `spec.node` on each platform, and the messages of the node about fields without full support. The mount\n" +
		"options of volumes do not depend on the platform.\n\n" +
		"This page is written by `go test ./agent -run TestPlatforms -update` from trees of such hosts; [test/fixtures/platforms](../test/fixtures/platforms/README.md)\n" +
		"lists the source of each fact. Only Debian's packages were booted for real: with GRUB's own menu (`make e2e`), and as other systems use GRUB (`make boots`).\n" +
		"`bls` has boot loader entries as on RHEL (grubby simulated as its real script behaved): ten boots took 355 seconds on a machine without KVM, next to other work.\n" +
		"`mkconfig` has a menu of grub2-mkconfig as on Azure Linux (Debian's grub-mkconfig by Fedora's names). `systemd-boot` has kernel-install of Debian 13:\n" +
		"ten boots took 337 seconds. `uki` has unified kernel images of ukify 257: twelve boots took 445 seconds. `mkconfig` took 455 seconds for eleven boots.\n\n" + table.String() +
		"\n*Staged only*: written for the next boot, for which the operator does not reboot the node.\n\n## Messages of the node\n\n| platform | field | message |\n|---|---|---|\n" +
		messages.String()
	if *updateDocs {
		check.NoError(t, os.WriteFile(platformsFile, []byte(want), 0o644))
	}
	got, err := os.ReadFile(platformsFile)
	check.NoError(t, err)
	check.Equal(t, "docs/platforms.md differs from the platforms; run this test with -update and review the changes", want, string(got))
}

// The file of AKS was read after the agent's file while that had its former name.
func TestTheFileOfAKSDoesNotWin(t *testing.T) {
	for i := range 3 {
		b := newPlatform(t, i)
		if !strings.Contains(hosttest.ReadFile(t, b.dir, aksFile), "net.core.rmem_max=1048576") {
			t.Fatalf("%s has no %s", platforms[i].name, aksFile)
		}
		for _, s := range b.settle().Settings {
			if s.Key == rmem && s.State != isSet {
				t.Errorf("%s: %s is %s: %s", platforms[i].name, s.Key, s.State, s.Message)
			}
		}
	}
}
