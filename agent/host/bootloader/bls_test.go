package bootloader

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
)

const (
	rockyEntry  = "/boot/loader/entries/8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7-5.14.0-427.13.1.el9_4.x86_64.conf"
	rescueEntry = "/boot/loader/entries/8d2e0c0f5a7b4b1c9a37d1c3b0a5e6f7-0-rescue.conf"
)

// newRocky is a host with two entries and a command line for later kernels.
func newRocky(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, rocky)
	m.entries, m.kernel = entriesDir, rockyKernel
	m.write(rescueEntry, strings.ReplaceAll(m.read(rockyEntry), "5.14.0-427.13.1.el9_4.x86_64", "0-rescue"))
	m.write(kernelCmdline, "root=/dev/mapper/rl-root ro crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M rd.lvm.lv=rl/root\n")
	return m
}

func (m *machine) bootFiles() map[string]string {
	m.t.Helper()
	files := hosttest.ReadTree(m.t, m.dir, "/boot", "/efi", "/etc", "/var/lib/storage-client", hosttest.OneShotVariable)
	// No system reads the file of a killed sed.
	maps.DeleteFunc(files, func(name, _ string) bool {
		return path.Base(name) == hosttest.SedLeftover || strings.HasPrefix(name, "/var/lib/") && name != blsForm.file
	})
	return files
}

func (m *machine) bootEntry(inodes int) {
	m.t.Helper()
	for line := range strings.Lines(m.read(rockyEntry)) {
		if options, ok := strings.CutPrefix(line, "options "); ok {
			m.bootWith("BOOT_IMAGE=(hd0,msdos1)/vmlinuz "+strings.TrimSpace(options), inodes)
		}
	}
}

func TestLifecycleOfAnArgumentInBootEntries(t *testing.T) {
	m := newRocky(t)
	before := m.bootFiles()
	expect(t, m.observe(ihash, "1048576"), host.Drifted, "not in the boot menu")
	m.apply(settings(ihash, "1048576", "audit", "0"))
	expect(t, m.observe(ihash, "1048576"), host.Pending, "next boot")
	for _, file := range []string{rockyEntry, rescueEntry, kernelCmdline} {
		if got := m.read(file); !strings.Contains(got, "rd.lvm.lv=rl/root audit=0 ihash_entries=1048576\n") {
			t.Errorf("%s is\n%s", file, got)
		}
	}
	// No change remains, so grubby is only queried.
	m.commands.Ran = nil
	m.apply(settings(ihash, "1048576", "audit", "0"))
	if slices.ContainsFunc(m.commands.Ran, func(c string) bool { return strings.Contains(c, "--update-kernel") }) {
		t.Errorf("commands: got %v", m.commands.Ran)
	}
	m.bootEntry(1048576)
	expect(t, m.observe(ihash, "1048576"), host.InSync)
	expect(t, m.observe("audit", "0"), host.InSync)

	m.apply(settings("audit", "0", ihash, "2097152"))
	expect(t, m.observe(ihash, "2097152"), host.Pending)
	m.apply(nil)
	expect(t, m.restore(ihash, host.Original{}), host.Pending, "effective until the next reboot")
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("after restore (-before +after):\n%s", diff)
	}
	m.bootEntry(262144)
	expect(t, m.restore(ihash, host.Original{}), host.InSync)
}

func TestEntriesWithForeignArgumentsStayUnchanged(t *testing.T) {
	m := newRocky(t)
	for _, file := range []string{rockyEntry, rescueEntry} {
		m.replace(file, " ro ", ` ro console=tty0 console=ttyS0,115200 $tuned_params audit=1 dyndbg="file nfs* +p" `)
	}
	m.apply(settings(ihash, "1048576"))
	for _, file := range []string{rockyEntry, rescueEntry} {
		if got := m.read(file); !strings.Contains(got, `console=tty0 console=ttyS0,115200 $tuned_params audit=1 dyndbg="file nfs* +p" `) {
			t.Errorf("%s is\n%s", file, got)
		}
	}
	expect(t, m.observe("audit", "0"), host.Failed, "conflict: "+entriesSource+" sets audit=1")
	expect(t, m.observe("console", "ttyS1"), host.Failed, "conflict")
	got := m.observe("audit", "1")
	expect(t, got, host.Pending, "already set in")
	before := m.bootFiles()
	m.apply(settings(ihash, "1048576", "audit", "1", "console", "ttyS1"))
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	// Foreign arguments stay when the agent withdraws.
	m.apply(nil)
	if got := m.read(rockyEntry); !strings.Contains(got, "audit=1") || strings.Contains(got, ihash) {
		t.Errorf("the entry is\n%s", got)
	}
}

