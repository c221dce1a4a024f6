package verdict

import (
	"math"
	"slices"
)

// interval is of the logarithm of a ratio.
type interval struct{ low, high float64 }

func (i interval) hull(other interval) interval {
	return interval{min(i.low, other.low), max(i.high, other.high)}
}

// rounding is what logarithms of equal numbers may differ by.
const rounding = 1e-9

// outcome is what an interval says where a difference of up to the margin is none. Less is better.
func (i interval) outcome(margin float64) Outcome {
	switch {
	case i.low >= -margin-rounding && i.high <= margin+rounding:
		return NoDifference
	case i.high < -rounding:
		return Better
	case i.low > rounding:
		return Worse
	}
	return Undecided
}

// between is the interval from the rank-th smallest to the rank-th largest, and the median.
func between(differences []float64, rank int) (within interval, median float64) {
	sorted := slices.Sorted(slices.Values(differences))
	n := len(sorted)
	return interval{sorted[rank-1], sorted[n-rank]}, (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// rankOf is how far the ends of an interval may lie from the extremes of so many rounds: the candidate differs where it lies beyond
// the list in force in all rounds but fewer than that, and in all but fewer than that beyond the same list once more. Were all three
// the same, each order of the three would be as likely in each round, and at most a share of level would differ by chance. It is 0
// where there are too few rounds for any such statement.
func rankOf(rounds int, level float64) int {
	p := newEqualArms(rounds)
	atMost, rank := 0.0, 0
	for misses := 0; 2*misses < rounds; misses++ {
		for fewer := range misses {
			atMost += 2 * p.bothMiss(misses, fewer)
		}
		atMost += p.bothMiss(misses, misses)
		if 2*atMost > level {
			break
		}
		rank = misses + 1
	}
	return rank
}

const ln3 = 1.0986122886681098

// equalArms is so many rounds of three arms that are the same, with the logarithms of the factorials up to that number.
type equalArms struct {
	rounds     int
	factorials []float64
}

func newEqualArms(rounds int) equalArms {
	a := equalArms{rounds: rounds, factorials: make([]float64, rounds+1)}
	for i := range rounds {
		a.factorials[i+1] = a.factorials[i] + math.Log(float64(i+1))
	}
	return a
}

// bothMiss is how likely the candidate is not below the one arm in misses rounds, and not below the other in others: in a third of
// all rounds it is below both, in a third below neither, in a sixth each below one of them.
func (a equalArms) bothMiss(misses, others int) (probability float64) {
	for neither := max(0, misses+others-a.rounds); neither <= min(misses, others); neither++ {
		one, other := misses-neither, others-neither
		both := a.rounds - one - other - neither
		ways := a.factorials[a.rounds] - a.factorials[both] - a.factorials[one] - a.factorials[other] - a.factorials[neither]
		probability += math.Exp(ways - float64(both+neither)*ln3 - float64(one+other)*(ln3+math.Ln2))
	}
	return probability
}

// comparison is the candidate against the list in force, of one metric, in logarithms.
type comparison struct {
	ratio float64
	// within is the interval of the ratio: the candidate against the list in force and against the same list once more, whichever
	// reaches farther. same is the list in force against itself.
	within, same interval
	rounds       int
}

// compare has the three numbers of each round; rank is at least 1.
func compare(rounds [][3]float64, rank int) comparison {
	var first, second, same []float64
	for _, r := range rounds {
		before, again, after := r[0], r[1], r[2]
		first, second, same = append(first, after-before), append(second, after-again), append(same, again-before)
	}
	one, oneMedian := between(first, rank)
	other, otherMedian := between(second, rank)
	c := comparison{within: one.hull(other), ratio: (oneMedian + otherMedian) / 2, rounds: len(rounds)}
	c.same, _ = between(same, rank)
	return c
}

// noise says why a comparison decides nothing although its interval would: the list in force differs from itself.
type noise int

const (
	quiet noise = iota
	// differs: its own interval says so. wide: it differs from round to round by more than the candidate does.
	differs
	wide
)

func (c comparison) outcome(margin float64) (Outcome, noise) {
	outcome := c.within.outcome(margin)
	if same := c.same.outcome(margin); same == Better || same == Worse {
		return Undecided, differs
	}
	if (outcome == Better || outcome == Worse) && c.ratio >= c.same.low && c.ratio <= c.same.high {
		return Undecided, wide
	}
	return outcome, quiet
}
