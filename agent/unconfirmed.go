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
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

// confirmWithin is how long unconfirmed settings stay in force once all are set. It ends before the kubelet's liveness probes, which are new
// connections too, end an agent that they no longer reach: three of them 20 s apart, 5 s each.
const confirmWithin = 40 * time.Second

// setDeadline sets the end of a proof that starts now. What has no end by the boot clock is not tried.
func (m Machine) setDeadline(u *journal.Unconfirmed, now time.Time) error {
	sinceBoot, err := m.BootClock.SinceBoot()
	if err != nil {
		return err
	}
	u.Deadline, u.DeadlineSinceBoot = now.Add(confirmWithin).UTC().Truncate(time.Second), sinceBoot+confirmWithin
	return nil
}

// timeToProve returns the time that is left to prove the unconfirmed settings. None is left in another boot, if the boot clock
// cannot be read, and if the journal has no deadline by that clock or one that no proof has: an agent of an earlier release,
// another time namespace or an editor wrote it.
func (m Machine) timeToProve(u journal.Unconfirmed, bootID string) time.Duration {
	left := m.until(u.DeadlineSinceBoot)
	if u.BootID != bootID || left > confirmWithin {
		return 0
	}
	return left
}

// restoreAll puts back what was in force before the unconfirmed settings were set. After a boot only what has outlived it is to
// be put back. A newer agent may set values of any subject unconfirmed.
func (m Machine) restoreAll(ctx context.Context, u journal.Unconfirmed, sameBoot bool) error {
	var wrong []string
	for _, subject := range m.Subjects {
		if setter, ok := subject.(host.Setter); ok && !sameBoot && !setter.OutlivesBoot() {
			continue
		}
		befores := map[string]host.Original{}
		for key, setting := range u.Settings {
			if name, ok := catalogue.Key(key).In(subject.Name()); ok {
				befores[name] = setting.Before
			}
		}
		if len(befores) == 0 {
			continue
		}
		for _, o := range subject.Restore(ctx, befores) {
			if o.State == host.Failed {
				wrong = append(wrong, catalogue.KeyOf(subject.Name(), o.Name)+": "+o.Message)
			}
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return errors.New("cannot put back " + strings.Join(wrong, "; "))
	}
	return nil
}

// unconfirmed returns the settings that are set and not confirmed. It ignores a record that holds only settings of a newer agent:
// that stays in the journal for an agent that supports them.
func (m Machine) unconfirmed() (u journal.Unconfirmed, open bool) {
	u, open = m.Journal.Unconfirmed()
	left := len(m.unsupported(u))
	return u, open && (left == 0 || left < len(u.Settings))
}

// unsupported returns the unconfirmed settings of subjects that this agent does not support.
func (m Machine) unsupported(u journal.Unconfirmed) map[string]journal.UnconfirmedSetting {
	left := maps.Clone(u.Settings)
	maps.DeleteFunc(left, func(key string, _ journal.UnconfirmedSetting) bool { return u.PutBack || m.subjectOf(key) != nil })
	return left
}

// restoresOnly returns the reason why nothing may be changed on the host except to restore it. It is empty if settings may be
// changed.
func (m Machine) restoresOnly() string {
	if err := m.Journal.MayChange(); err != nil {
		return err.Error()
	}
	u, _ := m.Journal.Unconfirmed()
	if left := slices.Collect(maps.Keys(m.unsupported(u))); len(left) > 0 {
		return "a newer agent set " + text.List(left) + " and did not confirm it, so only restoring is possible; upgrade this agent"
	}
	return ""
}

// putBackUnconfirmed puts the unconfirmed settings back and has the journal say so. There may be none.
func (m Machine) putBackUnconfirmed(ctx context.Context, bootID string) error {
	u, open := m.unconfirmed()
	if !open || u.PutBack {
		return nil
	}
	if err := m.restoreAll(ctx, u, u.BootID == bootID); err != nil {
		return err
	}
	if left := m.unsupported(u); len(left) > 0 {
		u.Settings = left
	} else {
		u.PutBack = true
	}
	return m.Journal.SetUnconfirmed(u)
}

const interruptedNote = "its proof over new connections was cut short twice, by the end of the agent or of the boot; put back"

// endInterrupted puts back what an agent that is gone, or a boot that is over, has left unconfirmed. The journal is to be loaded.
func (m Machine) endInterrupted(ctx context.Context, bootID string) error {
	return m.endUnconfirmed(ctx, bootID, func() error { return m.Journal.Interrupt(interruptedNote) })
}

// endUnconfirmed reverts the unconfirmed settings, and then ends them in the journal.
func (m Machine) endUnconfirmed(ctx context.Context, bootID string, end func() error) error {
	if _, open := m.unconfirmed(); !open {
		return nil
	}
	if err := m.putBackUnconfirmed(ctx, bootID); err != nil {
		return err
	}
	if _, open := m.unconfirmed(); !open {
		// What is left is for an agent that supports it.
		return nil
	}
	return end()
}
