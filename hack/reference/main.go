// Command reference writes pages of the documentation from the source. docs/reference.md lists metrics, conditions, reasons and events;
// all must have doc comments. docs/knowledge.md lists advice, parameters and mount options. docs/drivers.md describes the way that drivers
// handle mount options. "make generate" runs it in the root of the repository.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const output = "docs/reference.md"

// constants is a table of the constants of a file whose names begin with a prefix.
type constants struct {
	title, intro, file, prefix string
}

var tables = []constants{
	{"Conditions of a StorageClientProfile", "All six are set from the start, with `observedGeneration`.", "api/v1alpha1/conditions.go", "Condition"},
	{"Reasons of these conditions", "Events on a profile have these reasons too: one event for each change. `kubectl describe scp NAME` shows them.", "api/v1alpha1/conditions.go", "Reason"},
	{"Conditions of a StorageClientTrial", "", "api/v1alpha1/trial_types.go", "TrialCondition"},
	{"Reasons of these conditions of a trial", "", "api/v1alpha1/trial_types.go", "TrialReason"},
	{"Conditions of a StorageClientNode", "The agent writes them, with the reasons of the Node condition `Tuned`.", "api/v1alpha1/conditions.go", "ClientNodeCondition"},
	{"Reasons of the Node condition `tuning.storageclient.dev/Tuned`", "", "api/v1alpha1/conditions.go", "NodeReason"},
	{"Reasons of the Node condition `tuning.storageclient.dev/StorageReachable`", "", "api/v1alpha1/conditions.go", "StorageReason"},
	{"Reasons of storage servers", "`status.servers[].reason` of a StorageClientNode.", "api/v1alpha1/conditions.go", "ServerReason"},
	{"Phases of a node in the rollout", "`status.rollout.phase` of a StorageClientNode.", "api/v1alpha1/node_types.go", "Rollout"},
	{"Reasons of these phases", "`status.rollout.reason` of a StorageClientNode.", "api/v1alpha1/reasons.go", "RolloutReason"},
	{"States of a setting", "`status.settings[].state` of a StorageClientNode.", "api/v1alpha1/node_types.go", "Setting"},
	{"Events on Nodes", "", "controllers/rollout/events.go", "event"},
	{"Events on Nodes about drift", "", "controllers/drift/drift.go", "event"},
	{"Events on Nodes about storage servers", "", "controllers/health/health.go", "event"},
	{"Events on PersistentVolumes", "Reasons without a problem or change do not create events.", "api/v1alpha1/reasons.go", "VolumeReason"},
}

// exporters are the folders whose metrics are listed, by their server.
var exporters = []struct{ title, intro, dir string }{
	{"Metrics of the manager", "Served at `--metrics-bind-address` over TLS, to clients that the API server allows to read `/metrics`. The endpoint also has the metrics of controller-runtime and of Go.", "controllers/metrics"},
	{"", "", "controllers/webhook"},
	{"", "", "cmd/manager"},
	{"Metrics of the node agent", "Off by default. The agent's `--metrics-bind-address`, in the DaemonSet of `config/agent`, is a loopback address, for a scraper on the same node; [install](install.md#by-kustomize) shows the patch. With `--metrics-secure` it may be the node's address: the agent then serves metrics over TLS to clients that the API server allows to read `/metrics`, see `config/components/agent-metrics`.", "agent/metrics"},
	{"", "", "agent"},
	{"", "", "agent/servers"},
}

func main() {
	if err := errors.Join(run(), writeKnowledge(), writeDrivers()); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run() error {
	var b bytes.Buffer
	b.WriteString("# Reference\n\nWritten by `make generate` from the source; do not edit.\n")
	for _, e := range exporters {
		metrics, err := readMetrics(e.dir)
		if err != nil {
			return err
		}
		if e.title != "" {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", e.title, e.intro)
		}
		for _, m := range metrics {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), cell(m.help))
		}
	}
	known, err := values("api/v1alpha1")
	if err != nil {
		return err
	}
	for _, table := range tables {
		rows, err := table.read(known)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n## %s\n\n", table.title)
		if table.intro != "" {
			fmt.Fprintf(&b, "%s\n\n", table.intro)
		}
		fmt.Fprintf(&b, "| name | meaning |\n|---|---|\n%s", strings.Join(rows, ""))
	}
	return os.WriteFile(output, b.Bytes(), 0o644)
}

func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// read returns one row for each constant, in the order of the source.
func (t constants) read(known map[string]string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), t.file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var rows []string
	for _, spec := range consts(file) {
		name := spec.Names[0].Name
		if !strings.HasPrefix(name, t.prefix) {
			continue
		}
		value := valueOf(spec.Values[0], known)
		if value == "" {
			return nil, fmt.Errorf("%s: constant %s is no string", t.file, name)
		}
		doc := meaning(name, spec.Doc.Text())
		if doc == "" {
			return nil, fmt.Errorf("%s: constant %s has no docstring that begins with its name", t.file, name)
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", value, cell(doc)))
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: no constant begins with %s", t.file, t.prefix)
	}
	return rows, nil
}

