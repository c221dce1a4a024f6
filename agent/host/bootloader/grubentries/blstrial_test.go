package grubentries_test

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/efi"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/grubentries"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	hostgrub "github.com/storageclient/operator/agent/host/hosttest/grub"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

// GRUB resolves paths from the top of a btrfs file system. The host has mounted a subvolume of it.
func TestKernelsInASubvolume(t *testing.T) {
	for name, test := range map[string]struct {
		prefix, mount string
		state         host.State
	}{
		"the root's subvolume":               {"/root/boot/", "30 1 0:30 /root / rw,relatime shared:1 - btrfs /dev/vda2 rw,subvol=/root", host.Pending},
		"a subvolume for /boot":              {"/boot/", "31 30 0:31 /boot /boot rw,relatime shared:1 - btrfs /dev/vda2 rw,subvol=/boot", host.Pending},
		"a root that another mount covers":   {"/old/boot/", "1 1 0:1 /old / rw - btrfs /dev/vda2 rw\n30 1 0:30 /new / rw,relatime shared:1 - btrfs /dev/vda2 rw,subvol=/new", host.Failed},
		"a root that covers another mount":   {"/new/boot/", "1 1 0:1 /old / rw - btrfs /dev/vda2 rw\n30 1 0:30 /new / rw,relatime shared:1 - btrfs /dev/vda2 rw,subvol=/new", host.Pending},
		"a path in another file system":      {"/img/boot/", "30 1 0:30 /img / rw,relatime shared:1 - overlay overlay rw", host.Failed},
		"a separate /boot, which GRUB reads": {"/root/boot/", "30 1 0:30 /root / rw - btrfs /dev/vda2 rw\n31 30 8:1 / /boot rw - ext4 /dev/vda1 rw", host.Failed},
		"another subvolume than the host's":  {"/other/boot/", "30 1 0:30 /root / rw,relatime shared:1 - btrfs /dev/vda2 rw,subvol=/root", host.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			files, err := m.FS.Glob(bls.EntriesDir, "*.conf")
			check.NoError(t, err)
			for _, file := range files {
				m.Write(file, strings.NewReplacer("linux /", "linux "+test.prefix, "initrd /", "initrd "+test.prefix).Replace(m.Read(file)))
			}
			m.Write("/proc/cmdline", strings.Replace(m.Read("/proc/cmdline"), ")/", ")"+test.prefix, 1))
			m.Write("/proc/1/mountinfo", test.mount+"\n")
			_ = m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
			m.Uptime += 2 * life.MaxHold
			_ = m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), test.state)
		})
	}
}

func TestAnArgumentIsOnlyInTheEntryThatIsBootedOnceUntilItHasBooted(t *testing.T) {
	m := rig.NewTryingRocky(t)
	before := m.BootFiles()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
	m.ExpectInDefaults(rig.IhashSeed, false)
	if found := m.Subject.Detect(); !found.MayReboot() {
		t.Errorf("not rebooted: %s", found.Message)
	}
	if entries, err := m.Subject.Loader().ReadMenu(t.Context()); err != nil || len(entries.Lines) != 2 {
		t.Errorf("entries: got %+v, %v", entries.Lines, err)
	}
	once := m.Read(bls.OnceEntry)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.PrepareReboot()
	if name := m.StartEntry(); name != bls.OnceID || m.Read(bls.OnceEntry) != once {
		t.Errorf("booted %s", name)
	}
	m.ExpectInDefaults(rig.IhashSeed, false)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.ExpectInDefaults(rig.IhashSeed, true)
	if m.FS.Exists(bls.OnceEntry) {
		t.Error("the entry that is booted once is left")
	}
	if name := m.StartEntry(); name == bls.OnceID {
		t.Errorf("booted %s again", name)
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.Apply(nil)
	check.Equal(t, "after restore", before, m.BootFiles())
	m.StartEntry()
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.InSync)
}

