package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/agent/host"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxHeals is how often a setting is set again within healWindow. Where drift comes back more often, something else owns the setting.
	maxHeals   = 5
	healWindow = time.Hour

	leftAloneMessage = "something else keeps changing it: reset 5 times within an hour, left alone now"
)

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
	h[key] = v1alpha1.Drift{Count: h[key].Count + 1, LastTime: metav1.NewTime(now.Truncate(time.Second)), LastObserved: text.Cut(observed, maxObserved)}
}

// checkDrift reads every setting back. Drift is healed where that disrupts nothing: live values are set again, and a
// boot argument that has gone from the menu is staged again. What is not in force after that is left to the rollout.
func (a *Agent) checkDrift(ctx context.Context) {
	spec := a.clientNode.Spec
	p, err := a.host.beginPass(spec, a.allowed)
	if err != nil {
		a.keepOutcome(refuseAll(spec, err))
		return
	}
	p.followMounts(ctx)
	p.observeAll(ctx)
	p.partUnconfirmed()
	p.unconfirmedNote = a.confirmation.outage
	p.keepFailures(a.outcome.settings)
	heal, alone := a.sortDrift(p)
	if len(heal) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Healing drift", "settings", text.List(heal))
	}
	again := a.outcome.failed && !a.clock.Now().Before(a.retryAt) || p.hasUnconfirmed() && a.host.until(a.confirmation.retryAt) == 0
	if len(heal) > 0 || again || !a.outcome.carriedOut || p.hasMoreToDo() {
		a.applySpec(ctx)
	} else {
		a.outcome = p.sumUp(spec)
	}
	a.explainLeftAlone(alone)
}

// followMounts brings settings to new mounts without waiting for the next check for drift. A mount that is new is no
// drift, so nothing is healed here, and nothing counted. What stands in the way is reported by the next check.
func (a *Agent) followMounts(ctx context.Context) {
	if a.applied != versionOf(a.clientNode) {
		return
	}
	if p, err := a.host.beginPass(a.clientNode.Spec, a.allowed); err == nil {
		p.followMounts(ctx)
	}
	if len(a.outcome.volumes) > 0 {
		a.readTable()
	}
}

// sortDrift parts what is healed from what drifts too often. The read-ahead of volumes neither counts nor is ever left
// alone: of a new mount, the host's own rule for its type may come after us.
func (a *Agent) sortDrift(p *pass) (heal, alone []string) {
	now := a.clock.Now()
	for _, key := range p.sumUp(a.clientNode.Spec).drifted {
		_, ofVolume := volumeOf(key)
		switch {
		case ofVolume:
			heal = append(heal, key)
		case a.heals.mayHeal(key, now):
			a.drift.WithLabelValues(key).Inc()
			a.healed.addDrift(key, p.item(key).observed.Observation, now)
			heal = append(heal, key)
		default:
			alone = append(alone, key)
		}
	}
	return heal, alone
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

func (a *Agent) explainLeftAlone(alone []string) {
	for _, key := range alone {
		for i := range a.outcome.settings {
			if s := &a.outcome.settings[i]; s.Key == key && s.State == v1alpha1.SettingDrifted {
				s.Message = leftAloneMessage
			}
		}
	}
}
