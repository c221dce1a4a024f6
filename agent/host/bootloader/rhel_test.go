package bootloader

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
)

const newKernel = "5.14.0-503.1.1.el9_4.x86_64"

// newRHEL is a trying host with the menu that grub2-mkconfig of RHEL 9 writes, and the entries of two kernels and a rescue system.
func newRHEL(t *testing.T) *machine {
	t.Helper()
	m := newTryingRocky(t)
	data, err := os.ReadFile("testdata/rhel-9-grub.cfg")
	if err != nil {
		t.Fatal(err)
	}
	m.write(grub2Cfg, string(data))
	m.addKernel("5.14.0-362.8.1.el9_3.x86_64", true)
	m.restart()
	return m
}

// addKernel writes the entry of another kernel. Its initramfs is missing while dracut makes it.
func (m *machine) addKernel(version string, complete bool) (entry string) {
	m.t.Helper()
	rename := strings.NewReplacer("5.14.0-427.13.1.el9_4.x86_64", version)
	entry = rename.Replace(rockyEntry)
	m.write(entry, rename.Replace(m.read(rockyEntry)))
	m.write("/boot/vmlinuz-"+version, "kernel")
	if complete {
		m.write("/boot/initramfs-"+version+".img", "initrd")
	}
	return entry
}

func TestDefaultEntryOfTheMenuOfRHEL(t *testing.T) {
	tests := map[string]struct {
		prepare func(*machine)
		want    string
	}{
		"nothing is counted": {func(*machine) {}, rockyEntry},
		"an entry is saved": {func(m *machine) {
			m.write(blsEnv, string(environment(m.read(blsEnv)).with("saved_entry", strings.TrimSuffix(strings.TrimPrefix(rescueEntry, entriesDir+"/"), ".conf"))))
		}, rescueEntry},
		"boots are counted": {func(m *machine) { m.write(blsEnv, string(environment(m.read(blsEnv)).with("boot_counter", "2"))) }, ""},
		"the count is over": {func(m *machine) { m.write(blsEnv, string(environment(m.read(blsEnv)).with("boot_counter", "-1"))) }, ""},
		"an own section sets another default": {func(m *machine) {
			m.replace(grub2Cfg, "# the 'exec tail' line above.\n", "set default=1\n")
		}, strings.ReplaceAll(rockyEntry, "427.13.1.el9_4", "362.8.1.el9_3")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newRHEL(t)
			test.prepare(m)
			got, reason := m.subject.bootedMenu(blsNames)
			if test.want == "" {
				if found := m.subject.Detect(); found.Type != Unsupported || !strings.Contains(found.Message, "boot_counter") {
					t.Errorf("got %+v", found)
				}
				return
			}
			if reason != "" || got.entry == nil || got.entry.file != test.want {
				t.Errorf("got %+v, reason %q, want %s", got.entry, reason, test.want)
			}
		})
	}
}

func TestATrialOnRHEL(t *testing.T) {
	m := newRHEL(t)
	before := m.bootFiles()
	m.apply(settings(ihash, seed))
	if got := m.read(onceEntry); !strings.Contains(got, "427.13.1") || strings.Contains(got, "rescue") {
		t.Errorf("the trial boots\n%s", got)
	}
	m.prepareReboot()
	m.startEntry()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.apply(nil)
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

// An untried argument is never given to all entries while its trial is pending or failed, or while an obstacle is temporary.
func TestUntriedArgumentsStayOutOfTheDefaultEntries(t *testing.T) {
	obstacles := map[string]struct {
		prepare func(*machine)
		message string
	}{
		"dracut makes the initramfs of a new kernel": {func(m *machine) { m.addKernel(newKernel, false) }, "missing in /boot"},
		"a user removes an argument": {func(m *machine) {
			for _, file := range []string{rockyEntry, rescueEntry} {
				m.replace(file, " rd.lvm.lv=rl/root", "")
			}
		}, "does not pass"},
		"a user selects an entry of the menu": {func(m *machine) {
			m.addKernel(newKernel, true)
			m.replace(grub2Cfg, "# the 'exec tail' line above.\n", "menuentry 'Other' --id other {\n}\n")
			m.write(blsEnv, string(environment(m.read(blsEnv)).with(nextEntry, "other")))
		}, `boots entry "Other"`},
		"the environment block has another size": {func(m *machine) {
			m.addKernel(newKernel, true)
			m.write(blsEnv, m.read(blsEnv)+"\n")
		}, "not a regular file"},
		"grub2-probe fails": {func(m *machine) {
			m.addKernel(newKernel, true)
			m.commands.Fail = map[string]error{"grub2-probe": errors.New("exit status 1")}
		}, "cannot check"},
		"grub2-mkconfig copies a menu": {func(m *machine) {
			m.addKernel(newKernel, true)
			m.write(grub2Cfg+".new", m.read(grub2Cfg)+"# more\n")
		}, "another program is writing"},
	}
	trials := map[string]func(*machine){
		"pending": func(m *machine) { m.apply(settings(panicArgument, "/missing")) },
		"failed": func(m *machine) {
			m.apply(settings(panicArgument, "/missing"))
			m.prepareReboot()
			m.startEntry()
			m.apply(settings(panicArgument, "/missing"))
		},
		"none": func(*machine) {},
	}
	for trial, stage := range trials {
		for name, test := range obstacles {
			if trial == "none" && !slices.Contains([]string{"missing in /boot", "cannot check", "another program is writing"}, test.message) {
				continue
			}
			t.Run(trial+", "+name, func(t *testing.T) {
				m := newRHEL(t)
				stage(m)
				test.prepare(m)
				m.restart()
				before := m.bootFiles()
				err := m.subject.Apply(t.Context(), settings(panicArgument, "/missing"))
				if err == nil || !strings.Contains(err.Error(), test.message) {
					t.Errorf("error: got %v, want %q", err, test.message)
				}
				if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
					t.Errorf("files (-want +got):\n%s", diff)
				}
				expect(t, m.observe(panicArgument, "/missing"), host.Failed, test.message)
				m.apply(nil)
				m.expectInDefaults(panicArgument+"=/missing", false)
			})
		}
	}
}

