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

// Schedule returns the passes to run in order, round by round from 1. The seed determines the order of the arms. Each arm is first, second or last
// at most once more often than another arm, and follows the candidate equally often. A longer schedule starts with the shorter schedule of the
// same seed.
func Schedule(rounds int32, seed uint64) []v1alpha1.NodeTrialPass {
	draw := random{state: seed}
	order := orderer{draw: random{state: draw.next()}}
	passes := make([]v1alpha1.NodeTrialPass, 0, len(arms)*int(max(0, rounds)))
	for round := range rounds {
		for _, arm := range order.next() {
			passes = append(passes, v1alpha1.NodeTrialPass{Round: round + 1, Arm: arm})
		}
	}
	return passes
}

// orderer draws the order of the arms in each round. Three rounds form a Latin square: each arm has each position once. The next three
// are its mirror image.
//
// A pass can change the server's caches, which changes the time of the pass after it. So each arm follows the candidate equally often:
// after a round whose last pass is the candidate, the next round starts with it.
type orderer struct {
	draw     random
	square   [][3]v1alpha1.TrialArm
	mirrored bool
	// rotation is the number of orders by which the next square is rotated.
	rotation int
	started  bool
}

func (o *orderer) next() [3]v1alpha1.TrialArm {
	if !o.started {
		o.mirrored, o.rotation, o.started = o.draw.below(2) == 1, (1+o.draw.below(3))%3, true
	}
	if len(o.square) == 0 {
		square := latinSquare(o.mirrored)
		o.square, o.mirrored = slices.Concat(square[o.rotation:], square[:o.rotation]), !o.mirrored
		// A trial that starts with the candidate ends each square with it. In all others, the two orders stay together.
		if o.rotation != 1 {
			o.rotation = (2 + o.draw.below(2)) % 3
		}
	}
	order := o.square[0]
	o.square = o.square[1:]
	return order
}

// latinSquare returns the three orders of a Latin square. The candidate's positions are last, first and second.
func latinSquare(mirrored bool) [][3]v1alpha1.TrialArm {
	const before, again, after = v1alpha1.ArmBefore, v1alpha1.ArmAgain, v1alpha1.ArmAfter
	if mirrored {
		return [][3]v1alpha1.TrialArm{{again, before, after}, {after, again, before}, {before, after, again}}
	}
	return [][3]v1alpha1.TrialArm{{before, again, after}, {after, before, again}, {again, after, before}}
}

// random is SplitMix64: the same seed gives the same numbers in every release.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// uniform returns a number above 0 and below 1.
func (r *random) uniform() float64 { return (float64(r.next()>>11) + 0.5) / (1 << 53) }

func (r *random) normal() float64 {
	return math.Sqrt(-2*math.Log(r.uniform())) * math.Cos(2*math.Pi*r.uniform())
}

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
