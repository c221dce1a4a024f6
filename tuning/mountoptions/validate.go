package mountoptions

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/storageclient/operator/tuning/internal/decimal"
	"github.com/storageclient/operator/tuning/suggest"
)

// Problem is something wrong, or worth knowing, about an option.
type Problem struct {
	// Option is the option as it was given.
	Option string
	// Message says what would be right.
	Message string
	// Warning is true where the option works and may not do what is expected of it.
	Warning bool
}

var safe = regexp.MustCompile(`\A[A-Za-z0-9_.:=/@+-]+\z`)

// Validate says what is wrong with options that a profile asks for: what can never work, what may never be asked
// for, and, as warnings, what will not do what it seems to.
func Validate(p Protocol, options []string) []Problem {
	t, known := tables[p]
	if !known {
		return []Problem{{Message: fmt.Sprintf("unknown mount options: protocol %s", p)}}
	}
	var problems []Problem
	var good []Option
	for _, text := range options {
		o := parseOne(text)
		if message := t.refuseOption(text, o); message != "" {
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

// refuseOption says why one option alone can never be asked for.
func (t *table) refuseOption(text string, o Option) string {
	if reason := t.refusal(o); reason != "" {
		return "is refused: it " + reason
	}
	if !safe.MatchString(text) {
		return "an option holds only letters, digits and _ . : = / @ + -, no comma and no blank: write each option as a separate entry"
	}
	s, ok := t.specs[o.Name]
	if !ok {
		return t.explainUnknown(o)
	}
	switch {
	case s.kind == flag && o.HasValue:
		return "takes no value: write " + o.Name
	case s.kind != flag && o.Value == "":
		return "needs a value: " + s.expects()
	case s.kind == count:
		return refuseCount(s, o)
	case s.kind == size:
		return refuseSize(s, o)
	case s.kind == word && s.removed[o.Value] != "":
		return s.removed[o.Value] + ": " + s.expects()
	case s.kind == word && !slices.Contains(s.words, o.Value):
		return s.expects()
	case s.kind == words:
		for w := range strings.SplitSeq(o.Value, ":") {
			if !slices.Contains(s.words, w) {
				return s.expects() + ", several separated by colons"
			}
		}
	}
	return ""
}

func refuseCount(s spec, o Option) string {
	n, err := decimal.Parse(o.Value)
	var syntax *decimal.Error
	if errors.As(err, &syntax) {
		return syntax.Reason + "; the kernel accepts nothing else"
	}
	if n < s.min || n > s.max {
		return s.expects()
	}
	return ""
}

func refuseSize(s spec, o Option) string {
	n := number(inBytes(o.Value))
	if n < s.min || n > s.max || n&(n-1) != 0 {
		return s.expects()
	}
	return ""
}

// inBytes writes a size with a suffix as a number of bytes; what is none stays as it is.
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
	if s.kind == size {
		return fmt.Sprintf("must be a power of two from %dk to %dk, or the same in bytes", s.min>>10, s.max>>10)
	}
	if s.kind == count {
		return strings.TrimSpace(fmt.Sprintf("must be %d to %d %s", s.min, s.max, s.unit))
	}
	return "must be one of " + strings.Join(s.words, ", ")
}

// values says which values the option takes; empty for a flag.
func (s spec) values() string {
	switch s.kind {
	case flag:
		return ""
	case count:
		return strings.TrimSpace(fmt.Sprintf("%d–%d %s", s.min, s.max, s.unit))
	case size:
		return fmt.Sprintf("a power of two from %dk to %dk, or the same in bytes", s.min>>10, s.max>>10)
	case words:
		return strings.Join(s.words, ", ") + "; several separated by colons"
	default:
		return strings.Join(s.words, ", ")
	}
}

func (t *table) explainUnknown(o Option) string {
	if t.unknown != "" {
		return t.unknown
	}
	names := make([]string, 0, len(t.specs))
	for name := range t.specs {
		names = append(names, name)
	}
	if meant, ok := suggest.Closest(o.Name, names); ok {
		return "is unknown. Did you mean " + meant + "?"
	}
	return "is unknown: mount fails on options that the kernel does not know"
}

// cautions says what one option alone does that may not be expected.
func (t *table) cautions(o Option) []string {
	s := t.specs[o.Name]
	var messages []string
	if s.warning != "" {
		messages = append(messages, s.warning)
	}
	if s.caution != nil {
		if message := s.caution(o); message != "" {
			messages = append(messages, message)
		}
	}
	return messages
}

// checkVersions refuses what mount.nfs refuses: more than one version, even if they agree. The exception is
// minorversion beside vers=4.
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

// checkTwice refuses options of one key that disagree: which of them wins depends on whether the mounter sorts.
func checkTwice(t *table, options []Option) []Problem {
	first := map[string]Option{}
	var problems []Problem
	for _, o := range options {
		key := t.keyOf(o)
		if key == keyVersion || key == keyMinorVersion {
			continue
		}
		before, seen := first[key]
		switch {
		case !seen:
			first[key] = o
		case t.resolve([]Option{before})[key] == t.resolve([]Option{o})[key] && key != keyActimeo || before == o:
			problems = append(problems, Problem{Option: o.String(), Message: "repeats " + before.String(), Warning: true})
		default:
			problems = append(problems, Problem{Option: o.String(), Message: "contradicts " + before.String() + ": keep one of them"})
		}
	}
	return problems
}

// checkCache points out timers that do not do what they seem to.
func checkCache(t *table, options []Option) []Problem {
	state := t.resolve(options)
	if state[keyCache] == flagNoac {
		problems := t.overriddenTimers(options)
		for _, o := range options {
			if t.groupOf(o) == groupCache && t.keyOf(o) != keyCache {
				problems = append(problems, Problem{Option: o.String(), Message: "has no effect: noac sets all four timers to 0", Warning: true})
			}
		}
		return problems
	}
	return append(t.overriddenTimers(options), t.crossedTimers(state)...)
}

// overriddenTimers are timers before an actimeo that sets them all.
func (t *table) overriddenTimers(options []Option) []Problem {
	var problems []Problem
	set := map[string]string{}
	for _, o := range options {
		key := t.keyOf(o)
		if slices.Contains(t.timers, key) {
			set[key] = o.Value
		}
		if key != keyActimeo {
			continue
		}
		for _, timer := range t.timers {
			if value, ok := set[timer]; ok {
				problems = append(problems, Problem{Option: timer + "=" + value, Warning: true,
					Message: "has no effect: " + o.String() + " comes later and sets all four timers"})
			}
		}
	}
	return problems
}

// crossedTimers are timers whose least is more than their most.
func (t *table) crossedTimers(state map[string]string) []Problem {
	var problems []Problem
	for i := 0; i < len(t.timers); i += 2 {
		least, most := t.timers[i], t.timers[i+1]
		if number(t.timerValue(state, least)) > number(t.timerValue(state, most)) {
			problems = append(problems, Problem{Option: least + "=" + t.timerValue(state, least), Warning: true,
				Message: fmt.Sprintf("is larger than %s, which is %s", most, t.timerValue(state, most))})
		}
	}
	return problems
}

// checkYielding refuses actimeo beside a timer where the kernel then ignores it, or not, by their order.
func checkYielding(t *table, options []Option) []Problem {
	var actimeo, timer Option
	for _, o := range options {
		switch key := t.keyOf(o); {
		case key == keyActimeo:
			actimeo = o
		case slices.Contains(t.timers, key):
			timer = o
		}
	}
	if actimeo.Name == "" || timer.Name == "" {
		return nil
	}
	return []Problem{{Option: actimeo.String(),
		Message: "is ignored if " + timer.Name + " comes first, as in a sorted list: set " + strings.Join(t.timers, " and ")}}
}

// checkImplied points out options that another one brings along.
func checkImplied(t *table, options []Option) []Problem {
	var problems []Problem
	for _, o := range options {
		by, ok := t.implied[o.Name]
		if ok && slices.ContainsFunc(options, func(other Option) bool { return other.Name == by }) {
			problems = append(problems, Problem{Option: o.String(), Message: "is implied by " + by, Warning: true})
		}
	}
	return problems
}

func (t *table) timerValue(state map[string]string, timer string) string {
	if value, ok := state[timer]; ok {
		return value
	}
	return t.timerDefaults[timer]
}

// checkLocks points out where nolock leaves local_lock nothing to choose.
func checkLocks(t *table, options []Option) []Problem {
	state := t.resolve(options)
	var problems []Problem
	for _, o := range options {
		if t.keyOf(o) == keyLocalLock && state[keyLock] == "nolock" && o.Value != state[keyLocalLock] {
			problems = append(problems, Problem{Option: o.String(), Message: "has no effect: nolock keeps all locks on the node, like local_lock=all", Warning: true})
		}
	}
	return problems
}

// checkTransport points out what the transport protocol and the version make of other options.
func checkTransport(t *table, options []Option) []Problem {
	var problems []Problem
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
		case t.onlyV3[key] && v4:
			problems = append(problems, Problem{Option: o.String(), Message: "has no effect on NFSv4", Warning: true})
		}
	}
	return problems
}
