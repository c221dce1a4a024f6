package catalogue

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/internal/decimal"
	"github.com/storageclient/operator/tuning/suggest"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// maxText is the maximum length of keys and values in the API, in bytes.
	maxText = 256
	// maxPrinted is the maximum length of keys and values in errors, in characters.
	maxPrinted = 64
)

// Error is the reason why a setting is not applied.
type Error struct {
	// Key and Value are the setting.
	Key, Value string
	// Reason describes a valid setting.
	Reason string
}

func (e *Error) Error() string { return printable(e.Key) + "=" + printable(e.Value) + ": " + e.Reason }

// AllowList admits parameters beyond the catalogue. Its zero value admits none.
type AllowList struct {
	keys, values []*regexp.Regexp
	// filesystems are additional directories at and below which mount options may be set.
	filesystems []string
	// everyPlace disables the check of mount points.
	everyPlace bool
	// excludesControlPlane is true if no profile may select control-plane nodes.
	excludesControlPlane bool
}

// AcceptAll returns the allow-list that accepts every setting that any other list accepts.
func AcceptAll() AllowList {
	everything := []*regexp.Regexp{regexp.MustCompile("")}
	return AllowList{keys: everything, values: everything, everyPlace: true}
}

// WithoutControlPlane returns the list for an installation without the component control-plane.
func (a AllowList) WithoutControlPlane() AllowList {
	a.excludesControlPlane = true
	return a
}

// ExcludesControlPlane reports whether no profile may select control-plane nodes.
func (a AllowList) ExcludesControlPlane() bool { return a.excludesControlPlane }

// NewAllowList returns an allow-list with regular expressions that must match a whole canonical key, e.g.
// sysctl/net[.]ipv4[.]tcp_.*. An expression with a "=" must match a whole key=value. It admits a value of the catalogue below the
// minimum with which nodes are known to work, e.g. sysctl/net[.]ipv4[.]tcp_rmem=1 1 1. No less explicit expression does.
func NewAllowList(patterns []string) (AllowList, error) {
	var list AllowList
	for _, pattern := range patterns {
		compiled, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
		if err != nil {
			return AllowList{}, fmt.Errorf("compile allowed parameter %q: %w", pattern, err)
		}
		list.keys = append(list.keys, compiled)
		if strings.Contains(pattern, "=") {
			list.values = append(list.values, compiled)
		}
	}
	return list, nil
}

// Check returns nil if a setting may be applied. Its canonical key must be in the catalogue or on the list, and its value must be
// in range. Both must consist of bytes that are safe in all generated files. An allow-list only adds keys: it never allows other
// bytes or values that the kernel does not accept. Every error is an *Error.
func (a AllowList) Check(key, value string) error {
	if key == KernelArguments+"/hugepagesz" {
		// Documentation/admin-guide/kernel-parameters.txt: each hugepages= applies to the hugepagesz= before it.
		return &Error{Key: key, Value: value, Reason: "the place of hugepagesz before hugepages matters, and settings have no order: set both in the " +
			"configuration of the boot loader, or use default_hugepagesz"}
	}
	if err := a.CheckApplied(key, value); err != nil {
		return err
	}
	p, _ := Lookup(key)
	if reason := p.validateFloor(ParseValue(value).Text); reason != "" && !matchesAny(a.values, key+"="+value) {
		return &Error{Key: key, Value: value, Reason: reason}
	}
	return nil
}

// TrialProblem returns the reason why a trial cannot have these sysctls as its candidate: the field, its value, and an alternative. Empty if it can.
// No allow-list adds keys or values: a trial needs a separate value for its network namespace.
func TrialProblem(sysctls map[string]v1alpha1.SettingText) string {
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		problem := &Error{Value: string(sysctls[name]), Reason: "a trial can set only the sysctls of a network namespace that docs/trials.md lists; " +
			"declare it in spec.node of a profile, and measure before and after on a canary node"}
		if p, _ := Lookup(SysctlKey(name)); !p.NetNS || errors.As(AllowList{}.Check(p.Key, problem.Value), &problem) {
			return fmt.Sprintf("spec.sysctls[%s] is %s: %s", printable(name), printable(problem.Value), problem.Reason)
		}
	}
	return ""
}

