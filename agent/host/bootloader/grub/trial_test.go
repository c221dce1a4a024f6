package grub_test

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
	"github.com/storageclient/operator/agent/host/bootloader/grub"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	hostgrub "github.com/storageclient/operator/agent/host/hosttest/grub"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

// onEachGRUB runs a test on Debian, and on Azure Linux, whose GRUB has other names.
func onEachGRUB(t *testing.T, test func(t *testing.T, m *rig.Machine)) {
	t.Helper()
	for _, fixture := range []string{rig.Debian, rig.Azure} {
		t.Run(fixture, func(t *testing.T) { test(t, rig.NewTryingMachine(t, fixture)) })
	}
}

func TestAnArgumentThatHangsTheMachineIsTriedOnce(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		before := m.Tree()
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot: ")
		if info, err := os.Stat(filepath.Join(m.Dir, grubcfg.Generator)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("generator: got %v, error %v", info, err)
		}
		m.PrepareReboot()
		m.ExpectBoot(m.Power(), false, true)
		m.ExpectBoot(m.Start(262144), true, false)
		for range 2 {
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "trial boot failed", "add it again")
			m.ExpectBoot(m.Start(262144), true, false)
		}
		m.Apply(nil)
		m.ExpectTree("host once it is taken back", before)
		m.ExpectBoot(m.Power(), false, false)

		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot: ")
		m.ExpectBoot(m.Start(16777216), false, true)
	})
}

func TestAHealthyBootMakesTheArgumentTheDefault(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		before := m.Tree()
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.ExpectBoot(m.Start(16777216), false, true)
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
		m.Commands.Ran = nil
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		if n := m.MenusMade(); n > 0 {
			t.Errorf("got %d new menus", n)
		}
		after := m.Tree()
		m.UpdateGrub()
		m.ExpectTree("host after the boot, against what grub-mkconfig makes of it", after)
		for name := range before {
			if name != m.Names.Menu && before[name] != after[name] {
				t.Errorf("%s has changed", name)
			}
		}
		if len(after) != len(before)+1 || after[loader.DropIn] != rig.AgentDropIn {
			t.Errorf("files: got %v", after)
		}
		for range 2 {
			m.ExpectBoot(m.Start(16777216), false, true)
		}
	})
}

// Without the check, each start would try the arguments again.
func TestATrialThatGRUBCannotRecordIsNotStarted(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.PrepareReboot()
		m.SetMode(m.Grub().Env(), 0o444)
		m.ExpectBoot(m.Start(262144), true, false)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "not passed")
		m.Apply(nil)
		m.ExpectBoot(m.Start(262144), false, false)
	})
}

func TestATrialThatIsOverCountsAlsoWithoutEffect(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.Start(131072)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "has no effect")
		if m.TrialState() != "" || m.FS.Exists(grubcfg.Generator) {
			t.Error("the trial is still pending")
		}
	})
}

func TestTheTrialOutlivesAnUpdateGrub(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		kernel := grubcfg.Parse(m.Read(m.Names.Menu)).Lines[0].Kernel
		m.Write(path.Join(path.Dir(kernel), "vmlinuz-9"+strings.TrimPrefix(path.Base(kernel), "vmlinuz-")), "")
		m.UpdateGrub()
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot: ")
		m.ExpectBoot(m.Power(), false, true)
		boot := m.Start(262144)
		m.ExpectBoot(boot, true, false)
		if boot.Kernel != kernel {
			t.Errorf("booted %s, which has not been proven to boot", boot.Kernel)
		}
	})
}

