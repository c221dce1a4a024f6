package bootloader

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/grub"
)

const (
	blsEnv  = "/boot/grub2/grubenv"
	blsMenu = `set timeout=5
load_env
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
insmod blscfg
blscfg
`
	panicArgument = "rdinit"
)

// newTryingRocky is a host whose GRUB can write to its environment block. An agent runs after each boot.
func newTryingRocky(t *testing.T) *machine {
	t.Helper()
	m := newRocky(t)
	m.attended = true
	m.commands.Output = map[string]string{
		"grub2-probe --target=abstraction /boot/grub2": "\n", "grub2-probe --target=fs /boot/grub2": "xfs\n",
	}
	m.write(grub2Cfg, blsMenu)
	m.write(blsEnv, grub.PadBlock(grub.EmptyBlock+"next_entry=\nboot_success=1\nkernelopts=ro\n"))
	for _, file := range []string{rockyEntry, rescueEntry} {
		for line := range strings.Lines(m.read(file)) {
			if name, ok := strings.CutPrefix(line, "linux "); ok {
				m.write("/boot"+strings.TrimSpace(name), "kernel")
			} else if name, ok := strings.CutPrefix(line, "initrd "); ok {
				m.write("/boot"+strings.TrimSpace(name), "initrd")
			}
		}
	}
	m.restart()
	return m
}

// powerEntry starts GRUB like blsMenu, and returns the entry that it boots: of the environment block, or else the highest name.
func (m *machine) powerEntry() (name, options string) {
	m.t.Helper()
	if m.entries == systemdEntries {
		return m.powerSystemdBoot()
	}
	env := environment(m.read(blsEnv))
	files, err := m.fs.Glob(entriesDir, "*.conf")
	if err != nil {
		m.t.Fatal(err)
	}
	file := slices.Max(slices.DeleteFunc(slices.Clone(files), func(name string) bool { return name == onceEntry }))
	for _, choice := range []string{env.value("saved_entry"), env.value(nextEntry)} {
		if choice != "" && slices.Contains(files, path.Join(entriesDir, choice+".conf")) {
			file = path.Join(entriesDir, choice+".conf")
		}
	}
	if env.value(nextEntry) != "" {
		// save_env keeps the line of an empty variable.
		text := strings.Replace(string(env), nextEntry+"="+env.value(nextEntry)+"\n", nextEntry+"=\n", 1)
		m.write(blsEnv, grub.PadBlock(strings.TrimRight(text, "#")))
	}
	return strings.TrimSuffix(path.Base(file), ".conf"), entryOptions(m.read(file))
}

// startEntry starts GRUB, the kernel and the agent, unless the arguments make the kernel panic. The machine then starts again.
func (m *machine) startEntry() string {
	m.t.Helper()
	for range 3 {
		name, options := m.powerEntry()
		if strings.Contains(options, panicArgument) {
			continue
		}
		inodes := 262144
		if arg, ok := lastNamed(host.ParseArguments(options), ihash); ok {
			_, err := fmt.Sscan(arg.Value, &inodes)
			if err != nil {
				m.t.Fatal(err)
			}
		}
		switch {
		case m.hasImages():
			m.setVariable("LoaderEntrySelected", strings.TrimSuffix(name, ".efi")+map[bool]string{true: ".conf", false: ".efi"}[name == onceID])
			m.bootWith(options, inodes)
		case m.entries == systemdEntries:
			m.write(efiVars+"LoaderEntrySelected"+loaderGUID, hosttest.EncodeVariable(name+".conf"))
			m.bootWith(`initrd=\token\initrd `+options, inodes)
		default:
			m.bootWith("BOOT_IMAGE=(hd0,msdos1)/vmlinuz-5.14.0-427.13.1.el9_4.x86_64 "+options, inodes)
		}
		return name
	}
	m.t.Fatal("the machine does not start")
	return ""
}

