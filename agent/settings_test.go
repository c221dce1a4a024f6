package agent

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/storageclient/operator/api/v1alpha1"
)

// byOthers are the fields of a spec that no setting depends on: mounts are compared with volumes, and orders run once.
var byOthers = map[string]bool{"Volumes": true, "Trial": true, "Sample": true}

func TestEveryChangeOfASpecIsOfSettingsOrOfAnotherPart(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.StorageClientNodeSpec]()) {
		var spec v1alpha1.StorageClientNodeSpec
		before := declarationOf(&spec)
		switch value := reflect.ValueOf(&spec).Elem().FieldByIndex(field.Index); value.Kind() {
		case reflect.Slice:
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		case reflect.Pointer:
			value.Set(reflect.New(value.Type().Elem()))
		case reflect.Bool:
			value.SetBool(true)
		case reflect.String:
			value.SetString("x")
		default:
			t.Fatalf("spec.%s is a %s, which this test cannot change", field.Name, value.Kind())
		}
		if changed := !equality.Semantic.DeepEqual(before, declarationOf(&spec)); changed == byOthers[field.Name] {
			t.Errorf("a change of spec.%s applies the settings again: %t", field.Name, changed)
		}
	}
}
