// Package messages checks that no code makes decisions based on the text of the operator's messages. Messages are for people and may change
// in any release, so code must read fields.
package messages

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

// rooms are the directories that the rule covers. Code in othersRooms parses the texts of kernels, host tools and mount helpers.
var (
	rooms       = []string{"agent", "api", "cmd", "controllers", "tuning"}
	othersRooms = []string{"agent/host", "tuning/mountfailures"}
)

// allowed contains the functions that may parse a text, and the author or the purpose of the text. Remove a function from the list if it no
// longer parses a text.
var allowed = map[string]string{
	"agent/metrics/authorize.go Guard":                  "the HTTP header Authorization",
	"agent/orders/trial.go nameCauses":                  "the kernel's and mount's words about a trial's mounts",
	"cmd/kubectl-storageclient/files.go explainField":   "the API machinery's words about an unknown field",
	"cmd/kubectl-storageclient/files.go explainType":    "the API machinery's words about a field of another type",
	"cmd/internal/program/program.go nameRemoved":       "the API machinery's words about an unknown field",
	"cmd/kubectl-storageclient/hints.go explainFlag":    "the flag package's words about an unknown flag",
	"cmd/kubectl-storageclient/hints.go hintFor":        "client-go's words about a missing configuration",
	"controllers/fence/try.go isImpersonationRefused":   "the API server's words about a missing right",
	"controllers/fence/try.go isRejectedByPolicy":       "the API server's words about a policy, of which it reports no field",
	"controllers/loop/loop.go Err":                      "a comparison for change: an error is logged once",
	"controllers/node/plan/condition.go stampTimes":     "a comparison for change: the condition is written if its message is new",
	"controllers/overview/overview.go Deviations":       "a comparison for change: nodes with the same message are listed together",
	"controllers/rollout/events.go emitNoteEvent":       "a comparison for change: an event is sent if the message is new",
	"controllers/volume/inspect.go inspectFailedMounts": "the kubelet's words about a mount",
	"controllers/volume/failedmount.go readFailedMount": "the kubelet's words about a mount",
	"tuning/drivers/table.go placeOf":                   "the notation of the table of drivers, which is no message",
	"tuning/catalogue/atleast.go ParseValue":            "the prefix of a value in spec.settings, which is no message",
}

// readers are the functions that parse their first argument. The functions of mountfailures only do this.
var readers = map[string][]string{
	"strings": {
		"Compare", "Contains", "ContainsAny", "Count", "Cut", "CutPrefix", "CutSuffix", "EqualFold", "Fields", "FieldsFunc", "HasPrefix", "HasSuffix",
		"Index", "IndexAny", "IndexByte", "LastIndex", "LastIndexByte", "Split", "SplitAfter", "SplitN",
	},
	"mountfailures": {"CauseOf"},
}

// matchers are methods of a regular expression.
var matchers = []string{"FindAllString", "FindString", "FindStringIndex", "FindStringSubmatch", "MatchString"}

// prose matches a constant that looks like a part of a sentence.
var prose = regexp.MustCompile(`[A-Za-z]{2} | [A-Za-z]{2}`)

func TestNoCodeDecidesByTheWordsOfAMessage(t *testing.T) {
	found, used := map[string][]string{}, map[string]bool{}
	for _, room := range rooms {
		for dir, files := range sourcesBelow(t, filepath.Join("..", "..", room)) {
			for _, f := range findReaders(t, files) {
				f.file = filepath.ToSlash(filepath.Join(dir, f.file))
				if slices.ContainsFunc(othersRooms, func(room string) bool { return strings.HasPrefix(f.file, room+"/") }) {
					continue
				}
				key := f.file + " " + f.function
				if used[key] = true; allowed[key] == "" {
					found[key] = append(found[key], fmt.Sprintf("line %d: %s", f.line, f.what))
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s parses a message (%s): read a field instead, or add the function to allowed if the text is not from the operator",
			key, strings.Join(found[key], "; "))
	}
	for _, key := range slices.Sorted(maps.Keys(allowed)) {
		if !used[key] {
			t.Errorf("%s does not parse a message: remove it from allowed", key)
		}
	}
}

// sourcesBelow returns the Go sources of each directory by name, without tests and generated files.
func sourcesBelow(t *testing.T, root string) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(entry.Name(), "zz_") {
			return err
		}
		dir, err := filepath.Rel(filepath.Join("..", ".."), filepath.Dir(path))
		if err != nil {
			return err
		}
		if out[dir] == nil {
			out[dir] = map[string]string{}
		}
		out[dir][entry.Name()] = path
		return nil
	})
	check.NoError(t, err)
	return out
}

// finding is a code location that parses a message.
type finding struct {
	file, function, what string
	line                 int
}

