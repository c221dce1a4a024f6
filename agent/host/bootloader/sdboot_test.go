package bootloader

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
	"github.com/storageclient/operator/agent/host/hosttest"
)

const (
	systemdEntries = "/efi/loader/entries"
	systemdOnce    = systemdEntries + "/" + onceID + ".conf"
	systemdToken   = "8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7"
	systemdEntry   = systemdEntries + "/" + systemdToken + "-6.12.9-amd64.conf"
	olderEntry     = systemdEntries + "/" + systemdToken + "-6.12.8-amd64.conf"
	otherSystem    = systemdEntries + "/other-6.12.9-amd64.conf"
	systemdArgs    = "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro console=ttyS0"
)

// newSystemdBoot is a host with two kernels, whose entries have the form of kernel-install 257. An agent runs after each boot.
func newSystemdBoot(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, debian)
	m.attended, m.entries = true, systemdEntries
	m.kernel = "/efi/" + systemdToken + "/6.12.9-amd64/linux"
	m.remove("/boot/grub")
	m.remove("/usr/sbin/grub-mkconfig")
	m.write(kernelCmdline, systemdArgs+"\n")
	m.write("/efi/loader/loader.conf", "timeout 0\n")
	m.installKernel("6.12.8-amd64")
	m.installKernel("6.12.9-amd64")
	m.write(efiVars+"LoaderInfo"+loaderGUID, hosttest.EncodeVariable("systemd-boot 257.9-1~deb13u1"))
	m.write(efiVars+"LoaderFeatures"+loaderGUID, "\x06\x00\x00\x00\xff\x3f\x00\x00\x00\x00\x00\x00")
	m.setLoaderPartition("/efi", "8:15")
	m.startEntry()
	return m
}

// installKernel writes the files of a kernel like "kernel-install add".
func (m *machine) installKernel(version string) (entry string) {
	m.t.Helper()
	dir := "/" + systemdToken + "/" + version
	m.write("/efi"+dir+"/linux", "kernel")
	m.write("/efi"+dir+"/initrd.img-"+version, "initrd")
	entry = systemdEntries + "/" + systemdToken + "-" + version + ".conf"
	m.write(entry, "# Boot Loader Specification type#1 entry\n# File created by /usr/lib/kernel/install.d/90-loaderentry.install (systemd 257.9-1~deb13u1)\n"+
		"title      Debian GNU/Linux 13 (trixie)\nversion    "+version+"\nmachine-id "+systemdToken+"\nsort-key   debian\n"+
		"options    "+strings.TrimSpace(m.read(kernelCmdline))+" systemd.machine_id="+systemdToken+"\n"+
		"linux      "+dir+"/linux\ninitrd     "+dir+"/initrd.img-"+version+"\n")
	return entry
}

// setVariable sets a variable of systemd-boot.
func (m *machine) setVariable(name, text string) {
	m.t.Helper()
	m.write(efiVars+name+loaderGUID, hosttest.EncodeVariable(text))
}

func (m *machine) oneShot() string {
	m.t.Helper()
	text, err := efiVariable(m.fs, oneShot)
	if err != nil {
		m.t.Fatal(err)
	}
	return text
}

// powerSystemdBoot starts systemd-boot, which unsets its variable first, and returns the entry that it boots: the selected one, or else the highest
// version.
func (m *machine) powerSystemdBoot() (name, options string) {
	m.t.Helper()
	files, err := m.fs.Glob(systemdEntries, "*.conf")
	if err != nil {
		m.t.Fatal(err)
	}
	images, err := m.fs.Glob(imagesDir, "*.efi")
	if err != nil {
		m.t.Fatal(err)
	}
	byName := func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) }
	file := slices.MaxFunc(append(slices.DeleteFunc(slices.Clone(files), func(name string) bool { return name == systemdOnce }), images...), byName)
	if selected := path.Join(systemdEntries, m.oneShot()); slices.Contains(files, selected) {
		file = selected
	}
	m.remove(hosttest.OneShotVariable)
	if slices.Contains(images, file) {
		return path.Base(file), m.stubOptions(file, "")
	}
	options = entryOptions(m.read(file))
	if image := entryField(&menuEntry{text: m.read(file)}, "efi"); image != "" {
		options = m.stubOptions("/efi"+image, options)
	}
	return strings.TrimSuffix(path.Base(file), ".conf"), options
}

