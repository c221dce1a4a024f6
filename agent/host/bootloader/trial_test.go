package bootloader

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/grub"
)

const (
	probeAbstraction = "grub-probe --target=abstraction /boot/grub"
	probeFS          = "grub-probe --target=fs /boot/grub"
	ihashSeed        = ihash + "=" + seed
	grubEnv          = "/boot/grub/grubenv"
)

// newTryingMachine returns a machine whose GRUB can write to its environment block. An agent runs after each boot. The block also contains
// a foreign variable.
func newTryingMachine(t *testing.T, fixture string) *machine {
	t.Helper()
	if fixture == azure {
		return newAzure(t)
	}
	m := newMachine(t, fixture)
	m.makeTrying()
	return m
}

func (m *machine) makeTrying() {
	m.t.Helper()
	m.attended = true
	probe := strings.Replace(m.names.mkconfig[0], "mkconfig", "probe", 1)
	m.commands.Output = map[string]string{probe + " --target=abstraction " + path.Dir(m.names.menu): "\n", probe + " --target=fs " + path.Dir(m.names.menu): "ext2\n"}
	m.write(m.grub().env(), grub.PadBlock(grub.EmptyBlock+"saved_entry=0\n"))
	m.write("/etc/grub.d/40_custom", "#!/bin/sh\nexec tail -n +3 $0\n# for custom entries\n")
	m.updateGrub()
	m.restart()
}

// onEachGRUB runs a test on Debian, and on Azure Linux, whose GRUB has other names.
func onEachGRUB(t *testing.T, test func(t *testing.T, m *machine)) {
	t.Helper()
	for _, fixture := range []string{debian, azure} {
		t.Run(fixture, func(t *testing.T) { test(t, newTryingMachine(t, fixture)) })
	}
}

// updateGrub generates the menu like the installation of a kernel.
func (m *machine) updateGrub() {
	m.t.Helper()
	if err := os.Chmod(filepath.Join(m.dir, "/etc/grub.d/40_custom"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.commands.Run(m.t.Context(), m.names.mkconfig[0], "-o", m.names.menu); err != nil {
		m.t.Fatal(err)
	}
	m.commands.Ran = nil
}

// prepareReboot prepares a permitted reboot like the agent.
func (m *machine) prepareReboot() {
	m.t.Helper()
	if err := m.subject.Rearm(true); err != nil {
		m.t.Fatal(err)
	}
}

// replaceInMenus replaces a text in the current menu and in all menus that grub-mkconfig makes later.
func (m *machine) replaceInMenus(text, instead string) {
	m.commands.AfterMenu = func(name string) { m.replace(name, text, instead) }
	m.updateGrub()
}

// power starts GRUB. The kernel hangs afterwards.
func (m *machine) power() grub.Boot {
	m.t.Helper()
	boot, err := grub.Start(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	return boot
}

// start starts GRUB, the kernel, and the agent.
func (m *machine) start(inodes int) grub.Boot {
	m.t.Helper()
	boot := m.power()
	m.bootWith("BOOT_IMAGE="+boot.Kernel+" "+strings.Join(boot.Arguments, " "), inodes)
	return boot
}

func (m *machine) expectBoot(boot grub.Boot, previous, tuned bool) {
	m.t.Helper()
	if strings.Contains(strings.Join(boot.Arguments, " "), ihash) != tuned || (boot.ID == previousID) != previous {
		m.t.Errorf("booted %+v, want previous entry %t, argument %t", boot, previous, tuned)
	}
}

func (m *machine) tree() map[string]string {
	m.t.Helper()
	return hosttest.ReadTree(m.t, m.dir, "/etc", "/boot")
}

func (m *machine) expectTree(name string, want map[string]string) {
	m.t.Helper()
	if diff := cmp.Diff(want, m.tree()); diff != "" {
		m.t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func (m *machine) trialState() string {
	m.t.Helper()
	env, _, err := m.grub().readEnvironment(m.grub().env())
	if err != nil {
		m.t.Fatal(err)
	}
	return env.value(trialVariable)
}

func TestAnArgumentThatHangsTheMachineIsTriedOnce(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		before := m.tree()
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Pending, "trial boot: ")
		if info, err := os.Stat(filepath.Join(m.dir, Generator)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("generator: got %v, error %v", info, err)
		}
		m.prepareReboot()
		m.expectBoot(m.power(), false, true)
		m.expectBoot(m.start(262144), true, false)
		for range 2 {
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Failed, "trial boot failed", "add it again")
			m.expectBoot(m.start(262144), true, false)
		}
		m.apply(nil)
		m.expectTree("host once it is taken back", before)
		m.expectBoot(m.power(), false, false)

		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Pending, "trial boot: ")
		m.expectBoot(m.start(16777216), false, true)
	})
}

