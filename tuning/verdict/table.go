package verdict

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/recommend"
)

// arms is the order of the three passes of a round.
var arms = [3]v1alpha1.TrialArm{v1alpha1.ArmBefore, v1alpha1.ArmAgain, v1alpha1.ArmAfter}

// triple contains one phase of the three passes of a round.
type triple [len(arms)]v1alpha1.TrialPassPhase

// table contains the passes by round, and the names of the phases.
type table struct {
	rounds [][3]v1alpha1.TrialPass
	phases []string
}

// tabulate keeps rounds with all three passes. If an arm has two passes, it uses the first.
func tabulate(passes []v1alpha1.TrialPass) (t table) {
	type key struct {
		round int32
		node  string
	}
	known := map[key]*[3]v1alpha1.TrialPass{}
	for _, p := range passes {
		arm := slices.Index(arms[:], p.Arm)
		if arm < 0 {
			continue
		}
		k := key{p.Round, p.Node}
		if known[k] == nil {
			known[k] = &[3]v1alpha1.TrialPass{}
		}
		if known[k][arm].Arm == "" {
			known[k][arm] = p
		}
	}
	byRound := func(a, b key) int { return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.node, b.node)) }
	for _, k := range slices.SortedFunc(maps.Keys(known), byRound) {
		round := *known[k]
		if slices.ContainsFunc(round[:], func(p v1alpha1.TrialPass) bool { return p.Arm == "" }) {
			continue
		}
		t.rounds = append(t.rounds, round)
		t.phases = lists.AddMissing(t.phases, lists.Each(round[0].Phases, func(p v1alpha1.TrialPassPhase) string { return p.Name })...)
	}
	return t
}

// triples returns the rounds of a phase in which all three passes did some work.
func (t table) triples(name string) (triples []triple) {
	for _, round := range t.rounds {
		var found triple
		fits := true
		for i, p := range round {
			at := slices.IndexFunc(p.Phases, func(phase v1alpha1.TrialPassPhase) bool { return phase.Name == name })
			if fits = fits && at >= 0 && p.Phases[at].Units > 0; fits {
				found[i] = p.Phases[at]
			}
		}
		if fits {
			triples = append(triples, found)
		}
	}
	return triples
}

func secondsOf(p v1alpha1.TrialPassPhase) float64 { return float64(p.Microseconds) / 1e6 }

func bytesOf(p v1alpha1.TrialPassPhase) float64 { return float64(p.BytesSent + p.BytesReceived) }

// countOf returns the number of requests of one kind.
func countOf(p v1alpha1.TrialPassPhase, name string) (sum float64) {
	for _, o := range p.Operations {
		if o.Name == name {
			sum += float64(o.Count)
		}
	}
	return sum
}

func operationsOf(p v1alpha1.TrialPassPhase) (sum float64) {
	for _, o := range p.Operations {
		if isOperation(o.Name) {
			sum += float64(o.Count)
		}
	}
	return sum
}

func isOperation(name string) bool {
	return !recommend.IsMaintenance(name)
}

type metric struct {
	name, unit string
	// minimum replaces smaller values: a few requests are not a difference, and divisions by zero cannot happen.
	minimum float64
	of      func(v1alpha1.TrialPassPhase) float64
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
	return metric{name: Seconds, unit: "seconds", minimum: minSeconds, of: secondsOf, perPass: true}
}

// metricsOf returns the metrics that exceed their minimum in some pass of the phase.
func metricsOf(triples []triple, unit string) []metric {
	perUnit := " per " + cmp.Or(unit, "unit")
	names := map[string]bool{}
	for _, passes := range triples {
		for _, p := range passes {
			for _, o := range p.Operations {
				names[o.Name] = isOperation(o.Name)
			}
		}
	}
	all := []metric{
		{name: Operations, unit: "requests" + perUnit, minimum: minOperations, of: operationsOf},
		{name: Bytes, unit: "bytes" + perUnit, minimum: minBytes, of: bytesOf},
		secondsMetric(),
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			of := func(p v1alpha1.TrialPassPhase) float64 { return countOf(p, name) }
			all = append(all, metric{name: name, unit: "requests" + perUnit, minimum: minOperations, of: of})
		}
	}
	return slices.DeleteFunc(all, func(m metric) bool { return m.name != Seconds && m.maximum(triples) <= m.minimum })
}

func (m metric) maximum(triples []triple) (maximum float64) {
	for _, passes := range triples {
		for _, p := range passes {
			maximum = max(maximum, m.of(p))
		}
	}
	return maximum
}

func (m metric) logarithms(triples []triple) [][3]float64 {
	out := make([][3]float64, len(triples))
	for i, passes := range triples {
		for arm, p := range passes {
			out[i][arm] = math.Log(max(m.of(p), m.minimum) / float64(p.Units))
		}
	}
	return out
}

// medians returns the displayed values: before for both passes with the current options, after for the candidate.
func (m metric) medians(triples []triple) (before, after float64) {
	var beforeValues, afterValues, units []float64
	for _, passes := range triples {
		for i, p := range passes {
			units = append(units, float64(p.Units))
			if arms[i] == v1alpha1.ArmAfter {
				afterValues = append(afterValues, m.of(p)/float64(p.Units))
			} else {
				beforeValues = append(beforeValues, m.of(p)/float64(p.Units))
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
