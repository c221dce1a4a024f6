package judge

import (
	"encoding/json"
	"fmt"
	"strings"
)

// listText writes mount options as people and manifests do, in JSON.
func listText(options []string) string {
	if len(options) == 0 {
		return "none"
	}
	text, err := jsonText(options)
	if err != nil { // a list of strings always marshals
		return strings.Join(options, ",")
	}
	return text
}

func jsonText(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode %+v: %w", value, err)
	}
	return string(data), nil
}