// expectInDefaults checks whether all permanent entries and the arguments of later kernels have an argument.
func (m *machine) expectInDefaults(arg string, want bool) {
	m.t.Helper()
	if m.hasImages() && slices.Contains(strings.Fields(m.addonOptions()), arg) != want {
		m.t.Errorf("the addon has %s: %t", arg, !want)
	}
	files, err := m.fs.Glob(m.entries, "*.conf")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, file := range append(files, kernelCmdline) {
		if m.hasImages() {
			continue
		}
		if path.Base(file) != path.Base(onceEntry) && slices.Contains(strings.Fields(m.read(file)), arg) != want {
			m.t.Errorf("%s has %s: %t", file, arg, !want)
		}
	}
}

func TestAnArgumentIsOnlyInTheEntryThatIsBootedOnceUntilItHasBooted(t *testing.T) {
	m := newTryingRocky(t)
	before := m.bootFiles()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
	m.expectInDefaults(ihashSeed, false)
	if found := m.subject.Detect(); !found.MayReboot() {
		t.Errorf("not rebooted: %s", found.Message)
	}
	if entries, err := m.subject.loader().readMenu(t.Context()); err != nil || len(entries.lines) != 2 {
		t.Errorf("entries: got %+v, %v", entries.lines, err)
	}
	once := m.read(onceEntry)
	m.apply(settings(ihash, seed))
	m.prepareReboot()
	if name := m.startEntry(); name != onceID || m.read(onceEntry) != once {
		t.Errorf("booted %s", name)
	}
	m.expectInDefaults(ihashSeed, false)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.expectInDefaults(ihashSeed, true)
	if m.fs.Exists(onceEntry) {
		t.Error("the entry that is booted once is left")
	}
	if name := m.startEntry(); name == onceID {
		t.Errorf("booted %s again", name)
	}
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.apply(nil)
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
	m.startEntry()
	expect(t, m.restore(ihash, host.Original{}), host.InSync)
}

