package hosttest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// JSONFields lists the fields that a type has in JSON, one "path type" per field, sorted. It describes the type and not a value.
func JSONFields(t reflect.Type) []string {
	var list []string
	addFields(&list, t, "")
	slices.Sort(list)
	return list
}

func addFields(list *[]string, t reflect.Type, path string) {
	switch t.Kind() {
	case reflect.Pointer:
		addFields(list, t.Elem(), path)
	case reflect.Map:
		addFields(list, t.Elem(), path+"[*]")
	case reflect.Slice:
		addFields(list, t.Elem(), path+"[]")
	case reflect.Struct:
		if t.PkgPath() == "time" {
			*list = append(*list, path+" time")
			return
		}
		for i := range t.NumField() {
			field := t.Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name == "-":
			case field.Anonymous && name == "":
				addFields(list, field.Type, path)
			default:
				optional := ""
				if strings.Contains(options, "omitempty") {
					optional = "?"
				}
				addFields(list, field.Type, strings.TrimPrefix(fmt.Sprintf("%s.%s%s", path, name, optional), "."))
			}
		}
	default:
		*list = append(*list, path+" "+t.Kind().String())
	}
}
