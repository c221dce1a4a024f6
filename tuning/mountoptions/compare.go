package mountoptions

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Difference is an option in which two lists differ.
type Difference struct {
	// Option is the option's name; actimeo is spoken of as the four timers.
	Option string
	// Wanted and Observed are the values; a flag's value is its name. Observed is empty where nothing was shown.
	Wanted, Observed string
	// Message says why.
	Message string
	// Limited is true where the kernel's rounding, its limits or the server's may account for the difference: a new
	// mount may show the same, so it does not tell that the mount is an old one.
	Limited bool
}

// Compare returns in what a mount differs from what is wanted. observed is the "opts:" line of the mount in
// /proc/self/mountstats, split at the commas: other than /proc/mounts it shows defaults too. Options that the kernel
// shows nowhere are no difference and no proof either: see Unverifiable. What is observed and not wanted is no
// difference.
func Compare(wanted, observed []string) []Difference {
	want := Parse(wanted)
	state, shown := resolve(want), resolve(Parse(observed))
	v4 := strings.HasPrefix(shown[keyVersion], "4")
	var differences []Difference
	done := map[string]bool{}
	for _, o := range want {
		for _, key := range keysOf(o, state) {
			if done[key] || never[key] || onlyV3[key] && v4 {
				continue
			}
			done[key] = true
			if d, differs := compareKey(key, state[key], shown); differs {
				differences = append(differences, d)
			}
		}
	}
	return differences
}

// keysOf are the keys that an option has a say in, given what the whole list says: with noac the timers have none.
func keysOf(o Option, state map[string]string) []string {
	if groupOf(o) == groupCache {
		if state[keyCache] == flagNoac {
			return []string{keyCache}
		}
		if keyOf(o) == keyActimeo {
			return timers
		}
	}
	if groupOf(o) == keyVersion {
		return []string{keyVersion}
	}
	return []string{keyOf(o)}
}

// Unverifiable returns the options of a list that the kernel does not show, so that nobody can tell whether they are
// in force: those without any effect, those that only mount reads, those that leave the choice to the server, and
// those that NFSv4 drops in silence.
func Unverifiable(wanted []string) []string {
	options := Parse(wanted)
	version := resolve(options)[keyVersion]
	var out []string
	for _, o := range options {
		key := keyOf(o)
		negotiated := (key == keyRsize || key == keyWsize) && number(o.Value) == 0
		if _, known := lookup(o); !known || never[key] || negotiated || onlyV3[key] && version != "3" {
			out = append(out, o.String())
		}
	}
	return out
}

func compareKey(key, wanted string, shown map[string]string) (Difference, bool) {
	observed, isShown := shown[key]
	if value, ok := hidden[key]; ok && !isShown {
		observed = value
	}
	d := Difference{Option: key, Wanted: wanted, Observed: observed}
	if !isShown {
		d.Observed = ""
	}
	switch {
	case !isKnown(key) || same(key, wanted, observed):
		return Difference{}, false
	case key == keyRsize || key == keyWsize:
		return compareSize(d)
	case key == keyNconnect:
		d.Message = "the first mount of a server on a node fixes its connections: every mount of it has to go first"
	case observed == "":
		d.Message = "the kernel does not show it"
	default:
		d.Message = "the mount was made with another value"
	}
	return d, true
}

func isKnown(key string) bool {
	return slices.Contains(timers, key) || specs[key].key == key
}

func same(key, wanted, observed string) bool {
	switch key {
	case keyVersion:
		return wanted == observed || wanted == "4" && strings.HasPrefix(observed, "4.")
	case keyProto:
		return wanted == observed || wanted+"6" == observed
	case keySec:
		return slices.Contains(strings.Split(wanted, ":"), observed)
	case keyTimeo:
		return min(number(wanted), maxTimeo) == number(observed)
	default:
		return wanted == observed
	}
}

// compareSize explains a size that is not what was asked for. The kernel rounds down, to a power of two up to 5.10
// and to whole pages later, and uses 1 MiB at most; then the server may allow less.
func compareSize(d Difference) (Difference, bool) {
	wanted, observed := number(d.Wanted), number(d.Observed)
	made := transferSizes(wanted)
	switch {
	case wanted == 0:
		return Difference{}, false
	case observed < 0:
		d.Message = "the kernel does not show it"
	case slices.Contains(made, observed):
		d.Message, d.Limited = "the kernel makes it "+describeSizes(made), true
	case observed < slices.Max(made):
		d.Message, d.Limited = "the server allows no more, or the mount was made with another value", true
	default:
		d.Message = "the mount was made with another value"
	}
	return d, true
}

// transferSizes are the values that kernels make of an rsize or wsize: rounded down to a power of two, and to pages
// of 4, 16 and 64 KiB.
func transferSizes(size int64) []int64 {
	switch {
	case size < minTransfer:
		return []int64{defaultTransfer}
	case size >= maxTransfer:
		return []int64{maxTransfer}
	}
	power := int64(1) << (bits.Len64(uint64(size)) - 1)
	sizes := []int64{power}
	for _, page := range []int64{4 << 10, 16 << 10, 64 << 10} {
		if whole := size / page * page; whole > 0 && !slices.Contains(sizes, whole) {
			sizes = append(sizes, whole)
		}
	}
	return sizes
}

func describeSizes(sizes []int64) string {
	switch {
	case sizes[0] == maxTransfer:
		return fmt.Sprintf("%d, the most that it uses", maxTransfer)
	case len(sizes) == 1:
		return strconv.FormatInt(sizes[0], 10)
	default:
		return fmt.Sprintf("%d up to 5.10, and %d or less, in whole pages, later", sizes[0], sizes[1])
	}
}
