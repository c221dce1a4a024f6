package mountoptions

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/tuning/internal/decimal"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/suggest"
)

// Problem is an error or a warning about an option.
type Problem struct {
	// Option is the option as given.
	Option string
	// Message describes the error and the correct form.
	Message string
	// Warning reports whether the option is accepted but may have an unexpected effect.
	Warning bool
}

var safe = regexp.MustCompile(`\A[A-Za-z0-9_.:=/@+-]+\z`)

// Validate returns the problems of the options in a profile: options that cannot work, and options that profiles must
// not set. Options with an unexpected effect are warnings.
func Validate(p Protocol, options []string) []Problem {
	t, known := tables[p]
	if !known {
		return []Problem{{Message: fmt.Sprintf("unknown mount options: protocol %s", p)}}
	}
	var problems []Problem
	var good []Option
	for _, text := range options {
		o := parseOne(text)
		if message := t.validateOption(text, o); message != "" {
			message += t.explainOtherClient(o)
			problems = append(problems, Problem{Option: text, Message: message})
			continue
		}
		good = append(good, o)
		for _, message := range t.cautions(o) {
			problems = append(problems, Problem{Option: text, Message: message, Warning: true})
		}
	}
	for _, check := range t.checks {
		problems = append(problems, check(t, good)...)
	}
	return problems
}

// Errors returns the problems of Validate that are not warnings.
func Errors(p Protocol, options []string) []Problem {
	return lists.Filter(Validate(p, options), func(problem Problem) bool { return !problem.Warning })
}

// Refused returns the options of a volume that mount is sure to reject: options of other file systems, numbers that the kernel cannot read, and
// several versions. Other unknown options may belong to a newer kernel.
func (p Protocol) Refused(options []string) []Problem {
	t := tableOf(p)
	if p == Generic || slices.Contains(options, "sloppy") {
		return nil
	}
	var problems []Problem
	var all []Option
	for _, text := range options {
		o := parseOne(text)
		all = append(all, o)
		if s, known := t.specs[o.Name]; known && s.Kind == count && o.Value != "" {
			_, err := strconv.ParseUint(o.Value, 0, 64)
			if message := validateCount(s, o); message != "" && (err != nil || t.keyOf(o) == keyNconnect) {
				problems = append(problems, Problem{Option: text, Message: message})
			}
			continue
		}
		clients := []Protocol{NFS, SMB, XFS, EFS, VAST}
		if i := slices.IndexFunc(clients, func(client Protocol) bool { return client.Knows(text) }); i >= 0 && !p.Knows(text) {
			problems = append(problems, Problem{Option: text, Message: fmt.Sprintf("is an option of %s, which %s does not have", clients[i], p)})
		}
	}
	if p.Kernel() == NFS {
		problems = append(problems, checkVersions(t, all)...)
	}
	return problems
}

// validateOption returns the reason why a profile must not set an option, independent of the other options.
func (t *table) validateOption(text string, o Option) string {
	if reason := t.rejectionReason(o); reason != "" {
		return "is rejected: it " + reason
	}
	if !safe.MatchString(text) {
		return "an option may contain only letters, digits and _ . : = / @ + -, no comma and no blank: write each option as a separate entry"
	}
	s, ok := t.specs[o.Name]
	if !ok {
		return t.explainUnknown(o)
	}
	switch {
	case s.Kind == flag && o.HasValue && len(s.Words) == 0:
		return "does not accept a value: write " + o.Name
	case !o.HasValue && s.Value != "" || o.Value != "" && slices.Contains(s.Words, "*"):
		return ""
	case o.Value == "":
		return "needs a value: " + s.expects()
	case s.Kind == count:
		return validateCount(s, o)
	case s.Kind == size:
		return validateSize(s, o)
	case s.Kind == word && s.Removed[o.Value] != "":
		return s.Removed[o.Value] + ": " + s.expects()
	case (s.Kind == word || s.Kind == flag) && !slices.Contains(s.Words, o.Value):
		return s.expects()
	case s.Kind == words:
		for w := range strings.SplitSeq(o.Value, ":") {
			if !slices.Contains(s.Words, w) {
				return s.expects() + ", several separated by colons"
			}
		}
	}
	return ""
}

func validateCount(s spec, o Option) string {
	n, err := decimal.Parse(o.Value)
	var syntax *decimal.Error
	if errors.As(err, &syntax) {
		return syntax.Reason + "; the kernel accepts nothing else"
	}
	if n < s.Min || n > s.Max {
		return s.expects()
	}
	return ""
}

func validateSize(s spec, o Option) string {
	n := number(inBytes(o.Value))
	if n < s.Min || n > s.Max || n&(n-1) != 0 {
		return s.expects()
	}
	return ""
}

