package life_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/life"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestFailureLeavesMenuAndDropInUnchanged(t *testing.T) {
	menuHook := func(change func(m *rig.Machine, file string)) func(*rig.Machine) {
		return func(m *rig.Machine) { m.Commands.AfterMenu = func(name string) { change(m, name) } }
	}
	tests := map[string]struct {
		prepare func(*rig.Machine)
		message string
	}{
		"grub-mkconfig fails": {func(m *rig.Machine) {
			m.Commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1: No space left on device")}
		}, "No space left on device"},
		"a later file assigns the variable again": {func(m *rig.Machine) {
			m.Write("/etc/default/grub.d/zzz-site.cfg", `GRUB_CMDLINE_LINUX_DEFAULT="quiet"`)
		}, "zzz-site.cfg"},
		"the new menu has it twice": {menuHook(func(m *rig.Machine, file string) {
			m.Replace(file, rig.Ihash+"="+rig.Seed, rig.Ihash+"="+rig.Seed+" "+rig.Ihash+"="+rig.Seed)
		}), "2 times"},
		"the new menu has another value as well": {menuHook(func(m *rig.Machine, file string) {
			m.Replace(file, rig.Ihash+"="+rig.Seed, rig.Ihash+"="+rig.Seed+" ihash_entries=5")
		}), "another value of ihash_entries"},
		"a recovery entry has it": {menuHook(func(m *rig.Machine, file string) {
			m.Replace(file, "ro single", "ro single "+rig.Ihash+"="+rig.Seed)
		}), "recovery entry"},
		"another user has added a second value of a staged argument": {func(m *rig.Machine) {
			m.Replace(loader.DefaultFile, `"quiet"`, `"quiet audit=1"`)
			m.Replace(grubcfg.Debian, "ro  quiet", "ro  quiet audit=1")
			m.Commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1")}
		}, "exit status 1"},
		"the new menu boots another root": {menuHook(func(m *rig.Machine, file string) {
			m.Replace(file, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11", "root=/dev/sdb1")
		}), "would lose root="},
		"the new menu loses a kernel that was installed in the meantime": {menuHook(func(m *rig.Machine, _ string) {
			m.Write("/boot/vmlinuz-6.1.0-30-amd64", "")
			present := m.Read(grubcfg.Debian)
			m.Write(grubcfg.Debian, strings.ReplaceAll(present, "6.1.0-25-amd64", "6.1.0-30-amd64"))
			m.Remove("/boot/vmlinuz-6.1.0-25-amd64")
		}), "6.1.0-30-amd64"},
		"the new menu is cut off": {menuHook(func(m *rig.Machine, file string) {
			data, _, _ := strings.Cut(m.Read(file), "### END")
			m.Write(file, data)
		}), "incomplete"},
		"the new menu has no entries": {menuHook(func(m *rig.Machine, file string) {
			m.Write(file, "### BEGIN /etc/grub.d/10_linux ###\n### END /etc/grub.d/10_linux ###\n")
		}), "no entry"},
		"the command line is too long": {func(m *rig.Machine) {
			long := strings.Repeat("x", 2000)
			m.Replace(loader.DefaultFile, `"quiet"`, `"quiet `+long+`"`)
			m.Replace(grubcfg.Debian, "ro  quiet", "ro quiet "+long)
		}, "2047"},
		"the new command line is too long": {func(m *rig.Machine) {
			m.Replace(loader.DefaultFile, `"quiet"`, `"quiet `+strings.Repeat("x", 2000)+`"`)
		}, "2047"},
		"the menu is a link": {func(m *rig.Machine) {
			m.Write("/boot/grub/real.cfg", m.Read(grubcfg.Debian))
			m.Remove(grubcfg.Debian)
			if err := os.Symlink("real.cfg", filepath.Join(m.Dir, grubcfg.Debian)); err != nil {
				m.T.Fatal(err)
			}
		}, "not a regular file"},
	}
	for name, test := range tests {
		for start, earlier := range map[string][]host.Setting{"on a fresh host": nil, "with another argument staged": rig.Settings("audit", "0")} {
			t.Run(name+" "+start, func(t *testing.T) {
				m := rig.New(t, rig.Debian)
				m.Apply(earlier)
				test.prepare(m)
				files := m.AgentFiles()
				before := m.Read(grubcfg.Debian)
				err := m.Subject.Apply(t.Context(), append(earlier, rig.Settings(rig.Ihash, rig.Seed)...))
				if err == nil {
					t.Fatal("Apply: got no error")
				}
				if !strings.Contains(err.Error(), test.message) {
					t.Errorf("error: got %q, want it to contain %q", err, test.message)
				}
				rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed)
				check.Equal(t, "files of the agent", files, m.AgentFiles())
				if strings.Contains(name, "in the meantime") {
					return
				}
				check.Equal(t, "menu", before, m.Read(grubcfg.Debian))
			})
		}
	}
}

