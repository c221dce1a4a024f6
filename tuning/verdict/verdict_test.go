package verdict_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/verdict"
)

// allCells enables the whole grid of TestEqualListsAreRarelyCalledDifferent.
var allCells = flag.Bool("all-cells", false, "play each number of rounds from 5 to 64 with 1 to 6 phases")

// sample has the numbers of one phase in a form that tests can multiply.
type sample struct {
	Name    string
	Units   int64
	Seconds float64
	// Counts maps operations, BytesSent and BytesReceived to their numbers.
	Counts map[string]float64
}

// passWith returns a scheduled pass with these phases.
func passWith(slot v1alpha1.NodeTrialPass, samples ...sample) v1alpha1.TrialPass {
	pass := v1alpha1.TrialPass{Round: slot.Round, Arm: slot.Arm}
	for _, s := range samples {
		phase := v1alpha1.TrialPassPhase{
			Name: s.Name, Units: s.Units, Microseconds: int64(math.Round(s.Seconds * 1e6)),
			BytesSent: int64(math.Round(s.Counts[verdict.BytesSent])), BytesReceived: int64(math.Round(s.Counts[verdict.BytesReceived])),
		}
		for _, name := range slices.Sorted(maps.Keys(s.Counts)) {
			if name != verdict.BytesSent && name != verdict.BytesReceived {
				phase.Operations = append(phase.Operations, v1alpha1.TrialOperation{Name: name, Count: int64(math.Round(s.Counts[name]))})
			}
		}
		pass.Phases = append(pass.Phases, phase)
	}
	return pass
}

// machine generates passes. Times are log-normal: noise is the standard deviation of the paired differences of their logarithms. Repeated
// counts differ by at most countNoise.
type machine struct {
	random *rand.Rand
	phases int
	noise  float64
	// tails is the share of passes that take ten times as long.
	tails float64
	// drift is the growth of the logarithm of times from the first round to the last. order is the growth from the first pass of a round to
	// the last.
	drift, order float64
	countNoise   float64
	counts       bool
	// faster and fewer are the factors of the candidate's times and counts; 0 is 1.
	faster, fewer float64
}

func (m machine) passes(rounds int, seed uint64) []v1alpha1.TrialPass {
	passes := make([]v1alpha1.TrialPass, 0, 3*rounds)
	for i, slot := range verdict.Schedule(int32(rounds), seed) {
		var samples []sample
		for number := range m.phases {
			samples = append(samples, m.phase(number, slot.Arm, float64(i)/float64(3*rounds), i%3))
		}
		passes = append(passes, passWith(slot, samples...))
	}
	return passes
}

func (m machine) phase(number int, arm v1alpha1.TrialArm, progress float64, place int) sample {
	faster, fewer := 1.0, 1.0
	if arm == v1alpha1.ArmAfter {
		faster, fewer = or1(m.faster), or1(m.fewer)
	}
	logarithm := m.random.NormFloat64()*m.noise/math.Sqrt2 + m.drift*progress + m.order*float64(place)
	if m.random.Float64() < m.tails {
		logarithm += math.Log(10)
	}
	p := sample{Name: fmt.Sprintf("listing %d", number+1), Units: 5000, Seconds: 2 * faster * math.Exp(logarithm)}
	if m.counts {
		vary := func(n float64) float64 { return n * fewer * math.Exp(m.random.NormFloat64()*m.countNoise) }
		p.Counts = map[string]float64{"GETATTR": vary(5000), "READDIR": vary(60), verdict.BytesReceived: vary(2 << 20)}
	}
	return p
}

func or1(f float64) float64 {
	if f == 0 {
		return 1
	}
	return f
}

const trials = 1000

// shareOf returns the number of trials, out of 1,000, that have this outcome.
func shareOf(m machine, rounds int, goal verdict.Goal, outcomes ...v1alpha1.TrialVerdict) (n int) {
	m.random = rand.New(rand.NewPCG(uint64(rounds), uint64(m.phases)))
	for seed := range uint64(trials) {
		got := verdict.Evaluate(m.passes(rounds, seed), goal, verdict.Work{}).Outcome
		for _, outcome := range outcomes {
			if got == outcome {
				n++
			}
		}
	}
	return n
}

// equals are machines on which the arms differ only by chance.
var equals = map[string]machine{
	"quiet":                         {noise: 0.1},
	"noisy, with counts":            {noise: 0.5, counts: true, countNoise: 0.02},
	"busy, and counts vary as well": {noise: 2, counts: true, countNoise: 0.5},
	"one pass in seven takes long":  {noise: 0.2, tails: 0.15},
	"drift and an order effect":     {noise: 0.1, drift: 1, order: 0.4},
}

func TestEqualListsAreRarelyCalledDifferent(t *testing.T) {
	rounds, phases := []int{8, 33}, []int{1, 6}
	if *allCells {
		rounds, phases = nil, []int{1, 2, 3, 4, 5, 6}
		for n := 5; n <= 64; n++ {
			rounds = append(rounds, n)
		}
	}
	for name, m := range equals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worst, sum, cells := 0, 0, 0
			for _, n := range rounds {
				for _, m.phases = range phases {
					called := shareOf(m, n, verdict.Goal{}, verdict.Better, verdict.Worse, verdict.FewerRequests)
					worst, sum, cells = max(worst, called), sum+called, cells+1
					if called > trials/100 {
						t.Errorf("%d rounds, %d phases: got %d of %d trials of equal lists reported as different", n, m.phases, called, trials)
					}
				}
			}
			t.Logf("at most %d of %d, %.1f on average of %d cells", worst, trials, float64(sum)/float64(cells), cells)
		})
	}
}

