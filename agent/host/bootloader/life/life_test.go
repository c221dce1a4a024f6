package life_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestLifecycleOfAnArgument(t *testing.T) {
	for fixture, normal := range map[string]int{rig.Debian: 3, rig.Ubuntu: 6} {
		t.Run(fixture, func(t *testing.T) {
			m := rig.New(t, fixture)
			original, err := m.Subject.Original(t.Context(), rig.Ihash)
			if err != nil || original.Present {
				t.Fatalf("original: got %v, error %v", original, err)
			}
			before := grubcfg.Parse(m.Read(grubcfg.Debian))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Drifted, "not in the boot menu")

			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			check.Equal(t, "files of the agent", map[string]string{loader.DropIn: rig.AgentDropIn}, m.AgentFiles())
			checkMenu(t, before, grubcfg.Parse(m.Read(grubcfg.Debian)), normal)
			got := m.Observe(rig.Ihash, rig.Seed)
			rig.Expect(t, got, host.Pending, "next boot")
			if got.Observed != "262144" {
				t.Errorf("observed: got %q, want the effective value", got.Observed)
			}

			m.Boot(16777216)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			got = m.Observe(rig.Ihash, rig.Seed)
			rig.Expect(t, got, host.InSync)
			if got.Observed != rig.Seed || got.Message != "" {
				t.Errorf("observed: got %q, message %q", got.Observed, got.Message)
			}

			m.Apply(nil)
			if leftovers := m.AgentFiles(); len(leftovers) > 0 {
				t.Errorf("leftover files: %v", leftovers)
			}
			check.Equal(t, "menu after the removal", before, grubcfg.Parse(m.Read(grubcfg.Debian)), cmpopts.IgnoreFields(loader.Menu{}, "Root"))
			rig.Expect(t, m.Restore(rig.Ihash, original), host.Pending, "removed from the boot configuration")
			m.Boot(262144)
			rig.Expect(t, m.Restore(rig.Ihash, original), host.InSync)
		})
	}
}

// checkMenu checks that each normal line has the argument once, and that all other arguments are unchanged.
func checkMenu(t *testing.T, before, after loader.Menu, normal int) {
	t.Helper()
	arg := host.NewArgument(rig.Ihash + "=" + rig.Seed)
	found := 0
	for i, line := range after.Lines {
		if argument.Count(line.Args, arg) == 1 {
			found++
		}
		if line.Recovery && argument.HasName(line.Args, rig.Ihash) {
			t.Errorf("recovery entry %s has the argument", line.ID)
		}
		if diff := cmp.Diff(before.Lines[i].Args, argument.Without(line.Args, []host.Argument{arg})); diff != "" {
			t.Errorf("other arguments of %s (-want +got):\n%s", line.ID, diff)
		}
	}
	if found != normal || len(before.Lines) != len(after.Lines) {
		t.Errorf("got %d of %d lines with the argument, want %d", found, len(after.Lines), normal)
	}
}

func TestTheMenuKeepsItsPermissions(t *testing.T) {
	for _, mode := range []os.FileMode{0o444, 0o600} {
		m := rig.New(t, rig.Debian)
		file := filepath.Join(m.Dir, grubcfg.Debian)
		check.NoError(t, os.Chmod(file, mode))
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != mode {
			t.Errorf("got %v, error %v; want %s", info, err, mode)
		}
	}
}

func TestApplyDoesNotWriteIfTheMenuIsAsDesired(t *testing.T) {
	m := rig.New(t, rig.Debian)
	desired := rig.Settings("nosmt", "", rig.Ihash, rig.Seed, "audit", "0")
	m.Apply(desired)
	if made := m.MenusMade(); made != 1 {
		t.Fatalf("got %d new menus", made)
	}
	changes := 0
	m.Subject = m.On(m.FS.WithHook(func(host.Op, string) error { changes++; return nil }))
	m.Apply(rig.Settings("audit", "0", "nosmt", "", rig.Ihash, rig.Seed))
	if m.MenusMade() != 1 || changes != 0 {
		t.Errorf("got %d new menus and %d changes, want 1 and none", m.MenusMade(), changes)
	}
	if got := m.Read(loader.DropIn); !strings.Contains(got, "audit=0 ihash_entries=16777216 nosmt\"") {
		t.Errorf("drop-in: got %q", got)
	}
}