func TestAHealthyBootMakesTheArgumentTheDefault(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		before := m.tree()
		m.apply(settings(ihash, seed))
		m.expectBoot(m.start(16777216), false, true)
		expect(t, m.observe(ihash, seed), host.InSync)
		m.commands.Ran = nil
		m.apply(settings(ihash, seed))
		if n := m.menusMade(); n > 0 {
			t.Errorf("got %d new menus", n)
		}
		after := m.tree()
		m.updateGrub()
		m.expectTree("host after the boot, against what grub-mkconfig makes of it", after)
		for name := range before {
			if name != m.names.menu && before[name] != after[name] {
				t.Errorf("%s has changed", name)
			}
		}
		if len(after) != len(before)+1 || after[DropIn] != agentDropIn {
			t.Errorf("files: got %v", after)
		}
		for range 2 {
			m.expectBoot(m.start(16777216), false, true)
		}
	})
}

// Without the check, each start would try the arguments again.
func TestATrialThatGRUBCannotRecordIsNotStarted(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, seed))
		m.prepareReboot()
		m.setMode(m.grub().env(), 0o444)
		m.expectBoot(m.start(262144), true, false)
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Failed, "not passed")
		m.apply(nil)
		m.expectBoot(m.start(262144), false, false)
	})
}

func TestATrialThatIsOverCountsAlsoWithoutEffect(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, seed))
		m.start(131072)
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Failed, "has no effect")
		if m.trialState() != "" || m.fs.Exists(Generator) {
			t.Error("the trial is still pending")
		}
	})
}

func TestTheTrialOutlivesAnUpdateGrub(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, seed))
		kernel := parseMenu(m.read(m.names.menu)).lines[0].kernel
		m.write(path.Join(path.Dir(kernel), "vmlinuz-9"+strings.TrimPrefix(path.Base(kernel), "vmlinuz-")), "")
		m.updateGrub()
		expect(t, m.observe(ihash, seed), host.Pending, "trial boot: ")
		m.expectBoot(m.power(), false, true)
		boot := m.start(262144)
		m.expectBoot(boot, true, false)
		if boot.Kernel != kernel {
			t.Errorf("booted %s, which has not been proven to boot", boot.Kernel)
		}
	})
}

// replaceKernels installs a kernel that becomes the first entry, and then removes the kernel, the initrd or both of the present first entry.
func (m *machine) replaceKernels(removed ...string) {
	m.t.Helper()
	version := strings.TrimPrefix(path.Base(parseMenu(m.read(m.names.menu)).lines[0].kernel), "vmlinuz-")
	for _, kind := range []string{"vmlinuz-", "initrd.img-"} {
		m.write("/boot/"+kind+"9"+version, "")
	}
	for _, kind := range removed {
		m.remove("/boot/" + kind + version)
	}
	m.updateGrub()
}

