package catalogue

import (
	"strings"

	"github.com/storageclient/operator/tuning/text"
)

// leastMark begins the value of a setting that says what a sysctl is to be at least, e.g. "at-least 4096 1048576 16777216". No
// number begins like it, and an agent that does not know it refuses it as no number.
const leastMark = "at-least "

// Value is the value of a setting.
type Value struct {
	// Text is the value as the kernel takes it.
	Text string
	// AtLeast is true for the value of a sysctl that is only raised to Text, number by number.
	AtLeast bool
}

// ParseValue reads a value as the API and the journal hold it.
func ParseValue(value string) Value {
	numbers, least := strings.CutPrefix(value, leastMark)
	return Value{numbers, least}
}

// String is the value as the API and the journal hold it.
func (v Value) String() string {
	if v.AtLeast {
		return leastMark + v.Text
	}
	return v.Text
}

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
