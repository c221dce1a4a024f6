package text

import (
	"math/big"
	"strconv"
	"strings"
)

// Larger merges two lists of whole numbers, separated by blanks. At each position, the result has the larger number. Empty and invalid
// lists are ignored. A number without a counterpart stays. Numbers may have any size: the default of kernel.shmmax has 64 bits.
func Larger(a, b string) string {
	numbers, counterparts := bigNumbers(a), bigNumbers(b)
	if len(numbers) < len(counterparts) {
		numbers, counterparts = counterparts, numbers
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		if i < len(counterparts) && n.Cmp(counterparts[i]) < 0 {
			n = counterparts[i]
		}
		texts[i] = n.String()
	}
	return strings.Join(texts, " ")
}

// Covers reports whether two lists have the same number of whole numbers, and each number of the first list is at least its counterpart.
func Covers(list, minimum string) bool {
	numbers, counterparts := bigNumbers(list), bigNumbers(minimum)
	for i, n := range numbers {
		if i < len(counterparts) && n.Cmp(counterparts[i]) < 0 {
			return false
		}
	}
	return len(numbers) > 0 && len(numbers) == len(counterparts)
}

func bigNumbers(list string) (numbers []*big.Int) {
	for field := range strings.FieldsSeq(list) {
		n, ok := new(big.Int).SetString(field, 10)
		if !ok || n.String() != field {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
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