func TestNoSettingsOnAnUntouchedHostChangeNothing(t *testing.T) {
	m := rig.New(t, rig.Debian)
	changes := 0
	m.Subject = m.On(m.FS.WithHook(func(host.Op, string) error { changes++; return nil }))
	m.Apply(nil)
	if changes != 0 || len(m.Commands.Ran) != 0 || len(m.Facts) != 0 {
		t.Errorf("got %d changes, commands %v, facts %v; want none", changes, m.Commands.Ran, m.Facts)
	}
}

func TestAChangedAndARemovedArgument(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	m.Boot(16777216)
	m.Apply(rig.Settings(rig.Ihash, "8388608"))
	for _, line := range grubcfg.Parse(m.Read(grubcfg.Debian)).Lines {
		if argument.HasName(line.Args, "audit") || argument.Has(line.Args, host.NewArgument(rig.Ihash+"="+rig.Seed)) {
			t.Errorf("entry %s still has undesired arguments: %s", line.ID, argument.Join(line.Args))
		}
	}
	// The agent passed the running arguments earlier: no conflict.
	rig.Expect(t, m.Observe(rig.Ihash, "8388608"), host.Pending)
	m.Apply(nil)
	// The argument is desired again in the same boot. No file contains the running arguments anymore.
	m.Apply(rig.Settings(rig.Ihash, "4194304"))
	rig.Expect(t, m.Observe(rig.Ihash, "4194304"), host.Pending)
}

func TestForeignArgumentsStayUnchanged(t *testing.T) {
	const other = "ihash_entries=8388608"
	tests := map[string]struct {
		prepare func(*rig.Machine)
		named   string
	}{
		"in /etc/default/grub": {func(m *rig.Machine) {
			m.Replace(loader.DefaultFile, `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="`+other+`"`)
		}, loader.DefaultFile},
		"in /etc/default/grub, exported and in single quotes": {func(m *rig.Machine) {
			m.Write(loader.DefaultFile, m.Read(loader.DefaultFile)+"export GRUB_CMDLINE_LINUX_DEFAULT='quiet "+other+"'\n")
		}, loader.DefaultFile},
		"in another drop-in": {func(m *rig.Machine) {
			m.Write("/etc/default/grub.d/10-x.cfg", `GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT `+other+`"`)
		}, "/etc/default/grub.d/10-x.cfg"},
		"over two lines": {func(m *rig.Machine) {
			m.Write("/etc/default/grub.d/10-x.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT \\\n"+other+"\"\n")
		}, "/etc/default/grub.d/10-x.cfg"},
		"spelled with a dash": {func(m *rig.Machine) {
			m.Write("/etc/default/grub.d/10-x.cfg", `GRUB_CMDLINE_LINUX="ihash-entries=8388608"`)
		}, "/etc/default/grub.d/10-x.cfg"},
		"manually in the menu":  {func(m *rig.Machine) { m.Replace(grubcfg.Debian, "ro  quiet", "ro quiet "+other) }, grubcfg.Debian},
		"in the running kernel": {func(m *rig.Machine) { m.Replace(loader.CommandLine, "quiet", "quiet "+other) }, loader.CommandLine},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			test.prepare(m)
			before := m.Read(grubcfg.Debian)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "conflict", test.named, "8388608")
			if m.MenusMade() > 0 || m.Read(grubcfg.Debian) != before || len(m.AgentFiles()) > 0 {
				t.Errorf("files of the agent: got %v, want no change", m.AgentFiles())
			}
		})
	}
}

