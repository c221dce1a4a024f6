package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/test/check"
)

// layOut writes a binary for each platform, each with different bytes.
func layOut(t *testing.T) (binaries, licenseFile string) {
	t.Helper()
	dir := t.TempDir()
	for _, p := range platforms {
		at := filepath.Join(dir, p.os, p.arch)
		check.NoError(t, os.MkdirAll(at, 0o755))
		check.NoError(t, os.WriteFile(filepath.Join(at, p.binary()), []byte(p.os+p.arch), 0o755))
	}
	return dir, filepath.Join("..", "..", license)
}

// filesOf returns the modes of the files in an archive, by name.
func filesOf(t *testing.T, data []byte) map[string]int64 {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	check.NoError(t, err)
	out := map[string]int64{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		check.NoError(t, err)
		out[header.Name] = header.Mode
	}
}

func TestManifestFitsTheArchives(t *testing.T) {
	binaries, licenseFile := layOut(t)
	output := t.TempDir()
	check.NoError(t, pack("v1.2.3", binaries, "https://example.org/releases", output, licenseFile))
	data, err := os.ReadFile(filepath.Join(output, pluginName+".yaml"))
	check.NoError(t, err)
	var got manifest
	check.NoError(t, yaml.UnmarshalStrict(data, &got))
	// krew accepts only this version of the manifest and a file with the plugin's name. It shows only short descriptions in full.
	if got.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || got.Kind != "Plugin" || got.Metadata.Name != "storageclient" || got.Spec.Version != "v1.2.3" {
		t.Errorf("manifest is %+v", got)
	}
	if short := got.Spec.ShortDescription; short == "" || len(short) > 50 || strings.HasSuffix(short, ".") {
		t.Errorf("got short description %q, want up to 50 characters without a period", short)
	}
	if len(got.Spec.Platforms) != len(platforms) {
		t.Fatalf("got %d platforms, want %d", len(got.Spec.Platforms), len(platforms))
	}
	seen := map[string]bool{}
	for _, p := range got.Spec.Platforms {
		name := p.Selector.MatchLabels["os"] + "/" + p.Selector.MatchLabels["arch"]
		t.Run(name, func(t *testing.T) {
			if seen[name] || len(p.Selector.MatchLabels) != 2 {
				t.Errorf("got selector %v, which is a duplicate or unknown to krew", p.Selector.MatchLabels)
			}
			seen[name] = true
			checkTarget(t, p, output)
		})
	}
}

// checkTarget compares one platform of the manifest with its archive.
func checkTarget(t *testing.T, p target, output string) {
	t.Helper()
	uri, err := url.Parse(p.URI)
	if err != nil || uri.Scheme != "https" || !strings.HasPrefix(p.URI, "https://example.org/releases/v1.2.3/") {
		t.Fatalf("%v, uri %q", err, p.URI)
	}
	archive, err := os.ReadFile(filepath.Join(output, path.Base(uri.Path)))
	check.NoError(t, err)
	if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != p.SHA256 {
		t.Errorf("got checksum %s, want %x", p.SHA256, sum)
	}
	files := filesOf(t, archive)
	for _, file := range p.Files {
		if _, packed := files[file.From]; !packed {
			t.Errorf("got no %s in the archive, which contains %v", file.From, files)
		}
	}
	if files[p.Bin]&0o111 == 0 || strings.HasSuffix(p.Bin, ".exe") != (p.Selector.MatchLabels["os"] == "windows") {
		t.Errorf("bin %q is not executable: %v", p.Bin, files)
	}
}

func TestTheSameFilesMakeTheSameArchive(t *testing.T) {
	binaries, licenseFile := layOut(t)
	binary := filepath.Join(binaries, "linux", "amd64", "kubectl-storageclient")
	first, err := archiveOf(binary, licenseFile)
	check.NoError(t, err)
	if second, err := archiveOf(binary, licenseFile); err != nil || !bytes.Equal(first, second) {
		t.Errorf("error %v, or different bytes", err)
	}
}

func TestPackRefuses(t *testing.T) {
	binaries, licenseFile := layOut(t)
	for name, c := range map[string]struct{ version, binaries, url, want string }{
		"a version that krew does not take": {"dev", binaries, "https://example.org", "VERSION=v1.2.3"},
		"no place":                          {"v1.2.3", binaries, "", "-url is required"},
		"a platform that was not compiled":  {"v1.2.3", t.TempDir(), "https://example.org", "linux/amd64/kubectl-storageclient"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := pack(c.version, c.binaries, c.url, t.TempDir(), licenseFile); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
		})
	}
}
