package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/connect"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

// maxAsked is how many of the servers that a node mounts from are asked before it is said that none answers.
const maxAsked = 3

// partUnconfirmed parts what needs new connections to prove it from what the host is to hold: of such a setting the host goes on
// holding what it held. What the journal has as applied is proven, by an earlier build or boot if not by this one; what is in
// force already needs no proof, only the file.
func (p *pass) partUnconfirmed() {
	for _, it := range p.only(p.needsProof) {
		it.unconfirmed, it.entry = it.entry, nil
		if it.isJournalled {
			// Whom it belongs to may have changed all the same.
			held := *it.unconfirmed
			held.Applied = it.journalled.Applied
			it.entry = &held
		}
	}
}

func (p *pass) needsProof(it *item) bool {
	o := it.observed
	switch {
	case it.entry == nil || p.host.unchecked || p.host.FS.IsImage():
	case !o.given || !catalogue.NeedsConfirmation(it.key) || o.Effect != host.Live || p.host.setterOf(it.key) == nil:
	case it.isJournalled && it.journalled.Applied == it.entry.Applied:
	case !slices.Contains(untouchedStates, o.State) && isInForce(*it.entry, o.Observed):
	default:
		return true
	}
	return false
}

// isInForce tells whether a live value is as an entry wants it.
func isInForce(entry journal.Entry, observed string) bool {
	wanted := hostSetting("", entry)
	if wanted.AtLeast {
		return catalogue.Covers(observed, wanted.Value)
	}
	return catalogue.CanonicalValue(observed) == catalogue.CanonicalValue(wanted.Value)
}

// subjectOf returns the subject of a key, nil if this agent does not support it.
func (h Host) subjectOf(key string) host.Subject {
	name := catalogue.Key(key).Subject()
	for _, subject := range h.Subjects {
		if subject.Name() == name {
			return subject
		}
	}
	return nil
}

func (h Host) setterOf(key string) host.Setter {
	setter, _ := h.subjectOf(key).(host.Setter)
	return setter
}

// hasUnconfirmed tells whether there is something to set and prove.
func (p *pass) hasUnconfirmed() bool {
	return len(p.only((*item).isSettable)) > 0
}

