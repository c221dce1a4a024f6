package grubentries_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/grubentries"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

const newKernel = "5.14.0-503.1.1.el9_4.x86_64"

func grubbyOf(m *rig.Machine) grubentries.Loader {
	return grubentries.Kind.Open(loader.Base{Host: m.Subject.Host, At: grubentries.GrubPlace}).(grubentries.Loader)
}

func TestDefaultEntryOfTheMenuOfRHEL(t *testing.T) {
	tests := map[string]struct {
		prepare func(*rig.Machine)
		want    string
	}{
		"nothing is counted": {func(*rig.Machine) {}, rig.RockyEntry},
		"an entry is saved": {func(m *rig.Machine) {
			m.Write(rig.BlsEnv, string(grubcfg.Environment(m.Read(rig.BlsEnv)).With("saved_entry", strings.TrimSuffix(strings.TrimPrefix(rig.RescueEntry, bls.EntriesDir+"/"), ".conf"))))
		}, rig.RescueEntry},
		"boots are counted": {func(m *rig.Machine) {
			m.Write(rig.BlsEnv, string(grubcfg.Environment(m.Read(rig.BlsEnv)).With("boot_counter", "2")))
		}, ""},
		"the count is over": {func(m *rig.Machine) {
			m.Write(rig.BlsEnv, string(grubcfg.Environment(m.Read(rig.BlsEnv)).With("boot_counter", "-1")))
		}, ""},
		"an own section sets another default": {func(m *rig.Machine) {
			m.Replace(grubcfg.Grub2, "# the 'exec tail' line above.\n", "set default=1\n")
		}, strings.ReplaceAll(rig.RockyEntry, "427.13.1.el9_4", "362.8.1.el9_3")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewRHEL(t)
			test.prepare(m)
			got, reason := grubbyOf(m).ReadBooted()
			if test.want == "" {
				if found := m.Subject.Detect(); found.Type != loader.Unsupported || !strings.Contains(found.Message, "boot_counter") {
					t.Errorf("got %+v", found)
				}
				return
			}
			if reason != "" || got.Entry == nil || got.Entry.File != test.want {
				t.Errorf("got %+v, reason %q, want %s", got.Entry, reason, test.want)
			}
		})
	}
}

func TestATrialOnRHEL(t *testing.T) {
	m := rig.NewRHEL(t)
	before := m.BootFiles()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if got := m.Read(bls.OnceEntry); !strings.Contains(got, "427.13.1") || strings.Contains(got, "rescue") {
		t.Errorf("the trial boots\n%s", got)
	}
	m.PrepareReboot()
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.Apply(nil)
	check.Equal(t, "after restore", before, m.BootFiles())
}

