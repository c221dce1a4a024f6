// Package decimal parses numbers in the only format that all kernel parsers accept: decimal digits. The parsers disagree about other
// formats. Some stop at the first letter ("16M" is 16), some read a leading zero as octal, some reject the value.
package decimal

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Error explains why a text is not a valid number, with the correct form if it is known.
type Error struct {
	Reason string
	// Suffix reports whether the number has a unit as suffix, for example 16M.
	Suffix bool
}

func (e *Error) Error() string { return e.Reason }

// Parse parses a number of at most 63 bits. Every error is an *Error.
func Parse(text string) (int64, error) {
	switch {
	case text == "":
		return 0, &Error{Reason: "must be a number"}
	case text != "0" && text[0] == '0' && isDigits(text):
		return 0, &Error{Reason: "has a leading zero, which the kernel reads as octal: write " + trimZeros(text)}
	case isDigits(text):
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, &Error{Reason: "is larger than any number that the kernel accepts"}
		}
		return n, nil
	}
	lower := strings.ToLower(text)
	if n, err := strconv.ParseInt(lower, 0, 64); err == nil && strings.HasPrefix(lower, "0x") {
		return 0, &Error{Reason: fmt.Sprintf("must be decimal digits only, not hexadecimal: write %d", n)}
	}
	if n, ok := parseSuffix(text); ok {
		return 0, &Error{Reason: fmt.Sprintf("must be decimal digits only, without a suffix: write %d", n), Suffix: true}
	}
	return 0, &Error{Reason: "must be decimal digits only"}
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func trimZeros(text string) string {
	if text = strings.TrimLeft(text, "0"); text == "" {
		return "0"
	}
	return text
}

// parseSuffix parses 16M, 16Mi, 16MB and 16MiB as 16 times 1024 squared. The suffixes s and B alone do not change a number.
func parseSuffix(text string) (int64, bool) {
	digits := strings.TrimRight(text, "kKmMgGtTiBbs")
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(text[len(digits):]), "b"), "i")
	shift, known := map[string]int{"": 0, "s": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit]
	n, err := strconv.ParseUint(digits, 10, 63)
	if !known || err != nil || bits.Len64(n)+shift > bits.Len64(math.MaxInt64) {
		return 0, false
	}
	return int64(n) << shift, true
}