// setUnconfirmed sets what is to be proven. What is in force before is in the journal first, durably. The time for the proof begins once
// all of it is set: tuned alone may take a minute to start.
func (p *pass) setUnconfirmed(ctx context.Context, hash, bootID string, now func() time.Time) error {
	u := journal.Unconfirmed{Hash: hash, BootID: bootID, Settings: map[string]journal.UnconfirmedSetting{}}
	for _, it := range p.only((*item).isSettable) {
		before, err := p.host.setterOf(it.key).Original(ctx, it.name)
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
	if err := p.host.setDeadline(&u, now()); err != nil {
		return err
	}
	if err := p.host.Journal.SetUnconfirmed(u); err != nil {
		return err
	}
	if err := p.setAll(ctx, u); err != nil {
		return err
	}
	p.observeAll(ctx)
	if err := p.host.setDeadline(&u, now()); err != nil {
		return err
	}
	return p.host.Journal.SetUnconfirmed(u)
}

// setDeadline sets the end of a proof that starts now. What has no end by the boot clock is not tried.
func (h Host) setDeadline(u *journal.Unconfirmed, now time.Time) error {
	sinceBoot, err := h.BootClock.SinceBoot()
	if err != nil {
		return err
	}
	u.Deadline, u.DeadlineSinceBoot = now.Add(confirmWithin).UTC().Truncate(time.Second), sinceBoot+confirmWithin
	return nil
}

// timeToProve returns the time that is left to prove the unconfirmed settings. None is left in another boot, if the boot clock
// cannot be read, and if the journal has no deadline by that clock or one that no proof has: an agent of an earlier release,
// another time namespace or an editor wrote it.
func (h Host) timeToProve(u journal.Unconfirmed, bootID string) time.Duration {
	left := h.until(u.DeadlineSinceBoot)
	if u.BootID != bootID || left > confirmWithin {
		return 0
	}
	return left
}

// setAll sets what the journal holds as unconfirmed. What the kernel refuses is put back at once, and is no longer part of it.
func (p *pass) setAll(ctx context.Context, u journal.Unconfirmed) error {
	refused := journal.Unconfirmed{Settings: map[string]journal.UnconfirmedSetting{}}
	for _, subject := range p.host.Subjects {
		setter, ok := subject.(host.Setter)
		if !ok {
			continue
		}
		var settings []host.Setting
		for _, key := range u.Keys() {
			if name, ok := catalogue.Key(key).In(subject.Name()); ok {
				settings = append(settings, hostSetting(name, u.Settings[key].Entry))
			}
		}
		if len(settings) == 0 {
			continue
		}
		for name, err := range setter.Set(ctx, settings) {
			key := catalogue.KeyOf(subject.Name(), name)
			p.item(key).failed = err.Error()
			refused.Settings[key] = u.Settings[key]
		}
	}
	if len(refused.Settings) == 0 {
		return nil
	}
	if err := p.host.restoreAll(ctx, refused, true); err != nil {
		return err
	}
	maps.DeleteFunc(u.Settings, func(key string, _ journal.UnconfirmedSetting) bool { return p.item(key).failed != "" })
	return nil
}

// restoreAll puts back what was in force before the unconfirmed settings were set. After a boot only what has outlived it is to
// be put back. A newer agent may set values of any subject unconfirmed.
func (h Host) restoreAll(ctx context.Context, u journal.Unconfirmed, sameBoot bool) error {
	var wrong []string
	for _, subject := range h.Subjects {
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
func (h Host) unconfirmed() (u journal.Unconfirmed, open bool) {
	u, open = h.Journal.Unconfirmed()
	left := len(h.unsupported(u))
	return u, open && (left == 0 || left < len(u.Settings))
}

// unsupported returns the unconfirmed settings of subjects that this agent does not support.
func (h Host) unsupported(u journal.Unconfirmed) map[string]journal.UnconfirmedSetting {
	left := maps.Clone(u.Settings)
	maps.DeleteFunc(left, func(key string, _ journal.UnconfirmedSetting) bool { return u.PutBack || h.subjectOf(key) != nil })
	return left
}

// restoresOnly returns the reason why nothing may be changed on the host except to restore it. It is empty if settings may be
// changed.
func (h Host) restoresOnly() string {
	if err := h.Journal.MayChange(); err != nil {
		return err.Error()
	}
	u, _ := h.Journal.Unconfirmed()
	if left := slices.Collect(maps.Keys(h.unsupported(u))); len(left) > 0 {
		return "a newer agent set " + text.List(left) + " and did not confirm it, so only restoring is possible; upgrade this agent"
	}
	return ""
}

// putBackUnconfirmed puts the unconfirmed settings back and has the journal say so. There may be none.
func (h Host) putBackUnconfirmed(ctx context.Context, bootID string) error {
	u, open := h.unconfirmed()
	if !open || u.PutBack {
		return nil
	}
	if err := h.restoreAll(ctx, u, u.BootID == bootID); err != nil {
		return err
	}
	if left := h.unsupported(u); len(left) > 0 {
		u.Settings = left
	} else {
		u.PutBack = true
	}
	return h.Journal.SetUnconfirmed(u)
}

const interruptedNote = "its proof over new connections was cut short twice, by the end of the agent or of the boot; put back"

// endInterrupted puts back what an agent that is gone, or a boot that is over, has left unconfirmed. The journal is to be loaded.
func (h Host) endInterrupted(ctx context.Context, bootID string) error {
	return h.endUnconfirmed(ctx, bootID, func() error { return h.Journal.Interrupt(interruptedNote) })
}

// endUnconfirmed reverts the unconfirmed settings, and then ends them in the journal.
func (h Host) endUnconfirmed(ctx context.Context, bootID string, end func() error) error {
	if _, open := h.unconfirmed(); !open {
		return nil
	}
	if err := h.putBackUnconfirmed(ctx, bootID); err != nil {
		return err
	}
	if _, open := h.unconfirmed(); !open {
		// What is left is for an agent that supports it.
		return nil
	}
	return end()
}

// chooseServer returns a server that the host mounts from and that answers a new connection now, so that it can be told
// later whether a setting has taken that away; ok is false where the host mounts from none over TCP.
func (h Host) chooseServer(ctx context.Context) (server connect.Server, ok bool, err error) {
	servers, err := h.listServers()
	if err != nil || len(servers) == 0 {
		return server, false, err
	}
	var silent []string
	for _, server := range servers[:min(len(servers), maxAsked)] {
		err := h.AskServer(ctx, server)
		if err == nil {
			return server, true, nil
		}
		silent = append(silent, fmt.Sprintf("%s: %v", server, err))
	}
	return server, true, errors.New("no server that this node mounts from answers a new connection: " + strings.Join(silent, "; "))
}

// listServers lists the servers that the host mounts from over TCP.
func (h Host) listServers() ([]connect.Server, error) {
	if h.Servers == nil {
		return nil, nil
	}
	return h.Servers()
}

// failure is a new connection that did not work.
type failure struct {
	// to names what it was made to.
	to  string
	err error
}

func describeFailures(failures []failure) string {
	var all []string
	for _, f := range failures {
		all = append(all, f.to+": "+f.err.Error())
	}
	return text.Cut(strings.Join(all, "; "), maxMessage/2)
}

// workAgain are those of the failures whose connections are not among the failures now.
func workAgain(before, now []failure) []failure {
	return slices.DeleteFunc(slices.Clone(before), func(f failure) bool {
		return slices.ContainsFunc(now, func(n failure) bool { return n.to == f.to })
	})
}

// brokeNote says of settings that were put back what did not work with them, and works without.
func brokeNote(keys []string, broken []failure) string {
	together := ""
	if len(keys) > 1 {
		together = "set together: " + text.List(keys) + "; "
	}
	return fmt.Sprintf("took new connections away, put back: %s%s; they work again without it", together, describeFailures(broken))
}

// outageNote says of settings that were put back that they may not have been the cause.
func outageNote(failures []failure) string {
	if len(failures) == 0 {
		return "put back: it could not be proven in time"
	}
	return "put back: new connections work neither with it nor without, so it is not the cause: " + describeFailures(failures)
}
