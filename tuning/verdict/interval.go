package verdict

import (
	"math"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

// interval is an interval of the logarithm of a ratio.
type interval struct{ low, high float64 }

func (i interval) hull(other interval) interval {
	return interval{min(i.low, other.low), max(i.high, other.high)}
}

// rounding is the tolerance between the logarithms of equal numbers.
const rounding = 1e-9

// outcome returns the outcome of an interval if differences up to the margin do not count. Less is better: the whole interval must reach the
// margin.
func (i interval) outcome(margin float64) v1alpha1.TrialVerdict {
	switch {
	case i.high <= -margin+rounding:
		return Better
	case i.isWithin(margin):
		return NoDifference
	case i.low > rounding:
		return Worse
	}
	return Undecided
}

func (i interval) isWithin(margin float64) bool {
	return i.low >= -margin-rounding && i.high <= margin+rounding
}

// differs reports whether an interval excludes equality and is not within the margin.
func (i interval) differs(margin float64) bool {
	return !i.isWithin(margin) && (i.high < -rounding || i.low > rounding)
}

// between returns the interval from the rank-th smallest to the rank-th largest value, and the median.
func between(differences []float64, rank int) (within interval, median float64) {
	sorted := slices.Sorted(slices.Values(differences))
	n := len(sorted)
	return interval{sorted[rank-1], sorted[n-rank]}, (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// rankOf returns the rank of the interval ends, counted from the extremes. The candidate differs if fewer than rank rounds contradict
// it, both against the current options and against their repetition.
//
// If all three arms were equal, each order would be equally likely in each round. At most a share of level would then differ by
// chance. Zero if there are too few rounds for a statement.
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

// equalArms describes a number of rounds with three equal arms. factorials contains the logarithms of the factorials up to that
// number.
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

// bothMiss returns the probability that the candidate is not below one arm in misses rounds, and not below the other arm in others
// rounds. It is below both in a third of all rounds, below neither in a third, and below only one of them in a sixth each.
func (a equalArms) bothMiss(misses, otherMisses int) (probability float64) {
	for neither := max(0, misses+otherMisses-a.rounds); neither <= min(misses, otherMisses); neither++ {
		one, other := misses-neither, otherMisses-neither
		both := a.rounds - one - other - neither
		ways := a.factorials[a.rounds] - a.factorials[both] - a.factorials[one] - a.factorials[other] - a.factorials[neither]
		probability += math.Exp(ways - float64(both+neither)*ln3 - float64(one+other)*(ln3+math.Ln2))
	}
	return probability
}

// comparison compares one metric of the candidate with the current options, in logarithms.
type comparison struct {
	ratio float64
	// within is the interval of the ratio. It covers the comparisons of the candidate with the current options and with their repetition.
	// same is the interval of the current options against themselves.
	within, same interval
	rounds       int
}

// compare evaluates the three values of each round. rank must be at least 1.
func compare(rounds [][3]float64, rank int) comparison {
	var first, second, same []float64
	for _, r := range rounds {
		before, repeat, after := r[0], r[1], r[2]
		first, second, same = append(first, after-before), append(second, after-repeat), append(same, repeat-before)
	}
	one, oneMedian := between(first, rank)
	other, otherMedian := between(second, rank)
	c := comparison{within: one.hull(other), ratio: (oneMedian + otherMedian) / 2, rounds: len(rounds)}
	c.same, _ = between(same, rank)
	return c
}

// noise is the reason why a comparison is undecided despite its interval: the current options differ from themselves.
type noise int

const (
	quiet noise = iota
	// differs: their interval shows a difference. wide: their interval contains the ratio of the candidate.
	differs
	wide
)

func (c comparison) outcome(margin float64) (v1alpha1.TrialVerdict, noise) {
	outcome := c.within.outcome(margin)
	if c.same.differs(margin) {
		return Undecided, differs
	}
	if (outcome == Better || outcome == Worse) && c.ratio >= c.same.low && c.ratio <= c.same.high {
		return Undecided, wide
	}
	return outcome, quiet
}
