package grubentries_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/bls"
	"github.com/storageclient/operator/agent/host/bootloader/grubentries"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestLifecycleOfAnArgumentInBootEntries(t *testing.T) {
	m := rig.NewRocky(t)
	before := m.BootFiles()
	rig.Expect(t, m.Observe(rig.Ihash, "1048576"), host.Drifted, "not in the boot menu")
	m.Apply(rig.Settings(rig.Ihash, "1048576", "audit", "0"))
	rig.Expect(t, m.Observe(rig.Ihash, "1048576"), host.Pending, "next boot")
	for _, file := range []string{rig.RockyEntry, rig.RescueEntry, bls.LaterFile} {
		if got := m.Read(file); !strings.Contains(got, "rd.lvm.lv=rl/root audit=0 ihash_entries=1048576\n") {
			t.Errorf("%s is\n%s", file, got)
		}
	}
	// No change remains, so grubby is only queried.
	m.Commands.Ran = nil
	m.Apply(rig.Settings(rig.Ihash, "1048576", "audit", "0"))
	if slices.ContainsFunc(m.Commands.Ran, func(c string) bool { return strings.Contains(c, "--update-kernel") }) {
		t.Errorf("commands: got %v", m.Commands.Ran)
	}
	m.BootEntry(1048576)
	rig.Expect(t, m.Observe(rig.Ihash, "1048576"), host.InSync)
	rig.Expect(t, m.Observe("audit", "0"), host.InSync)

	m.Apply(rig.Settings("audit", "0", rig.Ihash, "2097152"))
	rig.Expect(t, m.Observe(rig.Ihash, "2097152"), host.Pending)
	m.Apply(nil)
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.Pending, "effective until the next reboot")
	check.Equal(t, "after restore", before, m.BootFiles())
	m.BootEntry(262144)
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.InSync)
}

func TestEntriesWithForeignArgumentsStayUnchanged(t *testing.T) {
	m := rig.NewRocky(t)
	for _, file := range []string{rig.RockyEntry, rig.RescueEntry} {
		m.Replace(file, " ro ", ` ro console=tty0 console=ttyS0,115200 $tuned_params audit=1 dyndbg="file nfs* +p" `)
	}
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	for _, file := range []string{rig.RockyEntry, rig.RescueEntry} {
		if got := m.Read(file); !strings.Contains(got, `console=tty0 console=ttyS0,115200 $tuned_params audit=1 dyndbg="file nfs* +p" `) {
			t.Errorf("%s is\n%s", file, got)
		}
	}
	rig.Expect(t, m.Observe("audit", "0"), host.Failed, "conflict: "+bls.EntriesSource+" sets audit=1")
	rig.Expect(t, m.Observe("console", "ttyS1"), host.Failed, "conflict")
	got := m.Observe("audit", "1")
	rig.Expect(t, got, host.Pending, "already set in")
	before := m.BootFiles()
	m.Apply(rig.Settings(rig.Ihash, "1048576", "audit", "1", "console", "ttyS1"))
	check.Equal(t, "changed", before, m.BootFiles())
	// Foreign arguments stay when the agent withdraws.
	m.Apply(nil)
	if got := m.Read(rig.RockyEntry); !strings.Contains(got, "audit=1") || strings.Contains(got, rig.Ihash) {
		t.Errorf("the entry is\n%s", got)
	}
}

func TestAnArgumentThatOnlyOneEntryHasIsGivenToAll(t *testing.T) {
	m := rig.NewRocky(t)
	m.Replace(rig.RockyEntry, " ro ", " ro audit=0 ")
	rig.Expect(t, m.Observe("audit", "0"), host.Drifted)
	m.Apply(rig.Settings("audit", "0"))
	rig.Expect(t, m.Observe("audit", "0"), host.Pending)
}

// failingUpdate is a grubby that fails after it has changed everything.
type failingUpdate struct{ *hosttest.Commands }

func (f failingUpdate) Run(ctx context.Context, argv ...string) ([]byte, error) {
	output, err := f.Commands.Run(ctx, argv...)
	if slices.Contains(argv, "--update-kernel=ALL") {
		return nil, errors.New("run grubby: exit status 1")
	}
	return output, err
}

