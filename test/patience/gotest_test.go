package patience

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

// go test ends a package after ten minutes by default. Next to a program that uses one of two cores, a package with 42 s of CPU time has taken that
// long: the bound must only end a package that hangs.
func TestAPackageMayTakeAnHour(t *testing.T) {
	fake := t.TempDir()
	for _, name := range []string{"go", "gotestsum"} {
		check.NoError(t, os.WriteFile(filepath.Join(fake, name), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755))
	}
	for _, times := range []string{"", fake} {
		cmd := exec.Command("../../hack/gotest.sh", "unit", "./agent", "-timeout", "2h")
		cmd.Env = append(os.Environ(), "SCO_TIMES="+times, "GOTESTSUM=", "PATH="+fake+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if want := "-vet=off -timeout 60m ./agent -timeout 2h"; !strings.HasSuffix(strings.TrimSpace(string(out)), want) {
			t.Errorf("with SCO_TIMES=%q, hack/gotest.sh passes %s, want %s at the end: the last -timeout counts", times, out, want)
		}
	}
	makefile, err := os.ReadFile("../../Makefile")
	check.NoError(t, err)
	bound := regexp.MustCompile(`-timeout[ =]\d+[sm]`)
	for line := range strings.Lines(string(makefile)) {
		if found := bound.FindString(line); found != "" && found != "-timeout=60m" {
			t.Errorf("the Makefile has a shorter bound of its own: %s", strings.TrimSpace(line))
		}
	}
}
