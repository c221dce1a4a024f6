package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/test/check"
)

// writeFunc writes a package m with a function F and a method of T, and returns the root directory of the module.
func writeFunc(t *testing.T, body string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "m")
	check.NoError(t, os.Mkdir(dir, 0o755))
	for name, content := range map[string]string{
		"f.go":      "package m\n\nfunc F() bool {\n" + body + "\n}\n",
		"g.go":      "package m\n\nfunc (t *T[K]) Is() bool { return t.a == t.b }\n",
		"h.go":      "//go:build never\n\npackage m\n\nfunc F() bool { return a }\n",
		"m_test.go": "package m\n\nfunc F() bool { return a }\n",
	} {
		check.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return root
}

func TestResolve(t *testing.T) {
	for name, test := range map[string]struct {
		body, mentions string
		becomes        becomes
		want           string
	}{
		"a condition":                       {"if f(a) {\n}", "a", "false", "if (!mutantIs(1) && (f(a))) {\n}"},
		"a condition becomes true":          {"if f(a) {\n}", "f(a)", "true", "if (mutantIs(1) || (f(a))) {\n}"},
		"a condition by its init":           {"if x := f(a); x.y {\n}", "f(a)", "false", "if x := f(a); (!mutantIs(1) && (x.y)) {\n}"},
		"the condition of a loop":           {"for f(a) {\n}", "a", "false", "for (!mutantIs(1) && (f(a))) {\n}"},
		"a comparison":                      {"g(f(a) < 1)", "a", "true", "g((mutantIs(1) || (f(a) < 1)))"},
		"an operand of a logical and":       {"return a && b && c", "b", "true", "return a && (mutantIs(1) || (b)) && c"},
		"both operands":                     {"return a && b && c", "a && b", "true", "return (mutantIs(1) || (a && b)) && c"},
		"an operand of a logical or":        {"return a || f(b)", "b", "false", "return a || (!mutantIs(1) && (f(b)))"},
		"an operand of a negation":          {"return !f(a)", "a", "true", "return !(mutantIs(1) || (f(a)))"},
		"a negation":                        {"return !f(a)", "!f(a)", "true", "return (mutantIs(1) || (!f(a)))"},
		"an operand in parentheses":         {"return (a || b) && c", "a || b", "false", "return (!mutantIs(1) && ((a || b))) && c"},
		"a result":                          {"return 1, f(a)", "a", "false", "return 1, (!mutantIs(1) && (f(a)))"},
		"the result of a literal":           {"g(func() bool { return f(a) })", "f(a)", "true", "g(func() bool { return (mutantIs(1) || (f(a))) })"},
		"the right side of an assignment":   {"x := f(a)", "a", "false", "x := (!mutantIs(1) && (f(a)))"},
		"an expression of a case":           {"switch {\ncase f(a), b:\n\tc()\n}", "a", "false", "switch {\ncase (!mutantIs(1) && (f(a))), b:\n\tc()\n}"},
		"a case with an init":               {"switch x := y; {\ncase x.z:\n\tc()\n}", "x.z", "true", "switch x := y; {\ncase (mutantIs(1) || (x.z)):\n\tc()\n}"},
		"two mentions of one target":        {"if a < a+1 {\n}", "a", "false", "if (!mutantIs(1) && (a < a+1)) {\n}"},
		"whatever the layout":               {"if f(a,\n\t\tb) {\n}", "f(a,b)", "false", "if (!mutantIs(1) && (f(a,\n\t\tb))) {\n}"},
		"a mention in parentheses":          {"return a || b", "(a || b)", "false", "return (!mutantIs(1) && (a || b))"},
		"a call is removed":                 {"b()\nf(a)\nc()", "a", "removed", "b()\nif !mutantIs(1) { f(a) }\nc()"},
		"an assignment is removed":          {"x = f(a)", "f(a)", "removed", "if !mutantIs(1) { x = f(a) }"},
		"a return is removed":               {"if c {\n\treturn a\n}\nreturn b", "a", "removed", "if c {\n\tif !mutantIs(1) { return a }\n}\nreturn b"},
		"an if is removed by its init":      {"if x := f(a); x {\n\treturn b\n}", "f(a)", "removed", "if !mutantIs(1) { if x := f(a); x {\n\treturn b\n} }"},
		"an if is removed by its condition": {"if a {\n\treturn b\n}", "a", "removed", "if !mutantIs(1) { if a {\n\treturn b\n} }"},
		"a loop is removed by its range":    {"for range a {\n}", "a", "removed", "if !mutantIs(1) { for range a {\n} }"},
		"a case is removed":                 {"switch {\ncase a, f(b):\n\tc()\n}", "b", "removed", "switch {\ncase (!mutantIs(1) && (a)), (!mutantIs(1) && (f(b))):\n\tc()\n}"},
		"a statement of a case is removed":  {"switch x {\ncase y:\n\tf(a)\n}", "a", "removed", "switch x {\ncase y:\n\tif !mutantIs(1) { f(a) }\n}"},
		"a switch is removed by its tag":    {"switch a {\ncase b:\n}", "a", "removed", "if !mutantIs(1) { switch a {\ncase b:\n} }"},
		"a select is removed":               {"select {\ncase <-a:\n}", "a", "removed", "if !mutantIs(1) { select {\ncase <-a:\n} }"},
		"a statement of a literal":          {"g(func() {\n\tf(a)\n})", "a", "removed", "g(func() {\n\tif !mutantIs(1) { f(a) }\n})"},
		"a mention in a declaration does not count next to another": {"x := a\nf(a)", "a", "removed", "x := a\nif !mutantIs(1) { f(a) }"},
	} {
		t.Run(name, func(t *testing.T) {
			m := mutation{Package: "m", Func: "F", Mentions: test.mentions, Becomes: test.becomes}
			got, err := resolve(writeFunc(t, test.body), m)
			check.NoError(t, err)
			got.number = 1
			mutated := strings.ReplaceAll(string(mutate(got.data, []place{got})), `mutantIs("1")`, "mutantIs(1)")
			if diff := cmp.Diff("package m\n\nfunc F() bool {\n"+test.want+"\n}\n", mutated); diff != "" || got.file != "m/f.go" {
				t.Errorf("%s (-want +got):\n%s", got.file, diff)
			}
		})
	}
}