// The machine waits for its permit, while kernels are installed and the kernel of the previous entry is removed.
func TestPreviousEntryFollowsTheKernels(t *testing.T) {
	both := []string{"vmlinuz-", "initrd.img-"}
	tests := map[string]struct {
		prepare, waits func(*rig.Machine)
		removed        []string
		previous       string
	}{
		"its kernel and initrd are removed": {removed: both},
		"only its initrd is removed":        {removed: both[1:]},
		"another value has booted": {removed: both, previous: rig.Ihash + "=1048576", prepare: func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.Ihash, "1048576"))
			m.Start(1048576)
			m.Apply(rig.Settings(rig.Ihash, "1048576"))
		}},
		"another argument has booted": {removed: both, previous: "audit=0", prepare: func(m *rig.Machine) {
			m.Apply(rig.Settings("audit", "0", rig.Ihash, "1048576"))
			m.Apply(rig.Settings("audit", "0"))
			m.Start(262144)
			m.Apply(rig.Settings("audit", "0"))
		}},
		"a boot without a permit has failed": {removed: both, waits: func(m *rig.Machine) {
			m.Power()
			m.Start(262144)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
				if test.prepare != nil {
					test.prepare(m)
				}
				desired := rig.Settings(rig.Ihash, rig.Seed)
				if test.previous == "audit=0" {
					desired = append(desired, rig.Settings("audit", "0")...)
				}
				m.Apply(desired)
				if test.waits != nil {
					test.waits(m)
				}
				m.ReplaceKernels(test.removed...)
				state := m.TrialState()
				if err := m.Rearm(true); !errors.Is(err, grub.ErrNoPrevious) || m.TrialState() != state {
					t.Errorf("permit: got error %v, state %q", err, m.TrialState())
				}
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "no fallback entry", grub.ErrNoPrevious.Error())
				if found := m.Subject.Detect(); m.Names == grub.Grub2Place && found.MayReboot() {
					t.Errorf("got %+v", found)
				}
				m.Apply(desired)
				if got := m.Observe(rig.Ihash, rig.Seed); got.State != host.Pending || strings.Contains(got.Message, "no fallback entry") {
					t.Errorf("got %+v", got)
				}
				m.Commands.Ran = nil
				m.Apply(desired)
				if n := m.MenusMade(); n > 0 {
					t.Errorf("got %d more menus", n)
				}
				m.PrepareReboot()
				m.ExpectBoot(m.Power(), false, true)
				boot := m.Start(262144)
				args := strings.Join(boot.Arguments, " ")
				if boot.ID != grub.PreviousID || !m.FS.Exists(boot.Kernel) || strings.Contains(args, rig.IhashSeed) || test.previous != "" && strings.Count(args, test.previous) != 1 {
					t.Errorf("booted %+v, want a kernel that exists, with %q", boot, test.previous)
				}
				m.Apply(desired)
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "trial boot failed")
			})
		})
	}
}

// The agent is killed before each write while it makes the previous entry again.
// Users change the default after the staging: GRUB no longer returns to the previous entry on its own.
func TestAPromiseThatNoLongerHoldsIsNotUsed(t *testing.T) {
	firstID := func(m *rig.Machine) string { return grubcfg.Parse(m.Read(m.Names.Menu)).Lines[0].ID }
	setDefault := func(m *rig.Machine, value string) {
		m.Write(loader.DefaultFile, strings.ReplaceAll(m.Read(loader.DefaultFile), "GRUB_DEFAULT=", "#GRUB_DEFAULT=")+"\nGRUB_DEFAULT="+value+"\n")
		m.UpdateGrub()
	}
	for name, test := range map[string]struct {
		change  func(*rig.Machine)
		message string
	}{
		"the default is an ID":       {func(m *rig.Machine) { setDefault(m, firstID(m)) }, "set GRUB_DEFAULT=0"},
		"the default is saved":       {func(m *rig.Machine) { setDefault(m, "saved") }, `default is "${saved_entry}"`},
		"custom.cfg sets a default":  {func(m *rig.Machine) { m.Write("/boot/grub/custom.cfg", "set default="+firstID(m)+"\n") }, "custom.cfg sets the default"},
		"custom.cfg without set":     {func(m *rig.Machine) { m.Write("/boot/grub/custom.cfg", "default=3\n") }, "custom.cfg sets the default"},
		"custom.cfg with blanks":     {func(m *rig.Machine) { m.Write("/boot/grub/custom.cfg", "\tset  default=3\n") }, "custom.cfg sets the default"},
		"custom.cfg and export":      {func(m *rig.Machine) { m.Write("/boot/grub/custom.cfg", "set default=\"3\"; export default\n") }, `default to "3"`},
		"custom.cfg after then":      {func(m *rig.Machine) { m.Write("/boot/grub/custom.cfg", "if true; then set default='3'; fi\n") }, `default to "3"`},
		"custom.cfg on a later line": {func(m *rig.Machine) { m.Write("/boot/grub/custom.cfg", "default=0\ntimeout=5; default=3\n") }, `default to "3"`},
		"the environment block goes": {func(m *rig.Machine) { m.Remove(rig.GrubEnv) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingMachine(t, rig.Debian)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot: if the machine does not start with it")
			test.change(m)
			if err := m.Rearm(true); err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("permit: got error %v, want %q", err, test.message)
			}
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "no fallback entry", test.message)
			if found := m.Subject.Detect(); found.MayReboot() || !strings.Contains(found.Message, test.message) {
				t.Errorf("got %+v, want no reboot", found)
			}
		})
	}
}

