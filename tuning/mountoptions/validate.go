package mountoptions

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/internal/decimal"
	"github.com/storageclient/operator/tuning/internal/suggest"
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
	if p != NFS {
		return []Problem{{Message: fmt.Sprintf("mount options of protocol %s are not known", p)}}
	}
	var problems []Problem
	var good []Option
	for _, text := range options {
		o := parseOne(text)
		if message := reject(text, o); message != "" {
			problems = append(problems, Problem{Option: text, Message: message})
			continue
		}
		good = append(good, o)
		for _, message := range cautions(o) {
			problems = append(problems, Problem{Option: text, Message: message, Warning: true})
		}
	}
	for _, check := range []func([]Option) []Problem{
		checkVersions, checkTwice, checkCache, checkTransport,
	} {
		problems = append(problems, check(good)...)
	}
	return problems
}

// reject says why one option alone can never be asked for.
func reject(text string, o Option) string {
	if reason := refusal(o); reason != "" {
		return "is refused: it " + reason
	}
	if !safe.MatchString(text) {
		return "an option is of letters, digits and _ . : = / @ + -, with no comma and no blank: give each option as an entry of its own"
	}
	s, ok := lookup(o)
	if !ok {
		return unknown(o)
	}
	switch {
	case s.kind == flag && o.HasValue:
		return "takes no value: write " + o.Name
	case s.kind != flag && o.Value == "":
		return "needs a value: " + s.expects()
	case s.kind == count:
		return rejectCount(s, o)
	case s.kind == word && o.Value == "2" && s.key == keyVersion:
		return "NFSv2 is not supported by kernels any more: " + s.expects()
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

func rejectCount(s spec, o Option) string {
	n, err := decimal.Parse(o.Value)
	var syntax *decimal.Error
	if errors.As(err, &syntax) {
		return syntax.Reason + "; the kernel takes nothing else"
	}
	if n < s.min || n > s.max {
		return s.expects()
	}
	return ""
}

func (s spec) expects() string {
	if s.kind == count {
		return strings.TrimSpace(fmt.Sprintf("must be %d to %d %s", s.min, s.max, s.unit))
	}
	return "must be one of " + strings.Join(s.words, ", ")
}

func unknown(o Option) string {
	names := make([]string, 0, len(specs))
	for name := range specs {
		names = append(names, name)
	}
	if meant, ok := suggest.Closest(o.Name, names); ok {
		return "is not known: did you mean " + meant + "?"
	}
	return "is not known; mount fails on an option that the kernel does not know"
}

// cautions says what one option alone does that may not be expected.
func cautions(o Option) []string {
	s := specs[o.Name]
	var messages []string
	if s.warning != "" {
		messages = append(messages, s.warning)
	}
	n := number(o.Value)
	switch {
	case s.key == keyActimeo && n == 0:
		messages = append(messages, "keeps no attributes at all: every access asks the server")
	case s.key == keyTimeo && n > maxTimeo:
		messages = append(messages, fmt.Sprintf("the kernel uses %d at most", maxTimeo))
	case s.key == keyMinorVersion:
		messages = append(messages, "is an old way to write it: give vers=4."+o.Value)
	case (s.key == keyRsize || s.key == keyWsize) && n > 0:
		if got := transferSizes(n); len(got) > 1 || got[0] != n {
			messages = append(messages, "the kernel makes it "+describeSizes(got))
		}
	}
	return messages
}

// checkVersions refuses what mount.nfs refuses: more than one version, even if they agree. The exception is
// minorversion beside vers=4.
func checkVersions(options []Option) []Problem {
	var versions, minors []Option
	for _, o := range options {
		switch keyOf(o) {
		case keyVersion:
			versions = append(versions, o)
		case keyMinorVersion:
			minors = append(minors, o)
		}
	}
	if len(versions) > 1 || len(minors) > 1 {
		all := texts(append(versions, minors...))
		return []Problem{{Option: all[1], Message: "mount refuses more than one version, even the same twice: give one of " + strings.Join(all, ", ")}}
	}
	if len(versions) == 1 && len(minors) == 1 {
		version := resolve(versions)[keyVersion]
		if version != "4" && version != "4."+minors[0].Value {
			return []Problem{{Option: minors[0].String(), Message: "contradicts " + versions[0].String() + ": give one version"}}
		}
	}
	return nil
}

// checkTwice refuses options of one key that disagree: which of them wins depends on whether the mounter sorts.
func checkTwice(options []Option) []Problem {
	first := map[string]Option{}
	var problems []Problem
	for _, o := range options {
		key := keyOf(o)
		if key == keyVersion || key == keyMinorVersion {
			continue
		}
		before, seen := first[key]
		switch {
		case !seen:
			first[key] = o
		case resolve([]Option{before})[key] == resolve([]Option{o})[key] && key != keyActimeo || before == o:
			problems = append(problems, Problem{Option: o.String(), Message: "is said already by " + before.String(), Warning: true})
		default:
			problems = append(problems, Problem{Option: o.String(), Message: "contradicts " + before.String() + ": give one of them"})
		}
	}
	return problems
}

// checkCache points out timers that do not do what they seem to.
func checkCache(options []Option) []Problem {
	var problems []Problem
	warn := func(o, message string) {
		problems = append(problems, Problem{Option: o, Message: message, Warning: true})
	}
	set := map[string]string{}
	for _, o := range options {
		if key := keyOf(o); key == keyActimeo {
			for _, timer := range timers {
				if value, ok := set[timer]; ok {
					warn(timer+"="+value, "has no effect: "+o.String()+" comes after it and sets all four timers")
				}
			}
		} else if slices.Contains(timers, key) {
			set[key] = o.Value
		}
	}
	state := resolve(options)
	if state[keyCache] == flagNoac {
		for _, o := range options {
			if groupOf(o) == groupCache && keyOf(o) != keyCache {
				warn(o.String(), "has no effect: noac sets all four timers to 0")
			}
		}
		return problems
	}
	for i := 0; i < len(timers); i += 2 {
		least, most := timers[i], timers[i+1]
		if number(effective(state, least)) > number(effective(state, most)) {
			warn(fmt.Sprintf("%s=%s", least, effective(state, least)), fmt.Sprintf("is more than %s, which is %s", most, effective(state, most)))
		}
	}
	return problems
}

func effective(state map[string]string, timer string) string {
	if value, ok := state[timer]; ok {
		return value
	}
	return timerDefaults[timer]
}

// checkTransport points out what the transport protocol and the version make of other options.
func checkTransport(options []Option) []Problem {
	var problems []Problem
	state := resolve(options)
	udp := strings.HasPrefix(state[keyProto], "udp")
	v4 := strings.HasPrefix(state[keyVersion], "4")
	for _, o := range options {
		key := keyOf(o)
		switch {
		case key == keyProto && udp && v4:
			problems = append(problems, Problem{Option: o.String(), Message: "NFSv4 has no UDP: mount fails"})
		case key == keyNconnect && udp:
			problems = append(problems, Problem{Option: o.String(), Message: "has no effect with UDP", Warning: true})
		case key == keyNconnect && strings.Contains(state[keySec], "krb5"):
			problems = append(problems, Problem{Option: o.String(), Message: "vendors advise against it together with Kerberos", Warning: true})
		case onlyV3[key] && v4:
			problems = append(problems, Problem{Option: o.String(), Message: "has no effect on NFSv4", Warning: true})
		}
	}
	return problems
}
