package host

import (
	"testing"

	"github.com/storageclient/operator/test/check"
)

func TestParseArgumentsAsTheKernelDoes(t *testing.T) {
	tests := map[string]struct {
		line string
		want []Argument
	}{
		"flags and values": {"ro quiet a=1\n", []Argument{{Name: "ro"}, {Name: "quiet"}, {"a", "1", true}}},
		"an empty value":   {"a= b", []Argument{{"a", "", true}, {Name: "b"}}},
		"a value with =":   {"root=UUID=1-2", []Argument{{"root", "UUID=1-2", true}}},
		"quotes protect their content": {`dyndbg="file a ihash_entries=5 +p" b`,
			[]Argument{{"dyndbg", "file a ihash_entries=5 +p", true}, {Name: "b"}}},
		"quotes around an argument": {`"a=b c" d=1`, []Argument{{"a", "b c", true}, {"d", "1", true}}},
		"arguments for init":        {"a=1 -- b=2", []Argument{{"a", "1", true}}},
		"several blanks and tabs":   {" a \t b ", []Argument{{Name: "a"}, {Name: "b"}}},
		"nothing":                   {"\n", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.line, test.want, ParseArguments(test.line))
		})
	}
}

func TestArgumentsAreComparedWhole(t *testing.T) {
	want := NewArgument("ihash_entries=16777216")
	tests := map[string]struct {
		token string
		equal bool
	}{
		"the same":                          {"ihash_entries=16777216", true},
		"a dash is an underscore":           {"ihash-entries=16777216", true},
		"a longer value":                    {"ihash_entries=167772160", false},
		"a longer name":                     {"xihash_entries=16777216", false},
		"a shorter value":                   {"ihash_entries=1677721", false},
		"no value":                          {"ihash_entries", false},
		"a dash in the value counts":        {"ihash_entries=16777216-", false},
		"another case is another parameter": {"IHASH_ENTRIES=16777216", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := NewArgument(test.token).Equal(want); got != test.equal {
				t.Errorf("%s equal to %s: %v, want %v", test.token, want, got, test.equal)
			}
		})
	}
}