// A second evaluation does not increase the rate of false differences. The first one uses the counts after the first rounds, and the second
// one uses all data at the end.
func TestTwoLooksAtEqualLists(t *testing.T) {
	for name, m := range equals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.phases, m.random = 2, rand.New(rand.NewPCG(5, 6))
			called := 0
			for seed := range uint64(trials) {
				passes := m.passes(20, seed)
				goal := verdict.Goal{Metric: []string{verdict.Seconds, verdict.Operations}[seed%2]}
				first := slices.DeleteFunc(slices.Clone(passes), func(p v1alpha1.TrialPass) bool { return p.Round > verdict.FirstLook })
				last := verdict.Evaluate(passes, goal, verdict.Work{}).Outcome
				if verdict.Evaluate(first, goal, verdict.Work{}).IsDecidedByCounts() || last != verdict.NoDifference && last != verdict.Undecided {
					called++
				}
			}
			if called > trials/100 {
				t.Errorf("got %d of %d trials of equal lists reported as different", called, trials)
			}
			t.Logf("%d of %d", called, trials)
		})
	}
}

// The first evaluation ends a trial if its goal is a count with a clear difference. Neither times nor counts end a trial whose goal is time.
func TestTheFirstLook(t *testing.T) {
	counted := verdict.Goal{Metric: verdict.Operations}
	m := machine{phases: 2, noise: 0.2, counts: true, countNoise: 0.1, fewer: 0.01, random: rand.New(rand.NewPCG(1, 1))}
	passes := m.passes(verdict.FirstLook, 1)
	if v := verdict.Evaluate(passes, counted, verdict.Work{}); v.Outcome != verdict.FewerRequests || !v.IsDecidedByCounts() {
		t.Errorf("%s: %+v", v.Why, v.Results)
	}
	if v := verdict.Evaluate(passes, verdict.Goal{}, verdict.Work{}); v.Outcome != verdict.FewerRequests || v.IsDecidedByCounts() {
		t.Errorf("got %s, by counts: %v", v.Why, v.IsDecidedByCounts())
	}
	m = machine{phases: 2, noise: 0.01, faster: 0.1, random: rand.New(rand.NewPCG(1, 1))}
	if v := verdict.Evaluate(m.passes(verdict.FirstLook, 1), verdict.Goal{}, verdict.Work{}); v.Outcome != verdict.Better || v.IsDecidedByCounts() {
		t.Errorf("got %s, by counts: %v", v.Why, v.IsDecidedByCounts())
	}
}

// third is the goal of 1/1.3 of the time. Nine of ten trials decide if the difference is twice the goal.
var third = verdict.Goal{BetterByPercent: ptr.To[int32](23)}

func TestRoundsThatDecideThirtyPercent(t *testing.T) {
	for _, c := range []struct {
		noise           float64
		rounds          int
		atLeast, atMost int
	}{
		{noise: 0.1, rounds: 6, atMost: 100},
		{noise: 0.15, rounds: 6, atLeast: 300, atMost: trials},
		{noise: 0.15, rounds: 12, atMost: 100},
		{noise: 0.3, rounds: 33, atLeast: 50, atMost: 160},
		{noise: 0.3, rounds: 40, atMost: 100},
		{noise: 0.6, rounds: 64, atLeast: 400, atMost: trials},
		{noise: 0.6, rounds: 128, atMost: 140},
	} {
		m := machine{phases: 1, noise: c.noise, faster: 1 / 1.3 / 1.3}
		undecided := shareOf(m, c.rounds, third, verdict.Undecided, verdict.NoDifference)
		wrong := shareOf(m, c.rounds, third, verdict.Worse)
		if undecided < c.atLeast || undecided > c.atMost || wrong > 0 {
			t.Errorf("noise %.2f, %d rounds: got %d of %d undecided, want %d to %d; %d worse, want none",
				c.noise, c.rounds, undecided, trials, c.atLeast, c.atMost, wrong)
		}
		t.Logf("noise %.2f, %d rounds: %d of %d undecided", c.noise, c.rounds, undecided, trials)
	}
}

func TestIntervalsContainTheTrueRatio(t *testing.T) {
	for name, m := range equals {
		t.Run(name, func(t *testing.T) {
			m.phases, m.faster, m.fewer = 2, 0.7, 1.5
			m.random = rand.New(rand.NewPCG(1, 2))
			missed := 0
			for seed := range uint64(trials) {
				if slices.ContainsFunc(verdict.Evaluate(m.passes(12, seed), verdict.Goal{}, verdict.Work{}).Results, func(r verdict.Result) bool {
					truth := m.fewer
					if r.Metric == verdict.Seconds {
						truth = m.faster
					}
					return r.Decides && (r.Low > truth*1.000001 || r.High < truth*0.999999)
				}) {
					missed++
				}
			}
			if missed > trials/20 {
				t.Errorf("got %d of %d trials with an interval that does not contain the true value", missed, trials)
			}
			t.Logf("%d of %d", missed, trials)
		})
	}
}

func TestRoundsNeededAreEnough(t *testing.T) {
	for _, noise := range []float64{0.1, 0.25} {
		m := machine{phases: 1, noise: noise, faster: 1 / 1.3 / 1.3, random: rand.New(rand.NewPCG(3, 4))}
		undecided, all := 0, 0
		const series = 60
		for seed := range uint64(series) {
			rounds, _ := verdict.RoundsNeeded(m.passes(8, seed), third)
			all += rounds
			if verdict.Evaluate(m.passes(rounds, seed), third, verdict.Work{}).Outcome != verdict.Better {
				undecided++
			}
		}
		if undecided > series/10 {
			t.Errorf("noise %.2f: %d of %d undecided", noise, undecided, series)
		}
		t.Logf("noise %.2f: %d rounds on average, %d of %d undecided", noise, all/series, undecided, series)
	}
}
