package measure

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// WriteReport writes values as JSON to one file, and their tables to another.
func WriteReport(output, markdown string, figures any, tables string) error {
	data, err := json.MarshalIndent(figures, "", " ")
	if err != nil {
		return err
	}
	for file, content := range map[string]string{output: string(data) + "\n", markdown: tables} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
