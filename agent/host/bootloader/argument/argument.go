// Package argument splits, compares and edits words of a kernel command line.
package argument

import (
	"regexp"
	"slices"
	"strings"

	"github.com/storageclient/operator/agent/host"
)

// Split splits text into words as a POSIX shell and GRUB's script language do. It removes quotes and backslashes, and omits comments. Variables
// are not expanded.
func Split(text string) []string {
	l := lexer{}
	for _, r := range text {
		l.readRune(r)
	}
	l.endWord()
	return l.words
}

type lexer struct {
	words []string
	word  strings.Builder
	// open is true once a word has started, even an empty word such as "".
	open    bool
	quote   rune
	escaped bool
	comment bool
}

func (l *lexer) readRune(r rune) {
	switch {
	case l.comment:
		l.comment = r != '\n'
	case l.escaped:
		l.addEscaped(r)
	case r == '\\' && l.quote != '\'':
		l.escaped = true
	case l.quote != 0 && r == l.quote:
		l.quote = 0
	case l.quote != 0:
		l.addRune(r)
	case r == '\'' || r == '"':
		l.quote, l.open = r, true
	case r == '#' && !l.open:
		l.comment = true
	case r == ' ' || r == '\t' || r == '\n':
		l.endWord()
	default:
		l.addRune(r)
	}
}

// addEscaped adds the character after a backslash. Inside double quotes, only some characters lose the backslash. At the end of a line, both are
// removed.
func (l *lexer) addEscaped(r rune) {
	l.escaped = false
	if r == '\n' {
		return
	}
	if l.quote == '"' && !strings.ContainsRune("\"\\$`", r) {
		l.addRune('\\')
	}
	l.addRune(r)
}

func (l *lexer) addRune(r rune) {
	l.open = true
	l.word.WriteRune(r)
}

func (l *lexer) endWord() {
	if l.open {
		l.words = append(l.words, l.word.String())
	}
	l.word.Reset()
	l.open = false
}

// FromWords converts words to kernel arguments. Words after "--" are for init.
func FromWords(words []string) []host.Argument {
	var args []host.Argument
	for _, word := range words {
		if word == "--" {
			break
		}
		args = append(args, host.NewArgument(word))
	}
	return args
}

// Has reports whether the arguments contain one.
func Has(args []host.Argument, want host.Argument) bool { return Count(args, want) > 0 }

// Count returns how often the arguments contain one.
func Count(args []host.Argument, want host.Argument) int {
	n := 0
	for _, arg := range args {
		if arg.Equal(want) {
			n++
		}
	}
	return n
}

// HasName reports whether an argument has the name.
func HasName(args []host.Argument, name string) bool {
	_, ok := Last(args, name)
	return ok
}

// Last returns the argument of that name that the kernel uses if there are several.
func Last(args []host.Argument, name string) (host.Argument, bool) {
	for i := len(args) - 1; i >= 0; i-- {
		if args[i].Is(name) {
			return args[i], true
		}
	}
	return host.Argument{}, false
}

// Without returns the arguments that are not excluded.
func Without(args, excluded []host.Argument) []host.Argument {
	var rest []host.Argument
	for _, arg := range args {
		if !Has(excluded, arg) {
			rest = append(rest, arg)
		}
	}
	return rest
}

// Join returns the arguments as a command line.
func Join(args []host.Argument) string {
	tokens := make([]string, len(args))
	for i, arg := range args {
		tokens[i] = arg.String()
	}
	return strings.Join(tokens, " ")
}

// Cut returns a line without the given arguments.
func Cut(line string, args []host.Argument) string {
	kernel, rest := splitInit(line)
	words := slices.DeleteFunc(strings.Split(kernel, " "), func(word string) bool { return Has(args, host.NewArgument(word)) })
	return strings.Join(words, " ") + rest
}

// Add returns a line with more arguments.
func Add(line string, args []host.Argument) string {
	if len(args) == 0 {
		return line
	}
	kernel, rest := splitInit(line)
	return strings.TrimRight(kernel, " ") + " " + Join(args) + rest
}

// splitInit returns the part of a line that is for the kernel, and the rest: the words for init with "--" before them, and the end of the line.
func splitInit(line string) (kernel, rest string) {
	end := len(strings.TrimRight(line, "\n"))
	if found := wordsForInit.FindStringIndex(line[:end]); found != nil {
		end = found[0]
	}
	return line[:end], line[end:]
}

var wordsForInit = regexp.MustCompile(`[ \t]--([ \t]|$)`)

// assignsArguments matches the assignment of any variable that adds arguments to command lines.
var assignsArguments = regexp.MustCompile(`^GRUB_CMDLINE_LINUX[A-Z_]*\+?=`)

// Assigned returns the arguments that a file sourced by grub-mkconfig adds to command lines.
func Assigned(data string) []host.Argument {
	var args []host.Argument
	for _, word := range Split(data) {
		prefix := assignsArguments.FindString(word)
		if prefix == "" {
			continue
		}
		for _, arg := range FromWords(Split(word[len(prefix):])) {
			if !strings.HasPrefix(arg.Name, "$") {
				args = append(args, arg)
			}
		}
	}
	return args
}
