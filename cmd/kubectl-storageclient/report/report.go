// Package report writes the results of a trial as one HTML file without external scripts, fonts or images.
package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/verdict"
)

// Trial is the content of the report.
type Trial struct {
	// Title names the measured object, for example the namespace and name of a PersistentVolumeClaim.
	Title string
	// Workload describes the workload that ran.
	Workload string
	Goal     verdict.Goal
	Verdict  verdict.Verdict
	// Rounds is the reason for the number of rounds.
	Rounds string
	// Before and After are the mount options, in order.
	Before []string
	After  []string
	// Cold are the empty caches of each phase.
	Cold []Cold
	// Validity contains the proofs that hold in every round.
	Validity []string
	// Environment describes the measurement: kernel, nodes, server, time.
	Environment []Fact
}

// Cold contains the caches that were empty at the start of a phase.
type Cold struct {
	Phase  string
	Caches []string
}

// Fact is one fact about the environment.
type Fact struct{ Name, Value string }

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Parse(page))

// HTML returns the report.
func HTML(t Trial) ([]byte, error) {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, newPage(t)); err != nil {
		return nil, fmt.Errorf("write the report of %s: %w", t.Title, err)
	}
	return out.Bytes(), nil
}

type pageData struct {
	Trial
	Headline, Class string
	// Why is the text of the verdict without its first word.
	Why     string
	Percent string
	Options []option
	Phases  []phase
	Axis    axis
}

type option struct{ Name, Class, Sign string }

// phase contains the deciding results, each with its interval, and the operations, each with two bars.
type phase struct {
	Name      string
	Intervals []row
	Bars      []row
	Notes     []note
}

type note struct {
	Of   []string
	Text string
}

// row is the display of one result. Positions are percentages of the width.
type row struct {
	Name, Unit, Before, After, Ratio, Range, Same, Words, Class string
	// Decides is copied from Result. Drawn reports whether there is an interval.
	Decides, Drawn                     bool
	From, To, Middle, SameFrom, SameTo float64
	BeforeBar, AfterBar                float64
}

func newPage(t Trial) pageData {
	p := pageData{Trial: t, Headline: cmp.Or(words[t.Verdict.Outcome], words[verdict.Undecided]), Class: class(t.Verdict.Outcome), Percent: figure(100 * (1 - t.Goal.TargetRatio()))}
	p.Why = strings.TrimPrefix(t.Verdict.Why, p.Headline+": ")
	p.Options = optionsOf(t)
	p.Axis = newAxis(t.Verdict.Results, t.Goal.TargetRatio())
	for _, r := range t.Verdict.Results {
		lists.FindOrAdd(&p.Phases, func(existing phase) bool { return existing.Name == r.Phase }, phase{Name: r.Phase}).add(r, p.Axis.draw(r))
	}
	for i := range p.Phases {
		p.Phases[i].scaleBars()
	}
	return p
}

func (p *phase) add(r verdict.Result, drawn row) {
	if r.Note != "" {
		about := lists.FindOrAdd(&p.Notes, func(n note) bool { return n.Text == r.Note }, note{Text: r.Note})
		about.Of = append(about.Of, drawn.Name)
	}
	if isSum(r.Metric) || r.Decides {
		p.Intervals = append(p.Intervals, drawn)
	}
	if !isSum(r.Metric) {
		drawn.BeforeBar, drawn.AfterBar = r.Before, r.After
		p.Bars = append(p.Bars, drawn)
	}
}

func isSum(metric string) bool {
	return metric == verdict.Seconds || metric == verdict.Operations || metric == verdict.Bytes
}

// scaleBars converts the bars to percentages of the largest one.
func (p *phase) scaleBars() {
	largest := 0.0
	for _, r := range p.Bars {
		largest = max(largest, r.BeforeBar, r.AfterBar)
	}
	for i := range p.Bars {
		p.Bars[i].BeforeBar, p.Bars[i].AfterBar = percentOf(p.Bars[i].BeforeBar, largest), percentOf(p.Bars[i].AfterBar, largest)
	}
}

// optionsOf returns the options of both sides, starting with unchanged options.
func optionsOf(t Trial) (options []option) {
	var removed []option
	for _, o := range t.Before {
		if slices.Contains(t.After, o) {
			options = append(options, option{o, "kept", "kept"})
		} else {
			removed = append(removed, option{o, "gone", "removed"})
		}
	}
	options = append(options, removed...)
	for _, o := range t.After {
		if !slices.Contains(t.Before, o) {
			options = append(options, option{o, "new", "added"})
		}
	}
	return options
}
