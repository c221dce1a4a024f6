package agent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// driftInterval is the interval between full reads of all settings.
	driftInterval = time.Minute
	// maxRetry is the maximum delay before a failed step is tried again. The delay doubles after each failure.
	maxRetry = 16 * driftInterval
	// maxHeals is the maximum number of resets of one setting within healWindow. More frequent drift means that another program owns the
	// setting.
	maxHeals   = 5
	healWindow = time.Hour

	leftAloneMessage = "another program keeps changing it: reset 5 times within an hour, no longer reset; find and stop that program"
)

// waitAfter returns the delay before the next attempt. It doubles with each consecutive failure.
func waitAfter(failures int) time.Duration { return min(driftInterval<<min(failures, 8), maxRetry) }

type healTimes map[string][]time.Time

// mayHeal reports whether a drifted setting may be healed again. If so, it records the heal.
func (h healTimes) mayHeal(key string, now time.Time) bool {
	recent := lists.Filter(h[key], func(at time.Time) bool { return now.Sub(at) < healWindow })
	allowed := len(recent) < maxHeals
	if allowed {
		recent = append(recent, now)
	}
	h[key] = recent
	return allowed
}

// healed contains the reverted changes of other programs by key. It survives a restart in the status of the StorageClientNode.
type healed map[string]v1alpha1.Drift

// healedIn returns the drift that earlier runs recorded in the status.
func healedIn(clientNode *v1alpha1.StorageClientNode) healed {
	h := healed{}
	if clientNode != nil {
		for _, s := range clientNode.Status.Settings {
			if s.Drift != nil {
				h[s.Key] = *s.Drift
			}
		}
	}
	return h
}

func (h healed) keepDeclared(settings []v1alpha1.NodeSetting) {
	maps.DeleteFunc(h, func(key string, _ v1alpha1.Drift) bool {
		return !slices.ContainsFunc(settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key })
	})
}

func (h healed) addDrift(it *item, now time.Time) {
	key, found := it.key, it.observed.Observation
	observed := found.Observed
	if observed == "" || observed == found.Desired || it.entry != nil && isEffective(*it.entry, observed) {
		// The current value is correct, but its persistent file or boot entry is not.
		observed = cmp.Or(found.Message, observed)
	}
	h[key] = v1alpha1.Drift{
		Count: h[key].Count + 1, LastTime: metav1.NewTime(now.Truncate(time.Second)), LastObserved: text.Cut(observed, bounds.Observed),
	}
}

// keepFailures copies failures from the previous pass. They remain until the next attempt, unless the setting has recovered.
func (p *pass) keepFailures(before []v1alpha1.SettingStatus) {
	for _, previous := range before {
		it := p.item(previous.Key)
		if previous.State == v1alpha1.SettingFailed && (it.restore != nil || it.unrecorded || it.observed.State == host.Drifted) {
			it.failed = previous.Message
		}
	}
}

func (p *pass) hasMoreToDo() bool {
	return len(p.filter(func(it *item) bool {
		return it.restore != nil && it.failed == "" || it.unrecorded && it.unconfirmed == nil && !it.isSkipped()
	})) > 0
}
