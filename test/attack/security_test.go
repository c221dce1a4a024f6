//go:build attack

package attack

import (
	"os"
	"testing"
)

const (
	securityFile = "../../SECURITY.md"
	beginMark    = "<!-- attacks -->"
	endMark      = "<!-- /attacks -->"
)

func readSecurity(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(securityFile)
	must(t, err)
	return string(content)
}