// An untried argument is never given to all entries while its trial is pending or failed, or while an obstacle is temporary.
func TestUntriedArgumentsStayOutOfTheDefaultEntries(t *testing.T) {
	obstacles := map[string]struct {
		prepare func(*rig.Machine)
		message string
	}{
		"dracut makes the initramfs of a new kernel": {func(m *rig.Machine) { m.AddKernel(newKernel, false) }, "default entry is missing"},
		"a user removes an argument": {func(m *rig.Machine) {
			for _, file := range []string{rig.RockyEntry, rig.RescueEntry} {
				m.Replace(file, " rd.lvm.lv=rl/root", "")
			}
		}, "does not pass"},
		"a user selects an entry of the menu": {func(m *rig.Machine) {
			m.AddKernel(newKernel, true)
			m.Replace(grubcfg.Grub2, "# the 'exec tail' line above.\n", "menuentry 'Other' --id other {\n}\n")
			m.Write(rig.BlsEnv, string(grubcfg.Environment(m.Read(rig.BlsEnv)).With(grubcfg.NextEntry, "other")))
		}, `boots entry "Other"`},
		"the environment block has another size": {func(m *rig.Machine) {
			m.AddKernel(newKernel, true)
			m.Write(rig.BlsEnv, m.Read(rig.BlsEnv)+"\n")
		}, "not a regular file"},
		"grub2-probe fails": {func(m *rig.Machine) {
			m.AddKernel(newKernel, true)
			m.Commands.Fail = map[string]error{"grub2-probe": errors.New("exit status 1")}
		}, "cannot check"},
		"grub2-mkconfig copies a menu": {func(m *rig.Machine) {
			m.AddKernel(newKernel, true)
			m.Write(grubcfg.Grub2+".new", m.Read(grubcfg.Grub2)+"# more\n")
		}, "another program is writing"},
	}
	temporary := []string{"default entry is missing", "cannot check", "another program is writing"}
	trials := map[string]func(*rig.Machine){
		"pending": func(m *rig.Machine) { m.Apply(rig.Settings(rig.PanicArgument, "/missing")) },
		"failed": func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.PanicArgument, "/missing"))
			m.PrepareReboot()
			m.StartEntry()
			m.Apply(rig.Settings(rig.PanicArgument, "/missing"))
		},
		"none": func(*rig.Machine) {},
	}
	for trial, stage := range trials {
		for name, test := range obstacles {
			if trial == "none" && !slices.Contains(temporary, test.message) {
				continue
			}
			t.Run(trial+", "+name, func(t *testing.T) {
				m := rig.NewRHEL(t)
				stage(m)
				test.prepare(m)
				m.Restart()
				before := m.BootFiles()
				err := m.Subject.Apply(t.Context(), rig.Settings(rig.PanicArgument, "/missing"))
				if slices.Contains(temporary, test.message) {
					rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Pending, "not staged yet", test.message)
					if found := m.Subject.Detect(); found.MayReboot() || !strings.Contains(found.Message, test.message) {
						t.Errorf("got %+v", found)
					}
					m.Uptime += life.MaxHold
					rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Drifted)
					err = errors.Join(err, m.Subject.Apply(t.Context(), rig.Settings(rig.PanicArgument, "/missing")))
				}
				if err == nil || !strings.Contains(err.Error(), test.message) {
					t.Errorf("error: got %v, want %q", err, test.message)
				}
				after := m.BootFiles()
				if trial == "pending" {
					// The trial is disarmed.
					if grubcfg.Environment(before[rig.BlsEnv]).Value(grubcfg.NextEntry) == bls.OnceID {
						delete(before, bls.OnceEntry)
					}
					for name, found := range map[string]map[string]string{"before": before, "after": after} {
						if block := grubcfg.Environment(found[rig.BlsEnv]); len(block) == grubcfg.EnvSize {
							if name == "after" && block.Value(grubcfg.NextEntry) == bls.OnceID {
								t.Error("the trial is selected")
							}
							if block.Value(grubcfg.NextEntry) == bls.OnceID {
								block = block.With(grubcfg.NextEntry, "")
							}
							found[rig.BlsEnv] = string(block.With(loader.TrialVariable, ""))
						}
					}
				}
				check.Equal(t, "files", before, after)
				rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Failed, test.message)
				m.Apply(nil)
				m.ExpectInDefaults(rig.PanicArgument+"=/missing", false)
			})
		}
	}
}

