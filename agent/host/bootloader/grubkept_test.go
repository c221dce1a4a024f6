package bootloader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageclient/operator/agent/host"
)

// newKernel installs a kernel. Its package runs update-grub.
func (m *machine) newKernel(version string) {
	m.t.Helper()
	for _, kind := range []string{"vmlinuz", "initrd.img"} {
		m.write("/boot/"+kind+"-"+version, "")
	}
	m.makeGrubCfg()
}

func (m *machine) makeGrubCfg() {
	m.t.Helper()
	if _, err := m.commands.Run(m.t.Context(), "grub-mkconfig", "-o", grubCfg); err != nil {
		m.t.Fatal(err)
	}
}

// The menu of the fixture was made in another language than the agent's menus, so a new one differs from it.
func TestMenuIsRestoredExactly(t *testing.T) {
	stories := map[string]func(*machine){
		"at once":             func(m *machine) { m.apply(settings(ihash, seed)) },
		"after another value": func(m *machine) { m.apply(settings(ihash, seed)); m.apply(settings(ihash, "1048576")) },
		"after a boot":        func(m *machine) { m.apply(settings(ihash, seed)); m.boot(16777216); m.apply(settings(ihash, seed)) },
		"after a restart": func(m *machine) {
			m.apply(settings(ihash, seed, "audit", "0"))
			m.restart()
			m.apply(settings("audit", "0"))
		},
		"after a change back":  func(m *machine) { m.apply(settings(ihash, seed)); m.apply(nil); m.apply(settings(ihash, seed)) },
		"after its own backup": func(m *machine) { m.restoreByHand() },
	}
	for _, fixture := range []string{debian, ubuntu} {
		for name, story := range stories {
			t.Run(name+" on "+fixture, func(t *testing.T) {
				m := newMachine(t, fixture)
				if err := os.Chmod(filepath.Join(m.dir, grubCfg), 0o640); err != nil {
					t.Fatal(err)
				}
				files, modes := m.bootFiles(), m.modes()
				story(m)
				if len(m.facts.KeptFiles()) != 1 {
					t.Errorf("got %d saved files", len(m.facts.KeptFiles()))
				}
				m.apply(nil)
				m.expectAsBefore(files, modes)
			})
		}
	}
}

// restoreByHand restores a user's copy of the menu. Then the agent stages again.
func (m *machine) restoreByHand() {
	m.t.Helper()
	before := m.read(grubCfg)
	m.apply(settings(ihash, seed))
	m.write(grubCfg, before)
	m.apply(settings(ihash, seed))
}

func TestMenuIsRestoredExactlyAfterATrial(t *testing.T) {
	m := newTryingMachine(t, debian)
	m.write(grubCfg, strings.Replace(m.read(grubCfg), "insmod gfxterm\n", "insmod gfxterm\n  set lang=C\n", 1))
	before := m.read(grubCfg)
	m.apply(settings(ihash, seed))
	m.start(16777216)
	m.apply(settings(ihash, seed))
	if m.trialState() != "" || strings.Contains(m.read(grubCfg), Generator) {
		t.Fatal("the trial continues")
	}
	m.apply(settings(ihash, seed, "audit", "0"))
	m.apply(nil)
	if diff := cmp.Diff(before, m.read(grubCfg)); diff != "" {
		t.Errorf("menu (-before +after):\n%s", diff)
	}
}

