package judge

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/storageclient/operator/tuning/text"
)

// listText formats mount options as JSON, as in manifests.
func listText(options []string) string {
	if len(options) == 0 {
		return "none"
	}
	list, err := jsonText(options)
	if err != nil { // a list of strings always marshals
		return strings.Join(options, ",")
	}
	return list
}

// quote quotes a text from outside the operator. The text cannot end the quotation.
func quote(message string) string {
	return `"` + strings.ReplaceAll(text.Line(message), `"`, "'") + `"`
}

func jsonText(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode %+v: %w", value, err)
	}
	return string(data), nil
}