// CheckApplied is Check for a value that an earlier release has applied. It accepts hugepagesz, and values below the minimum with which
// nodes are known to work: such a value is not a reason to revert the setting.
func (a AllowList) CheckApplied(key, value string) error {
	if reason := a.validate(key, value); reason != "" {
		return &Error{Key: key, Value: value, Reason: reason}
	}
	return nil
}

func (a AllowList) validate(key, value string) string {
	if len(key) > maxText || len(value) > maxText {
		return fmt.Sprintf("keys and values are at most %d bytes long", maxText)
	}
	if reason := validateKey(key); reason != "" {
		return reason
	}
	v := ParseValue(value)
	if v.AtLeast && Key(key).Subject() != Sysctls {
		return "only sysctls can have a minimum: declare it in spec.node.sysctls or spec.node.kernelModules"
	}
	if reason := validateBytes(key, value); reason != "" {
		return reason
	}
	p, known := Lookup(key)
	if name, ok := Key(key).In(Filesystems); known && ok && !a.everyPlace {
		if reason := a.ValidateMountPoint("/" + name); reason != "" {
			return reason
		}
	}
	switch {
	case !known && !matchesAny(a.keys, key):
		return explainUnknown(key)
	case v.AtLeast:
		return p.validateMinimum(known, v.Text)
	case known:
		return p.validate(value)
	}
	return ""
}

func matchesAny(patterns []*regexp.Regexp, setting string) bool {
	return slices.ContainsFunc(patterns, func(pattern *regexp.Regexp) bool { return pattern.MatchString(setting) })
}

var (
	// A sysctl's first separator is a dot: sysctl.d reads a name whose first separator is a slash as a path. It ignores
	// failures of a line that begins with '-'.
	sysctlName   = regexp.MustCompile(`\A[A-Za-z0-9_][A-Za-z0-9_-]*[.][A-Za-z0-9_.:/@+-]+\z`)
	moduleName   = regexp.MustCompile(`\A[A-Za-z0-9_]+/[A-Za-z0-9_.]+\z`)
	argumentName = regexp.MustCompile(`\A[A-Za-z0-9_][A-Za-z0-9_.,:/@+-]*\z`)

	plainValue  = regexp.MustCompile(`\A[A-Za-z0-9_.,:=/@+-]*\z`)
	sysctlValue = regexp.MustCompile(`\A[A-Za-z0-9_.,:=/@+ -]*\z`)
)

func validateKey(key string) string {
	subject, name := Key(key).Cut()
	switch {
	case !strings.Contains(key, "/") || !slices.Contains(subjects, subject):
		return "must be sysctl/<dotted name>, module/<module>/<parameter>, kernelArgument/<name>, readAhead/<file system type>, " +
			"tuned/profile, nfsMountDefaults/<server> or filesystem/<mount point>"
	case subject == Sysctls && (!sysctlName.MatchString(name) || leavesTree(name)):
		return "must be a dotted name such as net.core.rmem_max; write '/' only for a dot inside an interface name"
	case subject == Modules && (!moduleName.MatchString(name) || isDots(name[strings.Index(name, "/")+1:])):
		return "must be module/<module>/<parameter>, with only letters, digits, '_' and '.'"
	case subject == KernelArguments && !argumentName.MatchString(name):
		return "a kernel argument's name may contain only letters, digits and _ . , : / @ + -, and must not start with '-'"
	}
	return validateHostKey(subject, name)
}

// leavesTree reports whether a name is not a plain path below /proc/sys: there, dots are slashes and slashes are dots.
func leavesTree(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "."), func(part string) bool {
		return part == "" || isDots(strings.ReplaceAll(part, "/", "."))
	})
}

func isDots(name string) bool { return name == "." || name == ".." }

func validateBytes(key, value string) string {
	subject := Key(key).Subject()
	switch {
	case subject == Sysctls && !sysctlValue.MatchString(value):
		return "a value may contain only letters, digits, blanks and _ . , : = / @ + -"
	case subject == Sysctls && value != CanonicalValue(value):
		return fmt.Sprintf("separate fields by one blank: write %q", CanonicalValue(value))
	case subject != Sysctls && !plainValue.MatchString(value):
		return "a value may contain only letters, digits and _ . , : = / @ + -, no blanks"
	case subject != KernelArguments && value == "":
		return "needs a value"
	}
	return ""
}

