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
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// plan contains, by key, the settings to apply and the originals to restore. It is computed only from the spec and the journal.
type plan map[string]*item

type item struct {
	key, name string
	// desired is the setting in the spec. Nil on release and for a key that is not in the spec.
	desired *v1alpha1.NodeSetting
	// journalled is the journal entry at the start of the pass. Empty if isJournalled is false.
	journalled   journal.Entry
	isJournalled bool
	// entry is the desired entry on the host: the value from the spec, or a retained value.
	entry *journal.Entry
	// unrecorded is true if the setting has never been changed. Its original has not been read yet.
	unrecorded bool
	// restore is the original of a setting that is no longer desired.
	restore *host.Original
	// rejection is the reason why the fence rejects the setting.
	rejection *rejection
	// unsupported is true if an unrecorded key cannot work on this host. It is observed, but not applied or recorded in the journal.
	unsupported bool
	// unconfirmed is the entry that is kept only after new connections have proven it.
	unconfirmed *journal.Entry
	// failed is the reason why the setting was not applied or restored.
	failed string
	// observed is the observation of the desired value, restored the result of restoring the original.
	observed, restored observation
}

// observation is the observation that a subject returned. present is false if there is none.
type observation struct {
	host.Observation
	present bool
}

// makePlan returns the plan for every key of the spec and of the journal.
func makePlan(spec v1alpha1.StorageClientNodeSpec, journalled map[string]journal.Entry, f fence) plan {
	p := plan{}
	for key, entry := range journalled {
		it := p.item(key)
		it.journalled, it.isJournalled = entry, true
	}
	for i := range spec.Settings {
		setting := &spec.Settings[i]
		if !spec.Release {
			p.item(setting.Key).planSetting(setting, f)
		} else if it := p[setting.Key]; it != nil {
			// The removal policy may have changed together with the release.
			it.journalled.Retain = setting.OnRemoval == v1alpha1.DeletionRetain
		}
	}
	if !spec.Release {
		for _, volume := range spec.Volumes {
			p.planVolume(volume, f)
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

func (p plan) filter(matches func(*item) bool) []*item {
	all := slices.SortedFunc(maps.Values(p), func(a, b *item) int { return strings.Compare(a.key, b.key) })
	return slices.DeleteFunc(all, func(it *item) bool { return !matches(it) })
}

func (p plan) of(subject string) []*item {
	return p.filter(func(it *item) bool { _, ok := catalogue.Key(it.key).In(subject); return ok })
}

// planSetting adds a setting of the spec to the plan. If the fence rejects the new value, the host keeps the last accepted value while
// the fence still accepts it. Mount options also stay if they were accepted before their mount point was rejected. The exception is
// options that can prevent the node from booting. They are restored, which only removes a file and does not mount anything.
func (it *item) planSetting(setting *v1alpha1.NodeSetting, f fence) {
	saved := it.journalled
	it.desired = setting
	check := f.checkSetting
	if it.isJournalled && saved.Applied == setting.Value {
		check = f.checkApplied
	}
	if rejection := check(it.key, setting.Value); rejection != nil {
		it.rejection = rejection
		switch {
		case it.isJournalled && !saved.Retained && f.checkApplied(it.key, saved.Applied) == nil:
			it.entry = &saved
		case it.isJournalled && f.allowed.MayStay(it.key, saved.Applied):
			it.entry = &saved
			rejection.message += "; the last applied value stays"
		}
		return
	}
	it.unrecorded = !it.isJournalled
	it.entry = &journal.Entry{
		Original: saved.Original,
		Profile:  setting.Profile,
		Retain:   setting.OnRemoval == v1alpha1.DeletionRetain,
		Applied:  setting.Value,
	}
}

// planVolume adds the read-ahead of a volume to the plan. It is reported with the mounts, not with the settings.
func (p plan) planVolume(volume v1alpha1.NodeVolume, f fence) {
	if volume.ReadAheadKiB == nil {
		return
	}
	it := p.item(volumeKey(volume.Name))
	if rejection := f.checkVolume(volume); rejection != nil {
		it.rejection = rejection
		return
	}
	saved := it.journalled
	size := strconv.Itoa(int(*volume.ReadAheadKiB))
	if rejection := f.checkChange(); rejection != nil && saved.Applied != size {
		it.rejection = rejection
		if it.isJournalled {
			it.entry = &saved
		}
		return
	}
	it.unrecorded = !it.isJournalled
	it.entry = &journal.Entry{Original: saved.Original, Applied: size}
}

// volumeKey returns the key of a volume's read-ahead. Only the journal and the subject use it; API objects must not.
func volumeKey(volume string) string { return catalogue.KeyOf(readahead.VolumesName, volume) }

func volumeOf(key string) (string, bool) { return catalogue.Key(key).In(readahead.VolumesName) }

// onlyVolumes removes all items except for the read-ahead of volumes.
func (p plan) onlyVolumes() {
	maps.DeleteFunc(p, func(key string, _ *item) bool { _, ok := volumeOf(key); return !ok })
}

// dropSetting handles a key in the journal that the spec does not contain or the fence no longer permits.
func (it *item) dropSetting(f fence) {
	saved := it.journalled
	if saved.Retain && (f.checkApplied(it.key, saved.Applied) == nil || f.allowed.MayStay(it.key, saved.Applied)) {
		saved.Retained = true
		it.entry = &saved
		return
	}
	it.restore = &saved.Original
}

func (it *item) isDesired() bool { return it.desired != nil }

// isDropped reports whether the setting must be restored because the spec no longer contains it.
func (it *item) isDropped() bool { return it.restore != nil && it.desired == nil }

// isSkipped reports whether the entry is neither applied nor recorded in the journal.
func (it *item) isSkipped() bool { return it.unsupported || it.unrecorded && it.failed != "" }

// isAtLeast reports whether the setting is a sysctl that the agent only raises.
func (it *item) isAtLeast() bool { return it.entry != nil && hostSetting(it.name, *it.entry).AtLeast }

// isSettable reports whether an unconfirmed setting can be tried: the host supports it, and it has not failed.
func (it *item) isSettable() bool {
	return it.unconfirmed != nil && it.failed == "" && !slices.Contains(untouchedStates, it.observed.State)
}

// settingsOf returns the desired settings of a subject, sorted by name. It omits items for which omit returns true.
func (p plan) settingsOf(subject string, omit func(*item) bool) []host.Setting {
	desired := lists.Filter(p.of(subject), func(it *item) bool { return it.entry != nil && !omit(it) })
	return lists.Each(desired, func(it *item) host.Setting { return hostSetting(it.name, *it.entry) })
}

// hostSetting returns the setting in the form that a subject applies. The value of an at-least setting is derived from the original in
// the journal. It is the same in every pass, regardless of the current value.
func hostSetting(name string, entry journal.Entry) host.Setting {
	wanted := catalogue.ParseValue(entry.Applied)
	if wanted.AtLeast {
		wanted.Text = text.Larger(entry.Original.Value, wanted.Text)
	}
	return host.Setting{Name: name, Value: wanted.Text, AtLeast: wanted.AtLeast}
}

// untouchedStates are the states in which a setting was not changed and no change is needed.
var untouchedStates = []host.State{host.Unsupported, host.Clamped, host.Failed}