// The default 0 is the first entry. A comment, another variable, or an argument of a kernel sets no default.
func TestAPromiseHoldsWithACustomDefaultOfZero(t *testing.T) {
	for _, custom := range []string{
		"set default=0\n", "set default=\"0\"\n", "default='0'; timeout=5\n", "# set default=3\n", "set my_default=3\n",
		"menuentry 'x' {\n\tlinux /vmlinuz default=3\n}\n",
	} {
		t.Run(custom, func(t *testing.T) {
			m := rig.NewTryingMachine(t, rig.Debian)
			m.Write("/boot/grub/custom.cfg", custom)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			check.NoError(t, m.Rearm(true))
			check.Equal(t, "state of the trial", loader.TrialPermitted, m.TrialState())
		})
	}
}

// The new arguments have booted, but the trial is not finished. A default that users set since concerns no other reboot.
func TestAPromiseOfArgumentsThatHaveBootedIsNotNeeded(t *testing.T) {
	m := rig.NewTryingMachine(t, rig.Debian)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.PrepareReboot()
	m.Start(16777216)
	m.Write("/boot/grub/custom.cfg", "set default=3\n")
	if found := m.Subject.Detect(); !found.MayReboot() {
		t.Errorf("got %+v, want a reboot permitted", found)
	}
	check.NoError(t, m.Rearm(true))
}

func TestPreviousEntryIsMadeAgainAfterAKill(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, clean *rig.Machine) {
		staged := func(m *rig.Machine) *rig.Machine {
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.ReplaceKernels("vmlinuz-", "initrd.img-")
			return m
		}
		fixture := map[*loader.Place]string{grub.DebianPlace: rig.Debian, grub.Grub2Place: rig.Azure}[clean.Names]
		staged(clean).Apply(rig.Settings(rig.Ihash, rig.Seed))
		want := clean.Tree()
		for n := 1; ; n++ {
			m := staged(rig.NewTryingMachine(t, fixture))
			subject, c := m.Crashing(n)
			_ = subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
			m.Restart()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.ExpectTree(fmt.Sprintf("after a kill at write %d", n), want)
			if c.Count < n {
				return
			}
		}
	})
}

func TestOtherBootTargetsStayUnchanged(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.Write(m.Grub().Env(), strings.Replace(m.Read(m.Grub().Env()), "saved_entry=0\n", "next_entry=4711\n", 1)[:grubcfg.EnvSize-2]+"##")
		if _, err := hostgrub.Start(m.Dir); err == nil {
			t.Error("GRUB ignores the entry of grub-reboot")
		}
		check.Equal(t, "state of the trial", loader.TrialArmed, m.TrialState())
	})
}

func TestBootWithoutPermitDoesNotEndTheTrial(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.ExpectBoot(m.Power(), false, true)
		m.ExpectBoot(m.Start(262144), true, false)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "only with a permit")
		m.ExpectBoot(m.Start(262144), true, false)
		m.PrepareReboot()
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
		m.ExpectBoot(m.Start(16777216), false, true)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
		m.Apply(nil)
		before := m.Tree()
		m.PrepareReboot()
		m.ExpectTree("host without a trial", before)
	})
}