func TestAnArgumentThatPanicsReturnsToTheDefaultEntry(t *testing.T) {
	for name, permitted := range map[string]bool{"with a permit it has failed": true, "without one it is tried once more": false} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.PanicArgument, "/missing"))
			if permitted {
				m.PrepareReboot()
			}
			if name := m.StartEntry(); name == bls.OnceID {
				t.Error("booted the entry again")
			}
			m.Apply(rig.Settings(rig.PanicArgument, "/missing"))
			if permitted {
				rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Failed, "trial boot failed")
			} else {
				rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Pending, "only with a permit")
				m.PrepareReboot()
				m.StartEntry()
				m.Apply(rig.Settings(rig.PanicArgument, "/missing"))
				rig.Expect(t, m.Observe(rig.PanicArgument, "/missing"), host.Failed, "trial boot failed")
			}
			m.StartEntry()
			m.ExpectInDefaults(rig.PanicArgument+"=/missing", false)
			m.Apply(nil)
			check.Equal(t, "after restore", before, m.BootFiles())
		})
	}
}

func TestKernelThatIsInstalledDuringATrial(t *testing.T) {
	m := rig.NewTryingRocky(t)
	before := m.BootFiles()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	later := strings.ReplaceAll(rig.RockyEntry, "427.13.1", "503.1.1")
	text := strings.ReplaceAll(m.Read(rig.RockyEntry), "427.13.1", "503.1.1")
	m.Write(later, text)
	for _, name := range []string{"/boot/vmlinuz-5.14.0-503.1.1.el9_4.x86_64", "/boot/initramfs-5.14.0-503.1.1.el9_4.x86_64.img"} {
		m.Write(name, "file")
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
	if !strings.Contains(m.Read(bls.OnceEntry), "503.1.1") {
		t.Errorf("the trial is not that of the new default entry:\n%s", m.Read(bls.OnceEntry))
	}
	m.PrepareReboot()
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.ExpectInDefaults(rig.IhashSeed, true)
	m.Apply(nil)
	check.Equal(t, "entry of the new kernel", text, m.Read(later))
	m.Remove(later)
	m.Remove("/boot/vmlinuz-5.14.0-503.1.1.el9_4.x86_64")
	m.Remove("/boot/initramfs-5.14.0-503.1.1.el9_4.x86_64.img")
	check.Equal(t, "after restore", before, m.BootFiles())
}

func TestReadyTrialFollowsTheKernels(t *testing.T) {
	tests := map[string]struct {
		prepare   func(*rig.Machine)
		err, text string
	}{
		"its kernel is removed": {func(*rig.Machine) {}, bls.ErrNoKernel.Error(), ""},
		"its initrd is not made yet": {func(m *rig.Machine) {
			m.AddKernel(newKernel, false)
		}, bls.ErrNoKernel.Error(), ""},
		"its kernel is replaced": {func(m *rig.Machine) {
			m.Write(strings.ReplaceAll(rig.RockyEntry, "427.13.1", "503.1.1"), strings.ReplaceAll(m.Read(rig.RockyEntry), "427.13.1", "503.1.1"))
			m.Write("/boot/vmlinuz-5.14.0-503.1.1.el9_4.x86_64", "kernel")
			m.Write("/boot/initramfs-5.14.0-503.1.1.el9_4.x86_64.img", "initrd")
			m.Remove(rig.RockyEntry)
		}, "", "/vmlinuz-5.14.0-503.1.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Remove("/boot/vmlinuz-5.14.0-427.13.1.el9_4.x86_64")
			test.prepare(m)
			// An error rejects the permit.
			if err := m.Subject.Rearm(true); test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
				t.Errorf("error: got %v, want %q", err, test.err)
			}
			if got := grubcfg.Environment(m.Read(rig.BlsEnv)).Value(grubcfg.NextEntry); (got == bls.OnceID) != (test.err == "") {
				t.Errorf("the next entry is %q", got)
			}
			if !strings.Contains(m.Read(bls.OnceEntry), test.text) {
				t.Errorf("the entry is\n%s", m.Read(bls.OnceEntry))
			}
		})
	}
}

