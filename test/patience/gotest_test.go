package patience

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// go test ends a package after ten minutes by default. Next to a program that uses one of two cores, a package with 42 s of CPU time has taken that
// long: the bound must only end a package that hangs.
func TestAPackageMayTakeAnHour(t *testing.T) {
	fake := t.TempDir()
	if err := os.WriteFile(filepath.Join(fake, "go"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("../../hack/gotest.sh", "unit", "./agent", "-timeout", "2h")
	cmd.Env = append(os.Environ(), "SCO_TIMES=", "PATH="+fake+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got, want := strings.TrimSpace(string(out)), "test -vet=off -timeout 60m ./agent -timeout 2h"; got != want {
		t.Errorf("hack/gotest.sh runs go %s, want go %s: the last -timeout counts", got, want)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	bound := regexp.MustCompile(`-timeout[ =]\d+[sm]`)
	for line := range strings.Lines(string(makefile)) {
		if found := bound.FindString(line); found != "" && found != "-timeout=60m" {
			t.Errorf("the Makefile has a shorter bound of its own: %s", strings.TrimSpace(line))
		}
	}
}
