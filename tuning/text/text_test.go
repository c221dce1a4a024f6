package text_test

import (
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/text"
)

func TestLists(t *testing.T) {
	names := []string{"d", "b", "a", "c"}
	for name, c := range map[string]struct{ got, want string }{
		"three of four, sorted":            {text.List(names), "a, b, c and 1 more"},
		"all of three":                     {text.List(names[:3]), "a, b, d"},
		"none":                             {text.List([]string(nil)), ""},
		"a separator of the caller's":      {text.Join(names, "; "), "a; b; c and 1 more"},
		"in the caller's order":            {text.InOrder(names, ", "), "d, b, a and 1 more"},
		"one is singular":                  {text.Count(1, "node"), "1 node"},
		"none is plural":                   {text.Count(0, "node"), "0 nodes"},
		"a plural that is not made with s": {text.Count(2, "policy", "policies"), "2 policies"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", name, c.got, c.want)
		}
	}
	if !slices.Equal(names, []string{"d", "b", "a", "c"}) {
		t.Errorf("got the caller's list changed: %q", names)
	}
}

func TestCapCountsTheOmittedEntries(t *testing.T) {
	lines := []string{"a", "b", "c", "d"}
	check.Equal(t, "result", []string{"a", "b", "and 2 more warnings"}, text.Cap(lines, 2, "warnings"))
	check.Equal(t, "result", lines, text.Cap(lines, 4, "warnings"))
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, lines); diff != "" {
		t.Errorf("got the caller's list changed: %s", diff)
	}
}

func TestCutsKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, maximum := rapid.String().Draw(t, "text"), rapid.IntRange(3, 40).Draw(t, "most")
		if cut := text.Cut(s, maximum); utf8.RuneCountInString(cut) > maximum || !utf8.ValidString(cut) {
			t.Errorf("Cut(%q, %d): got %q", s, maximum, cut)
		}
		if cut := text.CutBytes(s, maximum); len(cut) > maximum || !utf8.ValidString(cut) {
			t.Errorf("CutBytes(%q, %d): got %q", s, maximum, cut)
		}
	})
	for got, want := range map[string]string{
		text.Cut("abcdef", 4):       "abc…",
		text.Cut("äöüß", 4):         "äöüß",
		text.Cut("a\xffb", 3):       "a?b",
		text.CutBytes("abcdef", 5):  "ab…",
		text.CutBytes("aäöü", 6):    "aä…",
		text.CutBytes("abc\xff", 4): "abc?",
	} {
		check.Equal(t, "result", want, got)
	}
}

func TestLineIsPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"":                               "",
		" a\n\tb ":                       "a b",
		"\x1b[31mred\x07":                "[31mred",
		"right \u202eto left\u2028again": "right to left again",
		"kein \xff Ümlaut":               "kein ? Ümlaut",
	} {
		if got := text.Line(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

func TestEscapeShowsInvisibleCharacters(t *testing.T) {
	for name, test := range map[string]struct{ text, keep, want string }{
		"visible text stays":                    {"nfs4 größe 日本 → \\ \"x\" a\u00a0b", "", "nfs4 größe 日本 → \\ \"x\" a\u00a0b"},
		"an escape sequence":                    {"a\x1b[2Jb", "", `a\u001b[2Jb`},
		"a C1 control":                          {"\u009b2J", "", `\u009b2J`},
		"delete and backspace":                  {"\x7f\b", "", `\u007f\u0008`},
		"line ends and tabs":                    {"a\nb\tc\rd\u2028e", "", `a\nb\tc\u000dd\u2028e`},
		"kept line ends":                        {"a\nb\tc", "\n", "a\nb" + `\tc`},
		"another direction":                     {"\u202egnp\u2066", "", `\u202egnp\u2066`},
		"invisible characters":                  {"a\u200bb\ufeff", "", `a\u200bb\ufeff`},
		"a character of two halves":             {"\U000e0041", "", `\udb40\udc41`},
		"invalid UTF-8":                         {"a\xff\xc3", "", `a\xff\xc3`},
		"a replacement character is no mistake": {"\ufffd", "", "\ufffd"},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, text.Escape(test.text, test.keep))
		})
	}
}

func TestHashIsAPrefixOfSHA256(t *testing.T) {
	// printf abc | sha256sum
	check.Equal(t, "Hash", "ba7816bf8f01", text.Hash("abc", 6))
}
