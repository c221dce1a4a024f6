package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newModule writes a module whose one decision is tested, and one that is not.
func newModule(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n",
		"m/m.go": "package m\n\nfunc Positive(n int) bool { return n > 0 }\n\nfunc Even(n int) bool { return n%2 == 0 }\n\n" +
			"func Half(n int) int { return n / 2 }\n\nfunc Checked(n int) int {\n\tif n < 0 {\n\t\tpanic(n)\n\t}\n\treturn n\n}\n",
		"n/n.go": "package n\n",
		"m/m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestPositive(t *testing.T) {\n\tif !Positive(1) || Positive(0) {\n\t\tt.Error()\n\t}\n}\n\n" +
			"func TestEven(t *testing.T) { Even(2) }\n\nfunc TestChecked(t *testing.T) { Checked(2) }\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestTryMutation(t *testing.T) {
	root := newModule(t)
	for name, test := range map[string]struct {
		function, mentions string
		becomes            becomes
		tests              []string
		want               []string
		err                string
	}{
		"a test notices":                          {function: "Positive", mentions: "n > 0", becomes: "true", want: []string{"TestPositive"}},
		"the second package notices":              {function: "Positive", mentions: "n > 0", becomes: "false", tests: []string{"./n", "./m"}, want: []string{"TestPositive"}},
		"no test notices":                         {function: "Even", mentions: "n%2", becomes: "false"},
		"a mutation that does not compile":        {function: "Half", mentions: "n", becomes: "true", err: "does not compile"},
		"a mention that is not there":             {function: "Positive", mentions: "n > 1", becomes: "true", err: "has 0 targets"},
		"a test that panics has noticed":          {function: "Checked", mentions: "n < 0", becomes: "true", want: []string{"TestChecked"}},
		"a package that is not there is an error": {function: "Positive", mentions: "n > 0", becomes: "true", tests: []string{"./o"}, err: "does not compile"},
	} {
		t.Run(name, func(t *testing.T) {
			m := mutation{Decision: name, Package: "m", Func: test.function, Mentions: test.mentions, Becomes: test.becomes, Tests: test.tests}
			if m.Tests == nil {
				m.Tests = []string{"./m"}
			}
			got, err := tryMutation(t.Context(), root, m, 1)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error that says %q", err, test.err)
				}
				return
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestRunFailsWhereADecisionIsHeldByNoTest(t *testing.T) {
	root := newModule(t)
	table := "- {decision: even is even, invariant: '1', package: m, func: Even, mentions: n%2 == 0, becomes: false}\n" +
		"- {decision: does not compile, invariant: '1', package: m, func: Half, mentions: 'n', becomes: true}\n" +
		"- {decision: nought is not positive, invariant: '2', package: m, func: Positive, mentions: n > 0, becomes: 'true', tests: [./n, ./m]}\n"
	if err := os.WriteFile(filepath.Join(root, "table.yaml"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(root, "page.md")
	if err := run(t.Context(), root, "table.yaml", "nought", page, 1); err != nil {
		t.Fatal(err)
	}
	if got := pageOf(t, page); !strings.Contains(got, "| nought is not positive | 2 | `m` | `Positive` | TestPositive |\n") || !strings.Contains(got, "| even is even | 1 | `m` | `Even` | not tried yet |\n") {
		t.Errorf("page after one decision:\n%s", got)
	}
	err := run(t.Context(), root, "table.yaml", "even|compile", page, 1)
	if err == nil || !strings.Contains(err.Error(), "are gone: even is even") || !strings.Contains(err.Error(), "table.yaml: does not compile") || strings.Contains(err.Error(), "nought") {
		t.Errorf("got %v, want an error that names the one that survived and the one that does not compile", err)
	}
	if got := pageOf(t, page); !strings.Contains(got, "| nought is not positive | 2 | `m` | `Positive` | TestPositive |\n") || !strings.Contains(got, "| even is even | 1 | `m` | `Even` | **no test** |\n") {
		t.Errorf("page after the others:\n%s", got)
	}
}

func pageOf(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestReadTable(t *testing.T) {
	const row = "- {decision: d, invariant: '1', package: p, func: F, mentions: a, becomes: false}\n"
	for name, test := range map[string]struct{ table, err string }{
		"a row that is whole":      {row, ""},
		"a row without a mention":  {strings.Replace(row, "mentions: a, ", "", 1), `row 1 ("d"): decision, invariant, package, func and mentions are required`},
		"another value of becomes": {strings.Replace(row, "false", "gone", 1), `row 1 ("d"): becomes is "gone", want false, true or removed`},
		"an unknown field":         {strings.Replace(row, "func", "file", 1), "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "table.yaml")
			if err := os.WriteFile(path, []byte(test.table), 0o600); err != nil {
				t.Fatal(err)
			}
			all, err := readTable(path)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error that says %q", err, test.err)
				}
				return
			}
			if err != nil || len(all) != 1 || all[0].Becomes != becomesFalse || !slices.Equal(all[0].Tests, []string{"./p"}) {
				t.Errorf("got %+v, %v", all, err)
			}
		})
	}
}

// A decision that moves to another function takes its row along, or "make mutate" would report it weeks later.
func TestEveryMutationHasOneTarget(t *testing.T) {
	const root = "../.."
	all, err := readTable(filepath.Join(root, "hack/mutate/mutations.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Errorf("%d decisions, want at least 60", len(all))
	}
	seen := map[string]bool{}
	for _, m := range all {
		if _, err := resolve(root, m); err != nil {
			t.Errorf("%s: %v", m.Decision, err)
		}
		if seen[m.cells()] {
			t.Errorf("%s: two rows have this decision and function", m.Decision)
		}
		seen[m.cells()] = true
	}
}
