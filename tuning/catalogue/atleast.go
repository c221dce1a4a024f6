package catalogue

import (
	"strings"

	"github.com/storageclient/operator/tuning/text"
)

// leastMark begins the value of a setting that says what a sysctl is to be at least, e.g. "at-least 4096 1048576 16777216". No
// number begins like it, and an agent that does not know it refuses it as no number.
const leastMark = "at-least "

// AtLeast is the value that says that a sysctl is to be at least this, number by number.
func AtLeast(numbers string) string { return leastMark + CanonicalValue(numbers) }

// ParseAtLeast returns the numbers of such a value, and false for any other.
func ParseAtLeast(value string) (numbers string, ok bool) { return strings.CutPrefix(value, leastMark) }

// Covers reports whether an exact value is at least these numbers, each of them.
func Covers(value, numbers string) bool {
	return len(Numbers(value)) == len(Numbers(numbers)) && text.Larger(value, numbers) == CanonicalValue(value)
}

// refuseLeast says why a key cannot have a least value, or this one.
func (p Parameter) refuseLeast(known bool, numbers string) string {
	switch {
	case known && p.Kind != Integer && p.Kind != IntegerList, known && p.Min == p.Max:
		return "is no size or count that can be raised: declare it in spec.node.sysctls"
	case known:
		return p.refuse(numbers)
	case len(Numbers(numbers)) == 0:
		return "must be whole numbers in decimal digits, with one blank between them"
	}
	return ""
}