func TestFailedGrubbyLeavesTheEntriesUnchanged(t *testing.T) {
	after := func(change func(m *rig.Machine)) func(*rig.Machine) {
		return func(m *rig.Machine) { m.Commands.AfterGrubby = func() { change(m) } }
	}
	tests := map[string]struct {
		prepare func(*rig.Machine)
		message string
	}{
		"it fails when it has changed them": {func(m *rig.Machine) { m.Subject.Runner = failingUpdate{m.Commands} }, "exit status 1"},
		"it forgets an entry":               {after(func(m *rig.Machine) { m.Replace(bls.CopyOf(rig.RescueEntry), " "+rig.Ihash+"="+rig.Seed, "") }), "0 times"},
		"it loses an argument of others": {after(func(m *rig.Machine) { m.Replace(bls.CopyOf(rig.RockyEntry), "rd.lvm.lv=rl/root", "") }),
			"would lose rd.lvm.lv=rl/root"},
		"it writes an entry's arguments twice": {after(func(m *rig.Machine) {
			m.Replace(bls.CopyOf(rig.RockyEntry), rig.Ihash+"="+rig.Seed, rig.Ihash+"="+rig.Seed+" "+rig.Ihash+"="+rig.Seed)
		}), "2 times"},
		"it is no longer installed": {func(m *rig.Machine) {
			m.Commands.AfterGrubby = func() { m.Commands.Fail = map[string]error{"grubby": errors.New("not found")} }
		}, "not found"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewRocky(t)
			test.prepare(m)
			before := m.BootFiles()
			err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
			if err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("error: got %v, want %q", err, test.message)
			}
			check.Equal(t, "files", before, m.BootFiles())
		})
	}
}

// grubby adds no line "options" to an entry, and replaces each line that starts with it. It appends to the line, even after "--".
func TestEntriesThatGrubbyCannotChangeAreReportedBeforeABoot(t *testing.T) {
	const added = bls.EntriesDir + "/mine.conf"
	tests := map[string]struct{ file, data string }{
		"an entry without options":              {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\n"},
		"an entry with two lines of options":    {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\noptions ro\noptions quiet\n"},
		"an entry with indented options":        {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\n  options ro\n"},
		"the rescue entry has lost its options": {rig.RescueEntry, ""},
		"an entry with words for init":          {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\noptions ro -- debug\n"},
		"an entry that ends before such words":  {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\noptions ro\t--\n"},
		"an entry with an open quote":           {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\noptions ro dyndbg=\"file x\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			if test.data == "" {
				test.data = strings.Replace(m.Read(test.file), "options ", "# ", 1)
			}
			m.Write(test.file, test.data)
			before := m.BootFiles()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Unsupported, "grubby cannot change the arguments of "+test.file)
			check.Equal(t, "files", before, m.BootFiles())
			m.Remove(test.file)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Write(test.file, test.data)
			if err := m.Rearm(true); err == nil || m.Subject.Detect().MayReboot() {
				t.Errorf("rebooted for an argument that grubby cannot set: %v, %+v", err, m.Subject.Detect())
			}
		})
	}
}

// Such an entry starts a program of the firmware, and GRUB skips it. grubby lists it with the directory of kernels as its kernel.
func TestEntriesWithoutAKernelStayUnchanged(t *testing.T) {
	const added, text = bls.EntriesDir + "/shell.conf", "title Shell\nefi /shell.efi\n"
	for name, options := range map[string]string{"no options": "", "options": "options -nostartup\n"} {
		t.Run(name, func(t *testing.T) {
			m := rig.NewTryingRocky(t)
			m.Write(added, text+options)
			before := m.BootFiles()
			for range 2 {
				m.Apply(rig.Settings(rig.Ihash, rig.Seed))
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "trial boot")
			}
			m.StartEntry()
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.InSync)
			if got := m.Read(added); got != text+options {
				t.Errorf("%s is\n%s", added, got)
			}
			m.Apply(nil)
			check.Equal(t, "after restore", withoutNext(before), withoutNext(m.BootFiles()))
		})
	}
}

func TestBootEntriesConvergeAfterACrashAtEveryChange(t *testing.T) {
	for at := 1; ; at++ {
		m := rig.NewRocky(t)
		before := m.BootFiles()
		subject, c := m.Crashing(at)
		err := subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
		m.Restart()
		if err == nil {
			if at < 8 {
				t.Errorf("got only %d changes", at)
			}
			return
		}
		if c.Count < at {
			t.Fatalf("crash %d: %v", at, err)
		}
		m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
		m.Apply(nil)
		if m.FS.Exists(bls.EntryCopies) {
			t.Errorf("crash %d: %s remains", at, bls.EntryCopies)
		}
		if diff := cmp.Diff(before, m.BootFiles()); diff != "" {
			t.Errorf("crash %d, after restore (-before +after):\n%s", at, diff)
		}
	}
}

