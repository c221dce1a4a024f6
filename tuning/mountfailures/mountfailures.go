// Package mountfailures classifies error messages of the kubelet, volume drivers and mount helpers. It determines whether a failed
// mount is caused by its options or by another problem. All functions are pure: they do not access the cluster, the host or the clock.
package mountfailures

import (
	_ "embed"
	"regexp"
	"strings"

	"github.com/storageclient/operator/tuning/embedded"
)

// Cause is the cause of a failed mount according to a message.
type Cause string

const (
	// Options means that the mount options are the cause.
	Options Cause = "Options"
	// Elsewhere means that another problem is the cause, independent of the options.
	Elsewhere Cause = "Elsewhere"
	// Unknown is the cause in all other messages, and in messages that both options and other problems produce. Only a mount with
	// other options can show the difference.
	Unknown Cause = "Unknown"

	// unreached means that the server does not respond, or does not have the path. It becomes Elsewhere, unless the options contact the
	// server in a different way.
	unreached Cause = "Unreached"
)

// rules contains phrases by their cause.
type rules struct {
	// Decisive phrases count anywhere in the message. Otherwise, the last phrase counts.
	Decisive, Last map[Cause][]string
}

//go:embed rules.yaml
var document []byte

var known = embedded.Parse[rules]("rules of mount failures", document)

// CauseOf returns the cause of a failed mount according to a message. changesTransport reports whether the options use another version,
// transport, port or security, or more connections than the previous options. If so, the options can be the reason that the server does
// not respond, or does not have the path.
func CauseOf(message string, changesTransport bool) Cause {
	cause := known.find(condense(message))
	switch {
	case cause != unreached:
		return cause
	case changesTransport:
		return Unknown
	}
	return Elsewhere
}

// find returns the cause of the decisive phrase, or of the phrase that ends last; of two phrases with the same end, the longer one.
func (r rules) find(text string) Cause {
	for cause, phrases := range r.Decisive {
		for _, phrase := range phrases {
			if strings.Contains(text, phrase) {
				return cause
			}
		}
	}
	found, end, length := Unknown, 0, 0
	for cause, phrases := range r.Last {
		for _, phrase := range phrases {
			at := strings.LastIndex(text, phrase) + len(phrase)
			if strings.Contains(text, phrase) && (at > end || at == end && len(phrase) > length) {
				found, end, length = cause, at, len(phrase)
			}
		}
	}
	return found
}

var (
	// command matches the text before the output of a command that the kubelet or a driver ran.
	command = regexp.MustCompile(`(?s)^.*Mounting command: .*?Output: `)
	// progress matches reports of commands around mount, and colors.
	progress = regexp.MustCompile(`(?i)Running (?:scope )?as unit:? \S+\s*|Created symlink \S+ (?:→|->) \S+\s*|` +
		`Mount attempt \d+/\d+ failed due to .*?before next attempt\.?\s*|\x1b?\[[0-9;]*m`)

	escape = regexp.MustCompile(`\\+[nrt"]`)
	quoted = regexp.MustCompile(`"[^"]*"|(?:^|[\s(=:,])'[^']*'|` + "`[^`]*`")
	// inner matches a quoted message, which has a colon and a blank. Names do not have them, and paths can have them.
	inner = regexp.MustCompile(`(?s)^(?:[^/\\]|/\S*bin/).*: `)
	// names matches lists of names, arguments, paths and servers with a path.
	names = regexp.MustCompile(`volumes=\[[^\]]*\]|volume\([^)]*\)|args: \[[^\]]*\]|while mounting .*|mounting .* failed|(?:^|\s)(?:[(/]*/\S*|\S*(?::/|\\)\S*)`)
)

// Brief returns the output of mount if the message contains it, otherwise the message. The message of a condition has no space for
// both. It omits reports of progress.
func Brief(message string) string {
	return progress.ReplaceAllString(command.ReplaceAllString(message, ""), "")
}

// condense returns the words of a message in lower case, without names: names of volumes, servers and paths can contain any word.
func condense(message string) string {
	text := escape.ReplaceAllStringFunc(Brief(message), func(s string) string {
		if strings.HasSuffix(s, `"`) {
			return `"`
		}
		return "\n"
	})
	text = quoted.ReplaceAllStringFunc(text, func(s string) string {
		if text := strings.Trim(s, "\"'` \t\n(=:,"); inner.MatchString(text) {
			return " " + text + " "
		}
		return " "
	})
	return strings.Join(strings.Fields(strings.ToLower(names.ReplaceAllString(text, " "))), " ")
}
