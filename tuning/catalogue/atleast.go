package catalogue

import (
	"strings"

	"github.com/storageclient/operator/tuning/text"
)

// minimumPrefix is the prefix of the value of a setting with a minimum for a sysctl, e.g. "at-least 4096 1048576 16777216". No number
// has this prefix, so agents that do not know it reject the value.
const minimumPrefix = "at-least "

// Value is the value of a setting.
type Value struct {
	// Text is the value in the kernel's format.
	Text string
	// AtLeast reports whether the value is a minimum: a sysctl is only raised to Text, number by number.
	AtLeast bool
}

// ParseValue parses a value in the format of the API and the journal.
func ParseValue(value string) Value {
	numbers, isMinimum := strings.CutPrefix(value, minimumPrefix)
	return Value{numbers, isMinimum}
}

// String returns the value in the format of the API and the journal.
func (v Value) String() string {
	if v.AtLeast {
		return minimumPrefix + v.Text
	}
	return v.Text
}

// Covers reports whether each number of an exact value is at least the corresponding number.
func Covers(value, numbers string) bool {
	return len(Numbers(value)) == len(Numbers(numbers)) && text.Larger(value, numbers) == CanonicalValue(value)
}

// validateMinimum returns the reason why a key cannot have a minimum, or not this one. Empty if it can.
func (p Parameter) validateMinimum(known bool, numbers string) string {
	switch {
	case known && p.Kind != Integer && p.Kind != IntegerList, known && p.Min == p.Max:
		return "is not a size or count that can be raised: declare it in spec.node.sysctls"
	case known:
		return p.validate(numbers)
	case len(Numbers(numbers)) == 0:
		return "must be whole numbers in decimal digits, with one blank between them"
	}
	return ""
}
