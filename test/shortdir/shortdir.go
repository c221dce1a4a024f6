// Package shortdir gives tests a directory for Unix sockets.
package shortdir

import (
	"os"
	"testing"

	"github.com/storageclient/operator/test/check"
)

// New makes a directory with a short path and removes it at the end of the test. The path of a Unix socket has at most 107 bytes
// (unix(7)). t.TempDir exceeds that if TMPDIR or the name of the test is long.
func New(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sco")
	check.NoError(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
