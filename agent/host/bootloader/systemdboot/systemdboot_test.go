package systemdboot_test

import (
	"errors"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/efi"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/bootloader/systemdboot"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestAnArgumentOfSystemdBootIsOnlyInTheEntryThatIsBootedOnceUntilItHasBooted(t *testing.T) {
	m := rig.NewSystemdBoot(t)
	before := m.BootFiles()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
	m.ExpectInDefaults(rig.IhashSeed, false)
	if found := m.Subject.Detect(); found.Type != loader.SystemdBoot || !found.MayReboot() {
		t.Errorf("not rebooted: %+v", found)
	}
	once := m.Read(rig.SystemdOnce)
	for _, text := range []string{efi.StateMark + loader.TrialArmed + "\n", "options root=", " " + rig.IhashSeed + "\n", "linux      /" + rig.SystemdToken + "/6.12.9-amd64/linux\n"} {
		if !strings.Contains(once, text) {
			t.Errorf("the entry lacks %q:\n%s", text, once)
		}
	}
	if strings.Contains(once, "sort-key") {
		t.Errorf("the entry has a sort key:\n%s", once)
	}
	check.Equal(t, "selected entry", hosttest.EncodeVariable(bls.OnceID+".conf"), m.Read(hosttest.OneShotVariable))
	// A kernel that is installed before the promotion boots without the argument.
	m.InstallKernel("6.13.1-amd64")
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if !strings.Contains(m.Read(rig.SystemdOnce), "6.13.1-amd64") {
		t.Errorf("the trial is not that of the new default entry:\n%s", m.Read(rig.SystemdOnce))
	}
	m.ExpectInDefaults(rig.IhashSeed, false)
	m.PrepareReboot()
	if !strings.HasPrefix(m.Read(rig.SystemdOnce), efi.StateMark+loader.TrialPermitted+"\n") {
		t.Errorf("not permitted:\n%s", m.Read(rig.SystemdOnce))
	}
	check.Equal(t, "booted entry", bls.OnceID, m.StartEntry())
	m.ExpectInDefaults(rig.IhashSeed, false)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.ExpectInDefaults(rig.IhashSeed, true)
	if m.FS.Exists(rig.SystemdOnce) || m.OneShot() != "" {
		t.Error("the trial is left")
	}
	if name := m.StartEntry(); name == bls.OnceID {
		t.Errorf("booted %s again", name)
	}
	// A later one has it.
	if !strings.Contains(m.Read(m.InstallKernel("6.13.2-amd64")), rig.IhashSeed) {
		t.Error("a kernel that is installed later lacks the argument")
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if got := m.Observe(rig.Ihash, rig.Seed); got.State != host.InSync || got.Message != "" {
		t.Errorf("got %+v", got)
	}
	m.Apply(nil)
	after := m.BootFiles()
	for _, version := range []string{"6.13.1-amd64", "6.13.2-amd64"} {
		for name, text := range after {
			if strings.Contains(text, rig.Ihash) {
				t.Errorf("%s still has the argument", name)
			}
			if strings.Contains(name, version) {
				delete(after, name)
			}
		}
	}
	check.Equal(t, "after restore", before, after)
}

func TestAPanicReturnsToTheDefaultEntryOfSystemdBoot(t *testing.T) {
	for name, permitted := range map[string]bool{"with a permit it has failed": true, "without one it is tried once more": false} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewSystemdBoot(t)
			before := m.BootFiles()
			bad := rig.Settings(rig.PanicArgument, "/missing")
			m.Apply(bad)
			if permitted {
				m.PrepareReboot()
			}
			if name := m.StartEntry(); name == bls.OnceID {
				t.Error("booted the entry again")
			}
			m.Apply(bad)
			if !permitted {
				rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Pending, "only with a permit")
				if m.OneShot() != "" {
					t.Error("the entry is selected without a permit")
				}
				m.PrepareReboot()
				m.StartEntry()
				m.Apply(bad)
			}
			rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Failed, "trial boot failed")
			m.StartEntry()
			m.ExpectInDefaults(rig.PanicArgument+"=/missing", false)
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

// A user's selection for the next boot has precedence.
func TestTheEntryThatAUserSelectsForOneBootStays(t *testing.T) {
	m := rig.NewSystemdBoot(t)
	m.SetVariable(efi.OneShot, path.Base(rig.OlderEntry))
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	check.Equal(t, "selected entry", path.Base(rig.OlderEntry), m.OneShot())
	m.PrepareReboot()
	if name := m.StartEntry(); name+".conf" != path.Base(rig.OlderEntry) {
		t.Errorf("booted %s", name)
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "only with a permit")
	m.PrepareReboot()
	check.Equal(t, "booted entry", bls.OnceID, m.StartEntry())
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.Apply(nil)
}

func TestATrialThatTheFirmwareDoesNotSelect(t *testing.T) {
	for name, fail := range map[string]func(*rig.Machine) host.Hook{
		"it fails": func(*rig.Machine) host.Hook {
			return func(op host.Op, _ string) error {
				if op == host.OpWriteValue {
					return errors.New("no space left on device")
				}
				return nil
			}
		},
		"it has no effect at all": func(m *rig.Machine) host.Hook {
			return func(op host.Op, name string) error {
				if op == host.OpSyncDir && name+"/" == efi.Vars {
					m.Remove(hosttest.OneShotVariable)
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewSystemdBoot(t)
			before := m.BootFiles()
			m.Subject = m.On(m.FS.WithHook(fail(m)))
			if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil {
				t.Error("got no error")
			}
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, efi.OneShot)
			m.ExpectInDefaults(rig.IhashSeed, false)
			m.Restart()
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

// The words after "--" are for init. An argument after them would not reach the kernel.
func TestArgumentsAreBeforeTheWordsForInit(t *testing.T) {
	options := regexp.MustCompile(`(?m)^options .*$`)
	for name, words := range map[string]string{"a word": " -- debug", "none": " --", "tabs": "\t--\tdebug"} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewSystemdBoot(t)
			files := []string{rig.SystemdEntry, rig.OlderEntry, bls.LaterFile}
			for _, file := range files[:2] {
				m.Write(file, options.ReplaceAllString(m.Read(file), "${0}"+words))
			}
			m.Write(bls.LaterFile, rig.SystemdArgs+words+"\n")
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
			if name := m.StartEntry(); name != bls.OnceID || !strings.Contains(m.Read(loader.CommandLine), " "+rig.IhashSeed+" --") {
				t.Errorf("booted %s with %s", name, m.Read(loader.CommandLine))
			}
			for range 2 {
				m.Apply(rig.Settings(rig.Ihash, rig.Seed))
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
			}
			for _, file := range files {
				if got := m.Read(file); !strings.Contains(got, " "+rig.IhashSeed+words) {
					t.Errorf("%s is\n%s", file, got)
				}
			}
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

func TestSystemdBootsThatTheAgentDoesNotChange(t *testing.T) {
	tests := map[string]struct {
		prepare func(*rig.Machine)
		message string
	}{
		"an argument that no entry has": {func(m *rig.Machine) { m.Replace(loader.CommandLine, " ro ", " ro iommu=pt ") },
			"/proc/cmdline has iommu=pt, which the default entry of " + rig.SystemdEntry + " (line 7) does not pass"},
		"the newest entry has other arguments": {func(m *rig.Machine) {
			m.Write(bls.LaterFile, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro\n")
			m.InstallKernel("6.12.10-amd64")
		}, "has console=ttyS0, which the default entry of " + rig.SystemdEntries + "/" + rig.SystemdToken + "-6.12.10-amd64.conf"},
		"the newest entry is not the default": {func(m *rig.Machine) {
			m.Write(bls.LaterFile, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro\n")
			m.InstallKernel("6.12.10-amd64")
			m.Write("/efi/loader/loader.conf", "default "+rig.SystemdToken+"-6.12.9-*\n")
		}, ""},
		"the variable has precedence": {func(m *rig.Machine) {
			m.Replace(rig.OlderEntry, " ro ", " ")
			m.Write("/efi/loader/loader.conf", "default "+rig.SystemdToken+"-6.12.9-*\n")
			m.SetVariable("LoaderEntryDefault", path.Base(rig.OlderEntry))
		}, "has ro, which the default entry of " + rig.OlderEntry},
		"the last entry is the default": {func(m *rig.Machine) { m.SetVariable("LoaderEntryDefault", "@saved") }, "LoaderEntryDefault is @saved"},
		"a menu with the last entry":    {func(m *rig.Machine) { m.Write("/efi/loader/loader.conf", "timeout 3\ndefault @saved\n") }, "/efi/loader/loader.conf is @saved"},
		"new kernels count boots":       {func(m *rig.Machine) { m.Write(efi.TriesFile, "3\n") }, efi.TriesFile + " exists"},
		"an entry counts boots": {func(m *rig.Machine) {
			m.Write(strings.Replace(rig.OlderEntry, ".conf", "+3-1.conf", 1), m.Read(rig.OlderEntry))
		}, "counts boots"},
		"an entry has other line ends": {func(m *rig.Machine) {
			m.Write(rig.OlderEntry, strings.ReplaceAll(m.Read(rig.OlderEntry), "\n", "\r\n"))
		},
			rig.OlderEntry + " has carriage returns"},
		"the default entry has other line ends": {func(m *rig.Machine) {
			m.Write(rig.SystemdEntry, strings.ReplaceAll(m.Read(rig.SystemdEntry), "\n", "\r\n"))
		},
			rig.SystemdEntry + " has carriage returns"},
		"the default entry is made by hand": {func(m *rig.Machine) {
			m.Write(rig.SystemdEntries+"/zz.conf", "title x\nsort-key a\nlinux /vmlinuz\noptions "+rig.SystemdArgs+"\n")
		}, "kernel-install did not write the default entry " + rig.SystemdEntries + "/zz.conf"},
		"another entry is made by hand":  {func(m *rig.Machine) { m.Write(rig.SystemdEntries+"/zz.conf", "title x\nlinux /vmlinuz\noptions ro\n") }, ""},
		"the default entry is a program": {func(m *rig.Machine) { m.Write(rig.SystemdEntries+"/zz.conf", "title x\nsort-key a\nefi /shell.efi\n") }, "kernel-install did not write the default entry " + rig.SystemdEntries + "/zz.conf"},
		"a unified kernel image may be the default": {func(m *rig.Machine) { m.Write("/efi/EFI/Linux/x.efi", "") },
			"the default can be the unified kernel image /efi/EFI/Linux/x.efi"},
		"a unified kernel image is not the default": {func(m *rig.Machine) {
			m.Write("/efi/EFI/Linux/x.efi", "")
			m.SetVariable("LoaderEntryDefault", path.Base(rig.SystemdEntry))
		}, ""},
		"new kernels get the arguments of the running one": {func(m *rig.Machine) { m.Remove(bls.LaterFile) }, bls.LaterFile + " is missing"},
		"the vendor declares the arguments": {func(m *rig.Machine) {
			m.Remove(bls.LaterFile)
			m.Write("/usr/lib/kernel/cmdline", rig.SystemdArgs+"\n")
		}, ""},
		"another loader's entry was booted":          {func(m *rig.Machine) { m.SetVariable("LoaderEntrySelected", "arch.conf") }, `by entry "arch.conf", which is not in ` + rig.SystemdEntries},
		"the entry of the running kernel is removed": {func(m *rig.Machine) { m.SetVariable("LoaderEntrySelected", rig.SystemdToken+"-6.12.7-amd64.conf") }, ""},
		"an entry without a version was booted":      {func(m *rig.Machine) { m.SetVariable("LoaderEntrySelected", rig.SystemdToken+"-") }, "which is not in " + rig.SystemdEntries},
		"two partitions have entries":                {func(m *rig.Machine) { m.Write("/boot/loader/entries/x.conf", "") }, "both /efi/loader/entries/*.conf and /boot/loader/entries/*.conf exist"},
		"an old systemd-boot": {func(m *rig.Machine) {
			m.Write(efi.Vars+"LoaderFeatures"+efi.LoaderGUID, "\x06\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00")
		}, "cannot boot an entry once"},
		"Proxmox":    {func(m *rig.Machine) { m.Write(life.ProxmoxDisks, "1234-5678\n") }, "proxmox-boot-tool"},
		"no entries": {func(m *rig.Machine) { m.Remove(rig.SystemdEntries) }, "have no loader/entries"},
		"the partition of another disk is mounted": {func(m *rig.Machine) {
			m.SetLoaderPartition("/efi", "8:33")
		}, "none of /efi, /boot/efi, /boot is the EFI partition that systemd-boot was loaded from"},
		"its partition is unknown":       {func(m *rig.Machine) { m.Remove(efi.Vars + "LoaderDevicePartUUID" + efi.LoaderGUID) }, "none of /efi, /boot/efi, /boot is"},
		"its directory is not mounted":   {func(m *rig.Machine) { m.SetLoaderPartition("/boot/efi", "8:15") }, "/efi is neither the EFI partition"},
		"an entry is preferred":          {func(m *rig.Machine) { m.SetVariable("LoaderEntryPreferred", path.Base(rig.OlderEntry)) }, "LoaderEntryPreferred selects"},
		"the menu's settings prefer one": {func(m *rig.Machine) { m.Write("/efi/loader/loader.conf", "preferred x\n") }, "/efi/loader/loader.conf has the line preferred"},
		"the last of two defaults counts": {func(m *rig.Machine) {
			m.Write(bls.LaterFile, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro\n")
			m.InstallKernel("6.12.10-amd64")
			m.Write("/efi/loader/loader.conf", "default "+rig.SystemdToken+"-6.12.10-*\ndefault \t\""+rig.SystemdToken+"-6.12.9-*\"\r\n")
		}, ""},
		"another system is the default": {func(m *rig.Machine) {
			m.Write(rig.OtherSystem, strings.ReplaceAll(m.Read(rig.SystemdEntry), rig.SystemdToken, "other"))
			m.SetVariable("LoaderEntryDefault", path.Base(rig.OtherSystem))
		}, "the default entry " + rig.OtherSystem + " is not of the running system"},
		"another system is in the menu": {func(m *rig.Machine) {
			m.Write(rig.OtherSystem, strings.ReplaceAll(m.Read(rig.SystemdEntry), rig.SystemdToken, "other"))
			m.SetVariable("LoaderEntryDefault", path.Base(rig.SystemdEntry))
		}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewSystemdBoot(t)
			test.prepare(m)
			found := m.Subject.Detect()
			if test.message == "" {
				if found.Type != loader.SystemdBoot || !found.MayReboot() {
					t.Errorf("not proven: %+v", found)
				}
				before := m.BootFiles()
				m.Apply(rig.Settings(rig.Ihash, rig.Seed))
				m.StartEntry()
				m.Apply(rig.Settings(rig.Ihash, rig.Seed))
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
				m.Apply(nil)
				check.Equal(t, "after restore", before, m.BootFiles())
				return
			}
			m.ExpectUnsupported(test.message)
		})
	}
}

// A new default entry that the agent does not manage after staging: the agent maintains the entries, but the node is not rebooted.
func TestSystemdBootThatChangesAfterStaging(t *testing.T) {
	m := rig.NewSystemdBoot(t)
	before := m.BootFiles()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Write(efi.TriesFile, "3\n")
	if found := m.Subject.Detect(); found.Type != loader.SystemdBoot || found.Proven || !strings.Contains(found.Message, life.OnlyMaintained) {
		t.Errorf("got %+v", found)
	}
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.Apply(nil)
	m.Remove(efi.TriesFile)
	check.Equal(t, "after restore", before, m.BootFiles())
}

func TestATrialThatSystemdBootCannotLoadIsNotPermitted(t *testing.T) {
	m := rig.NewSystemdBoot(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Remove(m.Kernel)
	if err := m.Rearm(true); !errors.Is(err, bls.ErrNoKernel) {
		t.Errorf("got error %v", err)
	}
	if m.OneShot() != "" || m.FS.Exists(rig.SystemdOnce) {
		t.Errorf("selected is %q", m.OneShot())
	}
	m.Write(m.Kernel, "kernel")
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
	// A loader that the agent no longer supports, and no record.
	m.Remove(loader.RecordForm.File)
	m.Write(efi.TriesFile, "3\n")
	m.Restart()
	m.Apply(nil)
	if m.OneShot() != "" || m.FS.Exists(rig.SystemdOnce) {
		t.Errorf("without support: selected is %q", m.OneShot())
	}
}

// The agent writes the same arguments as the real kernel-install, which leaves them after the promotion.
func TestPromotedEntriesAreThoseOfKernelInstall(t *testing.T) {
	m := rig.NewSystemdBoot(t)
	run := hosttest.Tool(t, m.Dir, "kernel-install")
	for _, name := range []string{"sh", "cat", "chown", "cp", "grep", "install", "mkdir", "mktemp", "mountpoint", "rm", "sort", "stat", "tr"} {
		hosttest.Tool(t, m.Dir, name)
	}
	const script = "/usr/lib/kernel/install.d/90-loaderentry.install"
	data, err := os.ReadFile(script)
	check.NoError(t, err)
	for name, text := range map[string]string{
		"/dev/null": "", "/tmp/x": "", "/var/tmp/x": "", "/etc/machine-id": rig.SystemdToken + "\n", "/etc/kernel/install.conf": "layout=bls\nBOOT_ROOT=/efi\n",
		script: string(data), "/boot/vmlinuz-6.12.9-amd64": "kernel", "/boot/initrd.img-6.12.9-amd64": "initrd",
	} {
		m.Write(name, text)
	}
	hosttest.WriteLink(t, m.Dir, "/bin/sh", "/tool/sh")
	m.SetMode(script, 0o755)
	install := func() {
		t.Helper()
		out := run("--verbose", "add", "6.12.9-amd64", "/boot/vmlinuz-6.12.9-amd64", "/boot/initrd.img-6.12.9-amd64")
		if strings.Contains(out, "Function not implemented") {
			t.Skip("kernel-install is NOT compared with: since systemd 254 it needs the /proc of a kernel")
		}
		if !strings.Contains(out, "Creating /efi/loader/entries/") {
			t.Fatalf("kernel-install: %s", out)
		}
		// The partition is not mounted here.
		m.Replace(rig.SystemdEntry, " /efi/", " /")
	}
	words := func() []string {
		return slices.Sorted(slices.Values(strings.Fields(bls.EntryOptions(m.Read(rig.SystemdEntry)))))
	}
	install()
	if entries, err := m.Subject.Loader().(bls.Loader).ReadEntries(); err != nil || len(entries) != 2 || systemdboot.Token(entries[0]) != rig.SystemdToken {
		t.Errorf("entries of kernel-install: %+v, %v", entries, err)
	}
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	install()
	if slices.Contains(words(), rig.IhashSeed) {
		t.Error("kernel-install uses the argument before its promotion")
	}
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	promoted := words()
	install()
	if diff := cmp.Diff(promoted, words()); diff != "" || !slices.Contains(promoted, rig.IhashSeed) {
		t.Errorf("arguments (-agent +kernel-install):\n%s", diff)
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.Apply(nil)
	install()
	if slices.Contains(words(), rig.IhashSeed) {
		t.Error("kernel-install uses the argument after its removal")
	}
}

// kernel-install may make an entry after the agent has saved the files: there are no bytes to edit.
func TestAnEntryThatIsMadeWhileOthersAreChanged(t *testing.T) {
	m := rig.NewSystemdBoot(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.StartEntry()
	entry, text := "", ""
	subject := m.On(m.FS)
	subject.Facts = installingFacts{m.Facts, func() {
		if entry == "" {
			entry = m.InstallKernel("6.13.1-amd64")
			text = m.Read(entry)
		}
	}}
	if err := subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err != nil {
		t.Errorf("got error %v", err)
	}
	if entry == "" || m.Read(entry) != text {
		t.Errorf("the new entry %s is %q", entry, m.Read(entry))
	}
	m.ExpectInDefaults(rig.IhashSeed, false)
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.ExpectInDefaults(rig.IhashSeed, true)
}

// installingFacts calls a function after the files were saved.
type installingFacts struct {
	rig.MemoryFacts
	install func()
}

func (f installingFacts) KeepFiles(files map[string]host.FileRecord) error {
	err := f.MemoryFacts.KeepFiles(files)
	f.install()
	return err
}

// The power may fail between any two writes of a permit. A power failure never counts as a failed trial.
func TestAPowerCutWhileATrialIsPermittedIsNoFailure(t *testing.T) {
	for n := 1; ; n++ {
		m := rig.NewSystemdBoot(t)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		// Without a permit, it is tried once more.
		m.Remove(hosttest.OneShotVariable)
		m.StartEntry()
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "only with a permit")
		subject, c := m.Crashing(n)
		_ = subject.Rearm(true)
		if m.OneShot() == "" && c.Count >= n {
			m.StartEntry()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			if got := m.Observe(rig.Ihash, rig.Seed); got.State != host.Pending {
				t.Errorf("after a power cut at write %d: got %+v", n, got)
			}
		}
		if c.Count < n {
			return
		}
	}
}

// The entries are on the extended boot loader partition, but systemd-boot reads loader.conf only on its own.
func TestEntriesOnTheExtendedBootLoaderPartition(t *testing.T) {
	const mount = "92 25 8:16 / /boot rw,relatime shared:42 - ext4 /dev/sda16 rw\n"
	tests := map[string]struct{ mounts, config, message string }{
		"a partition of its own":            {mount, "", ""},
		"a directory of the root":           {"", "", "/boot is neither the EFI partition that systemd-boot was loaded from nor an extended boot loader partition"},
		"another subvolume of the root":     {strings.Replace(mount, "8:16", "8:1", 1), "", "/boot is neither the EFI partition"},
		"its default is the last one":       {mount, "default @saved\n", "/efi/loader/loader.conf is @saved"},
		"its default is that of the system": {mount, "default " + rig.SystemdToken + "-6.12.9-*\n", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewSystemdBoot(t)
			check.NoError(t, os.MkdirAll(m.Dir+"/boot/loader", 0o755))
			for _, dir := range []string{"/loader/entries", "/" + rig.SystemdToken} {
				check.NoError(t, os.Rename(m.Dir+"/efi"+dir, m.Dir+"/boot"+dir))
			}
			m.Write("/boot/loader/loader.conf", "default arch\n")
			m.Write("/efi/loader/loader.conf", test.config)
			m.Write("/proc/1/mountinfo", m.Read("/proc/1/mountinfo")+test.mounts)
			found := m.Subject.Detect()
			if test.message == "" && !found.MayReboot() || !strings.Contains(found.Message, test.message) {
				t.Errorf("got %+v, want %q", found, test.message)
			}
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			if m.FS.Exists("/boot/loader/entries/"+bls.OnceID+".conf") != (test.message == "") {
				t.Errorf("a trial is pending: %t", test.message != "")
			}
		})
	}
}

// A user makes another system the default after staging. Its entries are never changed, not even while the entry that loaded the kernel is gone.
func TestEntriesOfAnotherSystemStay(t *testing.T) {
	m := rig.NewSystemdBoot(t)
	before := m.BootFiles()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.StartEntry()
	other := strings.ReplaceAll(m.Read(rig.SystemdEntry), rig.SystemdToken, "other")
	m.Write(rig.OtherSystem, other)
	m.Write("/efi/other/6.12.9-amd64/linux", "kernel")
	m.Write("/efi/other/6.12.9-amd64/initrd.img-6.12.9-amd64", "initrd")
	m.SetVariable("LoaderEntryDefault", path.Base(rig.SystemdEntry))
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	if m.FS.Exists(rig.SystemdOnce) || !strings.Contains(m.Read(rig.SystemdEntry), rig.IhashSeed) {
		t.Error("not promoted")
	}
	m.Restart()
	for _, choice := range []string{path.Base(rig.OtherSystem), "@saved"} {
		m.SetVariable("LoaderEntryDefault", choice)
		if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, "1048576")); err == nil || !strings.Contains(err.Error(), "not one of the running system") {
			t.Errorf("default %s: got error %v", choice, err)
		}
		check.Equal(t, "the other system's entry", other, m.Read(rig.OtherSystem))
	}
	m.Apply(nil)
	check.Equal(t, "the other system's entry", other, m.Read(rig.OtherSystem))
	m.Remove(rig.OtherSystem)
	m.Remove("/efi/other")
	check.Equal(t, "after restore", before, m.BootFiles())
}

// On VFAT, a power cut while an argument is staged can leave an empty entry. systemd-boot ignores it, and the next pass of the agent replaces or removes
// it.
func TestAPowerCutThatEmptiesTheEntryThatIsBootedOnce(t *testing.T) {
	hosts := map[string]func(*testing.T) *rig.Machine{"systemd-boot": rig.NewSystemdBoot, "images": rig.NewUKI}
	for loader, newMachine := range hosts {
		for name, desired := range map[string][]host.Setting{"the same value": rig.Settings(rig.Ihash, rig.Seed), "given up": nil} {
			t.Run(loader+", "+name, func(t *testing.T) {
				m := newMachine(t)
				before := m.BootFiles()
				for n := 1; !m.FS.Exists(rig.SystemdOnce); n++ {
					staging, _ := m.Crashing(n)
					_ = staging.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
				}
				m.Write(rig.SystemdOnce, "")
				m.StartEntry()
				m.Apply(desired)
				for _, setting := range desired {
					m.StartEntry()
					m.Apply(desired)
					rig.Expect(t, m.Observe(setting.Name, setting.Value), host.InSync)
				}
				m.Apply(nil)
				check.Equal(t, "after restore", before, m.BootFiles())
			})
		}
	}
}