func TestArgumentsOfAnEarlierReleaseAreNotRebootedFor(t *testing.T) {
	m := newRHEL(t)
	// An earlier release gave untried arguments to all entries.
	m.attended = false
	m.restart()
	m.apply(settings(ihash, seed))
	m.attended = true
	m.restart()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending)
	if found := m.subject.Detect(); found.MayReboot() || !strings.Contains(found.Message, ihashSeed) || !strings.Contains(found.Message, "reboot the node") {
		t.Errorf("got %+v", found)
	}
	m.startEntry()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	if found := m.subject.Detect(); !found.MayReboot() {
		t.Errorf("after a boot by hand: %+v", found)
	}
	// The other remedy is to edit the profile.
	m.attended = false
	m.restart()
	m.apply(settings(ihash, seed, "audit", "0"))
	m.attended = true
	m.restart()
	if found := m.subject.Detect(); found.MayReboot() {
		t.Errorf("got %+v", found)
	}
	m.apply(settings(ihash, seed))
	if found := m.subject.Detect(); !found.MayReboot() {
		t.Errorf("after the profile was edited: %+v", found)
	}
}

// kernel-install writes several blanks after a key, and GRUB also accepts a tab.
func TestEntriesWithOtherBlanks(t *testing.T) {
	for name, blank := range map[string]string{"several blanks": "      ", "a tab": "\t"} {
		t.Run(name, func(t *testing.T) {
			m := newRHEL(t)
			m.write(rockyEntry, strings.NewReplacer("title ", "title"+blank, "linux ", "linux"+blank, "initrd ", "initrd"+blank, "options ", "options"+blank).
				Replace(m.read(rockyEntry)))
			got, reason := m.subject.bootedMenu(blsNames)
			if reason != "" || got.entry.file != rockyEntry {
				t.Errorf("got %+v, %q", got.entry, reason)
			}
			if text := m.subject.loader().(grubBLS).onceText(host.ParseArguments(ihashSeed)); !strings.Contains(text, "/vmlinuz-5.14.0-427.13.1") ||
				!strings.Contains(text, "options root=/dev/mapper/rl-root ro") {
				t.Errorf("the entry is %q", text)
			}
			m.remove("/boot/initramfs-5.14.0-427.13.1.el9_4.x86_64.img")
			if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil || !strings.Contains(err.Error(), errNoKernel.Error()) {
				t.Errorf("without an initrd: %v", err)
			}
		})
	}
}

// RHEL's other script of kernel-install makes a menu only for Xen and POWER.
func TestKernelInstallationOnRHELKeepsTheEntries(t *testing.T) {
	m := newRHEL(t)
	m.write(defaultFile, "GRUB_CMDLINE_LINUX=\"audit=0\"\n")
	m.write("/usr/lib/kernel/install.d/99-grub-mkconfig.install", "RUN_MKCONFIG=\n[[ $RUN_MKCONFIG = true ]] && grub2-mkconfig -o /boot/grub2/grub.cfg\n")
	m.write("/usr/lib/kernel/install.d/20-grub.install", "set -e\n")
	m.setMode("/usr/lib/kernel/install.d/99-grub-mkconfig.install", 0o755)
	m.apply(settings(ihash, seed))
	m.startEntry()
	m.apply(settings(ihash, seed))
	newer := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(m.dir, defaultFile), newer, newer); err != nil {
		t.Fatal(err)
	}
	if got := m.observe(ihash, seed); got.State != host.InSync || got.Message != "" {
		t.Errorf("got %+v", got)
	}
}

func TestFailedTrialIsNotPromotedWithoutAnAgent(t *testing.T) {
	m := newRHEL(t)
	m.apply(settings(panicArgument, "/missing"))
	m.prepareReboot()
	m.startEntry()
	m.attended = false
	m.restart()
	if err := m.subject.Apply(t.Context(), settings(panicArgument, "/missing")); err == nil || !strings.Contains(err.Error(), "no agent is running") {
		t.Errorf("error: got %v", err)
	}
	m.expectInDefaults(panicArgument+"=/missing", false)
	m.apply(nil)
	m.expectInDefaults(panicArgument+"=/missing", false)
}
