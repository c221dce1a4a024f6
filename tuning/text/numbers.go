package text

import (
	"strconv"
	"strings"
)

// Larger merges two lists of whole numbers, separated by blanks. At each position, the result has the larger number. Empty and invalid
// lists are ignored. A number without a counterpart stays.
func Larger(a, b string) string {
	numbers, counterparts := Numbers(a), Numbers(b)
	if len(numbers) < len(counterparts) {
		numbers, counterparts = counterparts, numbers
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		if i < len(counterparts) {
			n = max(n, counterparts[i])
		}
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, " ")
}

// Numbers returns the whole numbers in a list, separated by blanks. Nil if it contains other text.
func Numbers(list string) (numbers []int64) {
	for field := range strings.FieldsSeq(list) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}