func TestALookalikeIsNoConflict(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Write("/etc/default/grub.d/10-x.cfg", `# GRUB_CMDLINE_LINUX="ihash_entries=1"
GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT xihash_entries=1 dyndbg='file ihash_entries=1 +p'" # don't
GRUB_TERMINAL="ihash_entries=1"
`)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
}

func TestForeignArgumentWithTheSameValueIsNotRepeated(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Replace(loader.DefaultFile, `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="ihash_entries=16777216"`)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	// The argument is not in the menu yet, and the agent must not add it.
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Drifted, loader.DefaultFile)
	if _, err := m.Commands.Run(t.Context(), "grub-mkconfig", "-o", grubcfg.Debian); err != nil {
		t.Fatal(err)
	}
	m.Boot(16777216)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync, "already set in "+loader.DefaultFile+", unchanged")
	if len(m.AgentFiles()) > 0 || strings.Count(m.Read(grubcfg.Debian), "ihash_entries") != 5 {
		t.Errorf("files of the agent: got %v, want no change", m.AgentFiles())
	}
}

func TestManualArgumentInTheMenuIsMadePersistent(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Replace(grubcfg.Debian, "ro  quiet", "ro quiet "+rig.Ihash+"="+rig.Seed)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
	check.Equal(t, "files of the agent", map[string]string{loader.DropIn: rig.AgentDropIn}, m.AgentFiles())
}

func TestAnotherUserTakesOverAManagedArgument(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Replace(loader.DefaultFile, `GRUB_CMDLINE_LINUX_DEFAULT="quiet"`, `GRUB_CMDLINE_LINUX_DEFAULT="quiet ihash_entries=16777216"`)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if len(m.AgentFiles()) > 0 {
		t.Errorf("leftover files of the agent: %v", m.AgentFiles())
	}
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "already set in")
}

func TestSizeAboveTheMemoryLimitIsClampedAndNeverStaged(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Write("/proc/meminfo", "MemTotal:        1500000 kB\n")
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	got := m.Observe(rig.Ihash, rig.Seed)
	rig.Expect(t, got, host.Clamped, "not staged", "the largest value that fits is 8388608", "1470 MiB")
	if got.Observed != "262144" || len(m.AgentFiles()) > 0 || m.MenusMade() > 0 {
		t.Errorf("observed: got %q, files %v", got.Observed, m.AgentFiles())
	}
	m.Apply(rig.Settings(rig.Ihash, "8388608"))
	rig.Expect(t, m.Observe(rig.Ihash, "8388608"), host.Pending)
	// The node gets less memory: staged arguments are removed.
	m.Write("/proc/meminfo", "MemTotal:         700000 kB\n")
	m.Apply(rig.Settings(rig.Ihash, "8388608"))
	rig.Expect(t, m.Observe(rig.Ihash, "8388608"), host.Clamped)
	if len(m.AgentFiles()) > 0 {
		t.Errorf("still staged files: %v", m.AgentFiles())
	}
}

func TestExistingTableProvesThatItFits(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Boot(16777216)
	m.Write("/proc/meminfo", "MemTotal:        1900000 kB\n")
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
	// A smaller table then fits as well.
	rig.Expect(t, m.Observe("dhash_entries", "9000000"), host.Drifted)
}

