package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// The maximum shares of trials with two equal sets of options that end as Better or Worse, by times and by counts. Their sum is about
// half of the documented share because rounds on real machines are not exactly equal. Counts repeat well, so a small share costs one
// or two more rounds; for times, it would cost many.
const (
	falseByTimes  = 0.005
	falseByCounts = 0.001
	// looks is the number of evaluations by counts: after FirstLook rounds, and at the end, together with the times.
	looks = 2
)

// FirstLook is the number of rounds after which a trial is first evaluated. It is enough to decide a clear difference of counts for
// one or two phases.
const FirstLook = 9

// defaultPercent and defaultTimePercent are the improvement and the margin of time if the goal does not set them.
const (
	defaultPercent     = 10
	defaultTimePercent = 5
)

// Goal is the improvement that the candidate must reach, with the rules for its defaults.
type Goal v1alpha1.TrialGoal

func (g Goal) metric() string { return cmp.Or(g.Metric, Seconds) }

func (g Goal) percent() float64     { return percentOr(g.BetterByPercent, defaultPercent) }
func (g Goal) timePercent() float64 { return percentOr(g.TimeMarginPercent, defaultTimePercent) }

func percentOr(percent *int32, unset float64) float64 {
	if percent == nil || *percent <= 0 {
		return unset
	}
	return float64(min(*percent, 99))
}

// TargetRatio returns the ratio at which the candidate reaches the goal.
func (g Goal) TargetRatio() float64 { return 1 - g.percent()/100 }

// margin returns the logarithm of the smallest relevant difference.
func (g Goal) margin() float64 { return -math.Log(g.TargetRatio()) }

// decides reports whether the verdict depends on a metric: the goal's, and the time, which must not be longer.
func (g Goal) decides(metric string) bool { return metric == g.metric() || metric == Seconds }

// counts reports whether a metric counts the requests that a verdict can mention next to the time.
func (g Goal) counts(metric string) bool {
	if g.metric() != Seconds {
		return metric == g.metric()
	}
	return metric == Operations || metric == Bytes
}

type phase struct {
	name    string
	triples []triple
	metrics []metric
	// getAttrs is a note about the number of GETATTRs. unsteady reports whether it is not comparable.
	getAttrs string
	unsteady bool
}

// Evaluate evaluates passes in any order. Evaluate a trial only after FirstLook rounds and at its end: further evaluations find
// differences by chance.
func Evaluate(passes []v1alpha1.TrialPass, goal Goal, work Work) Verdict {
	t := tabulate(passes)
	phases := phasesOf(t, work)
	v := Verdict{Rounds: len(t.rounds)}
	levels := levelsFor(phases, goal)
	for _, p := range phases {
		for _, m := range p.metrics {
			v.Results = append(v.Results, p.evaluate(m, goal, levels.of(m.name)))
		}
	}
	v.Outcome, v.Why = decideOutcome(v, goal, levels.fewestFor(goal))
	v.Why = text.CutBytes(v.Why, sentenceBytes)
	return v
}

// IsDecidedByCounts reports whether a first look can end a trial: its goal is a count, and the count is decided. A goal of time needs all
// rounds, because the time would be evaluated too often.
func (v Verdict) IsDecidedByCounts() bool {
	return v.Outcome != Undecided && v.Outcome != NoDifference && slices.ContainsFunc(v.Results, func(r Result) bool {
		return r.Decides && r.Metric != Seconds && (r.Outcome == v.Outcome || r.Outcome == Better && v.Outcome == FewerRequests)
	})
}

func phasesOf(t table, work Work) (phases []phase) {
	for _, name := range t.phases {
		p := phase{name: name, triples: t.triples(name)}
		if len(p.triples) == 0 {
			continue
		}
		p.metrics = metricsOf(p.triples, work.Unit)
		p.getAttrs, p.unsteady = work.describe(p.triples)
		if p.unsteady {
			p.leaveGetAttrsOut()
		}
		phases = append(phases, p)
	}
	return phases
}

// leaveGetAttrsOut excludes the unsteady GETATTRs from the number of operations.
func (p *phase) leaveGetAttrsOut() {
	for i, m := range p.metrics {
		if m.name == Operations {
			p.metrics[i].note = "without " + GetAttr
			p.metrics[i].of = func(p v1alpha1.TrialPassPhase) float64 { return operationsOf(p) - countOf(p, GetAttr) }
		}
	}
}

// levels are the shares for one result. The more results decide, the more likely one of them differs by chance.
type levels struct{ times, counts float64 }

func levelsFor(phases []phase, goal Goal) levels {
	times, counts := 0, 0
	for _, p := range phases {
		for _, m := range p.metrics {
			switch {
			case m.name == Seconds:
				times++
			case goal.counts(m.name):
				counts++
			}
		}
	}
	return levels{times: falseByTimes / float64(max(1, times)), counts: falseByCounts / looks / float64(max(1, counts))}
}

