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

// plan holds by key what the host is to hold and what is to be restored, worked out from the spec and the journal alone.
type plan map[string]*item

type item struct {
	key, name string
	// wanted is the setting of the spec; nil for a key that the spec does not have, and on release.
	wanted *v1alpha1.NodeSetting
	// journalled is the journal's entry as it was at the beginning. Without one, isJournalled is false and it is empty.
	journalled   journal.Entry
	isJournalled bool
	// entry is what is to be on the host: what the spec wants, or what is retained.
	entry *journal.Entry
	// unrecorded is true for an entry that has never been changed: its original is still to be read.
	unrecorded bool
	// restore is the original of what is no longer wanted.
	restore *host.Original
	// refused is why the fence keeps the setting of the spec out.
	refused *refusal
	// unsupported is true for an unrecorded key that cannot work here: it is neither journalled nor applied, only observed.
	unsupported bool
	// unconfirmed is what is to be kept only once new connections have proven it.
	unconfirmed *journal.Entry
	// failed is why the setting was not applied or not restored.
	failed string
	// observed is what was observed of the setting, restored what of one that is being restored.
	observed, restored answer
}

// answer is what a subject answered of a setting, if it did.
type answer struct {
	host.Observation
	given bool
}

// makePlan decides for every key of the spec and of the journal.
func makePlan(spec v1alpha1.StorageClientNodeSpec, journalled map[string]journal.Entry, f fence) plan {
	p := plan{}
	for key, entry := range journalled {
		it := p.item(key)
		it.journalled, it.isJournalled = entry, true
	}
	for i := range spec.Settings {
		setting := &spec.Settings[i]
		if !spec.Release {
			p.item(setting.Key).wantSetting(setting, f)
		} else if it := p[setting.Key]; it != nil {
			// The policy may have been changed together with the release.
			it.journalled.Retain = setting.OnRemoval == v1alpha1.DeletionRetain
		}
	}
	if !spec.Release {
		for _, volume := range spec.Volumes {
			p.wantVolume(volume, f)
		}
	}
	for _, it := range p {
		if it.isJournalled && it.entry == nil {
			it.dropSetting(f)
		}
	}
	return p
}

func (p plan) item(key string) *item {
	if p[key] == nil {
		_, name := catalogue.Key(key).Cut()
		p[key] = &item{key: key, name: name}
	}
	return p[key]
}

func (p plan) only(is func(*item) bool) []*item {
	all := slices.SortedFunc(maps.Values(p), func(a, b *item) int { return strings.Compare(a.key, b.key) })
	return slices.DeleteFunc(all, func(it *item) bool { return !is(it) })
}

func (p plan) of(subject string) []*item {
	return p.only(func(it *item) bool { _, is := catalogue.Key(it.key).In(subject); return is })
}

// wantSetting takes up a setting of the spec. Where the fence refuses the new value, the host keeps the last one that was
// accepted, as long as that still is. Mount options that were admitted before their mount point was refused stay, too, unless they can
// keep the node from coming up: then they are put back, which takes a file away and mounts nothing.
func (it *item) wantSetting(setting *v1alpha1.NodeSetting, f fence) {
	held := it.journalled
	it.wanted = setting
	check := f.checkSetting
	if it.isJournalled && held.Applied == setting.Value {
		check = f.checkInForce
	}
	if refused := check(it.key, setting.Value); refused != nil {
		it.refused = refused
		switch {
		case it.isJournalled && !held.Retained && f.checkInForce(it.key, held.Applied) == nil:
			it.entry = &held
		case it.isJournalled && f.allowed.MayStay(it.key, held.Applied):
			it.entry = &held
			refused.message += "; what was applied before stays as it is"
		}
		return
	}
	it.unrecorded = !it.isJournalled
	it.entry = &journal.Entry{
		Original: held.Original,
		Profile:  setting.Profile,
		Retain:   setting.OnRemoval == v1alpha1.DeletionRetain,
		Applied:  setting.Value,
	}
}

// wantVolume takes up the read-ahead of a volume. It is not among the settings: mounts tell of it.
func (p plan) wantVolume(volume v1alpha1.NodeVolume, f fence) {
	if volume.ReadAheadKiB == nil {
		return
	}
	it := p.item(volumeKey(volume.Name))
	if refused := f.checkVolume(volume); refused != nil {
		it.refused = refused
		return
	}
	held := it.journalled
	size := strconv.Itoa(int(*volume.ReadAheadKiB))
	if refused := f.refuseChange(); refused != nil && held.Applied != size {
		it.refused = refused
		if it.isJournalled {
			it.entry = &held
		}
		return
	}
	it.unrecorded = !it.isJournalled
	it.entry = &journal.Entry{Original: held.Original, Applied: size}
}

// volumeKey is the key of a volume's read-ahead, for the journal and the subject alone: no object may name it.
func volumeKey(volume string) string { return catalogue.KeyOf(readahead.VolumesName, volume) }

func volumeOf(key string) (string, bool) { return catalogue.Key(key).In(readahead.VolumesName) }

// onlyVolumes leaves aside all but the read-ahead of volumes.
func (p plan) onlyVolumes() {
	maps.DeleteFunc(p, func(key string, _ *item) bool { _, ok := volumeOf(key); return !ok })
}

// dropSetting decides on a key that the journal holds and the spec does not want, or no longer may.
func (it *item) dropSetting(f fence) {
	held := it.journalled
	if held.Retain && (f.checkInForce(it.key, held.Applied) == nil || f.allowed.MayStay(it.key, held.Applied)) {
		held.Retained = true
		it.entry = &held
		return
	}
	it.restore = &held.Original
}

func (it *item) isWanted() bool { return it.wanted != nil }

// isDropped reports whether a setting is to be restored that the spec no longer has.
func (it *item) isDropped() bool { return it.restore != nil && it.wanted == nil }

// isSkipped reports whether an entry is neither journalled nor applied.
func (it *item) isSkipped() bool { return it.unsupported || it.unrecorded && it.failed != "" }

// isAtLeast reports whether a sysctl is only to be raised.
func (it *item) isAtLeast() bool { return it.entry != nil && hostSetting(it.name, *it.entry).AtLeast }

// isSettable reports whether an unconfirmed setting can be tried: it works here, and has not failed.
func (it *item) isSettable() bool {
	return it.unconfirmed != nil && it.failed == "" && !slices.Contains(untouchedStates, it.observed.State)
}

// settingsOf returns what a subject is to hold, sorted by name. Items for which omit is true are left out.
func (p plan) settingsOf(subject string, omit func(*item) bool) []host.Setting {
	var settings []host.Setting
	for _, it := range p.of(subject) {
		if it.entry != nil && !omit(it) {
			settings = append(settings, hostSetting(it.name, *it.entry))
		}
	}
	return settings
}

// hostSetting is a setting as the host is to have it. What is to be at least so much is worked out from the original, which the
// journal keeps: the same at every pass, whatever is in force by now.
func hostSetting(name string, entry journal.Entry) host.Setting {
	wanted := catalogue.ParseValue(entry.Applied)
	if wanted.AtLeast {
		wanted.Text = text.Larger(entry.Original.Value, wanted.Text)
	}
	return host.Setting{Name: name, Value: wanted.Text, AtLeast: wanted.AtLeast}
}

// untouchedStates are the states of a setting that has not been touched and need not be.
var untouchedStates = []host.State{host.Unsupported, host.Clamped, host.Failed}