func TestMenuIsRestoredAfterACrashAtEveryChange(t *testing.T) {
	stories := map[string]struct{ from, to []host.Setting }{
		"staging":            {nil, settings(ihash, seed)},
		"another value":      {settings(ihash, "1048576"), settings(ihash, seed)},
		"withdrawing":        {settings(ihash, seed), nil},
		"the end of a trial": {settings(ihash, seed), settings(ihash, seed)},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				m := newMachine(t, debian)
				if name == "the end of a trial" {
					m = newTryingMachine(t, debian)
					m.write(grubCfg, strings.Replace(m.read(grubCfg), "insmod gfxterm\n", "insmod gfxterm\n  set lang=C\n", 1))
				}
				files, modes := m.bootFiles(), m.modes()
				m.apply(story.from)
				if m.attended {
					m.start(16777216)
				}
				subject, c := m.crashing(at)
				err := subject.Apply(t.Context(), story.to)
				m.restart()
				if err == nil && c.count < at {
					if at < 4 {
						t.Errorf("got only %d changes", at)
					}
					return
				}
				m.apply(story.to)
				m.apply(nil)
				if m.expectAsBefore(files, modes); t.Failed() {
					t.Fatalf("after a crash at change %d", at)
				}
			}
		})
	}
}

// The agent must not restore the saved bytes, because the host has changed since.
func TestANewMenuIsMadeIfTheHostHasChangedSince(t *testing.T) {
	const kernel = "6.1.0-30-amd64"
	hasKernel := func(t *testing.T, m *machine) {
		if got := m.read(grubCfg); !strings.Contains(got, "linux\t/boot/vmlinuz-"+kernel) {
			t.Errorf("the new kernel is missing in\n%s", got)
		}
	}
	stories := map[string]struct {
		change func(*machine)
		check  func(*testing.T, *machine)
	}{
		"a kernel was installed": {func(m *machine) { m.newKernel(kernel) }, hasKernel},
		"a kernel was installed, and another value staged": {func(m *machine) {
			m.newKernel(kernel)
			m.apply(settings(ihash, "1048576"))
		}, hasKernel},
		"a kernel came without update-grub, and another value was staged": {func(m *machine) {
			m.write("/boot/vmlinuz-"+kernel, "")
			m.apply(settings(ihash, "1048576"))
		}, hasKernel},
		"a kernel came without update-grub": {func(m *machine) { m.write("/boot/vmlinuz-"+kernel, "") }, hasKernel},
		"another file passes the argument": {func(m *machine) {
			m.replace(defaultFile, `"quiet"`, `"quiet ihash_entries=16777216"`)
		}, func(t *testing.T, m *machine) {
			if got := m.read(grubCfg); !strings.Contains(got, "quiet ihash_entries=16777216") {
				t.Errorf("the argument is missing in\n%s", got)
			}
		}},
		"the default entry was changed": {func(m *machine) {
			m.replace(defaultFile, "GRUB_DEFAULT=0", "GRUB_DEFAULT=2")
			m.makeGrubCfg()
		}, func(t *testing.T, m *machine) {
			if got := m.read(grubCfg); !strings.Contains(got, `set default="2"`) {
				t.Errorf("the default entry is missing in\n%s", got)
			}
		}},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			m.apply(settings(ihash, seed))
			story.change(m)
			m.restart()
			m.apply(nil)
			story.check(t, m)
			if len(m.agentFiles()) > 0 || len(m.facts.KeptFiles()) > 0 {
				t.Errorf("leftover files: %v, %d saved files", m.agentFiles(), len(m.facts.KeptFiles()))
			}
			if name != "another file passes the argument" && strings.Contains(m.read(grubCfg), ihash) {
				t.Errorf("the argument remains in\n%s", m.read(grubCfg))
			}
		})
	}
}

