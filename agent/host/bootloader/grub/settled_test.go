package grub_test

import (
	"strings"
	"testing"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/bootloader/grubcfg"
	"github.com/storageclient/operator/agent/host/hosttest/rig"
	"github.com/storageclient/operator/test/check"
)

func TestMenuThatIsBeingCopiedIsIncomplete(t *testing.T) {
	for name, busy := range map[string]func(*rig.Machine){
		"the beginning of a new menu": func(m *rig.Machine) { m.CopyMenu() },
		"an empty menu":               func(m *rig.Machine) { m.CopyMenu(); m.Write(grubcfg.Debian, "") },
	} {
		t.Run(name, func(t *testing.T) {
			m := rig.New(t, rig.Debian)
			m.Apply(rig.Settings(rig.Ihash, rig.Seed))
			staged := m.Read(grubcfg.Debian)
			busy(m)
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Failed, "another program is writing it")
			check.Equal(t, "waits", grubcfg.SettleTries-1, m.Paused)
			if err := m.Subject.Apply(t.Context(), nil); err == nil {
				t.Error("Apply: got no error while the menu is being written")
			}
			// The copy ends while the agent waits.
			m.WhilePaused = func() {
				m.Write(grubcfg.Debian, staged)
				m.Remove(grubcfg.Debian + ".new")
			}
			rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
			m.Apply(nil)
			if strings.Contains(m.Read(grubcfg.Debian), rig.Ihash) {
				t.Error("the menu still has the argument")
			}
		})
	}
}

func TestRemnantsOfACrashDoNotDelayTheMenu(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Write(grubcfg.Debian+".new", "### BEGIN of another menu, whose check has failed ###\n"+m.Read(grubcfg.Debian))
	m.Apply(rig.Settings(rig.Ihash, rig.Seed))
	rig.Expect(t, m.Observe(rig.Ihash, rig.Seed), host.Pending)
	if m.Paused > 0 {
		t.Errorf("got %d waits", m.Paused)
	}
}

func TestAMenuThatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	m := rig.New(t, rig.Debian)
	reads := 0
	m.Subject.ReadFile = func(name string) ([]byte, error) {
		if reads++; reads == 2 {
			m.Write(name, m.Read(name)+"# more\n")
		}
		return m.FS.ReadFile(name)
	}
	data, err := m.Grub().ReadSettled(grubcfg.Debian)
	if err != nil || !strings.HasSuffix(string(data), "# more\n") || m.Paused != 1 {
		t.Errorf("got %d waits, error %v, %d bytes", m.Paused, err, len(data))
	}
}

// The last check before the replacement of the current menu happens during a copy: the start of the file has fewer entries.
func TestNoMenuReplacesOneThatIsBeingCopied(t *testing.T) {
	m := rig.New(t, rig.Debian)
	m.Commands.AfterMenu = func(string) { m.CopyMenu() }
	err := m.Subject.Apply(t.Context(), rig.Settings(rig.Ihash, rig.Seed))
	if err == nil || !strings.Contains(err.Error(), "another program is writing it") {
		t.Errorf("error: got %v", err)
	}
	if strings.Contains(m.Read(grubcfg.Debian), rig.Ihash) {
		t.Error("the menu was replaced")
	}
}
