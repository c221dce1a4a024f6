package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/standing"
)

// Results of a drain and of a reboot, as a label.
const (
	resultDone      = "done"
	resultTimedOut  = "timed_out"
	resultWithdrawn = "withdrawn"
	resultFailed    = "failed"
)

// Transitions counts changes of nodes, from one version of their StorageClientNodes to the next.
type Transitions struct {
	prometheus.Collector

	drains, reboots *prometheus.HistogramVec
	failures        *prometheus.CounterVec
	drift           *prometheus.CounterVec
	inVain          prometheus.Counter
	// cordonFirst counts the evictions of drains that lookAhead CordonFirst allowed, and that did not lead to a reboot.
	cordonFirst prometheus.Counter
}

// NewTransitions returns counters at zero.
func NewTransitions() *Transitions {
	// From half a minute to eight hours: a drain waits for pods, a reboot for firmware.
	registry := prometheus.NewRegistry()
	buckets := prometheus.ExponentialBuckets(30, 2, 11)
	t := &Transitions{
		Collector: registry,
		drains: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "storageclient_node_drain_duration_seconds",
			Help:    "Duration of drains, from the cordon to the reboot permit (done), or to the end of the attempt (timed_out, withdrawn, failed).",
			Buckets: buckets,
		}, []string{"result"}),
		reboots: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "storageclient_node_reboot_duration_seconds",
			Help:    "Duration of reboots, from the permit to the report with the new boot ID (done), or to the end of the attempt (failed, withdrawn).",
			Buckets: buckets,
		}, []string{"result"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "storageclient_node_failures_total",
			Help: "Number of times that a node entered phase Failed, by the rollout's reason.",
		}, []string{"reason"}),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "storageclient_settings_drift_total",
			Help: "Corrected changes by other programs or users, and settings that became Drifted or Shadowed, by kind (sysctl, module, kernelArgument).",
		}, []string{"subject"}),
		inVain: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "storageclient_evictions_in_vain_total",
			Help: "Pods that were evicted by drains that did not lead to a reboot. The goal is 0.",
		}),
		cordonFirst: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "storageclient_evictions_cordon_first_total",
			Help: "Pods that were evicted by drains that did not lead to a reboot, after rollout.drain.lookAhead CordonFirst had cordoned the node.",
		}),
	}
	registry.MustRegister(t.drains, t.reboots, t.failures, t.drift, t.inVain, t.cordonFirst)
	for _, result := range []string{resultDone, resultTimedOut, resultWithdrawn, resultFailed} {
		t.drains.WithLabelValues(result)
	}
	for _, result := range []string{resultDone, resultWithdrawn, resultFailed} {
		t.reboots.WithLabelValues(result)
	}
	return t
}

// CountChanges counts the changes of a node between two versions of its StorageClientNode.
func (t *Transitions) CountChanges(before, after *v1alpha1.StorageClientNode) {
	t.countDrift(before.Status.Settings, after.Status.Settings)
	previous, current := before.Status.Rollout, after.Status.Rollout
	if previous == nil || current == nil || previous.Phase == current.Phase {
		return
	}
	if current.Phase == v1alpha1.RolloutFailed {
		t.failures.WithLabelValues(current.Reason).Inc()
	}
	switch {
	case !isInVain(previous.Phase, current):
	case previous.HeldSince != nil:
		t.cordonFirst.Add(float64(current.Evictions))
	default:
		t.inVain.Add(float64(current.Evictions))
	}
	duration, known := phaseDuration(previous, current)
	switch {
	case !known:
	case previous.Phase == v1alpha1.RolloutDraining:
		t.drains.WithLabelValues(drainResult(current)).Observe(duration.Seconds())
	case previous.Phase == v1alpha1.RolloutRebooting:
		t.reboots.WithLabelValues(rebootResult(current.Phase)).Observe(duration.Seconds())
	}
}

// isInVain reports whether a drain has just finished without a reboot: before its permit, or with a withdrawn or unused permit.
func isInVain(previous v1alpha1.RolloutPhase, current *v1alpha1.RolloutStatus) bool {
	switch current.Phase {
	case v1alpha1.RolloutDraining, v1alpha1.RolloutRebooting, v1alpha1.RolloutSettling:
		return false
	case v1alpha1.RolloutWaiting, v1alpha1.RolloutReleasing:
		return previous == v1alpha1.RolloutDraining || previous == v1alpha1.RolloutRebooting
	}
	return previous == v1alpha1.RolloutDraining || previous == v1alpha1.RolloutRebooting && current.HasFailedUnrebooted()
}

func phaseDuration(previous, current *v1alpha1.RolloutStatus) (time.Duration, bool) {
	if previous.Since == nil || current.Since == nil || current.Since.Before(previous.Since) {
		return 0, false
	}
	return current.Since.Sub(previous.Since.Time), true
}

func drainResult(current *v1alpha1.RolloutStatus) string {
	switch {
	case current.Phase == v1alpha1.RolloutRebooting:
		return resultDone
	case current.Phase == v1alpha1.RolloutFailed:
		return resultFailed
	case current.Reason == v1alpha1.RolloutReasonDrainTimedOut:
		return resultTimedOut
	}
	return resultWithdrawn
}

// rebootResult returns resultDone if the node has come back: it settles, or is up to date at once.
func rebootResult(phase v1alpha1.RolloutPhase) string {
	switch phase {
	case v1alpha1.RolloutSettling, v1alpha1.RolloutUpToDate:
		return resultDone
	case v1alpha1.RolloutFailed:
		return resultFailed
	}
	return resultWithdrawn
}

func (t *Transitions) countDrift(before, after []v1alpha1.SettingStatus) {
	old := lists.Map(lists.Pointers(before), func(s *v1alpha1.SettingStatus) (string, *v1alpha1.SettingStatus) { return s.Key, s })
	for _, s := range after {
		count, started := standing.Drift(old[s.Key], s)
		if started {
			count++
		}
		if count > 0 {
			t.drift.WithLabelValues(catalogue.Key(s.Key).Subject()).Add(float64(count))
		}
	}
}
