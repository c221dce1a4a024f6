package catalogue

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/storageclient/operator/tuning/internal/decimal"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// minimumPrefix is the prefix of the value of a setting with a minimum for a sysctl, e.g. "at-least 4096 1048576 16777216". No number
// has this prefix, so agents that do not know it reject the value.
const minimumPrefix = "at-least "

// Value is the value of a setting.
type Value struct {
	// Text is the value in the kernel's format.
	Text string
	// AtLeast reports whether the value is a minimum: the agent only raises the sysctl to Text, number by number.
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

// IsMetBy reports whether the kernel has the value, or at least the value.
func (v Value) IsMetBy(observed string) bool {
	if v.AtLeast {
		return text.Covers(observed, v.Text)
	}
	return CanonicalValue(observed) == CanonicalValue(v.Text)
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

// validateFloor returns the reason why no node works with a value that the kernel accepts, and a valid value. Empty if nodes work
// with it.
func (p Parameter) validateFloor(value string) string {
	numbers := Numbers(value)
	if p.LeastSpan > 0 && len(numbers) == 2 && numbers[1]-numbers[0]+1 < p.LeastSpan {
		return fmt.Sprintf("must be a range of at least %d: %s; the kernel's default is %s", p.LeastSpan, p.LeastReason, p.Default)
	}
	below := firstBelow(numbers, p.Least)
	if below < 0 {
		return ""
	}
	which := ""
	if p.Kind == IntegerList {
		which = fmt.Sprintf("number %d ", below+1)
	}
	limit := strings.TrimSpace(fmt.Sprintf("%smust be at least %d %s", which, p.Least[below], p.Unit))
	return limit + ": " + p.LeastReason + text.Labelled("; the kernel's default is ", p.Default)
}

// firstBelow returns the index of the first number that is below its limit, or -1.
func firstBelow(numbers, bounds []int64) int {
	for i := range min(len(numbers), len(bounds)) {
		if numbers[i] < bounds[i] {
			return i
		}
	}
	return -1
}

// Numbers returns the numbers of a value. Empty if a part of the value is not a whole number.
func Numbers(value string) []int64 {
	var numbers []int64
	for field := range strings.FieldsSeq(value) {
		n, err := decimal.Parse(field)
		if err != nil {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// join formats numbers as the kernel does, separated by single spaces.
func join(numbers []int64) string {
	return strings.Join(lists.Each(numbers, func(n int64) string { return strconv.FormatInt(n, 10) }), " ")
}
