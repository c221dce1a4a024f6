// Command mutate breaks one decision at a time and checks that a test fails: "make mutate". Each row of mutations.yaml names a
// decision, a function and an expression in it. The syntax tree leads from the expression to the code that decides, so a row survives
// formatting and refactoring around it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// timeout limits the tests of one package under one mutation. Without the decision that ends a loop, a test never finishes.
const timeout = 10 * time.Minute

// becomes is the replacement for the target of a mutation.
type becomes string

const (
	becomesFalse   becomes = "false"
	becomesTrue    becomes = "true"
	becomesRemoved becomes = "removed"
)

// UnmarshalJSON accepts the booleans with and without quotes. readTable rejects other values, since it knows the row.
func (b *becomes) UnmarshalJSON(data []byte) error { //nolint:unparam // json.Unmarshaler returns an error
	*b = becomes(strings.Trim(string(data), `"`))
	return nil
}

// mutation is one decision, and the change that removes it from the code.
type mutation struct {
	// Decision describes the decision of the code in plain English.
	Decision string `json:"decision"`
	// Invariant is the invariant that the decision protects.
	Invariant string `json:"invariant"`
	// Package is the directory of the package in the module.
	Package string `json:"package"`
	// Func is the function that decides: Name, or Type.Name for a method.
	Func string `json:"func"`
	// Mentions is a Go expression in the body of Func. It leads to exactly one target.
	Mentions string `json:"mentions"`
	// Becomes is false or true for the smallest boolean around the mention, or removed for the smallest statement.
	Becomes becomes `json:"becomes"`
	// Tests are the packages whose tests notice, tried in this order until one fails. Default: Package.
	Tests []string `json:"tests"`
}

// cells returns the mutation's part of its line on the page.
func (m mutation) cells() string {
	return fmt.Sprintf("| %s | %s | `%s` | `%s` |", m.Decision, m.Invariant, m.Package, m.Func)
}

// matches reports whether a regular expression matches the decision or its function.
func (m mutation) matches(only *regexp.Regexp) bool {
	return slices.ContainsFunc([]string{m.Decision, m.Invariant, m.Package + "." + m.Func}, only.MatchString)
}

