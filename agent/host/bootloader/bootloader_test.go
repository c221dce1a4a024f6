package bootloader

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
	"github.com/storageclient/operator/agent/host/hosttest"
)

var errCrash = errors.New("crash")

const agentDropIn = `# Written by storage-client-node-agent. What is changed here is overwritten.
GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT ihash_entries=16777216"
`

func TestLifecycleOfAnArgument(t *testing.T) {
	for fixture, normal := range map[string]int{debian: 3, ubuntu: 6} {
		t.Run(fixture, func(t *testing.T) {
			m := newMachine(t, fixture)
			original, err := m.subject.Original(t.Context(), ihash)
			if err != nil || original.Present {
				t.Fatalf("original: got %v, error %v", original, err)
			}
			before := parseMenu(m.read(grubCfg))
			expect(t, m.observe(ihash, seed), host.Drifted, "not in the boot menu")

			m.apply(settings(ihash, seed))
			if diff := cmp.Diff(map[string]string{DropIn: agentDropIn}, m.agentFiles()); diff != "" {
				t.Errorf("files of the agent (-want +got):\n%s", diff)
			}
			checkMenu(t, before, parseMenu(m.read(grubCfg)), normal)
			got := m.observe(ihash, seed)
			expect(t, got, host.Pending, "next boot")
			if got.Observed != "262144" {
				t.Errorf("observed: got %q, want the effective value", got.Observed)
			}

			m.boot(16777216)
			m.apply(settings(ihash, seed))
			got = m.observe(ihash, seed)
			expect(t, got, host.InSync)
			if got.Observed != seed || got.Message != "" {
				t.Errorf("observed: got %q, message %q", got.Observed, got.Message)
			}

			m.apply(nil)
			if leftovers := m.agentFiles(); len(leftovers) > 0 {
				t.Errorf("leftover files: %v", leftovers)
			}
			if diff := cmp.Diff(before, parseMenu(m.read(grubCfg)), cmp.AllowUnexported(menu{}, bootLine{}), cmpopts.IgnoreFields(menu{}, "root")); diff != "" {
				t.Errorf("menu after the removal (-want +got):\n%s", diff)
			}
			expect(t, m.restore(ihash, original), host.Pending, "removed from the boot configuration")
			m.boot(262144)
			expect(t, m.restore(ihash, original), host.InSync)
		})
	}
}

// checkMenu checks that each normal line has the argument once, and that all other arguments are unchanged.
func checkMenu(t *testing.T, before, after menu, normal int) {
	t.Helper()
	arg := host.NewArgument(ihash + "=" + seed)
	found := 0
	for i, line := range after.lines {
		if countArgument(line.args, arg) == 1 {
			found++
		}
		if line.recovery && hasName(line.args, ihash) {
			t.Errorf("recovery entry %s has the argument", line.id)
		}
		if diff := cmp.Diff(before.lines[i].args, argumentsWithout(line.args, []host.Argument{arg})); diff != "" {
			t.Errorf("other arguments of %s (-want +got):\n%s", line.id, diff)
		}
	}
	if found != normal || len(before.lines) != len(after.lines) {
		t.Errorf("got %d of %d lines with the argument, want %d", found, len(after.lines), normal)
	}
}

func TestTheMenuKeepsItsPermissions(t *testing.T) {
	for _, mode := range []os.FileMode{0o444, 0o600} {
		m := newMachine(t, debian)
		file := filepath.Join(m.dir, grubCfg)
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		m.apply(settings(ihash, seed))
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != mode {
			t.Errorf("got %v, error %v; want %s", info, err, mode)
		}
	}
}

func TestApplyDoesNotWriteIfTheMenuIsAsDesired(t *testing.T) {
	m := newMachine(t, debian)
	desired := settings("nosmt", "", ihash, seed, "audit", "0")
	m.apply(desired)
	if made := m.menusMade(); made != 1 {
		t.Fatalf("got %d new menus", made)
	}
	changes := 0
	m.subject = m.on(m.fs.WithHook(func(host.Op, string) error { changes++; return nil }))
	m.apply(settings("audit", "0", "nosmt", "", ihash, seed))
	if m.menusMade() != 1 || changes != 0 {
		t.Errorf("got %d new menus and %d changes, want 1 and none", m.menusMade(), changes)
	}
	if got := m.read(DropIn); !strings.Contains(got, "audit=0 ihash_entries=16777216 nosmt\"") {
		t.Errorf("drop-in: got %q", got)
	}
}