// inBytes converts a size with a suffix to a number of bytes. It returns other text unchanged.
func inBytes(text string) string {
	digits := strings.TrimRight(text, "kKmMgG")
	if len(text)-len(digits) > 1 {
		return text
	}
	n, err := decimal.Parse(digits)
	if err != nil || n > math.MaxUint32 {
		return text
	}
	switch strings.ToLower(text[len(digits):]) {
	case "k":
		n <<= 10
	case "m":
		n <<= 20
	case "g":
		n <<= 30
	}
	return strconv.FormatInt(n, 10)
}

func (s spec) expects() string {
	if s.Kind == size {
		return fmt.Sprintf("must be a power of two from %dk to %dk, or the same in bytes", s.Min>>10, s.Max>>10)
	}
	if s.Kind == count {
		return strings.TrimSpace(fmt.Sprintf("must be %d to %d %s", s.Min, s.Max, s.Unit))
	}
	return "must be one of " + strings.Join(s.Words, ", ")
}

// values describes the accepted values of the option. Empty for a flag.
func (s spec) values() string {
	switch s.Kind {
	case count:
		return strings.TrimSpace(fmt.Sprintf("%d–%d %s", s.Min, s.Max, s.Unit))
	case size:
		return fmt.Sprintf("a power of two from %dk to %dk, or the same in bytes", s.Min>>10, s.Max>>10)
	case words:
		return strings.Join(s.Words, ", ") + "; several separated by colons"
	default:
		return strings.Join(s.Words, ", ")
	}
}

func (t *table) explainUnknown(o Option) string {
	if t.Unknown != "" {
		return t.Unknown
	}
	if closest, ok := suggest.Closest(o.Name, slices.Collect(maps.Keys(t.specs))); ok {
		return "is unknown. Did you mean " + closest + "?"
	}
	return "is unknown to this version of the operator, and mount fails on options that the kernel does not know"
}

// cautions returns the warnings about one option, independent of the other options.
func (t *table) cautions(o Option) (messages []string) {
	s := t.specs[o.Name]
	messages = append(messages, s.Warning, s.Warnings[o.Value])
	if warn := t.warns[s.Key]; warn != nil {
		messages = append(messages, warn(o))
	}
	return slices.DeleteFunc(messages, func(message string) bool { return message == "" })
}

// checkVersions rejects the same options as mount.nfs: more than one version, even if they are equal. The exception is
// minorversion together with vers=4.
func checkVersions(t *table, options []Option) []Problem {
	var versions, minors []Option
	for _, o := range options {
		switch t.keyOf(o) {
		case keyVersion:
			versions = append(versions, o)
		case keyMinorVersion:
			minors = append(minors, o)
		}
	}
	if len(versions) > 1 || len(minors) > 1 {
		all := texts(append(versions, minors...))
		return []Problem{{Option: all[1], Message: "mount accepts only one version, even if they are the same: keep one of " + strings.Join(all, ", ")}}
	}
	if len(versions) == 1 && len(minors) == 1 {
		version := t.resolve(versions)[keyVersion]
		if version != "4" && version != "4."+minors[0].Value {
			return []Problem{{Option: minors[0].String(), Message: "contradicts " + versions[0].String() + ": keep one version"}}
		}
	}
	return nil
}

// checkTwice rejects contradicting options of one key. The effective one depends on whether the mounter sorts the options.
func checkTwice(t *table, options []Option) (problems []Problem) {
	first := map[string]Option{}
	for _, o := range options {
		key := t.keyOf(o)
		if key == keyVersion || key == keyMinorVersion {
			continue
		}
		before, seen := first[key]
		switch {
		case !seen:
			first[key] = o
		case key == keyChannels && before.Name != o.Name && maps.Equal(t.resolve([]Option{before, o}), t.resolve([]Option{o, before})):
			if o.Name == keyChannels { // multichannel with its number
				first[key] = o
			}
		case t.resolve([]Option{before})[key] == t.resolve([]Option{o})[key] && key != keyActimeo || before == o:
			problems = append(problems, Problem{Option: o.String(), Message: "repeats " + before.String(), Warning: true})
		default:
			problems = append(problems, Problem{Option: o.String(), Message: "contradicts " + before.String() + ": keep one of them"})
		}
	}
	return problems
}

// contradictions returns the problems of options that mount or a kernel rejects together.
func (t *table) contradictions(options []Option) []Problem {
	problems := lists.Filter(checkTwice(t, t.inGroup(options, keyChannels)), func(p Problem) bool { return !p.Warning })
	if t.OneVersionOnly {
		problems = append(problems, checkVersions(t, options)...)
	}
	return problems
}

// checkCache warns about timers without the expected effect.
func checkCache(t *table, options []Option) []Problem {
	state := t.resolve(options)
	if state[keyCache] == flagNoac {
		problems := t.overriddenTimers(options)
		for _, o := range options {
			switch key := t.keyOf(o); {
			case o.Name == flagAsync:
				problems = append(problems, Problem{Option: o.String(), Message: "has no effect: noac makes every write synchronous", Warning: true})
			case t.groupOf(o) == groupCache && key != keyCache && key != keySync:
				problems = append(problems, Problem{Option: o.String(), Message: "has no effect: noac sets all four timers to 0", Warning: true})
			}
		}
		return problems
	}
	return append(t.overriddenTimers(options), t.crossedTimers(state)...)
}

