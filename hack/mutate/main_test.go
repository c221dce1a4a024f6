package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

// newModule writes a module with one tested and one untested decision.
func newModule(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n",
		"m/m.go": "package m\n\nfunc Positive(n int) bool { return n > 0 }\n\nfunc Even(n int) bool { return n%2 == 0 }\n\n" +
			"func Half(n int) int { return n / 2 }\n\nfunc Checked(n int) int {\n\tif n < 0 {\n\t\tpanic(n)\n\t}\n\treturn n\n}\n",
		"n/n.go":          "package n\n",
		"red/red_test.go": "package red\n\nimport \"testing\"\n\nfunc TestRed(t *testing.T) { t.Error() }\n",
		"m/m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestPositive(t *testing.T) {\n\tif !Positive(1) || Positive(0) {\n\t\tt.Error()\n\t}\n}\n\n" +
			"func TestEven(t *testing.T) { Even(2) }\n\nfunc TestChecked(t *testing.T) { Checked(2) }\n",
	} {
		path := filepath.Join(root, name)
		check.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return root
}

func TestTryPackage(t *testing.T) {
	root := newModule(t)
	for name, test := range map[string]struct {
		rows []mutation
		want []string
	}{
		"tests notice, or do not": {
			rows: []mutation{
				{Func: "Positive", Mentions: "n > 0", Becomes: "true"},
				{Func: "Even", Mentions: "n%2", Becomes: "false"},
				{Func: "Checked", Mentions: "n < 0", Becomes: "true"},
				{Func: "Positive", Mentions: "n > 0", Becomes: "false", Tests: []string{"./n", "./m"}},
			},
			want: []string{"TestPositive", "**no test**", "TestChecked", "TestPositive"},
		},
		"one that does not compile spoils no other": {
			rows: []mutation{
				{Func: "Positive", Mentions: "n > 0", Becomes: "true"},
				{Func: "Half", Mentions: "n", Becomes: "true"},
				{Func: "Positive", Mentions: "n > 1", Becomes: "true"},
			},
			want: []string{"TestPositive", "", ""},
		},
		"a package that is not there": {
			rows: []mutation{{Func: "Positive", Mentions: "n > 0", Becomes: "true", Tests: []string{"./o"}}},
			want: []string{""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &results{table: test.rows, known: map[string]string{}, effort: effort{schedules: 1}}
			var rows []int
			for i := range r.table {
				m := &r.table[i]
				m.Package, m.Decision = "m", fmt.Sprint("decision ", i)
				if m.Tests == nil {
					m.Tests = []string{"./m"}
				}
				rows = append(rows, i)
			}
			check.NoError(t, r.tryPackage(t.Context(), root, rows))
			var broken []string
			for i, want := range test.want {
				m := r.table[i]
				if got := r.known[m.cells()]; got != want {
					t.Errorf("%s of %s: got %q, want %q", m.Decision, m.Func, got, want)
				}
				if want == "" {
					broken = append(broken, m.Decision)
				}
			}
			slices.Sort(r.broken)
			if !slices.Equal(r.broken, broken) {
				t.Errorf("got broken decisions %v, want %v", r.broken, broken)
			}
		})
	}
}

func TestTestsThatFailWithoutAMutationShowNothing(t *testing.T) {
	row := mutation{Decision: "red", Package: "m", Func: "Positive", Mentions: "n > 0", Becomes: "true", Tests: []string{"./red"}}
	r := &results{table: []mutation{row}, known: map[string]string{}, effort: effort{schedules: 1}}
	if err := r.tryPackage(t.Context(), newModule(t), []int{0}); err == nil || !strings.Contains(err.Error(), "./red fails without a mutation: TestRed") {
		t.Errorf("got %v", err)
	}
}

func TestRunFailsWhereADecisionIsHeldByNoTest(t *testing.T) {
	root := newModule(t)
	table := "- {decision: even is even, invariant: '1', package: m, func: Even, mentions: n%2 == 0, becomes: false}\n" +
		"- {decision: does not compile, invariant: '1', package: m, func: Half, mentions: 'n', becomes: true}\n" +
		"- {decision: nought is not positive, invariant: '2', package: m, func: Positive, mentions: n > 0, becomes: 'true', tests: [./n, ./m]}\n"
	check.NoError(t, os.WriteFile(filepath.Join(root, "table.yaml"), []byte(table), 0o600))
	page := filepath.Join(root, "page.md")
	check.NoError(t, run(t.Context(), root, "table.yaml", "nought", page, effort{schedules: 1}))
	if got := pageOf(t, page); !strings.Contains(got, "| nought is not positive | 2 | `m` | `Positive` | TestPositive |\n") || !strings.Contains(got, "| even is even | 1 | `m` | `Even` | not tried yet |\n") {
		t.Errorf("page after one decision:\n%s", got)
	}
	err := run(t.Context(), root, "table.yaml", "even|compile", page, effort{schedules: 1})
	if err == nil || !strings.Contains(err.Error(), "are gone: even is even") || !strings.Contains(err.Error(), "table.yaml: does not compile") || strings.Contains(err.Error(), "nought") {
		t.Errorf("got %v, want an error with the surviving mutation and the mutation that does not compile", err)
	}
	if got := pageOf(t, page); !strings.Contains(got, "| nought is not positive | 2 | `m` | `Positive` | TestPositive |\n") || !strings.Contains(got, "| even is even | 1 | `m` | `Even` | **no test** |\n") {
		t.Errorf("page after the others:\n%s", got)
	}
}

func pageOf(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	check.NoError(t, err)
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
			check.NoError(t, os.WriteFile(path, []byte(test.table), 0o600))
			all, err := readTable(path)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want an error that contains %q", err, test.err)
				}
				return
			}
			if err != nil || len(all) != 1 || all[0].Becomes != becomesFalse || !slices.Equal(all[0].Tests, []string{"./p"}) {
				t.Errorf("got %+v, %v", all, err)
			}
		})
	}
}

// If a decision moves to another function, its row must move too. Otherwise only "make mutate" would report the outdated row.
func TestEveryMutationHasOneTarget(t *testing.T) {
	const root = "../.."
	all, err := readTable(filepath.Join(root, "hack/mutate/mutations.yaml"))
	check.NoError(t, err)
	if len(all) < 60 {
		t.Errorf("got %d decisions, want at least 60", len(all))
	}
	seen := map[string]bool{}
	for _, m := range all {
		if _, err := resolve(root, m); err != nil {
			t.Errorf("%s: %v", m.Decision, err)
		}
		if seen[m.cells()] {
			t.Errorf("%s: got two rows with this decision and function", m.Decision)
		}
		seen[m.cells()] = true
	}
}