func TestAnArgumentThatPanicsReturnsToTheDefaultEntry(t *testing.T) {
	for name, permitted := range map[string]bool{"with a permit it has failed": true, "without one it is tried once more": false} {
		t.Run(name, func(t *testing.T) {
			m := newTryingRocky(t)
			before := m.bootFiles()
			m.apply(settings(panicArgument, "/missing"))
			if permitted {
				m.prepareReboot()
			}
			if name := m.startEntry(); name == onceID {
				t.Error("booted the entry again")
			}
			m.apply(settings(panicArgument, "/missing"))
			if permitted {
				expect(t, m.observe(panicArgument, "/missing"), host.Failed, "trial boot failed")
			} else {
				expect(t, m.observe(panicArgument, "/missing"), host.Pending, "only with a permit")
				m.prepareReboot()
				m.startEntry()
				m.apply(settings(panicArgument, "/missing"))
				expect(t, m.observe(panicArgument, "/missing"), host.Failed, "trial boot failed")
			}
			m.startEntry()
			m.expectInDefaults(panicArgument+"=/missing", false)
			m.apply(nil)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

func TestKernelThatIsInstalledDuringATrial(t *testing.T) {
	m := newTryingRocky(t)
	before := m.bootFiles()
	m.apply(settings(ihash, seed))
	later := strings.ReplaceAll(rockyEntry, "427.13.1", "503.1.1")
	text := strings.ReplaceAll(m.read(rockyEntry), "427.13.1", "503.1.1")
	m.write(later, text)
	for _, name := range []string{"/boot/vmlinuz-5.14.0-503.1.1.el9_4.x86_64", "/boot/initramfs-5.14.0-503.1.1.el9_4.x86_64.img"} {
		m.write(name, "file")
	}
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
	if !strings.Contains(m.read(onceEntry), "503.1.1") {
		t.Errorf("the trial is not that of the new default entry:\n%s", m.read(onceEntry))
	}
	m.prepareReboot()
	m.startEntry()
	m.apply(settings(ihash, seed))
	m.expectInDefaults(ihashSeed, true)
	m.apply(nil)
	if m.read(later) != text {
		t.Errorf("the entry of the new kernel is\n%s", m.read(later))
	}
	m.remove(later)
	m.remove("/boot/vmlinuz-5.14.0-503.1.1.el9_4.x86_64")
	m.remove("/boot/initramfs-5.14.0-503.1.1.el9_4.x86_64.img")
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

func TestReadyTrialFollowsTheKernels(t *testing.T) {
	tests := map[string]struct {
		prepare   func(*machine)
		err, text string
	}{
		"its kernel is removed": {func(*machine) {}, errNoKernel.Error(), ""},
		"its initrd is not made yet": {func(m *machine) {
			m.addKernel(newKernel, false)
		}, errNoKernel.Error(), ""},
		"its kernel is replaced": {func(m *machine) {
			m.write(strings.ReplaceAll(rockyEntry, "427.13.1", "503.1.1"), strings.ReplaceAll(m.read(rockyEntry), "427.13.1", "503.1.1"))
			m.write("/boot/vmlinuz-5.14.0-503.1.1.el9_4.x86_64", "kernel")
			m.write("/boot/initramfs-5.14.0-503.1.1.el9_4.x86_64.img", "initrd")
			m.remove(rockyEntry)
		}, "", "/vmlinuz-5.14.0-503.1.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newTryingRocky(t)
			m.apply(settings(ihash, seed))
			m.remove("/boot/vmlinuz-5.14.0-427.13.1.el9_4.x86_64")
			test.prepare(m)
			// An error rejects the permit.
			if err := m.subject.Rearm(true); test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
				t.Errorf("error: got %v, want %q", err, test.err)
			}
			if got := environment(m.read(blsEnv)).value(nextEntry); (got == onceID) != (test.err == "") {
				t.Errorf("the next entry is %q", got)
			}
			if !strings.Contains(m.read(onceEntry), test.text) {
				t.Errorf("the entry is\n%s", m.read(onceEntry))
			}
		})
	}
}

// grubby creates the arguments of later kernels from the entry that sorts last (recorded in hosttest/testdata/grubby.json).
func TestArgumentsOfLaterKernelsAreNotThoseOfTheTrial(t *testing.T) {
	for name, vendor := range map[string]string{"none": "", "the vendor's": "root=/dev/mapper/rl-root ro\n"} {
		t.Run(name, func(t *testing.T) {
			m := newTryingRocky(t)
			m.remove(kernelCmdline)
			m.write("/etc/kernel/install.conf", "")
			if vendor != "" {
				m.write(laterFiles[1], vendor)
			}
			m.apply(settings("audit", "0", ihash, "1048576"))
			m.startEntry()
			m.apply(settings("audit", "0", ihash, seed))
			switch {
			case vendor == "" && m.fs.Exists(kernelCmdline):
				t.Errorf("grubby has made %s: %q", kernelCmdline, m.read(kernelCmdline))
			case vendor != "" && m.read(kernelCmdline) != "root=/dev/mapper/rl-root ro audit=0\n":
				t.Errorf("%s is %q", kernelCmdline, m.read(kernelCmdline))
			}
		})
	}
}

func TestValueThatChangesIsTriedOnItsOwn(t *testing.T) {
	m := newTryingRocky(t)
	m.apply(settings(ihash, "1048576", "audit", "0"))
	m.startEntry()
	m.apply(settings(ihash, "1048576", "audit", "0"))
	m.apply(settings(ihash, seed, "audit", "0"))
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
	expect(t, m.observe("audit", "0"), host.InSync)
	m.expectInDefaults("audit=0", true)
	m.expectInDefaults(ihash+"=1048576", true)
	m.expectInDefaults(ihashSeed, false)
	m.startEntry()
	m.apply(settings(ihash, seed, "audit", "0"))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.expectInDefaults(ihashSeed, true)
}

func TestEntrySelectedByAUserIsBootedBeforeTheTrial(t *testing.T) {
	m := newTryingRocky(t)
	rescue := strings.TrimSuffix(path.Base(rescueEntry), ".conf")
	m.write(blsEnv, string(environment(m.read(blsEnv)).with(nextEntry, rescue)))
	m.apply(settings(ihash, seed))
	if got := m.observe(ihash, seed); got.State != host.Pending || !strings.Contains(got.Message, rescue) || strings.Contains(got.Message, "failed") {
		t.Errorf("got %+v", got)
	}
	m.prepareReboot()
	if name := m.startEntry(); name != rescue {
		t.Errorf("booted %s", name)
	}
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "only with a permit", "another entry")
	m.prepareReboot()
	if name := m.startEntry(); name != onceID {
		t.Errorf("booted %s", name)
	}
}

func TestObstaclesToATrialOfABootEntry(t *testing.T) {
	tests := map[string]struct {
		prepare func(*machine)
		message string
	}{
		"there is no environment block": {func(m *machine) { m.remove(blsEnv) }, "no such file"},
		"the menu reads no block":       {func(m *machine) { m.replace(grub2Cfg, "load_env", "true") }, "does not read next_entry"},
		"the menu does not clear next":  {func(m *machine) { m.replace(grub2Cfg, "save_env", "true") }, "does not read next_entry"},
		"the menu has another default":  {func(m *machine) { m.replace(grub2Cfg, `"${next_entry}"`+"\n", "0\n") }, "does not read next_entry"},
		"the block is on btrfs": {func(m *machine) {
			m.commands.Output["grub2-probe --target=fs /boot/grub2"] = "btrfs\n"
		}, "on btrfs"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newTryingRocky(t)
			test.prepare(m)
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Pending, "has no fallback entry", test.message)
			if m.fs.Exists(onceEntry) {
				t.Error("a trial is pending")
			}
		})
	}
}