// The machine waits for its permit, while kernels are installed and the kernel of the previous entry is removed.
func TestPreviousEntryFollowsTheKernels(t *testing.T) {
	both := []string{"vmlinuz-", "initrd.img-"}
	tests := map[string]struct {
		prepare, waits func(*machine)
		removed        []string
		previous       string
	}{
		"its kernel and initrd are removed": {removed: both},
		"only its initrd is removed":        {removed: both[1:]},
		"another value has booted": {removed: both, previous: ihash + "=1048576", prepare: func(m *machine) {
			m.apply(settings(ihash, "1048576"))
			m.start(1048576)
			m.apply(settings(ihash, "1048576"))
		}},
		"another argument has booted": {removed: both, previous: "audit=0", prepare: func(m *machine) {
			m.apply(settings("audit", "0", ihash, "1048576"))
			m.apply(settings("audit", "0"))
			m.start(262144)
			m.apply(settings("audit", "0"))
		}},
		"a boot without a permit has failed": {removed: both, waits: func(m *machine) {
			m.power()
			m.start(262144)
			m.apply(settings(ihash, seed))
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onEachGRUB(t, func(t *testing.T, m *machine) {
				if test.prepare != nil {
					test.prepare(m)
				}
				desired := settings(ihash, seed)
				if test.previous == "audit=0" {
					desired = append(desired, settings("audit", "0")...)
				}
				m.apply(desired)
				if test.waits != nil {
					test.waits(m)
				}
				m.replaceKernels(test.removed...)
				state := m.trialState()
				if err := m.rearm(true); !errors.Is(err, errNoPrevious) || m.trialState() != state {
					t.Errorf("permit: got error %v, state %q", err, m.trialState())
				}
				expect(t, m.observe(ihash, seed), host.Pending, "no fallback entry", errNoPrevious.Error())
				if found := m.subject.Detect(); m.names == grub2Names && found.MayReboot() {
					t.Errorf("got %+v", found)
				}
				m.apply(desired)
				if got := m.observe(ihash, seed); got.State != host.Pending || strings.Contains(got.Message, "no fallback entry") {
					t.Errorf("got %+v", got)
				}
				m.commands.Ran = nil
				m.apply(desired)
				if n := m.menusMade(); n > 0 {
					t.Errorf("got %d more menus", n)
				}
				m.prepareReboot()
				m.expectBoot(m.power(), false, true)
				boot := m.start(262144)
				args := strings.Join(boot.Arguments, " ")
				if boot.ID != previousID || !m.fs.Exists(boot.Kernel) || strings.Contains(args, ihashSeed) || test.previous != "" && strings.Count(args, test.previous) != 1 {
					t.Errorf("booted %+v, want a kernel that exists, with %q", boot, test.previous)
				}
				m.apply(desired)
				expect(t, m.observe(ihash, seed), host.Failed, "trial boot failed")
			})
		})
	}
}

// The agent is killed before each write while it makes the previous entry again.
func TestPreviousEntryIsMadeAgainAfterAKill(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, clean *machine) {
		staged := func(m *machine) *machine {
			m.apply(settings(ihash, seed))
			m.replaceKernels("vmlinuz-", "initrd.img-")
			return m
		}
		fixture := map[*grubNames]string{debianNames: debian, grub2Names: azure}[clean.names]
		staged(clean).apply(settings(ihash, seed))
		want := clean.tree()
		for n := 1; ; n++ {
			m := staged(newTryingMachine(t, fixture))
			subject, c := m.crashing(n)
			_ = subject.Apply(t.Context(), settings(ihash, seed))
			m.restart()
			m.apply(settings(ihash, seed))
			m.expectTree(fmt.Sprintf("after a kill at write %d", n), want)
			if c.count < n {
				return
			}
		}
	})
}

func TestOtherBootTargetsStayUnchanged(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, seed))
		m.write(m.grub().env(), strings.Replace(m.read(m.grub().env()), "saved_entry=0\n", "next_entry=4711\n", 1)[:envSize-2]+"##")
		if _, err := grub.Start(m.dir); err == nil {
			t.Error("GRUB ignores the entry of grub-reboot")
		}
		if state := m.trialState(); state != trialArmed {
			t.Errorf("state of the trial: got %q", state)
		}
	})
}

