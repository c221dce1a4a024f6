// Package knownbad lists combinations of kernels, servers and mount options that are known to lose data, hang or fail. All functions are
// pure: they do not access the cluster, the host or the clock.
package knownbad

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/embedded"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// Entry is one known combination. Empty conditions do not limit it.
type Entry struct {
	// ID is stable across releases. Fails describes what users see, and Loses reports whether data is lost.
	ID, Fails string
	Loses     bool
	// Branches contains the affected releases of stable branches: FROM-FIXED. A "?" is unknown.
	Branches map[string]string
	// Since and Until are the first affected and the first fixed release of other branches.
	Since, Until string
	// Protocols are prefixes of protocols of mounts, such as NFSv4. Options are mount options, with or without a value. Blanks separate options
	// that occur together.
	Protocols, Options []string
	// Server is a condition on the server. Nodes do not report it. Hosts are parts of the names of such servers.
	Server string
	Hosts  []string
	// Signed reports whether kernel and mount prove nothing without a further sign. Sign is that sign. It is nil if nodes cannot show it.
	Signed bool
	Sign   *Sign
	// Option, and Setting with Value, are cures that a profile can contain. Remedy is another cure.
	Option, Setting, Value, Remedy string
	// Expires is the condition for the removal of the entry. Empty if no node runs an affected kernel.
	Expires            string
	Source, Confidence string
}

// Sign is evidence on a node that it has a problem, in addition to kernel and mount. All parts that are set must hold.
type Sign struct {
	// Parameter is a file of the host, and Values are the values with which the problem occurs.
	Parameter string
	Values    []string
	// Operation is an operation of the mount. Errors and Requests are the smallest numbers of failed and of all requests since the mount was made.
	// Times is the smallest number of requests for each request of the operations Than together.
	Operation               string
	Than                    []string
	Errors, Requests, Times uint64
	// Log is a regular expression for a line of the kernel log. Unmounted reports whether it proves the problem without a mount.
	Log       string
	Unmounted bool
}

// Counts are the requests of one operation of a mount since it was made, and its failed requests.
type Counts struct{ Requests, Errors uint64 }

// IsShown reports whether a mount with these counts of its operations shows the sign. value returns the content of a file of the host, without the
// newline, and empty if there is no such file. A sign in the kernel log is not shown by a mount.
func (s *Sign) IsShown(value func(file string) string, counts func(operation string) Counts) bool {
	if s == nil || s.Log != "" || s.Parameter != "" && !slices.Contains(s.Values, value(s.Parameter)) {
		return false
	}
	o, compared := counts(s.Operation), uint64(0)
	for _, name := range s.Than {
		compared += counts(name).Requests
	}
	return o.Errors >= s.Errors && o.Requests >= s.Requests && o.Requests >= s.Times*compared
}

// Logged returns the ID of the entry whose sign is this line of the kernel log. Empty if there is none.
func Logged(line string) string {
	for _, e := range entries {
		if pattern := inLog[e.ID]; pattern != nil && pattern.MatchString(line) {
			return e.ID
		}
	}
	return ""
}

// inLog contains the patterns of the signs in the kernel log, by ID.
var inLog = func() map[string]*regexp.Regexp {
	patterns := map[string]*regexp.Regexp{}
	for _, e := range entries {
		if e.Sign != nil && e.Sign.Log != "" {
			patterns[e.ID] = regexp.MustCompile(e.Sign.Log)
		}
	}
	return patterns
}()

//go:embed entries.yaml
var document []byte

var entries = embedded.Parse[[]Entry]("registry of known problems", document)

// Entries returns all entries.
func Entries() []Entry { return slices.Clone(entries) }

// Verdict is the result for one kernel.
type Verdict string

