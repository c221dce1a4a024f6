package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// MaxRounds is the maximum of RoundsNeeded.
const MaxRounds = 128

const (
	// maxUndecided is the maximum share of undecided trials if the difference is twice the goal.
	maxUndecided = 0.10
	// playedTrials is the number of simulated trials for this share.
	playedTrials = 400
	// fewestForNoise is the minimum number of rounds to estimate the noise of the current options.
	fewestForNoise = 3
)

// RoundsNeeded estimates the total number of rounds with which nine of ten trials decide if the difference is twice the goal. The
// maximum is MaxRounds; reason explains the number. The estimate compares the current options with themselves in the finished rounds. It
// ignores the candidate's passes, because additional looks at the result find differences by chance.
func RoundsNeeded(passes []v1alpha1.TrialPass, goal Goal) (rounds int, reason string) {
	phases := phasesOf(tabulate(passes), Work{})
	levels := levelsFor(phases, goal)
	fewest, level := levels.fewestFor(goal), levels.of(goal.metric())
	longest, known := longestWith(phases, goal.metric())
	if !known {
		return fewest, fmt.Sprintf("%s at least: too few have finished to show how much %s differ with the same options.", text.Count(fewest, "round"),
			goal.metric())
	}
	noise := longest.noise(goal.metric())
	steps := ladder(fewest)
	undecided := func(n int) float64 { return simulateUndecided(n, noise, level, goal.margin()) }
	i := sort.Search(len(steps), func(i int) bool { return undecided(steps[i]) <= maxUndecided })
	seen := fmt.Sprintf("%s in %s differ by a factor of %s with the same options", goal.metric(), longest.name, number(math.Exp(noise)))
	twice := number(100 * (1 - math.Exp(-2*goal.margin())))
	if i == len(steps) {
		return MaxRounds, fmt.Sprintf("%s: the maximum of %d rounds leaves a difference of %s %% undecided in %.0f of 100 trials.",
			seen, MaxRounds, twice, 100*undecided(MaxRounds))
	}
	return steps[i], fmt.Sprintf("%s: %s decide in nine of ten trials if the difference is %s %%.", seen, text.Count(steps[i], "round"), twice)
}

// longestWith returns the longest phase that has the metric and enough rounds.
func longestWith(phases []phase, metric string) (phase, bool) {
	known := slices.DeleteFunc(slices.Clone(phases), func(p phase) bool {
		return len(p.triples) < fewestForNoise || p.metricIndex(metric) < 0
	})
	if len(known) == 0 {
		return phase{}, false
	}
	seconds := func(p phase) float64 {
		before, _ := secondsMetric().medians(p.triples)
		return before
	}
	return slices.MaxFunc(known, func(a, b phase) int { return cmp.Compare(seconds(a), seconds(b)) }), true
}

func (p phase) metricIndex(name string) int {
	return slices.IndexFunc(p.metrics, func(m metric) bool { return m.name == name })
}

// noise returns the standard deviation of the logarithms of the ratios between the two passes with the current options. Few rounds can
// underestimate it, so the result is a value that four of five such series do not exceed.
func (p phase) noise(metric string) float64 {
	var sum float64
	for _, round := range p.metrics[p.metricIndex(metric)].logarithms(p.triples) {
		sum += (round[1] - round[0]) * (round[1] - round[0])
	}
	// The mean difference of equal options is zero, so no degree of freedom is lost.
	return math.Sqrt(sum / chiSquaredLow(float64(len(p.triples))))
}

// chiSquaredLow returns the 20 % quantile of the chi-squared distribution, by Wilson and Hilferty.
func chiSquaredLow(degrees float64) float64 {
	const quantile = -0.8416
	return degrees * math.Pow(1-2/(9*degrees)+quantile*math.Sqrt(2/(9*degrees)), 3)
}

// ladder returns the numbers of rounds to try: all small numbers, then growing steps.
func ladder(fewest int) (steps []int) {
	for n := fewest; n < MaxRounds; n += max(1, n/8) {
		steps = append(steps, n)
	}
	return append(steps, MaxRounds)
}

// simulateUndecided simulates trials whose candidate is better by twice the margin. It returns the share that does not end as Better.
func simulateUndecided(rounds int, noise, level, margin float64) float64 {
	draw := random{state: 1}
	rank := rankOf(rounds, level)
	undecided := 0
	for range playedTrials {
		played := make([][3]float64, rounds)
		for i := range played {
			for arm := range arms {
				played[i][arm] = draw.normal() * noise / math.Sqrt2
			}
			played[i][2] -= 2 * margin
		}
		if outcome, _ := compare(played, rank).outcome(margin); outcome != Better {
			undecided++
		}
	}
	return float64(undecided) / playedTrials
}
