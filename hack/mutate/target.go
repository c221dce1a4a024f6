package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// place is a part of the source that a mutation changes.
type place struct {
	// file is the path in the module, and data is its content.
	file, packageName string
	data              []byte
	// number selects the mutation.
	number int
	// spans are the expressions or the statement that are mutated.
	spans   []span
	isStmt  bool
	becomes becomes
}

// span is a part of a file, in bytes.
type span struct{ from, to int }

// resolve finds the one place of a mutation in the tree.
func resolve(root string, m mutation) (place, error) {
	mention, err := parseMention(m.Mentions)
	if err != nil {
		return place{}, err
	}
	found, err := findFunc(filepath.Join(root, m.Package), m.Func)
	if err != nil {
		return place{}, fmt.Errorf("package %s: %w", m.Package, err)
	}
	targets, err := findTargets(found.decl, mention, m.Becomes)
	if len(targets) != 1 {
		for _, t := range targets {
			err = errors.Join(err, fmt.Errorf("%s:%d", found.name, found.line(t.nodes[0])))
		}
		return place{}, errors.Join(fmt.Errorf("func %s: mention %q has %d targets, want 1; name an expression that leads to one place", m.Func, m.Mentions, len(targets)), err)
	}
	p := place{file: filepath.Join(m.Package, found.name), packageName: found.packageName, data: found.data, becomes: m.Becomes}
	for _, node := range targets[0].nodes {
		p.spans = append(p.spans, span{found.offset(node.Pos()), found.offset(node.End())})
		_, p.isStmt = node.(ast.Stmt)
	}
	return p, nil
}

// parseMention returns the printed form of a mention. Literals of functions and composites are rejected: their printed form is shortened.
func parseMention(text string) (string, error) {
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return "", fmt.Errorf("mentions %q is no Go expression: %w", text, err)
	}
	ast.Inspect(expr, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncLit, *ast.CompositeLit:
			err = fmt.Errorf("mentions %q contains a literal of a function or a composite; name a shorter expression", text)
		}
		return err == nil
	})
	return printed(expr), err
}

// printed returns an expression in one line, whatever its layout in the source.
func printed(e ast.Expr) string { return types.ExprString(ast.Unparen(e)) }

// source is the file that holds a function.
type source struct {
	name, packageName string
	data              []byte
	fset              *token.FileSet
	decl              *ast.FuncDecl
}

func (s source) offset(p token.Pos) int { return s.fset.PositionFor(p, false).Offset }

func (s source) line(n ast.Node) int { return s.fset.PositionFor(n.Pos(), false).Line }

// findFunc finds a function, or a method as Type.Name, in the files of a package that are compiled here, tests excepted.
func findFunc(dir, name string) (source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return source{}, err
	}
	var found []source
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		if compiled, err := build.Default.MatchFile(dir, entry.Name()); err != nil || !compiled {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return source{}, err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, entry.Name(), data, parser.SkipObjectResolution)
		if err != nil {
			return source{}, err
		}
		for _, d := range file.Decls {
			if decl, isFunc := d.(*ast.FuncDecl); isFunc && decl.Body != nil && nameOf(decl) == name {
				found = append(found, source{name: entry.Name(), packageName: file.Name.Name, data: data, fset: fset, decl: decl})
			}
		}
	}
	if len(found) != 1 {
		return source{}, fmt.Errorf("func %s is declared %d times, want once; write Type.Name for a method", name, len(found))
	}
	return found[0], nil
}

// nameOf returns the name of a function, and Type.Name for a method.
func nameOf(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	receiver := decl.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.IndexListExpr:
			receiver = t.X
		case *ast.Ident:
			return t.Name + "." + decl.Name.Name
		default:
			return decl.Name.Name
		}
	}
}

// target is the code that a mutation replaces: an expression, a statement, or all expressions of a case clause.
type target struct{ nodes []ast.Node }

// findTargets returns the targets of all mentions in a function, each once. The error explains mentions without a target.
func findTargets(decl *ast.FuncDecl, mention string, becomes becomes) ([]target, error) {
	var targets []target
	var errs []error
	var path []ast.Node
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		if n == nil {
			path = path[:len(path)-1]
			return true
		}
		path = append(path, n)
		// Parentheses around an expression do not count as another mention.
		if expr, isExpr := n.(ast.Expr); !isExpr || expr != ast.Unparen(expr) || printed(expr) != mention {
			return true
		}
		find := booleanAbove
		if becomes == becomesRemoved {
			find = statementAbove
		}
		found, err := find(path)
		if err != nil {
			errs = append(errs, err)
		} else if !slices.ContainsFunc(targets, func(t target) bool { return t.nodes[0] == found.nodes[0] }) {
			targets = append(targets, found)
		}
		return true
	})
	return targets, errors.Join(errs...)
}

