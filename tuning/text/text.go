// Package text formats lists and long messages for conditions, events, statuses and terminals. The length is limited, and the same
// state always gives the same text.
package text

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// listed is the maximum number of entries that a message lists.
const listed = 3

// ellipsis is the end of a text that was cut.
const ellipsis = "…"

// List sorts names and lists at most three of them: "a, b, c and 4 more".
func List[S ~[]string](names S) string { return Join(names, ", ") }

// Join is List with another separator, for entries that contain commas.
func Join[S ~[]string](entries S, separator string) string {
	return InOrder(slices.Sorted(slices.Values(entries)), separator)
}

// InOrder is Join without sorting, for entries whose order is relevant.
func InOrder[S ~[]string](entries S, separator string) string {
	spelled := strings.Join(entries[:min(len(entries), listed)], separator)
	if rest := len(entries) - listed; rest > 0 {
		return spelled + " " + More(rest, "")
	}
	return spelled
}

// Labelled returns a text after its label. Empty if the text is empty.
func Labelled(label, s string) string {
	if s == "" {
		return ""
	}
	return label + s
}

// Combine joins the texts that are not empty.
func Combine(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), separator)
}

// Cap keeps the first entries of a list that is shown with one entry per line. If it omits entries, it appends their number with a
// plural noun: "and 4 more warnings". It does not change the input.
func Cap[S ~[]string](entries S, limit int, noun string) S {
	if len(entries) <= limit {
		return entries
	}
	return append(slices.Clone(entries[:limit]), More(len(entries)-limit, noun))
}

// More returns the number of omitted entries, with an optional plural noun: "and 4 more warnings".
func More(count int, noun string) string {
	return strings.TrimSpace(fmt.Sprintf("and %d more %s", count, noun))
}

// Count formats a number with its noun: "1 node", "3 nodes". The plural is the noun with an s unless it is given.
func Count(number int, noun string, plural ...string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", number, cmp.Or(strings.Join(plural, ""), noun+"s"))
}

// Line converts text from another source to one line. It replaces white space and unprintable characters with single blanks, for example
// control characters and marks that change the writing direction.
func Line(s string) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "?"))
	return strings.Join(strings.Fields(printable), " ")
}

// Escape replaces invisible characters with escapes that JSON has too, such as \u001b, and invalid UTF-8 with escapes such as \xff. It
// does not replace the characters in keep.
func Escape(s, keep string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case unicode.IsGraphic(r), strings.ContainsRune(keep, r):
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\t':
			out.WriteString(`\t`)
		default:
			for _, half := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&out, `\u%04x`, half)
			}
		}
		i += size
	}
	return out.String()
}

// Cut shortens a text to a number of characters, including the ellipsis, and replaces invalid UTF-8. The API also counts maxLength in
// characters.
func Cut(s string, characters int) string {
	s = strings.ToValidUTF8(s, "?")
	if utf8.RuneCountInString(s) <= characters {
		return s
	}
	return string([]rune(s)[:characters-1]) + ellipsis
}

// CutBytes is Cut with a limit in bytes, for events and annotations. The limit must be at least 3, the length of the ellipsis.
func CutBytes(s string, bytes int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= bytes {
		return s
	}
	return strings.ToValidUTF8(s[:bytes-len(ellipsis)], "") + ellipsis
}

// Hash returns the first bytes of the SHA-256 hash of a text, in hexadecimal. The number of bytes must be from 1 to 32.
func Hash(s string, bytes int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:bytes])
}

// JSON encodes a value that always has a JSON form.
func JSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(data)
}

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