// grubby creates the arguments of later kernels from the entry that sorts last (recorded in hosttest/testdata/grubby.json).
func TestArgumentsOfLaterKernelsAreNotThoseOfTheTrial(t *testing.T) {
	for name, vendor := range map[string]string{"none": "", "the vendor's": "root=/dev/mapper/rl-root ro\n"} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			m.Remove(bls.LaterFile)
			m.Write("/etc/kernel/install.conf", "")
			if vendor != "" {
				m.Write(bls.LaterFiles[1], vendor)
			}
			m.Apply(rig.Settings("audit", "0", rig.Ihash, "1048576"))
			m.StartEntry()
			m.Apply(rig.Settings("audit", "0", rig.Ihash, rig.Seed))
			switch {
			case vendor == "" && m.FS.Exists(bls.LaterFile):
				t.Errorf("grubby has made %s: %q", bls.LaterFile, m.Read(bls.LaterFile))
			case vendor != "" && m.Read(bls.LaterFile) != "root=/dev/mapper/rl-root ro audit=0\n":
				t.Errorf("%s is %q", bls.LaterFile, m.Read(bls.LaterFile))
			}
		})
	}
}

func TestValueThatChangesIsTriedOnItsOwn(t *testing.T) {
	m := rig.NewTryingRocky(t)
	m.Apply(rig.Settings(rig.Ihash, "1048576", "audit", "0"))
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, "1048576", "audit", "0"))
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
	rig.Expect(t, m.Observe("audit", "0"), host.InSync)
	m.ExpectInDefaults("audit=0", true)
	m.ExpectInDefaults(rig.Ihash+"=1048576", true)
	m.ExpectInDefaults(rig.IhashSeed, false)
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.ExpectInDefaults(rig.IhashSeed, true)
}

func TestEntrySelectedByAUserIsBootedBeforeTheTrial(t *testing.T) {
	m := rig.NewTryingRocky(t)
	rescue := strings.TrimSuffix(path.Base(rig.RescueEntry), ".conf")
	m.Write(rig.BlsEnv, string(grubcfg.Environment(m.Read(rig.BlsEnv)).With(grubcfg.NextEntry, rescue)))
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if got := m.Observe(rig.Ihash, rig.Seed); got.State != host.Pending || !strings.Contains(got.Message, rescue) || strings.Contains(got.Message, "failed") {
		t.Errorf("got %+v", got)
	}
	m.PrepareReboot()
	check.Equal(t, "booted entry", rescue, m.StartEntry())
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "only with a permit", "another entry")
	m.PrepareReboot()
	check.Equal(t, "booted entry", bls.OnceID, m.StartEntry())
}

func TestObstaclesToATrialOfABootEntry(t *testing.T) {
	tests := map[string]struct {
		prepare func(*rig.Machine)
		message string
	}{
		"there is no environment block": {func(m *rig.Machine) { m.Remove(rig.BlsEnv) }, "no such file"},
		"the menu reads no block":       {func(m *rig.Machine) { m.Replace(grubcfg.Grub2, "load_env", "true") }, "does not read next_entry"},
		"the menu does not clear next":  {func(m *rig.Machine) { m.Replace(grubcfg.Grub2, "save_env", "true") }, "does not read next_entry"},
		"the menu has another default":  {func(m *rig.Machine) { m.Replace(grubcfg.Grub2, `"${next_entry}"`+"\n", "0\n") }, "does not read next_entry"},
		"the block is on btrfs": {func(m *rig.Machine) {
			m.Commands.Output["grub2-probe --target=fs /boot/grub2"] = "btrfs\n"
		}, "on btrfs"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			test.prepare(m)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "has no fallback entry", test.message)
			if m.FS.Exists(bls.OnceEntry) {
				t.Error("a trial is pending")
			}
		})
	}
}

