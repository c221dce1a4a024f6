package mountoptions

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Difference is an option whose value differs between two sets of mount options.
type Difference struct {
	// Option is the name of the option; actimeo appears as the four timers.
	Option string
	// Desired and Observed are the values. The value of a flag is its name. Observed is empty if the value is not shown.
	Desired, Observed string
	// Message explains the difference.
	Message string
	// Limited reports whether the kernel, the device, the server or a pod may have rounded, limited or declined the desired value.
	// A new mount can show the same value, so the difference does not prove that the mount is old.
	Limited bool
	// Weaker reports whether the desired value was left out because it weakens the protection of the mount.
	Weaker bool
}

// String returns a sentence with the option, its effective value and its desired value.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %s, desired %s: %s", d.Option, cmp.Or(d.Observed, "not shown"), d.Desired, d.Message)
}

// OfMount returns the protocol of a mount, given the type and version that the agent reports: NFSv4.1, SMB3.1.1, xfs.
func OfMount(mounted string) Protocol {
	switch {
	case strings.HasPrefix(mounted, "SMB"):
		return SMB
	case mounted == "xfs":
		return XFS
	}
	return NFS
}

// Outdated returns the differences that prove that a mount was not made with the desired options. It omits the results
// of Compare that a new mount can also show. mounted is the same as for OfMount.
func Outdated(mounted string, wanted, observed []string) []Difference {
	return slices.DeleteFunc(OfMount(mounted).Compare(wanted, observed), func(d Difference) bool { return d.Limited })
}

// Compare returns the desired options that a mount does not have. It ignores observed options that are not desired. It
// also ignores options that the kernel never shows: see Unverifiable.
//
// For NFS, observed is the "opts:" line of the mount in /proc/self/mountstats, split at the commas. Unlike
// /proc/mounts, this line includes defaults. For SMB and XFS, observed are the options in /proc/mounts.
func (p Protocol) Compare(wanted, observed []string) []Difference {
	t := tableOf(p)
	want := Parse(wanted)
	state, actual := t.resolve(want), t.resolve(Parse(observed))
	var differences []Difference
	done := map[string]bool{}
	for _, o := range want {
		if _, known := t.specs[o.Name]; !known && twins[o.Name] == "" {
			continue
		}
		for _, key := range t.keysOf(o, state) {
			if _, isSet := state[key]; !isSet || done[key] || slices.Contains(t.Never, key) || t.ignores(key, actual[keyVersion]) {
				continue
			}
			done[key] = true
			if d, differs := t.compareKey(key, state[key], actual); differs {
				differences = append(differences, d)
			}
		}
	}
	return differences
}

// keysOf returns the keys that an option affects, given the resolved state of all options. With noac, the timers have no effect.
func (t *table) keysOf(o Option, state map[string]string) []string {
	if t.groupOf(o) == groupCache {
		if state[keyCache] == flagNoac {
			return []string{keyCache}
		}
		if t.keyOf(o) == keyActimeo {
			return t.Timers
		}
	}
	if t.groupOf(o) == keyVersion {
		return []string{keyVersion}
	}
	return []string{t.keyOf(o)}
}

// Unverifiable returns the options that the kernel does not show, so their effect cannot be verified:
//   - options without any effect
//   - options that only mount reads
//   - options that leave the choice to the server
//   - options that the version of NFS ignores silently
func (p Protocol) Unverifiable(wanted []string) []string {
	t := tableOf(p)
	options := Parse(wanted)
	version := t.resolve(options)[keyVersion]
	var out []string
	for _, o := range options {
		key := t.keyOf(o)
		negotiated := (key == keyRsize || key == keyWsize) && number(o.Value) == 0 || key == keyVersion && o.Value == versionDefault
		if _, known := t.specs[o.Name]; !known || slices.Contains(t.Never, key) || negotiated || t.ignores(key, cmp.Or(version, "4")) {
			out = append(out, o.String())
		}
	}
	return out
}

// ignores reports whether a version of NFS accepts an option without effect, and does not show it.
func (t *table) ignores(key, version string) bool {
	return slices.Contains(t.OnlyV3, key) && strings.HasPrefix(version, "4") || key == keyMaxConnect && (version == "3" || version == "4.0")
}

func (t *table) compareKey(key, wanted string, actual map[string]string) (Difference, bool) {
	observed, isShown := actual[key]
	if value, ok := t.Hidden[key]; ok && !isShown {
		observed = value
	}
	d := Difference{Option: key, Desired: wanted, Observed: observed}
	reason, mayBeDeclined := t.Declined[key+"="+observed]
	if !isShown {
		d.Observed = ""
	}
	switch {
	case isSame(key, wanted, observed):
		return Difference{}, false
	case slices.Contains(t.Granted, key):
		return t.compareGranted(d)
	case key == keyNconnect:
		d.Message = "the first mount of a server on a node sets the number of connections: unmount all mounts of the server first"
	case mayBeDeclined:
		d.Message, d.Limited = reason+", or the mount was made with a different value", true
	case observed == "":
		d.Message = "the kernel does not show it"
	default:
		d.Message = "the mount was made with a different value"
	}
	return d, true
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

// compareGranted explains the difference of a value that the kernel or the server can reduce.
func (t *table) compareGranted(d Difference) (Difference, bool) {
	if t.Rounds {
		return compareSize(d)
	}
	d.Message = "the mount was made with a different value"
	if number(d.Observed) < number(d.Desired) {
		d.Message, d.Limited = "the server allows no more, or the mount was made with a different value", true
	}
	return d, number(d.Desired) != 0
}

// compareSize explains a transfer size that differs from the desired size. The kernel rounds down: up to 5.10 to a
// power of two, later to whole pages. It uses at most 1 MiB, and the server can allow less.
func compareSize(d Difference) (Difference, bool) {
	wanted, observed := number(d.Desired), number(d.Observed)
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

// transferSizes returns the possible effective values of an rsize or wsize. Kernels round the size down to a power of
// two, or to pages of 4, 16 or 64 KiB.
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
