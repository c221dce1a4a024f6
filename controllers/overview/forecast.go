package overview

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/windows"
)

const (
	// NominalDrain is what a drain takes where nothing holds it up. It is for orientation, and was not measured on
	// anybody's nodes.
	NominalDrain = 2 * time.Minute
	// NominalBoot is what a boot takes: a virtual machine boots in one to three minutes, a server with much memory takes
	// longer.
	NominalBoot = 3 * time.Minute
	// maxOpenings is how many openings of the windows a forecast looks ahead.
	maxOpenings = 1000
)

// Fleet is what bounds a rollout beyond the profile's own rules.
type Fleet struct {
	// Matched is how many nodes the profile selects, All how many the cluster has.
	Matched, All int
	// MaxUnavailable is the cluster's budget, the manager's --max-unavailable.
	MaxUnavailable intstr.IntOrString
}

// Forecast tells when reboots can happen at the earliest. Both times are zero where the windows never open.
type Forecast struct {
	// First is when the first node may be cordoned, as far as the windows go.
	First time.Time
	// Last is when the last node can be back in service; zero too where that is more than a thousand openings away, or no
	// opening lasts as long as a nominal drain.
	Last time.Time
}

// ForecastReboots tells when a number of reboots can happen at the earliest, had they been allowed now. It is a lower bound,
// derived as follows: the smaller of rollout.maxUnavailable and the cluster's budget go at a time, as a wave. Each wave
// takes NominalDrain and NominalBoot, with the profile's settleSeconds and drain.excludeFromLoadBalancersSeconds. A wave
// is drained while the profile's windows are open: one whose drain does not end before they close begins at the next
// opening, while boots and settling finish outside. The canary's soak, zones in turn, other profiles' rules,
// retries and pods that are slow to go come on top.
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

// wavesWithin is how many waves, one after the other, end their drain within a time.
func wavesWithin(within, drain, wave time.Duration) int {
	if within < drain {
		return 0
	}
	return int((within-drain)/wave) + 1
}

// nextOpenSpan is the first time, from a moment on, in which windows are open without a break. It is followed for as long as is
// asked for; a zero end: always open from there on. Both are zero where they never open.
func nextOpenSpan(set windows.Set, from time.Time, enough time.Duration) (begin, end time.Time) {
	open, again := set.At(from)
	begin = from
	if !open {
		if begin = again; begin.IsZero() {
			return begin, begin
		}
		_, again = set.At(begin)
	}
	for again.Before(begin.Add(enough)) && !again.IsZero() {
		open, next := set.At(again)
		if !open {
			break
		}
		again = next
	}
	return begin, again
}