func TestANewValueIsTriedAgainstTheLastEntryThatBooted(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, "1048576"))
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.ExpectBoot(m.Power(), false, true)
		m.ExpectBoot(m.Start(262144), true, false)
		m.Apply(rig.Settings(rig.Ihash, "2097152"))
		rig.Expect(t, m.Observe(rig.Ihash, "2097152"), host.Pending, "trial boot: ")
		m.Start(2097152)
		m.Apply(rig.Settings(rig.Ihash, "2097152"))
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.ExpectBoot(m.Power(), false, true)
		if boot := m.Power(); !strings.Contains(strings.Join(boot.Arguments, " "), rig.Ihash+"=2097152") {
			t.Errorf("booted with %v instead of the proven arguments", boot.Arguments)
		}
	})
}

func TestFailedTrialIsNotRepeatedForANewMenu(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.PrepareReboot()
		m.Power()
		m.Start(262144)
		m.Observe(rig.Ihash, rig.Seed)
		m.Replace(m.Names.Menu, " "+rig.IhashSeed, "")
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "trial boot failed")
		m.ExpectBoot(m.Power(), true, false)
	})
}

func TestRemovalNeedsNoTrial(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
		m.Start(16777216)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		if m.TrialState() != "" || m.FS.Exists(grubcfg.Generator) || strings.Contains(m.Read(m.Names.Menu), grub.PreviousID) {
			t.Error("a trial is pending")
		}
		m.ExpectBoot(m.Start(16777216), false, true)
	})
}

func TestNoTrialWithoutAnAttendingAgent(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.Attended = false
		m.Restart()
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
		for range 2 {
			m.ExpectBoot(m.Power(), false, true)
		}
		m.Apply(nil)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		if m.TrialState() != "" || m.FS.Exists(grubcfg.Generator) {
			t.Error("a trial is pending")
		}
	})
}

func TestObstaclesToATrialBoot(t *testing.T) {
	tests := map[string]struct {
		prepare func(*rig.Machine)
		message string
	}{
		"there is no environment block": {func(m *rig.Machine) { m.Remove(rig.GrubEnv) }, "no such file"},
		"the block is of another size":  {func(m *rig.Machine) { m.Write(rig.GrubEnv, grubcfg.EnvHead) }, "not a regular file of 1024 bytes"},
		"the block is invalid":          {func(m *rig.Machine) { m.Write(rig.GrubEnv, strings.Repeat("#", grubcfg.EnvSize)) }, "first line"},
		"the block is a link": {func(m *rig.Machine) {
			m.Write("/boot/efi/grubenv", m.Read(rig.GrubEnv))
			m.Remove(rig.GrubEnv)
			if err := os.Symlink("../efi/grubenv", filepath.Join(m.Dir, rig.GrubEnv)); err != nil {
				m.T.Fatal(err)
			}
		}, "not a regular file"},
		"the block is on LVM":   {func(m *rig.Machine) { m.Commands.Output[rig.ProbeAbstraction] = "lvm\n" }, "on lvm"},
		"the block is on RAID":  {func(m *rig.Machine) { m.Commands.Output[rig.ProbeAbstraction] = "diskfilter mdraid1x\n" }, "on diskfilter"},
		"the block is on btrfs": {func(m *rig.Machine) { m.Commands.Output[rig.ProbeFS] = "btrfs\n" }, "on btrfs"},
		"the check fails":       {func(m *rig.Machine) { delete(m.Commands.Output, rig.ProbeFS) }, "cannot check whether"},
		"the default is the saved entry": {func(m *rig.Machine) {
			m.Replace(loader.DefaultFile, "GRUB_DEFAULT=0", "GRUB_DEFAULT=saved")
			m.UpdateGrub()
		}, `default is "${saved_entry}"`},
		"the menu reads no block": {func(m *rig.Machine) { m.ReplaceInMenus("load_env", "true") }, "does not read"},
		"the entries have no ids": {func(m *rig.Machine) { m.ReplaceInMenus(`menuentry_id_option="--id"`, "") }, "no entry ids"},
		"there are no generators": {func(m *rig.Machine) {
			m.Write("/etc/grub.d/40_custom", "")
			m.UpdateGrub()
			m.Remove("/etc/grub.d")
		}, "/etc/grub.d is missing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingMachine(t, rig.Debian)
			test.prepare(m)
			block := m.Read(rig.GrubEnv)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "has no fallback entry", test.message)
			if m.FS.Exists(grubcfg.Generator) || m.Read(rig.GrubEnv) != block || strings.Contains(m.Read(grubcfg.Debian), grub.PreviousID) {
				t.Error("a trial is pending")
			}
			m.Apply(nil)
			if len(m.AgentFiles()) > 0 {
				t.Errorf("leftover files: %v", m.AgentFiles())
			}
		})
	}
}

