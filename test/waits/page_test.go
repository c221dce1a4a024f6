package waits

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/lists"
)

var update = flag.Bool("update", false, "write the table into docs/safety.md")

const (
	safetyFile         = "../../docs/safety.md"
	beginMark, endMark = "<!-- waits -->\n", "<!-- /waits -->\n"
)

// arms are the tables of the page. actions are the actions of the code by reason; nil for tables of messages.
var arms = []struct {
	title   string
	table   map[string]wait
	actions map[string]string
}{
	{"Reboots: `status.rollout.reason` of a StorageClientNode", rollout, overview.Actions},
	{"Live settings: messages of the Node condition `Tuned` with the reason `Applying`", live, nil},
	{"Nodes: reasons of the conditions `Tuned` and `StorageReachable`", conditions, overview.Actions},
	{"Mount options: messages of `kubectl storageclient volumes` with the state `Pending`", pending, nil},
	{"Volumes: reasons of the other states", volumes, view.VolumeRemedies},
	{"Trials: messages with the reason `Waiting`", trials, nil},
}

// constantsOf returns the constants of a folder: texts, numbers and durations.
func constantsOf(t *testing.T, folder string) map[string]constant.Value {
	t.Helper()
	specs, values := map[string]ast.Expr{}, map[string]constant.Value{}
	read(t, folder).visit(func(n ast.Node) {
		if spec, isValue := n.(*ast.ValueSpec); isValue && len(spec.Names) == len(spec.Values) {
			for i, name := range spec.Names {
				specs[name.Name] = spec.Values[i]
			}
		}
	})
	for name, spec := range specs {
		if value := evaluate(spec, specs); value.Kind() != constant.Unknown {
			values[name] = value
		}
	}
	return values
}

var units = map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour, "Millisecond": time.Millisecond}

// evaluate returns the value of an expression of literals, units of time and constants. Others are unknown.
func evaluate(expression ast.Expr, known map[string]ast.Expr) constant.Value {
	switch e := expression.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.SelectorExpr:
		if unit, isUnit := units[e.Sel.Name]; isUnit {
			return constant.MakeInt64(int64(unit))
		}
	case *ast.Ident:
		if spec, isKnown := known[e.Name]; isKnown && spec != expression {
			return evaluate(spec, known)
		}
	case *ast.BinaryExpr:
		left, right := evaluate(e.X, known), evaluate(e.Y, known)
		if (e.Op == token.MUL || e.Op == token.ADD) && left.Kind() == right.Kind() && left.Kind() != constant.Unknown {
			return constant.BinaryOp(left, e.Op, right)
		}
	}
	return constant.MakeUnknown()
}

var reference = regexp.MustCompile(`\{([^}]+)\}`)

// resolve replaces the references of a text by values of the source.
func resolve(t *testing.T, text string) string {
	t.Helper()
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		ref = strings.Trim(ref, "{}")
		if !strings.Contains(ref, "/") {
			return fmt.Sprintf("`%s` (%s by default)", ref, durationText(time.Duration(defaultOf(t, ref))*time.Second))
		}
		dot := strings.LastIndex(ref, ".")
		value, isKnown := constantsOf(t, ref[:dot])[ref[dot+1:]]
		if !isKnown {
			t.Fatalf("the source has no constant %s", ref)
		}
		number, _ := constant.Int64Val(value)
		switch name := ref[dot+1:]; {
		case strings.HasSuffix(name, "Seconds"):
			number *= int64(time.Second)
		case number < int64(time.Millisecond):
			return value.String()
		}
		return durationText(time.Duration(number))
	})
}

// defaultOf returns the default of a number in the spec of a profile.
func defaultOf(t *testing.T, path string) float64 {
	t.Helper()
	spec := (&v1alpha1.StorageClientProfileSpec{}).WithDefaults()
	raw, err := json.Marshal(spec)
	check.NoError(t, err)
	var object any
	check.NoError(t, json.Unmarshal(raw, &object))
	for _, field := range strings.Split(path, ".") {
		fields, _ := object.(map[string]any)
		object = fields[field]
	}
	number, isNumber := object.(float64)
	if !isNumber {
		t.Fatalf("a profile has no default for %s", path)
	}
	return number
}