const (
	// Affected means that the kernel has the problem.
	Affected Verdict = "Affected"
	// Possible means that the kernel lacks the fix, but the first affected release is unknown.
	Possible Verdict = "Possible"
	// Clear means that the kernel does not have the problem.
	Clear Verdict = "Clear"
	// CannotTell means that the release does not show which fixes the kernel has, or that the first release with the fix is unknown.
	CannotTell Verdict = "CannotTell"
)

// Kernel is the release of a kernel. Its zero value is unknown.
type Kernel struct{ major, minor, patch int }

var (
	number = regexp.MustCompile(`^(\d+)\.(\d+)(?:\.(\d+))?`)
	// debian and ubuntu match the stable release in /proc/version and /proc/version_signature: uname -r has only the ABI. The compiler is before "#1".
	debian = regexp.MustCompile(` #\d+ .*\bDebian (?:\d+:)?(\d+\.\d+\.\d+)[-+]`)
	ubuntu = regexp.MustCompile(`^Ubuntu \S+ (\d+\.\d+\.\d+)\s*$`)
	// vendor matches kernels with fixes that the release does not show.
	vendor = regexp.MustCompile(`\.el\d|\.amzn|\.azl|\.cm2|uek|-default\b|\.x86_64-suse|-(?:generic|azure|aws|gcp|gke|oracle|ibm|lowlatency)\b`)
	abi    = regexp.MustCompile(`^\d+\.\d+\.0-\d`)
)

// ParseKernel parses a release as printed by uname -r, and build, the text of /proc/version_signature or /proc/version. build may be empty.
func ParseKernel(release, build string) Kernel {
	for _, exact := range []*regexp.Regexp{debian, ubuntu} {
		if m := exact.FindStringSubmatch(build); m != nil {
			k, named := parseNumber(m[1]), parseNumber(release)
			if k.major != named.major || k.minor != named.minor {
				return Kernel{}
			}
			return k
		}
	}
	if vendor.MatchString(release) || abi.MatchString(release) {
		return Kernel{}
	}
	return parseNumber(release)
}

func parseNumber(text string) (k Kernel) {
	m := number.FindStringSubmatch(text)
	if m == nil {
		return Kernel{}
	}
	for i, field := range []*int{&k.major, &k.minor, &k.patch} {
		*field, _ = strconv.Atoi(m[i+1])
	}
	return k
}

// String returns the release, such as 6.1.170.
func (k Kernel) String() string { return fmt.Sprintf("%d.%d.%d", k.major, k.minor, k.patch) }

func (k Kernel) isBefore(text string) bool {
	other := parseNumber(text)
	return slices.Compare([]int{k.major, k.minor, k.patch}, []int{other.major, other.minor, other.patch}) < 0
}

// IsOlder reports whether a release, as printed by uname -r, is older than a version. An unknown release is not older.
func IsOlder(release, version string) bool {
	k := parseNumber(release)
	return k != Kernel{} && k.isBefore(version)
}

// On returns the verdict for a kernel.
func (e Entry) On(k Kernel) Verdict {
	span, isListed := e.Branches[fmt.Sprintf("%d.%d", k.major, k.minor)]
	switch {
	case k == Kernel{}:
		return CannotTell
	case isListed:
		return verdictIn(span, k.patch)
	case e.Since == "" && e.Until == "":
		return CannotTell
	case k.isBefore(e.Since) || e.Until != "" && !k.isBefore(e.Until):
		return Clear
	case e.Since == "":
		return Possible
	}
	return Affected
}

// verdictIn returns the verdict for a release of a branch with a range such as 120-160, ?-92 or 0-?.
func verdictIn(span string, patch int) Verdict {
	from, fixed, _ := strings.Cut(span, "-")
	first, unknownFirst := strconv.Atoi(from)
	last, unknownLast := strconv.Atoi(fixed)
	switch {
	case unknownLast == nil && patch >= last || unknownFirst == nil && patch < first:
		return Clear
	case unknownLast != nil:
		return CannotTell
	case unknownFirst != nil:
		return Possible
	}
	return Affected
}

