package verdict

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
)

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