// keepSelection returns a function that selects the same next boot as now.
func (m *machine) keepSelection() (restore func()) {
	m.t.Helper()
	if m.entries != systemdEntries {
		block := m.read(blsEnv)
		return func() { m.write(blsEnv, block) }
	}
	selected := m.oneShot()
	return func() {
		m.remove(hosttest.OneShotVariable)
		if selected != "" {
			m.setVariable(oneShot, selected)
		}
	}
}

func TestAnArgumentOfSystemdBootIsOnlyInTheEntryThatIsBootedOnceUntilItHasBooted(t *testing.T) {
	m := newSystemdBoot(t)
	before := m.bootFiles()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
	m.expectInDefaults(ihashSeed, false)
	if found := m.subject.Detect(); found.Type != SystemdBoot || !found.MayReboot() {
		t.Errorf("not rebooted: %+v", found)
	}
	once := m.read(systemdOnce)
	for _, text := range []string{stateMark + trialArmed + "\n", "options root=", " " + ihashSeed + "\n", "linux      /" + systemdToken + "/6.12.9-amd64/linux\n"} {
		if !strings.Contains(once, text) {
			t.Errorf("the entry lacks %q:\n%s", text, once)
		}
	}
	if strings.Contains(once, "sort-key") {
		t.Errorf("the entry has a sort key:\n%s", once)
	}
	if selected := m.read(hosttest.OneShotVariable); selected != hosttest.EncodeVariable(onceID+".conf") {
		t.Errorf("selected is %q", selected)
	}
	// A kernel that is installed before the promotion boots without the argument.
	m.installKernel("6.13.1-amd64")
	m.apply(settings(ihash, seed))
	if !strings.Contains(m.read(systemdOnce), "6.13.1-amd64") {
		t.Errorf("the trial is not that of the new default entry:\n%s", m.read(systemdOnce))
	}
	m.expectInDefaults(ihashSeed, false)
	m.prepareReboot()
	if !strings.HasPrefix(m.read(systemdOnce), stateMark+trialPermitted+"\n") {
		t.Errorf("not permitted:\n%s", m.read(systemdOnce))
	}
	if name := m.startEntry(); name != onceID {
		t.Errorf("booted %s", name)
	}
	m.expectInDefaults(ihashSeed, false)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.expectInDefaults(ihashSeed, true)
	if m.fs.Exists(systemdOnce) || m.oneShot() != "" {
		t.Error("the trial is left")
	}
	if name := m.startEntry(); name == onceID {
		t.Errorf("booted %s again", name)
	}
	// A later one has it.
	if !strings.Contains(m.read(m.installKernel("6.13.2-amd64")), ihashSeed) {
		t.Error("a kernel that is installed later lacks the argument")
	}
	m.apply(settings(ihash, seed))
	if got := m.observe(ihash, seed); got.State != host.InSync || got.Message != "" {
		t.Errorf("got %+v", got)
	}
	m.apply(nil)
	after := m.bootFiles()
	for _, version := range []string{"6.13.1-amd64", "6.13.2-amd64"} {
		for name, text := range after {
			if strings.Contains(text, ihash) {
				t.Errorf("%s still has the argument", name)
			}
			if strings.Contains(name, version) {
				delete(after, name)
			}
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

func TestAPanicReturnsToTheDefaultEntryOfSystemdBoot(t *testing.T) {
	for name, permitted := range map[string]bool{"with a permit it has failed": true, "without one it is tried once more": false} {
		t.Run(name, func(t *testing.T) {
			m := newSystemdBoot(t)
			before := m.bootFiles()
			bad := settings(panicArgument, "/missing")
			m.apply(bad)
			if permitted {
				m.prepareReboot()
			}
			if name := m.startEntry(); name == onceID {
				t.Error("booted the entry again")
			}
			m.apply(bad)
			if !permitted {
				expect(t, m.observe(panicArgument, "/missing"), host.Pending, "only with a permit")
				if m.oneShot() != "" {
					t.Error("the entry is selected without a permit")
				}
				m.prepareReboot()
				m.startEntry()
				m.apply(bad)
			}
			expect(t, m.observe(panicArgument, "/missing"), host.Failed, "trial boot failed")
			m.startEntry()
			m.expectInDefaults(panicArgument+"=/missing", false)
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

// A user's selection for the next boot has precedence.
func TestTheEntryThatAUserSelectsForOneBootStays(t *testing.T) {
	m := newSystemdBoot(t)
	m.setVariable(oneShot, path.Base(olderEntry))
	m.apply(settings(ihash, seed))
	if m.oneShot() != path.Base(olderEntry) {
		t.Errorf("selected is %q", m.oneShot())
	}
	m.prepareReboot()
	if name := m.startEntry(); name+".conf" != path.Base(olderEntry) {
		t.Errorf("booted %s", name)
	}
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "only with a permit")
	m.prepareReboot()
	if name := m.startEntry(); name != onceID {
		t.Errorf("booted %s", name)
	}
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.apply(nil)
}

func TestATrialThatTheFirmwareDoesNotSelect(t *testing.T) {
	for name, fail := range map[string]func(*machine) host.Hook{
		"it fails": func(*machine) host.Hook {
			return func(op host.Op, _ string) error {
				if op == host.OpWriteValue {
					return errors.New("no space left on device")
				}
				return nil
			}
		},
		"it has no effect at all": func(m *machine) host.Hook {
			return func(op host.Op, name string) error {
				if op == host.OpSyncDir && name+"/" == efiVars {
					m.remove(hosttest.OneShotVariable)
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSystemdBoot(t)
			before := m.bootFiles()
			m.subject = m.on(m.fs.WithHook(fail(m)))
			if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil {
				t.Error("got no error")
			}
			expect(t, m.observe(ihash, seed), host.Failed, oneShot)
			m.expectInDefaults(ihashSeed, false)
			m.restart()
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

// The words after "--" are for init. An argument after them would not reach the kernel.
func TestArgumentsAreBeforeTheWordsForInit(t *testing.T) {
	options := regexp.MustCompile(`(?m)^options .*$`)
	for name, words := range map[string]string{"a word": " -- debug", "none": " --", "tabs": "\t--\tdebug"} {
		t.Run(name, func(t *testing.T) {
			m := newSystemdBoot(t)
			files := []string{systemdEntry, olderEntry, kernelCmdline}
			for _, file := range files[:2] {
				m.write(file, options.ReplaceAllString(m.read(file), "${0}"+words))
			}
			m.write(kernelCmdline, systemdArgs+words+"\n")
			before := m.bootFiles()
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
			if name := m.startEntry(); name != onceID || !strings.Contains(m.read(commandLine), " "+ihashSeed+" --") {
				t.Errorf("booted %s with %s", name, m.read(commandLine))
			}
			for range 2 {
				m.apply(settings(ihash, seed))
				expect(t, m.observe(ihash, seed), host.InSync)
			}
			for _, file := range files {
				if got := m.read(file); !strings.Contains(got, " "+ihashSeed+words) {
					t.Errorf("%s is\n%s", file, got)
				}
			}
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

func TestSystemdBootsThatTheAgentDoesNotChange(t *testing.T) {
	tests := map[string]struct {
		prepare func(*machine)
		message string
	}{
		"an argument that no entry has": {func(m *machine) { m.replace(commandLine, " ro ", " ro iommu=pt ") },
			"/proc/cmdline has iommu=pt, which the default entry of " + systemdEntry + " (line 7) does not pass"},
		"the newest entry has other arguments": {func(m *machine) {
			m.write(kernelCmdline, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro\n")
			m.installKernel("6.12.10-amd64")
		}, "has console=ttyS0, which the default entry of " + systemdEntries + "/" + systemdToken + "-6.12.10-amd64.conf"},
		"the newest entry is not the default": {func(m *machine) {
			m.write(kernelCmdline, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro\n")
			m.installKernel("6.12.10-amd64")
			m.write("/efi/loader/loader.conf", "default "+systemdToken+"-6.12.9-*\n")
		}, ""},
		"the variable has precedence": {func(m *machine) {
			m.replace(olderEntry, " ro ", " ")
			m.write("/efi/loader/loader.conf", "default "+systemdToken+"-6.12.9-*\n")
			m.setVariable("LoaderEntryDefault", path.Base(olderEntry))
		}, "has ro, which the default entry of " + olderEntry},
		"the last entry is the default": {func(m *machine) { m.setVariable("LoaderEntryDefault", "@saved") }, "LoaderEntryDefault is @saved"},
		"a menu with the last entry":    {func(m *machine) { m.write("/efi/loader/loader.conf", "timeout 3\ndefault @saved\n") }, "/efi/loader/loader.conf is @saved"},
		"new kernels count boots":       {func(m *machine) { m.write(triesFile, "3\n") }, triesFile + " exists"},
		"an entry counts boots":         {func(m *machine) { m.write(strings.Replace(olderEntry, ".conf", "+3-1.conf", 1), m.read(olderEntry)) }, "counts boots"},
		"an entry has other line ends": {func(m *machine) { m.write(olderEntry, strings.ReplaceAll(m.read(olderEntry), "\n", "\r\n")) },
			olderEntry + " has carriage returns"},
		"the default entry has other line ends": {func(m *machine) { m.write(systemdEntry, strings.ReplaceAll(m.read(systemdEntry), "\n", "\r\n")) },
			systemdEntry + " has carriage returns"},
		"the default entry is made by hand": {func(m *machine) {
			m.write(systemdEntries+"/zz.conf", "title x\nsort-key a\nlinux /vmlinuz\noptions "+systemdArgs+"\n")
		}, "kernel-install did not write the default entry " + systemdEntries + "/zz.conf"},
		"another entry is made by hand":  {func(m *machine) { m.write(systemdEntries+"/zz.conf", "title x\nlinux /vmlinuz\noptions ro\n") }, ""},
		"the default entry is a program": {func(m *machine) { m.write(systemdEntries+"/zz.conf", "title x\nsort-key a\nefi /shell.efi\n") }, "kernel-install did not write the default entry " + systemdEntries + "/zz.conf"},
		"a unified kernel image may be the default": {func(m *machine) { m.write("/efi/EFI/Linux/x.efi", "") },
			"the default can be the unified kernel image /efi/EFI/Linux/x.efi"},
		"a unified kernel image is not the default": {func(m *machine) {
			m.write("/efi/EFI/Linux/x.efi", "")
			m.setVariable("LoaderEntryDefault", path.Base(systemdEntry))
		}, ""},
		"new kernels get the arguments of the running one": {func(m *machine) { m.remove(kernelCmdline) }, kernelCmdline + " is missing"},
		"the vendor declares the arguments":                {func(m *machine) { m.remove(kernelCmdline); m.write("/usr/lib/kernel/cmdline", systemdArgs+"\n") }, ""},
		"another loader's entry was booted":                {func(m *machine) { m.setVariable("LoaderEntrySelected", "arch.conf") }, `by entry "arch.conf", which is not in ` + systemdEntries},
		"the entry of the running kernel is removed":       {func(m *machine) { m.setVariable("LoaderEntrySelected", systemdToken+"-6.12.7-amd64.conf") }, ""},
		"an entry without a version was booted":            {func(m *machine) { m.setVariable("LoaderEntrySelected", systemdToken+"-") }, "which is not in " + systemdEntries},
		"two partitions have entries":                      {func(m *machine) { m.write("/boot/loader/entries/x.conf", "") }, "both /efi/loader/entries/*.conf and /boot/loader/entries/*.conf exist"},
		"an old systemd-boot": {func(m *machine) {
			m.write(efiVars+"LoaderFeatures"+loaderGUID, "\x06\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00")
		}, "cannot boot an entry once"},
		"Proxmox":    {func(m *machine) { m.write(proxmoxDisks, "1234-5678\n") }, "proxmox-boot-tool"},
		"no entries": {func(m *machine) { m.remove(systemdEntries) }, "have no loader/entries"},
		"the partition of another disk is mounted": {func(m *machine) {
			m.setLoaderPartition("/efi", "8:33")
		}, "none of /efi, /boot/efi, /boot is the EFI partition that systemd-boot was loaded from"},
		"its partition is unknown":       {func(m *machine) { m.remove(efiVars + "LoaderDevicePartUUID" + loaderGUID) }, "none of /efi, /boot/efi, /boot is"},
		"its directory is not mounted":   {func(m *machine) { m.setLoaderPartition("/boot/efi", "8:15") }, "/efi is neither the EFI partition"},
		"an entry is preferred":          {func(m *machine) { m.setVariable("LoaderEntryPreferred", path.Base(olderEntry)) }, "LoaderEntryPreferred selects"},
		"the menu's settings prefer one": {func(m *machine) { m.write("/efi/loader/loader.conf", "preferred x\n") }, "/efi/loader/loader.conf has the line preferred"},
		"the last of two defaults counts": {func(m *machine) {
			m.write(kernelCmdline, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11 ro\n")
			m.installKernel("6.12.10-amd64")
			m.write("/efi/loader/loader.conf", "default "+systemdToken+"-6.12.10-*\ndefault \t\""+systemdToken+"-6.12.9-*\"\r\n")
		}, ""},
		"another system is the default": {func(m *machine) {
			m.write(otherSystem, strings.ReplaceAll(m.read(systemdEntry), systemdToken, "other"))
			m.setVariable("LoaderEntryDefault", path.Base(otherSystem))
		}, "the default entry " + otherSystem + " is not of the running system"},
		"another system is in the menu": {func(m *machine) {
			m.write(otherSystem, strings.ReplaceAll(m.read(systemdEntry), systemdToken, "other"))
			m.setVariable("LoaderEntryDefault", path.Base(systemdEntry))
		}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newSystemdBoot(t)
			test.prepare(m)
			found := m.subject.Detect()
			if test.message == "" {
				if found.Type != SystemdBoot || !found.MayReboot() {
					t.Errorf("not proven: %+v", found)
				}
				before := m.bootFiles()
				m.apply(settings(ihash, seed))
				m.startEntry()
				m.apply(settings(ihash, seed))
				expect(t, m.observe(ihash, seed), host.InSync)
				m.apply(nil)
				if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
					t.Errorf("after restore (-before +after):\n%s", diff)
				}
				return
			}
			if found.Type != Unsupported || !strings.Contains(found.Message, test.message) {
				t.Errorf("got %+v, want %q", found, test.message)
			}
			before := m.bootFiles()
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Unsupported, test.message)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// setLoaderPartition mounts the device 8:15 at a directory, and names the device of the partition that systemd-boot was loaded from.
func (m *machine) setLoaderPartition(dir, number string) {
	m.t.Helper()
	const id = "1b2c3d4e-0000-4000-8000-000000000001"
	m.setVariable("LoaderDevicePartUUID", strings.ToUpper(id))
	m.write("/dev/sdx1", "")
	if !m.fs.Exists("/dev/disk/by-partuuid/" + id) {
		hosttest.WriteLink(m.t, m.dir, "/dev/disk/by-partuuid/"+id, "../../sdx1")
	}
	m.write("/sys/class/block/sdx1/dev", number+"\n")
	m.write("/proc/1/mountinfo", "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n90 25 0:36 / "+dir+
		" rw,relatime shared:40 - autofs systemd-1 rw\n91 90 8:15 / "+dir+" rw,relatime shared:41 - vfat /dev/sda15 rw\n")
}

// A new default entry that the agent does not manage after staging: the agent maintains the entries, but the node is not rebooted.
func TestSystemdBootThatChangesAfterStaging(t *testing.T) {
	m := newSystemdBoot(t)
	before := m.bootFiles()
	m.apply(settings(ihash, seed))
	m.startEntry()
	m.apply(settings(ihash, seed))
	m.write(triesFile, "3\n")
	if found := m.subject.Detect(); found.Type != SystemdBoot || found.Proven || !strings.Contains(found.Message, onlyMaintained) {
		t.Errorf("got %+v", found)
	}
	expect(t, m.observe(ihash, seed), host.InSync)
	m.apply(nil)
	m.remove(triesFile)
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

func TestATrialThatSystemdBootCannotLoadIsNotPermitted(t *testing.T) {
	m := newSystemdBoot(t)
	m.apply(settings(ihash, seed))
	m.remove(m.kernel)
	if err := m.rearm(true); !errors.Is(err, errNoKernel) {
		t.Errorf("got error %v", err)
	}
	if m.oneShot() != "" || m.fs.Exists(systemdOnce) {
		t.Errorf("selected is %q", m.oneShot())
	}
	m.write(m.kernel, "kernel")
	m.restart()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
	// A loader that the agent no longer supports, and no record.
	m.remove(blsForm.file)
	m.write(triesFile, "3\n")
	m.restart()
	m.apply(nil)
	if m.oneShot() != "" || m.fs.Exists(systemdOnce) {
		t.Errorf("without support: selected is %q", m.oneShot())
	}
}

// The real order is in systemd-boot's source. Versions are compared with the real systemd-analyze.
func TestOrderOfSystemdBoot(t *testing.T) {
	m := newSystemdBoot(t)
	run := hosttest.Tool(t, m.dir, "systemd-analyze")
	versions := []string{"6.12.9", "6.12.10", "6.12.9-1", "6.12.9~rc1", "6.12.9+1", "6.12.9^1", "6.12.9.1", "6.12.9a", "6.12.9_a", "7", "", "a", "B", "06.12", "6.012",
		systemdToken, onceID, "debian-6.1", "0-rescue"}
	for _, a := range versions {
		for _, b := range versions {
			if a == "" || b == "" {
				continue
			}
			out := run("compare-versions", a, b)
			signs := map[string]int{"<": -1, "==": 0, ">": 1}
			words := strings.Fields(out)
			if len(words) != 3 {
				t.Fatalf("systemd-analyze: %q", out)
			}
			want := signs[words[1]]
			if got := strings.Compare(systemdVersion(a), systemdVersion(b)); got != want {
				t.Errorf("%s and %s: got %d, systemd-analyze has %q", a, b, got, out)
			}
		}
	}
	entry := func(id, text string) *menuEntry { return &menuEntry{id: id, file: id + ".conf", text: text} }
	order := []*menuEntry{
		entry("z", "sort-key arch\nversion 1\n"), entry("m-6.12.10", "sort-key debian\nmachine-id 1\nversion 6.12.10\n"),
		entry("m-6.12.9", "sort-key debian\nmachine-id 1\nversion 6.12.9\n"), entry("n-7", "sort-key debian\nmachine-id 2\nversion 7\n"),
		entry("0-rescue", ""), entry("zz", ""), entry(onceID, "version 0\n"),
	}
	shuffled := slices.Clone(order)
	slices.Reverse(shuffled)
	slices.SortStableFunc(shuffled, efiTool{}.compare)
	for i := range order {
		if shuffled[i] != order[i] {
			t.Errorf("place %d: got %s, want %s", i, shuffled[i].id, order[i].id)
		}
	}
}

// The agent writes the same arguments as the real kernel-install, which leaves them after the promotion.
func TestPromotedEntriesAreThoseOfKernelInstall(t *testing.T) {
	m := newSystemdBoot(t)
	run := hosttest.Tool(t, m.dir, "kernel-install")
	for _, name := range []string{"sh", "cat", "chown", "cp", "grep", "install", "mkdir", "mktemp", "mountpoint", "rm", "sort", "stat", "tr"} {
		hosttest.Tool(t, m.dir, name)
	}
	const script = "/usr/lib/kernel/install.d/90-loaderentry.install"
	data, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"/dev/null": "", "/tmp/x": "", "/var/tmp/x": "", "/etc/machine-id": systemdToken + "\n", "/etc/kernel/install.conf": "layout=bls\nBOOT_ROOT=/efi\n",
		script: string(data), "/boot/vmlinuz-6.12.9-amd64": "kernel", "/boot/initrd.img-6.12.9-amd64": "initrd",
	} {
		m.write(name, text)
	}
	hosttest.WriteLink(t, m.dir, "/bin/sh", "/tool/sh")
	m.setMode(script, 0o755)
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
		m.replace(systemdEntry, " /efi/", " /")
	}
	words := func() []string {
		return slices.Sorted(slices.Values(strings.Fields(entryOptions(m.read(systemdEntry)))))
	}
	install()
	if entries, err := m.subject.loader().(entryLoader).readEntries(); err != nil || len(entries) != 2 || token(entries[0]) != systemdToken {
		t.Errorf("entries of kernel-install: %+v, %v", entries, err)
	}
	m.startEntry()
	m.apply(settings(ihash, seed))
	install()
	if slices.Contains(words(), ihashSeed) {
		t.Error("kernel-install uses the argument before its promotion")
	}
	m.startEntry()
	m.apply(settings(ihash, seed))
	promoted := words()
	install()
	if diff := cmp.Diff(promoted, words()); diff != "" || !slices.Contains(promoted, ihashSeed) {
		t.Errorf("arguments (-agent +kernel-install):\n%s", diff)
	}
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.apply(nil)
	install()
	if slices.Contains(words(), ihashSeed) {
		t.Error("kernel-install uses the argument after its removal")
	}
}

// kernel-install may make an entry after the agent has saved the files: there are no bytes to edit.
func TestAnEntryThatIsMadeWhileOthersAreChanged(t *testing.T) {
	m := newSystemdBoot(t)
	m.apply(settings(ihash, seed))
	m.startEntry()
	entry, text := "", ""
	subject := m.on(m.fs)
	subject.facts = installingFacts{m.facts, func() {
		if entry == "" {
			entry = m.installKernel("6.13.1-amd64")
			text = m.read(entry)
		}
	}}
	if err := subject.Apply(t.Context(), settings(ihash, seed)); err != nil {
		t.Errorf("got error %v", err)
	}
	if entry == "" || m.read(entry) != text {
		t.Errorf("the new entry %s is %q", entry, m.read(entry))
	}
	m.expectInDefaults(ihashSeed, false)
	m.restart()
	m.apply(settings(ihash, seed))
	m.expectInDefaults(ihashSeed, true)
}

// installingFacts calls a function after the files were saved.
type installingFacts struct {
	memoryFacts
	install func()
}

func (f installingFacts) KeepFiles(files map[string]host.FileRecord) error {
	err := f.memoryFacts.KeepFiles(files)
	f.install()
	return err
}

// The power may fail between any two writes of a permit. A power failure never counts as a failed trial.
func TestAPowerCutWhileATrialIsPermittedIsNoFailure(t *testing.T) {
	for n := 1; ; n++ {
		m := newSystemdBoot(t)
		m.apply(settings(ihash, seed))
		// Without a permit, it is tried once more.
		m.remove(hosttest.OneShotVariable)
		m.startEntry()
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Pending, "only with a permit")
		subject, c := m.crashing(n)
		_ = subject.Rearm(true)
		if m.oneShot() == "" && c.count >= n {
			m.startEntry()
			m.apply(settings(ihash, seed))
			if got := m.observe(ihash, seed); got.State != host.Pending {
				t.Errorf("after a power cut at write %d: got %+v", n, got)
			}
		}
		if c.count < n {
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
		"its default is that of the system": {mount, "default " + systemdToken + "-6.12.9-*\n", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newSystemdBoot(t)
			if err := os.MkdirAll(m.dir+"/boot/loader", 0o755); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{"/loader/entries", "/" + systemdToken} {
				if err := os.Rename(m.dir+"/efi"+dir, m.dir+"/boot"+dir); err != nil {
					t.Fatal(err)
				}
			}
			m.write("/boot/loader/loader.conf", "default arch\n")
			m.write("/efi/loader/loader.conf", test.config)
			m.write("/proc/1/mountinfo", m.read("/proc/1/mountinfo")+test.mounts)
			found := m.subject.Detect()
			if test.message == "" && !found.MayReboot() || !strings.Contains(found.Message, test.message) {
				t.Errorf("got %+v, want %q", found, test.message)
			}
			m.apply(settings(ihash, seed))
			if m.fs.Exists("/boot/loader/entries/"+onceID+".conf") != (test.message == "") {
				t.Errorf("a trial is pending: %t", test.message != "")
			}
		})
	}
}

// A user makes another system the default after staging. Its entries are never changed, not even while the entry that loaded the kernel is gone.
func TestEntriesOfAnotherSystemStay(t *testing.T) {
	m := newSystemdBoot(t)
	before := m.bootFiles()
	m.apply(settings(ihash, seed))
	m.startEntry()
	other := strings.ReplaceAll(m.read(systemdEntry), systemdToken, "other")
	m.write(otherSystem, other)
	m.write("/efi/other/6.12.9-amd64/linux", "kernel")
	m.write("/efi/other/6.12.9-amd64/initrd.img-6.12.9-amd64", "initrd")
	m.setVariable("LoaderEntryDefault", path.Base(systemdEntry))
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	if m.fs.Exists(systemdOnce) || !strings.Contains(m.read(systemdEntry), ihashSeed) {
		t.Error("not promoted")
	}
	m.restart()
	for _, choice := range []string{path.Base(otherSystem), "@saved"} {
		m.setVariable("LoaderEntryDefault", choice)
		if err := m.subject.Apply(t.Context(), settings(ihash, "1048576")); err == nil || !strings.Contains(err.Error(), "not one of the running system") {
			t.Errorf("default %s: got error %v", choice, err)
		}
		if text := m.read(otherSystem); text != other {
			t.Errorf("the other system's entry is\n%s", text)
		}
	}
	m.apply(nil)
	if text := m.read(otherSystem); text != other {
		t.Errorf("the other system's entry is\n%s", text)
	}
	m.remove(otherSystem)
	m.remove("/efi/other")
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

// On VFAT, a power cut while an argument is staged can leave an empty entry. systemd-boot ignores it, and the next pass of the agent replaces or removes
// it.
func TestAPowerCutThatEmptiesTheEntryThatIsBootedOnce(t *testing.T) {
	hosts := map[string]func(*testing.T) *machine{"systemd-boot": newSystemdBoot, "images": newUKI}
	for loader, newMachine := range hosts {
		for name, desired := range map[string][]host.Setting{"the same value": settings(ihash, seed), "given up": nil} {
			t.Run(loader+", "+name, func(t *testing.T) {
				m := newMachine(t)
				before := m.bootFiles()
				for n := 1; !m.fs.Exists(systemdOnce); n++ {
					staging, _ := m.crashing(n)
					_ = staging.Apply(t.Context(), settings(ihash, seed))
				}
				m.write(systemdOnce, "")
				m.startEntry()
				m.apply(desired)
				for _, setting := range desired {
					m.startEntry()
					m.apply(desired)
					expect(t, m.observe(setting.Name, setting.Value), host.InSync)
				}
				m.apply(nil)
				if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
					t.Errorf("after restore (-before +after):\n%s", diff)
				}
			})
		}
	}
}
