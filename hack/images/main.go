// Command images writes a container image of one static binary on an empty base, as a Docker archive that "docker load"
// and "ctr images import" take. The same binary always gives the same image: no file and no field holds a present time.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// epoch stands for every time in an image.
var epoch = time.Unix(0, 0).UTC()

type options struct {
	binary, image, user, output, version string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "", "static linux/amd64 binary; it becomes the image's entrypoint")
	flag.StringVar(&o.image, "image", "", "name and tag, e.g. storageclient/manager:dev")
	flag.StringVar(&o.user, "user", "65532", "numeric user that the binary runs as")
	flag.StringVar(&o.output, "output", "", "archive to write")
	flag.StringVar(&o.version, "version", "dev", "value of the label org.opencontainers.image.version")
	flag.Parse()
	if err := write(o); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func write(o options) error {
	if o.binary == "" || o.image == "" || o.output == "" {
		return errors.New("-binary, -image and -output are required")
	}
	tag, err := name.NewTag(o.image)
	if err != nil {
		return err
	}
	image, err := build(o)
	if err != nil {
		return err
	}
	// A reader never sees half an archive.
	temporary := o.output + ".tmp"
	if err := tarball.WriteToFile(temporary, tag, image); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", temporary, err), os.Remove(temporary))
	}
	return os.Rename(temporary, o.output)
}

func build(o options) (v1.Image, error) {
	content, err := os.ReadFile(o.binary)
	if err != nil {
		return nil, err
	}
	program := filepath.Base(o.binary)
	layer, err := layerOf(program, content)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", o.binary, err)
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "make images", Comment: program},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = "amd64", "linux", v1.Time{Time: epoch}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + program},
		User:       o.user,
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    program,
			"org.opencontainers.image.version":  o.version,
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
	})
}
