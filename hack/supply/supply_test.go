// Package supply holds what users download and run to names that belong to the project.
package supply

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/storageclient/operator/test/check"
)

const root = "../.."

// eachFile calls check with each text file of the tree that users read or apply.
func eachFile(t *testing.T, visit func(path, content string)) {
	t.Helper()
	count := 0
	for _, dir := range []string{"README.md", "SECURITY.md", "CONTRIBUTING.md", "docs", "config", "test/e2e"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !regexp.MustCompile(`\.(md|ya?ml|go|sh|json|tpl)$`).MatchString(path) {
				return err
			}
			content, err := os.ReadFile(path)
			if err == nil {
				count++
				visit(strings.TrimPrefix(path, root+"/"), string(content))
			}
			return err
		})
		check.NoError(t, err)
	}
	if count < 100 {
		t.Errorf("read %d files, want at least 100", count)
	}
}

func TestDocumentationNamesOneRelease(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	check.NoError(t, err)
	release := regexp.MustCompile(`(?m)^RELEASE := (v\d+\.\d+\.\d+)$`).FindStringSubmatch(string(makefile))
	if release == nil {
		t.Fatal("the Makefile has no RELEASE")
	}
	found := 0
	// A remote address of kustomize, a raw file, and a clone of a branch have the same weakness: the next commit decides what runs as root.
	reference := regexp.MustCompile(`(?:[?&](?:ref|version)=|raw\.githubusercontent\.com/storageclient/operator/(?:refs/heads/)?|git clone (?:-b|--branch) )([^\s"'/&\])` + "`" + `]+)`)
	remote := regexp.MustCompile(`github\.com/storageclient/operator/+config/[A-Za-z0-9/._-]+(\?ref=)?`)
	eachFile(t, func(path, content string) {
		for _, match := range reference.FindAllStringSubmatch(content, -1) {
			if found++; match[1] != release[1] {
				t.Errorf("%s: %s names %s, want the release %s", path, match[0], match[1], release[1])
			}
		}
		for _, match := range remote.FindAllStringSubmatch(content, -1) {
			if match[1] == "" && strings.HasPrefix(path, "docs/") {
				t.Errorf("%s: %s has no ?ref=", path, match[0])
			}
		}
	})
	if found < 30 {
		t.Errorf("got %d references to a release, want at least 30", found)
	}
}

// An image without a registry is one of docker.io, where anyone can register the account.
func TestManifestsNameNoImageOfAnAccountThatIsNotOurs(t *testing.T) {
	image := regexp.MustCompile(`(?m)(?:image:|newName:|_IMAGE [?:]?=|[^/a-z.]name:) *"?([^\s"#}]*storageclient/(?:manager|node-agent)[^\s"#},]*)`)
	found := 0
	inspect := func(path, content string) {
		for _, match := range image.FindAllStringSubmatch(content, -1) {
			found++
			if registry, _, _ := strings.Cut(match[1], "/"); registry != "localhost" && registry != "registry.example.com" {
				t.Errorf("%s: image %s, want localhost/ or registry.example.com/", path, match[1])
			}
		}
		if strings.Contains(content, "ghcr.io/storageclient") || strings.Contains(content, "docker.io/storageclient") {
			t.Errorf("%s names an account on a public registry", path)
		}
	}
	eachFile(t, inspect)
	for _, name := range []string{"Makefile", "Dockerfile", "hack/chart/slots.go", "hack/images/main.go", "hack/release.sh", "test/integration/testdata/agent-plain.golden.yaml"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		check.NoError(t, err)
		inspect(name, string(content))
	}
	if found < 10 {
		t.Errorf("got %d images, want at least 10", found)
	}
}

func TestVulnerabilitiesAreNeverReportedAsChecked(t *testing.T) {
	for name, test := range map[string]struct {
		program string
		status  int
		verdict string
	}{
		"nothing is found":                 {"exit 0", 0, "No known vulnerability"},
		"a vulnerability is found":         {"echo GO-2026-1; exit 3", 3, "KNOWN VULNERABILITIES"},
		"the database is unreachable":      {"echo no such host >&2; exit 1", 4, "NOT CHECKED"},
		"the program is killed":            {"kill -9 $$", 4, "NOT CHECKED"},
		"the program uses the same status": {"exit 4", 4, "NOT CHECKED"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program, file := filepath.Join(dir, "govulncheck"), filepath.Join(dir, "result")
			check.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+test.program+"\n"), 0o700))
			command := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "hack/vulnerabilities.sh"), file)
			command.Env = append(os.Environ(), "GOVULNCHECK="+program)
			status := 0
			var exit *exec.ExitError
			if err := command.Run(); errors.As(err, &exit) {
				status = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			result, err := os.ReadFile(file)
			if status != test.status || err != nil || !strings.HasPrefix(string(result), test.verdict) {
				t.Errorf("got status %d, error %v, result %q; want %d and %q", status, err, result, test.status, test.verdict)
			}
		})
	}
}
