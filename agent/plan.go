package agent

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/agent/host/journal"
	"github.com/storageclient/operator/agent/host/readahead"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/text"
)

// plan is what the host is to hold and what is to be put back, worked out from the spec and the journal alone.
type plan struct {
	// wantedEntries holds by key what is to be on the host: what the spec wants, and what is retained.
	wantedEntries map[string]journal.Entry
	// unrecorded are the keys of wantedEntries that have never been changed: their original is still to be read.
	unrecorded map[string]bool
	// restore holds the originals of what is no longer wanted.
	restore map[string]host.Original
	// refused holds the settings of the spec that the fence keeps out.
	refused map[string]refusal
	// wanted are the spec's settings by key; empty on release.
	wanted map[string]v1alpha1.NodeSetting
}

// makePlan decides for every key of the spec and of the journal.
func makePlan(spec v1alpha1.StorageClientNodeSpec, journalled map[string]journal.Entry, f fence) plan {
	p := plan{
		wantedEntries: map[string]journal.Entry{},
		unrecorded:    map[string]bool{},
		restore:       map[string]host.Original{},
		refused:       map[string]refusal{},
		wanted:        map[string]v1alpha1.NodeSetting{},
	}
	for _, setting := range spec.Settings {
		entry, isJournalled := journalled[setting.Key]
		if spec.Release {
			// The policy may have been changed together with the release.
			if isJournalled {
				entry.Retain = setting.OnRemoval == v1alpha1.DeletionRetain
				journalled[setting.Key] = entry
			}
			continue
		}
		p.wantSetting(setting, entry, isJournalled, f)
	}
	if !spec.Release {
		for _, volume := range spec.Volumes {
			p.wantVolume(volume, journalled, f)
		}
	}
	for key, entry := range journalled {
		if _, decided := p.wantedEntries[key]; !decided {
			p.dropSetting(key, entry, f)
		}
	}
	return p
}

// wantSetting takes up a setting of the spec. Where the fence refuses the new value, the host keeps the last one that was
// accepted, as long as that still is. Mount options that were admitted before their mount point was refused stay, too, unless they can
// keep the node from coming up: then they are put back, which takes a file away and mounts nothing.
func (p *plan) wantSetting(setting v1alpha1.NodeSetting, entry journal.Entry, isJournalled bool, f fence) {
	key := setting.Key
	p.wanted[key] = setting
	check := f.checkSetting
	if isJournalled && entry.Applied == setting.Value {
		check = f.checkInForce
	}
	if refused := check(key, setting.Value); refused != nil {
		p.refused[key] = *refused
		switch {
		case isJournalled && !entry.Retained && f.checkInForce(key, entry.Applied) == nil:
			p.wantedEntries[key] = entry
		case isJournalled && f.allowed.MayStay(key, entry.Applied):
			p.wantedEntries[key] = entry
			refused.message += "; what was applied before stays as it is"
			p.refused[key] = *refused
		}
		return
	}
	if !isJournalled {
		p.unrecorded[key] = true
	}
	p.wantedEntries[key] = journal.Entry{
		Original: entry.Original,
		Profile:  setting.Profile,
		Retain:   setting.OnRemoval == v1alpha1.DeletionRetain,
		Applied:  setting.Value,
	}
}

// wantVolume takes up the read-ahead of a volume. It is not among the settings: mounts tell of it.
func (p *plan) wantVolume(volume v1alpha1.NodeVolume, journalled map[string]journal.Entry, f fence) {
	if volume.ReadAheadKiB == nil {
		return
	}
	key := volumeKey(volume.Name)
	if refused := f.checkVolume(volume); refused != nil {
		p.refused[key] = *refused
		return
	}
	entry, isJournalled := journalled[key]
	size := strconv.Itoa(int(*volume.ReadAheadKiB))
	if refused := f.refuseChange(); refused != nil && entry.Applied != size {
		p.refused[key] = *refused
		if isJournalled {
			p.wantedEntries[key] = entry
		}
		return
	}
	if !isJournalled {
		p.unrecorded[key] = true
	}
	p.wantedEntries[key] = journal.Entry{Original: entry.Original, Applied: size}
}

// volumeKey is the key of a volume's read-ahead, for the journal and the subject alone: no object may name it.
func volumeKey(volume string) string { return readahead.VolumesName + "/" + volume }

// volumeOf is the volume of such a key.
func volumeOf(key string) (volume string, ok bool) {
	return strings.CutPrefix(key, readahead.VolumesName+"/")
}

// onlyVolumes leaves aside all but the read-ahead of volumes.
func (p *plan) onlyVolumes() {
	other := func(key string) bool { _, ok := volumeOf(key); return !ok }
	maps.DeleteFunc(p.wantedEntries, func(key string, _ journal.Entry) bool { return other(key) })
	maps.DeleteFunc(p.unrecorded, func(key string, _ bool) bool { return other(key) })
	maps.DeleteFunc(p.restore, func(key string, _ host.Original) bool { return other(key) })
	maps.DeleteFunc(p.refused, func(key string, _ refusal) bool { return other(key) })
	clear(p.wanted)
}

// dropSetting decides on a key that the journal holds and the spec does not want, or no longer may.
func (p *plan) dropSetting(key string, entry journal.Entry, f fence) {
	if entry.Retain && (f.checkInForce(key, entry.Applied) == nil || f.allowed.MayStay(key, entry.Applied)) {
		entry.Retained = true
		p.wantedEntries[key] = entry
		return
	}
	p.restore[key] = entry.Original
}

// settingsOf returns what a subject is to hold, sorted by name. Keys for which omit is true are left out.
func (p *plan) settingsOf(subject string, omit func(key string) bool) []host.Setting {
	var settings []host.Setting
	for _, key := range slices.Sorted(maps.Keys(p.wantedEntries)) {
		if name, ok := strings.CutPrefix(key, subject+"/"); ok && !omit(key) {
			settings = append(settings, hostSetting(name, p.wantedEntries[key]))
		}
	}
	return settings
}

// hostSetting is a setting as the host is to have it. What is to be at least so much is worked out from the original, which the
// journal keeps: the same at every pass, whatever is in force by now.
func hostSetting(name string, entry journal.Entry) host.Setting {
	least, ok := catalogue.ParseAtLeast(entry.Applied)
	if !ok {
		return host.Setting{Name: name, Value: entry.Applied}
	}
	return host.Setting{Name: name, Value: text.Larger(entry.Original.Value, least), AtLeast: true}
}

// originalsOf returns what a subject is to put back, by name.
func (p *plan) originalsOf(subject string) map[string]host.Original {
	originals := map[string]host.Original{}
	for key, original := range p.restore {
		if name, ok := strings.CutPrefix(key, subject+"/"); ok {
			originals[name] = original
		}
	}
	return originals
}