// overriddenTimers warns about timers before an actimeo, which sets all timers.
func (t *table) overriddenTimers(options []Option) (problems []Problem) {
	set := map[string]string{}
	for _, o := range options {
		key := t.keyOf(o)
		if slices.Contains(t.Timers, key) {
			set[key] = o.Value
		}
		if key != keyActimeo {
			continue
		}
		for _, timer := range t.Timers {
			if value, ok := set[timer]; ok {
				problems = append(problems, Problem{Option: timer + "=" + value, Warning: true,
					Message: "has no effect: " + o.String() + " comes later and sets all four timers"})
			}
		}
	}
	return problems
}

// crossedTimers warns about timers whose minimum exceeds their maximum.
func (t *table) crossedTimers(state map[string]string) (problems []Problem) {
	for i := 0; i < len(t.Timers); i += 2 {
		minimum, maximum := t.Timers[i], t.Timers[i+1]
		if number(t.timerValue(state, minimum)) > number(t.timerValue(state, maximum)) {
			problems = append(problems, Problem{Option: minimum + "=" + t.timerValue(state, minimum), Warning: true,
				Message: fmt.Sprintf("is larger than %s, which is %s", maximum, t.timerValue(state, maximum))})
		}
	}
	return problems
}

// checkYielding rejects actimeo together with a timer. The kernel ignores or applies actimeo, depending on their order.
func checkYielding(t *table, options []Option) []Problem {
	var actimeo, timer Option
	for _, o := range options {
		switch key := t.keyOf(o); {
		case key == keyActimeo:
			actimeo = o
		case slices.Contains(t.Timers, key):
			timer = o
		}
	}
	if actimeo.Name == "" || timer.Name == "" {
		return nil
	}
	return []Problem{{Option: actimeo.String(),
		Message: "is ignored if " + timer.Name + " comes first, as in a sorted list: set " + strings.Join(t.Timers, " and ")}}
}

// checkImplied warns about options that another option includes.
func checkImplied(t *table, options []Option) (problems []Problem) {
	for _, o := range options {
		parent, ok := t.Implied[o.Name]
		if ok && slices.ContainsFunc(options, func(other Option) bool { return other.Name == parent }) {
			problems = append(problems, Problem{Option: o.String(), Message: "is implied by " + parent, Warning: true})
		}
	}
	return problems
}

func (t *table) timerValue(state map[string]string, timer string) string {
	if value, ok := state[timer]; ok {
		return value
	}
	return t.TimerDefaults[timer]
}

// checkLocks warns about a local_lock that has no effect because of nolock or lock.
func checkLocks(t *table, options []Option) (problems []Problem) {
	state := t.resolve(options)
	for _, o := range options {
		if t.keyOf(o) == keyLocalLock && o.Value != localLocks[keyLock] && slices.Contains(options, Option{Name: keyLock}) {
			problems = append(problems, Problem{Option: o.String(), Message: "lock resets it in newer kernels, and in older ones if it comes later: leave lock out",
				Warning: true})
		}
		if t.keyOf(o) == keyLocalLock && state[keyLock] == flagNolock && o.Value != localLocks[flagNolock] {
			problems = append(problems, Problem{Option: o.String(), Message: "has no effect: nolock keeps all locks on the node, like local_lock=all",
				Warning: true})
		}
	}
	return problems
}

// checkTransport checks options that conflict with the transport protocol or the version, or have no effect with them.
func checkTransport(t *table, options []Option) (problems []Problem) {
	state := t.resolve(options)
	udp := strings.HasPrefix(state[keyProto], "udp")
	v4 := strings.HasPrefix(state[keyVersion], "4")
	for _, o := range options {
		key := t.keyOf(o)
		switch {
		case key == keyProto && udp && v4:
			problems = append(problems, Problem{Option: o.String(), Message: "NFSv4 does not work over UDP: mount fails"})
		case key == keyNconnect && udp:
			problems = append(problems, Problem{Option: o.String(), Message: "has no effect with UDP", Warning: true})
		case key == keyNconnect && strings.Contains(state[keySec], "krb5"):
			problems = append(problems, Problem{Option: o.String(), Message: "vendors advise against combining it with Kerberos", Warning: true})
		case t.ignores(key, state[keyVersion]):
			problems = append(problems, Problem{Option: o.String(), Message: "has no effect on NFSv" + state[keyVersion], Warning: true})
		}
	}
	return problems
}

// Bytes parses a size in the format of XFS options: a number of bytes, or a number with the suffix k, m or g.
func Bytes(text string) (int64, bool) {
	n, err := decimal.Parse(inBytes(text))
	return n, err == nil
}
