package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// strippedByFlux is a prefix of field managers. Flux's kustomize-controller removes the fields of these managers.
const strippedByFlux = "kubectl"

// namesFieldManager matches names of constants and variables that hold a field manager. The test checks the constants themselves.
var namesFieldManager = regexp.MustCompile(`(?i)field(manager|owner)$`)

func TestNoFieldManagerIsNamedLikeKubectls(t *testing.T) {
	names, uses := 0, 0
	eachFile(t, func(path string, content []byte) {
		// Tests may act as kubectl.
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
		check.NoError(t, err)
		named, used := fieldManagersOf(file)
		for _, value := range append(named, used...) {
			switch name, isText := textOf(value); {
			case isText && strings.HasPrefix(name, strippedByFlux):
				t.Errorf("%s: field manager %q: Flux removes what managers own whose names begin with %q", path, name, strippedByFlux)
			case !isText && !namesFieldManager.MatchString(nameOf(value)):
				t.Errorf("%s: got field manager %T %s, want a string literal or a constant whose name ends in FieldManager", path, value, nameOf(value))
			}
		}
		names, uses = names+len(named), uses+len(used)
	})
	if names < 4 || uses < 20 {
		t.Errorf("got %d names of field managers and %d uses, want at least 4 and 20", names, uses)
	}
}

// fieldManagersOf returns the values of a file's field manager constants and variables, and the arguments passed as field managers.
func fieldManagersOf(file *ast.File) (named, used []ast.Expr) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, value := range n.Values {
				if namesFieldManager.MatchString(n.Names[i].Name) && !isFieldOwner(value) {
					named = append(named, value)
				}
			}
		case *ast.CallExpr:
			if isFieldOwner(n) {
				used = append(used, n.Args[len(n.Args)-1])
			}
		case *ast.KeyValueExpr:
			if nameOf(n.Key) == "FieldManager" {
				used = append(used, n.Value)
			}
		}
		return true
	})
	return named, used
}

// isFieldOwner reports whether an expression creates a controller-runtime option with a field manager.
func isFieldOwner(value ast.Expr) bool {
	call, isCall := value.(*ast.CallExpr)
	return isCall && (nameOf(call.Fun) == "FieldOwner" || nameOf(call.Fun) == "WithFieldOwner")
}

func textOf(value ast.Expr) (text string, isText bool) {
	literal, isLiteral := value.(*ast.BasicLit)
	if !isLiteral {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}

func nameOf(value ast.Expr) string {
	switch value := value.(type) {
	case *ast.Ident:
		return value.Name
	case *ast.SelectorExpr:
		return value.Sel.Name
	}
	return ""
}

func TestEveryPrintedCommandThatWritesNamesTheFieldManager(t *testing.T) {
	commands := 0
	eachFile(t, func(path string, content []byte) {
		// The expectations in tests come from other files.
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, command := range writingCommands(string(content)) {
			commands++
			if !withFieldManager.MatchString(command) {
				t.Errorf("%s: %s: Flux reverts the change without --field-manager=%s", path, command, v1alpha1.PluginFieldManager)
			}
		}
		for _, flag := range regexp.MustCompile(`--field-manager[= ]`+strippedByFlux+`\S*`).FindAllString(string(content), -1) {
			t.Errorf("%s: %s: Flux reverts the change", path, flag)
		}
	})
	if commands < 10 {
		t.Errorf("got %d commands, want at least 10", commands)
	}
}

func TestWritingCommandsAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"in a sentence":                           {"To stop: `kubectl annotate scp P paused=true`, or wait.", []string{"kubectl annotate scp P paused=true"}},
		"in a block, with a comment":              {"kubectl annotate node N a=b      # one node\n", []string{"kubectl annotate node N a=b"}},
		"over two lines":                          {"kubectl annotate node N \\\n  a=b\n", []string{"kubectl annotate node N a=b"}},
		"with options before the verb":            {"kubectl -n argocd --context=c patch configmap c", []string{"kubectl -n argocd --context=c patch configmap c"}},
		"of a script":                             {`"${kubectl[@]}" label nodes --selector a b-`, []string{`"${kubectl[@]}" label nodes --selector a b-`}},
		"of a Makefile":                           {`$(KUBECTL) label nodes a=b`, []string{`$(KUBECTL) label nodes a=b`}},
		"two on a line":                           {"kubectl label node N a=b && kubectl edit scp P", []string{"kubectl label node N a=b", "kubectl edit scp P"}},
		"in a format":                             {`fmt.Sprintf("run: kubectl taint node %s a=b:NoSchedule", node)`, []string{`kubectl taint node %s a=b:NoSchedule", node)`}},
		"an object that only the manager creates": {"kubectl -n %s edit configmap %s", nil},
		"not a command that reads":                {"kubectl get nodes -l annotate", nil},
		"not a mere name of one":                  {"as `kubectl annotate` does", nil},
		"not the plugin's, nor its prose":         {"kubectl storageclient approve PROFILE, which can annotate it", nil},
		"not if a label is an argument":           {"kubectl get scp -o label foo", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := writingCommands(test.text)
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

var (
	// withFieldManager matches the flag, also if Go code inserts the name.
	withFieldManager = regexp.MustCompile(` --field-manager=("\+v1alpha1\.PluginFieldManager\b|` + v1alpha1.PluginFieldManager + `\b)`)
	// writing matches the start of a command that changes an object that Flux may apply: kubectl, its options, a verb and an operand.
	writing = regexp.MustCompile(`(?:kubectl|"\$\{kubectl\[@\]\}"|\$\(KUBECTL\))(?: +-[^\s` + "`" + `]+(?: +[^-\s` + "`" + `]\S*)?)*? +(?:annotate|label|patch|edit|taint) +[^\s` + "`" + `]`)
	// ending matches the end of a command, in a shell or in a sentence.
	ending = regexp.MustCompile("`|\n| \\|| && |; | +#")
	// neverInGit matches an edit of an object that the manager creates and that users do not declare in Git.
	neverInGit = regexp.MustCompile(` edit configmap\b`)
)

// writingCommands returns the kubectl commands in a text that write annotations, labels or other fields of objects.
func writingCommands(text string) []string {
	text = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, "")
	var commands []string
	for _, at := range writing.FindAllStringIndex(text, -1) {
		command := text[at[0]:]
		if end := ending.FindStringIndex(command); end != nil {
			command = command[:end[0]]
		}
		if !neverInGit.MatchString(command) {
			commands = append(commands, command)
		}
	}
	return commands
}

// eachFile reads every text file of the repository.
func eachFile(t *testing.T, read func(path string, content []byte)) {
	t.Helper()
	root, files := "../..", 0
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && (name == ".git" || path == "bin" || path == "dist"):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(filepath.Join(root, path))
		if err == nil && !bytes.ContainsRune(content, 0) {
			files++
			read(path, content)
		}
		return err
	})
	if err != nil || files < 500 {
		t.Fatalf("got %d files read: %v", files, err)
	}
}
