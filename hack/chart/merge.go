package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// expression is a template expression that replaces a value.
type expression string

// branch is the value of a place under a condition. The value absent leaves the place empty.
type branch struct {
	condition string
	value     any
}

// choice selects the first branch whose condition is true, or otherwise if all are false.
type choice struct {
	branches  []branch
	otherwise any
}

type nothing struct{}

var absent = nothing{}

// mergeObjects merges the variants of each object into one object that contains the conditions. If a whole object depends on a
// condition, the key "" contains the choice.
func mergeObjects(plain objects, variants []objects) objects {
	merged := objects{}
	keys := map[string]bool{}
	for _, variant := range append([]objects{plain}, variants...) {
		for key := range variant {
			keys[key] = true
		}
	}
	for key := range keys {
		values := make([]any, len(variants))
		for i := range variants {
			values[i] = orAbsent(variants[i], key)
		}
		switch whole := merge(orAbsent(plain, key), values).(type) {
		case map[string]any:
			merged[key] = whole
		case choice:
			merged[key] = map[string]any{"": whole}
		}
	}
	return merged
}

func orAbsent[T any](from map[string]T, key string) any {
	if value, found := from[key]; found {
		return value
	}
	return absent
}

// merge merges the plain tree and the trees of the features into one. Choices are as deep in the tree as possible.
func merge(plain any, variants []any) any {
	if !slices.ContainsFunc(variants, func(v any) bool { return !reflect.DeepEqual(v, plain) }) {
		return plain
	}
	if base, variants, ok := all[map[string]any](plain, variants); ok {
		return mergeMaps(base, variants)
	}
	if base, variants, ok := all[[]any](plain, variants); ok {
		if list, ok := mergeLists(base, variants); ok {
			return list
		}
	}
	return choose(plain, variants)
}

func all[T any](plain any, variants []any) (T, []T, bool) {
	base, ok := plain.(T)
	typed := make([]T, len(variants))
	for i := range variants {
		one, is := variants[i].(T)
		typed[i], ok = one, ok && is
	}
	return base, typed, ok
}

func mergeMaps(base map[string]any, variants []map[string]any) map[string]any {
	merged := map[string]any{}
	for _, tree := range append([]map[string]any{base}, variants...) {
		for key := range tree {
			merged[key] = nil
		}
	}
	for key := range merged {
		values := make([]any, len(variants))
		for i := range variants {
			values[i] = orAbsent(variants[i], key)
		}
		merged[key] = merge(orAbsent(base, key), values)
	}
	return merged
}

// mergeLists merges item by item, and what features append comes after. It gives up where a feature drops items.
func mergeLists(base []any, variants [][]any) ([]any, bool) {
	longest := len(base)
	for _, variant := range variants {
		if len(variant) < len(base) {
			return nil, false
		}
		longest = max(longest, len(variant))
	}
	merged := make([]any, longest)
	for i := range merged {
		item := func(list []any) any {
			if i < len(list) {
				return list[i]
			}
			return absent
		}
		values := make([]any, len(variants))
		for v := range variants {
			values[v] = item(variants[v])
		}
		merged[i] = merge(item(base), values)
	}
	return merged, true
}

// choose makes a choice, with equal branches together.
func choose(plain any, variants []any) choice {
	c := choice{otherwise: plain}
	for i, value := range variants {
		if reflect.DeepEqual(value, plain) {
			continue
		}
		same := slices.IndexFunc(c.branches, func(b branch) bool { return reflect.DeepEqual(b.value, value) })
		if same < 0 {
			c.branches = append(c.branches, branch{condition: features[i].condition, value: value})
			continue
		}
		c.branches[same].condition = fmt.Sprintf("or (%s) (%s)", c.branches[same].condition, features[i].condition)
	}
	if len(c.branches) == 1 && c.branches[0].value == absent {
		c = choice{branches: []branch{{condition: "not (" + c.branches[0].condition + ")", value: plain}}, otherwise: absent}
	}
	for i := range c.branches {
		c.branches[i].condition = "if " + c.branches[i].condition
	}
	return c
}

// template writes an object down.
func template(object map[string]any) []byte {
	var b strings.Builder
	b.WriteString("{{- /* Made by \"make chart\" from config; do not edit. */ -}}\n")
	if whole, conditional := object[""].(choice); conditional {
		writeChoice(&b, whole, func(value any) { writeMap(&b, value.(map[string]any), 0, false) })
	} else {
		writeMap(&b, object, 0, false)
	}
	return []byte(b.String())
}

func writeChoice(b *strings.Builder, c choice, write func(any)) {
	for i, branch := range c.branches {
		condition := branch.condition
		if i > 0 {
			condition = "else " + condition
		}
		fmt.Fprintf(b, "{{- %s }}\n", condition)
		write(branch.value)
	}
	if c.otherwise != absent && c.otherwise != nil {
		b.WriteString("{{- else }}\n")
		write(c.otherwise)
	}
	b.WriteString("{{- end }}\n")
}

// writeMap writes the fields of a map. If inItem is true, the first field continues the current line, which is a list item.
func writeMap(b *strings.Builder, tree map[string]any, indent int, inItem bool) {
	for i, key := range slices.Sorted(maps.Keys(tree)) {
		write := func(value any) {
			if value == absent {
				return
			}
			if !inItem || i > 0 {
				b.WriteString(strings.Repeat(" ", indent))
			}
			b.WriteString(scalar(key, 0) + ":")
			writeValue(b, value, indent)
		}
		if c, isChoice := tree[key].(choice); isChoice {
			writeChoice(b, c, write)
			continue
		}
		write(tree[key])
	}
}

// writeValue writes what stands behind a key.
func writeValue(b *strings.Builder, value any, indent int) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			b.WriteString(" {}\n")
			return
		}
		b.WriteString("\n")
		writeMap(b, v, indent+2, false)
	case []any:
		if len(v) == 0 {
			b.WriteString(" []\n")
			return
		}
		b.WriteString("\n")
		writeList(b, v, indent)
	default:
		b.WriteString(" " + scalar(v, indent+2) + "\n")
	}
}

func writeList(b *strings.Builder, list []any, indent int) {
	for _, item := range list {
		write := func(value any) {
			if value == absent {
				return
			}
			b.WriteString(strings.Repeat(" ", indent) + "-")
			switch v := value.(type) {
			case map[string]any:
				_, conditional := v[slices.Sorted(maps.Keys(v))[0]].(choice)
				b.WriteString(map[bool]string{true: "\n", false: " "}[conditional])
				writeMap(b, v, indent+2, !conditional)
			default:
				writeValue(b, v, indent+2)
			}
		}
		if c, isChoice := item.(choice); isChoice {
			writeChoice(b, c, write)
			continue
		}
		write(item)
	}
}

// scalar formats a string, number, boolean or expression. It escapes template syntax in strings.
func scalar(value any, indent int) string {
	if e, isExpression := value.(expression); isExpression {
		return "{{ " + string(e) + " }}"
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		panic(err) // of a string or number that came out of YAML
	}
	first, rest, _ := strings.Cut(strings.TrimRight(string(text), "\n"), "\n")
	if rest != "" {
		first += "\n" + indented(dedented(rest), indent)
	}
	return strings.ReplaceAll(first, "{{", "{{ `{{` }}")
}

// dedented takes the two blanks off that yaml begins a block's lines with.
func dedented(block string) string {
	lines := strings.Split(block, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func indented(block string, indent int) string {
	lines := strings.Split(block, "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = strings.Repeat(" ", indent) + line
		}
	}
	return strings.Join(lines, "\n")
}