func TestMenuWithoutTheGeneratorIsStagedWithoutATrial(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Commands.AfterMenu = func(name string) {
			before, _, _ := strings.Cut(m.Read(name), "\n### BEGIN "+grubcfg.Generator)
			m.Write(name, before)
		}
		block := m.Read(m.Grub().Env())
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "has no fallback entry")
		if m.FS.Exists(grubcfg.Generator) || m.Read(m.Grub().Env()) != block {
			t.Error("a trial is pending")
		}
	})
}

// Ubuntu's cloud images try without an initrd first, and save in the environment block that they do.
func TestAKernelThatNeedsGRUBsSecondTryIsNotTried(t *testing.T) {
	m := rig.NewTryingMachine(t, rig.Ubuntu)
	m.Start(262144)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot: ")
	m.Apply(nil)
	m.BootWith(strings.ReplaceAll(m.Read(loader.CommandLine), "panic=-1", ""), 262144)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "only at the second attempt")
}

func TestFailedStagingLeavesTheTrialUnchanged(t *testing.T) {
	for name, earlier := range map[string][]host.Setting{"none": nil, "of another value": rig.Settings(rig.Ihash, "1048576")} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingMachine(t, rig.Debian)
			m.Apply(earlier)
			before := m.Tree()
			m.Commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1")}
			if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil {
				t.Error("Apply: got no error")
			}
			m.ExpectTree("host", before)
		})
	}
}

func TestFailedEndOfATrialIsReportedAndRetried(t *testing.T) {
	onEachGRUB(t, func(t *testing.T, m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.Start(16777216)
		m.Subject = m.On(m.FS.WithHook(func(_ host.Op, name string) error {
			if strings.Contains(name, "grubenv") {
				return errors.New("input/output error")
			}
			return nil
		}))
		if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil {
			t.Error("Apply: got no error")
		}
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "effective", "uses the previous entry", "input/output error")
		m.Restart()
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	})
}

