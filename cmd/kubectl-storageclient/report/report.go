// Package report writes what a trial has found as one HTML file that needs nothing else: no script, no font, no picture from elsewhere.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/text"
	"github.com/storageclient/operator/tuning/verdict"
)

// Trial is what the report tells of.
type Trial struct {
	// Title names what was measured, e.g. the namespace and name of a PersistentVolumeClaim.
	Title string
	// Workload is what ran, in words.
	Workload string
	Goal     verdict.Goal
	Verdict  verdict.Verdict
	// Rounds says why there were as many as there were.
	Rounds string
	// Before and After are the lists of options, in order.
	Before []string
	After  []string
	// Reasons are for options of the candidate.
	Reasons []Reason
	// Recommendations are what else to do, or why nothing helps.
	Recommendations []Recommendation
	// Cold are the caches that held nothing, by phase.
	Cold []Cold
	// Validity are the proofs that hold in every round, Void why passes counted for nothing.
	Validity []string
	Void     []string
	// Environment is where it was measured: kernel, nodes, server, time.
	Environment []Fact
}

// Reason says why an option is in the candidate.
type Reason struct{ Option, Why, Source string }

// Recommendation is one thing to do.
type Recommendation struct {
	Text, Effect string
	Options      []string
}

// Cold is which caches held nothing at the beginning of a phase.
type Cold struct {
	Phase  string
	Caches []string
}

// Fact is a thing known of the environment.
type Fact struct{ Name, Value string }

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Parse(page))

// HTML writes the report.
func HTML(t Trial) ([]byte, error) {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, newPage(t)); err != nil {
		return nil, fmt.Errorf("write the report of %s: %w", t.Title, err)
	}
	return out.Bytes(), nil
}

// shown is a Trial with what the page draws of it.
type shown struct {
	Trial
	Headline, Class string
	// Why is the verdict's, less its first word.
	Why     string
	Percent string
	// VoidPasses says how many counted for nothing.
	VoidPasses string
	Options    []option
	Phases     []phase
	Axis       axis
}

type option struct {
	Name, Class, Sign, Why, Source string
}

// phase has the results that decide, each with its interval, and the operations, each with two bars.
type phase struct {
	Name      string
	Intervals []row
	Bars      []row
	Notes     []note
}

// note is said of several results at once.
type note struct {
	Of   []string
	Text string
}

// row is one result as it is drawn. Positions are percentages of the width.
type row struct {
	Name, Unit, Before, After, Ratio, Range, Same, Words, Class string
	// Decides is what Result has, Drawn is true where there is an interval.
	Decides, Drawn                     bool
	From, To, Middle, SameFrom, SameTo float64
	BeforeBar, AfterBar                float64
}

func newPage(t Trial) shown {
	p := shown{Trial: t, Headline: words[t.Verdict.Outcome], Class: class(t.Verdict.Outcome), Percent: figure(100 * (1 - t.Goal.LeastRatio()))}
	if p.Headline == "" {
		p.Headline = words[verdict.Undecided]
	}
	if t.Verdict.Void > 0 {
		p.VoidPasses = text.Count(t.Verdict.Void, "pass", "passes") + " counted for nothing."
	}
	p.Why = strings.TrimPrefix(t.Verdict.Why, p.Headline+": ")
	p.Options = optionsOf(t)
	p.Axis = newAxis(t.Verdict.Results, t.Goal.LeastRatio())
	for _, r := range t.Verdict.Results {
		i := slices.IndexFunc(p.Phases, func(has phase) bool { return has.Name == r.Phase })
		if i < 0 {
			i = len(p.Phases)
			p.Phases = append(p.Phases, phase{Name: r.Phase})
		}
		p.Phases[i].add(r, p.Axis.draw(r))
	}
	for i := range p.Phases {
		p.Phases[i].scaleBars()
	}
	return p
}

func (p *phase) add(r verdict.Result, drawn row) {
	p.addNote(drawn.Name, r.Note)
	if isSum(r.Metric) || r.Decides {
		p.Intervals = append(p.Intervals, drawn)
	}
	if !isSum(r.Metric) {
		drawn.BeforeBar, drawn.AfterBar = r.Before, r.After
		p.Bars = append(p.Bars, drawn)
	}
}

func (p *phase) addNote(of, said string) {
	if said == "" {
		return
	}
	if i := slices.IndexFunc(p.Notes, func(n note) bool { return n.Text == said }); i >= 0 {
		p.Notes[i].Of = append(p.Notes[i].Of, of)
		return
	}
	p.Notes = append(p.Notes, note{Of: []string{of}, Text: said})
}

func isSum(metric string) bool {
	return metric == verdict.Seconds || metric == verdict.Operations || metric == verdict.Bytes
}

// scaleBars makes percentages of the largest.
func (p *phase) scaleBars() {
	most := 0.0
	for _, r := range p.Bars {
		most = max(most, r.BeforeBar, r.AfterBar)
	}
	for i := range p.Bars {
		p.Bars[i].BeforeBar, p.Bars[i].AfterBar = percentOf(p.Bars[i].BeforeBar, most), percentOf(p.Bars[i].AfterBar, most)
	}
}

// optionsOf has all options of both lists, those that stay first.
func optionsOf(t Trial) (options []option) {
	reason := func(name string) Reason {
		if i := slices.IndexFunc(t.Reasons, func(r Reason) bool { return r.Option == name }); i >= 0 {
			return t.Reasons[i]
		}
		return Reason{}
	}
	add := func(name, class, sign string) {
		r := reason(name)
		options = append(options, option{Name: name, Class: class, Sign: sign, Why: r.Why, Source: r.Source})
	}
	for _, o := range t.Before {
		if slices.Contains(t.After, o) {
			add(o, "kept", "stays")
		}
	}
	for _, o := range t.Before {
		if !slices.Contains(t.After, o) {
			add(o, "gone", "goes")
		}
	}
	for _, o := range t.After {
		if !slices.Contains(t.Before, o) {
			add(o, "new", "new")
		}
	}
	return options
}
