package report

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/verdict"
)

var words = map[v1alpha1.TrialVerdict]string{
	verdict.Better:        "Better",
	verdict.Worse:         "Worse",
	verdict.FewerRequests: "Fewer requests",
	verdict.NoDifference:  "No difference",
	verdict.Undecided:     "Undecided",
}

var classes = map[v1alpha1.TrialVerdict]string{
	verdict.Better:        "better",
	verdict.Worse:         "worse",
	verdict.FewerRequests: "same",
	verdict.NoDifference:  "same",
}

func class(o v1alpha1.TrialVerdict) string { return cmp.Or(classes[o], "undecided") }

// axis is the logarithmic scale of ratios, which is the same for all intervals.
type axis struct {
	Ticks []tick
	// One is the position of equal results. MarginLow and MarginWidth are the range without a difference.
	One, MarginLow, MarginWidth float64

	low, high float64
}

type tick struct {
	Text string
	At   float64
}

// maxRatio is the limit of the axis: values beyond it appear at its end.
const maxRatio = 1e4

func newAxis(results []verdict.Result, leastRatio float64) axis {
	margin := -math.Log(leastRatio)
	a := axis{low: -2 * margin, high: 2 * margin}
	for _, r := range results {
		if r.Low > 0 {
			a.low = min(a.low, math.Log(r.Low), math.Log(r.SameLow))
			a.high = max(a.high, math.Log(r.High), math.Log(r.SameHigh))
		}
	}
	pad := 0.06 * (a.high - a.low)
	a.low, a.high = max(a.low-pad, -math.Log(maxRatio)), min(a.high+pad, math.Log(maxRatio))
	a.One = a.at(1)
	a.MarginLow = a.at(math.Exp(-margin))
	a.MarginWidth = a.at(math.Exp(margin)) - a.MarginLow
	a.addTicks()
	return a
}

// at returns the position of a ratio in percent of the width.
func (a axis) at(ratio float64) float64 {
	position := 100 * (math.Log(ratio) - a.low) / (a.high - a.low)
	return math.Round(100*min(100, max(0, position))) / 100
}

func percentOf(f, largest float64) float64 {
	if largest == 0 {
		return 0
	}
	return math.Round(1e4*f/largest) / 100
}

// tickGap is the minimum distance between two ticks.
const tickGap = 15

func (a *axis) addTicks() {
	a.Ticks = []tick{{Text: "equal", At: a.One}}
	for _, ratio := range []float64{0.5, 2, 0.1, 10, 0.01, 100, 0.001, 1000, 0.8, 1.25, 0.9, 1.1} {
		free := math.Log(ratio) > a.low && math.Log(ratio) < a.high
		at := a.at(ratio)
		for _, t := range a.Ticks {
			free = free && math.Abs(t.At-at) >= tickGap
		}
		if free && at > 4 && at < 96 {
			a.Ticks = append(a.Ticks, tick{Text: times(ratio), At: at})
		}
	}
}

func (a axis) draw(r verdict.Result) row {
	d := row{Name: r.Metric, Unit: r.Unit, Decides: r.Decides, Words: words[r.Outcome], Class: class(r.Outcome), Drawn: r.Low > 0}
	write := figure
	switch r.Metric {
	case verdict.Operations:
		d.Name = "All requests"
	case verdict.Seconds:
		d.Name = "Time"
		write = func(f float64) string { return figure(f) + " s" }
	case verdict.Bytes:
		write = bytesInWords
	}
	d.Before, d.After = write(r.Before), write(r.After)
	if !d.Drawn {
		return d
	}
	d.Ratio, d.Range = times(r.Ratio), times(r.Low)+" to "+times(r.High)
	d.Same = times(r.SameLow) + " to " + times(r.SameHigh)
	d.From, d.To, d.Middle = a.at(r.Low), a.at(r.High), a.at(r.Ratio)
	d.SameFrom, d.SameTo = a.at(r.SameLow), a.at(r.SameHigh)
	return d
}

func times(ratio float64) string { return "×" + figure(ratio) }

// figure returns three significant digits, without an exponent if possible.
func figure(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f >= 1000:
		return grouped(strconv.FormatFloat(math.Round(f), 'f', -1, 64))
	case f < 0.0001:
		return "under 0.0001"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(f))))
	text := strconv.FormatFloat(f, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func bytesInWords(b float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if b >= unit.size {
			return figure(b/unit.size) + " " + unit.name
		}
	}
	return figure(b) + " B"
}