func TestNoSettingsOnAnUntouchedHostChangeNothing(t *testing.T) {
	m := newMachine(t, debian)
	changes := 0
	m.subject = m.on(m.fs.WithHook(func(host.Op, string) error { changes++; return nil }))
	m.apply(nil)
	if changes != 0 || len(m.commands.Ran) != 0 || len(m.facts) != 0 {
		t.Errorf("got %d changes, commands %v, facts %v; want none", changes, m.commands.Ran, m.facts)
	}
}

func TestAChangedAndARemovedArgument(t *testing.T) {
	m := newMachine(t, debian)
	m.apply(settings(ihash, seed, "audit", "0"))
	m.boot(16777216)
	m.apply(settings(ihash, "8388608"))
	for _, line := range parseMenu(m.read(grubCfg)).lines {
		if hasName(line.args, "audit") || hasArgument(line.args, host.NewArgument(ihash+"="+seed)) {
			t.Errorf("entry %s still has undesired arguments: %s", line.id, joinArguments(line.args))
		}
	}
	// The agent passed the running arguments earlier: no conflict.
	expect(t, m.observe(ihash, "8388608"), host.Pending)
	m.apply(nil)
	// The argument is desired again in the same boot. No file contains the running arguments anymore.
	m.apply(settings(ihash, "4194304"))
	expect(t, m.observe(ihash, "4194304"), host.Pending)
}

func TestForeignArgumentsStayUnchanged(t *testing.T) {
	const other = "ihash_entries=8388608"
	tests := map[string]struct {
		prepare func(*machine)
		named   string
	}{
		"in /etc/default/grub": {func(m *machine) {
			m.replace(defaultFile, `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="`+other+`"`)
		}, defaultFile},
		"in /etc/default/grub, exported and in single quotes": {func(m *machine) {
			m.write(defaultFile, m.read(defaultFile)+"export GRUB_CMDLINE_LINUX_DEFAULT='quiet "+other+"'\n")
		}, defaultFile},
		"in another drop-in": {func(m *machine) {
			m.write("/etc/default/grub.d/10-x.cfg", `GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT `+other+`"`)
		}, "/etc/default/grub.d/10-x.cfg"},
		"over two lines": {func(m *machine) {
			m.write("/etc/default/grub.d/10-x.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT \\\n"+other+"\"\n")
		}, "/etc/default/grub.d/10-x.cfg"},
		"spelled with a dash": {func(m *machine) {
			m.write("/etc/default/grub.d/10-x.cfg", `GRUB_CMDLINE_LINUX="ihash-entries=8388608"`)
		}, "/etc/default/grub.d/10-x.cfg"},
		"manually in the menu":  {func(m *machine) { m.replace(grubCfg, "ro  quiet", "ro quiet "+other) }, grubCfg},
		"in the running kernel": {func(m *machine) { m.replace(commandLine, "quiet", "quiet "+other) }, commandLine},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			test.prepare(m)
			before := m.read(grubCfg)
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Failed, "conflict", test.named, "8388608")
			if m.menusMade() > 0 || m.read(grubCfg) != before || len(m.agentFiles()) > 0 {
				t.Errorf("files of the agent: got %v, want no change", m.agentFiles())
			}
		})
	}
}

func TestALookalikeIsNoConflict(t *testing.T) {
	m := newMachine(t, debian)
	m.write("/etc/default/grub.d/10-x.cfg", `# GRUB_CMDLINE_LINUX="ihash_entries=1"
GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT xihash_entries=1 dyndbg='file ihash_entries=1 +p'" # don't
GRUB_TERMINAL="ihash_entries=1"
`)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending)
}

func TestForeignArgumentWithTheSameValueIsNotRepeated(t *testing.T) {
	m := newMachine(t, debian)
	m.replace(defaultFile, `GRUB_CMDLINE_LINUX=""`, `GRUB_CMDLINE_LINUX="ihash_entries=16777216"`)
	m.apply(settings(ihash, seed))
	// The argument is not in the menu yet, and the agent must not add it.
	expect(t, m.observe(ihash, seed), host.Drifted, defaultFile)
	if _, err := m.commands.Run(t.Context(), "grub-mkconfig", "-o", grubCfg); err != nil {
		t.Fatal(err)
	}
	m.boot(16777216)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync, "already set in "+defaultFile+", unchanged")
	if len(m.agentFiles()) > 0 || strings.Count(m.read(grubCfg), "ihash_entries") != 5 {
		t.Errorf("files of the agent: got %v, want no change", m.agentFiles())
	}
}