// The agent is killed before each write to the host or the journal while it stages, permits, ends or removes a trial. The machine then boots the
// previous arguments, or tries the new ones and returns. A repeated run has the usual result, and a restore the original bytes.
func TestATrialSurvivesAKillAtEveryWrite(t *testing.T) {
	both := rig.Settings(rig.Ihash, rig.Seed, "audit", "0")
	applies := func(desired []host.Setting) func(*rig.Machine, *life.Subject) {
		return func(m *rig.Machine, s *life.Subject) { _ = s.Apply(m.T.Context(), desired) }
	}
	staged := func(m *rig.Machine) { m.Apply(rig.Settings(rig.Ihash, rig.Seed)) }
	booted := func(m *rig.Machine) { staged(m); m.PrepareReboot(); m.Start(16777216) }
	failed := func(m *rig.Machine) { staged(m); m.PrepareReboot(); m.Power(); m.Start(262144) }
	stories := map[string]struct {
		prepare func(*rig.Machine)
		killed  func(*rig.Machine, *life.Subject)
		then    []host.Setting
	}{
		"staging":                        {func(*rig.Machine) {}, applies(rig.Settings(rig.Ihash, rig.Seed)), rig.Settings(rig.Ihash, rig.Seed)},
		"staging, given up":              {func(*rig.Machine) {}, applies(rig.Settings(rig.Ihash, rig.Seed)), nil},
		"another value":                  {func(m *rig.Machine) { m.Apply(rig.Settings(rig.Ihash, "1048576")) }, applies(rig.Settings(rig.Ihash, rig.Seed)), rig.Settings(rig.Ihash, rig.Seed)},
		"a permit":                       {staged, func(_ *rig.Machine, s *life.Subject) { _ = s.Rearm(true) }, rig.Settings(rig.Ihash, rig.Seed)},
		"withdrawn before the trial":     {staged, applies(nil), nil},
		"withdrawn after a failed trial": {failed, applies(nil), nil},
		"another after a failed trial":   {failed, applies(both), both},
		"withdrawn without a permit":     {func(m *rig.Machine) { staged(m); m.Power(); m.Start(262144) }, applies(nil), nil},
		"the end of a trial":             {booted, applies(rig.Settings(rig.Ihash, rig.Seed)), rig.Settings(rig.Ihash, rig.Seed)},
		"the end, given up":              {booted, applies(rig.Settings(rig.Ihash, rig.Seed)), nil},
		"removed after the trial":        {func(m *rig.Machine) { booted(m); staged(m) }, applies(nil), nil},
		"one more is staged":             {func(m *rig.Machine) { m.Apply(both[1:]); m.Start(262144); m.Apply(both[1:]) }, applies(both), both},
		"one of two is removed":          {func(m *rig.Machine) { m.Apply(both) }, applies(both[1:]), both[1:]},
	}
	for _, fixture := range []string{rig.Debian, rig.Azure} {
		kills := 0
		newHost := func(t *testing.T) *rig.Machine {
			m := rig.NewTryingMachine(t, fixture)
			m.Journalled = true
			m.Restart()
			return m
		}
		for name, story := range stories {
			t.Run(fixture+", "+name, func(t *testing.T) {
				clean := newHost(t)
				original := clean.Tree()
				story.prepare(clean)
				story.killed(clean, clean.Subject)
				clean.Apply(story.then)
				// The permit is not given again.
				compared := func(files map[string]string) map[string]string {
					if name == "a permit" {
						files[clean.Grub().Env()] = string(grubcfg.Environment(files[clean.Grub().Env()]).With(loader.TrialVariable, ""))
					}
					return files
				}
				want := compared(clean.Tree())
				for n := 1; ; n++ {
					m := newHost(t)
					story.prepare(m)
					s, c := m.Crashing(n)
					story.killed(m, s)
					m.ExpectBootable(n)
					m.Restart()
					m.Apply(story.then)
					if diff := cmp.Diff(want, compared(m.Tree())); diff != "" {
						t.Fatalf("after the repeat of write %d (-want +got):\n%s", n, diff)
					}
					m.Apply(nil)
					if diff := cmp.Diff(original, m.Tree()); diff != "" {
						t.Fatalf("after restore, write %d (-want +got):\n%s", n, diff)
					}
					if c.Count < n {
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

func TestForeignEnvironmentBlock(t *testing.T) {
	block := grubcfg.Environment(hostgrub.PadBlock(hostgrub.EmptyBlock + "saved_entry=a#b\nstorage_client_trial_of_others=1\n"))
	set := block.With(loader.TrialVariable, loader.TrialArmed)
	if len(set) != grubcfg.EnvSize || set.Value(loader.TrialVariable) != loader.TrialArmed || !strings.Contains(string(set), "saved_entry=a#b\n") {
		t.Errorf("set: %q", set)
	}
	check.Equal(t, "unset block", block, set.With(loader.TrialVariable, ""))
	full := grubcfg.Environment(hostgrub.PadBlock(hostgrub.EmptyBlock + "x=" + strings.Repeat("y", 900) + "\n"))
	if got := full.With(loader.TrialVariable, strings.Repeat("z", 300)); len(got) <= grubcfg.EnvSize {
		t.Errorf("got %q, want a block that is too long", got)
	}
}
