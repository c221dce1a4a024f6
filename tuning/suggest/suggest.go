// Package suggest finds the intended name for a misspelled one.
package suggest

import (
	"slices"
	"strings"
)

// Closest returns the candidate that is closest to word. Letters can be missing, added, changed or swapped, or the parts can be in
// another order (max_tcp for tcp_max). It returns false if no candidate is close enough, or if word is a candidate.
func Closest(word string, candidates []string) (string, bool) {
	limit := max(1, (len(word)+2)/4)
	best, found := "", limit+1
	sorted := slices.Clone(candidates)
	slices.Sort(sorted)
	for _, candidate := range sorted {
		if candidate == word {
			return "", false
		}
		if n := len(candidate) - len(word); max(n, -n) > limit {
			continue
		}
		d := min(distance(word, candidate), 1+distance(orderParts(word), orderParts(candidate)))
		if d < found {
			best, found = candidate, d
		}
	}
	return best, best != ""
}

// orderParts sorts the parts of a name, so that names with the same parts are equal.
func orderParts(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("._-/", r) })
	slices.Sort(parts)
	return strings.Join(parts, "_")
}

// distance returns the number of letters that are inserted, removed, changed or swapped with a neighbor.
func distance(a, b string) int {
	var older []int
	old := make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, old[j]+1, old[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, old = old, row
	}
	return old[len(b)]
}
