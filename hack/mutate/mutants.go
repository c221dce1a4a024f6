package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mutants are the mutations of one package, built together: each test binary contains all of them, and an environment variable selects
// one. The tree is never written: go gets the mutated files as an overlay.
type mutants struct {
	root, dir, overlay string
	// binaries are the test binaries by their package. A package without tests has an empty one.
	binaries map[string]string
}

// selector is the environment variable that selects a mutation by its number.
const selector = "MUTANT"

// selectorFile is the file that the overlay adds to a mutated package.
const selectorFile = "zz_mutant.go"

const selectorSource = `package %s

import "os"

var mutantSelected = os.Getenv("` + selector + `")

func mutantIs(number string) bool { return mutantSelected == number }
`

// newMutants prepares the places of a package. close removes its temporary files.
func newMutants(root string, places []place) (*mutants, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	m := &mutants{root: root, dir: dir, overlay: filepath.Join(dir, "overlay.json"), binaries: map[string]string{}}
	if err := m.writeOverlay(places); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *mutants) close() { os.RemoveAll(m.dir) }

func (m *mutants) writeOverlay(places []place) error {
	contents := map[string][]byte{}
	for _, p := range places {
		if contents[p.file] == nil {
			ofFile := slices.DeleteFunc(slices.Clone(places), func(other place) bool { return other.file != p.file })
			contents[p.file] = mutate(p.data, ofFile)
		}
		contents[filepath.Join(filepath.Dir(p.file), selectorFile)] = fmt.Appendf(nil, selectorSource, p.packageName)
	}
	replace := map[string]string{}
	for name, content := range contents {
		original, err := filepath.Abs(filepath.Join(m.root, name))
		if err != nil {
			return err
		}
		replace[original] = filepath.Join(m.dir, strconv.Itoa(len(replace))+".go")
		if err := os.WriteFile(replace[original], content, 0o600); err != nil {
			return err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(m.overlay, list, 0o600)
}

// compileError means that mutations do not compile: they prove nothing.
type compileError struct{ output string }

func (e compileError) Error() string { return "the mutation does not compile:\n" + e.output }

// build returns the test binary of a package, empty if the package has no tests.
func (m *mutants) build(ctx context.Context, tests string) (string, error) {
	if binary, built := m.binaries[tests]; built {
		return binary, nil
	}
	binary, err := filepath.Abs(filepath.Join(m.dir, strconv.Itoa(len(m.binaries))+".test"))
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+m.overlay, "-o", binary, tests)
	command.Dir = m.root
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", compileError{string(output)}
	}
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(binary); errors.Is(err, os.ErrNotExist) {
		binary = ""
	}
	m.binaries[tests] = binary
	return binary, nil
}

// failedTest is a test that failed, not a subtest.
var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// try runs a package's tests under a mutation until one fails, and returns the failed tests. A test that fails without a mutation is an
// error, because its failures do not prove that it detects the mutation.
func (m *mutants) try(ctx context.Context, number int, tests string, e effort) ([]string, error) {
	_, built := m.binaries[tests]
	binary, err := m.build(ctx, tests)
	if err != nil || binary == "" {
		return nil, err
	}
	if !built {
		if failed, err := m.run(ctx, 0, binary, tests, e); err != nil || len(failed) > 0 {
			delete(m.binaries, tests)
			return nil, cmp.Or(err, fmt.Errorf("%s fails without a mutation: %s", tests, strings.Join(failed, ", ")))
		}
	}
	return m.run(ctx, number, binary, tests, e)
}

// run runs a test binary under a mutation, 0 for none, and returns what failed.
func (m *mutants) run(ctx context.Context, number int, binary, tests string, e effort) ([]string, error) {
	args := []string{"-test.failfast", "-test.run=" + e.tests, fmt.Sprintf("-test.timeout=%s", timeout)}
	if testsHold(m.root, tests, `"github.com/storageclient/operator/test/play"`) {
		args = append(args, fmt.Sprintf("-schedules=%d", e.schedules))
	}
	if testsHold(m.root, tests, `"pgregory.net/rapid"`) {
		// Without this flag, rapid writes failing inputs to the source tree.
		args = append(args, "-rapid.nofailfile")
	}
	command := exec.CommandContext(ctx, binary, args...)
	command.Dir = filepath.Join(m.root, tests)
	command.Env = append(os.Environ(), selector+"="+strconv.Itoa(number))
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) {
		return nil, err
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
