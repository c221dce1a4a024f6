// Package embedded parses tables that are embedded in the program.
package embedded

import "sigs.k8s.io/yaml"

// Parse parses an embedded YAML document of a given name. It panics on an error, for example a field that T does not have.
func Parse[T any](name string, document []byte) (table T) {
	if err := yaml.UnmarshalStrict(document, &table); err != nil {
		panic(name + ": " + err.Error())
	}
	return table
}