func (l levels) of(metric string) float64 {
	if metric == Seconds {
		return l.times
	}
	return l.counts
}

func fewestRounds(level float64) int {
	n := 1
	for rankOf(n, level) == 0 {
		n++
	}
	return n
}

// fewestFor returns the minimum number of rounds with which all deciding metrics can decide.
func (l levels) fewestFor(goal Goal) int {
	if goal.metric() != Seconds {
		return fewestRounds(l.counts)
	}
	return max(fewestRounds(l.counts), fewestRounds(l.times))
}

func (p phase) evaluate(m metric, goal Goal, level float64) Result {
	r := Result{Phase: p.name, Metric: m.name, Unit: m.unit, Decides: goal.decides(m.name), Outcome: Undecided, Rounds: len(p.triples)}
	r.Before, r.After = m.medians(p.triples)
	r.Note = m.note
	if m.name == GetAttr {
		r.Note = p.getAttrs
	}
	rank := rankOf(len(p.triples), level)
	if rank == 0 {
		r.Note = fmt.Sprintf("%s of at least %d required", text.Count(len(p.triples), "round"), fewestRounds(level))
		return r
	}
	c := compare(m.logarithms(p.triples), rank)
	r.Ratio, r.Low, r.High = math.Exp(c.ratio), math.Exp(c.within.low), math.Exp(c.within.high)
	r.SameLow, r.SameHigh = math.Exp(c.same.low), math.Exp(c.same.high)
	if p.unsteady && (m.name == GetAttr || m.name == Bytes) {
		r.Note = p.getAttrs
		return r
	}
	var reason noise
	r.Outcome, reason = c.outcome(goal.margin())
	switch reason {
	case differs:
		r.Note = fmt.Sprintf("the current options differ from themselves (%s to %s times), so the candidate cannot be evaluated", number(r.SameLow),
			number(r.SameHigh))
	case wide:
		r.Note = fmt.Sprintf("the current options differ from themselves by as much as the candidate does (%s to %s times)", number(r.SameLow),
			number(r.SameHigh))
	}
	return r
}

// twoKinds is the factor between the numbers of GETATTR of passes that revalidate attributes and passes that do not.
const twoKinds = 2

// spread contains the durations and GETATTR rates of all passes with the same options.
type spread struct {
	seconds, rates []float64
	// cacheSeconds is the time in seconds for which these options cache attributes.
	cacheSeconds float64
}

func (s *spread) add(passes ...v1alpha1.TrialPassPhase) {
	for _, p := range passes {
		s.seconds = append(s.seconds, secondsOf(p))
		s.rates = append(s.rates, max(countOf(p, GetAttr), minOperations)/float64(p.Units))
	}
}

// hasTwoKinds reports whether attributes expire during some passes but not during others, and the numbers show the difference.
func (s spread) hasTwoKinds(pause float64) bool {
	straddles := func(limit float64) bool {
		return limit > 0 && slices.Min(s.seconds) < limit && slices.Max(s.seconds) >= limit
	}
	return (straddles(s.cacheSeconds) || straddles(s.cacheSeconds-pause)) && slices.Max(s.rates) >= twoKinds*slices.Min(s.rates)
}

func (s spread) overlaps(other spread) bool {
	return slices.Min(s.rates) <= slices.Max(other.rates) && slices.Min(other.rates) <= slices.Max(s.rates)
}

func (s spread) inWords() string {
	return fmt.Sprintf("%s to %s s (attributes cached for %s s)", number(slices.Min(s.seconds)), number(slices.Max(s.seconds)), number(s.cacheSeconds))
}

// describe compares the duration of a phase with the cache time of attributes. Clients request expired attributes again. If attributes
// expire during some passes but not others, the number of requests depends on the speed of the machine and not on the options. It is
// then unsteady, unless the candidate is beyond all other passes.
func (w Work) describe(triples []triple) (note string, unsteady bool) {
	before, after := spread{cacheSeconds: w.BeforeSeconds}, spread{cacheSeconds: w.AfterSeconds}
	for _, triple := range triples {
		before.add(triple[0], triple[1])
		after.add(triple[2])
	}
	note = fmt.Sprintf("passes took %s before and %s after, with a pause of %s s", before.inWords(), after.inWords(), number(w.PauseSeconds))
	if (before.hasTwoKinds(w.PauseSeconds) || after.hasTwoKinds(w.PauseSeconds)) && before.overlaps(after) {
		return "not compared because only some passes outlast their cached attributes and request them again: " + note, true
	}
	return note, false
}
