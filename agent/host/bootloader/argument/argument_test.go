package argument_test

import (
	"testing"

	"github.com/storageclient/operator/agent/host/bootloader/argument"
	"github.com/storageclient/operator/test/check"
)

func TestWordsAreSplitAsByAShell(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"blanks and tabs":                     {"linux\t/vmlinuz  ro", []string{"linux", "/vmlinuz", "ro"}},
		"single quotes":                       {`'a b' 'It'\''s'`, []string{"a b", "It's"}},
		"double quotes":                       {`"a b" c"d"e`, []string{"a b", "cde"}},
		"a backslash inside double quotes":    {`"\"a\" \n \$x"`, []string{`"a" \n $x`}},
		"a backslash inside single quotes":    {`'a\'`, []string{`a\`}},
		"a backslash outside":                 {`a\ b \"c`, []string{"a b", `"c`}},
		"an empty word":                       {`a "" b`, []string{"a", "", "b"}},
		"a comment with an apostrophe":        {"a # don't\nb", []string{"a", "b"}},
		"a hash inside a word":                {"a#b", []string{"a#b"}},
		"a continued line":                    {"a\\\nb", []string{"ab"}},
		"a line end inside quotes is a blank": {"\"a\nb\"", []string{"a\nb"}},
		"variables stay":                      {`"$A ${B} c"`, []string{"$A ${B} c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.text, test.want, argument.Split(test.text))
		})
	}
}