func TestArgumentsOfAnEarlierReleaseAreNotRebootedFor(t *testing.T) {
	m := rig.NewRHEL(t)
	// An earlier release gave untried arguments to all entries.
	m.Attended = false
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Attended = true
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
	if found := m.Subject.Detect(); found.MayReboot() || !strings.Contains(found.Message, rig.IhashSeed) || !strings.Contains(found.Message, "reboot the node") {
		t.Errorf("got %+v", found)
	}
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	if found := m.Subject.Detect(); !found.MayReboot() {
		t.Errorf("after a boot by hand: %+v", found)
	}
	// The other remedy is to edit the profile.
	m.Attended = false
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	m.Attended = true
	m.Restart()
	if found := m.Subject.Detect(); found.MayReboot() {
		t.Errorf("got %+v", found)
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if found := m.Subject.Detect(); !found.MayReboot() {
		t.Errorf("after the profile was edited: %+v", found)
	}
}

// kernel-install writes several blanks after a key, and GRUB also accepts a tab.
func TestEntriesWithOtherBlanks(t *testing.T) {
	for name, blank := range map[string]string{"several blanks": "      ", "a tab": "\t"} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewRHEL(t)
			m.Write(rig.RockyEntry, strings.NewReplacer("title ", "title"+blank, "linux ", "linux"+blank, "initrd ", "initrd"+blank, "options ", "options"+blank).
				Replace(m.Read(rig.RockyEntry)))
			got, reason := grubbyOf(m).ReadBooted()
			if reason != "" || got.Entry.File != rig.RockyEntry {
				t.Errorf("got %+v, %q", got.Entry, reason)
			}
			if text := grubbyOf(m).OnceText(host.ParseArguments(rig.IhashSeed), nil); !strings.Contains(text, "/vmlinuz-5.14.0-427.13.1") ||
				!strings.Contains(text, "options root=/dev/mapper/rl-root ro") {
				t.Errorf("the entry is %q", text)
			}
			m.Remove("/boot/initramfs-5.14.0-427.13.1.el9_4.x86_64.img")
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "not staged yet", bls.ErrNoKernel.Error())
		})
	}
}

// RHEL's other script of kernel-install makes a menu only for Xen and POWER.
func TestKernelInstallationOnRHELKeepsTheEntries(t *testing.T) {
	m := rig.NewRHEL(t)
	m.Write(loader.DefaultFile, "GRUB_CMDLINE_LINUX=\"audit=0\"\n")
	m.Write("/usr/lib/kernel/install.d/99-grub-mkconfig.install", "RUN_MKCONFIG=\n[[ $RUN_MKCONFIG = true ]] && grub2-mkconfig -o /boot/grub2/grub.cfg\n")
	m.Write("/usr/lib/kernel/install.d/20-grub.install", "set -e\n")
	m.SetMode("/usr/lib/kernel/install.d/99-grub-mkconfig.install", 0o755)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	newer := time.Now().Add(time.Hour)
	check.NoError(t, os.Chtimes(filepath.Join(m.Dir, loader.DefaultFile), newer, newer))
	if got := m.Observe(rig.Ihash, rig.Seed); got.State != host.InSync || got.Message != "" {
		t.Errorf("got %+v", got)
	}
}

func TestFailedTrialIsNotPromotedWithoutAnAgent(t *testing.T) {
	m := rig.NewRHEL(t)
	m.Apply(rig.Settings(rig.PanicArgument, "/missing"))
	m.PrepareReboot()
	m.StartEntry()
	m.Attended = false
	m.Restart()
	if err := m.Subject.Apply(t.Context(), rig.Settings(rig.PanicArgument, "/missing")); err == nil || !strings.Contains(err.Error(), "no agent is running") {
		t.Errorf("error: got %v", err)
	}
	m.ExpectInDefaults(rig.PanicArgument+"=/missing", false)
	m.Apply(nil)
	m.ExpectInDefaults(rig.PanicArgument+"=/missing", false)
}