func TestAnArgumentCountsByItsEffect(t *testing.T) {
	const passed = "BOOT_IMAGE=/boot/vmlinuz-6.1.0-25-amd64 ro quiet ihash_entries="
	tests := map[string]struct {
		value, cmdline string
		inodes         int
		state          host.State
		message        string
	}{
		"passed and granted":  {rig.Seed, passed + rig.Seed, 16777216, host.InSync, ""},
		"rounded up":          {"1000000", passed + "1000000", 1048576, host.InSync, "rounds it up to 1048576"},
		"hexadecimal":         {"0x1000000", passed + "0x1000000", 16777216, host.InSync, ""},
		"passed twice":        {rig.Seed, passed + rig.Seed + " ihash_entries=" + rig.Seed, 16777216, host.InSync, ""},
		"without effect":      {"1048576", passed + "1048576", 131072, host.Failed, "passed, but has no effect: the kernel log reports size 131072"},
		"granted less":        {rig.Seed, passed + rig.Seed, 8388608, host.Failed, "kernel log reports size 8388608"},
		"another one is last": {rig.Seed, passed + rig.Seed + " ihash_entries=16", 16, host.Failed, "not passed"},
		"the last one counts": {rig.Seed, passed + "16 ihash_entries=" + rig.Seed, 16777216, host.InSync, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Apply(rig.Settings(rig.Ihash, test.value))
			m.BootWith(test.cmdline, test.inodes)
			rig.Expect(t, m.Observe(rig.Ihash, test.value), test.state, test.message)
		})
	}
}

func TestBootWithoutTheArgumentIsNotRepeated(t *testing.T) {
	for name, desired := range map[string][]host.Setting{"a hash table": rig.Settings(rig.Ihash, rig.Seed), "another": rig.Settings("audit", "0")} {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Apply(desired)
			m.BootWith("BOOT_IMAGE=/boot/vmlinuz-6.1.0-25-amd64 ro single", 262144)
			m.Apply(desired)
			rig.Expect(t, m.Observe(desired[0].Name, desired[0].Value), host.Failed, "not passed")
			// A new value has not been tried yet.
			m.Apply(rig.Settings(desired[0].Name, "1048576"))
			rig.Expect(t, m.Observe(desired[0].Name, "1048576"), host.Pending)
		})
	}
}

// The staged arguments prevent a boot, so a user boots the node with a rescue kernel and without GRUB.
func TestStagedArgumentsAreRemovedAfterABootWithoutGRUB(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Apply(rig.Settings("audit", "0"))
	m.BootWith("ro single", 262144)
	if found := m.Subject.Detect(); found.Type != loader.GrubDebian || found.Proven || !strings.Contains(found.Message, "the node is not rebooted for it") {
		t.Errorf("got %+v, want an unproven %s", found, loader.GrubDebian)
	}
	m.Apply(nil)
	for _, line := range grubcfg.Parse(m.Read(grubcfg.Debian)).Lines {
		if argument.HasName(line.Args, "audit") {
			t.Errorf("entry %s still passes audit", line.ID)
		}
	}
	if m.FS.Exists(loader.DropIn) {
		t.Error("the drop-in still exists")
	}
	if found := m.Subject.Detect(); found.Type != loader.Unsupported || !strings.Contains(found.Message, "no BOOT_IMAGE") {
		t.Errorf("boot loader without files of the agent: got %+v, want it to be unsupported", found)
	}
}

func TestKernelThatChangesTheCounterpartAnyway(t *testing.T) {
	t.Run("an equal size needs no boot", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.Apply(rig.Settings(rig.Ihash, "262144"))
		rig.Expect(t, m.Observe(rig.Ihash, "262144"), host.InSync, "already has this size")
		if !strings.Contains(m.Read(grubcfg.Debian), "ihash_entries=262144") {
			t.Error("the argument is not staged")
		}
	})
	t.Run("a larger size is reported", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.Apply(rig.Settings(rig.Ihash, "131072"))
		rig.Expect(t, m.Observe(rig.Ihash, "131072"), host.Pending, "smaller than the kernel's default size of 262144")
	})
	t.Run("set by hand for one boot", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.BootWith("BOOT_IMAGE=/boot/vmlinuz-6.1.0-25-amd64 ro ihash_entries="+rig.Seed, 16777216)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
		if len(m.AgentFiles()) != 1 {
			t.Errorf("files of the agent: got %v", m.AgentFiles())
		}
	})
}