func durationText(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if number := d / unit.length; d%unit.length == 0 && number == 1 {
			return "1 " + unit.name
		} else if d%unit.length == 0 {
			return fmt.Sprintf("%d %ss", number, unit.name)
		}
	}
	return d.String()
}

var verb = regexp.MustCompile(`%[a-z]`)

// nameOf returns the name of a row: the value of a constant, or the message with dots for its variables.
func nameOf(key string, values map[string]constant.Value) string {
	if value, isConstant := values[key]; isConstant {
		return "`" + constant.StringVal(value) + "`"
	}
	name := verb.ReplaceAllString(key, "…")
	name = strings.NewReplacer("……", "…", "  ", " … ", "Profile :", "Profile …:", " at : ", " at …").Replace(name)
	if trimmed := strings.TrimRight(name, " "); trimmed != name {
		name = trimmed + " …"
	}
	return "`" + strings.TrimPrefix(name, "; ") + "`"
}

// rowsOf returns the rows of a table. Reasons with the same texts share a row. Final states have none.
func rowsOf(t *testing.T, table map[string]wait, actions map[string]string, values map[string]constant.Value) []string {
	t.Helper()
	names, keys := map[string][]string{}, []string{}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		w := table[key]
		if w.finished != "" || w.partOf != "" {
			continue
		}
		action := w.page.do
		if value, isConstant := values[key]; isConstant && action == "" {
			action = strings.TrimSuffix(actions[constant.StringVal(value)], ".")
		}
		limit := w.page.limit
		if limit == "" {
			limit = "until a user acts"
		}
		cells := []string{w.page.subject, resolve(t, limit), w.page.then, action}
		for i, cell := range cells {
			if cell == "" {
				t.Errorf("%s: cell %d of its row is empty", key, i)
			}
			cells[i] = resolve(t, strings.ToLower(cell[:min(1, len(cell))])+cell[min(1, len(cell)):])
		}
		row := strings.Join(cells, " | ")
		if names[row] == nil {
			keys = append(keys, row)
		}
		names[row] = lists.AddMissing(names[row], nameOf(key, values))
	}
	for i, row := range keys {
		keys[i] = fmt.Sprintf("| %s | %s |\n", strings.Join(names[row], ", "), row)
	}
	return keys
}

func TestTheTableOfWaitsIsCurrent(t *testing.T) {
	values := constantsOf(t, "api/v1alpha1")
	var table strings.Builder
	count := 0
	for _, arm := range arms {
		rows := rowsOf(t, arm.table, arm.actions, values)
		count += len(rows)
		fmt.Fprintf(&table, "\n### %s\n\n| reason | waiting object | at most | then | what you can do |\n|---|---|---|---|---|\n%s", arm.title, strings.Join(rows, ""))
	}
	if count > 85 {
		t.Errorf("got %d rows, want at most 85: let reasons share a page", count)
	}
	raw, err := os.ReadFile(safetyFile)
	check.NoError(t, err)
	before, rest, _ := strings.Cut(string(raw), beginMark)
	current, after, found := strings.Cut(rest, endMark)
	if !found {
		t.Fatalf("%s has no marks %q and %q", safetyFile, beginMark, endMark)
	}
	next := table.String()[1:] + "\n"
	if *update && !t.Failed() {
		check.NoError(t, os.WriteFile(safetyFile, []byte(before+beginMark+"\n"+next+endMark+after), 0o644))
		return
	}
	if current != "\n"+next {
		t.Error(`the table of waits in docs/safety.md is outdated: run "go test ./test/waits -update" and review the difference`)
	}
}

// A number in a text would be a second copy of a constant or a default.
func TestTextsOfWaitsContainNoNumbers(t *testing.T) {
	for _, arm := range arms {
		for key, w := range arm.table {
			for _, text := range []string{w.page.subject, w.page.limit, w.page.then, w.page.do} {
				text = strings.ReplaceAll(reference.ReplaceAllString(text, ""), "v1alpha1", "")
				if strings.ContainsFunc(text, unicode.IsDigit) {
					t.Errorf("%s: %q contains a number; use {folder.constant} or {field}", key, text)
				}
			}
			if _, isKnown := arm.table[w.partOf]; w.partOf != "" && (!isKnown || arm.table[w.partOf].page == page{}) {
				t.Errorf("%s: no row %q", key, w.partOf)
			}
		}
	}
}
