package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/readahead"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// pass is one comparison of what is wanted with what is, and what comes of it.
type pass struct {
	plan
	host Host
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
func (h Host) beginPass(spec v1alpha1.StorageClientNodeSpec, allowed Allowed) (*pass, error) {
	if err := h.Journal.Load(); err != nil {
		return nil, err
	}
	f, err := newFence(h.FS, h.Subjects, allowed)
	if err != nil {
		return nil, err
	}
	f.restoresOnly = h.restoresOnly()
	h.takeOverFiles()
	h.confineSubjects(f)
	if h.attended {
		f.unconfirmed, f.unconfirmedNote = h.Journal.Refused(spec.Hash)
	}
	// A released host has no agent any more.
	h.attendBoots(h.attended && !spec.Release)
	p := &pass{plan: makePlan(spec, h.Journal.Entries(), f), host: h, restoresOnly: f.restoresOnly}
	p.leaveLeastToKernels()
	u, _ := h.Journal.Unconfirmed()
	for key, setting := range h.unsupported(u) {
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
	if !p.host.FS.IsImage() {
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
	p.readOriginals(ctx)
	if err := p.recordEntries(); err != nil {
		return err
	}
	for _, subject := range p.host.Subjects {
		p.applySubject(ctx, subject)
	}
	p.observeAll(ctx)
	return nil
}

// untouchedStates are the states of a setting that has not been touched and need not be.
var untouchedStates = []host.State{host.Unsupported, host.Clamped, host.Failed}

// observeAll reads every setting back, and sets those aside that cannot work here and have never been changed.
func (p *pass) observeAll(ctx context.Context) {
	p.compareWithKernel(ctx)
	for _, subject := range p.host.Subjects {
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

func (p *pass) readOriginals(ctx context.Context) {
	p.readOriginalsOf(ctx, func(it *item) bool { return !it.unsupported })
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
	for _, subject := range p.host.Subjects {
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

// recordEntries journals what is about to be applied.
func (p *pass) recordEntries() error {
	entries := map[string]journal.Entry{}
	for key, it := range p.plan {
		if it.entry != nil && !it.isSkipped() {
			entries[key] = *it.entry
		}
	}
	return p.host.Journal.Record(entries)
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
	for _, subject := range p.host.Subjects {
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
	if err := p.host.Journal.Forget(keys...); err != nil {
		for _, key := range keys {
			p.item(key).failed = "restored, but: " + err.Error()
		}
	}
}

// outcome is how the node stands after a pass.
type outcome struct {
	// settings are sorted by key.
	settings []v1alpha1.SettingStatus
	// rebootBy are the keys that wait for a boot.
	rebootBy []string
	// drifted are the keys that can be healed without a disruption: live values, and what our files and the boot
	// menu hold. A boot setting is Pending then, and waits for the rollout.
	drifted []string
	// volumes holds by volume how its read-ahead stands.
	volumes map[string]readAheadNote
	// carriedOut is false where nothing could be tried.
	carriedOut bool
	// restored is true where a release is complete.
	restored bool
	// failed is true where trying again may help.
	failed bool
}

// refuseAll is the outcome where nothing may be changed.
func refuseAll(spec v1alpha1.StorageClientNodeSpec, err error) outcome {
	out := outcome{failed: true}
	for _, setting := range spec.Settings {
		out.addStatus(v1alpha1.SettingStatus{
			Key: setting.Key, Desired: setting.Value, TakesEffect: catalogue.Effect(setting.Key),
			State: v1alpha1.SettingFailed, Message: "nothing changed on this node: " + err.Error(),
		})
	}
	return out
}

// sumUp sums up. It is the one place where states are turned into decisions.
func (p *pass) sumUp(spec v1alpha1.StorageClientNodeSpec) outcome {
	out := outcome{carriedOut: true, restored: spec.Release}
	for _, it := range p.only((*item).isWanted) {
		status := p.wantedStatus(it)
		out.addStatus(status)
		boots := status.TakesEffect == v1alpha1.EffectReboot
		if boots && it.refused == nil && status.State == v1alpha1.SettingPending {
			out.rebootBy = append(out.rebootBy, it.key)
		}
		if it.refused == nil && status.State == v1alpha1.SettingDrifted && status.TakesEffect != v1alpha1.EffectAction {
			out.drifted = append(out.drifted, it.key)
		}
	}
	for _, it := range p.only(func(it *item) bool { return it.restore != nil }) {
		out.addRestore(it, p)
	}
	out.addVolumes(p)
	p.withoutUnproven(&out)
	return out
}

// withoutUnproven takes boot arguments out of what the node is rebooted for, where that has never been tried with its
// boot loader: they are staged, stay Pending, and come with the next boot that somebody else decides on. If only restoring is
// possible, the node is rebooted for nothing: the agent would reject the permit.
func (p *pass) withoutUnproven(out *outcome) {
	if p.restoresOnly != "" {
		out.rebootBy = nil
		return
	}
	if !slices.ContainsFunc(out.rebootBy, nodesettings.TakesEffectAtBoot) {
		return
	}
	if !p.host.Bootloader().MayReboot() {
		out.rebootBy = slices.DeleteFunc(out.rebootBy, nodesettings.TakesEffectAtBoot)
	}
}

func (out *outcome) addStatus(status v1alpha1.SettingStatus) {
	out.settings = append(out.settings, status)
	out.failed = out.failed || status.State == v1alpha1.SettingFailed
}

// readAheadNote says why the read-ahead of a volume is not as wanted; empty where it is.
type readAheadNote struct {
	message string
	// failed is true where it could be set.
	failed bool
}

// addVolumes adds how the read-ahead of volumes stands.
func (out *outcome) addVolumes(p *pass) {
	out.volumes = map[string]readAheadNote{}
	for _, it := range p.of(readahead.VolumesName) {
		if it.refused != nil {
			out.volumes[it.name] = readAheadNote{it.refused.message, it.refused.state == v1alpha1.SettingFailed}
		}
		if it.refused != nil || it.entry == nil {
			continue
		}
		o := it.observed
		failed := o.State == host.Failed || it.failed != ""
		note := readAheadNote{cmp.Or(it.failed, o.Message), failed || o.State == host.Drifted}
		switch {
		case p.restoresOnly != "" && isChangeDue(o.Observation):
			note.message = notChanged(p.restoresOnly)
		case o.State == host.Drifted:
			out.drifted = append(out.drifted, it.key)
		}
		out.volumes[it.name] = note
		out.failed = out.failed || failed
	}
}

// addRestore adds a setting that is being put back. One that the spec still names, but the fence refuses, has its
// status already, and no node is rebooted to be rid of it.
func (out *outcome) addRestore(it *item, p *pass) {
	status := p.restoreStatus(it)
	out.restored = out.restored && status.State != v1alpha1.SettingFailed
	if _, ok := volumeOf(it.key); ok {
		out.failed = out.failed || status.State == v1alpha1.SettingFailed
		return
	}
	if it.wanted != nil || status.State == v1alpha1.SettingInSync {
		return
	}
	if status.TakesEffect == v1alpha1.EffectReboot && status.State == v1alpha1.SettingPending {
		out.rebootBy = append(out.rebootBy, it.key)
	}
	out.addStatus(status)
}

// statusOf is the status of a setting by what its subject answered.
func (it *item) statusOf(desired string, o answer) v1alpha1.SettingStatus {
	status := v1alpha1.SettingStatus{
		Key:         it.key,
		Desired:     desired,
		Observed:    o.Observed,
		Original:    it.originalValue(),
		TakesEffect: v1alpha1.SettingEffect(o.Effect),
		State:       v1alpha1.SettingState(o.State),
		Message:     o.Message,
	}
	if !o.given {
		status.TakesEffect, status.State, status.Message = catalogue.Effect(it.key), v1alpha1.SettingFailed, "not read back"
	}
	return status
}

func (p *pass) wantedStatus(it *item) v1alpha1.SettingStatus {
	o := it.observed.Observation
	status := it.statusOf(it.wanted.Value, it.observed)
	switch {
	case it.refused != nil:
		status.State, status.Message = it.refused.state, it.refused.message
	case p.restoresOnly != "" && isChangeDue(o):
		status.State, status.Message = v1alpha1.SettingFailed, notChanged(p.restoresOnly)
	case it.isSettable():
		status.State, status.Message = v1alpha1.SettingPending, p.unconfirmedNote
	case it.failed != "" && o.State != host.InSync:
		status.State, status.Message = v1alpha1.SettingFailed, it.failed
	}
	status.WaitsFor = p.waitsFor(status, it.unconfirmed != nil)
	if status.Message == "" {
		status.Message = catalogue.Lowers(it.key, cmp.Or(status.Original, status.Observed), status.Desired)
	}
	return status
}

// notChanged is the message of a setting that is not changed because only restoring is possible.
func notChanged(reason string) string { return "not changed: " + reason }

// isChangeDue reports whether a setting that the host holds already needs a change by the agent all the same.
func isChangeDue(o host.Observation) bool {
	waitsForAgent := o.Effect == host.Reboot || o.Effect == host.Action
	return o.State == host.Drifted || o.State == host.Pending && waitsForAgent
}

// awaited holds the event that a Pending setting waits for, by its effect. An action waits for none.
var awaited = map[v1alpha1.SettingEffect]v1alpha1.SettingWait{
	v1alpha1.EffectReboot: v1alpha1.WaitsForBoot, v1alpha1.EffectNextMount: v1alpha1.WaitsForMount,
	v1alpha1.EffectNewTransport: v1alpha1.WaitsForTransport, v1alpha1.EffectLive: v1alpha1.WaitsForModule,
}

// waitsFor returns what a setting waits for, empty if it is not Pending.
func (p *pass) waitsFor(status v1alpha1.SettingStatus, isUnconfirmed bool) v1alpha1.SettingWait {
	switch {
	case status.State != v1alpha1.SettingPending:
		return ""
	case isUnconfirmed && p.proving:
		return v1alpha1.WaitsForProof
	case isUnconfirmed:
		return v1alpha1.WaitsForConnections
	}
	return awaited[status.TakesEffect]
}

func (p *pass) restoreStatus(it *item) v1alpha1.SettingStatus {
	status := it.statusOf(it.restore.Value, it.restored)
	if it.failed != "" {
		status.State, status.Message = v1alpha1.SettingFailed, it.failed
	}
	status.WaitsFor = p.waitsFor(status, false)
	return status
}

// originalValue is the first value. Of a setting that this very pass has taken up, its entry has it.
func (it *item) originalValue() string {
	if it.isJournalled || it.entry == nil {
		return it.journalled.Original.Value
	}
	return it.entry.Original.Value
}
