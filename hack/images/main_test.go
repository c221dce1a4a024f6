package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestTheImageHoldsTheBinaryAndATmpDirectoryAndNothingElse(t *testing.T) {
	image, err := tarball.ImageFromPath(archiveOf(t, "\x7fELF"), nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/manager"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
	if config.Config.User != "65532" {
		t.Errorf("user is %q, want 65532", config.Config.User)
	}
	want := map[string]int64{"tmp": 0o1777, "manager": 0o555}
	if diff := cmp.Diff(want, modes(t, mutate.Extract(image))); diff != "" {
		t.Errorf("files and modes (-want +got):\n%s", diff)
	}
}

func TestTheSameBinaryGivesTheSameArchive(t *testing.T) {
	first, second := read(t, archiveOf(t, "\x7fELF")), read(t, archiveOf(t, "\x7fELF"))
	if !bytes.Equal(first, second) {
		t.Error("two archives of one binary differ")
	}
	if bytes.Equal(first, read(t, archiveOf(t, "\x7fELF other"))) {
		t.Error("archives of two binaries are the same")
	}
}

func TestAnImageWithoutItsFlagsIsRefused(t *testing.T) {
	if err := write(options{image: "localhost/storageclient/manager:dev"}); err == nil {
		t.Error("want an error that names the flags")
	}
}

func archiveOf(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	binary, output := filepath.Join(dir, "manager"), filepath.Join(dir, "manager.tar")
	if err := os.WriteFile(binary, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := write(options{binary: binary, image: "localhost/storageclient/manager:dev", user: "65532", output: output, version: "dev"}); err != nil {
		t.Fatal(err)
	}
	return output
}

func modes(t *testing.T, layer io.ReadCloser) map[string]int64 {
	t.Helper()
	defer layer.Close()
	found := map[string]int64{}
	for reader := tar.NewReader(layer); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = header.Mode
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
