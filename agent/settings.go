package agent

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/bounds"
	"github.com/storageclient/operator/agent/permit"
	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// Limits of the status, in characters and items.
const (
	maxValue    = 256
	maxSettings = 512
	maxRebootBy = 64
)

// settings applies the settings of the node and tracks their state.
type settings struct {
	machine Machine
	allowed Allowed
	proof   proof

	// applied is the spec version that outcome describes. declared is its declaration.
	applied  version
	declared v1alpha1.StorageClientNodeSpec
	outcome  outcome
	heals    healTimes
	healed   healed
	retries  int
	retryAt  time.Time
	driftAt  time.Time

	bootloader v1alpha1.Bootloader
	drift      *prometheus.CounterVec
	metrics    settingMetrics
}

// version identifies one spec of one StorageClientNode.
type version struct {
	uid        types.UID
	generation int64
}

func versionOf(clientNode *v1alpha1.StorageClientNode) version {
	return version{uid: clientNode.UID, generation: clientNode.Generation}
}

// declarationOf returns a spec without volumes and orders. A change to only those two resets neither the heal counts nor a wait.
func declarationOf(spec *v1alpha1.StorageClientNodeSpec) v1alpha1.StorageClientNodeSpec {
	declared := *spec
	declared.Volumes, declared.Trial, declared.Sample = nil, nil, nil
	return declared
}

func newSettings(machine Machine, allowed Allowed, clock clock.Clock, bootID string) *settings {
	machine.attended = true
	return &settings{
		machine: machine, allowed: allowed,
		proof: proof{machine: machine, clock: clock, bootID: bootID, jitter: rand.N[time.Duration]},
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "storageclient_agent_drift_total",
			Help: "Number of times that the agent reset a setting that another program had changed, by key. " +
				"After 5 resets within an hour, the agent stops resetting and counting.",
		}, []string{"key"}),
	}
}

// forget clears the applied version: the StorageClientNode was replaced or deleted. The heal history comes from the status of the new
// one.
func (s *settings) forget(clientNode *v1alpha1.StorageClientNode) {
	s.applied, s.healed = version{}, healedIn(clientNode)
}

// dueAt returns the time of the next work on the settings. Zero if they wait for another event. While a proof is open, nothing else
// changes, so that the effect of a change is observable.
func (s *settings) dueAt() time.Time {
	if s.proof.isOpen() {
		return s.proof.dueAt()
	}
	return s.driftAt
}

// run applies a new spec and checks for drift in between. It reports whether the read-ahead of mounts may have changed.
func (s *settings) run(ctx context.Context, clientNode *v1alpha1.StorageClientNode, permitUndecided bool) bool {
	now, declared, current := s.proof.clock.Now(), declarationOf(&clientNode.Spec), versionOf(clientNode)
	switch {
	case s.applied == current && s.proof.isOpen():
		return false
	case s.applied == current && now.Before(s.driftAt):
		return false
	case s.applied == current:
		s.checkDrift(ctx, clientNode, permitUndecided)
	case s.applied.uid == current.uid && equality.Semantic.DeepEqual(s.declared, declared):
		s.applied = current
		return s.applyVolumes(ctx, clientNode.Spec)
	default:
		s.applied, s.declared = current, declared
		s.heals = healTimes{}
		s.healed.keepDeclared(declared.Settings)
		s.retries = 0
		// Only the back-off ends. An open proof that cannot be abandoned must still test the server that it was started for.
		s.proof.outages, s.proof.outage, s.proof.retryAt = 0, "", 0
		s.apply(ctx, clientNode, permitUndecided)
	}
	s.driftAt = now.Add(driftInterval)
	s.bootloader = bootloaderStatus(s.machine.Bootloader())
	return len(s.outcome.volumes) > 0
}