func TestLaterKernelIsReported(t *testing.T) {
	m := rig.NewRocky(t)
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	m.Write(bls.LaterFile, "root=/dev/mapper/rl-root ro\n")
	rig.Expect(t, m.Observe(rig.Ihash, "1048576"), host.Pending, "installed later will not have it", bls.LaterFile)
	m.Remove(bls.LaterFile)
	if got := m.Observe(rig.Ihash, "1048576"); strings.Contains(got.Message, "later") {
		t.Errorf("message: got %q", got.Message)
	}
}

func TestNoStagingWithoutFreeSpace(t *testing.T) {
	tests := map[string]struct {
		space   host.Space
		err     error
		message string
	}{
		"the file system is full":          {space: host.Space{Free: 4096}, message: "has 4 KiB left"},
		"the file system is read-only":     {space: host.Space{Free: 1 << 30, ReadOnly: true}, message: "mounted read-only"},
		"the file system does not respond": {err: errors.New("input/output error"), message: "input/output error"},
	}
	for name, test := range tests {
		for fixture, newHost := range map[string]func(*testing.T) *rig.Machine{
			rig.Rocky: rig.NewRocky, rig.Debian: func(t *testing.T) *rig.Machine { return rig.New(t, rig.Debian) },
		} {
			t.Run(name+" on "+fixture, func(t *testing.T) {
				m := newHost(t)
				m.Subject.Space = func(dir string) (host.Space, error) {
					if !strings.HasPrefix(dir, "/boot/") {
						t.Errorf("unexpected directory %s", dir)
					}
					return test.space, test.err
				}
				changes := 0
				m.Subject.FS = m.FS.WithHook(func(host.Op, string) error { changes++; return nil })
				err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
				if err == nil || !strings.Contains(err.Error(), test.message) {
					t.Errorf("error: got %v, want %q", err, test.message)
				}
				if changes > 0 || m.MenusMade() > 0 {
					t.Errorf("got %d changes, %d new menus", changes, m.MenusMade())
				}
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, test.message)
				// The file system has space again.
				m.Restart()
				m.Apply(rig.Settings(rig.Ihash, rig.Seed))
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
			})
		}
	}
}

func TestAnImageWithBootEntries(t *testing.T) {
	m := rig.NewRocky(t)
	m.FS = m.FS.AsImage()
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending, "when the image boots", "memory")
	original, err := m.Subject.Original(t.Context(), "rd.lvm.lv")
	if err != nil || original != (host.Original{Present: true, Value: "rl/root"}) {
		t.Errorf("original: got %v, error %v", original, err)
	}
	m.Apply(nil)
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.InSync)
}

func TestGrubbyOutputForEntries(t *testing.T) {
	info := `index=0
kernel="/boot/vmlinuz-5.14.0"
args="ro crashkernel=1G $tuned_params dyndbg="file nfs* +p" quiet"
root="UUID=1"
initrd="/boot/initramfs-5.14.0.img $tuned_initrd"
title="Rocky Linux (5.14.0) 9.4 (Blue Onyx)"
id="m-5.14.0"
index=1
non linux entry
`
	got := grubentries.ParseEntries(info)
	want := loader.Menu{Whole: true, Lines: []loader.Line{
		{ID: "m-5.14.0", Title: "Rocky Linux (5.14.0) 9.4 (Blue Onyx)", Kernel: "/boot/vmlinuz-5.14.0", Args: []host.Argument{
			{Name: "ro"}, {Name: "crashkernel", Value: "1G", HasValue: true}, {Name: "$tuned_params"},
			{Name: "dyndbg", Value: "file nfs* +p", HasValue: true}, {Name: "quiet"}, {Name: "root", Value: "UUID=1", HasValue: true},
		}},
	}}
	check.Equal(t, "entries", want, got, cmpopts.IgnoreFields(loader.Menu{}, "Root"))
	if text := grubentries.ParseEntries("").FindProblem(nil, nil); text == "" {
		t.Error("no error without entries")
	}
}
