package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/storageclient/operator/tuning/text"
)

// ErrNewer means that the journal has fields that this build does not know: a newer agent wrote it. The agent can restore the values that it knows,
// and must not change anything else.
var ErrNewer = errors.New("a newer agent wrote the journal")

// MayChange returns nil if settings may be changed. Otherwise its error explains why this agent can only restore.
func (j *Journal) MayChange() error {
	if j.err != nil || len(j.unknown) == 0 {
		return j.err
	}
	return fmt.Errorf("%w: %s has %s (%s), so only restoring is possible; upgrade this agent", ErrNewer, File,
		text.Count(len(j.unknown), "unknown field"), text.List(j.unknown))
}

func (j *Journal) recordUnknown(data []byte) error {
	tree, err := parseTree(data)
	if err != nil {
		return err
	}
	j.unknown, j.tree = listUnknown(tree, reflect.TypeFor[document](), ""), nil
	if doc, err := parseDocument(data); err != nil || doc.Version > version {
		j.unknown = append(j.unknown, "version")
	}
	if len(j.unknown) > 0 {
		j.tree = tree
	}
	return nil
}

// addUnknown returns an encoded document with the fields of the tree that the document does not have.
func addUnknown(data []byte, tree any) ([]byte, error) {
	value, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	mergeUnknown(value, tree, reflect.TypeFor[document]())
	return json.MarshalIndent(value, "", "  ")
}

// parseTree parses JSON into maps, slices and plain values. It does not convert numbers.
func parseTree(data []byte) (tree any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&tree)
	return tree, err
}

// listUnknown lists the paths of the fields in a JSON value that its type does not have, sorted.
func listUnknown(value any, t reflect.Type, path string) (list []string) {
	t = pointedType(t)
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			name, field, isKnown := joinPath(path, key), reflect.Type(nil), true
			if t.Kind() == reflect.Map {
				name, field = path+"["+key+"]", t.Elem()
			} else {
				_, field, isKnown = fieldOf(t, key)
			}
			if isKnown {
				_, isKnown = understood(value[key], field)
			}
			if !isKnown {
				list = append(list, name)
			} else {
				list = append(list, listUnknown(value[key], field, name)...)
			}
		}
	case []any:
		for i := range value {
			list = append(list, listUnknown(value[i], t.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return list
}

func joinPath(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// mergeUnknown adds the fields that the type does not have from the earlier form of a JSON value. An entry that was removed or replaced loses them.
func mergeUnknown(value, earlier any, t reflect.Type) {
	t = pointedType(t)
	switch value := value.(type) {
	case map[string]any:
		earlier, _ := earlier.(map[string]any)
		if t.Kind() == reflect.Map {
			for key, previous := range earlier {
				if _, isUnderstood := understood(previous, t.Elem()); !isUnderstood {
					value[key] = previous
				} else if value[key] != nil {
					mergeUnknown(value[key], previous, t.Elem())
				}
			}
			return
		}
		if t.Kind() != reflect.Struct || !isSame(value, earlier, t) {
			return
		}
		for key, previous := range earlier {
			name, field, isKnown := fieldOf(t, key)
			if isKnown {
				_, isKnown = understood(previous, field)
			}
			if rest := residue(previous, field); isKnown && rest != nil && value[name] == nil {
				value[name] = rest
			} else if isKnown {
				mergeUnknown(value[name], previous, field)
			} else {
				delete(value, name)
				value[key] = previous
			}
		}
	case []any:
		earlier, _ := earlier.([]any)
		for _, item := range value {
			if i := slices.IndexFunc(earlier, func(candidate any) bool { return isSame(item, candidate, t.Elem()) }); i >= 0 {
				mergeUnknown(item, earlier[i], t.Elem())
			}
		}
	}
}

// understood returns a JSON value without the fields that its type does not have or that have another form. ok is false if nothing can be used: an
// original value of another form cannot be restored.
func understood(value any, t reflect.Type) (part any, ok bool) {
	if data, err := json.Marshal(value); err == nil && json.Unmarshal(data, reflect.New(t).Interface()) == nil {
		return value, true
	}
	t = pointedType(t)
	object, isObject := value.(map[string]any)
	isOurs := t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[document]().PkgPath()
	if !isObject || !isOurs && t.Kind() != reflect.Map {
		return nil, false
	}
	parts := map[string]any{}
	for key, of := range object {
		name, field, isKnown := key, reflect.Type(nil), true
		if isOurs {
			name, field, isKnown = fieldOf(t, key)
		} else {
			field = t.Elem()
		}
		if !isKnown {
			continue
		}
		known, ok := understood(of, field)
		if ok {
			parts[name] = known
		} else if isOurs && (name == "original" || name == "before" || name == "settings") {
			return nil, false
		}
	}
	return parts, isOurs || len(parts) > 0
}

// residue returns the elements of maps that are not understood. They stay in the journal when the object around them is gone.
func residue(earlier any, t reflect.Type) any {
	if t == nil {
		return nil
	}
	t = pointedType(t)
	object, _ := earlier.(map[string]any)
	kept := map[string]any{}
	for key, of := range object {
		name, field, isKnown := fieldOf(t, key)
		if t.Kind() == reflect.Map {
			if _, isUnderstood := understood(of, t.Elem()); !isUnderstood {
				kept[key] = of
			}
		} else if isKnown {
			if rest := residue(of, field); rest != nil {
				kept[name] = rest
			}
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// identities are the fields that identify an object of the document: a permit, a boot, the settings of an attempt.
var identities = []string{"id", "hash"}

// isSame reports whether two JSON objects of a type are two versions of one object.
func isSame(a, b any, t reflect.Type) bool {
	x, isObject := a.(map[string]any)
	y, isOther := b.(map[string]any)
	return isObject && isOther && !slices.ContainsFunc(identities, func(name string) bool {
		_, _, isKnown := fieldOf(pointedType(t), name)
		return isKnown && x[name] != y[name]
	})
}

func pointedType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// fieldOf returns the name and type of the field that a key of a JSON object is decoded into. As in encoding/json, case does not matter.
func fieldOf(t reflect.Type, key string) (name string, field reflect.Type, isKnown bool) {
	if t.Kind() != reflect.Struct {
		return "", nil, false
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "-" && strings.EqualFold(name, key) {
			return name, t.Field(i).Type, true
		}
	}
	return "", nil, false
}
