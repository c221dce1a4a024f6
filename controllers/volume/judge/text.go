package judge

import (
	"strings"

	"github.com/storageclient/operator/tuning/text"
)

// listText formats mount options as JSON, as in manifests.
func listText(options []string) string {
	if len(options) == 0 {
		return "none"
	}
	return text.JSON(options)
}

// quote quotes a text from outside the operator. The text cannot end the quotation.
func quote(message string) string {
	return `"` + strings.ReplaceAll(text.Line(message), `"`, "'") + `"`
}