func (s *settings) apply(ctx context.Context, clientNode *v1alpha1.StorageClientNode, permitUndecided bool) {
	log, spec := logr.FromContextOrDiscard(ctx), clientNode.Spec
	p, err := s.machine.beginPass(spec, s.allowed)
	if err == nil {
		err = s.proof.abandon(ctx)
	}
	if err == nil {
		err = p.carryOut(ctx)
	}
	if err == nil {
		err = s.proof.begin(ctx, p, &spec, permitUndecided)
	}
	if err != nil {
		log.Error(err, "Cannot apply settings; no settings changed on this node", "generation", clientNode.Generation)
		s.keepOutcome(rejectAll(spec, err))
		return
	}
	p.forgetRestored(spec.Release)
	s.keepOutcome(p.sumUp(spec))
	if s.outcome.restored {
		if _, err := s.machine.Journal.Remove(s.proof.bootID); err != nil {
			log.Error(err, "Cannot remove the empty journal")
		}
	}
}

// applyVolumes applies only the desired read-ahead of volumes. It reports whether it succeeded.
func (s *settings) applyVolumes(ctx context.Context, spec v1alpha1.StorageClientNodeSpec) bool {
	p, err := s.machine.beginPass(spec, s.allowed)
	if err == nil {
		p.onlyVolumes()
		err = p.carryOut(ctx)
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot apply the read-ahead of volumes; trying again at the next check")
		return false
	}
	p.forgetRestored(false)
	out := p.sumUp(spec)
	s.outcome.volumes = out.volumes
	if out.failed && !s.outcome.failed {
		s.outcome.failed, s.retryAt = true, s.proof.clock.Now().Add(driftInterval)
	}
	return true
}

// keepOutcome saves an outcome. If it contains a failure, it also schedules the next attempt.
func (s *settings) keepOutcome(out outcome) {
	s.outcome = out
	if !out.failed {
		s.retries = 0
		return
	}
	s.retryAt = s.proof.clock.Now().Add(waitAfter(s.retries))
	s.retries++
}

// followMounts applies settings to new mounts without waiting for the next drift check. A new mount is not drift and does not
// count as a heal. The next drift check reports any obstacle. It reports whether the read-ahead of mounts may have changed.
func (s *settings) followMounts(ctx context.Context, clientNode *v1alpha1.StorageClientNode) bool {
	if s.applied != versionOf(clientNode) {
		return false
	}
	if p, err := s.machine.beginPass(clientNode.Spec, s.allowed); err == nil {
		p.followMounts(ctx)
	}
	return len(s.outcome.volumes) > 0
}

// checkDrift reads every setting back. It heals drift if that is not disruptive: it sets live values again, and stages kernel arguments
// again that are missing from the boot menu. The rollout handles the remaining differences.
func (s *settings) checkDrift(ctx context.Context, clientNode *v1alpha1.StorageClientNode, permitUndecided bool) {
	spec := clientNode.Spec
	p, err := s.machine.beginPass(spec, s.allowed)
	if err != nil {
		s.keepOutcome(rejectAll(spec, err))
		return
	}
	p.followMounts(ctx)
	p.observeAll(ctx)
	p.partUnconfirmed()
	p.unconfirmedNote = s.proof.outage
	p.keepFailures(s.outcome.settings)
	now := s.proof.clock.Now()
	heal, alone := s.sortDrift(p, p.sumUp(spec).drifted, now)
	if len(heal) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Healing drift", "settings", text.List(heal))
	}
	retry := s.outcome.failed && !now.Before(s.retryAt) || p.hasUnconfirmed() && s.machine.timeUntil(s.proof.retryAt) == 0
	if len(heal) > 0 || retry || !s.outcome.carriedOut || p.hasMoreToDo() {
		s.apply(ctx, clientNode, permitUndecided)
	} else {
		s.outcome = p.sumUp(spec)
	}
	for i := range s.outcome.settings {
		if status := &s.outcome.settings[i]; status.State == v1alpha1.SettingDrifted && slices.Contains(alone, status.Key) {
			status.Message = leftAloneMessage
		}
	}
}

// sortDrift separates settings to heal from settings that drift too often. The read-ahead of volumes has no limit: the host's rule for
// the filesystem type may override it on a new mount.
func (s *settings) sortDrift(p *pass, drifted []string, now time.Time) (heal, alone []string) {
	for _, key := range drifted {
		_, ofVolume := volumeOf(key)
		switch {
		case ofVolume:
			heal = append(heal, key)
		case s.heals.mayHeal(key, now):
			s.drift.WithLabelValues(key).Inc()
			s.healed.addDrift(p.item(key), now)
			heal = append(heal, key)
		default:
			alone = append(alone, key)
		}
	}
	return heal, alone
}

