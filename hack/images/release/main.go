// Command release makes the files of a release from compiled binaries: images for both architectures as OCI layouts, bills of materials,
// provenance, checksums and signatures. The same binaries and the same key produce the same bytes. All times are the time of the commit,
// and signatures are deterministic (RFC 6979). hack/release.sh runs it.
//
//	release images      writes the images, and prints their names with digests
//	release checksums   writes checksums.txt of all files in the directory, and signs it
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/storageclient/operator/hack/images/image"
)

const repository = "https://github.com/storageclient/operator"

var architectures = []string{"amd64", "arm64"}

// programs are the images, and the user that each runs as.
var programs = []struct{ name, user string }{{"manager", "65532"}, {"node-agent", "0"}}

type options struct {
	version, commit, registry, builder, binaries, key, output string
	seconds                                                   int64
}

func main() {
	var o options
	if len(os.Args) < 2 {
		fail(errors.New("say images or checksums"))
	}
	flags := flag.NewFlagSet("release "+os.Args[1], flag.ExitOnError)
	flags.StringVar(&o.version, "version", "", "The release, e.g. v1.2.3.")
	flags.StringVar(&o.commit, "commit", "", "The commit that the binaries are of.")
	flags.Int64Var(&o.seconds, "time", 0, "The commit's time, in seconds since 1970: it stands for every time.")
	flags.StringVar(&o.registry, "registry", "", "What the images' names begin with.")
	flags.StringVar(&o.builder, "builder", "", "Who vouches for the build, as a URI.")
	flags.StringVar(&o.binaries, "binaries", "", "Directory of the binaries, in linux_ARCHITECTURE/.")
	flags.StringVar(&o.key, "key", "", "Private key to sign with: cosign's, with its password in COSIGN_PASSWORD, or one of ECDSA P-256 as PEM. Empty: nothing is signed.")
	flags.StringVar(&o.output, "output", "", "Directory of the release.")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	signer, err := loadSigner(o.key, []byte(os.Getenv("COSIGN_PASSWORD")))
	if err != nil {
		fail(err)
	}
	switch os.Args[1] {
	case "images":
		var names []string
		names, err = o.writeImages(signer)
		for i, name := range names {
			fmt.Println(programs[i].name, name)
		}
	case "checksums":
		err = writeChecksums(o.output, signer)
	default:
		err = fmt.Errorf("%q: say images or checksums", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "release:", err)
	os.Exit(1)
}

// writeImages writes everything of the images, and returns their names with digests.
func (o options) writeImages(signer *signer) ([]string, error) {
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return nil, fmt.Errorf("create %s: %w", o.output, err)
	}
	var names []string
	for _, program := range programs {
		name, err := o.writeImage(program.name, program.user, signer)
		if err != nil {
			return nil, fmt.Errorf("release %s: %w", program.name, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func (o options) writeImage(program, user string, signer *signer) (string, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var statements []statement
	for _, architecture := range architectures {
		binary := filepath.Join(o.binaries, "linux_"+architecture, program)
		built, err := image.Build(image.Spec{Binary: binary, Architecture: architecture, User: user, Version: o.version})
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: built, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
		bill, err := billOf(binary, o.version, architecture, o.created())
		if err != nil {
			return "", err
		}
		if err := o.writeJSON(fmt.Sprintf("%s_%s_linux_%s.spdx.json", program, o.version, architecture), bill); err != nil {
			return "", err
		}
		digest, err := built.Digest()
		if err != nil {
			return "", err
		}
		statements = append(statements, newStatement(o.imageName(program), digest, "https://spdx.dev/Document", bill))
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	provenance := newStatement(o.imageName(program), digest, "https://slsa.dev/provenance/v1", o.provenance())
	if err := o.writeJSON(fmt.Sprintf("%s_%s.provenance.json", program, o.version), provenance); err != nil {
		return "", err
	}
	layout := newLayout(o.imageName(program), o.version, index, digest)
	if signer != nil {
		if err := layout.sign(signer, append(statements, provenance)); err != nil {
			return "", err
		}
	}
	if err := layout.write(filepath.Join(o.output, fmt.Sprintf("%s_%s.oci.tar", program, o.version))); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%s@%s", o.imageName(program), o.version, digest), nil
}

func (o options) imageName(program string) string { return o.registry + "/" + program }

func (o options) created() time.Time { return time.Unix(o.seconds, 0).UTC() }

func (o options) writeJSON(name string, value any) error {
	data, err := encode(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(o.output, name), data, 0o644)
}
