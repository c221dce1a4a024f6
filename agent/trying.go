package agent

import (
	"context"
	"maps"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// hasUnconfirmed reports whether any setting must be set and proven.
func (p *pass) hasUnconfirmed() bool { return len(p.filter((*item).isSettable)) > 0 }

// setUnconfirmed sets the settings that need a proof. The journal durably records the previous values first. The proof time starts after
// all settings are set, because tuned alone may take a minute to start.
func (p *pass) setUnconfirmed(ctx context.Context, hash, bootID string, now func() time.Time) error {
	u := journal.Unconfirmed{Hash: hash, BootID: bootID, Settings: map[string]journal.UnconfirmedSetting{}}
	for _, it := range p.filter((*item).isSettable) {
		before, err := p.machine.setterOf(it.key).Original(ctx, it.name)
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
	for _, subject := range subjectsOf[host.Setter](p.machine) {
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
