package host

import "strings"

// Argument is one argument of a kernel command line. Arguments are compared in this form, whether they come from /proc/cmdline, a boot menu, or a
// file from which a menu is made.
type Argument struct {
	Name, Value string
	// HasValue distinguishes "name=" from "name".
	HasValue bool
}

// ParseArguments splits a command line as the kernel does (next_arg in lib/cmdline.c). Blanks separate arguments, except inside double quotes. Quotes
// can enclose a value or a whole argument, and are part of neither. Arguments after "--" are for init and are omitted.
func ParseArguments(line string) []Argument {
	var args []Argument
	for _, token := range cutTokens(line) {
		if token == "--" {
			break
		}
		args = append(args, parseToken(token))
	}
	return args
}

func cutTokens(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\v' || r == '\f')
	})
}

func parseToken(token string) Argument {
	if inner, ok := strings.CutPrefix(token, `"`); ok {
		return NewArgument(strings.TrimSuffix(inner, `"`))
	}
	arg := NewArgument(token)
	if inner, ok := strings.CutPrefix(arg.Value, `"`); ok {
		arg.Value = strings.TrimSuffix(inner, `"`)
	}
	return arg
}

// NewArgument returns the argument for "name" or "name=value". It does not remove quotes.
func NewArgument(token string) Argument {
	name, value, ok := strings.Cut(token, "=")
	return Argument{Name: name, Value: value, HasValue: ok}
}

// Is reports whether the kernel uses the argument for this name. The kernel treats "-" and "_" as equal.
func (a Argument) Is(name string) bool { return CanonicalName(a.Name) == CanonicalName(name) }

// Equal reports whether the kernel treats both arguments as equal.
func (a Argument) Equal(b Argument) bool {
	return a.Is(b.Name) && a.Value == b.Value && a.HasValue == b.HasValue
}

// String returns the argument as written on a command line.
func (a Argument) String() string {
	token := a.Name
	if a.HasValue {
		token += "=" + a.Value
	}
	if strings.ContainsAny(token, " \t") {
		return `"` + token + `"`
	}
	return token
}

// CanonicalName returns the name of a kernel or module parameter in the spelling that is compared.
func CanonicalName(name string) string { return strings.ReplaceAll(name, "-", "_") }