func TestManualArgumentInTheMenuIsMadePersistent(t *testing.T) {
	m := newMachine(t, debian)
	m.replace(grubCfg, "ro  quiet", "ro quiet "+ihash+"="+seed)
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending)
	if diff := cmp.Diff(map[string]string{DropIn: agentDropIn}, m.agentFiles()); diff != "" {
		t.Errorf("files of the agent (-want +got):\n%s", diff)
	}
}

func TestAnotherUserTakesOverAManagedArgument(t *testing.T) {
	m := newMachine(t, debian)
	m.apply(settings(ihash, seed))
	m.replace(defaultFile, `GRUB_CMDLINE_LINUX_DEFAULT="quiet"`, `GRUB_CMDLINE_LINUX_DEFAULT="quiet ihash_entries=16777216"`)
	m.apply(settings(ihash, seed))
	if len(m.agentFiles()) > 0 {
		t.Errorf("leftover files of the agent: %v", m.agentFiles())
	}
	expect(t, m.observe(ihash, seed), host.Pending, "already set in")
}

func TestSizeAboveTheMemoryLimitIsClampedAndNeverStaged(t *testing.T) {
	m := newMachine(t, debian)
	m.write("/proc/meminfo", "MemTotal:        1500000 kB\n")
	m.apply(settings(ihash, seed))
	got := m.observe(ihash, seed)
	expect(t, got, host.Clamped, "not staged", "the largest value that fits is 8388608", "1470 MiB")
	if got.Observed != "262144" || len(m.agentFiles()) > 0 || m.menusMade() > 0 {
		t.Errorf("observed: got %q, files %v", got.Observed, m.agentFiles())
	}
	m.apply(settings(ihash, "8388608"))
	expect(t, m.observe(ihash, "8388608"), host.Pending)
	// The node gets less memory: staged arguments are removed.
	m.write("/proc/meminfo", "MemTotal:         700000 kB\n")
	m.apply(settings(ihash, "8388608"))
	expect(t, m.observe(ihash, "8388608"), host.Clamped)
	if len(m.agentFiles()) > 0 {
		t.Errorf("still staged files: %v", m.agentFiles())
	}
}

func TestExistingTableProvesThatItFits(t *testing.T) {
	m := newMachine(t, debian)
	m.apply(settings(ihash, seed))
	m.boot(16777216)
	m.write("/proc/meminfo", "MemTotal:        1900000 kB\n")
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.InSync)
	// A smaller table then fits as well.
	expect(t, m.observe("dhash_entries", "9000000"), host.Drifted)
}

func TestAnArgumentCountsByItsEffect(t *testing.T) {
	const passed = "BOOT_IMAGE=/boot/vmlinuz-6.1.0-25-amd64 ro quiet ihash_entries="
	tests := map[string]struct {
		value, cmdline string
		inodes         int
		state          host.State
		message        string
	}{
		"passed and granted":  {seed, passed + seed, 16777216, host.InSync, ""},
		"rounded up":          {"1000000", passed + "1000000", 1048576, host.InSync, "rounds it up to 1048576"},
		"hexadecimal":         {"0x1000000", passed + "0x1000000", 16777216, host.InSync, ""},
		"passed twice":        {seed, passed + seed + " ihash_entries=" + seed, 16777216, host.InSync, ""},
		"without effect":      {"1048576", passed + "1048576", 131072, host.Failed, "passed, but has no effect: the kernel log reports size 131072"},
		"granted less":        {seed, passed + seed, 8388608, host.Failed, "kernel log reports size 8388608"},
		"another one is last": {seed, passed + seed + " ihash_entries=16", 16, host.Failed, "not passed"},
		"the last one counts": {seed, passed + "16 ihash_entries=" + seed, 16777216, host.InSync, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			m.apply(settings(ihash, test.value))
			m.bootWith(test.cmdline, test.inodes)
			expect(t, m.observe(ihash, test.value), test.state, test.message)
		})
	}
}

func TestBootWithoutTheArgumentIsNotRepeated(t *testing.T) {
	for name, desired := range map[string][]host.Setting{"a hash table": settings(ihash, seed), "another": settings("audit", "0")} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			m.apply(desired)
			m.bootWith("BOOT_IMAGE=/boot/vmlinuz-6.1.0-25-amd64 ro single", 262144)
			m.apply(desired)
			expect(t, m.observe(desired[0].Name, desired[0].Value), host.Failed, "not passed")
			// A new value has not been tried yet.
			m.apply(settings(desired[0].Name, "1048576"))
			expect(t, m.observe(desired[0].Name, "1048576"), host.Pending)
		})
	}
}

