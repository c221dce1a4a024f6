// Package documents keeps the table of the four source documents in docs/values.md, and the ways from the front page to it.
package documents

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/verdict"
)

// Effects are the results of a run of the label effects. effects.json is the recorded run of the documentation.
type Effects struct {
	// Kernel is the kernel of the node and the server, Rounds the number of rounds of each comparison.
	Kernel  string   `json:"kernel"`
	Rounds  int      `json:"rounds"`
	Effects []Effect `json:"effects"`
}

// Effect is the result of one comparison.
type Effect struct {
	// Row is the ID of the documents' row.
	Row      string   `json:"row"`
	Compared string   `json:"compared"`
	Server   string   `json:"server"`
	Results  []Result `json:"results"`
}

// Result is the result for one metric, see verdict.Result.
type Result struct {
	Metric  string                `json:"metric"`
	Before  float64               `json:"before"`
	After   float64               `json:"after"`
	Low     float64               `json:"low"`
	High    float64               `json:"high"`
	Outcome v1alpha1.TrialVerdict `json:"outcome"`
}

// Add adds the results of some metrics.
func (e *Effect) Add(results []verdict.Result, metrics ...string) {
	for _, r := range results {
		if slices.Contains(metrics, r.Metric) {
			e.Results = append(e.Results, Result{r.Metric, digits(r.Before), digits(r.After), digits(r.Low), digits(r.High), r.Outcome})
		}
	}
}

// digits rounds small numbers to three digits, larger ones to integers.
func digits(n float64) float64 {
	if n >= 1000 {
		return math.Round(n)
	}
	n, _ = strconv.ParseFloat(strconv.FormatFloat(n, 'g', 3, 64), 64) // The text is a number.
	return n
}

// Result returns the result for a metric. Empty if it was not measured.
func (e Effect) Result(metric string) Result {
	for _, r := range e.Results {
		if r.Metric == metric {
			return r
		}
	}
	return Result{}
}

func (e Effect) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-4s %s (%s)\n", e.Row, e.Compared, e.Server)
	for _, r := range e.Results {
		fmt.Fprintf(&b, "     %-16s %10.6g -> %-10.6g [%.3g, %.3g] %s\n", r.Metric, r.Before, r.After, r.Low, r.High, r.Outcome)
	}
	return b.String()
}

// String returns JSON with a line for each comparison.
func (all Effects) String() string {
	lines := make([]string, 0, len(all.Effects))
	for _, e := range all.Effects {
		line, err := json.Marshal(e)
		if err != nil {
			panic(err) // A struct of texts and finite numbers.
		}
		lines = append(lines, string(line))
	}
	return fmt.Sprintf("{\"kernel\": %q, \"rounds\": %d, \"effects\": [\n%s\n]}\n", all.Kernel, all.Rounds, strings.Join(lines, ",\n"))
}
