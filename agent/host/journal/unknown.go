package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
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
	known, unknown, _ := split(tree, reflect.TypeFor[document](), "")
	if fields, _ := known.(map[string]any); fields["version"] != json.Number(strconv.Itoa(version)) {
		unknown = append(unknown, "version")
	}
	j.unknown, j.tree = unknown, nil
	if len(unknown) > 0 {
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

// split returns the part of a JSON value that its type can contain, and the paths of all other fields, sorted. ok is false if the value has another
// form, or if a part of it that restoring needs has another form.
func split(value any, t reflect.Type, path string) (known any, unknown []string, ok bool) {
	t, known, ok = pointedType(t), value, true
	isRecord := t.PkgPath() == reflect.TypeFor[document]().PkgPath()
	switch value := value.(type) {
	case map[string]any:
		parts := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			name, field, isKnown := fieldOf(t, key)
			at := joinPath(path, key)
			if t.Kind() == reflect.Map {
				name, field, isKnown, at = key, t.Elem(), true, path+"["+key+"]"
			}
			if isKnown {
				part, rest, isUnderstood := split(value[key], field, at)
				if isUnderstood {
					parts[name], unknown = part, append(unknown, rest...)
					continue
				}
				ok = ok && (t.Kind() == reflect.Map || isRecord && name != "original" && name != "before" && name != "settings")
			}
			unknown = append(unknown, at)
		}
		known, ok = parts, ok && (t.Kind() == reflect.Struct || len(parts) > 0 || len(value) == 0)
	case []any:
		for i := 0; i < len(value) && t.Kind() == reflect.Slice; i++ {
			_, rest, isUnderstood := split(value[i], t.Elem(), fmt.Sprintf("%s[%d]", path, i))
			unknown, ok = append(unknown, rest...), ok && isUnderstood
		}
	}
	data, err := json.Marshal(known)
	return known, unknown, ok && err == nil && json.Unmarshal(data, reflect.New(t).Interface()) == nil
}

func joinPath(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// mergeUnknown adds the fields that the type does not have, or that have another form, from the earlier form of a JSON value. An entry that was removed
// or replaced loses them.
func mergeUnknown(value, earlier any, t reflect.Type) {
	t = pointedType(t)
	switch value := value.(type) {
	case map[string]any:
		earlier, _ := earlier.(map[string]any)
		same := t.Kind() == reflect.Map || t.Kind() == reflect.Struct && isSame(value, earlier, t)
		for key, previous := range earlier {
			name, field, isKnown := fieldOf(t, key)
			if t.Kind() == reflect.Map {
				name, field, isKnown = key, t.Elem(), true
			}
			if isKnown {
				_, _, isKnown = split(previous, field, "")
			}
			switch rest := map[string]any{}; {
			case isKnown && value[name] != nil:
				mergeUnknown(value[name], previous, field)
			case isKnown && t.Kind() == reflect.Struct:
				if mergeUnknown(rest, previous, field); len(rest) > 0 {
					value[name] = rest
				}
			case !isKnown && same:
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
