package write

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

// droppedFor is the time after which a dropped field is written again: users may have applied newer definitions.
const droppedFor = time.Hour

// Dropped stores the fields of one kind of status that the API server drops, because its CustomResourceDefinitions are older than the manager.
// Otherwise, each pass would write a status with such a field. The zero value is empty. It is safe for concurrent use.
type Dropped struct {
	fields sync.Map
}

// Learn compares a written status with the stored one. It returns the dropped fields that were not known, sorted.
func (d *Dropped) Learn(written, stored any, now time.Time) (names []string) {
	before, after := fieldsOf(written), fieldsOf(stored)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if bytes.Equal(before[name], after[name]) {
			continue
		}
		if !d.isKnown(name, now) {
			names = append(names, name)
		}
		d.fields.Store(name, now)
	}
	return names
}

// Covers reports whether a stored status differs from a desired one only in fields that the API server drops.
func (d *Dropped) Covers(stored, desired any, now time.Time) bool {
	before, after := fieldsOf(stored), fieldsOf(desired)
	for name := range after {
		if _, isStored := before[name]; !isStored {
			before[name] = nil
		}
	}
	for name := range before {
		if !bytes.Equal(before[name], after[name]) && !d.isKnown(name, now) {
			return false
		}
	}
	return true
}

func (d *Dropped) isKnown(name string, now time.Time) bool {
	at, known := d.fields.Load(name)
	learnedAt, isTime := at.(time.Time)
	return known && isTime && now.Sub(learnedAt).Abs() < droppedFor
}

// fieldsOf returns the top-level fields of a status, as JSON.
func fieldsOf(status any) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if data, err := json.Marshal(status); err == nil {
		_ = json.Unmarshal(data, &out)
	}
	return out
}