// A package manager takes 20 to 60 seconds for a kernel.
func TestNoSettingFailsWhileAKernelIsInstalledOrRemoved(t *testing.T) {
	initrd := "/boot/initramfs-" + newKernel + ".img"
	desired := rig.Settings(rig.Ihash, rig.Seed)
	entry := strings.ReplaceAll(rig.RockyEntry, "5.14.0-427.13.1.el9_4.x86_64", newKernel)
	lacking := func(m *rig.Machine) {
		m.AddKernel(newKernel, false)
		m.Replace(entry, " "+rig.IhashSeed, "")
	}
	tests := map[string]struct {
		tuned        bool
		begin, later func(*rig.Machine)
		end          func(*rig.Machine)
		during, want host.State
	}{
		"installed, before a trial": {
			begin: func(m *rig.Machine) { m.AddKernel(newKernel, false) }, end: func(m *rig.Machine) { m.Write(initrd, "initrd") },
			during: host.Pending, want: host.Pending,
		},
		"installed, during a trial": {
			begin: func(m *rig.Machine) { m.Apply(desired); m.AddKernel(newKernel, false) }, end: func(m *rig.Machine) { m.Write(initrd, "initrd") },
			during: host.Pending, want: host.Pending,
		},
		"removed, during a trial": {
			begin: func(m *rig.Machine) { m.Apply(desired); m.Remove(rig.RockyKernel) }, end: func(m *rig.Machine) { m.Remove(rig.RockyEntry) },
			during: host.Pending, want: host.Pending,
		},
		"installed, with an entry that lacks the argument": {
			tuned: true, begin: lacking, end: func(m *rig.Machine) { m.Write(initrd, "initrd") }, during: host.InSync, want: host.InSync,
		},
		"installed, and its entry is written while grubby runs": {
			tuned: true, begin: func(m *rig.Machine) {
				lacking(m)
				m.Commands.AfterGrubby = func() { m.Replace(entry, "title ", "title  ") }
			}, end: func(m *rig.Machine) { m.Commands.AfterGrubby = nil; m.Write(initrd, "initrd") }, during: host.Pending, want: host.InSync,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewRHEL(t)
			if test.tuned {
				m.Apply(desired)
				m.StartEntry()
				m.Apply(desired)
			}
			test.begin(m)
			for range 4 {
				if got := m.Check(desired); got.State != test.during {
					t.Errorf("during the installation: got %s (%s), want %s", got.State, got.Message, test.during)
				}
				if found := m.Subject.Detect(); test.during == host.Pending && found.MayReboot() {
					t.Error("the node may be rebooted during the installation")
				}
				m.Uptime += life.MaxHold / 5
			}
			test.end(m)
			if got := m.Check(desired); got.State != test.want {
				t.Errorf("after the installation: got %s (%s), want %s", got.State, got.Message, test.want)
			}
			if found := m.Subject.Detect(); !found.MayReboot() {
				t.Errorf("after the installation: got %+v", found)
			}
		})
	}
}

func TestAnIncompleteKernelIsReportedAfterAWhile(t *testing.T) {
	m := rig.NewRHEL(t)
	m.AddKernel(newKernel, false)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	for range 2 {
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "not staged yet", bls.ErrNoKernel.Error())
		m.Uptime += life.MaxHold / 2
	}
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Drifted)
	if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil {
		t.Error("got no error")
	}
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, bls.ErrNoKernel.Error())
}