func TestBootWithoutPermitDoesNotEndTheTrial(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, seed))
		m.expectBoot(m.power(), false, true)
		m.expectBoot(m.start(262144), true, false)
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Pending, "only with a permit")
		m.expectBoot(m.start(262144), true, false)
		m.prepareReboot()
		expect(t, m.observe(ihash, seed), host.Pending)
		m.expectBoot(m.start(16777216), false, true)
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.InSync)
		m.apply(nil)
		before := m.tree()
		m.prepareReboot()
		m.expectTree("host without a trial", before)
	})
}

func TestANewValueIsTriedAgainstTheLastEntryThatBooted(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, "1048576"))
		m.apply(settings(ihash, seed))
		m.expectBoot(m.power(), false, true)
		m.expectBoot(m.start(262144), true, false)
		m.apply(settings(ihash, "2097152"))
		expect(t, m.observe(ihash, "2097152"), host.Pending, "trial boot: ")
		m.start(2097152)
		m.apply(settings(ihash, "2097152"))
		m.apply(settings(ihash, seed))
		m.expectBoot(m.power(), false, true)
		if boot := m.power(); !strings.Contains(strings.Join(boot.Arguments, " "), ihash+"=2097152") {
			t.Errorf("booted with %v instead of the proven arguments", boot.Arguments)
		}
	})
}

func TestFailedTrialIsNotRepeatedForANewMenu(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, seed))
		m.prepareReboot()
		m.power()
		m.start(262144)
		m.observe(ihash, seed)
		m.replace(m.names.menu, " "+ihashSeed, "")
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Failed, "trial boot failed")
		m.expectBoot(m.power(), true, false)
	})
}

func TestRemovalNeedsNoTrial(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, seed, "audit", "0"))
		m.start(16777216)
		m.apply(settings(ihash, seed, "audit", "0"))
		m.apply(settings(ihash, seed))
		if m.trialState() != "" || m.fs.Exists(Generator) || strings.Contains(m.read(m.names.menu), previousID) {
			t.Error("a trial is pending")
		}
		m.expectBoot(m.start(16777216), false, true)
	})
}

func TestNoTrialWithoutAnAttendingAgent(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, seed))
		m.attended = false
		m.restart()
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Pending)
		for range 2 {
			m.expectBoot(m.power(), false, true)
		}
		m.apply(nil)
		m.apply(settings(ihash, seed))
		if m.trialState() != "" || m.fs.Exists(Generator) {
			t.Error("a trial is pending")
		}
	})
}

func TestObstaclesToATrialBoot(t *testing.T) {
	tests := map[string]struct {
		prepare func(*machine)
		message string
	}{
		"there is no environment block": {func(m *machine) { m.remove(grubEnv) }, "no such file"},
		"the block is of another size":  {func(m *machine) { m.write(grubEnv, envHead) }, "not a regular file of 1024 bytes"},
		"the block is invalid":          {func(m *machine) { m.write(grubEnv, strings.Repeat("#", envSize)) }, "first line"},
		"the block is a link": {func(m *machine) {
			m.write("/boot/efi/grubenv", m.read(grubEnv))
			m.remove(grubEnv)
			if err := os.Symlink("../efi/grubenv", filepath.Join(m.dir, grubEnv)); err != nil {
				m.t.Fatal(err)
			}
		}, "not a regular file"},
		"the block is on LVM":   {func(m *machine) { m.commands.Output[probeAbstraction] = "lvm\n" }, "on lvm"},
		"the block is on RAID":  {func(m *machine) { m.commands.Output[probeAbstraction] = "diskfilter mdraid1x\n" }, "on diskfilter"},
		"the block is on btrfs": {func(m *machine) { m.commands.Output[probeFS] = "btrfs\n" }, "on btrfs"},
		"the check fails":       {func(m *machine) { delete(m.commands.Output, probeFS) }, "cannot check whether"},
		"the default is the saved entry": {func(m *machine) {
			m.replace(defaultFile, "GRUB_DEFAULT=0", "GRUB_DEFAULT=saved")
			m.updateGrub()
		}, `default is "${saved_entry}"`},
		"the menu reads no block": {func(m *machine) { m.replaceInMenus("load_env", "true") }, "does not read"},
		"the entries have no ids": {func(m *machine) { m.replaceInMenus(`menuentry_id_option="--id"`, "") }, "no entry ids"},
		"there are no generators": {func(m *machine) {
			m.write("/etc/grub.d/40_custom", "")
			m.updateGrub()
			m.remove("/etc/grub.d")
		}, "/etc/grub.d is missing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newTryingMachine(t, debian)
			test.prepare(m)
			block := m.read(grubEnv)
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Pending, "has no fallback entry", test.message)
			if m.fs.Exists(Generator) || m.read(grubEnv) != block || strings.Contains(m.read(grubCfg), previousID) {
				t.Error("a trial is pending")
			}
			m.apply(nil)
			if len(m.agentFiles()) > 0 {
				t.Errorf("leftover files: %v", m.agentFiles())
			}
		})
	}
}

