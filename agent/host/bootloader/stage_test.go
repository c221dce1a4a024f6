package bootloader

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/hosttest"
)

func TestFailureLeavesMenuAndDropInUnchanged(t *testing.T) {
	menuHook := func(change func(m *machine, file string)) func(*machine) {
		return func(m *machine) { m.commands.AfterMenu = func(name string) { change(m, name) } }
	}
	tests := map[string]struct {
		prepare func(*machine)
		message string
	}{
		"grub-mkconfig fails": {func(m *machine) {
			m.commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1: No space left on device")}
		}, "No space left on device"},
		"a later file assigns the variable again": {func(m *machine) {
			m.write("/etc/default/grub.d/zzz-site.cfg", `GRUB_CMDLINE_LINUX_DEFAULT="quiet"`)
		}, "zzz-site.cfg"},
		"the new menu has it twice": {menuHook(func(m *machine, file string) {
			m.replace(file, ihash+"="+seed, ihash+"="+seed+" "+ihash+"="+seed)
		}), "2 times"},
		"the new menu has another value as well": {menuHook(func(m *machine, file string) {
			m.replace(file, ihash+"="+seed, ihash+"="+seed+" ihash_entries=5")
		}), "another value of ihash_entries"},
		"a recovery entry has it": {menuHook(func(m *machine, file string) {
			m.replace(file, "ro single", "ro single "+ihash+"="+seed)
		}), "recovery entry"},
		"another user has added a second value of a staged argument": {func(m *machine) {
			m.replace(defaultFile, `"quiet"`, `"quiet audit=1"`)
			m.replace(grubCfg, "ro  quiet", "ro  quiet audit=1")
			m.commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1")}
		}, "exit status 1"},
		"the new menu boots another root": {menuHook(func(m *machine, file string) {
			m.replace(file, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11", "root=/dev/sdb1")
		}), "would lose root="},
		"the new menu loses a kernel that was installed in the meantime": {menuHook(func(m *machine, _ string) {
			m.write("/boot/vmlinuz-6.1.0-30-amd64", "")
			present := m.read(grubCfg)
			m.write(grubCfg, strings.ReplaceAll(present, "6.1.0-25-amd64", "6.1.0-30-amd64"))
			m.remove("/boot/vmlinuz-6.1.0-25-amd64")
		}), "6.1.0-30-amd64"},
		"the new menu is cut off": {menuHook(func(m *machine, file string) {
			data, _, _ := strings.Cut(m.read(file), "### END")
			m.write(file, data)
		}), "incomplete"},
		"the new menu has no entries": {menuHook(func(m *machine, file string) {
			m.write(file, "### BEGIN /etc/grub.d/10_linux ###\n### END /etc/grub.d/10_linux ###\n")
		}), "no entry"},
		"the command line is too long": {func(m *machine) {
			long := strings.Repeat("x", 2000)
			m.replace(defaultFile, `"quiet"`, `"quiet `+long+`"`)
			m.replace(grubCfg, "ro  quiet", "ro quiet "+long)
		}, "2047"},
		"the new command line is too long": {func(m *machine) {
			m.replace(defaultFile, `"quiet"`, `"quiet `+strings.Repeat("x", 2000)+`"`)
		}, "2047"},
		"the menu is a link": {func(m *machine) {
			m.write("/boot/grub/real.cfg", m.read(grubCfg))
			m.remove(grubCfg)
			if err := os.Symlink("real.cfg", filepath.Join(m.dir, grubCfg)); err != nil {
				m.t.Fatal(err)
			}
		}, "not a regular file"},
	}
	for name, test := range tests {
		for start, earlier := range map[string][]host.Setting{"on a fresh host": nil, "with another argument staged": settings("audit", "0")} {
			t.Run(name+" "+start, func(t *testing.T) {
				m := newMachine(t, debian)
				m.apply(earlier)
				test.prepare(m)
				files := m.agentFiles()
				before := m.read(grubCfg)
				err := m.subject.Apply(t.Context(), append(earlier, settings(ihash, seed)...))
				if err == nil {
					t.Fatal("Apply: got no error")
				}
				if !strings.Contains(err.Error(), test.message) {
					t.Errorf("error: got %q, want it to contain %q", err, test.message)
				}
				expect(t, m.observe(ihash, seed), host.Failed)
				if diff := cmp.Diff(files, m.agentFiles()); diff != "" {
					t.Errorf("files of the agent (-want +got):\n%s", diff)
				}
				if strings.Contains(name, "in the meantime") {
					return
				}
				if diff := cmp.Diff(before, m.read(grubCfg)); diff != "" {
					t.Errorf("menu (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestEntryOfARemovedKernelMayBeLost(t *testing.T) {
	m := newMachine(t, debian)
	m.remove("/boot/vmlinuz-6.1.0-18-amd64")
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending)
}

func TestAnotherNameOfTheSameRootIsNotLost(t *testing.T) {
	m := newMachine(t, debian)
	m.write("/dev/vda1", "")
	m.write("/dev/vda2", "")
	for name, target := range map[string]string{
		"by-uuid/6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11": "../../vda1", "by-partuuid/3ab14bd1-01": "../../vda1", "by-partuuid/3ab14bd1-02": "../../vda2",
	} {
		file := filepath.Join(m.dir, "dev", "disk", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, file); err != nil {
			t.Fatal(err)
		}
	}
	exchange := func(root string) func(string) {
		return func(name string) { m.replace(name, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11", "root="+root) }
	}
	m.commands.AfterMenu = exchange("PARTUUID=3ab14bd1-02")
	if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil {
		t.Error("another device was accepted as the root")
	}
	m.commands.AfterMenu = exchange("PARTUUID=3ab14bd1-01")
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending)
	if found := m.subject.Detect(); !found.MayReboot() {
		t.Errorf("boot loader after a new menu names the root differently: got %+v, want it to be proven", found)
	}
}

func TestAMenuOnAReadOnlyFileSystem(t *testing.T) {
	m := newMachine(t, debian)
	m.subject = m.on(m.fs.WithHook(func(op host.Op, name string) error {
		if (op == host.OpRename || op == host.OpChmod) && strings.HasPrefix(name, "/boot/") {
			return errors.New("read-only file system")
		}
		return nil
	}))
	before := m.read(grubCfg)
	if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil {
		t.Error("Apply: got no error")
	}
	expect(t, m.observe(ihash, seed), host.Failed, "read-only file system")
	if len(m.agentFiles()) > 0 || m.read(grubCfg) != before {
		t.Errorf("files of the agent: got %v, want no change", m.agentFiles())
	}
}

// crash stops a subject at the n-th change, including changes by grub-mkconfig, as if the process died.
type crash struct{ count, at int }

func (c *crash) step() error {
	c.count++
	if c.count >= c.at {
		return errCrash
	}
	return nil
}

func (m *machine) crashing(at int) (*Subject, *crash) {
	c := &crash{at: at}
	s := m.on(m.fs.WithHook(func(host.Op, string) error { return c.step() }))
	s.runner = &crashingRunner{crash: c, Commands: m.commands}
	return s, c
}

func TestApplyConvergesAfterACrashAtEveryChange(t *testing.T) {
	stories := map[string]struct{ from, to []host.Setting }{
		"the first argument":      {nil, settings(ihash, seed)},
		"another value":           {settings(ihash, "1048576"), settings(ihash, seed)},
		"one of two is removed":   {settings(ihash, seed, "audit", "0"), settings(ihash, seed)},
		"the last one is removed": {settings(ihash, seed), nil},
		"one in place of other":   {settings("audit", "0"), settings(ihash, seed)},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				if !crashOnce(t, story.from, story.to, story.to, n) {
					if n < 12 {
						t.Errorf("got only %d changes", n-1)
					}
					return
				}
			}
		})
	}
}

func TestNewDesiredValueAfterACrashConverges(t *testing.T) {
	stories := map[string]struct{ from, to, then []host.Setting }{
		"back to no argument": {nil, settings(ihash, seed), nil},
		"back to the old":     {settings(ihash, "1048576"), settings(ihash, seed), settings(ihash, "1048576")},
		"to a third":          {settings(ihash, "1048576"), settings(ihash, seed), settings("audit", "0")},
		"a withdrawn removal": {settings(ihash, seed), nil, settings(ihash, seed)},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			for n := 1; crashOnce(t, story.from, story.to, story.then, n); n++ {
				if n > 100 {
					t.Fatal("the crash test does not end")
				}
			}
		})
	}
}

// crashOnce changes one state to another, crashes at the n-th change, and then applies the settings that are desired by then. It returns
// false if there is no n-th change.
func crashOnce(t *testing.T, from, to, then []host.Setting, n int) bool {
	t.Helper()
	m := newMachine(t, debian)
	m.apply(from)
	old := parseMenu(m.read(grubCfg))
	s, c := m.crashing(n)
	_ = s.Apply(t.Context(), to)
	present := parseMenu(m.read(grubCfg))
	if !isMenuOf(present, to) && !cmp.Equal(old, present, cmp.AllowUnexported(menu{}, bootLine{}), cmpopts.IgnoreFields(menu{}, "root")) {
		t.Errorf("after a crash at change %d: the menu is neither the old nor the new one", n)
	}
	m.restart()
	m.apply(then)
	if !isMenuOf(parseMenu(m.read(grubCfg)), then) {
		t.Errorf("after the repeat of change %d: the menu is\n%s", n, m.read(grubCfg))
	}
	want := map[string]string{}
	if len(then) > 0 {
		want[DropIn] = dropIn{args: bootArguments(t, then)}.renderFile(grubForm)
	}
	if diff := cmp.Diff(want, m.agentFiles()); diff != "" {
		t.Errorf("after the repeat of change %d: files of the agent (-want +got):\n%s", n, diff)
	}
	for _, setting := range then {
		expect(t, m.observe(setting.Name, setting.Value), host.Pending)
	}
	return c.count >= n
}

func bootArguments(t *testing.T, desired []host.Setting) []host.Argument {
	t.Helper()
	var args []host.Argument
	for _, setting := range desired {
		arg, err := argumentOf(setting)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, arg)
	}
	return args
}

// isMenuOf reports whether the menu passes the desired arguments and no other test argument.
func isMenuOf(m menu, desired []host.Setting) bool {
	var desiredArguments, stale []host.Argument
	for _, setting := range desired {
		desiredArguments = append(desiredArguments, host.NewArgument(setting.Name+"="+setting.Value))
	}
	for _, token := range []string{ihash + "=" + seed, ihash + "=1048576", "audit=0"} {
		stale = append(stale, host.NewArgument(token))
	}
	return m.findProblem(desiredArguments, argumentsWithout(stale, desiredArguments)) == ""
}

func TestFailureAfterACrashReturnsToTheMenu(t *testing.T) {
	m := newMachine(t, debian)
	m.apply(settings("audit", "0"))
	s, _ := m.crashing(7)
	_ = s.Apply(t.Context(), settings(ihash, seed))
	if !strings.Contains(m.read(DropIn), "Before: audit=0") {
		t.Fatalf("drop-in after the crash: got %q", m.read(DropIn))
	}
	m.restart()
	expect(t, m.observe(ihash, seed), host.Drifted)
	m.commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1")}
	if err := m.subject.Apply(t.Context(), settings(ihash, seed)); err == nil {
		t.Error("Apply: got no error")
	}
	want := map[string]string{DropIn: dropIn{args: bootArguments(t, settings("audit", "0"))}.renderFile(grubForm)}
	if diff := cmp.Diff(want, m.agentFiles()); diff != "" {
		t.Errorf("files of the agent (-want +got):\n%s", diff)
	}
}

func TestChangedDropInIsCorrected(t *testing.T) {
	m := newMachine(t, debian)
	m.apply(settings(ihash, seed))
	m.replace(DropIn, ihash+"="+seed, ihash+"="+seed+" init=/bin/sh")
	if _, err := m.commands.Run(t.Context(), "grub-mkconfig", "-o", grubCfg); err != nil {
		t.Fatal(err)
	}
	m.apply(settings(ihash, seed))
	if strings.Contains(m.read(grubCfg), "init=") || m.read(DropIn) != agentDropIn {
		t.Errorf("drop-in: got %q", m.read(DropIn))
	}
	m.remove(DropIn)
	expect(t, m.observe(ihash, seed), host.Drifted)
	m.apply(settings(ihash, seed))
	if diff := cmp.Diff(map[string]string{DropIn: agentDropIn}, hosttest.ReadTree(t, m.dir, "/etc/default/grub.d")); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// crashingRunner dies before a command or after it.
type crashingRunner struct {
	*crash
	*hosttest.Commands
}

func (r *crashingRunner) Run(ctx context.Context, argv ...string) ([]byte, error) {
	if argv[0] != "grub-mkconfig" {
		r.BeforeWrite = r.step
		defer func() { r.BeforeWrite = nil }()
		return r.Commands.Run(ctx, argv...)
	}
	if err := r.step(); err != nil {
		return nil, err
	}
	out, err := r.Commands.Run(ctx, argv...)
	if err != nil {
		return nil, err
	}
	return out, r.step()
}

func TestRemovedDropInAlsoClearsTheMenu(t *testing.T) {
	for name, boot := range map[string]bool{"in the boot it was staged in": false, "after a boot": true} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			m.apply(settings(ihash, seed))
			if boot {
				m.boot(16777216)
				m.observe(ihash, seed)
			}
			m.remove(DropIn)
			m.restart()
			expect(t, m.restore(ihash, host.Original{}), host.Failed, "still in the boot menu")
			m.apply(nil)
			if strings.Contains(m.read(grubCfg), ihash) || len(m.agentFiles()) > 0 {
				t.Errorf("leftover files: %v", m.agentFiles())
			}
		})
	}
}
