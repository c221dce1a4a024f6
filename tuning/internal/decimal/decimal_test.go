package decimal

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		text   string
		want   int64
		reason string
	}{
		"plain digits":                          {text: "16777216", want: 16777216},
		"zero":                                  {text: "0", want: 0},
		"nothing":                               {text: "", reason: "must be a number"},
		"a binary suffix names the number":      {text: "16M", reason: "write 16777216"},
		"a long suffix names the number":        {text: "256KiB", reason: "write 262144"},
		"seconds are not written":               {text: "30s", reason: "write 30"},
		"hexadecimal names the number":          {text: "0x100000", reason: "write 1048576"},
		"a leading zero would be octal":         {text: "0128", reason: "write 128"},
		"zeros only":                            {text: "000", reason: "write 0"},
		"a sign":                                {text: "-1", reason: "decimal digits only"},
		"a plus sign":                           {text: "+1", reason: "decimal digits only"},
		"a blank":                               {text: "1 2", reason: "decimal digits only"},
		"an underscore":                         {text: "1_000", reason: "decimal digits only"},
		"more than 63 bits":                     {text: "9223372036854775808", reason: "larger than any number"},
		"a suffix that would overflow":          {text: "9999999999T", reason: "decimal digits only"},
		"a suffix that is no unit":              {text: "16MM", reason: "decimal digits only"},
		"a suffix alone":                        {text: "M", reason: "decimal digits only"},
		"a number that is not written in ASCII": {text: "١٢", reason: "decimal digits only"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(test.text)
			if test.reason == "" {
				if err != nil || got != test.want {
					t.Errorf("Parse(%q): got %d, %v; want %d", test.text, got, err, test.want)
				}
				return
			}
			var known *Error
			if !errors.As(err, &known) || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("Parse(%q): got %d, %v; want an error with %q", test.text, got, err, test.reason)
			}
		})
	}
}

func TestParseAcceptsItsOwnOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[+-]?0?[0-9]{0,20}[kM]?`)).Draw(t, "text")
		n, err := Parse(text)
		if err == nil && strconv.FormatInt(n, 10) != text {
			t.Fatalf("Parse(%q): got %d", text, n)
		}
	})
}