// booleanAbove returns the smallest expression at or above the end of a path that is in the position of a boolean. These are a comparison,
// a condition, a case of a switch without a tag, and an operand of a logical operator. Otherwise, it returns the result of a return, or the
// right side of an assignment. Mentions in the init of an "if" belong to its condition.
func booleanAbove(path []ast.Node) (target, error) {
	for at := len(path) - 1; at > 0; at-- {
		node := path[at]
		if binary, isBinary := node.(*ast.BinaryExpr); isBinary && isComparison(binary.Op) {
			return target{[]ast.Node{node}}, nil
		}
		switch parent := path[at-1].(type) {
		case *ast.IfStmt:
			if node == parent.Cond || node == parent.Init {
				return target{[]ast.Node{parent.Cond}}, nil
			}
		case *ast.ForStmt:
			if node == parent.Cond {
				return target{[]ast.Node{node}}, nil
			}
		case *ast.BinaryExpr:
			if parent.Op == token.LAND || parent.Op == token.LOR {
				return target{[]ast.Node{node}}, nil
			}
		case *ast.UnaryExpr:
			if parent.Op == token.NOT {
				return target{[]ast.Node{node}}, nil
			}
		case *ast.ReturnStmt:
			return target{[]ast.Node{node}}, nil
		case *ast.AssignStmt:
			if isInit(path[:at]) {
				continue
			}
			if expr, isExpr := node.(ast.Expr); isExpr && slices.Contains(parent.Rhs, expr) {
				return target{[]ast.Node{node}}, nil
			}
		case *ast.CaseClause:
			if expr, isExpr := node.(ast.Expr); isExpr && slices.Contains(parent.List, expr) && isTagless(path[:at]) {
				return target{[]ast.Node{node}}, nil
			}
		}
		if _, isStatement := node.(ast.Stmt); isStatement && !isInit(path[:at+1]) {
			break
		}
	}
	return target{}, errors.New("no boolean holds it; use becomes: removed, or name another expression")
}

// statementAbove returns the smallest statement at or above the end of a path that can be left out: one of a list of statements, or the
// expressions of a case in a switch without a tag.
func statementAbove(path []ast.Node) (target, error) {
	for at := len(path) - 1; at > 0; at-- {
		node := path[at]
		if clause, isClause := path[at-1].(*ast.CaseClause); isClause {
			if expr, isExpr := node.(ast.Expr); isExpr && slices.Contains(clause.List, expr) {
				if !isTagless(path[:at]) {
					return target{}, errors.New("a case of a switch with a tag cannot be removed; name an expression of its body")
				}
				out := target{}
				for _, e := range clause.List {
					out.nodes = append(out.nodes, e)
				}
				return out, nil
			}
		}
		statement, isStatement := node.(ast.Stmt)
		if !isStatement || !isListed(statement, path[at-1]) {
			continue
		}
		assign, isAssign := statement.(*ast.AssignStmt)
		if _, isDecl := statement.(*ast.DeclStmt); isDecl || isAssign && assign.Tok == token.DEFINE {
			return target{}, errors.New("a declaration cannot be removed; name an expression of a statement that uses it")
		}
		return target{[]ast.Node{statement}}, nil
	}
	return target{}, errors.New("no statement holds it; name another expression")
}

// isListed reports whether a statement is one of a list of statements of its parent.
func isListed(statement ast.Stmt, parent ast.Node) bool {
	switch statement.(type) {
	case *ast.CaseClause, *ast.CommClause:
		return false
	}
	switch p := parent.(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return slices.Contains(p.Body, statement)
	case *ast.CommClause:
		return slices.Contains(p.Body, statement)
	}
	return false
}

// isInit reports whether a path ends at the init statement of an "if".
func isInit(path []ast.Node) bool {
	if len(path) < 2 {
		return false
	}
	parent, isIf := path[len(path)-2].(*ast.IfStmt)
	return isIf && path[len(path)-1] == ast.Node(parent.Init)
}

// isTagless reports whether a path ends at a case clause of a switch without a tag.
func isTagless(path []ast.Node) bool {
	if len(path) < 3 {
		return false
	}
	parent, isSwitch := path[len(path)-3].(*ast.SwitchStmt)
	return isSwitch && parent.Tag == nil
}

func isComparison(op token.Token) bool {
	switch op {
	case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
		return true
	}
	return false
}

// edit is a text before a span, and one after it.
type edit struct {
	span

	before, after string
}

// edits returns the changes that make a mutation selectable. The original code remains in the file, so that the file still compiles.
func (p place) edits() []edit {
	before, after := fmt.Sprintf(`(!mutantIs("%d") && (`, p.number), "))"
	switch {
	case p.isStmt:
		before, after = fmt.Sprintf(`if !mutantIs("%d") { `, p.number), " }"
	case p.becomes == becomesTrue:
		before = fmt.Sprintf(`(mutantIs("%d") || (`, p.number)
	}
	var out []edit
	for _, s := range p.spans {
		out = append(out, edit{s, before, after})
	}
	return out
}

// mutate returns a file with all mutations of some places. Spans are nodes of one syntax tree: of two, one contains the other, or they
// have nothing in common.
func mutate(data []byte, places []place) []byte {
	var edits []edit
	for _, p := range places {
		edits = append(edits, p.edits()...)
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	var out []byte
	var open []edit
	at := 0
	closeUpTo := func(offset int) {
		for len(open) > 0 && open[len(open)-1].to <= offset {
			last := open[len(open)-1]
			out, at, open = append(append(out, data[at:last.to]...), last.after...), last.to, open[:len(open)-1]
		}
	}
	for _, e := range edits {
		closeUpTo(e.from)
		out, at, open = append(append(out, data[at:e.from]...), e.before...), e.from, append(open, e)
	}
	closeUpTo(len(data))
	return append(out, data[at:]...)
}