// findReaders returns the findings in the files of one package. It resolves the constants of the package by name.
func findReaders(t *testing.T, files map[string]string) []finding {
	t.Helper()
	set := token.NewFileSet()
	parsed, constants := map[string]*ast.File{}, map[string]string{}
	for name, path := range files {
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		check.NoError(t, err)
		parsed[name] = file
		noteConstants(file, constants)
	}
	var out []finding
	for name, file := range parsed {
		for _, decl := range file.Decls {
			function := "var"
			if f, ok := decl.(*ast.FuncDecl); ok {
				function = f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if what := describe(n, constants); what != "" {
					out = append(out, finding{name, function, what, set.Position(n.Pos()).Line})
				}
				return true
			})
		}
	}
	slices.SortFunc(out, func(a, b finding) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line)) })
	return out
}

func noteConstants(file *ast.File, into map[string]string) {
	for _, decl := range file.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v, ok := spec.(*ast.ValueSpec)
			for i := 0; ok && i < min(len(v.Names), len(v.Values)); i++ {
				into[v.Names[i].Name] = literal(v.Values[i], nil)
			}
		}
	}
}

// literal returns the value of a string literal or of a constant.
func literal(e ast.Expr, constants map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.Ident:
		return constants[e.Name]
	case *ast.BinaryExpr:
		return literal(e.X, constants) + literal(e.Y, constants)
	}
	return ""
}

// describe returns how a node parses a message. Empty if the node does not parse a message.
func describe(n ast.Node, constants map[string]string) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || len(n.Args) == 0 {
			return ""
		}
		if pkg, ok := f.X.(*ast.Ident); ok && slices.Contains(readers[pkg.Name], f.Sel.Name) {
			if pkg.Name == "mountfailures" || slices.ContainsFunc(n.Args, isMessage) || len(n.Args) > 1 && prose.MatchString(literal(n.Args[1], constants)) {
				return pkg.Name + "." + f.Sel.Name
			}
		}
		if slices.Contains(matchers, f.Sel.Name) && isMessage(n.Args[0]) {
			return f.Sel.Name
		}
	case *ast.BinaryExpr:
		isComparison := n.Op == token.EQL || n.Op == token.NEQ
		for _, side := range [][2]ast.Expr{{n.X, n.Y}, {n.Y, n.X}} {
			if isComparison && isMessage(side[0]) && !isNothing(side[1]) {
				return "a comparison with " + n.Op.String()
			}
		}
	case *ast.SwitchStmt:
		if n.Tag != nil && isMessage(n.Tag) {
			return "switch"
		}
	}
	return ""
}

// isNothing reports whether an expression is "" or nil. A check for an empty message does not parse its text.
func isNothing(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Value == `""`
	case *ast.Ident:
		return e.Name == "nil"
	}
	return false
}

// isMessage reports whether an expression is a message: a field or variable with such a name, or the text of an error.
func isMessage(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Error" && len(n.Args) == 0 {
				found = true
			}
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "len" {
				return false
			}
		case *ast.Ident:
			switch strings.ToLower(n.Name) {
			case "message", "messages", "refusal":
				found = true
			}
		}
		return !found
	})
	return found
}

// Each case is code that once parsed a message, or similar code.
func TestTheRuleFindsWhatItIsFor(t *testing.T) {
	for source, want := range map[string]bool{
		`strings.HasSuffix(condition.Message, SettingsName(hash))`:                      true,
		`strings.HasPrefix(setting.Message, catalogue.ProvingNote)`:                     true,
		`strings.Cut(note.Message, refused)`:                                            true,
		`strings.Cut(message, refused)`:                                                 true,
		`strings.Contains(v.message, "kubectl ")`:                                       true,
		`v.message == r.snapshot.FailuresUnread`:                                        true,
		`mountfailures.CauseOf(status.Message, asksOtherwise) == mountfailures.Options`: true,
		`own.Message != status.Message`:                                                 true,
		`strings.Contains(reasons[1], " up to date")`:                                   true,
		`strings.LastIndex(said, "kubectl ")`:                                           true,
		`strings.Contains(strings.ToLower(err.Error()), "ask ")`:                        true,
		`strings.Contains(err.Error(), "cannot create resource")`:                       true,
		`needle.MatchString(err.Error())`:                                               true,
		`needle.FindStringSubmatch(status.Message)`:                                     true,
		`strings.TrimPrefix(status.Message, "Failed") != status.Message`:                true,
		`strings.HasPrefix(said, needsApproval)`:                                        true,
		`status.Message != ""`:                                                          false,
		`err == nil`:                                                                    false,
		`len(c.Message) > most`:                                                         false,
		`strings.TrimSuffix(c.Message, ".")`:                                            false,
		`strings.HasPrefix(key, "sysctl/")`:                                             false,
		`condition.Reason == v1alpha1.NodeReasonTuned`:                                  false,
		`strings.Contains(option, "=")`:                                                 false,
		`slices.Contains(names, message)`:                                               false,
	} {
		t.Run(source, func(t *testing.T) {
			e, err := parser.ParseExpr(source)
			check.NoError(t, err)
			found := false
			ast.Inspect(e, func(n ast.Node) bool {
				found = found || describe(n, map[string]string{"needsApproval": "The plan needs approval"}) != ""
				return true
			})
			check.Equal(t, "finding", want, found)
		})
	}
}
