package overview

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/windows"
)

const (
	// NominalDrain is the assumed duration of a drain without delays.
	NominalDrain = 2 * time.Minute
	// NominalBoot is the assumed duration of a boot. A virtual machine boots in one to three minutes; a server with much memory takes longer.
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
	// Last is the earliest time at which the last node is back in service. Zero if there are no reboots, if they need more than a thousand openings,
	// or if every opening is shorter than a drain.
	Last time.Time
}

// ForecastReboots returns the earliest times for a number of reboots that are allowed from now on. The result is a lower bound. Nodes reboot in
// waves, as many at a time as the smaller of rollout.maxUnavailable and the cluster's budget. Each wave takes NominalDrain and NominalBoot, with the
// profile's settleSeconds and drain.excludeFromLoadBalancersSeconds. Waves are drained while the profile's windows are open. A wave whose drain would
// not finish before they close starts at the next opening. Boots and settling may finish after they close. Additional delays are not included: the
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
			// The last wave finishes its drain before the windows close.
			fit = min(waves, int(max(0, end.Sub(begin)-drain+wave)/wave))
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

// nextOpenSpan returns the first span from a time on in which windows are open without a break. The span may end too early once it is as long as
// enough: its exact end is then irrelevant. A zero end means that the windows stay open. Both are zero if they never open.
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