func TestMenuWithoutTheGeneratorIsStagedWithoutATrial(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.commands.AfterMenu = func(name string) {
			before, _, _ := strings.Cut(m.read(name), "\n### BEGIN "+Generator)
			m.write(name, before)
		}
		block := m.read(m.grub().env())
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Pending, "has no fallback entry")
		if m.fs.Exists(Generator) || m.read(m.grub().env()) != block {
			t.Error("a trial is pending")
		}
	})
}

// Ubuntu's cloud images try without an initrd first, and save in the environment block that they do.
func TestAKernelThatNeedsGRUBsSecondTryIsNotTried(t *testing.T) {
	m := newTryingMachine(t, ubuntu)
	m.start(262144)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "trial boot: ")
	m.apply(nil)
	m.bootWith(strings.ReplaceAll(m.read(commandLine), "panic=-1", ""), 262144)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "only at the second attempt")
}

func TestFailedStagingLeavesTheTrialUnchanged(t *testing.T) {
	for name, earlier := range map[string][]host.Setting{"none": nil, "of another value": settings(ihash, "1048576")} {
		t.Run(name, func(t *testing.T) {
			m := newTryingMachine(t, debian)
			m.apply(earlier)
			before := m.tree()
			m.commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1")}
			if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil {
				t.Error("Apply: got no error")
			}
			m.expectTree("host", before)
		})
	}
}

func TestFailedEndOfATrialIsReportedAndRetried(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *machine) {
		m.apply(settings(ihash, seed))
		m.start(16777216)
		m.subject = m.on(m.fs.WithHook(func(_ host.Op, name string) error {
			if strings.Contains(name, "grubenv") {
				return errors.New("input/output error")
			}
			return nil
		}))
		if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil {
			t.Error("Apply: got no error")
		}
		expect(t, m.observe(ihash, seed), host.Failed, "effective", "uses the previous entry", "input/output error")
		m.restart()
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.InSync)
	})
}