func TestHostsWithoutATrialStageAgain(t *testing.T) {
	stories := map[string]func(*machine){
		"nothing was staged": func(*machine) {},
		"all entries were rewritten": func(m *machine) {
			m.apply(settings(ihash, seed))
			m.startEntry()
			m.apply(settings(ihash, seed))
			for _, file := range []string{rockyEntry, rescueEntry, kernelCmdline} {
				m.replace(file, " "+ihashSeed, "")
			}
			m.startEntry()
		},
	}
	for name, prepare := range stories {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				m := newTryingRocky(t)
				m.commands.Output["grub2-probe --target=fs /boot/grub2"] = "btrfs\n"
				prepare(m)
				subject, c := m.crashing(n)
				_ = subject.Apply(t.Context(), settings(ihash, seed))
				m.restart()
				m.apply(settings(ihash, seed))
				expect(t, m.observe(ihash, seed), host.Pending, "has no fallback entry")
				m.expectInDefaults(ihashSeed, true)
				if c.count < n {
					return
				}
			}
		})
	}
}

func TestBootEntriesThatDoNotExplainTheRunningKernel(t *testing.T) {
	later := strings.ReplaceAll(rockyEntry, "427.13.1", "503.1.1")
	tests := map[string]struct {
		prepare func(*machine)
		message string
	}{
		"it has an argument that no entry has": {func(m *machine) { m.replace(commandLine, " ro ", " ro iommu=pt ") },
			"/proc/cmdline has iommu=pt, which the default entry of " + rockyEntry + " (line 5) does not pass"},
		"the newest kernel's entry has other arguments": {func(m *machine) {
			m.write(later, strings.Replace(m.read(rockyEntry), " rd.lvm.lv=rl/root", "", 1))
		}, "which the default entry of " + later},
		"the newest kernel's entry is not the default": {func(m *machine) {
			m.write(later, strings.Replace(m.read(rockyEntry), " rd.lvm.lv=rl/root", "", 1))
			m.write(blsEnv, grub.PadBlock(grub.EmptyBlock+"saved_entry="+strings.TrimSuffix(path.Base(rockyEntry), ".conf")+"\n"))
		}, ""},
		"no entry loads its kernel": {func(m *machine) {
			m.replace(commandLine, "/vmlinuz-", "/other/vmlinuz-")
		}, "which no entry of " + grub2Cfg + " loads"},
		"its arguments are in the environment block": {func(m *machine) {
			m.replace(rockyEntry, "rd.lvm.lv=rl/root", "$kernelopts $tuned_params")
			m.replace(commandLine, "\n", " isolcpus=1\n")
			m.write(blsEnv, grub.PadBlock(grub.EmptyBlock+"kernelopts=rd.lvm.lv=rl/root\ntuned_params=isolcpus=1\n"))
		}, ""},
		"its arguments are not in the environment block": {func(m *machine) {
			m.replace(rockyEntry, "rd.lvm.lv=rl/root", "$kernelopts")
		}, "has rd.lvm.lv=rl/root, which"},
		"another generator's entry is the default": {func(m *machine) {
			m.replace(grub2Cfg, "\nblscfg\n", "\nblscfg\n### BEGIN /etc/grub.d/40_custom ###\nmenuentry 'Other' --id other {\n}\n### END /etc/grub.d/40_custom ###\n")
			m.write(blsEnv, grub.PadBlock(grub.EmptyBlock+"saved_entry=other\n"))
		}, `boots entry "Other" of 40_custom`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newTryingRocky(t)
			test.prepare(m)
			found := m.subject.Detect()
			if test.message == "" {
				if !found.MayReboot() {
					t.Errorf("not proven: %s", found.Message)
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

// The order is as in rpm and in GRUB's module blscfg.
func TestOrderOfBootEntries(t *testing.T) {
	ascending := [][]string{
		{onceID, "0-rescue", "0abc-5.14.0-503.1.1.el9.x86_64"},
		{"m-0-rescue", "m-5.14.0-70.el9.x86_64", "m-5.14.0-427.el9.x86_64", "m-6.1.0-1.el9.x86_64"},
		{"m-5.14.0~rc1-1", "m-5.14.0-1", "m-5.14.0+debug-1", "m-5.14.0.1-1"},
		{"m-5.a-1", "m-5.1-1", "m-5.01.1-1"},
	}
	for _, names := range ascending {
		for i := range len(names) - 1 {
			if compareEntries(names[i], names[i+1]) >= 0 || compareEntries(names[i+1], names[i]) <= 0 {
				t.Errorf("%s is not before %s", names[i], names[i+1])
			}
		}
	}
	if compareEntries("m-5.014", "m-5.14") != 0 {
		t.Error("leading zeros count")
	}
}

// The agent is killed (-9) between any two host writes, including grubby's writes. The machine then boots with its previous arguments, or tries the
// new ones and returns. A new agent has the usual result, and its journal restores every byte.
func TestATrialOfABootEntrySurvivesAKillAtEveryWrite(t *testing.T) {
	staged := func(m *machine) { m.apply(settings(ihash, seed)) }
	permitted := func(m *machine) { staged(m); m.prepareReboot() }
	hosts := map[string]func(*testing.T) *machine{"GRUB": newTryingRocky, "systemd-boot": newSystemdBoot, "images": newUKI}
	failed := func(m *machine) { staged(m); m.failTrial(); staged(m) }
	tuned := func(m *machine) {
		m.apply(settings(ihash, "1048576"))
		m.startEntry()
		m.apply(settings(ihash, "1048576"))
	}
	audit := func(m *machine) { m.apply(settings("audit", "0")); m.startEntry(); m.apply(settings("audit", "0")) }
	both := settings("audit", "0", ihash, seed)
	applies := func(desired []host.Setting) func(*machine, *Subject) {
		return func(m *machine, s *Subject) { _ = s.Apply(m.t.Context(), desired) }
	}
	rearms := func(permitted bool) func(*machine, *Subject) {
		return func(_ *machine, s *Subject) { _ = s.Rearm(permitted) }
	}
	stories := map[string]struct {
		prepare func(*machine)
		killed  func(*machine, *Subject)
		then    []host.Setting
		// promoted is true if the default entry may have the arguments of the running kernel, or still lack them.
		promoted bool
	}{
		"staging":                          {func(*machine) {}, applies(settings(ihash, seed)), settings(ihash, seed), false},
		"staging, given up":                {func(*machine) {}, applies(settings(ihash, seed)), nil, false},
		"another value":                    {func(m *machine) { m.apply(settings(ihash, "1048576")) }, applies(settings(ihash, seed)), settings(ihash, seed), false},
		"withdrawn before the trial":       {staged, applies(nil), nil, false},
		"a permit":                         {staged, rearms(true), settings(ihash, seed), false},
		"a permit, given up":               {staged, rearms(true), nil, false},
		"a permit without a kernel":        {func(m *machine) { staged(m); m.remove(m.kernel) }, rearms(true), nil, false},
		"a withdrawn permit":               {permitted, rearms(false), settings(ihash, seed), false},
		"the kernel is missing":            {func(m *machine) { permitted(m); m.remove(m.kernel) }, applies(settings(ihash, seed)), nil, false},
		"withdrawn after a failed trial":   {failed, applies(nil), nil, false},
		"one more after a failed trial":    {failed, applies(both), both, false},
		"promotion":                        {func(m *machine) { staged(m); m.startEntry() }, applies(settings(ihash, seed)), settings(ihash, seed), true},
		"promotion, given up":              {func(m *machine) { staged(m); m.startEntry() }, applies(settings(ihash, seed)), nil, true},
		"another value after promotion":    {tuned, applies(settings(ihash, seed)), settings(ihash, seed), false},
		"another value, withdrawn":         {func(m *machine) { tuned(m); staged(m) }, applies(settings(ihash, "1048576")), settings(ihash, "1048576"), false},
		"promotion of another value":       {func(m *machine) { tuned(m); staged(m); m.startEntry() }, applies(settings(ihash, seed)), settings(ihash, seed), true},
		"one more":                         {audit, applies(both), both, false},
		"one is removed, and one is tried": {audit, applies(settings(ihash, seed)), settings(ihash, seed), false},
		"one of two is removed":            {func(m *machine) { m.apply(both) }, applies(settings("audit", "0")), settings("audit", "0"), false},
		"removed after promotion":          {func(m *machine) { staged(m); m.startEntry(); staged(m) }, applies(nil), nil, true},
	}
	for host, newMachine := range hosts {
		kills := 0
		newHost := func(t *testing.T) *machine {
			m := newMachine(t)
			m.journalled = true
			m.restart()
			return m
		}
		for name, story := range stories {
			t.Run(host+", "+name, func(t *testing.T) {
				clean := newHost(t)
				original := clean.bootFiles()
				story.prepare(clean)
				story.killed(clean, clean.subject)
				clean.apply(story.then)
				// The permit is not given again.
				compared := func(files map[string]string) map[string]string {
					if strings.Contains(name, "permit") {
						forgetPermit(files)
					}
					return withoutNext(files)
				}
				want := compared(clean.bootFiles())
				for n := 1; ; n++ {
					m := newHost(t)
					story.prepare(m)
					s, c := m.crashing(n)
					story.killed(m, s)
					m.expectEntryBootable(n)
					if !story.promoted {
						m.expectRunningDefault(n)
					}
					m.restart()
					m.apply(story.then)
					if diff := cmp.Diff(want, compared(m.bootFiles())); diff != "" {
						t.Fatalf("after the repeat of write %d (-want +got):\n%s", n, diff)
					}
					m.apply(nil)
					m.write(m.kernel, original[m.kernel])
					if diff := cmp.Diff(original, m.bootFiles()); diff != "" {
						t.Fatalf("after restore, write %d (-want +got):\n%s", n, diff)
					}
					if c.count < n {
						return
					}
					kills++
				}
			})
		}
		t.Logf("%s: %d kills", host, kills)
		if kills < 400 {
			t.Errorf("%s: got only %d kills, want 400", host, kills)
		}
	}
}

// forgetPermit makes the state of a trial independent of its permit.
func forgetPermit(files map[string]string) {
	if block, ok := files[blsEnv]; ok {
		files[blsEnv] = string(environment(block).with(trialVariable, ""))
	}
	if text, ok := files[systemdOnce]; ok {
		files[systemdOnce] = strings.Replace(text, stateMark+trialPermitted, stateMark+trialArmed, 1)
	}
}

// After the failure, the default entries lose the argument that is no longer desired.
func TestAKillDoesNotRepeatAFailedTrial(t *testing.T) {
	desired := settings(ihash, seed)
	for name, next := range map[string][]host.Setting{"same arguments": desired, "one more": settings("nosmt", "", ihash, seed)} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				m, before := newTuned(t, "audit", "0", ihash, "1048576")
				m.apply(desired)
				m.failTrial()
				subject, c := m.crashing(n)
				_ = subject.Apply(t.Context(), desired)
				m.expectEntryBootable(n)
				for range 2 {
					m.restart()
					m.apply(next)
					expect(t, m.subject.Observe(t.Context(), next)[len(next)-1], host.Failed, "trial boot failed")
					if len(next) == 1 {
						m.expectInDefaults("audit=0", false)
					}
					m.expectInDefaults(ihash+"=1048576", true)
				}
				if name, options := m.powerEntry(); name == onceID && strings.Contains(options, ihashSeed) {
					t.Errorf("after a kill at write %d: GRUB tries the failed argument again", n)
				}
				m.apply(nil)
				if diff := cmp.Diff(withoutNext(before), withoutNext(m.bootFiles())); diff != "" {
					t.Fatalf("after restore, write %d (-want +got):\n%s", n, diff)
				}
				if c.count < n {
					return
				}
			}
		})
	}
}

// The first kill interrupts a promotion, so that one of two entries has the argument. After the next boot, the second kill interrupts the staging of
// another value. Only some writes are tested: an argument that is lost at one is lost at its neighbors too.
func TestTwoKillsLoseNoArgument(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *machine{"GRUB": newTryingRocky, "systemd-boot": newSystemdBoot, "images": newUKI} {
		t.Run(name, func(t *testing.T) {
			kills := 0
			for first, more := 1, true; more; first += 2 {
				for second := 1; ; second += 10 {
					m := start(t)
					original := withoutNext(m.bootFiles())
					m.apply(settings(ihash, seed))
					m.startEntry()
					promoting, c := m.crashing(first)
					_ = promoting.Apply(t.Context(), settings(ihash, seed))
					more = c.count >= first
					m.startEntry()
					staging, c := m.crashing(second)
					_ = staging.Apply(t.Context(), settings(ihash, "1048576"))
					m.startEntry()
					m.apply(nil)
					if diff := cmp.Diff(original, withoutNext(m.bootFiles())); diff != "" {
						t.Errorf("after restore, writes %d and %d (-want +got):\n%s", first, second, diff)
					}
					if c.count < second {
						break
					}
					kills++
				}
			}
			t.Logf("%d pairs of kills", kills)
			if kills < 20 {
				t.Errorf("got only %d pairs of kills, want 20", kills)
			}
		})
	}
}

// expectEntryBootable checks the state after a kill: within two starts, GRUB boots with the arguments of the running kernel or fewer.
func (m *machine) expectEntryBootable(n int) {
	m.t.Helper()
	defer m.keepSelection()()
	// The last argument is the previous value of a promotion.
	running := host.ParseArguments(m.read(commandLine) + " " + ihash + "=1048576")
	for range 2 {
		_, options := m.powerEntry()
		if options != "" && len(argumentsWithout(host.ParseArguments(options), running)) == 0 {
			return
		}
	}
	m.t.Errorf("after a kill at write %d: GRUB never boots the running arguments", n)
}

// expectRunningDefault checks that the default entry has exactly the arguments of the running kernel after a kill.
func (m *machine) expectRunningDefault(n int) {
	m.t.Helper()
	defer m.keepSelection()()
	if m.entries == systemdEntries {
		m.remove(hosttest.OneShotVariable)
	} else {
		m.write(blsEnv, string(environment(m.read(blsEnv)).with(nextEntry, "")))
	}
	_, options := m.powerEntry()
	running, passed := host.ParseArguments(m.read(commandLine)), host.ParseArguments(options)
	running = slices.DeleteFunc(running, func(arg host.Argument) bool { return arg.Is("BOOT_IMAGE") || arg.Is("initrd") })
	// An addon cannot keep a value that the trial replaces.
	replaced := func(arg host.Argument) bool { return m.hasImages() && (arg.Is(ihash) || arg.Is("audit")) }
	more, fewer := argumentsWithout(passed, running), slices.DeleteFunc(argumentsWithout(running, passed), replaced)
	if len(more)+len(fewer) > 0 {
		m.t.Errorf("after a kill at write %d: the default entry has %v and lacks %v", n, more, fewer)
	}
}

func TestFailedPromotionIsReportedAndRepeated(t *testing.T) {
	m := newTryingRocky(t)
	m.apply(settings(ihash, seed))
	m.startEntry()
	m.subject.runner = failingUpdate{m.commands}
	if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil {
		t.Error("Apply: got no error")
	}
	expect(t, m.observe(ihash, seed), host.Failed, "exit status 1")
	m.expectInDefaults(ihashSeed, false)
	m.restart()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	m.expectInDefaults(ihashSeed, true)
}

// On Fedora, kernel-install runs grub2-mkconfig, which sets all entries and the arguments of later kernels.
func TestEntriesThatTheNextKernelInstallationRewrites(t *testing.T) {
	m := newTryingRocky(t)
	m.write(defaultFile, "GRUB_CMDLINE_LINUX=\"audit=0\"\n")
	before := m.bootFiles()
	m.write("/usr/lib/kernel/install.d/20-grub.install", "[[ /etc/kernel/cmdline -ot /etc/default/grub ]] && grub2-mkconfig -o /etc/grub2.cfg\n")
	m.setMode("/usr/lib/kernel/install.d/20-grub.install", 0o755)
	m.apply(settings(ihash, seed, "audit", "0"))
	m.startEntry()
	m.apply(settings(ihash, seed, "audit", "0"))
	newer := time.Unix(2000000000, 0)
	for file, want := range map[string]bool{kernelCmdline: false, defaultFile: true} {
		if err := os.Chtimes(filepath.Join(m.dir, file), newer, newer); err != nil {
			t.Fatal(err)
		}
		newer = newer.Add(time.Hour)
		if got := m.observe(ihash, seed); got.State != host.InSync || strings.Contains(got.Message, "next kernel installation") != want {
			t.Errorf("newest is %s: got %+v", file, got)
		}
	}
	if got := m.observe("audit", "0"); got.State != host.InSync || got.Message != "" {
		t.Errorf("the argument in %s: got %+v", defaultFile, got)
	}
	for _, file := range []string{rockyEntry, rescueEntry, kernelCmdline} {
		m.replace(file, " "+ihashSeed, "")
	}
	expect(t, m.observe(ihash, seed), host.Drifted, "not in the boot menu", "the next boot will not pass it")
	m.apply(settings(ihash, seed, "audit", "0"))
	m.expectInDefaults(ihashSeed, true)
	m.apply(nil)
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}

// While the trial of a value boots, the profile gets another value. The default entries keep the value before both.
func TestAnotherValueDuringATrialBoot(t *testing.T) {
	for name, newMachine := range map[string]func(*testing.T) *machine{"GRUB": newTryingRocky, "systemd-boot": newSystemdBoot} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			before := m.bootFiles()
			for range 2 {
				m.apply(settings(hugepage, "never"))
				m.startEntry()
			}
			m.apply(settings(hugepage, "madvise"))
			m.prepareReboot()
			m.startEntry()
			m.apply(settings(hugepage, "always"))
			expect(t, m.observe(hugepage, "always"), host.Pending, "trial boot")
			m.expectInDefaults(hugepage+"=never", true)
			m.startEntry()
			m.apply(settings(hugepage, "always"))
			expect(t, m.observe(hugepage, "always"), host.InSync)
			m.expectInDefaults(hugepage+"=always", true)
			m.apply(nil)
			if diff := cmp.Diff(withoutNext(before), withoutNext(m.bootFiles())); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

// An argument that was staged without a trial, and has not booted, leaves no known entry to return to.
func TestNoArgumentIsStagedOverAnUntriedOne(t *testing.T) {
	m := newTryingRocky(t)
	before := m.bootFiles()
	m.commands.Output["grub2-probe --target=fs /boot/grub2"] = "btrfs\n"
	m.apply(settings(hugepage, "madvise"))
	m.expectInDefaults(hugepage+"=madvise", true)
	m.commands.Output["grub2-probe --target=fs /boot/grub2"] = "xfs\n"
	m.restart()
	if err := m.subject.Apply(t.Context(), settings(hugepage, "always")); err == nil || !strings.Contains(err.Error(), "not been booted either") {
		t.Errorf("got error %v", err)
	}
	m.expectInDefaults(hugepage+"=always", false)
	m.expectInDefaults(hugepage+"=madvise", true)
	m.startEntry()
	m.apply(settings(hugepage, "always"))
	expect(t, m.observe(hugepage, "always"), host.Pending, "trial boot")
	m.expectInDefaults(hugepage+"=always", false)
	m.apply(nil)
	if diff := cmp.Diff(withoutNext(before), withoutNext(m.bootFiles())); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
}
