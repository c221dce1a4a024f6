package write

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
)

// droppedFor is the time after which a dropped field is written again: users may have applied newer definitions.
const droppedFor = time.Hour

// Dropped stores the fields of one kind of status that the API server drops, because its CustomResourceDefinitions are older than the manager.
// Otherwise, each pass would write a status with such a field. The zero value is empty. It is safe for concurrent use.
type Dropped struct {
	// fields are the times of the last drop, by path.
	fields sync.Map
}

// Learn compares a written status with the stored one. It returns the paths of the dropped fields that were not known, sorted. A field that is stored
// is no longer dropped.
func (d *Dropped) Learn(written, stored any, now time.Time) (names []string) {
	found := compare(written, stored)
	for path := range found.stored {
		d.fields.Delete(path)
	}
	for _, path := range slices.Sorted(maps.Keys(found.lacking)) {
		if found.stored[path] {
			continue
		}
		if !d.isKnown(path, now) {
			names = append(names, path)
		}
		d.fields.Store(path, now)
	}
	return names
}

// Covers reports whether a stored status differs from a desired one only in fields that the API server drops.
func (d *Dropped) Covers(stored, desired any, now time.Time) bool {
	found := compare(desired, stored)
	for path := range found.lacking {
		if found.stored[path] || !d.isKnown(path, now) {
			return false
		}
	}
	return !found.isOther
}

func (d *Dropped) isKnown(path string, now time.Time) bool {
	at, known := d.fields.Load(path)
	learnedAt, isTime := at.(time.Time)
	return known && isTime && now.Sub(learnedAt).Abs() < droppedFor
}

// comparison is the difference between a desired status and a stored one, by the paths of fields, such as plan.hash. All items of a list have one path.
type comparison struct {
	// lacking are the fields that only the desired status has. stored are the fields of the stored one.
	lacking, stored map[string]bool
	// isOther is true if a stored field has another value.
	isOther bool
}

func compare(desired, stored any) *comparison {
	found := &comparison{lacking: map[string]bool{}, stored: map[string]bool{}}
	found.add("", asFields(desired), asFields(stored))
	return found
}

// add compares objects field by field, and lists of one length item by item.
func (c *comparison) add(path string, desired, stored any) {
	if !isEmpty(stored) {
		c.stored[path] = true
	}
	wantedFields, isObject := desired.(map[string]any)
	storedFields, areObjects := stored.(map[string]any)
	wantedItems, isList := desired.([]any)
	storedItems, areLists := stored.([]any)
	switch {
	case isObject && areObjects:
		all := maps.Clone(storedFields)
		maps.Copy(all, wantedFields)
		for name := range all {
			at := name
			if path != "" {
				at = path + "." + name
			}
			c.add(at, wantedFields[name], storedFields[name])
		}
	case isList && areLists && len(wantedItems) == len(storedItems):
		for i := range wantedItems {
			c.add(path+"[]", wantedItems[i], storedItems[i])
		}
	case isEmpty(desired) && isEmpty(stored), reflect.DeepEqual(desired, stored):
	case isEmpty(stored):
		c.lacking[path] = true
	default:
		c.isOther = true
	}
}

// isEmpty reports whether a field is missing, or has the value that a missing field is read as.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return value == nil || value == "" || value == false || value == json.Number("0")
}

// asFields returns a status as JSON has it. Bytes that are no UTF-8 are replaced, as in the stored status.
func asFields(status any) (out any) {
	if data, err := json.Marshal(status); err == nil {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		_ = decoder.Decode(&out)
	}
	return out
}
