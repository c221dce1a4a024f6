// Package hostile contains texts that an attacker on a node or in a namespace can write into fields, to deceive the reader of a terminal.
package hostile

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Text clears the screen, sets the title, hides text, reverses its direction, and starts another line and another column.
const Text = "x\x1b[2J\x1b]0;owned\x07\u009b1;1H\x1b[8m\u202egnp\u2066\x7f\b\r\nFORGED\u2028FORGED\tcolumn\U000e0041"

// Fill sets each empty string below a value to a text, and appends it to each other string if suffix is set. It creates missing pointers, list entries,
// and map entries. It does not descend into types that are no plain data.
func Fill(v reflect.Value, text string, suffix bool, depth int) {
	switch v.Interface().(type) {
	case metav1.Time, metav1.MicroTime, resource.Quantity, metav1.FieldsV1, metav1.TypeMeta, []metav1.ManagedFieldsEntry:
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.String() == "" {
			v.SetString(text)
		} else if suffix && !strings.HasSuffix(v.String(), text) {
			v.SetString(v.String() + text)
		}
	case reflect.Pointer:
		if v.IsNil() && depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if !v.IsNil() {
			Fill(v.Elem(), text, suffix, depth-1)
		}
	case reflect.Slice:
		if v.Len() == 0 && depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			Fill(v.Index(i), text, suffix, depth-1)
		}
	case reflect.Map:
		if v.Len() == 0 && depth > 0 && v.Type() == reflect.TypeFor[map[string]string]() {
			v.Set(reflect.ValueOf(map[string]string{"key" + text: text}))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Fill(v.Field(i), text, suffix, depth-1)
			}
		}
	}
}

// Check fails the test if a text contains a character that is not visible, or a line that data started.
func Check(t *testing.T, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && !unicode.IsGraphic(r) || r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd") {
			t.Errorf("got %U in %q", r, text[max(0, i-120):min(len(text), i+40)])
			return
		}
	}
	if strings.Contains(text, "\nFORGED") && !strings.Contains(text, "<!doctype html>") {
		t.Errorf("got a line that starts with data:\n%s", text)
	}
}
