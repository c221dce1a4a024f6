package overview

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/windows"
)

const (
	// NominalDrain is the time of a drain without delays. It is an assumption for orientation, not a measurement.
	NominalDrain = 2 * time.Minute
	// NominalBoot is the time of a boot: a virtual machine boots in one to three minutes, a server with much memory takes longer.
	NominalBoot = 3 * time.Minute
	maxOpenings = 1000
)

// Fleet contains the limits of a rollout in addition to the profile's rules.
type Fleet struct {
	// Matched is the number of nodes that the profile selects, All the number of nodes in the cluster.
	Matched, All int
	// MaxUnavailable is the cluster's budget, the manager's --max-unavailable.
	MaxUnavailable intstr.IntOrString
}

// Forecast contains the earliest times of reboots. Both times are zero if the windows never open.
type Forecast struct {
	// First is the earliest time for the cordon of the first node, based on the windows.
	First time.Time
	// Last is the earliest time at which the last node is back in service. It is also zero if that is more than a thousand openings away, or if no
	// opening lasts as long as a nominal drain.
	Last time.Time
}

// ForecastReboots returns the earliest times for a number of reboots that are allowed from now on. The result is a lower bound. Nodes reboot in
// waves, as many at a time as the smaller of rollout.maxUnavailable and the cluster's budget. Each wave takes NominalDrain and NominalBoot, with
// the profile's settleSeconds and drain.excludeFromLoadBalancersSeconds. Waves are drained while the profile's windows are open. A wave whose drain
// would not finish before they close starts at the next opening; boots and settling finish outside. Additional delays are not included: the
// canary's soak, zones in turn, other profiles' rules, retries, and slow pods.
func ForecastReboots(profile *v1alpha1.StorageClientProfile, reboots int, fleet Fleet, now time.Time) Forecast {
	open, err := windows.ParseSet(profile.Spec.Rollout.Windows)
	if err != nil {
		// Such a profile is Stalled.
		return Forecast{}
	}
	begin, _ := nextOpenSpan(open, now, 0)
	out := Forecast{First: begin}
	if begin.IsZero() || reboots == 0 {
		return out
	}
	rules := profile.Spec.WithDefaults().Rollout
	atOnce := min(v1alpha1.ResolveShare(*rules.MaxUnavailable, fleet.Matched), v1alpha1.ResolveShare(fleet.MaxUnavailable, fleet.All))
	waves := (reboots + atOnce - 1) / atOnce
	drain := NominalDrain + time.Duration(rules.Drain.ExcludeFromLoadBalancersSeconds)*time.Second
	wave := drain + NominalBoot + time.Duration(*rules.SettleSeconds)*time.Second
	for range maxOpenings {
		var end time.Time
		if begin, end = nextOpenSpan(open, begin, time.Duration(waves)*wave); begin.IsZero() {
			return out
		}
		fit := waves
		if !end.IsZero() {
			fit = min(waves, wavesWithin(end.Sub(begin), drain, wave))
		}
		waves -= fit
		begin = begin.Add(time.Duration(fit) * wave)
		if waves == 0 {
			out.Last = begin
			return out
		}
		if end.After(begin) {
			begin = end
		}
	}
	return out
}

// wavesWithin returns the number of consecutive waves that finish their drain within a time.
func wavesWithin(within, drain, wave time.Duration) int {
	if within < drain {
		return 0
	}
	return int((within-drain)/wave) + 1
}

// nextOpenSpan returns the first span after a time in which windows are open without a break. It follows the span for at least the duration enough;
// a zero end means that the windows stay open. Both are zero if they never open.
func nextOpenSpan(set windows.Set, from time.Time, enough time.Duration) (begin, end time.Time) {
	open, changeAt := set.At(from)
	begin = from
	if !open {
		if begin = changeAt; begin.IsZero() {
			return begin, begin
		}
		_, changeAt = set.At(begin)
	}
	for changeAt.Before(begin.Add(enough)) && !changeAt.IsZero() {
		open, next := set.At(changeAt)
		if !open {
			break
		}
		changeAt = next
	}
	return begin, changeAt
}
