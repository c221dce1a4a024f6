package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/storageclient/operator/agent/host/hosttest"
	"github.com/storageclient/operator/test/check"
)

// All new files in /boot and /etc are found, except for the temporary file of a killed sed that grubby started.
func TestCompareFiles(t *testing.T) {
	for name, isFound := range map[string]bool{hosttest.SedLeftover: false, "8D2E0C~1.STO": false, "sed.conf": true} {
		m := &Machine{root: t.TempDir()}
		for _, dir := range []string{pristineHost + "/boot", pristineHost + "/etc", "/boot/loader/entries", "/etc"} {
			check.NoError(t, os.MkdirAll(filepath.Join(m.root, dir), 0o755))
		}
		check.NoError(t, os.WriteFile(filepath.Join(m.root, "boot/loader/entries", name), nil, 0o644))
		if err := m.CompareFiles(); (err != nil) != isFound {
			t.Errorf("next to %s: %v", name, err)
		}
	}
}
