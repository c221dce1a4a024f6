// Package waits checks that each wait in the cluster has a bound, or a message that names the action of a user.
package waits

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/test/check"
)

// wait describes one reason to wait. Exactly one of bound, action and finished is set.
type wait struct {
	// bound is the identifier that ends the wait: a function, a constant, or a field of the API.
	bound string
	// action is the part of the message that names the action of a user.
	action string
	// finished explains why the reason is no wait: the node is in its final state, or the reason lasts one pass.
	finished string
	// page is the row in docs/safety.md. Reasons with the same page share a row.
	page page
	// partOf is the key of the row that describes the wait, for messages that are parts of other messages.
	partOf string
}

// page describes a wait for users. Texts contain no numbers: {controllers/rollout/plan.RefusalPause} is the value of a constant of that folder, and
// {rollout.drain.timeoutSeconds} is the default of a field of a profile.
type page struct {
	// subject names the object that waits, and the object or event that it waits for.
	subject string
	// limit is the maximum duration. Empty if a user ends the wait.
	limit string
	// then is the next step after the end.
	then string
	// do is the action of a user. Empty if the code has one for the reason.
	do string
}

// source is the Go source of packages, without tests.
type source struct {
	files  []*ast.File
	idents sets.Set[string]
	// texts are all constant strings. Parts that are joined with + are one string.
	texts []string
}

func read(t *testing.T, dirs ...string) *source {
	t.Helper()
	s := &source{idents: sets.New[string]()}
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("got no source in %s: %v", dir, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			check.NoError(t, err)
			s.files = append(s.files, file)
		}
	}
	s.visit(func(n ast.Node) {
		if ident, ok := n.(*ast.Ident); ok {
			s.idents.Insert(ident.Name)
		}
	})
	for _, file := range s.files {
		s.texts = append(s.texts, textsIn(file)...)
	}
	return s
}

func (s *source) visit(visit func(ast.Node)) {
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			visit(n)
			return true
		})
	}
}

// textsIn returns the constant strings below a node in their order, and joins parts of a sum.
func textsIn(node ast.Node) []string {
	var out []string
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			left, right := textsIn(n.X), textsIn(n.Y)
			if _, isText := n.Y.(*ast.BasicLit); isText && len(left) > 0 && len(right) == 1 {
				left[len(left)-1] += right[0]
				right = nil
			}
			out = append(out, append(left, right...)...)
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				out = append(out, text)
			}
		}
		return true
	})
	return out
}

func (s *source) check(t *testing.T, found []string, table map[string]wait) {
	t.Helper()
	if known := sets.New(found...); len(found) == 0 || !known.Equal(sets.KeySet(table)) {
		t.Errorf("without a row here: %q; without a wait in the source: %q", sets.List(known.Difference(sets.KeySet(table))), sets.List(sets.KeySet(table).Difference(known)))
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		w := table[name]
		filled := slices.DeleteFunc([]string{w.bound, w.action, w.finished}, func(text string) bool { return text == "" })
		switch {
		case len(filled) != 1:
			t.Errorf("%q: got %d fields, want a bound, an action, or a final state", name, len(filled))
		case w.bound != "" && !s.idents.Has(w.bound):
			t.Errorf("%q: the source has no %s, which bounds the wait", name, w.bound)
		case w.action != "" && !slices.ContainsFunc(s.texts, func(text string) bool { return strings.Contains(text, w.action) }):
			t.Errorf("%q: no message contains the action %q", name, w.action)
		}
	}
}

// namesWith returns the names of constants of the API with a prefix.
func namesWith(t *testing.T, prefixes ...string) (names []string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(constantsOf(t, "api/v1alpha1"))) {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			names = append(names, name)
		}
	}
	return names
}

func TestEachReasonOfARolloutNoteHasABoundOrAnAction(t *testing.T) {
	read(t, "controllers/rollout/plan").check(t, append(namesWith(t, "RolloutReason"), "ReasonPausedByAnnotation", "ReasonPausedByField", "ReasonPlanMode", "ReasonInvalid"), rollout)
}

// The plugin adds actions to the reasons of volumes, and the status of a profile adds actions to their messages.
var volumeFolders = []string{"controllers/volume/plan", "controllers/volume/judge", "controllers/volume", "controllers/trial/plan",
	"controllers/profile/status", "cmd/kubectl-storageclient/view"}

func TestEachReasonOfAVolumeHasABoundOrAnAction(t *testing.T) {
	read(t, volumeFolders...).check(t, namesWith(t, "VolumeReason"), volumes)
}

func TestEachMessageOfAPendingVolumeHasABoundOrAnAction(t *testing.T) {
	functions := sets.New("isRejected", "stepInBatch", "noteHeldFailure", "waitsForProbe", "describeProbe", "waitsFor", "soakText", "awaitText", "describeBlames")
	missing, messages := functions.Clone(), sets.New[string]()
	for _, file := range read(t, "controllers/volume/plan").files {
		for _, declaration := range file.Decls {
			function, isFunction := declaration.(*ast.FuncDecl)
			if !isFunction || !functions.Has(function.Name.Name) {
				continue
			}
			missing.Delete(function.Name.Name)
			for _, text := range textsIn(function) {
				if len(strings.Fields(text)) > 2 {
					messages.Insert(text)
				}
			}
		}
	}
	check.Equal(t, "functions without source", 0, missing.Len())
	read(t, volumeFolders...).check(t, sets.List(messages), pending)
}

func TestEachReasonOfANodeConditionHasABoundOrAnAction(t *testing.T) {
	read(t, "controllers/node/plan", "controllers/internal/fleet", "controllers/overview", "controllers/rollout/plan").
		check(t, namesWith(t, "NodeReason", "StorageReason"), conditions)
}

func TestEachNoteOfALiveWaitHasABoundOrAnAction(t *testing.T) {
	s := read(t, "controllers/internal/livegate")
	var notes []string
	for _, text := range s.texts {
		if len(strings.Fields(text)) > 2 {
			notes = append(notes, text)
		}
	}
	s.check(t, notes, live)
}

func TestEachMessageOfAWaitingTrialHasABoundOrAnAction(t *testing.T) {
	s := read(t, "controllers/trial/plan")
	var messages []string
	s.visit(func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return
		}
		isWait := function.Sel.Name == "awaitTurn" || slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
			reason, ok := arg.(*ast.SelectorExpr)
			return ok && reason.Sel.Name == "TrialReasonWaiting"
		})
		if texts := textsIn(call); isWait && len(texts) > 0 {
			messages = append(messages, texts[0])
		}
	})
	s.check(t, messages, trials)
}