func TestOtherArgumentsCountByTheCommandLine(t *testing.T) {
	m := rig.New(t, rig.Debian)
	desired := rig.Settings("audit", "0", "nosmt", "")
	m.Apply(desired)
	rig.Expect(t, m.Observe("audit", "0"), host.Pending)
	rig.Expect(t, m.Observe("nosmt", ""), host.Pending)
	m.Boot(262144)
	got := m.Observe("audit", "0")
	rig.Expect(t, got, host.InSync)
	rig.Expect(t, m.Observe("nosmt", ""), host.InSync)
	check.Equal(t, "observed", "0", got.Observed)
	if len(m.Commands.Ran) != 1 {
		t.Errorf("the kernel log was read unnecessarily: %v", m.Commands.Ran)
	}
}

func TestTheKernelLogIsReadOnceABoot(t *testing.T) {
	m := rig.New(t, rig.Debian)
	for range 3 {
		m.Restart()
		m.Observe(rig.Ihash, rig.Seed)
	}
	check.Equal(t, "ran", []string{"journalctl -k -b -o cat --no-pager"}, m.Commands.Ran)
	m.Boot(131072)
	if got := m.Observe(rig.Ihash, rig.Seed); got.Observed != "131072" {
		t.Errorf("observed: got %q after a boot", got.Observed)
	}
}

// rolledOver is a host whose kernel log has lost its start, or is cut off at its end.
type rolledOver struct {
	host.Runner
	log string
	err error
	ran int
}

func (r *rolledOver) Run(context.Context, ...string) ([]byte, error) {
	r.ran++
	return []byte(r.log), r.err
}

func TestAKernelLogWithoutItsStartIsReadOnce(t *testing.T) {
	tests := map[string]struct {
		log      string
		err      error
		ran      int
		observed string
	}{
		"it rolled over":                   {log: "usb 1-1: reset\n", ran: 2},
		"its commands are missing":         {err: exec.ErrNotFound, ran: 2},
		"its commands fail, as for now":    {err: errors.New("timeout"), ran: 6},
		"its end is longer than the limit": {log: rig.KernelLog(262144), err: errors.New("more than 16777216 bytes of output"), ran: 1, observed: "262144"},
		"its start is gone and it is long": {log: "usb 1-1: reset\n", err: errors.New("more than 16777216 bytes of output"), ran: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			log := &rolledOver{log: test.log, err: test.err}
			observed := ""
			for range 3 {
				observed = life.New(m.FS, log, m.Facts, nil, bootloader.Kinds).Observe(t.Context(), rig.Settings(rig.Ihash, rig.Seed))[0].Observed
			}
			if log.ran != test.ran || observed != test.observed {
				t.Errorf("ran %d commands and observed %q, want %d and %q", log.ran, observed, test.ran, test.observed)
			}
		})
	}
}

