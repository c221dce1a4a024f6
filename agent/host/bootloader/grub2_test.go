package bootloader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
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

func newAzure(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, debian)
	for _, name := range []string{"/boot", "/usr/sbin/grub-mkconfig", "/etc/default"} {
		m.remove(name)
	}
	for name, data := range azureFiles {
		m.write(name, data)
	}
	m.write("/boot/vmlinuz-6.6.51.1-5.azl3", "")
	m.write(commandLine, "BOOT_IMAGE=/boot/vmlinuz-6.6.51.1-5.azl3 root=UUID=1 ro lockdown=integrity loglevel=3\n")
	if _, err := m.commands.Run(t.Context(), "grub2-mkconfig", "-o", grub2Cfg); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(m.dir, grub2Cfg), 0o400); err != nil {
		t.Fatal(err)
	}
	m.attended = true
	m.restart()
	return m
}

func TestLifecycleOfAnArgumentOnAzureLinux(t *testing.T) {
	m := newAzure(t)
	before := hosttest.ReadTree(t, m.dir, "/boot", "/etc")
	m.apply(settings(ihash, "1048576"))
	expect(t, m.observe(ihash, "1048576"), host.Pending, "do not cover trial boots")
	if !strings.Contains(m.read(grub2Cfg), "ro lockdown=integrity loglevel=3 ihash_entries=1048576") {
		t.Errorf("the menu is\n%s", m.read(grub2Cfg))
	}
	if info, err := os.Stat(filepath.Join(m.dir, grub2Cfg)); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("mode of the menu: got %v, error %v", info.Mode(), err)
	}
	if found := m.subject.Detect(); found.MayReboot() {
		t.Errorf("the boot loader permits a reboot: %+v", found)
	}
	line := parseMenu(m.read(grub2Cfg)).lines[0]
	m.bootWith("BOOT_IMAGE="+line.kernel+" "+joinArguments(line.args), 1048576)
	expect(t, m.observe(ihash, "1048576"), host.InSync)
	m.apply(nil)
	expect(t, m.restore(ihash, host.Original{}), host.Pending, "effective until the next reboot")
	if diff := cmp.Diff(before, hosttest.ReadTree(t, m.dir, "/boot", "/etc")); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
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

func TestAzureLinuxConvergesAfterACrashAtEveryChange(t *testing.T) {
	for at := 1; ; at++ {
		m := newAzure(t)
		before := hosttest.ReadTree(t, m.dir, "/boot", "/etc")
		subject, c := m.crashing(at)
		if err := subject.Apply(t.Context(), settings(ihash, seed)); err == nil && c.count < at {
			if at < 8 {
				t.Errorf("got only %d changes", at)
			}
			return
		}
		m.restart()
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Pending)
		m.apply(nil)
		if diff := cmp.Diff(before, hosttest.ReadTree(t, m.dir, "/boot", "/etc")); diff != "" {
			t.Fatalf("crash %d, after restore (-before +after):\n%s", at, diff)
		}
	}
}
