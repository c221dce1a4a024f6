package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/tuning/text"
)

// sentenceBytes is the maximum length of Why, which is the message of a condition.
const sentenceBytes = 240

func summarize(v Verdict, goal Goal, fewest int) (Outcome, string) {
	outcome, reason := decideOutcome(v, goal, fewest)
	return outcome, text.CutBytes(reason, sentenceBytes)
}

func decideOutcome(v Verdict, goal Goal, fewest int) (Outcome, string) {
	deciding := slices.DeleteFunc(slices.Clone(v.Results), func(r Result) bool { return !r.Decides })
	better, worse, undecided := of(deciding, Better), of(deciding, Worse), of(deciding, Undecided)
	switch {
	case v.Rounds == 0:
		return Undecided, "Undecided: no round has one pass of the candidate and two of the current options."
	case len(deciding) == 0:
		return Undecided, fmt.Sprintf("Undecided: no pass counted %s.", goal.metric())
	case len(better) > 0 && len(worse) > 0:
		return Undecided, "Undecided: " + inWords(better) + ", but " + inWords(worse) + "."
	case len(better) > 0:
		return Better, "Better: " + inWords(better) + "." + onTimes(deciding)
	case len(worse) > 0:
		return Worse, "Worse: " + inWords(worse) + "." + onTimes(deciding)
	case len(undecided) == 0:
		return NoDifference, fmt.Sprintf("No difference: %s within %s %% of the current options.", allOf(len(deciding)), number(goal.percent()))
	case v.Rounds < fewest:
		return Undecided, fmt.Sprintf("Undecided: %s finished, at least %d required.", text.Count(v.Rounds, "round"), fewest)
	}
	return Undecided, "Undecided: " + whyUndecided(undecided)
}

func allOf(n int) string {
	if n == 1 {
		return "the result is"
	}
	return fmt.Sprintf("all %d results are", n)
}

func of(results []Result, outcome Outcome) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Outcome != outcome })
}

// inWords describes the results, starting with the largest differences.
func inWords(results []Result) string {
	bySize := slices.SortedStableFunc(slices.Values(results), func(a, b Result) int {
		return cmp.Compare(math.Abs(math.Log(b.Ratio)), math.Abs(math.Log(a.Ratio)))
	})
	spelled := bySize[:min(2, len(bySize))]
	var parts []string
	for _, r := range spelled {
		parts = append(parts, r.inWords())
	}
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
	case r.Ratio >= 2:
		change = number(r.Ratio) + " times the"
	case r.Ratio > 1:
		change = percent(r.Ratio-1) + " % more"
	}
	return fmt.Sprintf("%s %s in %s (at least %s)", change, r.noun(), r.Phase, size(nearest))
}

func size(ratio float64) string {
	switch {
	case ratio >= 2:
		return number(ratio) + " times"
	case ratio > 1:
		return percent(ratio-1) + " %"
	}
	return percent(1-ratio) + " %"
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

// onTimes returns a note about undecided times if counts have decided the verdict.
func onTimes(deciding []Result) string {
	times := slices.DeleteFunc(slices.Clone(deciding), func(r Result) bool { return r.Metric != Seconds })
	if len(times) > 0 && len(of(times, Undecided)) == len(times) {
		return " Times are undecided."
	}
	return ""
}

func whyUndecided(undecided []Result) string {
	widest := slices.MaxFunc(undecided, func(a, b Result) int { return cmp.Compare(math.Log(a.High/a.Low), math.Log(b.High/b.Low)) })
	if widest.Note != "" {
		return fmt.Sprintf("%s in %s: %s.", widest.noun(), widest.Phase, widest.Note)
	}
	return fmt.Sprintf("%s in %s is %s to %s times the value of the current options after %s.", widest.noun(), widest.Phase,
		number(widest.Low), number(widest.High), text.Count(widest.Rounds, "round"))
}
