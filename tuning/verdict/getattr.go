package verdict

import (
	"fmt"
	"slices"
)

// twoKinds is by what the numbers of GETATTR differ where some passes ask for attributes again and others do not.
const twoKinds = 2

// spread is what the passes of one list took, and how often they asked for attributes.
type spread struct {
	seconds, asked []float64
	// kept is how long the list keeps attributes, in seconds.
	kept float64
}

func (s *spread) add(passes ...Phase) {
	for _, p := range passes {
		s.seconds = append(s.seconds, p.Seconds)
		s.asked = append(s.asked, max(p.Counts[GetAttr], leastOperations)/p.Units)
	}
}

// hasTwoKinds is true where some passes end before attributes are too old and others after it, and their numbers show it.
func (s spread) hasTwoKinds(pause float64) bool {
	straddles := func(limit float64) bool {
		return limit > 0 && slices.Min(s.seconds) < limit && slices.Max(s.seconds) >= limit
	}
	return (straddles(s.kept) || straddles(s.kept-pause)) && slices.Max(s.asked) >= twoKinds*slices.Min(s.asked)
}

func (s spread) overlaps(other spread) bool {
	return slices.Min(s.asked) <= slices.Max(other.asked) && slices.Min(other.asked) <= slices.Max(s.asked)
}

func (s spread) inWords() string {
	return fmt.Sprintf("%s to %s s (attributes kept for %s s)", number(slices.Min(s.seconds)), number(slices.Max(s.seconds)), number(s.kept))
}

// describe says how long a phase took against how long attributes are kept: once they are too old, a client asks for them anew. Where
// some passes of one list end before that and others after it, their number tells of the machine's speed and not of the list. Then it
// is unsteady, unless the candidate lies beyond all of them.
func (a Attributes) describe(triples [][3]Phase) (note string, unsteady bool) {
	before, after := spread{kept: a.BeforeSeconds}, spread{kept: a.AfterSeconds}
	for _, triple := range triples {
		before.add(triple[0], triple[1])
		after.add(triple[2])
	}
	note = fmt.Sprintf("passes took %s before and %s after, with a pause of %s s", before.inWords(), after.inWords(), number(a.PauseSeconds))
	if (before.hasTwoKinds(a.PauseSeconds) || after.hasTwoKinds(a.PauseSeconds)) && before.overlaps(after) {
		return "not compared, since some passes outlast their attributes and ask for them again, and others do not: " + note, true
	}
	return note, false
}
