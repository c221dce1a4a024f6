package bootloader

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
)

// copyMenu simulates grub-mkconfig while it copies a new menu in place. The file contains only the start of the menu, up to the end of a
// section.
func (m *machine) copyMenu() {
	m.t.Helper()
	whole := m.read(grubCfg)
	const end = "### END /etc/grub.d/10_linux ###\n"
	start, _, found := strings.Cut(whole, end)
	if !found || !parseMenu(start+end).whole {
		m.t.Fatal("the start of the menu is not a complete section")
	}
	m.write(grubCfg+".new", whole)
	m.write(grubCfg, start+end)
}

func TestMenuThatIsBeingCopiedIsIncomplete(t *testing.T) {
	for name, busy := range map[string]func(*machine){
		"the beginning of a new menu": func(m *machine) { m.copyMenu() },
		"an empty menu":               func(m *machine) { m.copyMenu(); m.write(grubCfg, "") },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, debian)
			m.apply(settings(ihash, seed))
			staged := m.read(grubCfg)
			busy(m)
			expect(t, m.observe(ihash, seed), host.Failed, "another program is writing it")
			if m.paused != settleTries-1 {
				t.Errorf("got %d waits", m.paused)
			}
			if err := m.subject.Apply(t.Context(), nil); err == nil {
				t.Error("Apply: got no error while the menu is being written")
			}
			// The copy ends while the agent waits.
			m.whilePaused = func() {
				m.write(grubCfg, staged)
				m.remove(grubCfg + ".new")
			}
			expect(t, m.observe(ihash, seed), host.Pending)
			m.apply(nil)
			if strings.Contains(m.read(grubCfg), ihash) {
				t.Error("the menu still has the argument")
			}
		})
	}
}

func TestRemnantsOfACrashDoNotDelayTheMenu(t *testing.T) {
	m := newMachine(t, debian)
	m.write(grubCfg+".new", "### BEGIN of another menu, whose check has failed ###\n"+m.read(grubCfg))
	m.apply(settings(ihash, seed))
	expect(t, m.observe(ihash, seed), host.Pending)
	if m.paused > 0 {
		t.Errorf("got %d waits", m.paused)
	}
}

func TestAMenuThatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	m := newMachine(t, debian)
	reads := 0
	m.subject.readFile = func(name string) ([]byte, error) {
		if reads++; reads == 2 {
			m.write(name, m.read(name)+"# more\n")
		}
		return m.fs.ReadFile(name)
	}
	data, err := m.grub().readSettled(grubCfg)
	if err != nil || !strings.HasSuffix(string(data), "# more\n") || m.paused != 1 {
		t.Errorf("got %d waits, error %v, %d bytes", m.paused, err, len(data))
	}
}

// The last check before the replacement of the current menu happens during a copy: the start of the file has fewer entries.
func TestNoMenuReplacesOneThatIsBeingCopied(t *testing.T) {
	m := newMachine(t, debian)
	m.commands.AfterMenu = func(string) { m.copyMenu() }
	err := m.subject.Apply(t.Context(), settings(ihash, seed))
	if err == nil || !strings.Contains(err.Error(), "another program is writing it") {
		t.Errorf("error: got %v", err)
	}
	if strings.Contains(m.read(grubCfg), ihash) {
		t.Error("the menu was replaced")
	}
}