func main() {
	root := flag.String("root", ".", "Root of the module.")
	table := flag.String("table", "hack/mutate/mutations.yaml", "The decisions.")
	only := flag.String("only", "", "Regular expression: only decisions, invariants or functions (package.Func) that match it.")
	schedules := flag.Int("schedules", 2000, "Random schedules that each simulation plays.")
	tests := flag.String("run", "", "Regular expression of the tests that are run, for whoever writes a row; empty: all.")
	page := flag.String("page", "", "File to write the table of results to, as Markdown; what it says of decisions that are not tried now stays.")
	flag.Parse()
	if err := run(context.Background(), *root, *table, *only, *page, effort{tests: *tests, schedules: *schedules}); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// effort limits the tests that run.
type effort struct {
	// tests is a regular expression of their names. Empty: all.
	tests string
	// schedules is the number of random schedules that each simulation plays.
	schedules int
}

func run(ctx context.Context, root, name, only, page string, e effort) error {
	matches, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("--only %q: %w", only, err)
	}
	all, err := readTable(filepath.Join(root, name))
	if err != nil {
		return err
	}
	known, err := readPage(page)
	if err != nil {
		return err
	}
	r := &results{table: all, known: known, page: page, effort: e}
	packages := map[string][]int{}
	for i, m := range all {
		if m.matches(matches) {
			packages[m.Package] = append(packages[m.Package], i)
			r.total++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if err := r.tryPackage(ctx, root, packages[name]); err != nil {
			return err
		}
	}
	var errs []error
	if len(r.broken) > 0 {
		errs = append(errs, fmt.Errorf("rows to mend in %s: %s", name, strings.Join(r.broken, "; ")))
	}
	if len(r.survivors) > 0 {
		errs = append(errs, fmt.Errorf("no test notices that these are gone: %s", strings.Join(r.survivors, "; ")))
	}
	return errors.Join(errs...)
}

// results contains the verdicts on the rows of the table.
type results struct {
	table []mutation
	// known contains the verdicts of the page. The keys are the cells of a mutation.
	known map[string]string
	page  string
	effort
	tried, total      int
	survivors, broken []string
}

// tryPackage tries rows of one package. They are built together, and one by one if that does not compile.
func (r *results) tryPackage(ctx context.Context, root string, rows []int) error {
	var places []place
	var sound []int
	for _, i := range rows {
		p, err := resolve(root, r.table[i])
		if err != nil {
			r.noteBroken(i, err)
			continue
		}
		p.number = i + 1
		places, sound = append(places, p), append(sound, i)
	}
	built, err := newMutants(root, places)
	if err != nil {
		return err
	}
	defer built.close()
	for at, i := range sound {
		started := time.Now()
		killers, err := r.try(ctx, built, i)
		var failed compileError
		switch {
		case errors.As(err, &failed) && len(sound) > 1:
			for _, one := range sound[at:] {
				if err := r.tryPackage(ctx, root, []int{one}); err != nil {
					return err
				}
			}
			return nil
		case errors.As(err, &failed):
			r.noteBroken(i, err)
		case err != nil:
			return err
		default:
			if err := r.note(i, killers, time.Since(started)); err != nil {
				return err
			}
		}
	}
	return nil
}

// try returns the tests that fail under a mutation.
func (r *results) try(ctx context.Context, built *mutants, row int) ([]string, error) {
	for _, tests := range r.table[row].Tests {
		killers, err := built.try(ctx, row+1, tests, r.effort)
		if len(killers) > 0 || err != nil {
			return killers, err
		}
	}
	return nil, nil
}

func (r *results) noteBroken(row int, err error) {
	r.tried++
	r.broken = append(r.broken, r.table[row].Decision)
	fmt.Printf("%3d/%d         %s: BROKEN: %v\n", r.tried, r.total, r.table[row].Decision, err)
}

// note records the tests that kill a mutation. It also writes them to the page, so that an interrupted run keeps its results.
func (r *results) note(row int, killers []string, took time.Duration) error {
	m := r.table[row]
	verdict := "killed by " + strings.Join(killers, ", ")
	if len(killers) == 0 {
		verdict = "SURVIVED"
		r.survivors = append(r.survivors, m.Decision)
	}
	r.tried++
	fmt.Printf("%3d/%d %6s  %s: %s\n", r.tried, r.total, took.Round(time.Second), m.Decision, verdict)
	r.known[m.cells()] = killersInWords(killers)
	if r.page == "" {
		return nil
	}
	return os.WriteFile(r.page, []byte(markdown(r.table, r.known)), 0o644) //nolint:gosec // documentation
}

// readTable reads the decisions, and rejects a row that lacks something.
func readTable(path string) ([]mutation, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []mutation
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range all {
		m := &all[i]
		if slices.Contains([]string{m.Decision, m.Invariant, m.Package, m.Func, m.Mentions}, "") {
			return nil, fmt.Errorf("%s: row %d (%q): decision, invariant, package, func and mentions are required", path, i+1, m.Decision)
		}
		if !slices.Contains([]becomes{becomesFalse, becomesTrue, becomesRemoved}, m.Becomes) {
			return nil, fmt.Errorf("%s: row %d (%q): becomes is %q, want false, true or removed", path, i+1, m.Decision, m.Becomes)
		}
		if len(m.Tests) == 0 {
			m.Tests = []string{"./" + m.Package}
		}
	}
	return all, nil
}

// readPage reads the verdict on each decision from a page. The keys are the cells before the verdict.
func readPage(page string) (map[string]string, error) {
	known := map[string]string{}
	data, err := os.ReadFile(page)
	if page == "" || errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if killers := strings.TrimSuffix(cells[len(cells)-1], " |"); len(cells) > 4 {
			known[strings.Join(cells[:len(cells)-1], " | ")+" |"] = killers
		}
	}
	return known, err
}

// markdown returns the page: every decision of the table, with the tests that kill it, if known.
func markdown(table []mutation, known map[string]string) string {
	var b strings.Builder
	b.WriteString("# Decisions and the tests that hold them\n\n" +
		"Written by `make mutate`. It removes each decision from the code, one at a time, and checks that a test fails. " +
		"The last column names the first test that fails, the second the invariant, by its number and name.\n\n" +
		"| decision | protects | package | function | killed by |\n|---|---|---|---|---|\n")
	for _, m := range table {
		killers, tried := known[m.cells()]
		if !tried {
			killers = "not tried yet"
		}
		fmt.Fprintf(&b, "%s %s |\n", m.cells(), killers)
	}
	return b.String()
}

func killersInWords(killers []string) string {
	if len(killers) == 0 {
		return "**no test**"
	}
	shown := killers[:min(3, len(killers))]
	words := strings.Join(shown, ", ")
	if more := len(killers) - len(shown); more > 0 {
		words += fmt.Sprintf(" and %d more", more)
	}
	return words
}
