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
		"m/m.go": "package m\n\nfunc Positive(n int) bool { return n > 0 }\n\nfunc Even(n int) bool { return n%2 == 0 }\n",
		"n/n.go": "package n\n",
		"m/m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestPositive(t *testing.T) {\n\tif !Positive(1) || Positive(0) {\n\t\tt.Error()\n\t}\n}\n\n" +
			"func TestEven(t *testing.T) { Even(2) }\n",
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
		old, new string
		tests    []string
		want     []string
		err      string
	}{
		"a test notices":                          {old: "n > 0", new: "n >= 0", tests: []string{"./m"}, want: []string{"TestPositive"}},
		"the second package notices":              {old: "n > 0", new: "n >= 0", tests: []string{"./n", "./m"}, want: []string{"TestPositive"}},
		"no test notices":                         {old: "n%2 == 0", new: "n%2 == 1", tests: []string{"./m"}},
		"what does not compile proves nothing":    {old: "n > 0", new: "n +", tests: []string{"./m"}, err: "does not compile"},
		"an edit that fits nowhere is an error":   {old: "n > 1", new: "n > 2", tests: []string{"./m"}, err: "holds 0 times"},
		"an edit that fits twice is an error":     {old: "n int", new: "n int8", tests: []string{"./m"}, err: "holds 2 times"},
		"a test that panics has noticed":          {old: "return n > 0", new: "panic(n)", tests: []string{"./m"}, want: []string{"TestPositive"}},
		"a package that is not there is an error": {old: "n > 0", new: "n >= 0", tests: []string{"./o"}, err: "does not compile"},
	} {
		t.Run(name, func(t *testing.T) {
			m := mutation{Decision: name, File: "m/m.go", Old: test.old, New: test.new, Tests: test.tests}
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
	table := "- {decision: even is even, file: m/m.go, old: 'n%2 == 0', new: 'n%2 == 1', tests: [./m]}\n" +
		"- {decision: does not compile, file: m/m.go, old: 'n > 0', new: 'n +', tests: [./m]}\n" +
		"- {decision: nought is not positive, file: m/m.go, old: 'n > 0', new: 'n >= 0', tests: [./m]}\n"
	if err := os.WriteFile(filepath.Join(root, "table.yaml"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(root, "page.md")
	if err := run(t.Context(), root, "table.yaml", "nought", page, 1); err != nil {
		t.Fatal(err)
	}
	if got := pageOf(t, page); !strings.Contains(got, "| nought is not positive | `m/m.go` | TestPositive |\n") || !strings.Contains(got, "| even is even | `m/m.go` | not tried yet |\n") {
		t.Errorf("page after one decision:\n%s", got)
	}
	err := run(t.Context(), root, "table.yaml", "even|compile", page, 1)
	if err == nil || !strings.Contains(err.Error(), "are gone: even is even") || !strings.Contains(err.Error(), "table.yaml: does not compile") || strings.Contains(err.Error(), "nought") {
		t.Errorf("got %v, want an error that names the one that survived and the one that does not compile", err)
	}
	if got := pageOf(t, page); !strings.Contains(got, "| nought is not positive | `m/m.go` | TestPositive |\n") || !strings.Contains(got, "| even is even | `m/m.go` | **nobody** |\n") {
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

// A decision that was rewritten takes its row with it, or "make mutate" would find out weeks later.
func TestEveryMutationFitsTheSource(t *testing.T) {
	const root = "../.."
	all, err := readTable(filepath.Join(root, "hack/mutate/mutations.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Errorf("%d decisions, want at least 60", len(all))
	}
	for _, m := range all {
		if _, err := mutate(root, m); err != nil {
			t.Errorf("%s: %v", m.Decision, err)
		}
	}
}
