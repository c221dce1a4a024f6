package agent

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
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

// Bounds of the status, in characters and items.
const (
	maxValue    = 256
	maxSettings = 512
	maxRebootBy = 64
)

// settings are the node's settings: what is declared of them, and how they stand.
type settings struct {
	machine Machine
	allowed Allowed
	proof   proof

	// applied is the version of spec that outcome speaks of, declared what it says of settings.
	applied  version
	declared declaration
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

// version names one spec of one client node.
type version struct {
	uid        types.UID
	generation int64
}

func versionOf(clientNode *v1alpha1.StorageClientNode) version {
	return version{uid: clientNode.UID, generation: clientNode.Generation}
}

// declaration is all of a spec but its volumes and orders: if only these change, neither the count of heals nor a wait is reset.
type declaration struct {
	Settings        []v1alpha1.NodeSetting
	Hash, BootHash  string
	Canary, Release bool
	RebootPermit    *v1alpha1.RebootPermit
}

func declarationOf(spec *v1alpha1.StorageClientNodeSpec) declaration {
	return declaration{
		Settings: spec.Settings, Hash: spec.Hash, BootHash: spec.BootHash, Canary: spec.Canary, Release: spec.Release, RebootPermit: spec.RebootPermit,
	}
}

func newSettings(machine Machine, allowed Allowed, clock clock.Clock, bootID string) *settings {
	machine.attended = true
	return &settings{
		machine: machine, allowed: allowed,
		proof: proof{machine: machine, clock: clock, bootID: bootID, jitter: rand.N[time.Duration]},
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "storageclient_agent_drift_total",
			Help: "How often something else had changed a setting and it was set again, by its key. One that is left alone, after 5 times within an hour, counts no further.",
		}, []string{"key"}),
	}
}

// forget forgets what was applied: there is another client node, or none, whose status tells what was healed.
func (s *settings) forget(clientNode *v1alpha1.StorageClientNode) {
	s.applied, s.healed = version{}, healedIn(clientNode)
}

// due returns when something is due for the settings; zero if they wait for something else. Nothing else is changed while it is to be seen
// what a change does.
func (s *settings) due() time.Time {
	if s.proof.isOpen() {
		return s.proof.due()
	}
	return s.driftAt
}

// run applies a new spec, and checks for drift in between. It reports whether the read-ahead of mounts may have changed.
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
		s.proof.confirmation = confirmation{}
		s.apply(ctx, clientNode, permitUndecided)
	}
	s.driftAt = now.Add(driftInterval)
	s.bootloader = bootloaderStatus(s.machine.Bootloader())
	return len(s.outcome.volumes) > 0
}

// apply brings the host to what the spec wants.
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
		log.Error(err, "Cannot apply settings, nothing changed on this node", "generation", clientNode.Generation)
		s.keepOutcome(refuseAll(spec, err))
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

// applyVolumes brings the read-ahead of volumes to what the spec wants, and touches nothing else. It reports whether it could.
func (s *settings) applyVolumes(ctx context.Context, spec v1alpha1.StorageClientNodeSpec) bool {
	p, err := s.machine.beginPass(spec, s.allowed)
	if err == nil {
		p.onlyVolumes()
		err = p.carryOut(ctx)
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cannot apply the read-ahead of volumes, trying again at the next check")
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

// keepOutcome keeps an outcome, and when to try again where something failed.
func (s *settings) keepOutcome(out outcome) {
	s.outcome = out
	if !out.failed {
		s.retries = 0
		return
	}
	s.retryAt = s.proof.clock.Now().Add(waitAfter(s.retries))
	s.retries++
}

// followMounts brings settings to new mounts without waiting for the next check for drift. A mount that is new is no drift, so nothing is
// healed here, and nothing counted. What stands in the way is reported by the next check. It reports whether the read-ahead of mounts may
// have changed.
func (s *settings) followMounts(ctx context.Context, clientNode *v1alpha1.StorageClientNode) bool {
	if s.applied != versionOf(clientNode) {
		return false
	}
	if p, err := s.machine.beginPass(clientNode.Spec, s.allowed); err == nil {
		p.followMounts(ctx)
	}
	return len(s.outcome.volumes) > 0
}

// checkDrift reads every setting back. Drift is healed where that disrupts nothing: live values are set again, and a boot argument that has
// gone from the menu is staged again. What is not in force after that is left to the rollout.
func (s *settings) checkDrift(ctx context.Context, clientNode *v1alpha1.StorageClientNode, permitUndecided bool) {
	spec := clientNode.Spec
	p, err := s.machine.beginPass(spec, s.allowed)
	if err != nil {
		s.keepOutcome(refuseAll(spec, err))
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
	again := s.outcome.failed && !now.Before(s.retryAt) || p.hasUnconfirmed() && s.machine.until(s.proof.retryAt) == 0
	if len(heal) > 0 || again || !s.outcome.carriedOut || p.hasMoreToDo() {
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

// sortDrift parts what is healed from what drifts too often. The read-ahead of volumes neither counts nor is ever left alone: of a new
// mount, the host's own rule for its type may come after us.
func (s *settings) sortDrift(p *pass, drifted []string, now time.Time) (heal, alone []string) {
	for _, key := range drifted {
		_, ofVolume := volumeOf(key)
		switch {
		case ofVolume:
			heal = append(heal, key)
		case s.heals.mayHeal(key, now):
			s.drift.WithLabelValues(key).Inc()
			s.healed.addDrift(key, p.item(key).observed.Observation, now)
			heal = append(heal, key)
		default:
			alone = append(alone, key)
		}
	}
	return heal, alone
}

// prove goes on with the proof of what is unconfirmed. Once that has ended the files follow.
func (s *settings) prove(ctx context.Context, clientNode *v1alpha1.StorageClientNode, permitUndecided bool, prove func(context.Context, int64) error) {
	if s.proof.run(ctx, clientNode.Spec.Canary, judges{prove: prove, note: s.noteUnconfirmed}) {
		s.apply(ctx, clientNode, permitUndecided)
	}
}

// noteUnconfirmed has the status say how what is being proven stands.
func (s *settings) noteUnconfirmed(message string) {
	u, _ := s.machine.unconfirmed()
	for i := range s.outcome.settings {
		if status := &s.outcome.settings[i]; u.Settings[status.Key].Entry.Applied != "" {
			status.Message, status.WaitsFor = message, v1alpha1.WaitsForConnections
		}
	}
}

// forPermit returns what a permit rests on.
func (s *settings) forPermit() permit.Settings {
	return permit.Settings{
		Statuses: s.outcome.settings, RebootBy: s.outcome.rebootBy, CarriedOut: s.outcome.carriedOut, RestoresOnly: s.machine.restoresOnly(),
	}
}

// report sets what is reported of the settings. The hash is reported whenever the settings were gone through, failed ones included: it says
// which settings the states speak of, and the states say how they stand.
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

func settingStatuses(settings []v1alpha1.SettingStatus, undone healed) []v1alpha1.SettingStatus {
	var list []v1alpha1.SettingStatus
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