// The staged arguments prevent a boot, so a user boots the node with a rescue kernel and without GRUB.
func TestStagedArgumentsAreRemovedAfterABootWithoutGRUB(t *testing.T) {
	m := newMachine(t, debian)
	m.apply(settings("audit", "0"))
	m.bootWith("ro single", 262144)
	if found := m.subject.Detect(); found.Type != GrubDebian || found.Proven || !strings.Contains(found.Message, "the node is not rebooted for it") {
		t.Errorf("got %+v, want an unproven %s", found, GrubDebian)
	}
	m.apply(nil)
	for _, line := range parseMenu(m.read(grubCfg)).lines {
		if hasName(line.args, "audit") {
			t.Errorf("entry %s still passes audit", line.id)
		}
	}
	if m.fs.Exists(DropIn) {
		t.Error("the drop-in still exists")
	}
	if found := m.subject.Detect(); found.Type != Unsupported || !strings.Contains(found.Message, "no BOOT_IMAGE") {
		t.Errorf("boot loader without files of the agent: got %+v, want it to be unsupported", found)
	}
}

func TestKernelThatChangesTheCounterpartAnyway(t *testing.T) {
	t.Run("an equal size needs no boot", func(t *testing.T) {
		m := newMachine(t, debian)
		m.apply(settings(ihash, "262144"))
		expect(t, m.observe(ihash, "262144"), host.InSync, "already has this size")
		if !strings.Contains(m.read(grubCfg), "ihash_entries=262144") {
			t.Error("the argument is not staged")
		}
	})
	t.Run("a larger size is reported", func(t *testing.T) {
		m := newMachine(t, debian)
		m.apply(settings(ihash, "131072"))
		expect(t, m.observe(ihash, "131072"), host.Pending, "smaller than the kernel's default size of 262144")
	})
	t.Run("set by hand for one boot", func(t *testing.T) {
		m := newMachine(t, debian)
		m.bootWith("BOOT_IMAGE=/boot/vmlinuz-6.1.0-25-amd64 ro ihash_entries="+seed, 16777216)
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.InSync)
		if len(m.agentFiles()) != 1 {
			t.Errorf("files of the agent: got %v", m.agentFiles())
		}
	})
}

func TestOtherArgumentsCountByTheCommandLine(t *testing.T) {
	m := newMachine(t, debian)
	desired := settings("audit", "0", "nosmt", "")
	m.apply(desired)
	expect(t, m.observe("audit", "0"), host.Pending)
	expect(t, m.observe("nosmt", ""), host.Pending)
	m.boot(262144)
	got := m.observe("audit", "0")
	expect(t, got, host.InSync)
	expect(t, m.observe("nosmt", ""), host.InSync)
	if got.Observed != "0" {
		t.Errorf("observed: got %q", got.Observed)
	}
	if len(m.commands.Ran) != 1 {
		t.Errorf("the kernel log was read unnecessarily: %v", m.commands.Ran)
	}
}

func TestTheKernelLogIsReadOnceABoot(t *testing.T) {
	m := newMachine(t, debian)
	for range 3 {
		m.restart()
		m.observe(ihash, seed)
	}
	if diff := cmp.Diff([]string{"journalctl -k -b -o cat --no-pager"}, m.commands.Ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
	m.boot(131072)
	if got := m.observe(ihash, seed); got.Observed != "131072" {
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
		"its end is longer than the limit": {log: kernelLog(262144), err: errors.New("more than 16777216 bytes of output"), ran: 1, observed: "262144"},
		"its start is gone and it is long": {log: "usb 1-1: reset\n", err: errors.New("more than 16777216 bytes of output"), ran: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			log := &rolledOver{log: test.log, err: test.err}
			observed := ""
			for range 3 {
				observed = New(m.fs, log, m.facts, nil, Kinds).Observe(t.Context(), settings(ihash, seed))[0].Observed
			}
			if log.ran != test.ran || observed != test.observed {
				t.Errorf("ran %d commands and observed %q, want %d and %q", log.ran, observed, test.ran, test.observed)
			}
		})
	}
}

