package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// pass is one comparison of what is wanted with what is, and what comes of it.
type pass struct {
	plan
	host Host
	// journalled is the journal as it was at the beginning.
	journalled map[string]journal.Entry
	// unsupported are unrecorded keys that cannot work here: they are neither journalled nor applied, only observed.
	unsupported map[string]bool
	// compared is true once the originals are read that settings to be at least something are worked out from.
	compared bool
	// unconfirmed holds by key what is to be kept only once new connections have proven it, and unconfirmedNote how that stands.
	unconfirmed     map[string]journal.Entry
	unconfirmedNote string
	// proving is true while the unconfirmed settings are set, and new connections are made to confirm them.
	proving bool
	// failed says by key why a setting was not applied or not put back.
	failed map[string]string
	// restoresOnly is that of the fence.
	restoresOnly string
	// observed and restored hold by key what was observed of the settings, and of those that are being put back.
	observed, restored map[string]host.Observation
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
	journalled := h.Journal.Entries()
	p := &pass{
		plan: makePlan(spec, journalled, f), host: h, journalled: journalled, restoresOnly: f.restoresOnly,
		unsupported: map[string]bool{}, unconfirmed: map[string]journal.Entry{}, failed: map[string]string{},
		observed: map[string]host.Observation{}, restored: map[string]host.Observation{},
	}
	p.leaveLeastToKernels()
	u, _ := h.Journal.Unconfirmed()
	for key, setting := range h.unsupported(u) {
		p.restore[key] = setting.Before
	}
	for key := range p.restore {
		if subject, _, _ := strings.Cut(key, "/"); !f.subjects[subject] {
			p.failed[key] = "cannot restore: this node's agent does not support " + subject + ": upgrade it"
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
	for key, entry := range p.wantedEntries {
		if _, least := catalogue.ParseAtLeast(entry.Applied); least && p.unrecorded[key] {
			delete(p.wantedEntries, key)
			p.refused[key] = refusal{state: v1alpha1.SettingPending, message: "not in the image: an agent on the running machine raises what its kernel has"}
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
			key := subject.Name() + "/" + o.Name
			p.observed[key] = o
			p.unsupported[key] = p.unrecorded[key] && slices.Contains(untouchedStates, o.State)
		}
	}
}

// observedSettingsOf are what the host is to hold, and what it is to hold once that is proven.
func (p *pass) observedSettingsOf(subject string) []host.Setting {
	settings := p.settingsOf(subject, func(key string) bool { _, isUnconfirmed := p.unconfirmed[key]; return isUnconfirmed })
	for _, key := range slices.Sorted(maps.Keys(p.unconfirmed)) {
		if name, ok := strings.CutPrefix(key, subject+"/"); ok {
			settings = append(settings, hostSetting(name, p.unconfirmed[key]))
		}
	}
	return settings
}

func (p *pass) readOriginals(ctx context.Context) {
	p.readOriginalsOf(ctx, func(key string) bool { return !p.unsupported[key] })
}

// compareWithKernel reads, before anything is observed or changed, the originals of new settings that are to be at least something.
func (p *pass) compareWithKernel(ctx context.Context) {
	if p.compared {
		return
	}
	p.compared = true
	p.readOriginalsOf(ctx, func(key string) bool {
		_, least := catalogue.ParseAtLeast(p.wantedEntries[key].Applied)
		return least
	})
}

// readOriginalsOf reads the originals of those settings that are asked for and have never been changed.
func (p *pass) readOriginalsOf(ctx context.Context, asked func(key string) bool) {
	for _, subject := range p.host.Subjects {
		for _, setting := range p.settingsOf(subject.Name(), func(key string) bool { return !p.unrecorded[key] || !asked(key) }) {
			key := subject.Name() + "/" + setting.Name
			original, err := subject.Original(ctx, setting.Name)
			if err != nil {
				p.failed[key] = "not changed: cannot read its original value: " + err.Error()
				continue
			}
			entry := p.wantedEntries[key]
			entry.Original = p.ofCounterpart(subject, setting.Name, original)
			p.wantedEntries[key] = entry
		}
	}
}

// ofCounterpart is the original of a setting whose counterpart we have changed already: what is in force now is our own doing.
func (p *pass) ofCounterpart(subject host.Subject, name string, read host.Original) host.Original {
	coupled, ok := subject.(host.Coupled)
	if !ok {
		return read
	}
	held, ok := p.journalled[subject.Name()+"/"+coupled.Counterpart(name)]
	if !ok {
		return read
	}
	return host.Original{Present: true, Value: held.Original.Counterpart, Counterpart: held.Original.Value}
}

// recordEntries journals what is about to be applied.
func (p *pass) recordEntries() error {
	entries := maps.Clone(p.wantedEntries)
	maps.DeleteFunc(entries, func(key string, _ journal.Entry) bool { return p.isSkipped(key) })
	return p.host.Journal.Record(entries)
}

func (p *pass) isSkipped(key string) bool {
	return p.unsupported[key] || p.unrecorded[key] && p.failed[key] != ""
}

// applySubject hands a subject all that it is to hold, and then what it is to put back. If only restoring is possible, the
// subjects that have nothing to put back are not called.
func (p *pass) applySubject(ctx context.Context, subject host.Subject) {
	settings, originals := p.settingsOf(subject.Name(), p.isSkipped), p.originalsOf(subject.Name())
	if len(originals) == 0 && (len(settings) == 0 || p.restoresOnly != "") {
		return
	}
	if err := subject.Apply(ctx, settings); err != nil {
		for _, setting := range settings {
			p.failed[subject.Name()+"/"+setting.Name] = err.Error()
		}
		for key := range p.unconfirmed {
			if strings.HasPrefix(key, subject.Name()+"/") {
				p.failed[key] = err.Error()
			}
		}
		for name := range originals {
			p.failed[subject.Name()+"/"+name] = "not restored: " + err.Error()
		}
		return
	}
	if len(originals) == 0 {
		return
	}
	for _, o := range subject.Restore(ctx, originals) {
		p.restored[subject.Name()+"/"+o.Name] = o
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
		if settings := p.settingsOf(subject.Name(), func(key string) bool { return p.unrecorded[key] }); len(settings) > 0 {
			follower.FollowMounts(ctx, settings)
		}
	}
}

// forgetRestored takes out of the journal what is back as it was. On release that includes what only waits for new
// transports or mounts: the setting is back, and the agent will not be there to see the last mount go. A boot argument
// that is still in force stays in the journal: nothing else could tell it from an original.
func (p *pass) forgetRestored(release bool) {
	var keys []string
	for key, o := range p.restored {
		mounts := o.Effect == host.NewTransport || o.Effect == host.NextMount
		if o.State == host.InSync || release && o.State == host.Pending && mounts {
			keys = append(keys, key)
		}
	}
	if err := p.host.Journal.Forget(keys...); err != nil {
		for _, key := range keys {
			p.failed[key] = "restored, but: " + err.Error()
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
	for _, key := range slices.Sorted(maps.Keys(p.wanted)) {
		status := p.wantedStatus(key)
		out.addStatus(status)
		boots := status.TakesEffect == v1alpha1.EffectReboot
		_, refused := p.refused[key]
		if boots && !refused && status.State == v1alpha1.SettingPending {
			out.rebootBy = append(out.rebootBy, key)
		}
		if !refused && status.State == v1alpha1.SettingDrifted && status.TakesEffect != v1alpha1.EffectAction {
			out.drifted = append(out.drifted, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.restore)) {
		out.addRestore(key, p)
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
	argument := func(key string) bool { return strings.HasPrefix(key, catalogue.KernelArguments+"/") }
	if !slices.ContainsFunc(out.rebootBy, argument) {
		return
	}
	if !p.host.Bootloader().MayReboot() {
		out.rebootBy = slices.DeleteFunc(out.rebootBy, argument)
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
	for key, refused := range p.refused {
		if volume, ok := volumeOf(key); ok {
			out.volumes[volume] = readAheadNote{refused.message, refused.state == v1alpha1.SettingFailed}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.wantedEntries)) {
		volume, ok := volumeOf(key)
		if _, refused := p.refused[key]; !ok || refused {
			continue
		}
		o := p.observed[key]
		failed := o.State == host.Failed || p.failed[key] != ""
		note := readAheadNote{cmp.Or(p.failed[key], o.Message), failed || o.State == host.Drifted}
		switch {
		case p.restoresOnly != "" && isChangeDue(o):
			note.message = notChanged(p.restoresOnly)
		case o.State == host.Drifted:
			out.drifted = append(out.drifted, key)
		}
		out.volumes[volume] = note
		out.failed = out.failed || failed
	}
}

// addRestore adds a setting that is being put back. One that the spec still names, but the fence refuses, has its
// status already, and no node is rebooted to be rid of it.
func (out *outcome) addRestore(key string, p *pass) {
	status := p.restoreStatus(key)
	out.restored = out.restored && status.State != v1alpha1.SettingFailed
	if _, ok := volumeOf(key); ok {
		out.failed = out.failed || status.State == v1alpha1.SettingFailed
		return
	}
	if _, named := p.wanted[key]; named {
		return
	}
	if status.State == v1alpha1.SettingInSync {
		return
	}
	if status.TakesEffect == v1alpha1.EffectReboot && status.State == v1alpha1.SettingPending {
		out.rebootBy = append(out.rebootBy, key)
	}
	out.addStatus(status)
}

func (p *pass) wantedStatus(key string) v1alpha1.SettingStatus {
	o, seen := p.observed[key]
	status := v1alpha1.SettingStatus{
		Key:         key,
		Desired:     p.wanted[key].Value,
		Observed:    o.Observed,
		Original:    p.originalValue(key),
		TakesEffect: v1alpha1.SettingEffect(o.Effect),
		State:       v1alpha1.SettingState(o.State),
		Message:     o.Message,
	}
	refused, isRefused := p.refused[key]
	_, isUnconfirmed := p.unconfirmed[key]
	switch {
	case isRefused:
		status.State, status.Message = refused.state, refused.message
	case p.restoresOnly != "" && isChangeDue(o):
		status.State, status.Message = v1alpha1.SettingFailed, notChanged(p.restoresOnly)
	case isUnconfirmed && p.isSettable(key):
		status.State, status.Message = v1alpha1.SettingPending, p.unconfirmedNote
	case p.failed[key] != "" && o.State != host.InSync:
		status.State, status.Message = v1alpha1.SettingFailed, p.failed[key]
	case !seen:
		status.State, status.Message = v1alpha1.SettingFailed, errNoAnswer.Error()
	}
	if !seen {
		status.TakesEffect = catalogue.Effect(key)
	}
	status.WaitsFor = p.waitsFor(status, isUnconfirmed)
	if status.Message == "" {
		status.Message = catalogue.Lowers(key, cmp.Or(status.Original, status.Observed), status.Desired)
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

func (p *pass) restoreStatus(key string) v1alpha1.SettingStatus {
	o, answered := p.restored[key]
	status := v1alpha1.SettingStatus{
		Key:         key,
		Desired:     p.restore[key].Value,
		Observed:    o.Observed,
		Original:    p.originalValue(key),
		TakesEffect: v1alpha1.SettingEffect(o.Effect),
		State:       v1alpha1.SettingState(o.State),
		Message:     o.Message,
	}
	switch {
	case p.failed[key] != "":
		status.State, status.Message = v1alpha1.SettingFailed, p.failed[key]
	case !answered:
		status.State, status.Message = v1alpha1.SettingFailed, errNoAnswer.Error()
	}
	if !answered {
		status.TakesEffect = catalogue.Effect(key)
	}
	status.WaitsFor = p.waitsFor(status, false)
	return status
}

var errNoAnswer = errors.New("not read back")

// originalValue is the first value. Of a setting that this very pass has taken up, it stands in wantedEntries.
func (p *pass) originalValue(key string) string {
	if entry, ok := p.journalled[key]; ok {
		return entry.Original.Value
	}
	return p.wantedEntries[key].Original.Value
}
