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

func grubbyOf(m *machine) grubbyLoader {
	return GrubbyKind.Open(base{Host: m.subject.Host, at: blsNames}).(grubbyLoader)
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
			got, reason := grubbyOf(m).readBooted()
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
		"dracut makes the initramfs of a new kernel": {func(m *machine) { m.addKernel(newKernel, false) }, "default entry is missing"},
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
	temporary := []string{"default entry is missing", "cannot check", "another program is writing"}
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
			if trial == "none" && !slices.Contains(temporary, test.message) {
				continue
			}
			t.Run(trial+", "+name, func(t *testing.T) {
				m := newRHEL(t)
				stage(m)
				test.prepare(m)
				m.restart()
				before := m.bootFiles()
				err := m.subject.Apply(t.Context(), settings(panicArgument, "/missing"))
				if slices.Contains(temporary, test.message) {
					expect(t, m.observe(panicArgument, "/missing"), host.Pending, "not staged yet", test.message)
					if found := m.subject.Detect(); found.MayReboot() || !strings.Contains(found.Message, test.message) {
						t.Errorf("got %+v", found)
					}
					m.sinceBoot += maxHold
					expect(t, m.observe(panicArgument, "/missing"), host.Drifted)
					err = errors.Join(err, m.subject.Apply(t.Context(), settings(panicArgument, "/missing")))
				}
				if err == nil || !strings.Contains(err.Error(), test.message) {
					t.Errorf("error: got %v, want %q", err, test.message)
				}
				after := m.bootFiles()
				if trial == "pending" {
					// The trial is disarmed.
					if environment(before[blsEnv]).value(nextEntry) == onceID {
						delete(before, onceEntry)
					}
					for name, found := range map[string]map[string]string{"before": before, "after": after} {
						if block := environment(found[blsEnv]); len(block) == envSize {
							if name == "after" && block.value(nextEntry) == onceID {
								t.Error("the trial is selected")
							}
							if block.value(nextEntry) == onceID {
								block = block.with(nextEntry, "")
							}
							found[blsEnv] = string(block.with(trialVariable, ""))
						}
					}
				}
				if diff := cmp.Diff(before, after); diff != "" {
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
			got, reason := grubbyOf(m).readBooted()
			if reason != "" || got.entry.file != rockyEntry {
				t.Errorf("got %+v, %q", got.entry, reason)
			}
			if text := grubbyOf(m).onceText(host.ParseArguments(ihashSeed), nil); !strings.Contains(text, "/vmlinuz-5.14.0-427.13.1") ||
				!strings.Contains(text, "options root=/dev/mapper/rl-root ro") {
				t.Errorf("the entry is %q", text)
			}
			m.remove("/boot/initramfs-5.14.0-427.13.1.el9_4.x86_64.img")
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Pending, "not staged yet", errNoKernel.Error())
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

// check is a drift check of the agent: it stages drifted arguments again.
func (m *machine) check(desired []host.Setting) host.Observation {
	m.t.Helper()
	got := m.subject.Observe(m.t.Context(), desired)[0]
	if got.State == host.Drifted {
		if err := m.subject.Apply(m.t.Context(), desired); err != nil {
			m.t.Errorf("staging failed: %v", err)
		}
		got = m.subject.Observe(m.t.Context(), desired)[0]
	}
	return got
}

// A package manager takes 20 to 60 seconds for a kernel.
func TestNoSettingFailsWhileAKernelIsInstalledOrRemoved(t *testing.T) {
	initrd := "/boot/initramfs-" + newKernel + ".img"
	desired := settings(ihash, seed)
	entry := strings.ReplaceAll(rockyEntry, "5.14.0-427.13.1.el9_4.x86_64", newKernel)
	lacking := func(m *machine) {
		m.addKernel(newKernel, false)
		m.replace(entry, " "+ihashSeed, "")
	}
	tests := map[string]struct {
		tuned        bool
		begin, later func(*machine)
		end          func(*machine)
		during, want host.State
	}{
		"installed, before a trial": {
			begin: func(m *machine) { m.addKernel(newKernel, false) }, end: func(m *machine) { m.write(initrd, "initrd") },
			during: host.Pending, want: host.Pending,
		},
		"installed, during a trial": {
			begin: func(m *machine) { m.apply(desired); m.addKernel(newKernel, false) }, end: func(m *machine) { m.write(initrd, "initrd") },
			during: host.Pending, want: host.Pending,
		},
		"removed, during a trial": {
			begin: func(m *machine) { m.apply(desired); m.remove(rockyKernel) }, end: func(m *machine) { m.remove(rockyEntry) },
			during: host.Pending, want: host.Pending,
		},
		"installed, with an entry that lacks the argument": {
			tuned: true, begin: lacking, end: func(m *machine) { m.write(initrd, "initrd") }, during: host.InSync, want: host.InSync,
		},
		"installed, and its entry is written while grubby runs": {
			tuned: true, begin: func(m *machine) {
				lacking(m)
				m.commands.AfterGrubby = func() { m.replace(entry, "title ", "title  ") }
			}, end: func(m *machine) { m.commands.AfterGrubby = nil; m.write(initrd, "initrd") }, during: host.Pending, want: host.InSync,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newRHEL(t)
			if test.tuned {
				m.apply(desired)
				m.startEntry()
				m.apply(desired)
			}
			test.begin(m)
			for range 4 {
				if got := m.check(desired); got.State != test.during {
					t.Errorf("during the installation: got %s (%s), want %s", got.State, got.Message, test.during)
				}
				if found := m.subject.Detect(); test.during == host.Pending && found.MayReboot() {
					t.Error("the node may be rebooted during the installation")
				}
				m.sinceBoot += maxHold / 5
			}
			test.end(m)
			if got := m.check(desired); got.State != test.want {
				t.Errorf("after the installation: got %s (%s), want %s", got.State, got.Message, test.want)
			}
			if found := m.subject.Detect(); !found.MayReboot() {
				t.Errorf("after the installation: got %+v", found)
			}
		})
	}
}

func TestAnIncompleteKernelIsReportedAfterAWhile(t *testing.T) {
	m := newRHEL(t)
	m.addKernel(newKernel, false)
	m.apply(settings(ihash, seed))
	for range 2 {
		expect(t, m.observe(ihash, seed), host.Pending, "not staged yet", errNoKernel.Error())
		m.sinceBoot += maxHold / 2
	}
	expect(t, m.observe(ihash, seed), host.Drifted)
	if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil {
		t.Error("got no error")
	}
	expect(t, m.observe(ihash, seed), host.Failed, errNoKernel.Error())
}

// Removal of a profile in the same window.
func TestAnArgumentIsRemovedAfterAKernelWasInstalled(t *testing.T) {
	m := newRHEL(t)
	m.apply(settings(ihash, seed))
	m.startEntry()
	m.apply(settings(ihash, seed))
	entry := m.addKernel(newKernel, false)
	m.commands.AfterGrubby = func() { m.replace(rescueEntry, "rd.lvm.lv=rl/root", "") }
	m.replace(rescueEntry, " ro ", " ro audit=1 ")
	m.apply(nil)
	if got := m.restore(ihash, host.Original{}); got.State != host.Pending || !got.Kept {
		t.Errorf("during the installation: got %+v", got)
	}
	m.commands.AfterGrubby = nil
	m.write("/boot/initramfs-"+newKernel+".img", "initrd")
	m.apply(nil)
	if got := m.restore(ihash, host.Original{}); got.Kept || !strings.Contains(got.Message, "until the next reboot") {
		t.Errorf("after the installation: got %+v", got)
	}
	for _, file := range []string{rockyEntry, rescueEntry, entry} {
		if strings.Contains(m.read(file), ihash) {
			t.Errorf("%s still has the argument", file)
		}
	}
}

// grubby deletes no entry. An entry without a kernel would be GRUB's default.
func TestTheEntryOfARemovedKernelIsNotRestored(t *testing.T) {
	tests := map[string]func(*machine){
		"a new value is staged":        func(m *machine) { m.subject.Attend(false); m.apply(settings(ihash, "1048576")) },
		"the profile is deleted":       func(m *machine) { m.apply(nil) },
		"a file has changed meanwhile": func(m *machine) { m.replace(rescueEntry, " ro ", " ro audit=1 "); m.apply(nil) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			m, _ := newTuned(t, ihash, seed)
			entry := m.addKernel(newKernel, true)
			m.commands.AfterGrubby = func() {
				for _, file := range []string{entry, "/boot/vmlinuz-" + newKernel, "/boot/initramfs-" + newKernel + ".img"} {
					m.remove(file)
				}
			}
			change(m)
			if m.fs.Exists(entry) {
				t.Error("the entry exists without a kernel")
			}
			m.commands.AfterGrubby = nil
			m.apply(nil)
			m.expectInDefaults(ihashSeed, false)
		})
	}
}

// The scripts are worded like the scripts of Fedora 44 and RHEL 10. They compare /etc/kernel/cmdline with /etc/default/grub, and no other file.
func TestArgumentsThatTheNextKernelInstallationLoses(t *testing.T) {
	const (
		usr      = "/usr/lib/kernel/install.d/20-grub.install"
		compares = "if [[ /etc/kernel/cmdline -ot /etc/default/grub ]]; then\n    grub2-mkconfig -o /etc/grub2.cfg\nfi\n"
		entries  = "next kernel installation removes it from the boot entries"
	)
	tests := map[string]struct {
		scripts map[string]string
		newest  string
		want    string
	}{
		"the defaults are newer":                 {map[string]string{usr: compares}, defaultFile, entries},
		"grubby has written the arguments since": {map[string]string{usr: compares}, kernelCmdline, ""},
		"no file has arguments of later kernels": {map[string]string{usr: compares}, "", entries},
		"a menu was made since":                  {map[string]string{usr: compares}, grub2Cfg, entries},
		"grub2-mkconfig leaves the entries": {map[string]string{
			usr: compares, "/usr/sbin/grub2-mkconfig": "--update-bls-cmdline) bls_cmdline_update=true\n",
		}, defaultFile, ""},
		"the script compares no files":   {map[string]string{usr: "grub2-mkconfig -o /etc/grub2.cfg\n"}, kernelCmdline, entries},
		"a file in /etc masks it":        {map[string]string{usr: compares, "/etc/kernel/install.d/20-grub.install": ""}, defaultFile, ""},
		"a script in /etc replaces it":   {map[string]string{usr: "exit 0\n", "/etc/kernel/install.d/20-grub.install": compares}, defaultFile, entries},
		"the script makes no menu":       {map[string]string{usr: "exit 0\n"}, defaultFile, ""},
		"only the script for Xen has it": {map[string]string{"/usr/lib/kernel/install.d/99-grub-mkconfig.install": compares}, defaultFile, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newTryingRocky(t)
			m.write(defaultFile, "GRUB_CMDLINE_LINUX=\"audit=0\"\n")
			for file, text := range test.scripts {
				m.write(file, text)
				m.setMode(file, 0o755)
			}
			m.apply(settings(ihash, seed, "audit", "0"))
			m.startEntry()
			m.apply(settings(ihash, seed, "audit", "0"))
			at := time.Unix(2000000000, 0)
			for _, file := range []string{kernelCmdline, grub2Cfg, defaultFile, test.newest} {
				if at = at.Add(time.Hour); file == "" {
					m.remove(kernelCmdline)
					continue
				}
				if err := os.Chtimes(filepath.Join(m.dir, file), at, at); err != nil {
					t.Fatal(err)
				}
			}
			got := m.observe(ihash, seed)
			if got.State != host.InSync || test.want == "" && got.Message != "" || !strings.Contains(got.Message, test.want) {
				t.Errorf("got %+v, want %q", got, test.want)
			}
			if got := m.observe("audit", "0"); got.State != host.InSync || got.Message != "" {
				t.Errorf("the argument in %s: got %+v", defaultFile, got)
			}
		})
	}
}