func TestKernelLogWithoutSizes(t *testing.T) {
	t.Run("journalctl fails, dmesg shows the size", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.Commands.Fail = map[string]error{"journalctl": errors.New("no journal files")}
		if got := m.Observe(rig.Ihash, rig.Seed); got.Observed != "262144" {
			t.Errorf("observed: got %q", got.Observed)
		}
	})
	t.Run("neither shows the size, and the size is unknown", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.Boot(16777216)
		m.Commands.KernelLog = ""
		got := m.Observe(rig.Ihash, rig.Seed)
		rig.Expect(t, got, host.Failed, "does not show the size")
		check.Equal(t, "observed", "", got.Observed)
	})
	t.Run("a line written by a process does not count", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.Commands.KernelLog += "Inode-cache hash table entries: 16777216 (order: 15, 134217728 bytes, linear)\n"
		if got := m.Observe(rig.Ihash, rig.Seed); got.Observed != "262144" {
			t.Errorf("observed: got %q", got.Observed)
		}
	})
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	tests := map[string]host.Setting{
		"a command substitution":      {Name: "audit", Value: "$(id)"},
		"a backtick":                  {Name: "audit", Value: "`id`"},
		"a quote":                     {Name: "audit", Value: `0"; id; "`},
		"a blank":                     {Name: "audit", Value: "0 init=/bin/sh"},
		"a line end":                  {Name: "audit\nid", Value: "0"},
		"a name with =":               {Name: "audit=0", Value: "1"},
		"the end of arguments":        {Name: "--", Value: ""},
		"a number with a suffix":      {Name: rig.Ihash, Value: "16M"},
		"a hash table without a size": {Name: rig.Ihash, Value: "0"},
		"a number out of range":       {Name: rig.Ihash, Value: "99999999999999999999"},
	}
	for name, setting := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Apply([]host.Setting{setting})
			if len(m.AgentFiles()) > 0 || m.MenusMade() > 0 {
				t.Errorf("files of the agent: got %v", m.AgentFiles())
			}
			rig.Expect(t, m.Subject.Observe(t.Context(), []host.Setting{setting})[0], host.Failed)
		})
	}
}

func TestOtherBootLoadersAreReportedAndUnchanged(t *testing.T) {
	m := rig.New(t, "fedora-coreos")
	before := hosttest.ReadTree(t, m.Dir, "/etc", "/boot")
	m.Apply(rig.Settings("audit", "0", rig.Ihash, rig.Seed))
	check.Equal(t, "changed", before, hosttest.ReadTree(t, m.Dir, "/etc", "/boot"))
	rig.Expect(t, m.Observe("audit", "0"), host.Unsupported, "rpm-ostree")
	rig.Expect(t, m.Observe(rig.Ihash, "262144"), host.Unsupported, "rpm-ostree")
	// The user follows the instructions in the message.
	m.BootWith(strings.TrimSpace(m.Read(loader.CommandLine))+" audit=0 ihash_entries="+rig.Seed, 16777216)
	rig.Expect(t, m.Observe("audit", "0"), host.InSync, "set by the platform's tools")
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync, "set by the platform's tools")
	rig.Expect(t, m.Restore("audit", host.Original{}), host.InSync)
}

func TestRestoreReportsRemainingArguments(t *testing.T) {
	t.Run("no argument was passed", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.Apply(nil)
		rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.InSync)
	})
	t.Run("the menu could not be made without it", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		m.Commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1")}
		if err := m.Subject.Apply(t.Context(), nil); err == nil {
			t.Error("Apply: got no error")
		}
		rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.Failed, "exit status 1")
		m.Restart()
		rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.Failed, "still in the boot menu")
	})
	t.Run("another program or user passes it", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.Replace(grubcfg.Debian, "ro  quiet", "ro quiet audit=1")
		m.Boot(262144)
		rig.Expect(t, m.Restore("audit", host.Original{}), host.InSync, "another program or user")
	})
	t.Run("it was passed before", func(t *testing.T) {
		m := rig.New(t, rig.Debian)
		m.BootWith("BOOT_IMAGE=/x audit=1", 262144)
		rig.Expect(t, m.Restore("audit", host.Original{Present: true, Value: "1"}), host.InSync)
	})
}

func TestAMenuThatDidNotLoadTheKernel(t *testing.T) {
	for name, newHost := range map[string]func(*testing.T) *rig.Machine{
		rig.Debian: func(t *testing.T) *rig.Machine { return rig.New(t, rig.Debian) }, "Azure Linux": rig.NewAzure, rig.Rocky: rig.NewRHEL,
	} {
		t.Run(name, func(t *testing.T) {
			m := newHost(t)
			m.Write(loader.CommandLine, "root=/dev/vda1 ro\n")
			if found := m.Subject.Detect(); found.Type != loader.Unsupported || !strings.Contains(found.Message, "no BOOT_IMAGE") {
				t.Errorf("got %+v", found)
			}
		})
	}
}