func TestResolveRejects(t *testing.T) {
	const body = "if a && f(a) {\n\treturn b\n}\nvar d = b\nfor range c {\n}\nswitch c {\ncase e:\n}\nreturn b"
	for name, test := range map[string]struct {
		function, mentions string
		becomes            becomes
		want               string
	}{
		"a mention with two targets":      {"F", "a", "false", "func F: mention \"a\" has 2 targets, want 1; name an expression that leads to one place\nf.go:4\nf.go:4"},
		"a mention with two statements":   {"F", "b", "removed", "has 2 targets"},
		"a mention that is not there":     {"F", "z", "false", "func F: mention \"z\" has 0 targets"},
		"no boolean":                      {"F", "c", "false", "no boolean holds it; use becomes: removed"},
		"a declaration":                   {"F", "d", "removed", "a declaration cannot be removed"},
		"a case of a switch with a tag":   {"F", "e", "removed", "a switch with a tag cannot be removed"},
		"the case of a tag is no boolean": {"F", "e", "true", "no boolean holds it"},
		"a mention that is no expression": {"F", "a :=", "false", "mentions \"a :=\" is no Go expression"},
		"a mention with a composite":      {"F", "f(T{1})", "false", "contains a literal of a function or a composite"},
		"a function that is not there":    {"G", "a", "false", "package m: func G is declared 0 times, want once; write Type.Name for a method"},
		"a method without its type":       {"Is", "t.a", "false", "func Is is declared 0 times"},
		"a mention of another function":   {"T.Is", "c", "false", "has 0 targets"},
	} {
		t.Run(name, func(t *testing.T) {
			m := mutation{Package: "m", Func: test.function, Mentions: test.mentions, Becomes: test.becomes}
			if _, err := resolve(writeFunc(t, body), m); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that contains %q", err, test.want)
			}
		})
	}
}

func TestResolveFindsAMethod(t *testing.T) {
	got, err := resolve(writeFunc(t, ""), mutation{Package: "m", Func: "T.Is", Mentions: "t.a", Becomes: "true"})
	check.NoError(t, err)
	if want := "package m\n\nfunc (t *T[K]) Is() bool { return (mutantIs(\"0\") || (t.a == t.b)) }\n"; string(mutate(got.data, []place{got})) != want || got.file != "m/g.go" {
		t.Errorf("%s:\n%s", got.file, mutate(got.data, []place{got}))
	}
}

func TestMutateNests(t *testing.T) {
	root := writeFunc(t, "if a && b {\n\tf(c)\n}\nreturn d")
	var places []place
	for _, m := range []mutation{
		{Mentions: "b", Becomes: "false"}, {Mentions: "a && b", Becomes: "true"}, {Mentions: "a && b", Becomes: "removed"},
		{Mentions: "f(c)", Becomes: "removed"}, {Mentions: "d", Becomes: "true"}, {Mentions: "a", Becomes: "false"}, {Mentions: "d", Becomes: "false"},
	} {
		m.Package, m.Func = "m", "F"
		p, err := resolve(root, m)
		check.NoError(t, err)
		p.number = len(places) + 1
		places = append(places, p)
	}
	want := `if !mutantIs("3") { if (mutantIs("2") || ((!mutantIs("6") && (a)) && (!mutantIs("1") && (b)))) {
	if !mutantIs("4") { f(c) }
} }
return (mutantIs("5") || ((!mutantIs("7") && (d))))`
	check.Equal(t, "result", "package m\n\nfunc F() bool {\n"+want+"\n}\n", string(mutate(places[0].data, places)))
}
