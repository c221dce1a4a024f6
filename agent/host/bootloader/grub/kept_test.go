package grub_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/bootloader/loader"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

// The menu of the fixture was made in another language than the agent's menus, so a new one differs from it.
func TestMenuIsRestoredExactly(t *testing.T) {
	stories := map[string]func(*rig.Machine){
		"at once": func(m *rig.Machine) { m.Apply(rig.Settings(rig.Ihash, rig.Seed)) },
		"after another value": func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Apply(rig.Settings(rig.Ihash, "1048576"))
		},
		"after a boot": func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Boot(16777216)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		},
		"after a restart": func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
			m.Restart()
			m.Apply(rig.Settings("audit", "0"))
		},
		"after a change back": func(m *rig.Machine) {
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			m.Apply(nil)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
		},
		"after its own backup": func(m *rig.Machine) { m.RestoreByHand() },
	}
	for _, fixture := range []string{rig.Debian, rig.Ubuntu} {
		for name, story := range stories {
			t.Run(name+" on "+fixture, func(t *testing.T) {
				m := rig.New(t, fixture)
				check.NoError(t, os.Chmod(filepath.Join(m.Dir, grubcfg.Debian), 0o640))
				files, modes := m.BootFiles(), m.Modes()
				story(m)
				check.Equal(t, "saved files", 1, len(m.Facts.KeptFiles()))
				m.Apply(nil)
				m.ExpectAsBefore(files, modes)
			})
		}
	}
}

func TestMenuIsRestoredExactlyAfterATrial(t *testing.T) {
	m := rig.NewTryingMachine(t, rig.Debian)
	m.Write(grubcfg.Debian, strings.Replace(m.Read(grubcfg.Debian), "insmod gfxterm\n", "insmod gfxterm\n  set lang=C\n", 1))
	before := m.Read(grubcfg.Debian)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Start(16777216)
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	if m.TrialState() != "" || strings.Contains(m.Read(grubcfg.Debian), grubcfg.Generator) {
		t.Fatal("the trial continues")
	}
	m.Apply(rig.Settings(rig.Ihash, rig.Seed, "audit", "0"))
	m.Apply(nil)
	check.Equal(t, "menu", before, m.Read(grubcfg.Debian))
}

func TestMenuIsRestoredAfterACrashAtEveryChange(t *testing.T) {
	stories := map[string]struct{ from, to []host.Setting }{
		"staging":            {nil, rig.Settings(rig.Ihash, rig.Seed)},
		"another value":      {rig.Settings(rig.Ihash, "1048576"), rig.Settings(rig.Ihash, rig.Seed)},
		"withdrawing":        {rig.Settings(rig.Ihash, rig.Seed), nil},
		"the end of a trial": {rig.Settings(rig.Ihash, rig.Seed), rig.Settings(rig.Ihash, rig.Seed)},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				m := rig.New(t, rig.Debian)
				if name == "the end of a trial" {
					m = rig.NewTryingMachine(t, rig.Debian)
					m.Write(grubcfg.Debian, strings.Replace(m.Read(grubcfg.Debian), "insmod gfxterm\n", "insmod gfxterm\n  set lang=C\n", 1))
				}
				files, modes := m.BootFiles(), m.Modes()
				m.Apply(story.from)
				if m.Attended {
					m.Start(16777216)
				}
				subject, c := m.Crashing(at)
				err := subject.Apply(t.Context(), story.to)
				m.Restart()
				if err == nil && c.Count < at {
					if at < 4 {
						t.Errorf("got only %d changes", at)
					}
					return
				}
				m.Apply(story.to)
				m.Apply(nil)
				if m.ExpectAsBefore(files, modes); t.Failed() {
					t.Fatalf("after a crash at change %d", at)
				}
			}
		})
	}
}

// The agent must not restore the saved bytes, because the host has changed since.
func TestANewMenuIsMadeIfTheHostHasChangedSince(t *testing.T) {
	const kernel = "6.1.0-30-amd64"
	hasKernel := func(t *testing.T, m *rig.Machine) {
		if got := m.Read(grubcfg.Debian); !strings.Contains(got, "linux\t/boot/vmlinuz-"+kernel) {
			t.Errorf("the new kernel is missing in\n%s", got)
		}
	}
	stories := map[string]struct {
		change func(*rig.Machine)
		check  func(*testing.T, *rig.Machine)
	}{
		"a kernel was installed": {func(m *rig.Machine) { m.NewKernel(kernel) }, hasKernel},
		"a kernel was installed, and another value staged": {func(m *rig.Machine) {
			m.NewKernel(kernel)
			m.Apply(rig.Settings(rig.Ihash, "1048576"))
		}, hasKernel},
		"a kernel came without update-grub, and another value was staged": {func(m *rig.Machine) {
			m.Write("/boot/vmlinuz-"+kernel, "")
			m.Apply(rig.Settings(rig.Ihash, "1048576"))
		}, hasKernel},
		"a kernel came without update-grub": {func(m *rig.Machine) { m.Write("/boot/vmlinuz-"+kernel, "") }, hasKernel},
		"another file passes the argument": {func(m *rig.Machine) {
			m.Replace(loader.DefaultFile, `"quiet"`, `"quiet ihash_entries=16777216"`)
		}, func(t *testing.T, m *rig.Machine) {
			if got := m.Read(grubcfg.Debian); !strings.Contains(got, "quiet ihash_entries=16777216") {
				t.Errorf("the argument is missing in\n%s", got)
			}
		}},
		"the default entry was changed": {func(m *rig.Machine) {
			m.Replace(loader.DefaultFile, "GRUB_DEFAULT=0", "GRUB_DEFAULT=2")
			m.MakeGrubCfg()
		}, func(t *testing.T, m *rig.Machine) {
			if got := m.Read(grubcfg.Debian); !strings.Contains(got, `set default="2"`) {
				t.Errorf("the default entry is missing in\n%s", got)
			}
		}},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			story.change(m)
			m.Restart()
			m.Apply(nil)
			story.check(t, m)
			if len(m.AgentFiles()) > 0 || len(m.Facts.KeptFiles()) > 0 {
				t.Errorf("leftover files: %v, %d saved files", m.AgentFiles(), len(m.Facts.KeptFiles()))
			}
			if name != "another file passes the argument" && strings.Contains(m.Read(grubcfg.Debian), rig.Ihash) {
				t.Errorf("the argument remains in\n%s", m.Read(grubcfg.Debian))
			}
		})
	}
}

