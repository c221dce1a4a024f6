// Package names writes lists into messages so that they neither flap nor grow: sorted, and capped.
package names

import (
	"fmt"
	"slices"
	"strings"
)

// shown is how many names a message spells out.
const shown = 3

// List writes at most three names in order, and how many more there are: "a, b, c and 4 more".
func List(all []string) string {
	return Join(all, ", ")
}

// Join is List with a separator of the caller's, for entries that hold commas.
func Join(all []string, separator string) string {
	sorted := slices.Sorted(slices.Values(all))
	if len(sorted) <= shown {
		return strings.Join(sorted, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:shown], separator), len(sorted)-shown)
}
