package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// These constants are from cosign's specifications: https://github.com/sigstore/cosign/tree/main/specs, SIGNATURE_SPEC.md and
// ATTESTATION_SPEC.md.
const (
	simpleSigning       = "application/vnd.dev.cosign.simplesigning.v1+json"
	signedEnvelope      = "application/vnd.dsse.envelope.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	signedKind          = "cosign container image signature"
)

// imageLayout is an index of images with its signatures and attestations, which have the tags that cosign expects.
type imageLayout struct {
	name   string
	index  v1.ImageIndex
	digest v1.Hash
	tagged []taggedManifest
}

type taggedManifest struct {
	tag     string
	content mutate.Appendable
}

func newLayout(name, version string, index v1.ImageIndex, digest v1.Hash) *imageLayout {
	return &imageLayout{name: name, index: index, digest: digest, tagged: []taggedManifest{{tag: version, content: index}}}
}

// payload is the content that cosign signs.
type payload struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]string `json:"optional"`
}

func newPayload(name string, digest v1.Hash) ([]byte, error) {
	var p payload
	p.Critical.Identity.Reference, p.Critical.Image.Digest, p.Critical.Type = name, digest.String(), signedKind
	return json.Marshal(p)
}

// sign adds a signature of the index and of each image in it, and the statements about each.
func (l *imageLayout) sign(s *signer, statements []statement) error {
	manifest, err := l.index.IndexManifest()
	if err != nil {
		return fmt.Errorf("read the index: %w", err)
	}
	digests := []v1.Hash{l.digest}
	for _, m := range manifest.Manifests {
		digests = append(digests, m.Digest)
	}
	for _, digest := range digests {
		signed, err := newPayload(l.name, digest)
		if err != nil {
			return fmt.Errorf("encode what is signed: %w", err)
		}
		signature, err := s.sign(signed)
		if err != nil {
			return err
		}
		if err := l.add(digest, "sig", simpleSigning, [][]byte{signed}, map[string]string{signatureAnnotation: signature}); err != nil {
			return err
		}
		var envelopes [][]byte
		for _, statement := range statements {
			if statement.Subject[0].Digest[digest.Algorithm] != digest.Hex {
				continue
			}
			attested, err := s.attest(statement)
			if err != nil {
				return err
			}
			envelopes = append(envelopes, attested)
		}
		if err := l.add(digest, "att", signedEnvelope, envelopes, map[string]string{signatureAnnotation: ""}); err != nil {
			return err
		}
	}
	return nil
}

// add tags a manifest with a layer for each piece of evidence about a digest.
func (l *imageLayout) add(about v1.Hash, suffix string, kind types.MediaType, pieces [][]byte, annotations map[string]string) error {
	evidence := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, piece := range pieces {
		var err error
		evidence, err = mutate.Append(evidence, mutate.Addendum{Layer: static.NewLayer(piece, kind), Annotations: annotations})
		if err != nil {
			return fmt.Errorf("add evidence: %w", err)
		}
	}
	l.tagged = append(l.tagged, taggedManifest{tag: fmt.Sprintf("%s-%s.%s", about.Algorithm, about.Hex, suffix), content: evidence})
	return nil
}

// write writes the layout as an archive: https://github.com/opencontainers/image-spec/blob/main/image-layout.md
func (l *imageLayout) write(path string) error {
	dir, err := os.MkdirTemp("", "layout")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	for _, t := range l.tagged {
		annotations := layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": t.tag,
			// "ctr images import" and Docker use this name.
			"io.containerd.image.name": l.name + ":" + t.tag,
		})
		switch content := t.content.(type) {
		case v1.ImageIndex:
			err = written.AppendIndex(content, annotations)
		case v1.Image:
			err = written.AppendImage(content, annotations)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", t.tag, err)
		}
	}
	archive, err := archiveOf(dir)
	if err != nil {
		return fmt.Errorf("pack the layout: %w", err)
	}
	return os.WriteFile(path, archive, 0o644)
}

// archiveOf packs a directory; the same files make the same bytes.
func archiveOf(dir string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	// Names come in order.
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}