func TestAnArgumentThatOnlyOneEntryHasIsGivenToAll(t *testing.T) {
	m := newRocky(t)
	m.replace(rockyEntry, " ro ", " ro audit=0 ")
	expect(t, m.observe("audit", "0"), host.Drifted)
	m.apply(settings("audit", "0"))
	expect(t, m.observe("audit", "0"), host.Pending)
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
	after := func(change func(m *machine)) func(*machine) {
		return func(m *machine) { m.commands.AfterGrubby = func() { change(m) } }
	}
	tests := map[string]struct {
		prepare func(*machine)
		message string
	}{
		"it fails when it has changed them": {func(m *machine) { m.subject.runner = failingUpdate{m.commands} }, "exit status 1"},
		"it forgets an entry":               {after(func(m *machine) { m.replace(copyOf(rescueEntry), " "+ihash+"="+seed, "") }), "0 times"},
		"it loses an argument of others": {after(func(m *machine) { m.replace(copyOf(rockyEntry), "rd.lvm.lv=rl/root", "") }),
			"would lose rd.lvm.lv=rl/root"},
		"it writes an entry's arguments twice": {after(func(m *machine) {
			m.replace(copyOf(rockyEntry), ihash+"="+seed, ihash+"="+seed+" "+ihash+"="+seed)
		}), "2 times"},
		"it is no longer installed": {func(m *machine) {
			m.commands.AfterGrubby = func() { m.commands.Fail = map[string]error{"grubby": errors.New("not found")} }
		}, "not found"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newRocky(t)
			test.prepare(m)
			before := m.bootFiles()
			err := m.subject.Apply(t.Context(), settings(ihash, seed))
			if err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("error: got %v, want %q", err, test.message)
			}
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// grubby adds no line "options" to an entry, and replaces each line that starts with it. It appends to the line, even after "--".
func TestEntriesThatGrubbyCannotChangeAreReportedBeforeABoot(t *testing.T) {
	const added = entriesDir + "/mine.conf"
	tests := map[string]struct{ file, data string }{
		"an entry without options":              {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\n"},
		"an entry with two lines of options":    {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\noptions ro\noptions quiet\n"},
		"an entry with indented options":        {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\n  options ro\n"},
		"the rescue entry has lost its options": {rescueEntry, ""},
		"an entry with words for init":          {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\noptions ro -- debug\n"},
		"an entry that ends before such words":  {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\noptions ro\t--\n"},
		"an entry with an open quote":           {added, "title Mine\nversion 1\nlinux /vmlinuz-mine\noptions ro dyndbg=\"file x\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newTryingRocky(t)
			if test.data == "" {
				test.data = strings.Replace(m.read(test.file), "options ", "# ", 1)
			}
			m.write(test.file, test.data)
			before := m.bootFiles()
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.Unsupported, "grubby cannot change the arguments of "+test.file)
			if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			m.remove(test.file)
			m.apply(settings(ihash, seed))
			m.write(test.file, test.data)
			if err := m.rearm(true); err == nil || m.subject.Detect().MayReboot() {
				t.Errorf("rebooted for an argument that grubby cannot set: %v, %+v", err, m.subject.Detect())
			}
		})
	}
}

// Such an entry starts a program of the firmware, and GRUB skips it. grubby lists it with the directory of kernels as its kernel.
func TestEntriesWithoutAKernelStayUnchanged(t *testing.T) {
	const added, text = entriesDir + "/shell.conf", "title Shell\nefi /shell.efi\n"
	for name, options := range map[string]string{"no options": "", "options": "options -nostartup\n"} {
		t.Run(name, func(t *testing.T) {
			m := newTryingRocky(t)
			m.write(added, text+options)
			before := m.bootFiles()
			for range 2 {
				m.apply(settings(ihash, seed))
				expect(t, m.observe(ihash, seed), host.Pending, "trial boot")
			}
			m.startEntry()
			m.apply(settings(ihash, seed))
			expect(t, m.observe(ihash, seed), host.InSync)
			if got := m.read(added); got != text+options {
				t.Errorf("%s is\n%s", added, got)
			}
			m.apply(nil)
			if diff := cmp.Diff(withoutNext(before), withoutNext(m.bootFiles())); diff != "" {
				t.Errorf("after restore (-before +after):\n%s", diff)
			}
		})
	}
}

func TestBootEntriesConvergeAfterACrashAtEveryChange(t *testing.T) {
	for at := 1; ; at++ {
		m := newRocky(t)
		before := m.bootFiles()
		subject, c := m.crashing(at)
		err := subject.Apply(t.Context(), settings(ihash, seed))
		m.restart()
		if err == nil {
			if at < 8 {
				t.Errorf("got only %d changes", at)
			}
			return
		}
		if c.count < at {
			t.Fatalf("crash %d: %v", at, err)
		}
		m.apply(settings(ihash, seed))
		expect(t, m.observe(ihash, seed), host.Pending)
		m.apply(nil)
		if m.fs.Exists(entryCopies) {
			t.Errorf("crash %d: %s remains", at, entryCopies)
		}
		if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
			t.Errorf("crash %d, after restore (-before +after):\n%s", at, diff)
		}
	}
}

func TestLaterKernelIsReported(t *testing.T) {
	m := newRocky(t)
	m.apply(settings(ihash, "1048576"))
	m.write(kernelCmdline, "root=/dev/mapper/rl-root ro\n")
	expect(t, m.observe(ihash, "1048576"), host.Pending, "installed later will not have it", kernelCmdline)
	m.remove(kernelCmdline)
	if got := m.observe(ihash, "1048576"); strings.Contains(got.Message, "later") {
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
		for fixture, newHost := range map[string]func(*testing.T) *machine{
			rocky: newRocky, debian: func(t *testing.T) *machine { return newMachine(t, debian) },
		} {
			t.Run(name+" on "+fixture, func(t *testing.T) {
				m := newHost(t)
				m.subject.space = func(dir string) (host.Space, error) {
					if !strings.HasPrefix(dir, "/boot/") {
						t.Errorf("unexpected directory %s", dir)
					}
					return test.space, test.err
				}
				changes := 0
				m.subject.fs = m.fs.WithHook(func(host.Op, string) error { changes++; return nil })
				err := m.subject.Apply(t.Context(), settings(ihash, seed))
				if err == nil || !strings.Contains(err.Error(), test.message) {
					t.Errorf("error: got %v, want %q", err, test.message)
				}
				if changes > 0 || m.menusMade() > 0 {
					t.Errorf("got %d changes, %d new menus", changes, m.menusMade())
				}
				expect(t, m.observe(ihash, seed), host.Failed, test.message)
				// The file system has space again.
				m.restart()
				m.apply(settings(ihash, seed))
				expect(t, m.observe(ihash, seed), host.Pending)
			})
		}
	}
}

func TestAnImageWithBootEntries(t *testing.T) {
	m := newRocky(t)
	m.fs = m.fs.AsImage()
	m.restart()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending, "when the image boots", "memory")
	original, err := m.subject.Original(t.Context(), "rd.lvm.lv")
	if err != nil || original != (host.Original{Present: true, Value: "rl/root"}) {
		t.Errorf("original: got %v, error %v", original, err)
	}
	m.apply(nil)
	expect(t, m.restore(ihash, host.Original{}), host.InSync)
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
	got := parseEntries(info)
	want := menu{whole: true, lines: []bootLine{
		{id: "m-5.14.0", title: "Rocky Linux (5.14.0) 9.4 (Blue Onyx)", kernel: "/boot/vmlinuz-5.14.0", args: []host.Argument{
			{Name: "ro"}, {Name: "crashkernel", Value: "1G", HasValue: true}, {Name: "$tuned_params"},
			{Name: "dyndbg", Value: "file nfs* +p", HasValue: true}, {Name: "quiet"}, {Name: "root", Value: "UUID=1", HasValue: true},
		}},
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(menu{}, bootLine{}), cmpopts.IgnoreFields(menu{}, "root")); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if text := parseEntries("").findProblem(nil, nil); text == "" {
		t.Error("no error without entries")
	}
}
