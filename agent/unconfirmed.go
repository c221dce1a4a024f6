package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/sysctl"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// confirmWithin is the time that unconfirmed settings stay effective after all are set. It is shorter than the time until the kubelet
// restarts an unreachable agent. Liveness probes are new connections too: three of them, 20 s apart, with a 5 s timeout.
const confirmWithin = 40 * time.Second

// setDeadline sets the deadline of a proof that starts now. It returns an error if the boot clock cannot be read.
func (m Machine) setDeadline(u *journal.Unconfirmed, now time.Time) error {
	sinceBoot, err := m.BootClock.SinceBoot()
	if err != nil {
		return err
	}
	u.Deadline, u.DeadlineSinceBoot = now.Add(confirmWithin).UTC().Truncate(time.Second), sinceBoot+confirmWithin
	return nil
}

// timeToProve returns the time that is left to prove the unconfirmed settings. It is zero after another boot or if the boot clock cannot
// be read. It is also zero if the deadline is missing or too late. Then an earlier release, another time namespace, or an editor wrote
// it.
func (m Machine) timeToProve(u journal.Unconfirmed, bootID string) time.Duration {
	remaining := m.timeUntil(u.DeadlineSinceBoot)
	if u.BootID != bootID || remaining > confirmWithin {
		return 0
	}
	return remaining
}

// restoreAll restores the values from before the unconfirmed settings were set. After a boot, it restores only values that survive a
// boot. A newer agent may set unconfirmed values of any subject.
func (m Machine) restoreAll(ctx context.Context, u journal.Unconfirmed, sameBoot bool) error {
	var wrong []string
	for _, subject := range m.Subjects {
		if !sameBoot && !subject.OutlivesBoot() {
			continue
		}
		previousValues := map[string]host.Original{}
		for key, setting := range u.Settings {
			if name, ok := catalogue.Key(key).In(subject.Name()); ok {
				previousValues[name] = setting.Before
			}
		}
		if len(previousValues) == 0 {
			continue
		}
		for _, o := range subject.Restore(ctx, previousValues) {
			if o.State == host.Failed {
				wrong = append(wrong, catalogue.KeyOf(subject.Name(), o.Name)+": "+o.Message)
			}
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return errors.New("cannot revert " + strings.Join(wrong, "; "))
	}
	return nil
}

// unconfirmed returns the settings that are set and not confirmed. It ignores a record with only settings of a newer agent. That record
// stays in the journal for an agent that supports them.
func (m Machine) unconfirmed() (u journal.Unconfirmed, open bool) {
	u, open = m.Journal.Unconfirmed()
	n := len(m.unsupported(u))
	return u, open && (n == 0 || n < len(u.Settings))
}

// unconfirmedSysctls returns the sysctls that are set and not confirmed, by name.
func unconfirmedSysctls(records *journal.Journal) map[string]string {
	u, _ := records.Unconfirmed()
	values := map[string]string{}
	for key, setting := range u.Settings {
		if name, ok := catalogue.Key(key).In(sysctl.Name); ok && !u.Reverted {
			values[name] = hostSetting(name, setting.Entry).Value
		}
	}
	return values
}

// revertUnconfirmed reverts the unconfirmed settings, if any, and records that in the journal.
func (m Machine) revertUnconfirmed(ctx context.Context, bootID string) error {
	u, open := m.unconfirmed()
	if !open || u.Reverted {
		return nil
	}
	if err := m.restoreAll(ctx, u, u.BootID == bootID || u.BootID == ""); err != nil {
		return err
	}
	if unsupported := m.unsupported(u); len(unsupported) > 0 {
		u.Settings = unsupported
	} else {
		u.Reverted = true
	}
	return m.Journal.SetUnconfirmed(u)
}

const interruptedNote = "reverted: the agent or the host stopped twice before new connections proved it"

// endInterrupted reverts the settings that an earlier agent or boot left unconfirmed. The journal must be loaded.
func (m Machine) endInterrupted(ctx context.Context, bootID string) error {
	return m.endUnconfirmed(ctx, bootID, func() error { return m.Journal.Interrupt(interruptedNote) })
}

// endUnconfirmed reverts the unconfirmed settings, then closes their record in the journal.
func (m Machine) endUnconfirmed(ctx context.Context, bootID string, end func() error) error {
	if _, open := m.unconfirmed(); !open {
		return nil
	}
	if err := m.revertUnconfirmed(ctx, bootID); err != nil {
		return err
	}
	if _, open := m.unconfirmed(); !open {
		// The remaining settings need an agent that supports them.
		return nil
	}
	return end()
}

// hasUnconfirmed reports whether any setting must be set and proven.
func (p *pass) hasUnconfirmed() bool {
	return len(p.filter((*item).isSettable)) > 0
}

// setUnconfirmed sets the settings that need a proof. The journal durably records the previous values first. The proof time starts after
// all settings are set, because tuned alone may take a minute to start.
func (p *pass) setUnconfirmed(ctx context.Context, hash, bootID string, now func() time.Time) error {
	u := journal.Unconfirmed{Hash: hash, BootID: bootID, Settings: map[string]journal.UnconfirmedSetting{}}
	for _, it := range p.filter((*item).isSettable) {
		before, err := p.machine.subjectOf(it.key).Original(ctx, it.name)
		if err != nil {
			it.failed = "not changed: cannot read its original value: " + err.Error()
			continue
		}
		entry := *it.unconfirmed
		if !it.isJournalled {
			entry.Original = before
		}
		u.Settings[it.key] = journal.UnconfirmedSetting{Entry: entry, Before: before}
	}
	if len(u.Settings) == 0 {
		return nil
	}
	if err := p.machine.setDeadline(&u, now()); err != nil {
		return err
	}
	if err := p.machine.Journal.SetUnconfirmed(u); err != nil {
		return err
	}
	if err := p.setAll(ctx, u); err != nil {
		return err
	}
	p.observeAll(ctx)
	if err := p.machine.setDeadline(&u, now()); err != nil {
		return err
	}
	return p.machine.Journal.SetUnconfirmed(u)
}

// setAll sets the unconfirmed settings of the journal. If the kernel rejects a value, it immediately restores the setting and removes it
// from the proof.
func (p *pass) setAll(ctx context.Context, u journal.Unconfirmed) error {
	rejected := journal.Unconfirmed{Settings: map[string]journal.UnconfirmedSetting{}}
	for _, subject := range p.machine.Subjects {
		settings := lists.Pick(u.Keys(), func(key string) (host.Setting, bool) {
			name, ok := catalogue.Key(key).In(subject.Name())
			return hostSetting(name, u.Settings[key].Entry), ok
		})
		if len(settings) == 0 {
			continue
		}
		for name, err := range subject.Set(ctx, settings) {
			key := catalogue.KeyOf(subject.Name(), name)
			p.item(key).failed = err.Error()
			rejected.Settings[key] = u.Settings[key]
		}
	}
	if len(rejected.Settings) == 0 {
		return nil
	}
	if err := p.machine.restoreAll(ctx, rejected, true); err != nil {
		return err
	}
	maps.DeleteFunc(u.Settings, func(key string, _ journal.UnconfirmedSetting) bool { return p.item(key).failed != "" })
	return nil
}

// failUnconfirmed marks all settings that need a proof as failed. Other settings are unchanged.
func (p *pass) failUnconfirmed(reason string) {
	for _, it := range p.filter((*item).isSettable) {
		it.failed = reason
	}
}
