package catalogue

import "fmt"

// Lowers says which number of a value is less than what a node had before, of a parameter that is tuned to have more of it, and
// what to do; empty where none is. The kernels' own values grow: a figure from a document can halve what a later kernel has.
func Lowers(key, original, value string) string {
	p, known := Lookup(key)
	had, wanted := Numbers(original), Numbers(value)
	if !known || !p.Grows || len(had) != len(wanted) {
		return ""
	}
	i := firstBelow(wanted, had)
	if i < 0 {
		return ""
	}
	which := ""
	if len(had) > 1 {
		which = fmt.Sprintf("number %d ", i+1)
	}
	remedy := "leave it out, or declare more"
	if Key(key).Subject() == Sysctls {
		remedy = "declare it in sysctlsAtLeast, which only raises"
	}
	return fmt.Sprintf("%sgoes down from the node's own %d to %d: %s", which, had[i], wanted[i], remedy)
}
