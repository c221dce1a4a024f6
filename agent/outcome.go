package agent

import (
	"cmp"
	"slices"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/readahead"
	"github.com/storageclient/operator/agent/mountwatch"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

type outcome struct {
	settings []v1alpha1.SettingStatus
	rebootBy []string
	// drifted contains the keys that can be healed without disruption: live values, files of the operator, and boot menu entries. After
	// that, a setting that requires a reboot is Pending and waits for the rollout.
	drifted []string
	volumes map[string]mountwatch.ReadAhead
	// carriedOut is false if no setting could be tried.
	carriedOut bool
	restored   bool
	// failed is true if another attempt may help.
	failed bool
}

// rejectAll returns the outcome of a pass that must not change the host.
func rejectAll(spec v1alpha1.StorageClientNodeSpec, err error) outcome {
	out, message := outcome{failed: true, volumes: map[string]mountwatch.ReadAhead{}}, "no settings changed on this node: "+err.Error()
	for _, volume := range spec.Volumes {
		out.volumes[volume.Name] = mountwatch.ReadAhead{State: v1alpha1.SettingFailed, Message: message}
	}
	for _, setting := range spec.Settings {
		out.addStatus(v1alpha1.SettingStatus{
			Key: setting.Key, Desired: setting.Value, TakesEffect: catalogue.Effect(setting.Key),
			State: v1alpha1.SettingFailed, Message: message,
		})
	}
	return out
}

// sumUp returns the outcome of the pass. It is the only place that converts states to decisions.
func (p *pass) sumUp(spec v1alpha1.StorageClientNodeSpec) outcome {
	out := outcome{carriedOut: true, restored: spec.Release}
	for _, it := range p.filter((*item).isDesired) {
		status := p.desiredStatus(it)
		out.addStatus(status)
		boots := status.TakesEffect == v1alpha1.EffectReboot
		if boots && it.rejection == nil && status.State == v1alpha1.SettingPending {
			out.rebootBy = append(out.rebootBy, it.key)
		}
		if it.rejection == nil && status.State == v1alpha1.SettingDrifted && status.TakesEffect != v1alpha1.EffectAction {
			out.drifted = append(out.drifted, it.key)
		}
	}
	for _, it := range p.filter(func(it *item) bool { return it.restore != nil }) {
		out.addRestore(it, p)
	}
	out.addVolumes(p)
	p.withoutUnproven(&out)
	return out
}

// withoutUnproven removes kernel arguments from rebootBy if the boot loader is not proven. They are staged, stay Pending, and apply at
// the next boot that another user or controller starts. If only restoring is possible, it clears rebootBy, because the agent would reject
// the permit.
func (p *pass) withoutUnproven(out *outcome) {
	if p.restoresOnly != "" {
		out.rebootBy = nil
		return
	}
	if slices.ContainsFunc(out.rebootBy, nodesettings.TakesEffectAtBoot) && !p.machine.Bootloader().MayReboot() {
		out.rebootBy = slices.DeleteFunc(out.rebootBy, nodesettings.TakesEffectAtBoot)
	}
}

func (out *outcome) addStatus(status v1alpha1.SettingStatus) {
	out.settings = append(out.settings, status)
	out.failed = out.failed || status.State == v1alpha1.SettingFailed
}

func (out *outcome) addVolumes(p *pass) {
	out.volumes = map[string]mountwatch.ReadAhead{}
	for _, it := range p.of(readahead.VolumesName) {
		if it.rejection != nil {
			out.volumes[it.name] = mountwatch.ReadAhead{State: it.rejection.state, Message: it.rejection.message}
		}
		if it.rejection != nil || it.entry == nil {
			continue
		}
		o := it.observed
		note := mountwatch.ReadAhead{State: v1alpha1.SettingState(o.State), Message: cmp.Or(it.failed, o.Message)}
		switch {
		case p.restoresOnly != "" && isChangeDue(o.Observation):
			note = mountwatch.ReadAhead{State: v1alpha1.SettingFailed, Message: notChanged(p.restoresOnly)}
		case o.State == host.Drifted:
			out.drifted = append(out.drifted, it.key)
		}
		if it.failed != "" {
			note.State = v1alpha1.SettingFailed
		}
		out.volumes[it.name] = note
		out.failed = out.failed || note.State == v1alpha1.SettingFailed
	}
}

// addRestore adds the status of a setting that is being restored. A setting that the fence rejects but the spec still contains already
// has a status. The node is not rebooted to remove it.
func (out *outcome) addRestore(it *item, p *pass) {
	status := p.restoreStatus(it)
	out.restored = out.restored && status.State != v1alpha1.SettingFailed && !it.restored.Kept
	if _, ok := volumeOf(it.key); ok {
		out.failed = out.failed || status.State == v1alpha1.SettingFailed
		return
	}
	if it.desired != nil || status.State == v1alpha1.SettingInSync {
		return
	}
	if status.TakesEffect == v1alpha1.EffectReboot && status.State == v1alpha1.SettingPending {
		out.rebootBy = append(out.rebootBy, it.key)
	}
	out.addStatus(status)
}

func (it *item) statusOf(desired string, o observation) v1alpha1.SettingStatus {
	status := v1alpha1.SettingStatus{
		Key:         it.key,
		Desired:     desired,
		Observed:    o.Observed,
		Original:    it.originalValue(),
		TakesEffect: v1alpha1.SettingEffect(o.Effect),
		State:       v1alpha1.SettingState(o.State),
		Message:     o.Message,
	}
	if !o.present {
		status.TakesEffect, status.State, status.Message = catalogue.Effect(it.key), v1alpha1.SettingFailed, "the current value could not be read"
	}
	return status
}

func (p *pass) desiredStatus(it *item) v1alpha1.SettingStatus {
	o := it.observed.Observation
	status := it.statusOf(it.desired.Value, it.observed)
	switch {
	case it.rejection != nil:
		status.State, status.Message, status.FailedConnections = it.rejection.state, it.rejection.message, it.rejection.connections
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

// awaited maps the effect of a Pending setting to the event that it waits for. EffectAction has no event.
var awaited = map[v1alpha1.SettingEffect]v1alpha1.SettingWait{
	v1alpha1.EffectReboot: v1alpha1.WaitsForBoot, v1alpha1.EffectNextMount: v1alpha1.WaitsForMount,
	v1alpha1.EffectNewTransport: v1alpha1.WaitsForTransport, v1alpha1.EffectLive: v1alpha1.WaitsForModule,
}

// waitsFor returns the event that a setting waits for. Empty if it is not Pending.
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

// originalValue returns the original value. For a setting that is new in this pass, it comes from the new entry.
func (it *item) originalValue() string {
	if it.isJournalled || it.entry == nil {
		return it.journalled.Original.Value
	}
	return it.entry.Original.Value
}
