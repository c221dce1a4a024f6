// Package image makes a container image of one static binary on an empty base. The same binary always gives the same image: no file
// and no field holds a present time.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch replaces every time in an image.
var epoch = time.Unix(0, 0).UTC()

// Spec describes the image to build.
type Spec struct {
	// Binary is a static binary for Linux; it becomes the entrypoint.
	Binary, Architecture string
	// User is the numeric user that it runs as.
	User, Version string
}

// Build makes the image.
func Build(s Spec) (v1.Image, error) {
	content, err := os.ReadFile(s.Binary)
	if err != nil {
		return nil, fmt.Errorf("read the binary: %w", err)
	}
	program := filepath.Base(s.Binary)
	layer, err := layerOf(program, content)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", s.Binary, err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "make images", Comment: program},
	})
	if err != nil {
		return nil, fmt.Errorf("make an image of %s: %w", s.Binary, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("make an image of %s: %w", s.Binary, err)
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = s.Architecture, "linux", v1.Time{Time: epoch}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + program},
		User:       s.User,
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    program,
			"org.opencontainers.image.version":  s.Version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// layerOf packs the program and a /tmp that every user may write.
func layerOf(program string, content []byte) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	headers := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeReg, Name: program, Mode: 0o555, Size: int64(len(content))},
	}
	for i := range headers {
		headers[i].ModTime = epoch
		if err := w.WriteHeader(&headers[i]); err != nil {
			return nil, err
		}
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}
