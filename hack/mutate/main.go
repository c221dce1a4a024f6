// Command mutate breaks one decision at a time and checks that a test fails: "make mutate". Each row of mutations.yaml names a
// decision, a function and an expression in it. The syntax tree leads from the expression to the code that decides, so a row survives
// formatting and refactoring around it. The tree is never written: go test gets the mutated file as an overlay.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// timeout bounds the tests of one package under one mutation. A decision that ends a loop is missed by a test that never ends.
const timeout = 10 * time.Minute

// becomes is what a mutation makes of its target.
type becomes string

const (
	becomesFalse   becomes = "false"
	becomesTrue    becomes = "true"
	becomesRemoved becomes = "removed"
)

// UnmarshalJSON accepts the booleans with and without quotes.
func (b *becomes) UnmarshalJSON(data []byte) error {
	*b = becomes(strings.Trim(string(data), `"`))
	return nil
}

// mutation is one decision and what takes it away.
type mutation struct {
	// Decision is what the code decides, in plain English.
	Decision string `json:"decision"`
	// Invariant is what the decision protects.
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
	page := flag.String("page", "", "File to write the table of results to, as Markdown; what it says of decisions that are not tried now stays.")
	flag.Parse()
	if err := run(context.Background(), *root, *table, *only, *page, *schedules); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, name, only, page string, schedules int) error {
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
	table := all
	all = slices.DeleteFunc(slices.Clone(all), func(m mutation) bool { return !m.matches(matches) })
	var survivors, broken []string
	for i, m := range all {
		started := time.Now()
		killers, err := tryMutation(ctx, root, m, schedules)
		if err != nil {
			broken = append(broken, m.Decision)
			fmt.Printf("%3d/%d         %s: BROKEN: %v\n", i+1, len(all), m.Decision, err)
			continue
		}
		verdict := "killed by " + strings.Join(killers, ", ")
		if len(killers) == 0 {
			verdict = "SURVIVED"
			survivors = append(survivors, m.Decision)
		}
		took := time.Since(started).Round(time.Second)
		fmt.Printf("%3d/%d %6s  %s: %s\n", i+1, len(all), took, m.Decision, verdict)
		known[m.cells()] = killersInWords(killers)
		if page == "" {
			continue
		}
		// After each: whoever ends a run of an hour keeps what it has found.
		if err := os.WriteFile(page, []byte(markdown(table, known)), 0o644); err != nil { //nolint:gosec // documentation
			return err
		}
	}
	var errs []error
	if len(broken) > 0 {
		errs = append(errs, fmt.Errorf("rows to mend in %s: %s", name, strings.Join(broken, "; ")))
	}
	if len(survivors) > 0 {
		errs = append(errs, fmt.Errorf("no test notices that these are gone: %s", strings.Join(survivors, "; ")))
	}
	return errors.Join(errs...)
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

// tryMutation returns the tests that fail under a mutation. One that does not compile is an error: it proves nothing.
func tryMutation(ctx context.Context, root string, m mutation, schedules int) ([]string, error) {
	mutated, err := resolve(root, m)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, overlay := filepath.Join(dir, filepath.Base(mutated.File)), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(filepath.Join(root, mutated.File))
	if err != nil {
		return nil, err
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(file, mutated.Content, 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return nil, err
	}
	for _, tests := range m.Tests {
		killers, err := runTests(ctx, root, tests, overlay, schedules)
		if len(killers) > 0 || err != nil {
			return killers, err
		}
	}
	return nil, nil
}

var (
	// failedTest is a test that failed, not a subtest.
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	// failedBuild is what go test prints where it could not compile.
	failedBuild = regexp.MustCompile(`(?m)^FAIL\s.*\[(build|setup) failed\]`)
)

// runTests runs a package's tests and returns those that failed.
func runTests(ctx context.Context, root, tests, overlay string, schedules int) ([]string, error) {
	args := []string{"test", "-count=1", "-vet=off", "-overlay=" + overlay, fmt.Sprintf("-timeout=%s", timeout), tests}
	if testsHold(root, tests, `flag.Int("schedules"`) {
		args = append(args, fmt.Sprintf("-schedules=%d", schedules))
	}
	if testsHold(root, tests, `"pgregory.net/rapid"`) {
		// It would keep what it found in the tree.
		args = append(args, "-rapid.nofailfile")
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = root
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil, nil
	case !errors.As(err, &exit):
		return nil, err
	case failedBuild.Match(output):
		return nil, fmt.Errorf("the mutation does not compile:\n%s", output)
	}
	var killers []string
	for _, match := range failedTest.FindAllSubmatch(output, -1) {
		killers = append(killers, string(match[1]))
	}
	slices.Sort(killers)
	if killers = slices.Compact(killers); len(killers) == 0 {
		// A panic or a timeout ends the run before a name is printed.
		return []string{"a panic or timeout in " + tests}, nil
	}
	return killers, nil
}

// testsHold reports whether a package's tests hold a text.
func testsHold(root, tests, text string) bool {
	files, _ := filepath.Glob(filepath.Join(root, tests, "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		data, err := os.ReadFile(file)
		return err == nil && bytes.Contains(data, []byte(text))
	})
}

// readPage reads what a page says of each decision: by the cells that name it, the one that tells what kills it.
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

// markdown is the page: every decision of the table, and what kills it where that is known.
func markdown(table []mutation, known map[string]string) string {
	var b strings.Builder
	b.WriteString("# Decisions and the tests that hold them\n\n" +
		"Written by `make mutate`. It takes each decision out of the code, one at a time, and checks that a test fails.\n\n" +
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
