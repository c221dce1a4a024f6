// Command images writes a container image of one static binary on an empty base, as a Docker archive that "docker load"
// and "ctr images import" take. The same binary always gives the same archive.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/storageclient/operator/hack/images/image"
)

type options struct {
	binary, image, user, output, version string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "", "static linux/amd64 binary; it becomes the image's entrypoint")
	flag.StringVar(&o.image, "image", "", "name and tag, e.g. localhost/storageclient/manager:dev")
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
	built, err := image.Build(image.Spec{Binary: o.binary, Architecture: "amd64", User: o.user, Version: o.version})
	if err != nil {
		return err
	}
	// A reader never sees half an archive.
	temporary := o.output + ".tmp"
	if err := tarball.WriteToFile(temporary, tag, built); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", temporary, err), os.Remove(temporary))
	}
	return os.Rename(temporary, o.output)
}