// The agent is killed before each write to the host or the journal while it stages, permits, ends or removes a trial. The machine then boots the
// previous arguments, or tries the new ones and returns. A repeated run has the usual result, and a restore the original bytes.
func TestATrialSurvivesAKillAtEveryWrite(t *testing.T) {
	both := settings(ihash, seed, "audit", "0")
	applies := func(desired []host.Setting) func(*machine, *Subject) {
		return func(m *machine, s *Subject) { _ = s.Apply(m.t.Context(), desired) }
	}
	staged := func(m *machine) { m.apply(settings(ihash, seed)) }
	booted := func(m *machine) { staged(m); m.prepareReboot(); m.start(16777216) }
	failed := func(m *machine) { staged(m); m.prepareReboot(); m.power(); m.start(262144) }
	stories := map[string]struct {
		prepare func(*machine)
		killed  func(*machine, *Subject)
		then    []host.Setting
	}{
		"staging":                        {func(*machine) {}, applies(settings(ihash, seed)), settings(ihash, seed)},
		"staging, given up":              {func(*machine) {}, applies(settings(ihash, seed)), nil},
		"another value":                  {func(m *machine) { m.apply(settings(ihash, "1048576")) }, applies(settings(ihash, seed)), settings(ihash, seed)},
		"a permit":                       {staged, func(_ *machine, s *Subject) { _ = s.Rearm(true) }, settings(ihash, seed)},
		"withdrawn before the trial":     {staged, applies(nil), nil},
		"withdrawn after a failed trial": {failed, applies(nil), nil},
		"another after a failed trial":   {failed, applies(both), both},
		"withdrawn without a permit":     {func(m *machine) { staged(m); m.power(); m.start(262144) }, applies(nil), nil},
		"the end of a trial":             {booted, applies(settings(ihash, seed)), settings(ihash, seed)},
		"the end, given up":              {booted, applies(settings(ihash, seed)), nil},
		"removed after the trial":        {func(m *machine) { booted(m); staged(m) }, applies(nil), nil},
		"one more is staged":             {func(m *machine) { m.apply(both[1:]); m.start(262144); m.apply(both[1:]) }, applies(both), both},
		"one of two is removed":          {func(m *machine) { m.apply(both) }, applies(both[1:]), both[1:]},
	}
	for _, fixture := range []string{debian, azure} {
		kills := 0
		newHost := func(t *testing.T) *machine {
			m := newTryingMachine(t, fixture)
			m.journalled = true
			m.restart()
			return m
		}
		for name, story := range stories {
			t.Run(fixture+", "+name, func(t *testing.T) {
				clean := newHost(t)
				original := clean.tree()
				story.prepare(clean)
				story.killed(clean, clean.subject)
				clean.apply(story.then)
				// The permit is not given again.
				compared := func(files map[string]string) map[string]string {
					if name == "a permit" {
						files[clean.grub().env()] = string(environment(files[clean.grub().env()]).with(trialVariable, ""))
					}
					return files
				}
				want := compared(clean.tree())
				for n := 1; ; n++ {
					m := newHost(t)
					story.prepare(m)
					s, c := m.crashing(n)
					story.killed(m, s)
					m.expectBootable(n)
					m.restart()
					m.apply(story.then)
					if diff := cmp.Diff(want, compared(m.tree())); diff != "" {
						t.Fatalf("after the repeat of write %d (-want +got):\n%s", n, diff)
					}
					m.apply(nil)
					if diff := cmp.Diff(original, m.tree()); diff != "" {
						t.Fatalf("after restore, write %d (-want +got):\n%s", n, diff)
					}
					if c.count < n {
						return
					}
					kills++
				}
			})
		}
		if t.Logf("%s: %d kills", fixture, kills); kills < 200 {
			t.Errorf("%s: got only %d kills, want 200", fixture, kills)
		}
	}
}

// expectBootable checks the state after a crash: within two starts, GRUB boots with the arguments of the running kernel.
func (m *machine) expectBootable(n int) {
	m.t.Helper()
	block := m.read(m.grub().env())
	running := host.ParseArguments(m.read(commandLine))
	var last []host.Argument
	for range 2 {
		last = argumentsOf(m.power().Arguments)
		if len(argumentsWithout(last, running)) == 0 {
			m.write(m.grub().env(), block)
			return
		}
	}
	m.t.Errorf("after a crash at change %d: GRUB boots %s, and never the running arguments", n, joinArguments(last))
}

func TestForeignEnvironmentBlock(t *testing.T) {
	block := environment(grub.PadBlock(grub.EmptyBlock + "saved_entry=a#b\nstorage_client_trial_of_others=1\n"))
	set := block.with(trialVariable, trialArmed)
	if len(set) != envSize || set.value(trialVariable) != trialArmed || !strings.Contains(string(set), "saved_entry=a#b\n") {
		t.Errorf("set: %q", set)
	}
	if unset := set.with(trialVariable, ""); unset != block {
		t.Errorf("unset: %q", unset)
	}
	full := environment(grub.PadBlock(grub.EmptyBlock + "x=" + strings.Repeat("y", 900) + "\n"))
	if got := full.with(trialVariable, strings.Repeat("z", 300)); len(got) <= envSize {
		t.Errorf("got %q, want a block that is too long", got)
	}
}

func (m *machine) rearm(permitted bool) error { return m.subject.Rearm(permitted) }
