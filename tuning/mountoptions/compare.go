package mountoptions

import (
	"cmp"
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
	// Weaker is true where what is wanted would make the mount weaker, and is kept from it for that.
	Weaker bool
}

// String is the difference in a sentence that names the option, the value in force and the value wanted.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %s, wanted %s: %s", d.Option, cmp.Or(d.Observed, "not shown"), d.Wanted, d.Message)
}

// OfMount is the protocol of a mount by its type and version, as a node's agent reports them: NFSv4.1, SMB3.1.1, xfs.
func OfMount(mounted string) Protocol {
	switch {
	case strings.HasPrefix(mounted, "SMB"):
		return SMB
	case mounted == "xfs":
		return XFS
	}
	return NFS
}

// Outdated returns in what a mount shows that it was not made with what is wanted: Compare without the differences that
// a new mount may show as well. mounted is as for OfMount.
func Outdated(mounted string, wanted, observed []string) []Difference {
	return slices.DeleteFunc(OfMount(mounted).Compare(wanted, observed), func(d Difference) bool { return d.Limited })
}

// Compare returns in what a mount differs from what is wanted. observed is the "opts:" line of the mount in
// /proc/self/mountstats, split at the commas: other than /proc/mounts it shows defaults too. Options that the kernel
// shows nowhere are no difference and no proof either: see Unverifiable. What is observed and not wanted is no
// difference. For SMB and XFS, observed are the options in /proc/mounts.
func (p Protocol) Compare(wanted, observed []string) []Difference {
	t := tableOf(p)
	want := Parse(wanted)
	state, shown := t.resolve(want), t.resolve(Parse(observed))
	v4 := strings.HasPrefix(shown[keyVersion], "4")
	var differences []Difference
	done := map[string]bool{}
	for _, o := range want {
		for _, key := range t.keysOf(o, state) {
			if done[key] || t.never[key] || t.onlyV3[key] && v4 {
				continue
			}
			done[key] = true
			if d, differs := t.compareKey(key, state[key], shown); differs {
				differences = append(differences, d)
			}
		}
	}
	return differences
}

// Compare is Protocol.Compare of NFS.
func Compare(wanted, observed []string) []Difference { return NFS.Compare(wanted, observed) }

// keysOf are the keys that an option has a say in, given what the whole list says: with noac the timers have none.
func (t *table) keysOf(o Option, state map[string]string) []string {
	if t.groupOf(o) == groupCache {
		if state[keyCache] == flagNoac {
			return []string{keyCache}
		}
		if t.keyOf(o) == keyActimeo {
			return t.timers
		}
	}
	if t.groupOf(o) == keyVersion {
		return []string{keyVersion}
	}
	return []string{t.keyOf(o)}
}

// Unverifiable returns the options of a list that the kernel does not show, so that nobody can tell whether they are
// in force: those without any effect, those that only mount reads, those that leave the choice to the server, and
// those that NFSv4 drops in silence.
func (p Protocol) Unverifiable(wanted []string) []string {
	t := tableOf(p)
	options := Parse(wanted)
	version := t.resolve(options)[keyVersion]
	var out []string
	for _, o := range options {
		key := t.keyOf(o)
		negotiated := (key == keyRsize || key == keyWsize) && number(o.Value) == 0 || key == keyVersion && o.Value == versionDefault
		if _, known := t.specs[o.Name]; !known || t.never[key] || negotiated || t.onlyV3[key] && version != "3" {
			out = append(out, o.String())
		}
	}
	return out
}

// Unverifiable is Protocol.Unverifiable of NFS.
func Unverifiable(wanted []string) []string { return NFS.Unverifiable(wanted) }

func (t *table) compareKey(key, wanted string, shown map[string]string) (Difference, bool) {
	observed, isShown := shown[key]
	if value, ok := t.hidden[key]; ok && !isShown {
		observed = value
	}
	d := Difference{Option: key, Wanted: wanted, Observed: observed}
	if !isShown {
		d.Observed = ""
	}
	switch {
	case !t.isKnown(key) || isSame(key, wanted, observed):
		return Difference{}, false
	case t.granted[key]:
		return t.compareGranted(d)
	case key == keyNconnect:
		d.Message = "the first mount of a server on a node sets its connections: all mounts of the server must go first"
	case observed == "":
		d.Message = "the kernel does not show it"
	case key == keyDAX && observed == "never":
		d.Message, d.Limited = "the device has no DAX, or the mount was made with a different value", true
	default:
		d.Message = "the mount was made with a different value"
	}
	return d, true
}

func (t *table) isKnown(key string) bool {
	if slices.Contains(t.timers, key) {
		return true
	}
	// Not every key is an option's name: access times go by noatime, relatime and strictatime.
	for _, s := range t.specs {
		if s.key == key {
			return true
		}
	}
	return false
}

func isSame(key, wanted, observed string) bool {
	switch key {
	case keyVersion:
		return wanted == observed || wanted == versionDefault || strings.HasPrefix(observed, wanted+".") && !strings.Contains(wanted, ".")
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

// compareGranted explains a value that the other side has a say in.
func (t *table) compareGranted(d Difference) (Difference, bool) {
	if t.rounds {
		return compareSize(d)
	}
	d.Message = "the mount was made with a different value"
	if number(d.Observed) < number(d.Wanted) {
		d.Message, d.Limited = "the server allows no more, or the mount was made with a different value", true
	}
	return d, number(d.Wanted) != 0
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
		d.Message, d.Limited = "the kernel uses "+describeSizes(made), true
	case observed < slices.Max(made):
		d.Message, d.Limited = "the server allows no more, or the mount was made with a different value", true
	default:
		d.Message = "the mount was made with a different value"
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
		return fmt.Sprintf("%d, its maximum", maxTransfer)
	case len(sizes) == 1:
		return strconv.FormatInt(sizes[0], 10)
	default:
		return fmt.Sprintf("%d (kernels up to 5.10), or %d or less, in whole pages (later kernels)", sizes[0], sizes[1])
	}
}