func TestMenuArgumentsOfAnEarlierReleaseAreRemoved(t *testing.T) {
	m := rig.New(t, rig.Debian)
	before := grubcfg.Parse(m.Read(grubcfg.Debian))
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	delete(m.Facts, rig.KeptFiles)
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	if saved := m.Facts.KeptFiles(); len(saved) > 0 {
		t.Errorf("a menu with the agent's argument is saved as an original: %v", saved)
	}
	// The earlier release did not limit the size of a menu.
	m.Write("/etc/grub.d/40_custom", "#!/bin/sh\nexec tail -n +3 $0\n"+strings.Repeat("# more\n", 10_000))
	check.NoError(t, os.Chmod(filepath.Join(m.Dir, "/etc/grub.d/40_custom"), 0o755))
	m.MakeGrubCfg()
	m.Apply(nil)
	after := grubcfg.Parse(m.Read(grubcfg.Debian))
	for i := range after.Lines {
		after.Lines[i].Number, before.Lines[i].Number = 0, 0
	}
	if diff := cmp.Diff(before, after, cmpopts.IgnoreFields(loader.Menu{}, "Root")); diff != "" || len(m.AgentFiles()) > 0 {
		t.Errorf("menu (-before +after):\n%s", diff)
	}
}

// A user added the argument to the menu. The generator does not print it, and it is restored.
func TestManualArgumentInTheMenuIsRestored(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Replace(grubcfg.Debian, "ro  quiet", "ro quiet "+rig.Ihash+"="+rig.Seed)
	files, modes := m.BootFiles(), m.Modes()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
	m.Apply(nil)
	m.ExpectAsBefore(files, modes)
	rig.Expect(t, m.Restore(rig.Ihash, host.Original{}), host.InSync)
}

func TestMenuThatIsTooLargeToSaveIsNotReplaced(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Write("/etc/grub.d/40_custom", "#!/bin/sh\nexec tail -n +3 $0\n"+strings.Repeat("# more\n", 10_000))
	check.NoError(t, os.Chmod(filepath.Join(m.Dir, "/etc/grub.d/40_custom"), 0o755))
	m.MakeGrubCfg()
	m.Commands.Ran = nil
	before := m.BootFiles()
	err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
	if err == nil || !strings.Contains(err.Error(), grubcfg.Debian+" is too large to save: more than 64 KiB") {
		t.Errorf("error: got %v", err)
	}
	check.Equal(t, "files", before, m.BootFiles())
	if m.MenusMade() > 0 {
		t.Errorf("got %d new menus", m.MenusMade())
	}
}

// slowFacts delays the journaling of a menu, and runs a function in the meantime.
type slowFacts struct {
	rig.MemoryFacts
	whileSaving func()
}

func (f slowFacts) KeepFiles(files map[string]host.FileRecord) error {
	f.whileSaving()
	return f.MemoryFacts.KeepFiles(files)
}

func TestAMenuThatChangesWhileItIsJournaledIsNotReplaced(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Subject.Facts = slowFacts{m.Facts, func() { m.NewKernel("6.1.0-30-amd64") }}
	err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
	if err == nil || !strings.Contains(err.Error(), "is writing it") {
		t.Errorf("error: got %v", err)
	}
	if !strings.Contains(m.Read(grubcfg.Debian), "6.1.0-30-amd64") {
		t.Error("the new kernel is missing in the menu")
	}
	m.Restart()
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Apply(nil)
	if got := m.Read(grubcfg.Debian); !strings.Contains(got, "6.1.0-30-amd64") || strings.Contains(got, rig.Ihash) {
		t.Errorf("the menu is\n%s", got)
	}
}

func TestMenuIsSavedBeforeItIsReplaced(t *testing.T) {
	m := rig.New(t, rig.Debian)
	before := m.Read(grubcfg.Debian)
	replaced := 0
	m.Subject = m.On(m.FS.WithHook(func(op host.Op, name string) error {
		if op == host.OpRename && name == grubcfg.Debian {
			replaced++
			check.Equal(t, "saved data", before, string(m.Facts.KeptFiles()[grubcfg.Debian].Original.Data))
		}
		return nil
	}))
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	m.Apply(rig.Settings(rig.Ihash, "1048576"))
	if replaced < 2 {
		t.Errorf("got %d replacements", replaced)
	}
}
