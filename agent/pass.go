package agent

import (
	"context"
	"slices"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// pass compares the desired settings with the host once and holds the result.
type pass struct {
	plan
	machine Machine
	// compared is true once the originals of at-least settings have been read. Their effective values derive from these originals.
	compared bool
	// unconfirmedNote describes the progress of the proof of unconfirmed settings.
	unconfirmedNote string
	// proving is true while the unconfirmed settings are set and new connections test them.
	proving bool
	// restoresOnly is a copy of fence.restoresOnly.
	restoresOnly string
}

// beginPass reads the journal and the fence, and creates the plan. After an error, the host must not be changed.
func (m Machine) beginPass(spec v1alpha1.StorageClientNodeSpec, allowed Allowed) (*pass, error) {
	if err := m.Journal.Load(); err != nil {
		return nil, err
	}
	f, err := newFence(m.FS, m.Subjects, allowed)
	if err != nil {
		return nil, err
	}
	f.restoresOnly = m.restoresOnly()
	m.confineSubjects(f)
	if m.attended {
		f.unconfirmed, f.unconfirmedNote = m.Journal.Rejected(spec.Hash)
	}
	// No agent runs on a released host after the next boot.
	m.attendBoots(m.attended && !spec.Release)
	p := &pass{plan: makePlan(spec, m.Journal.Entries(), f), machine: m, restoresOnly: f.restoresOnly}
	p.leaveLeastToKernels()
	u, _ := m.Journal.Unconfirmed()
	for key, setting := range m.unsupported(u) {
		p.item(key).restore = &setting.Before
	}
	for key, it := range p.plan {
		if subject := catalogue.Key(key).Subject(); it.restore != nil && !f.subjects[subject] {
			it.failed = "cannot restore: this node's agent does not support " + subject + "; upgrade the agent"
		}
	}
	return p, nil
}

// leaveLeastToKernels skips at-least settings in an image. Their file could lower the default of a later kernel. Only an agent on the
// running machine can compare the two values.
func (p *pass) leaveLeastToKernels() {
	if !p.machine.FS.IsImage() {
		return
	}
	for _, it := range p.plan {
		if it.unrecorded && it.isAtLeast() {
			it.entry = nil
			it.rejection = &rejection{
				state: v1alpha1.SettingPending, message: "not in the image: an agent on the running machine raises the value of its kernel",
			}
		}
	}
}

// carryOut applies the desired settings to the host. It changes a setting only after the journal has durably recorded the original value.
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

// observeAll reads every setting back. It marks settings as unsupported that cannot work on this host and were never changed.
func (p *pass) observeAll(ctx context.Context) {
	p.compareWithKernel(ctx)
	for _, subject := range p.machine.Subjects {
		settings := p.observedSettingsOf(subject.Name())
		if len(settings) == 0 {
			continue
		}
		for _, o := range subject.Observe(ctx, settings) {
			it := p.item(catalogue.KeyOf(subject.Name(), o.Name))
			it.observed = observation{o, true}
			it.unsupported = it.unrecorded && slices.Contains(untouchedStates, o.State)
		}
	}
}

// observedSettingsOf returns the desired settings of a subject, including the unconfirmed ones.
func (p *pass) observedSettingsOf(subject string) []host.Setting {
	settings := p.settingsOf(subject, func(it *item) bool { return it.unconfirmed != nil })
	trying := lists.Filter(p.of(subject), func(it *item) bool { return it.unconfirmed != nil })
	return append(settings, lists.Each(trying, func(it *item) host.Setting { return hostSetting(it.name, *it.unconfirmed) })...)
}

// compareWithKernel reads the originals of new at-least settings, before any setting is observed or changed.
func (p *pass) compareWithKernel(ctx context.Context) {
	if p.compared {
		return
	}
	p.compared = true
	p.readOriginalsOf(ctx, (*item).isAtLeast)
}

// readOriginalsOf reads the originals of unchanged settings that match the filter.
func (p *pass) readOriginalsOf(ctx context.Context, filter func(*item) bool) {
	for _, subject := range p.machine.Subjects {
		for _, it := range p.of(subject.Name()) {
			if it.entry == nil || !it.unrecorded || !filter(it) {
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

// ofCounterpart returns the original of a setting. If the agent has already changed the counterpart, the current value is a side effect.
// Then the journal entry of the counterpart contains the original.
func (p *pass) ofCounterpart(subject host.Subject, name string, read host.Original) host.Original {
	counterpart := subject.Counterpart(name)
	if counterpart == "" {
		return read
	}
	other := p.item(catalogue.KeyOf(subject.Name(), counterpart))
	if !other.isJournalled {
		return read
	}
	original := other.journalled.Original
	return host.Original{Present: true, Value: original.Counterpart, Counterpart: original.Value}
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

// applySubject applies all desired settings of a subject, then restores the originals of dropped settings. If only restoring is possible,
// it skips subjects without originals to restore.
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
		p.item(catalogue.KeyOf(subject.Name(), o.Name)).restored = observation{o, true}
	}
}

// followMounts applies the settings that are already on the host to new mounts.
func (p *pass) followMounts(ctx context.Context) {
	if p.restoresOnly != "" {
		return
	}
	for _, subject := range p.machine.Subjects {
		if settings := p.settingsOf(subject.Name(), func(it *item) bool { return it.unrecorded }); len(settings) > 0 {
			subject.FollowMounts(ctx, settings)
		}
	}
}

// forgetRestored removes restored settings from the journal. On release this includes settings that wait only for new transports or
// mounts: they are restored, and no agent remains to observe the last unmount. A kernel argument that is still effective stays in the
// journal. Without the entry, it would look like an original.
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
			p.item(key).failed = "restored, but not removed from the journal: " + err.Error()
		}
	}
}

// partUnconfirmed separates the settings that new connections must prove. The host keeps their previous values until then. A value that
// the journal records as applied is already proven, if not by this build or boot then by an earlier one. A value that is already
// effective needs only its file, not a proof.
func (p *pass) partUnconfirmed() {
	for _, it := range p.filter(p.needsProof) {
		it.unconfirmed, it.entry = it.entry, nil
		if it.isJournalled {
			// The owner may have changed even if the value is the same.
			entry := *it.unconfirmed
			entry.Applied = it.journalled.Applied
			it.entry = &entry
		}
	}
}

func (p *pass) needsProof(it *item) bool {
	o := it.observed
	switch {
	case it.entry == nil || p.machine.unchecked || p.machine.FS.IsImage():
	case !o.present || !catalogue.NeedsConfirmation(it.key) || o.Effect != host.Live:
	case it.isJournalled && it.journalled.Applied == it.entry.Applied:
	case !slices.Contains(untouchedStates, o.State) && isEffective(*it.entry, o.Observed):
	default:
		return true
	}
	return false
}

func isEffective(entry journal.Entry, observed string) bool {
	wanted := hostSetting("", entry)
	return catalogue.Value{Text: wanted.Value, AtLeast: wanted.AtLeast}.IsMetBy(observed)
}
