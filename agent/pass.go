package agent

import (
	"context"
	"slices"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// pass is one comparison of what is wanted with what is, and what comes of it.
type pass struct {
	plan
	machine Machine
	// compared is true once the originals are read that settings to be at least something are worked out from.
	compared bool
	// unconfirmedNote is how the proof of what is unconfirmed stands.
	unconfirmedNote string
	// proving is true while the unconfirmed settings are set, and new connections are made to confirm them.
	proving bool
	// restoresOnly is that of the fence.
	restoresOnly string
}

// beginPass reads journal and fence and decides. An error means that nothing may be changed.
func (m Machine) beginPass(spec v1alpha1.StorageClientNodeSpec, allowed Allowed) (*pass, error) {
	if err := m.Journal.Load(); err != nil {
		return nil, err
	}
	f, err := newFence(m.FS, m.Subjects, allowed)
	if err != nil {
		return nil, err
	}
	f.restoresOnly = m.restoresOnly()
	m.takeOverFiles()
	m.confineSubjects(f)
	if m.attended {
		f.unconfirmed, f.unconfirmedNote = m.Journal.Refused(spec.Hash)
	}
	// A released host has no agent any more.
	m.attendBoots(m.attended && !spec.Release)
	p := &pass{plan: makePlan(spec, m.Journal.Entries(), f), machine: m, restoresOnly: f.restoresOnly}
	p.leaveLeastToKernels()
	u, _ := m.Journal.Unconfirmed()
	for key, setting := range m.unsupported(u) {
		p.item(key).restore = &setting.Before
	}
	for key, it := range p.plan {
		if subject := catalogue.Key(key).Subject(); it.restore != nil && !f.subjects[subject] {
			it.failed = "cannot restore: this node's agent does not support " + subject + ": upgrade it"
		}
	}
	return p, nil
}

// leaveLeastToKernels sets aside in an image what is to be at least something: its file would lower what a later kernel has by
// itself, and only an agent on the running machine can tell.
func (p *pass) leaveLeastToKernels() {
	if !p.machine.FS.IsImage() {
		return
	}
	for _, it := range p.plan {
		if it.unrecorded && it.isAtLeast() {
			it.entry = nil
			it.refused = &refusal{state: v1alpha1.SettingPending, message: "not in the image: an agent on the running machine raises what its kernel has"}
		}
	}
}

// carryOut brings the host to what is wanted. Nothing is changed on the host unless what was in force before is in
// the journal, durably.
func (p *pass) carryOut(ctx context.Context) error {
	p.observeAll(ctx)
	p.partUnconfirmed()
	p.readOriginalsOf(ctx, func(it *item) bool { return !it.unsupported })
	if err := p.recordEntries(); err != nil {
		return err
	}
	for _, subject := range p.machine.Subjects {
		p.applySubject(ctx, subject)
	}
	p.observeAll(ctx)
	return nil
}

// observeAll reads every setting back, and sets those aside that cannot work here and have never been changed.
func (p *pass) observeAll(ctx context.Context) {
	p.compareWithKernel(ctx)
	for _, subject := range p.machine.Subjects {
		settings := p.observedSettingsOf(subject.Name())
		if len(settings) == 0 {
			continue
		}
		for _, o := range subject.Observe(ctx, settings) {
			it := p.item(catalogue.KeyOf(subject.Name(), o.Name))
			it.observed = answer{o, true}
			it.unsupported = it.unrecorded && slices.Contains(untouchedStates, o.State)
		}
	}
}

// observedSettingsOf are what the host is to hold, and what it is to hold once that is proven.
func (p *pass) observedSettingsOf(subject string) []host.Setting {
	settings := p.settingsOf(subject, func(it *item) bool { return it.unconfirmed != nil })
	for _, it := range p.of(subject) {
		if it.unconfirmed != nil {
			settings = append(settings, hostSetting(it.name, *it.unconfirmed))
		}
	}
	return settings
}

// compareWithKernel reads, before anything is observed or changed, the originals of new settings that are to be at least something.
func (p *pass) compareWithKernel(ctx context.Context) {
	if p.compared {
		return
	}
	p.compared = true
	p.readOriginalsOf(ctx, (*item).isAtLeast)
}

// readOriginalsOf reads the originals of those settings that are asked for and have never been changed.
func (p *pass) readOriginalsOf(ctx context.Context, asked func(*item) bool) {
	for _, subject := range p.machine.Subjects {
		for _, it := range p.of(subject.Name()) {
			if it.entry == nil || !it.unrecorded || !asked(it) {
				continue
			}
			original, err := subject.Original(ctx, it.name)
			if err != nil {
				it.failed = "not changed: cannot read its original value: " + err.Error()
				continue
			}
			it.entry.Original = p.ofCounterpart(subject, it.name, original)
		}
	}
}

// ofCounterpart is the original of a setting whose counterpart we have changed already: what is in force now is our own doing.
func (p *pass) ofCounterpart(subject host.Subject, name string, read host.Original) host.Original {
	coupled, ok := subject.(host.Coupled)
	if !ok {
		return read
	}
	other := p.item(catalogue.KeyOf(subject.Name(), coupled.Counterpart(name)))
	if !other.isJournalled {
		return read
	}
	held := other.journalled.Original
	return host.Original{Present: true, Value: held.Counterpart, Counterpart: held.Value}
}

func (p *pass) recordEntries() error {
	entries := map[string]journal.Entry{}
	for key, it := range p.plan {
		if it.entry != nil && !it.isSkipped() {
			entries[key] = *it.entry
		}
	}
	return p.machine.Journal.Record(entries)
}

// applySubject hands a subject all that it is to hold, and then what it is to put back. If only restoring is possible, the
// subjects that have nothing to put back are not called.
func (p *pass) applySubject(ctx context.Context, subject host.Subject) {
	settings, originals := p.settingsOf(subject.Name(), (*item).isSkipped), map[string]host.Original{}
	for _, it := range p.of(subject.Name()) {
		if it.restore != nil {
			originals[it.name] = *it.restore
		}
	}
	if len(originals) == 0 && (len(settings) == 0 || p.restoresOnly != "") {
		return
	}
	if err := subject.Apply(ctx, settings); err != nil {
		for _, it := range p.of(subject.Name()) {
			switch {
			case it.restore != nil:
				it.failed = "not restored: " + err.Error()
			case it.unconfirmed != nil || it.entry != nil && !it.isSkipped():
				it.failed = err.Error()
			}
		}
		return
	}
	if len(originals) == 0 {
		return
	}
	for _, o := range subject.Restore(ctx, originals) {
		p.item(catalogue.KeyOf(subject.Name(), o.Name)).restored = answer{o, true}
	}
}

// followMounts brings settings that the host holds already to mounts that have come since.
func (p *pass) followMounts(ctx context.Context) {
	if p.restoresOnly != "" {
		return
	}
	for _, subject := range p.machine.Subjects {
		follower, ok := subject.(host.MountFollower)
		if !ok {
			continue
		}
		if settings := p.settingsOf(subject.Name(), func(it *item) bool { return it.unrecorded }); len(settings) > 0 {
			follower.FollowMounts(ctx, settings)
		}
	}
}

// forgetRestored takes out of the journal what is back as it was. On release that includes what only waits for new
// transports or mounts: the setting is back, and the agent will not be there to see the last mount go. A boot argument
// that is still in force stays in the journal: nothing else could tell it from an original.
func (p *pass) forgetRestored(release bool) {
	var keys []string
	for key, it := range p.plan {
		o := it.restored
		mounts := o.Effect == host.NewTransport || o.Effect == host.NextMount
		if o.State == host.InSync || release && o.State == host.Pending && mounts {
			keys = append(keys, key)
		}
	}
	if err := p.machine.Journal.Forget(keys...); err != nil {
		for _, key := range keys {
			p.item(key).failed = "restored, but: " + err.Error()
		}
	}
}

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
	case it.entry == nil || p.machine.unchecked || p.machine.FS.IsImage():
	case !o.given || !catalogue.NeedsConfirmation(it.key) || o.Effect != host.Live || p.machine.setterOf(it.key) == nil:
	case it.isJournalled && it.journalled.Applied == it.entry.Applied:
	case !slices.Contains(untouchedStates, o.State) && isInForce(*it.entry, o.Observed):
	default:
		return true
	}
	return false
}

func isInForce(entry journal.Entry, observed string) bool {
	wanted := hostSetting("", entry)
	if wanted.AtLeast {
		return catalogue.Covers(observed, wanted.Value)
	}
	return catalogue.CanonicalValue(observed) == catalogue.CanonicalValue(wanted.Value)
}