// meaning is a docstring without the constant's name and "is set when": a sentence, and what to do.
func meaning(name, doc string) string {
	rest, found := strings.CutPrefix(doc, name+" ")
	if !found || rest == "" {
		return ""
	}
	for _, form := range []string{"means that ", "is set when ", "is set while ", "is set ", "is "} {
		if plain, is := strings.CutPrefix(rest, form); is {
			rest = plain
			break
		}
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

func consts(file *ast.File) []*ast.ValueSpec {
	var specs []*ast.ValueSpec
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.CONST {
			continue
		}
		for _, spec := range general.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok && len(value.Values) == 1 {
				specs = append(specs, value)
			}
		}
	}
	return specs
}

// valueOf returns the value of a literal, of a concatenation, or of a constant of the API.
func valueOf(expression ast.Expr, known map[string]string) string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		return valueOf(e.X, known) + valueOf(e.Y, known)
	case *ast.Ident:
		return known[e.Name]
	case *ast.SelectorExpr:
		return known[e.Sel.Name]
	}
	return ""
}

// values are the constants of a package by name.
func values(dir string) (map[string]string, error) {
	known := map[string]string{}
	err := eachFile(dir, func(file *ast.File) error {
		for _, spec := range consts(file) {
			known[spec.Names[0].Name] = valueOf(spec.Values[0], nil)
		}
		return nil
	})
	return known, err
}

func eachFile(dir string, visit func(*ast.File) error) error {
	entries, err := fs.Glob(os.DirFS(dir), "*.go")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, entry), nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if err := visit(file); err != nil {
			return err
		}
	}
	return nil
}

type metric struct {
	name, kind, help string
	labels           []string
}

// readMetrics finds metrics.yaml, calls of prometheus.NewDesc, and of prometheus.NewGauge and its like, sorted by name.
func readMetrics(dir string) ([]metric, error) {
	found, err := readDocument(dir)
	if err != nil {
		return nil, err
	}
	err = eachFile(dir, func(file *ast.File) error {
		var problem error
		ast.Inspect(file, func(node ast.Node) bool {
			if declaration, ok := node.(*ast.FuncDecl); ok && (declaration.Name.Name == "init" || declaration.Name.Name == "ReadDescribed") {
				return false // it reads metrics.yaml
			}
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !isPrometheus(function.X) {
				return true
			}
			m, declares := parse(function.Sel.Name, resolveNames(file, call.Args))
			if declares && (m.name == "" || m.help == "") && problem == nil {
				problem = fmt.Errorf("%s: a metric without name or help", dir)
			}
			if declares {
				found = append(found, m)
			}
			return true
		})
		return problem
	})
	slices.SortFunc(found, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: no metric is declared here", dir)
	}
	return found, err
}

// resolveNames puts the values of a file's own variables in the place of their names.
func resolveNames(file *ast.File, args []ast.Expr) []ast.Expr {
	resolved := slices.Clone(args)
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 {
			return true
		}
		for i, arg := range args {
			if name, ok := arg.(*ast.Ident); ok && name.Name == spec.Names[0].Name {
				resolved[i] = spec.Values[0]
			}
		}
		return true
	})
	return resolved
}

func isPrometheus(expression ast.Expr) bool {
	name, ok := expression.(*ast.Ident)
	return ok && name.Name == "prometheus"
}

// readDocument reads the metrics that a folder declares in metrics.yaml, if it has that file.
func readDocument(dir string) (found []metric, err error) {
	document, err := os.ReadFile(filepath.Join(dir, "metrics.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var declared map[string]struct{ Labels, Help string }
	if err := errors.Join(err, yaml.UnmarshalStrict(document, &declared)); err != nil {
		return nil, fmt.Errorf("read the metrics of %s: %w", dir, err)
	}
	for name, g := range declared {
		labels := strings.Fields(g.Labels)
		slices.Sort(labels)
		found = append(found, metric{name: name, kind: kindOf(name), labels: labels, help: g.Help})
	}
	return found, nil
}

func kindOf(name string) string {
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

func parse(function string, args []ast.Expr) (metric, bool) {
	if function == "NewDesc" && len(args) == 4 {
		name := valueOf(args[0], nil)
		return metric{name: name, kind: kindOf(name), help: valueOf(args[1], nil), labels: words(args[2])}, true
	}
	kind, vector := strings.CutSuffix(strings.TrimPrefix(function, "New"), "Vec")
	kind = strings.ToLower(kind)
	if len(args) == 0 || !slices.Contains([]string{"counter", "gauge", "histogram"}, kind) {
		return metric{}, false
	}
	m := metric{kind: kind}
	if options, ok := args[0].(*ast.CompositeLit); ok {
		m.fill(options)
	}
	if vector && len(args) > 1 {
		m.labels = words(args[1])
	}
	return m, true
}

func (m *metric) fill(options *ast.CompositeLit) {
	for _, element := range options.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key, _ := pair.Key.(*ast.Ident); key.Name {
		case "Name":
			m.name = valueOf(pair.Value, nil)
		case "Help":
			m.help = valueOf(pair.Value, nil)
		case "ConstLabels":
			m.labels = words(pair.Value)
		}
	}
}

// words are the strings of a list, or the keys of a map.
func words(expression ast.Expr) []string {
	list, ok := expression.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var found []string
	for _, element := range list.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			element = pair.Key
		}
		found = append(found, valueOf(element, nil))
	}
	slices.Sort(found)
	return found
}
