package verdict

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/recommend"
)

// arms is the order of the three passes of a round.
var arms = [3]Arm{Before, Again, After}

// table contains the passes by round, and the names of the phases.
type table struct {
	rounds [][3]Pass
	phases []string
}

// tabulate keeps rounds with all three passes. If an arm has two passes, it uses the first.
func tabulate(passes []Pass) (t table) {
	type key struct {
		round int
		node  string
	}
	known := map[key]*[3]Pass{}
	for _, p := range passes {
		arm := slices.Index(arms[:], p.Arm)
		if arm < 0 {
			continue
		}
		k := key{p.Round, p.Node}
		if known[k] == nil {
			known[k] = &[3]Pass{}
		}
		if known[k][arm].Arm == "" {
			known[k][arm] = p
		}
	}
	byRound := func(a, b key) int { return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.node, b.node)) }
	for _, k := range slices.SortedFunc(maps.Keys(known), byRound) {
		round := *known[k]
		if slices.ContainsFunc(round[:], func(p Pass) bool { return p.Arm == "" }) {
			continue
		}
		t.rounds = append(t.rounds, round)
		t.phases = lists.AddMissing(t.phases, lists.Each(round[0].Phases, func(p Phase) string { return p.Name })...)
	}
	return t
}

// triples returns the rounds of a phase in which all three passes are sound and the same caches were cold.
func (t table) triples(name string) (triples [][3]Phase) {
	for _, round := range t.rounds {
		var triple [3]Phase
		fits := true
		for i, p := range round {
			at := slices.IndexFunc(p.Phases, func(phase Phase) bool { return phase.Name == name })
			fits = fits && at >= 0 && p.Phases[at].isSound()
			if fits {
				triple[i] = p.Phases[at]
			}
		}
		if fits && isEquallyCold(triple) {
			triples = append(triples, triple)
		}
	}
	return triples
}

func isEquallyCold(triple [3]Phase) bool {
	cold := func(p Phase) []string { return slices.Compact(slices.Sorted(slices.Values(p.Cold))) }
	return slices.Equal(cold(triple[0]), cold(triple[1])) && slices.Equal(cold(triple[0]), cold(triple[2]))
}

func isNumber(f float64) bool { return f >= 0 && !math.IsInf(f, 0) }

// isSound reports whether a phase did some work and has valid numbers.
func (p Phase) isSound() bool {
	numbers := append(slices.Collect(maps.Values(p.Counts)), p.Units, p.Seconds)
	return p.Units > 0 && !slices.ContainsFunc(numbers, func(n float64) bool { return !isNumber(n) })
}

func (p Phase) operations() (sum float64) {
	for name, count := range p.Counts {
		if isOperation(name) {
			sum += count
		}
	}
	return sum
}

func isOperation(name string) bool {
	return name != BytesSent && name != BytesReceived && !recommend.IsMaintenance(name)
}

type metric struct {
	name, unit string
	// minimum replaces smaller values: a few requests are not a difference, and divisions by zero cannot happen.
	minimum float64
	of      func(Phase) float64
	// perPass reports whether the value is shown for a typical pass instead of a unit of work.
	perPass bool
	note    string
}

const (
	minOperations = 10
	minBytes      = 64 << 10
	minSeconds    = 0.001
)

func secondsMetric() metric {
	return metric{name: Seconds, unit: "seconds", minimum: minSeconds, of: func(p Phase) float64 { return p.Seconds }, perPass: true}
}

// metricsOf returns the metrics that exceed their minimum in some pass of the phase.
func metricsOf(triples [][3]Phase) []metric {
	perUnit := " per " + cmp.Or(triples[0][0].Unit, "unit")
	names := map[string]bool{}
	for _, triple := range triples {
		for _, p := range triple {
			for name := range p.Counts {
				names[name] = names[name] || isOperation(name)
			}
		}
	}
	all := []metric{
		{name: Operations, unit: "requests" + perUnit, minimum: minOperations, of: Phase.operations},
		{name: Bytes, unit: "bytes" + perUnit, minimum: minBytes, of: func(p Phase) float64 { return p.Counts[BytesSent] + p.Counts[BytesReceived] }},
		secondsMetric(),
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			of := func(p Phase) float64 { return p.Counts[name] }
			all = append(all, metric{name: name, unit: "requests" + perUnit, minimum: minOperations, of: of})
		}
	}
	return slices.DeleteFunc(all, func(m metric) bool { return m.name != Seconds && m.maximum(triples) <= m.minimum })
}

func (m metric) maximum(triples [][3]Phase) (maximum float64) {
	for _, triple := range triples {
		for _, p := range triple {
			maximum = max(maximum, m.of(p))
		}
	}
	return maximum
}

func (m metric) logarithms(triples [][3]Phase) [][3]float64 {
	out := make([][3]float64, len(triples))
	for i, triple := range triples {
		for arm, p := range triple {
			out[i][arm] = math.Log(max(m.of(p), m.minimum) / p.Units)
		}
	}
	return out
}

// medians returns the displayed values: before for both passes with the current options, after for the candidate.
func (m metric) medians(triples [][3]Phase) (before, after float64) {
	var beforeValues, afterValues, units []float64
	for _, triple := range triples {
		for i, p := range triple {
			units = append(units, p.Units)
			if arms[i] == After {
				afterValues = append(afterValues, m.of(p)/p.Units)
			} else {
				beforeValues = append(beforeValues, m.of(p)/p.Units)
			}
		}
	}
	scale := 1.0
	if m.perPass {
		scale = medianOf(units)
	}
	return medianOf(beforeValues) * scale, medianOf(afterValues) * scale
}

func medianOf(numbers []float64) float64 {
	_, median := between(numbers, 1)
	return median
}