func TestHostsWithoutATrialStageAgain(t *testing.T) {
	stories := map[string]func(*rig.Machine){
		"nothing was staged": func(*rig.Machine) {},
		"all entries were rewritten": func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.StartEntry()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			for _, file := range []string{rig.RockyEntry, rig.RescueEntry, bls.LaterFile} {
				m.Replace(file, " "+rig.IhashSeed, "")
			}
			m.StartEntry()
		},
	}
	for name, prepare := range stories {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				m := rig.NewTryingRocky(t)
				m.Commands.Output["grub2-probe --target=fs /boot/grub2"] = "btrfs\n"
				prepare(m)
				subject, c := m.Crashing(n)
				_ = subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
				m.Restart()
				m.Apply(rig.Settings(rig.Ihash, rig.Seed))
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "has no fallback entry")
				m.ExpectInDefaults(rig.IhashSeed, true)
				if c.Count < n {
					return
				}
			}
		})
	}
}

func TestBootEntriesThatDoNotExplainTheRunningKernel(t *testing.T) {
	later := strings.ReplaceAll(rig.RockyEntry, "427.13.1", "503.1.1")
	tests := map[string]struct {
		prepare func(*rig.Machine)
		message string
	}{
		"it has an argument that no entry has": {func(m *rig.Machine) { m.Replace(loader.CommandLine, " ro ", " ro iommu=pt ") },
			"/proc/cmdline has iommu=pt, which the default entry of " + rig.RockyEntry + " (line 5) does not pass"},
		"the newest kernel's entry has other arguments": {func(m *rig.Machine) {
			m.Write(later, strings.Replace(m.Read(rig.RockyEntry), " rd.lvm.lv=rl/root", "", 1))
		}, "which the default entry of " + later},
		"the newest kernel's entry is not the default": {func(m *rig.Machine) {
			m.Write(later, strings.Replace(m.Read(rig.RockyEntry), " rd.lvm.lv=rl/root", "", 1))
			m.Write(rig.BlsEnv, hostgrub.PadBlock(hostgrub.EmptyBlock+"saved_entry="+strings.TrimSuffix(path.Base(rig.RockyEntry), ".conf")+"\n"))
		}, ""},
		"no entry loads its kernel": {func(m *rig.Machine) {
			m.Replace(loader.CommandLine, "/vmlinuz-", "/other/vmlinuz-")
		}, "which no entry of " + grubcfg.Grub2 + " loads"},
		"its arguments are in the environment block": {func(m *rig.Machine) {
			m.Replace(rig.RockyEntry, "rd.lvm.lv=rl/root", "$kernelopts $tuned_params")
			m.Replace(loader.CommandLine, "\n", " isolcpus=1\n")
			m.Write(rig.BlsEnv, hostgrub.PadBlock(hostgrub.EmptyBlock+"kernelopts=rd.lvm.lv=rl/root\ntuned_params=isolcpus=1\n"))
		}, ""},
		"its arguments are not in the environment block": {func(m *rig.Machine) {
			m.Replace(rig.RockyEntry, "rd.lvm.lv=rl/root", "$kernelopts")
		}, "has rd.lvm.lv=rl/root, which"},
		"another generator's entry is the default": {func(m *rig.Machine) {
			m.Replace(grubcfg.Grub2, "\nblscfg\n", "\nblscfg\n### BEGIN /etc/grub.d/40_custom ###\nmenuentry 'Other' --id other {\n}\n### END /etc/grub.d/40_custom ###\n")
			m.Write(rig.BlsEnv, hostgrub.PadBlock(hostgrub.EmptyBlock+"saved_entry=other\n"))
		}, `boots entry "Other" of 40_custom`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			test.prepare(m)
			found := m.Subject.Detect()
			if test.message == "" {
				if !found.MayReboot() {
					t.Errorf("not proven: %s", found.Message)
				}
				return
			}
			m.ExpectUnsupported(test.message)
		})
	}
}

