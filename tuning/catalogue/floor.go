package catalogue

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/storageclient/operator/tuning/internal/decimal"
	"github.com/storageclient/operator/tuning/lists"
)

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
	reason := strings.TrimSpace(fmt.Sprintf("%smust be at least %d %s", which, p.Least[below], p.Unit)) + ": " + p.LeastReason
	if p.Default != "" {
		reason += "; the kernel's default is " + p.Default
	}
	return reason
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
