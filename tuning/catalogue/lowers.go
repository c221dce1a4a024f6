package catalogue

import "fmt"

// Lowers describes the first number of a value that is lower than the node's original number, if the parameter usually grows. It
// includes a solution. Empty if there is no such number. Defaults of newer kernels grow: a number from a document can be half of a
// newer kernel's default.
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
		remedy = "declare it in sysctlsAtLeast, which only raises values"
	}
	return fmt.Sprintf("%sdecreases from the node's original %d to %d: %s", which, had[i], wanted[i], remedy)
}