// The order is as in rpm and in GRUB's module blscfg.
func TestOrderOfBootEntries(t *testing.T) {
	ascending := [][]string{
		{bls.OnceID, "0-rescue", "0abc-5.14.0-503.1.1.el9.x86_64"},
		{"m-0-rescue", "m-5.14.0-70.el9.x86_64", "m-5.14.0-427.el9.x86_64", "m-6.1.0-1.el9.x86_64"},
		{"m-5.14.0~rc1-1", "m-5.14.0-1", "m-5.14.0+debug-1", "m-5.14.0.1-1"},
		{"m-5.a-1", "m-5.1-1", "m-5.01.1-1"},
	}
	for _, names := range ascending {
		for i := range len(names) - 1 {
			if grubentries.CompareEntries(names[i], names[i+1]) >= 0 || grubentries.CompareEntries(names[i+1], names[i]) <= 0 {
				t.Errorf("%s is not before %s", names[i], names[i+1])
			}
		}
	}
	if grubentries.CompareEntries("m-5.014", "m-5.14") != 0 {
		t.Error("leading zeros count")
	}
}

// The agent is killed (-9) between any two host writes, including grubby's writes. The machine then boots with its previous arguments, or tries the
// new ones and returns. A new agent has the usual result, and its journal restores every byte.
func TestATrialOfABootEntrySurvivesAKillAtEveryWrite(t *testing.T) {
	staged := func(m *rig.Machine) { m.Apply(rig.Settings(rig.Ihash, rig.Seed)) }
	permitted := func(m *rig.Machine) { staged(m); m.PrepareReboot() }
	hosts := map[string]func(*testing.T) *rig.Machine{"GRUB": rig.NewTryingRocky, "systemd-boot": rig.NewSystemdBoot, "images": rig.NewUKI}
	failed := func(m *rig.Machine) { staged(m); m.FailTrial(); staged(m) }
	tuned := func(m *rig.Machine) {
		m.Apply(rig.Settings(rig.Ihash, "1048576"))
		m.StartEntry()
		m.Apply(rig.Settings(rig.Ihash, "1048576"))
	}
	audit := func(m *rig.Machine) {
		m.Apply(rig.Settings("audit", "0"))
		m.StartEntry()
		m.Apply(rig.Settings("audit", "0"))
	}
	both := rig.Settings("audit", "0", rig.Ihash, rig.Seed)
	applies := func(desired []host.Setting) func(*rig.Machine, *life.Subject) {
		return func(m *rig.Machine, s *life.Subject) { _ = s.Apply(m.T.Context(), desired) }
	}
	rearms := func(permitted bool) func(*rig.Machine, *life.Subject) {
		return func(_ *rig.Machine, s *life.Subject) { _ = s.Rearm(permitted) }
	}
	stories := map[string]struct {
		prepare func(*rig.Machine)
		killed  func(*rig.Machine, *life.Subject)
		then    []host.Setting
		// promoted is true if the default entry may have the arguments of the running kernel, or still lack them.
		promoted bool
	}{
		"staging":                          {func(*rig.Machine) {}, applies(rig.Settings(rig.Ihash, rig.Seed)), rig.Settings(rig.Ihash, rig.Seed), false},
		"staging, given up":                {func(*rig.Machine) {}, applies(rig.Settings(rig.Ihash, rig.Seed)), nil, false},
		"another value":                    {func(m *rig.Machine) { m.Apply(rig.Settings(rig.Ihash, "1048576")) }, applies(rig.Settings(rig.Ihash, rig.Seed)), rig.Settings(rig.Ihash, rig.Seed), false},
		"withdrawn before the trial":       {staged, applies(nil), nil, false},
		"a permit":                         {staged, rearms(true), rig.Settings(rig.Ihash, rig.Seed), false},
		"a permit, given up":               {staged, rearms(true), nil, false},
		"a permit without a kernel":        {func(m *rig.Machine) { staged(m); m.Remove(m.Kernel) }, rearms(true), nil, false},
		"a withdrawn permit":               {permitted, rearms(false), rig.Settings(rig.Ihash, rig.Seed), false},
		"the kernel is missing":            {func(m *rig.Machine) { permitted(m); m.Remove(m.Kernel) }, applies(rig.Settings(rig.Ihash, rig.Seed)), nil, false},
		"withdrawn after a failed trial":   {failed, applies(nil), nil, false},
		"one more after a failed trial":    {failed, applies(both), both, false},
		"promotion":                        {func(m *rig.Machine) { staged(m); m.StartEntry() }, applies(rig.Settings(rig.Ihash, rig.Seed)), rig.Settings(rig.Ihash, rig.Seed), true},
		"promotion, given up":              {func(m *rig.Machine) { staged(m); m.StartEntry() }, applies(rig.Settings(rig.Ihash, rig.Seed)), nil, true},
		"another value after promotion":    {tuned, applies(rig.Settings(rig.Ihash, rig.Seed)), rig.Settings(rig.Ihash, rig.Seed), false},
		"another value, withdrawn":         {func(m *rig.Machine) { tuned(m); staged(m) }, applies(rig.Settings(rig.Ihash, "1048576")), rig.Settings(rig.Ihash, "1048576"), false},
		"promotion of another value":       {func(m *rig.Machine) { tuned(m); staged(m); m.StartEntry() }, applies(rig.Settings(rig.Ihash, rig.Seed)), rig.Settings(rig.Ihash, rig.Seed), true},
		"one more":                         {audit, applies(both), both, false},
		"one is removed, and one is tried": {audit, applies(rig.Settings(rig.Ihash, rig.Seed)), rig.Settings(rig.Ihash, rig.Seed), false},
		"one of two is removed":            {func(m *rig.Machine) { m.Apply(both) }, applies(rig.Settings("audit", "0")), rig.Settings("audit", "0"), false},
		"removed after promotion":          {func(m *rig.Machine) { staged(m); m.StartEntry(); staged(m) }, applies(nil), nil, true},
	}
	for host, newMachine := range hosts {
		kills := 0
		newHost := func(t *testing.T) *rig.Machine {
			m := newMachine(t)
			m.Journalled = true
			m.Restart()
			return m
		}
		for name, story := range stories {
			t.Run(host+", "+name, func(t *testing.T) {
				clean := newHost(t)
				original := clean.BootFiles()
				story.prepare(clean)
				story.killed(clean, clean.Subject)
				clean.Apply(story.then)
				// The permit is not given again.
				compared := func(files map[string]string) map[string]string {
					if strings.Contains(name, "permit") {
						forgetPermit(files)
					}
					return withoutNext(files)
				}
				want := compared(clean.BootFiles())
				for n := 1; ; n++ {
					m := newHost(t)
					story.prepare(m)
					s, c := m.Crashing(n)
					story.killed(m, s)
					m.ExpectEntryBootable(n)
					if !story.promoted {
						m.ExpectRunningDefault(n)
					}
					m.Restart()
					m.Apply(story.then)
					if diff := cmp.Diff(want, compared(m.BootFiles())); diff != "" {
						t.Fatalf("after the repeat of write %d (-want +got):\n%s", n, diff)
					}
					m.Apply(nil)
					m.Write(m.Kernel, original[m.Kernel])
					if diff := cmp.Diff(original, m.BootFiles()); diff != "" {
						t.Fatalf("after restore, write %d (-want +got):\n%s", n, diff)
					}
					if c.Count < n {
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
	if block, ok := files[rig.BlsEnv]; ok {
		files[rig.BlsEnv] = string(grubcfg.Environment(block).With(loader.TrialVariable, ""))
	}
	if text, ok := files[rig.SystemdOnce]; ok {
		files[rig.SystemdOnce] = strings.Replace(text, efi.StateMark+loader.TrialPermitted, efi.StateMark+loader.TrialArmed, 1)
	}
}

// After the failure, the default entries lose the argument that is no longer desired.
func TestAKillDoesNotRepeatAFailedTrial(t *testing.T) {
	desired := rig.Settings(rig.Ihash, rig.Seed)
	for name, next := range map[string][]host.Setting{"same arguments": desired, "one more": rig.Settings("nosmt", "", rig.Ihash, rig.Seed)} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				m, before := newTuned(t, "audit", "0", rig.Ihash, "1048576")
				m.Apply(desired)
				m.FailTrial()
				subject, c := m.Crashing(n)
				_ = subject.Apply(t.Context(), desired)
				m.ExpectEntryBootable(n)
				for range 2 {
					m.Restart()
					m.Apply(next)
					rig.Expect(t, m.Subject.Observe(t.Context(), next)[len(next)-1], host.Failed, "trial boot failed")
					if len(next) == 1 {
						m.ExpectInDefaults("audit=0", false)
					}
					m.ExpectInDefaults(rig.Ihash+"=1048576", true)
				}
				if name, options := m.PowerEntry(); name == bls.OnceID && strings.Contains(options, rig.IhashSeed) {
					t.Errorf("after a kill at write %d: GRUB tries the failed argument again", n)
				}
				m.Apply(nil)
				if diff := cmp.Diff(withoutNext(before), withoutNext(m.BootFiles())); diff != "" {
					t.Fatalf("after restore, write %d (-want +got):\n%s", n, diff)
				}
				if c.Count < n {
					return
				}
			}
		})
	}
}

// The first kill interrupts a promotion, so that one of two entries has the argument. After the next boot, the second kill interrupts the staging of
// another value. Only some writes are tested: an argument that is lost at one is lost at its neighbors too.
func TestTwoKillsLoseNoArgument(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *rig.Machine{"GRUB": rig.NewTryingRocky, "systemd-boot": rig.NewSystemdBoot, "images": rig.NewUKI} {
		t.Run(name, func(t *testing.T) {
			kills := 0
			for first, more := 1, true; more; first += 2 {
				for second := 1; ; second += 10 {
					m := start(t)
					original := withoutNext(m.BootFiles())
					m.Apply(rig.Settings(rig.Ihash, rig.Seed))
					m.StartEntry()
					promoting, c := m.Crashing(first)
					_ = promoting.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
					more = c.Count >= first
					m.StartEntry()
					staging, c := m.Crashing(second)
					_ = staging.Apply(t.Context(), rig.Settings(rig.Ihash, "1048576"))
					m.StartEntry()
					m.Apply(nil)
					if diff := cmp.Diff(original, withoutNext(m.BootFiles())); diff != "" {
						t.Errorf("after restore, writes %d and %d (-want +got):\n%s", first, second, diff)
					}
					if c.Count < second {
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

func TestFailedPromotionIsReportedAndRepeated(t *testing.T) {
	m := rig.NewTryingRocky(t)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.StartEntry()
	m.Subject.Runner = failingUpdate{m.Commands}
	if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil {
		t.Error("Apply: got no error")
	}
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "exit status 1")
	m.ExpectInDefaults(rig.IhashSeed, false)
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	m.ExpectInDefaults(rig.IhashSeed, true)
}

// On Fedora, kernel-install runs grub2-mkconfig, which sets all entries and the arguments of later kernels.
func TestEntriesThatTheNextKernelInstallationRewrites(t *testing.T) {
	m := rig.NewTryingRocky(t)
	m.Write(loader.DefaultFile, "GRUB_CMDLINE_LINUX=\"audit=0\"\n")
	before := m.BootFiles()
	m.Write("/usr/lib/kernel/install.d/20-grub.install", "[[ /etc/kernel/cmdline -ot /etc/default/grub ]] && grub2-mkconfig -o /etc/grub2.cfg\n")
	m.SetMode("/usr/lib/kernel/install.d/20-grub.install", 0o755)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	m.StartEntry()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	newer := time.Unix(2000000000, 0)
	for file, want := range map[string]bool{bls.LaterFile: false, loader.DefaultFile: true} {
		check.NoError(t, os.Chtimes(filepath.Join(m.Dir, file), newer, newer))
		newer = newer.Add(time.Hour)
		if got := m.Observe(rig.Ihash, rig.Seed); got.State != host.InSync || strings.Contains(got.Message, "next kernel installation") != want {
			t.Errorf("newest is %s: got %+v", file, got)
		}
	}
	if got := m.Observe("audit", "0"); got.State != host.InSync || got.Message != "" {
		t.Errorf("the argument in %s: got %+v", loader.DefaultFile, got)
	}
	for _, file := range []string{rig.RockyEntry, rig.RescueEntry, bls.LaterFile} {
		m.Replace(file, " "+rig.IhashSeed, "")
	}
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Drifted, "not in the boot menu", "the next boot will not pass it")
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	m.ExpectInDefaults(rig.IhashSeed, true)
	m.Apply(nil)
	check.Equal(t, "after restore", before, m.BootFiles())
}

// While the trial of a value boots, the profile gets another value. The default entries keep the value before both.
func TestAnotherValueDuringATrialBoot(t *testing.T) {
	for name, newMachine := range map[string]func(*testing.T) *rig.Machine{"GRUB": rig.NewTryingRocky, "systemd-boot": rig.NewSystemdBoot} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			before := m.BootFiles()
			for range 2 {
				m.Apply(rig.Settings(rig.Hugepage, "never"))
				m.StartEntry()
			}
			m.Apply(rig.Settings(rig.Hugepage, "madvise"))
			m.PrepareReboot()
			m.StartEntry()
			m.Apply(rig.Settings(rig.Hugepage, "always"))
			rig.Expect(t, m.Observe(rig.Hugepage, "always"), host.Pending, "trial boot")
			m.ExpectInDefaults(rig.Hugepage+"=never", true)
			m.StartEntry()
			m.Apply(rig.Settings(rig.Hugepage, "always"))
			rig.Expect(t, m.Observe(rig.Hugepage, "always"), host.InSync)
			m.ExpectInDefaults(rig.Hugepage+"=always", true)
			m.Apply(nil)
			check.Equal(t, "after restore", withoutNext(before), withoutNext(m.BootFiles()))
		})
	}
}

// An argument that was staged without a trial, and has not booted, leaves no known entry to return to.
func TestNoArgumentIsStagedOverAnUntriedOne(t *testing.T) {
	m := rig.NewTryingRocky(t)
	before := m.BootFiles()
	m.Commands.Output["grub2-probe --target=fs /boot/grub2"] = "btrfs\n"
	m.Apply(rig.Settings(rig.Hugepage, "madvise"))
	m.ExpectInDefaults(rig.Hugepage+"=madvise", true)
	m.Commands.Output["grub2-probe --target=fs /boot/grub2"] = "xfs\n"
	m.Restart()
	if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Hugepage, "always")); err == nil || !strings.Contains(err.Error(), "not been booted either") {
		t.Errorf("got error %v", err)
	}
	m.ExpectInDefaults(rig.Hugepage+"=always", false)
	m.ExpectInDefaults(rig.Hugepage+"=madvise", true)
	m.StartEntry()
	m.Apply(rig.Settings(rig.Hugepage, "always"))
	rig.Expect(t, m.Observe(rig.Hugepage, "always"), host.Pending, "trial boot")
	m.ExpectInDefaults(rig.Hugepage+"=always", false)
	m.Apply(nil)
	check.Equal(t, "after restore", withoutNext(before), withoutNext(m.BootFiles()))
}
