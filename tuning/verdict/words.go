package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// sentenceBytes is the maximum length of Why, which is the message of a condition.
const sentenceBytes = 240

// decideOutcome returns the outcome and its reason. Times decide first: no verdict is Better unless the time of each phase is shown.
func decideOutcome(v Verdict, goal Goal, fewest int) (v1alpha1.TrialVerdict, string) {
	results := lists.Filter(v.Results, func(r Result) bool { return r.Metric == goal.metric() })
	times := lists.Filter(v.Results, func(r Result) bool { return r.Metric == Seconds })
	counts := lists.Filter(v.Results, func(r Result) bool { return goal.counts(r.Metric) })
	slower := slices.ContainsFunc(times, func(r Result) bool { return !r.isNotSlower(goal) })
	better, worse := of(results, Better), of(results, Worse)
	longer, fewer, increased := of(times, Worse), of(counts, Better), of(counts, Worse)
	switch {
	case v.Rounds == 0:
		return Undecided, "Undecided: no round has one pass of the candidate and two of the current options."
	case len(results) == 0:
		return Undecided, fmt.Sprintf("Undecided: no pass counted %s.", goal.metric())
	case len(better) > 0 && len(worse) > 0:
		return Undecided, "Undecided: " + inWords(better) + ", but " + inWords(worse) + "."
	case len(longer) > 0:
		return Worse, "Worse: " + inWords(longer) + although(fewer)
	case len(worse) > 0:
		return Worse, "Worse: " + inWords(worse) + "."
	case len(better) > 0 && !slower:
		return Better, "Better: " + inWords(better) + although(increased)
	case len(fewer) > 0 && len(increased) == 0:
		return FewerRequests, "Fewer requests: " + inWords(fewer) + ". " + timesInWords(times, goal)
	case len(better) > 0:
		return Undecided, "Undecided: " + inWords(better) + ". " + timesInWords(times, goal)
	case len(of(results, Undecided)) == 0:
		return NoDifference, fmt.Sprintf("No difference: %s within %s %% of the current options", allOf(len(results)), number(goal.percent())) +
			although(increased)
	case v.Rounds < fewest:
		return Undecided, fmt.Sprintf("Undecided: %s finished, at least %d required.", text.Count(v.Rounds, "round"), fewest)
	}
	return Undecided, "Undecided: " + whyUndecided(of(results, Undecided))
}

// isNotSlower reports whether a result shows that the candidate does not take longer than the goal's margin of time.
func (r Result) isNotSlower(goal Goal) bool {
	return r.Low > 0 && r.Note == "" && r.High <= 1+goal.timePercent()/100+rounding
}

// although returns the end of a sentence, with the results that contradict it.
func although(contrary []Result) string {
	if len(contrary) == 0 {
		return "."
	}
	return ", although " + inWords(contrary) + "."
}

// timesInWords describes the time next to a difference of counts.
func timesInWords(times []Result, goal Goal) string {
	if slower := lists.Filter(times, func(r Result) bool { return !r.isNotSlower(goal) }); len(slower) > 0 {
		return "Not shown: " + whyUndecided(slower)
	}
	return fmt.Sprintf("The time is at most %s %% longer.", number(goal.timePercent()))
}

func allOf(n int) string {
	if n == 1 {
		return "the result is"
	}
	return fmt.Sprintf("all %d results are", n)
}

func of(results []Result, outcome v1alpha1.TrialVerdict) []Result {
	return lists.Filter(results, func(r Result) bool { return r.Outcome == outcome })
}

// inWords describes the results, starting with the largest differences.
func inWords(results []Result) string {
	bySize := slices.SortedStableFunc(slices.Values(results), func(a, b Result) int {
		return cmp.Compare(math.Abs(math.Log(b.Ratio)), math.Abs(math.Log(a.Ratio)))
	})
	spelled := bySize[:min(2, len(bySize))]
	parts := lists.Each(spelled, Result.inWords)
	if rest := len(bySize) - len(spelled); rest > 0 {
		parts = append(parts, text.More(rest, ""))
		return strings.Join(parts[:2], ", ") + " " + parts[2]
	}
	return strings.Join(parts, " and ")
}

func (r Result) inWords() string {
	nearest := r.High
	if r.Ratio > 1 {
		nearest = r.Low
	}
	change := percent(1-r.Ratio) + " % " + r.less()
	switch {
	case r.Ratio >= 2-rounding:
		change = number(r.Ratio) + " times the"
	case r.Ratio > 1:
		change = percent(r.Ratio-1) + " % more"
	}
	return fmt.Sprintf("%s %s in %s (at least %s)", change, r.noun(), r.Phase, size(nearest))
}

// size describes the end of an interval. It rounds towards equality, so that the interval shows at least this difference.
func size(ratio float64) string {
	switch {
	case ratio >= 100:
		return number(math.Floor(ratio)) + " times"
	case ratio >= 2-rounding:
		return number(math.Floor(ratio*10+rounding)/10) + " times"
	case ratio > 1:
		return number(math.Floor(100*(ratio-1)+rounding)) + " %"
	}
	return percent(math.Floor(100*(1-ratio)+rounding)/100) + " %"
}

func (r Result) noun() string {
	switch r.Metric {
	case Seconds:
		return "time"
	case Bytes:
		return "bytes"
	case Operations:
		return "requests"
	}
	return r.Metric
}

func (r Result) less() string {
	if r.Metric == Seconds {
		return "less"
	}
	return "fewer"
}

// percent returns a whole number, except for values close to 0 or 100.
func percent(share float64) string {
	p := share * 100
	if p < 1 || p > 99 {
		return strconv.FormatFloat(min(p, 99.9), 'g', 3, 64)
	}
	return strconv.FormatFloat(p, 'f', 0, 64)
}

// number returns two significant digits, or a whole number from 100.
func number(f float64) string {
	switch {
	case f >= 100:
		return strconv.FormatFloat(math.Round(f), 'f', -1, 64)
	case f == 0:
		return "0"
	}
	return strconv.FormatFloat(f, 'g', 2, 64)
}

func whyUndecided(undecided []Result) string {
	widest := slices.MaxFunc(undecided, func(a, b Result) int { return cmp.Compare(math.Log(a.High/a.Low), math.Log(b.High/b.Low)) })
	if widest.Note != "" {
		return fmt.Sprintf("%s in %s: %s.", widest.noun(), widest.Phase, widest.Note)
	}
	return fmt.Sprintf("%s in %s is %s to %s times the value of the current options after %s.", widest.noun(), widest.Phase,
		number(widest.Low), number(widest.High), text.Count(widest.Rounds, "round"))
}