func (p Parameter) validate(value string) string {
	switch p.Kind {
	case Identity:
		if value != string(v1alpha1.NFS4UniqueIDFromNode) {
			return "must be FromNode, declared as spec.node.nfs4UniqueID: nodes with the same value lose locks and open files to each other"
		}
		return ""
	case ProfileName, NFSOptions, FilesystemOptions:
		return validateHostValue(p.Kind, value)
	case IntegerList:
		return p.validateList(value)
	case Ports:
		return p.validatePorts(value)
	case Integer, Flag:
		_, reason := p.number(value)
		return reason
	default:
		return ""
	}
}

func (p Parameter) validateList(value string) string {
	fields := strings.Fields(value)
	if len(fields) != p.Fields {
		return fmt.Sprintf("must be %d numbers separated by one blank", p.Fields)
	}
	last := p.Min
	for i, field := range fields {
		n, reason := p.number(field)
		if reason != "" {
			return fmt.Sprintf("number %d %s", i+1, reason)
		}
		if p.Ascending && n < last {
			return "no number may be smaller than the number before it"
		}
		last = n
	}
	return ""
}

// validatePorts accepts only the form that the kernel shows. It merges adjacent ports and ranges.
func (p Parameter) validatePorts(value string) string {
	last := int64(-1)
	for part := range strings.SplitSeq(value, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, reason := p.number(from)
		end := first
		if isRange && reason == "" {
			end, reason = p.number(to)
		}
		switch {
		case reason != "":
			return fmt.Sprintf("port %q %s", part, reason)
		case first <= last+1 || isRange && end <= first:
			return "must be ports and ranges in ascending order, without overlap, for example 10250,30000-32767: join adjacent ports in a range"
		}
		last = end
	}
	return ""
}

func (p Parameter) number(text string) (int64, string) {
	n, err := decimal.Parse(text)
	if err != nil {
		return 0, p.explainNumber(text, err)
	}
	if n < p.Min || n > p.Max {
		return 0, p.describeRange()
	}
	return n, ""
}

func (p Parameter) explainNumber(text string, err error) string {
	var syntax *decimal.Error
	if p.TakesEffect == v1alpha1.EffectReboot && errors.As(err, &syntax) && syntax.Suffix {
		digits := strings.TrimRight(text, "kKmMgGtTiBbs")
		return fmt.Sprintf("%s: kernels up to 6 ignore the suffix and use %s buckets", err, digits)
	}
	return err.Error()
}

func (p Parameter) describeRange() string {
	if p.Min == p.Max {
		return strings.TrimSpace(fmt.Sprintf("must be %d %s", p.Min, p.Unit))
	}
	return strings.TrimSpace(fmt.Sprintf("must be %d to %d %s", p.Min, p.Max, p.Unit))
}

// explainUnknown suggests the key that the user probably meant, and the flag that allows a key that is not in the catalogue.
func explainUnknown(key string) string {
	allow := "allow it, start manager and agents with --allow-parameter='" + regexp.QuoteMeta(key) + "'"
	subject, name := Key(key).Cut()
	keys := map[string]string{}
	var names []string
	for _, p := range parameters {
		pSubject, pName := Key(p.Key).Cut()
		dotted := strings.ReplaceAll(pName, "/", ".")
		if dotted == name || pName == name {
			return "not a " + subject + ": use " + p.Key
		}
		keys[dotted], names = p.Key, append(names, dotted)
		if pSubject == subject || subject == Sysctls && strings.HasPrefix(dotted, "sunrpc.") {
			keys[dotted] = dotted
		}
	}
	if closest, ok := suggest.Closest(strings.ReplaceAll(name, "/", "."), names); ok {
		return "not supported. Did you mean " + keys[closest] + "? To " + allow
	}
	return "not supported; to " + allow
}

// printable returns text from a profile in a form that is safe in a message.
func printable(value string) string {
	if sysctlValue.MatchString(value) {
		return text.Cut(value, maxPrinted)
	}
	return strconv.Quote(text.Cut(value, maxPrinted))
}