func TestEntryOfARemovedKernelMayBeLost(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Remove("/boot/vmlinuz-6.1.0-18-amd64")
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
}

func TestAnotherNameOfTheSameRootIsNotLost(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Write("/dev/vda1", "")
	m.Write("/dev/vda2", "")
	for name, target := range map[string]string{
		"by-uuid/6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11": "../../vda1", "by-partuuid/3ab14bd1-01": "../../vda1", "by-partuuid/3ab14bd1-02": "../../vda2",
	} {
		file := filepath.Join(m.Dir, "dev", "disk", name)
		check.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check.NoError(t, os.Symlink(target, file))
	}
	exchange := func(root string) func(string) {
		return func(name string) { m.Replace(name, "root=UUID=6f4ac8a5-7c1f-4d0e-9a5b-3d1a2f0f7c11", "root="+root) }
	}
	m.Commands.AfterMenu = exchange("PARTUUID=3ab14bd1-02")
	if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil {
		t.Error("another device was accepted as the root")
	}
	m.Commands.AfterMenu = exchange("PARTUUID=3ab14bd1-01")
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
	if found := m.Subject.Detect(); !found.MayReboot() {
		t.Errorf("boot loader after a new menu names the root differently: got %+v, want it to be proven", found)
	}
}

func TestAMenuOnAReadOnlyFileSystem(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Subject = m.On(m.FS.WithHook(func(op host.Op, name string) error {
		if (op == host.OpRename || op == host.OpChmod) && strings.HasPrefix(name, "/boot/") {
			return errors.New("read-only file system")
		}
		return nil
	}))
	before := m.Read(grubcfg.Debian)
	if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil {
		t.Error("Apply: got no error")
	}
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "read-only file system")
	if len(m.AgentFiles()) > 0 || m.Read(grubcfg.Debian) != before {
		t.Errorf("files of the agent: got %v, want no change", m.AgentFiles())
	}
}