// Concerns reports whether a mount of a protocol, such as NFSv4.1, with these options can have the problem.
func (e Entry) Concerns(protocol string, options []string) bool {
	if len(e.Protocols) > 0 && !slices.ContainsFunc(e.Protocols, func(prefix string) bool { return strings.HasPrefix(protocol, prefix) }) {
		return false
	}
	isMissing := func(want string) bool {
		return !slices.ContainsFunc(options, func(o string) bool {
			return o == want || !strings.Contains(want, "=") && strings.HasPrefix(o, want+"=")
		})
	}
	return len(e.Options) == 0 || slices.ContainsFunc(e.Options, func(all string) bool { return !slices.ContainsFunc(strings.Fields(all), isMissing) })
}

// Advice describes the problem, its cures as lines of a profile, and its expiry.
func (e Entry) Advice() string {
	cures := []string{e.Remedy}
	if e.Option != "" {
		cures = append(cures, "mountOptions: ["+e.Option+"]")
	}
	if e.Setting != "" {
		cures = append(cures, e.Patch())
	}
	expiry := cmp.Or(e.Expires, "no node runs an affected kernel")
	return fmt.Sprintf("%s: %s%s; cure: %s; applies until %s (%s)", e.ID, e.Fails, text.Labelled(" with ", e.Server), strings.Join(cures, ", or "), expiry, e.Source)
}

// Patch returns the part of a profile that contains the setting, for kubectl apply --server-side. Empty if the entry has none.
func (e Entry) Patch() string {
	subject, name := catalogue.Key(e.Setting).Cut()
	if subject == catalogue.Modules {
		module, parameter, _ := strings.Cut(name, "/")
		return fmt.Sprintf("{spec: {node: {kernelModules: [{name: %s, parameters: {%s: %q}}]}}}", module, parameter, e.Value)
	}
	if e.Setting == "" {
		return ""
	}
	return fmt.Sprintf("{spec: {node: {sysctls: {%s: %q}}}}", name, e.Value)
}

// Change is a problem that another kernel brings to nodes, or removes from them.
type Change struct {
	ID     string   `json:"id"`
	Brings bool     `json:"brings"`
	Nodes  []string `json:"nodes"`
	Text   string   `json:"text"`
}

func (v Verdict) isBad() bool { return v == Affected || v == Possible }

// Upgrade returns the changes that a kernel means for nodes, in the order of the registry. It includes problems that need a further sign.
// unknown are the nodes whose present kernel does not show its fixes; for these, all problems of the new kernel count as brought.
func Upgrade(nodes []v1alpha1.StorageClientNode, to Kernel) (changes []Change, unknown []string) {
	kernels := map[string]Kernel{}
	for i := range nodes {
		kernel := ParseKernel(nodes[i].Status.KernelVersion, nodes[i].Status.KernelBuild)
		if kernels[nodes[i].Name] = kernel; kernel == (Kernel{}) {
			unknown = append(unknown, nodes[i].Name)
		}
	}
	for _, e := range entries {
		brings, removes := Change{ID: e.ID, Brings: true, Text: e.Advice()}, Change{ID: e.ID, Text: e.Fails}
		for i := range nodes {
			node := &nodes[i]
			concerned := slices.ContainsFunc(node.Status.Mounts, func(m v1alpha1.MountStatus) bool { return e.Concerns(m.Protocol, m.Options) })
			switch before, after := e.On(kernels[node.Name]), e.On(to); {
			case !concerned:
			case after.isBad() && !before.isBad():
				brings.Nodes = append(brings.Nodes, node.Name)
			case before.isBad() && after == Clear:
				removes.Nodes = append(removes.Nodes, node.Name)
			}
		}
		changes = append(changes, lists.Filter([]Change{brings, removes}, func(c Change) bool { return len(c.Nodes) > 0 })...)
	}
	return changes, unknown
}
