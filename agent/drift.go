package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/storageclient/operator/api/v1alpha1"

	"github.com/storageclient/operator/agent/host"
)

const (
	// maxFlips is how often a setting is put right within flipWindow. One that flips more often has another master.
	maxFlips   = 5
	flipWindow = time.Hour

	leftAlone = "something else changes it again and again: after 5 times within an hour it is left alone"
)

// flips remembers by key when drift was healed.
type flips map[string][]time.Time

// allow tells whether a drifted setting may be healed once more, and remembers that it was.
func (f flips) allow(key string, now time.Time) bool {
	var recent []time.Time
	for _, at := range f[key] {
		if now.Sub(at) < flipWindow {
			recent = append(recent, at)
		}
	}
	allowed := len(recent) < maxFlips
	if allowed {
		recent = append(recent, now)
	}
	f[key] = recent
	return allowed
}

// healed remembers by key what was undone of others' changes. The object's status keeps it over a restart.
type healed map[string]v1alpha1.Drift

// healedBefore is what the status of an object tells of earlier runs.
func healedBefore(node *v1alpha1.StorageClientNode) healed {
	h := healed{}
	if node != nil {
		for _, s := range node.Status.Settings {
			if s.Drift != nil {
				h[s.Key] = *s.Drift
			}
		}
	}
	return h
}

// keep forgets what is no longer declared.
func (h healed) keep(settings []v1alpha1.NodeSetting) {
	maps.DeleteFunc(h, func(key string, _ v1alpha1.Drift) bool {
		return !slices.ContainsFunc(settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key })
	})
}

// add notes that a setting is set again, and what was found.
func (h healed) add(key string, found host.Observation, now time.Time) {
	observed := found.Observed
	if observed == "" || observed == found.Desired {
		// The value in force is right, and what keeps it for the next boot is not.
		observed = cmp.Or(found.Message, observed)
	}
	h[key] = v1alpha1.Drift{Count: h[key].Count + 1, LastTime: metav1.NewTime(now.Truncate(time.Second)), LastObserved: cut(observed, maxObserved)}
}

// checkDrift reads every setting back. Drift is healed where that disrupts nothing: live values are set again, and a
// boot argument that has gone from the menu is staged again. What is not in force after that is left to the rollout.
func (a *Agent) checkDrift(ctx context.Context) {
	spec := a.node.Spec
	p, err := a.host.begin(spec, a.patterns)
	if err != nil {
		a.finish(refuseAll(spec, err))
		return
	}
	p.follow(ctx)
	p.observe(ctx)
	p.remember(a.out.settings)
	heal, alone := a.sortDrift(p)
	if len(heal) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Healing drift", "settings", host.Names(heal))
	}
	again := a.out.failed && !a.clock.Now().Before(a.retryAt)
	if len(heal) > 0 || again || !a.out.carriedOut || p.unfinished() {
		a.settle(ctx)
	} else {
		a.out = p.outcome(spec)
	}
	a.explain(alone)
}

// followMounts brings settings to new mounts without waiting for the next look for drift. A mount that is new is no
// drift, so nothing is healed here, and nothing counted. What stands in the way is told by the next look.
func (a *Agent) followMounts(ctx context.Context) {
	if a.settled != versionOf(a.node) {
		return
	}
	if p, err := a.host.begin(a.node.Spec, a.patterns); err == nil {
		p.follow(ctx)
	}
	if len(a.out.volumes) > 0 {
		a.readTable()
	}
}

// sortDrift parts what is healed from what flips too often. The read-ahead of volumes neither counts nor is ever left
// alone: of a new mount, the host's own rule for its type may come after us.
func (a *Agent) sortDrift(p *pass) (heal, alone []string) {
	now := a.clock.Now()
	for _, key := range p.outcome(a.node.Spec).drifted {
		_, ofVolume := volumeOf(key)
		switch {
		case ofVolume:
			heal = append(heal, key)
		case a.flips.allow(key, now):
			a.drift.WithLabelValues(key).Inc()
			a.healed.add(key, p.seen[key], now)
			heal = append(heal, key)
		default:
			alone = append(alone, key)
		}
	}
	return heal, alone
}

// remember takes failures over from the pass before: they stand until it has been tried again, unless a setting
// has come right by itself.
func (p *pass) remember(before []v1alpha1.SettingStatus) {
	for _, was := range before {
		if was.State != v1alpha1.SettingFailed {
			continue
		}
		_, restoring := p.restore[was.Key]
		if restoring || p.fresh[was.Key] || p.seen[was.Key].State == host.Drifted {
			p.failed[was.Key] = was.Message
		}
	}
}

// unfinished tells whether there is more to do than to read back: something to put back, or a setting that could
// not work here before and can now.
func (p *pass) unfinished() bool {
	for key := range p.restore {
		if p.failed[key] == "" {
			return true
		}
	}
	for key := range p.fresh {
		if !p.skip(key) {
			return true
		}
	}
	return false
}

func (a *Agent) explain(alone []string) {
	for _, key := range alone {
		for i := range a.out.settings {
			if s := &a.out.settings[i]; s.Key == key && s.State == v1alpha1.SettingDrifted {
				s.Message = leftAlone
			}
		}
	}
}