func TestApplyConvergesAfterACrashAtEveryChange(t *testing.T) {
	stories := map[string]struct{ from, to []host.Setting }{
		"the first argument":      {nil, rig.Settings(rig.Ihash, rig.Seed)},
		"another value":           {rig.Settings(rig.Ihash, "1048576"), rig.Settings(rig.Ihash, rig.Seed)},
		"one of two is removed":   {rig.Settings(rig.Ihash, rig.Seed, "audit", "0"), rig.Settings(rig.Ihash, rig.Seed)},
		"the last one is removed": {rig.Settings(rig.Ihash, rig.Seed), nil},
		"one in place of other":   {rig.Settings("audit", "0"), rig.Settings(rig.Ihash, rig.Seed)},
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
		"back to no argument": {nil, rig.Settings(rig.Ihash, rig.Seed), nil},
		"back to the old":     {rig.Settings(rig.Ihash, "1048576"), rig.Settings(rig.Ihash, rig.Seed), rig.Settings(rig.Ihash, "1048576")},
		"to a third":          {rig.Settings(rig.Ihash, "1048576"), rig.Settings(rig.Ihash, rig.Seed), rig.Settings("audit", "0")},
		"a withdrawn removal": {rig.Settings(rig.Ihash, rig.Seed), nil, rig.Settings(rig.Ihash, rig.Seed)},
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
	m := rig.New(t, rig.Debian)
	m.Apply(from)
	old := grubcfg.Parse(m.Read(grubcfg.Debian))
	s, c := m.Crashing(n)
	_ = s.Apply(t.Context(), to)
	present := grubcfg.Parse(m.Read(grubcfg.Debian))
	if !isMenuOf(present, to) && !cmp.Equal(old, present, cmpopts.IgnoreFields(loader.Menu{}, "Root")) {
		t.Errorf("after a crash at change %d: the menu is neither the old nor the new one", n)
	}
	m.Restart()
	m.Apply(then)
	if !isMenuOf(grubcfg.Parse(m.Read(grubcfg.Debian)), then) {
		t.Errorf("after the repeat of change %d: the menu is\n%s", n, m.Read(grubcfg.Debian))
	}
	want := map[string]string{}
	if len(then) > 0 {
		want[loader.DropIn] = loader.Record{Args: bootArguments(t, then)}.Render(loader.DropInForm)
	}
	if diff := cmp.Diff(want, m.AgentFiles()); diff != "" {
		t.Errorf("after the repeat of change %d: files of the agent (-want +got):\n%s", n, diff)
	}
	for _, setting := range then {
		rig.Expect(t, m.Observe(setting.Name, setting.Value), host.Pending)
	}
	return c.Count >= n
}

func bootArguments(t *testing.T, desired []host.Setting) []host.Argument {
	t.Helper()
	var args []host.Argument
	for _, setting := range desired {
		arg, err := life.ArgumentOf(setting)
		check.NoError(t, err)
		args = append(args, arg)
	}
	return args
}

// isMenuOf reports whether the menu passes the desired arguments and no other test argument.
func isMenuOf(m loader.Menu, desired []host.Setting) bool {
	var desiredArguments, stale []host.Argument
	for _, setting := range desired {
		desiredArguments = append(desiredArguments, host.NewArgument(setting.Name+"="+setting.Value))
	}
	for _, token := range []string{rig.Ihash + "=" + rig.Seed, rig.Ihash + "=1048576", "audit=0"} {
		stale = append(stale, host.NewArgument(token))
	}
	return m.FindProblem(desiredArguments, argument.Without(stale, desiredArguments)) == ""
}

func TestFailureAfterACrashReturnsToTheMenu(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Apply(rig.Settings("audit", "0"))
	s, _ := m.Crashing(7)
	_ = s.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
	if !strings.Contains(m.Read(loader.DropIn), "Before: audit=0") {
		t.Fatalf("drop-in after the crash: got %q", m.Read(loader.DropIn))
	}
	m.Restart()
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Drifted)
	m.Commands.Fail = map[string]error{"grub-mkconfig": errors.New("exit status 1")}
	if err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed)); err == nil {
		t.Error("Apply: got no error")
	}
	want := map[string]string{loader.DropIn: loader.Record{Args: bootArguments(t, rig.Settings("audit", "0"))}.Render(loader.DropInForm)}
	check.Equal(t, "files of the agent", want, m.AgentFiles())
}

func TestChangedDropInIsCorrected(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Replace(loader.DropIn, rig.Ihash+"="+rig.Seed, rig.Ihash+"="+rig.Seed+" init=/bin/sh")
	if _, err := m.Commands.Run(t.Context(), "grub-mkconfig", "-o", grubcfg.Debian); err != nil {
		t.Fatal(err)
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if strings.Contains(m.Read(grubcfg.Debian), "init=") || m.Read(loader.DropIn) != rig.AgentDropIn {
		t.Errorf("drop-in: got %q", m.Read(loader.DropIn))
	}
	m.Remove(loader.DropIn)
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Drifted)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	check.Equal(t, "files", map[string]string{loader.DropIn: rig.AgentDropIn}, hosttest.ReadTree(t, m.Dir, "/etc/default/grub.d"))
}

func TestRemovedDropInAlsoClearsTheMenu(t *testing.T) {
	for name, boot := range map[string]bool{"in the boot it was staged in": false, "after a boot": true} {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			if boot {
				m.Boot(16777216)
				m.Observe(rig.Ihash, rig.Seed)
			}
			m.Remove(loader.DropIn)
			m.Restart()
			rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.Failed, "still in the boot menu")
			m.Apply(nil)
			if strings.Contains(m.Read(grubcfg.Debian), rig.Ihash) || len(m.AgentFiles()) > 0 {
				t.Errorf("leftover files: %v", m.AgentFiles())
			}
		})
	}
}
