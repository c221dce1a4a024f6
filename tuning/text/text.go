// Package text writes lists and long messages so that they neither flap nor grow. Whoever reads them (a condition, an event,
// a status, a terminal) has a bound, and sees the same words for the same state.
package text

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// listed is how many entries a message spells out.
const listed = 3

// ellipsis ends a text that has been cut.
const ellipsis = "…"

// List sorts names and writes at most three of them: "a, b, c and 4 more".
func List[S ~[]string](names S) string {
	return Join(names, ", ")
}

// Join is List with a separator of the caller's, for entries that hold commas.
func Join[S ~[]string](entries S, separator string) string {
	return InOrder(slices.Sorted(slices.Values(entries)), separator)
}

// InOrder is Join for entries whose order means something: they are not sorted.
func InOrder[S ~[]string](entries S, separator string) string {
	spelled := strings.Join(entries[:min(len(entries), listed)], separator)
	if rest := len(entries) - listed; rest > 0 {
		return spelled + " " + More(rest, "")
	}
	return spelled
}

// Cap keeps the first entries of a list that is shown one to a line. Where it leaves some out, a last entry says how many,
// by the noun for several of them: "and 4 more warnings". The list is not changed.
func Cap[S ~[]string](entries S, most int, noun string) S {
	if len(entries) <= most {
		return entries
	}
	return append(slices.Clone(entries[:most]), More(len(entries)-most, noun))
}

// More says how many entries are left out, with the noun for several of them if there is one: "and 4 more warnings".
func More(count int, noun string) string {
	return strings.TrimSpace(fmt.Sprintf("and %d more %s", count, noun))
}

// Count writes a number with its noun, in the singular for one: "1 node", "3 nodes". The plural is the noun with an s
// unless it is given.
func Count(number int, noun string, plural ...string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", number, cmp.Or(strings.Join(plural, ""), noun+"s"))
}

// Line is a text of somebody else on one line: blanks, line ends and what does not print (control characters, marks that turn
// the direction of writing) become single blanks.
func Line(s string) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "?"))
	return strings.Join(strings.Fields(printable), " ")
}

// Cut shortens a text to so many characters, the ellipsis that it then ends with included. The API counts a string's
// maxLength in characters. What is no UTF-8 is replaced.
func Cut(s string, characters int) string {
	s = strings.ToValidUTF8(s, "?")
	if utf8.RuneCountInString(s) <= characters {
		return s
	}
	return string([]rune(s)[:characters-1]) + ellipsis
}

// CutBytes is Cut for a bound in bytes, as events and annotations have. The bound is at least the ellipsis' three bytes.
func CutBytes(s string, bytes int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= bytes {
		return s
	}
	return strings.ToValidUTF8(s[:bytes-len(ellipsis)], "") + ellipsis
}