func TestMenuArgumentsOfAnEarlierReleaseAreRemoved(t *testing.T) {
	m := newMachine(t, debian)
	before := parseMenu(m.read(grubCfg))
	m.apply(settings(ihash, seed))
	delete(m.facts, keptFiles)
	m.restart()
	m.apply(settings(ihash, "1048576"))
	if saved := m.facts.KeptFiles(); len(saved) > 0 {
		t.Errorf("a menu with the agent's argument is saved as an original: %v", saved)
	}
	// The earlier release did not limit the size of a menu.
	m.write("/etc/grub.d/40_custom", "#!/bin/sh\nexec tail -n +3 $0\n"+strings.Repeat("# more\n", 10_000))
	if err := os.Chmod(filepath.Join(m.dir, "/etc/grub.d/40_custom"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.makeGrubCfg()
	m.apply(nil)
	after := parseMenu(m.read(grubCfg))
	for i := range after.lines {
		after.lines[i].number, before.lines[i].number = 0, 0
	}
	if diff := cmp.Diff(before, after, cmp.AllowUnexported(menu{}, bootLine{}), cmpopts.IgnoreFields(menu{}, "root")); diff != "" || len(m.agentFiles()) > 0 {
		t.Errorf("menu (-before +after):\n%s", diff)
	}
}

// A user added the argument to the menu. The generator does not print it, and it is restored.
func TestManualArgumentInTheMenuIsRestored(t *testing.T) {
	m := newMachine(t, debian)
	m.replace(grubCfg, "ro  quiet", "ro quiet "+ihash+"="+seed)
	files, modes := m.bootFiles(), m.modes()
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending)
	m.apply(nil)
	m.expectAsBefore(files, modes)
	expect(t, m.restore(ihash, host.Original{}), host.InSync)
}

func TestMenuThatIsTooLargeToSaveIsNotReplaced(t *testing.T) {
	m := newMachine(t, debian)
	m.write("/etc/grub.d/40_custom", "#!/bin/sh\nexec tail -n +3 $0\n"+strings.Repeat("# more\n", 10_000))
	if err := os.Chmod(filepath.Join(m.dir, "/etc/grub.d/40_custom"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.makeGrubCfg()
	m.commands.Ran = nil
	before := m.bootFiles()
	err := m.subject.Apply(t.Context(), settings(ihash, seed))
	if err == nil || !strings.Contains(err.Error(), grubCfg+" is too large to save: more than 64 KiB") {
		t.Errorf("error: got %v", err)
	}
	if diff := cmp.Diff(before, m.bootFiles()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if m.menusMade() > 0 {
		t.Errorf("got %d new menus", m.menusMade())
	}
}

// slowFacts delays the journaling of a menu, and runs a function in the meantime.
type slowFacts struct {
	memoryFacts
	whileSaving func()
}

func (f slowFacts) KeepFiles(files map[string]host.FileRecord) error {
	f.whileSaving()
	return f.memoryFacts.KeepFiles(files)
}

func TestAMenuThatChangesWhileItIsJournaledIsNotReplaced(t *testing.T) {
	m := newMachine(t, debian)
	m.subject.facts = slowFacts{m.facts, func() { m.newKernel("6.1.0-30-amd64") }}
	err := m.subject.Apply(t.Context(), settings(ihash, seed))
	if err == nil || !strings.Contains(err.Error(), "is writing it") {
		t.Errorf("error: got %v", err)
	}
	if !strings.Contains(m.read(grubCfg), "6.1.0-30-amd64") {
		t.Error("the new kernel is missing in the menu")
	}
	m.restart()
	m.apply(settings(ihash, seed))
	m.apply(nil)
	if got := m.read(grubCfg); !strings.Contains(got, "6.1.0-30-amd64") || strings.Contains(got, ihash) {
		t.Errorf("the menu is\n%s", got)
	}
}

func TestMenuIsSavedBeforeItIsReplaced(t *testing.T) {
	m := newMachine(t, debian)
	before := m.read(grubCfg)
	replaced := 0
	m.subject = m.on(m.fs.WithHook(func(op host.Op, name string) error {
		if op == host.OpRename && name == grubCfg {
			replaced++
			if got := string(m.facts.KeptFiles()[grubCfg].Original.Data); got != before {
				t.Errorf("saved: got %q", got)
			}
		}
		return nil
	}))
	m.apply(settings(ihash, seed))
	m.apply(settings(ihash, "1048576"))
	if replaced < 2 {
		t.Errorf("got %d replacements", replaced)
	}
}