func TestKernelLogWithoutSizes(t *testing.T) {
	t.Run("journalctl fails, dmesg shows the size", func(t *testing.T) {
		m := newMachine(t, debian)
		m.commands.Fail = map[string]error{"journalctl": errors.New("no journal files")}
		if got := m.observe(ihash, seed); got.Observed != "262144" {
			t.Errorf("observed: got %q", got.Observed)
		}
	})
	t.Run("neither shows the size, and the size is unknown", func(t *testing.T) {
		m := newMachine(t, debian)
		m.apply(settings(ihash, seed))
		m.boot(16777216)
		m.commands.KernelLog = ""
		got := m.observe(ihash, seed)
		expect(t, got, host.Failed, "does not show the size")
		if got.Observed != "" {
			t.Errorf("observed: got %q", got.Observed)
		}
	})
	t.Run("a line written by a process does not count", func(t *testing.T) {
		m := newMachine(t, debian)
		m.commands.KernelLog += "Inode-cache hash table entries: 16777216 (order: 15, 134217728 bytes, linear)\n"
		if got := m.observe(ihash, seed); got.Observed != "262144" {
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
		"a number with a suffix":      {Name: ihash, Value: "16M"},
		"a hash table without a size": {Name: ihash, Value: "0"},
		"a number out of range":       {Name: ihash, Value: "99999999999999999999"},
	}
	for name, setting := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			m.apply([]host.Setting{setting})
			if len(m.agentFiles()) > 0 || m.menusMade() > 0 {
				t.Errorf("files of the agent: got %v", m.agentFiles())
			}
			expect(t, m.subject.Observe(t.Context(), []host.Setting{setting})[0], host.Failed)
		})
	}
}

func TestOtherBootLoadersAreReportedAndUnchanged(t *testing.T) {
	m := newMachine(t, "fedora-coreos")
	before := hosttest.ReadTree(t, m.dir, "/etc", "/boot")
	m.apply(settings("audit", "0", ihash, seed))
	if diff := cmp.Diff(before, hosttest.ReadTree(t, m.dir, "/etc", "/boot")); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	expect(t, m.observe("audit", "0"), host.Unsupported, "rpm-ostree")
	expect(t, m.observe(ihash, "262144"), host.Unsupported, "rpm-ostree")
	// The user follows the instructions in the message.
	m.bootWith(strings.TrimSpace(m.read(commandLine))+" audit=0 ihash_entries="+seed, 16777216)
	expect(t, m.observe("audit", "0"), host.InSync, "set by the platform's tools")
	expect(t, m.observe(ihash, seed), host.InSync, "set by the platform's tools")
	expect(t, m.restore("audit", host.Original{}), host.InSync)
}

func TestRestoreReportsRemainingArguments(t *testing.T) {
	t.Run("no argument was passed", func(t *testing.T) {
		m := newMachine(t, debian)
		m.apply(settings(ihash, seed))
		m.apply(nil)
		expect(t, m.restore(ihash, host.Original{}), host.InSync)
	})
	t.Run("the menu could not be made without it", func(t *testing.T) {
		m := newMachine(t, debian)
		m.apply(settings(ihash, seed))
		m.commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1")}
		if err := m.subject.Apply(t.Context(), nil); err == nil {
			t.Error("Apply: got no error")
		}
		expect(t, m.restore(ihash, host.Original{}), host.Failed, "exit status 1")
		m.restart()
		expect(t, m.restore(ihash, host.Original{}), host.Failed, "still in the boot menu")
	})
	t.Run("another program or user passes it", func(t *testing.T) {
		m := newMachine(t, debian)
		m.replace(grubCfg, "ro  quiet", "ro quiet audit=1")
		m.boot(262144)
		expect(t, m.restore("audit", host.Original{}), host.InSync, "another program or user")
	})
	t.Run("it was passed before", func(t *testing.T) {
		m := newMachine(t, debian)
		m.bootWith("BOOT_IMAGE=/x audit=1", 262144)
		expect(t, m.restore("audit", host.Original{Present: true, Value: "1"}), host.InSync)
	})
}

func TestAMenuThatDidNotLoadTheKernel(t *testing.T) {
	for name, newHost := range map[string]func(*testing.T) *machine{
		debian: func(t *testing.T) *machine { return newMachine(t, debian) }, "Azure Linux": newAzure, rocky: newRHEL,
	} {
		t.Run(name, func(t *testing.T) {
			m := newHost(t)
			m.write(commandLine, "root=/dev/vda1 ro\n")
			if found := m.subject.Detect(); found.Type != Unsupported || !strings.Contains(found.Message, "no BOOT_IMAGE") {
				t.Errorf("got %+v", found)
			}
		})
	}
}
