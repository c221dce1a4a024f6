package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/storageclient/operator"

// buildWorkload writes the archive of WorkloadImage, with the tool that writes the project's own images.
func buildWorkload(ctx context.Context, dirs Dirs) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("find module %s: %w: %s", module, err, stderr(err))
	}
	dir, err := os.MkdirTemp(filepath.Dir(dirs.workloadArchive()), "workload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "workload")
	if err := command(ctx, "env", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64",
		"go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, module+"/test/e2e/workload"); err != nil {
		return err
	}
	images := filepath.Join(strings.TrimSpace(string(root)), "hack", "images")
	return command(ctx, "go", "-C", images, "run", ".", "-binary="+binary, "-image="+WorkloadImage, "-user=0",
		"-output="+dirs.workloadArchive())
}
