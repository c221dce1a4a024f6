// Package terminal keeps control characters from the cluster and from hosts out of terminals.
package terminal

import (
	"encoding/json"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/tuning/text"
)

// Writer implements io.Writer. It shows invisible characters as escapes, except for line ends. Colors must be added after it.
type Writer struct {
	Out io.Writer
	// Tabs keeps tabs. Indent precedes each line after the first line of a text, so that a text cannot pretend to be another one.
	Tabs   bool
	Indent string
}

// Write implements io.Writer.
func (w *Writer) Write(data []byte) (int, error) {
	keep := "\n"
	if w.Tabs {
		keep += "\t"
	}
	lines := strings.TrimRight(string(data), "\n")
	end := string(data)[len(lines):]
	_, err := io.WriteString(w.Out, strings.ReplaceAll(text.Escape(lines, keep), "\n", "\n"+w.Indent)+end)
	return len(data), err
}

// YAML encodes a value. If the value contains invisible characters, the result is JSON, which is YAML with escapes for all of them.
func YAML(value any) ([]byte, error) {
	data, err := yaml.Marshal(value)
	if err == nil && text.Escape(string(data), "\n") == string(data) {
		return data, nil
	}
	if data, err = json.MarshalIndent(value, "", "  "); err != nil {
		return nil, err
	}
	return []byte(text.Escape(string(data), "\n") + "\n"), nil
}
