package host

import "strings"

// Argument is one argument of a kernel command line. It is the one form in which boot arguments are compared,
// whatever they were read from: /proc/cmdline, a boot menu or a file that a menu is made from.
type Argument struct {
	Name, Value string
	// HasValue tells "name=" from "name".
	HasValue bool
}

// ParseArguments cuts a command line as the kernel does (next_arg in lib/cmdline.c): blanks separate, except
// inside double quotes, which may enclose a value or a whole argument and do not belong to either. What comes
// after "--" is for init and left out.
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

// NewArgument makes an argument of "name" or "name=value", where no quotes need to be taken off.
func NewArgument(token string) Argument {
	name, value, ok := strings.Cut(token, "=")
	return Argument{Name: name, Value: value, HasValue: ok}
}

// Is tells whether the kernel takes the argument for one of that name: "-" and "_" are the same to it.
func (a Argument) Is(name string) bool {
	return CanonicalName(a.Name) == CanonicalName(name)
}

// Equal tells whether the kernel takes both for the same.
func (a Argument) Equal(b Argument) bool {
	return a.Is(b.Name) && a.Value == b.Value && a.HasValue == b.HasValue
}

// String is the argument as it stands on a command line.
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

// CanonicalName is the name of a kernel or module parameter in the one spelling that is compared.
func CanonicalName(name string) string { return strings.ReplaceAll(name, "-", "_") }
