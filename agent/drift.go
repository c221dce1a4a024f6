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
	"github.com/storageclient/operator/tuning/text"
)

const (
	// driftInterval is how often all settings are read back.
	driftInterval = time.Minute
	// maxRetry bounds the doubled wait before something that failed is tried again.
	maxRetry = 16 * driftInterval
	// maxHeals is how often a setting is set again within healWindow. Where drift comes back more often, something else owns the setting.
	maxHeals   = 5
	healWindow = time.Hour

	leftAloneMessage = "something else keeps changing it: reset 5 times within an hour, left alone now"
)

// waitAfter returns the wait before the next attempt, doubled with each earlier failure in a row.
func waitAfter(failures int) time.Duration { return min(driftInterval<<min(failures, 8), maxRetry) }

// healTimes remembers by key when drift was healed.
type healTimes map[string][]time.Time

// mayHeal tells whether a drifted setting may be healed once more, and remembers that it was.
func (h healTimes) mayHeal(key string, now time.Time) bool {
	var recent []time.Time
	for _, at := range h[key] {
		if now.Sub(at) < healWindow {
			recent = append(recent, at)
		}
	}
	allowed := len(recent) < maxHeals
	if allowed {
		recent = append(recent, now)
	}
	h[key] = recent
	return allowed
}

// healed remembers by key what was undone of others' changes. The client node's status keeps it over a restart.
type healed map[string]v1alpha1.Drift

// healedIn is what the status of a client node has of earlier runs.
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

// keepDeclared forgets what is no longer declared.
func (h healed) keepDeclared(settings []v1alpha1.NodeSetting) {
	maps.DeleteFunc(h, func(key string, _ v1alpha1.Drift) bool {
		return !slices.ContainsFunc(settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key })
	})
}

// addDrift notes that a setting is set again, and what was found.
func (h healed) addDrift(key string, found host.Observation, now time.Time) {
	observed := found.Observed
	if observed == "" || observed == found.Desired {
		// The value in force is right, and what keeps it for the next boot is not.
		observed = cmp.Or(found.Message, observed)
	}
	h[key] = v1alpha1.Drift{Count: h[key].Count + 1, LastTime: metav1.NewTime(now.Truncate(time.Second)), LastObserved: text.Cut(observed, bounds.Observed)}
}

// keepFailures takes failures over from the pass before: they stand until it has been tried again, unless a setting
// has come right by itself.
func (p *pass) keepFailures(before []v1alpha1.SettingStatus) {
	for _, was := range before {
		it := p.item(was.Key)
		if was.State == v1alpha1.SettingFailed && (it.restore != nil || it.unrecorded || it.observed.State == host.Drifted) {
			it.failed = was.Message
		}
	}
}

// hasMoreToDo tells whether there is more to do than to read back: something to put back, or a setting that could
// not work here before and can now.
func (p *pass) hasMoreToDo() bool {
	return len(p.only(func(it *item) bool {
		return it.restore != nil && it.failed == "" || it.unrecorded && it.unconfirmed == nil && !it.isSkipped()
	})) > 0
}