// Removal of a profile in the same window.
func TestAnArgumentIsRemovedAfterAKernelWasInstalled(t *testing.T) {
	m := rig.NewRHEL(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	entry := m.AddKernel(newKernel, false)
	m.Commands.AfterGrubby = func() { m.Replace(rig.RescueEntry, "rd.lvm.lv=rl/root", "") }
	m.Replace(rig.RescueEntry, " ro ", " ro audit=1 ")
	m.Apply(nil)
	if got := m.Restore(rig.Ihash, host.Original{}); got.State != host.Pending || !got.Kept {
		t.Errorf("during the installation: got %+v", got)
	}
	m.Commands.AfterGrubby = nil
	m.Write("/boot/initramfs-"+newKernel+".img", "initrd")
	m.Apply(nil)
	if got := m.Restore(rig.Ihash, host.Original{}); got.Kept || !strings.Contains(got.Message, "until the next reboot") {
		t.Errorf("after the installation: got %+v", got)
	}
	for _, file := range []string{rig.RockyEntry, rig.RescueEntry, entry} {
		if strings.Contains(m.Read(file), rig.Ihash) {
			t.Errorf("%s still has the argument", file)
		}
	}
}

// grubby deletes no entry. An entry without a kernel would be GRUB's default.
func TestTheEntryOfARemovedKernelIsNotRestored(t *testing.T) {
	tests := map[string]func(*rig.Machine){
		"a new value is staged":        func(m *rig.Machine) { m.Subject.Attend(false); m.Apply(rig.Settings(rig.Ihash, "1048576")) },
		"the profile is deleted":       func(m *rig.Machine) { m.Apply(nil) },
		"a file has changed meanwhile": func(m *rig.Machine) { m.Replace(rig.RescueEntry, " ro ", " ro audit=1 "); m.Apply(nil) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			m, _ := newTuned(t, rig.Ihash, rig.Seed)
			entry := m.AddKernel(newKernel, true)
			m.Commands.AfterGrubby = func() {
				for _, file := range []string{entry, "/boot/vmlinuz-" + newKernel, "/boot/initramfs-" + newKernel + ".img"} {
					m.Remove(file)
				}
			}
			change(m)
			if m.FS.Exists(entry) {
				t.Error("the entry exists without a kernel")
			}
			m.Commands.AfterGrubby = nil
			m.Apply(nil)
			m.ExpectInDefaults(rig.IhashSeed, false)
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
		"the defaults are newer":                 {map[string]string{usr: compares}, loader.DefaultFile, entries},
		"grubby has written the arguments since": {map[string]string{usr: compares}, bls.LaterFile, ""},
		"no file has arguments of later kernels": {map[string]string{usr: compares}, "", entries},
		"a menu was made since":                  {map[string]string{usr: compares}, grubcfg.Grub2, entries},
		"grub2-mkconfig leaves the entries": {map[string]string{
			usr: compares, "/usr/sbin/grub2-mkconfig": "--update-bls-cmdline) bls_cmdline_update=true\n",
		}, loader.DefaultFile, ""},
		"the script compares no files":   {map[string]string{usr: "grub2-mkconfig -o /etc/grub2.cfg\n"}, bls.LaterFile, entries},
		"a file in /etc masks it":        {map[string]string{usr: compares, "/etc/kernel/install.d/20-grub.install": ""}, loader.DefaultFile, ""},
		"a script in /etc replaces it":   {map[string]string{usr: "exit 0\n", "/etc/kernel/install.d/20-grub.install": compares}, loader.DefaultFile, entries},
		"the script makes no menu":       {map[string]string{usr: "exit 0\n"}, loader.DefaultFile, ""},
		"only the script for Xen has it": {map[string]string{"/usr/lib/kernel/install.d/99-grub-mkconfig.install": compares}, loader.DefaultFile, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			m.Write(loader.DefaultFile, "GRUB_CMDLINE_LINUX=\"audit=0\"\n")
			for file, text := range test.scripts {
				m.Write(file, text)
				m.SetMode(file, 0o755)
			}
			m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
			m.StartEntry()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
			at := time.Unix(2000000000, 0)
			for _, file := range []string{bls.LaterFile, grubcfg.Grub2, loader.DefaultFile, test.newest} {
				if at = at.Add(time.Hour); file == "" {
					m.Remove(bls.LaterFile)
					continue
				}
				check.NoError(t, os.Chtimes(filepath.Join(m.Dir, file), at, at))
			}
			got := m.Observe(rig.Ihash, rig.Seed)
			if got.State != host.InSync || test.want == "" && got.Message != "" || !strings.Contains(got.Message, test.want) {
				t.Errorf("got %+v, want %q", got, test.want)
			}
			if got := m.Observe("audit", "0"); got.State != host.InSync || got.Message != "" {
				t.Errorf("the argument in %s: got %+v", loader.DefaultFile, got)
			}
		})
	}
}