// prove continues the proof of unconfirmed settings. When the proof finishes, it applies the settings again to write their files.
func (s *settings) prove(
	ctx context.Context, clientNode *v1alpha1.StorageClientNode, permitUndecided bool, prove func(context.Context, int64) error,
) {
	if s.proof.run(ctx, clientNode.Spec.Canary, callbacks{prove: prove, note: s.noteUnconfirmed}) {
		s.apply(ctx, clientNode, permitUndecided)
	}
}

// noteUnconfirmed sets the message of the settings under test in the status.
func (s *settings) noteUnconfirmed(message string) {
	u, _ := s.machine.unconfirmed()
	for i := range s.outcome.settings {
		if status := &s.outcome.settings[i]; u.Settings[status.Key].Entry.Applied != "" {
			status.Message, status.WaitsFor = message, v1alpha1.WaitsForConnections
		}
	}
}

// forPermit returns the settings state that a permit decision needs.
func (s *settings) forPermit() permit.Settings {
	return permit.Settings{
		Statuses: s.outcome.settings, RebootBy: s.outcome.rebootBy, CarriedOut: s.outcome.carriedOut, RestoresOnly: s.machine.restoresOnly(),
	}
}

// report sets the settings fields of the status. It reports the hash once all settings were processed, including failed ones. The hash
// identifies the settings that the states refer to.
func (s *settings) report(status *v1alpha1.StorageClientNodeStatus, hash string) {
	status.ObservedGeneration = s.applied.generation
	if s.outcome.carriedOut {
		status.Hash = hash
	}
	status.Bootloader = s.bootloader.DeepCopy()
	status.Settings = settingStatuses(s.outcome.settings, s.healed)
	status.RebootRequired = len(s.outcome.rebootBy) > 0
	status.RebootRequiredBy = bounds.First(slices.Sorted(slices.Values(s.outcome.rebootBy)), maxRebootBy)
	status.Restored = s.outcome.restored
}

func settingStatuses(settings []v1alpha1.SettingStatus, undone healed) (list []v1alpha1.SettingStatus) {
	for _, s := range bounds.First(settings, maxSettings) {
		s.Desired = text.Cut(s.Desired, maxValue)
		s.Observed = text.Cut(s.Observed, bounds.Observed)
		s.Original = text.Cut(s.Original, bounds.Observed)
		s.Message = text.Cut(s.Message, bounds.Message)
		if drift, ok := undone[s.Key]; ok {
			s.Drift = &drift
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b v1alpha1.SettingStatus) int { return strings.Compare(a.Key, b.Key) })
	return list
}

var (
	settingState = prometheus.NewDesc("storageclient_agent_setting_state",
		"1 for each setting of the node, with its last observed state. The observation is at most one minute old.",
		[]string{"key", "state"}, nil)
	settingValue = prometheus.NewDesc("storageclient_agent_setting_value",
		"Numbers of the effective value, by place: net.ipv4.tcp_rmem has 1, 2, and 3. Absent if the value is unknown or not a number.",
		[]string{"key", "place"}, nil)
)

// settingMetrics exports the last observed state of the settings. A scrape may read it during a pass.
type settingMetrics struct {
	observed atomic.Pointer[[]v1alpha1.SettingStatus]
}

func (m *settingMetrics) note(settings []v1alpha1.SettingStatus) { m.observed.Store(&settings) }

// Describe implements prometheus.Collector.
func (*settingMetrics) Describe(descriptors chan<- *prometheus.Desc) {
	descriptors <- settingState
	descriptors <- settingValue
}

// Collect implements prometheus.Collector. It returns no metrics before the first pass.
func (m *settingMetrics) Collect(out chan<- prometheus.Metric) {
	settings := m.observed.Load()
	if settings == nil {
		return
	}
	for _, s := range *settings {
		out <- prometheus.MustNewConstMetric(settingState, prometheus.GaugeValue, 1, s.Key, string(s.State))
		for i, word := range strings.Fields(s.Observed) {
			number, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				break
			}
			out <- prometheus.MustNewConstMetric(settingValue, prometheus.GaugeValue, float64(number), s.Key, strconv.Itoa(i+1))
		}
	}
}
