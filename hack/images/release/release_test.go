package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	cosign "github.com/sigstore/sigstore/pkg/signature/payload"
	spdxjson "github.com/spdx/tools-golang/json"
)

// compile builds this program for both architectures, in place of the release's binaries. It is small and has dependencies.
func compile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, architecture := range architectures {
		for _, program := range programs {
			path := filepath.Join(dir, "linux_"+architecture, program.name)
			command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", path, "..")
			command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture)
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("compile for %s: %v\n%s", architecture, err, out)
			}
		}
	}
	return dir
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func writePEM(t *testing.T, blocks ...*pem.Block) string {
	t.Helper()
	var content []byte
	for _, block := range blocks {
		content = append(content, pem.EncodeToMemory(block)...)
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// make builds a release and returns its directory.
func (o options) make(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	o.output = t.TempDir()
	s, err := loadSigner(writePEM(t, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8(t, key)}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.writeImages(s); err != nil {
		t.Fatal(err)
	}
	if err := writeChecksums(o.output, s); err != nil {
		t.Fatal(err)
	}
	return o.output
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range entries {
		found[entry.Name()] = string(read(t, filepath.Join(dir, entry.Name())))
	}
	return found
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestARelease builds a release from small binaries and verifies it with third-party libraries.
func TestARelease(t *testing.T) {
	key := newKey(t)
	o := options{
		version: "v1.2.3", commit: strings.Repeat("c", 40), registry: "registry.example.com/sco", builder: "https://example.com/builder",
		binaries: compile(t), seconds: 1790000000,
	}
	dir := o.make(t, key)
	verifier, err := signature.LoadVerifier(&key.PublicKey, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("is the same byte for byte when it is made again", func(t *testing.T) {
		again := o
		again.binaries = compile(t)
		first, second := files(t, dir), files(t, again.make(t, key))
		if len(first) != 11 {
			t.Errorf("got %d files in the layer", len(first))
		}
		for name, content := range first {
			if second[name] != content {
				t.Errorf("%s differs", name)
			}
		}
	})

	t.Run("holds an index of both architectures, which a registry takes with its evidence", func(t *testing.T) {
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		defer server.Close()
		for _, program := range programs {
			unpacked := unpack(t, filepath.Join(dir, program.name+"_v1.2.3.oci.tar"))
			repo, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/" + program.name)
			if err != nil {
				t.Fatal(err)
			}
			push(t, unpacked, repo)
			index, err := remote.Index(repo.Tag("v1.2.3"))
			if err != nil {
				t.Fatal(err)
			}
			digest, err := index.Digest()
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			digests := []v1.Hash{digest}
			var platforms []string
			for _, m := range manifest.Manifests {
				platforms = append(platforms, m.Platform.String())
				digests = append(digests, m.Digest)
				image, err := index.Image(m.Digest)
				if err != nil {
					t.Fatal(err)
				}
				config, err := image.ConfigFile()
				if err != nil {
					t.Fatal(err)
				}
				if config.Architecture != m.Platform.Architecture || config.Config.User != program.user {
					t.Errorf("the image for %s: got architecture %s and user %s", m.Platform, config.Architecture, config.Config.User)
				}
			}
			if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
				t.Errorf("platforms (-want +got):\n%s", diff)
			}
			for _, digest := range digests {
				verifySignature(t, repo, digest, verifier)
			}
			if diff := cmp.Diff([]string{"https://slsa.dev/provenance/v1"}, attested(t, repo, digests[0], &key.PublicKey)); diff != "" {
				t.Errorf("attested of the index (-want +got):\n%s", diff)
			}
			for _, digest := range digests[1:] {
				if diff := cmp.Diff([]string{"https://spdx.dev/Document"}, attested(t, repo, digest, &key.PublicKey)); diff != "" {
					t.Errorf("attested of an image (-want +got):\n%s", diff)
				}
			}
		}
	})

	t.Run("has bills of materials that name every module of the binary", func(t *testing.T) {
		for _, architecture := range architectures {
			document, err := spdxjson.Read(bytes.NewReader(read(t, filepath.Join(dir, "manager_v1.2.3_linux_"+architecture+".spdx.json"))))
			if err != nil {
				t.Fatal(err)
			}
			binary := filepath.Join(o.binaries, "linux_"+architecture, "manager")
			info, err := buildinfo.ReadFile(binary)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"manager v1.2.3", "stdlib " + strings.TrimPrefix(info.GoVersion, "go")}
			for _, module := range info.Deps {
				want = append(want, module.Path+" "+module.Version)
			}
			var got, ids []string
			for _, p := range document.Packages {
				got = append(got, p.PackageName+" "+p.PackageVersion)
				ids = append(ids, string(p.PackageSPDXIdentifier))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("packages (-binary +bill):\n%s", diff)
			}
			if slices.Sort(ids); len(slices.Compact(ids)) != len(got) {
				t.Error("got duplicate package identifiers")
			}
			if len(document.Relationships) != len(got) {
				t.Errorf("%d packages: got %d relationships", len(got), len(document.Relationships))
			}
			if sum := document.Packages[0].PackageChecksums[0].Value; sum != hex.EncodeToString(sha256Of(read(t, binary))) {
				t.Errorf("got a bill of materials of another binary: %s", sum)
			}
		}
	})

	t.Run("has provenance that names image, commit and builder", func(t *testing.T) {
		var got map[string]any
		if err := json.Unmarshal(read(t, filepath.Join(dir, "manager_v1.2.3.provenance.json")), &got); err != nil {
			t.Fatal(err)
		}
		index, err := layout.FromPath(unpack(t, filepath.Join(dir, "manager_v1.2.3.oci.tar")))
		if err != nil {
			t.Fatal(err)
		}
		all, err := index.ImageIndex()
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := all.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://slsa.dev/provenance/v1",
			"subject": []any{map[string]any{"name": "registry.example.com/sco/manager", "digest": map[string]any{"sha256": manifest.Manifests[0].Digest.Hex}}},
			"predicate": map[string]any{
				"buildDefinition": map[string]any{
					"buildType":          repository + "/blob/main/docs/versions.md#how-a-release-is-built",
					"externalParameters": map[string]any{"repository": repository, "version": "v1.2.3", "registry": "registry.example.com/sco"},
					"resolvedDependencies": []any{map[string]any{
						"uri": "git+" + repository + "@refs/tags/v1.2.3", "digest": map[string]any{"gitCommit": o.commit},
					}},
				},
				"runDetails": map[string]any{"builder": map[string]any{"id": "https://example.com/builder"}},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("provenance (-want +got):\n%s", diff)
		}
	})

	t.Run("has a signed list of all other files", func(t *testing.T) {
		content := files(t, dir)
		sum, err := base64.StdEncoding.DecodeString(strings.TrimSpace(content[signatureFile]))
		if err != nil {
			t.Fatal(err)
		}
		public, err := cryptoutils.UnmarshalPEMToPublicKey([]byte(content[publicKeyFile]))
		if err != nil {
			t.Fatal(err)
		}
		if !key.PublicKey.Equal(public) {
			t.Error("got another public key")
		}
		if err := verifier.VerifySignature(bytes.NewReader(sum), strings.NewReader(content[checksumsFile])); err != nil {
			t.Error(err)
		}
		if err := verifier.VerifySignature(bytes.NewReader(sum), strings.NewReader(content[checksumsFile]+" ")); err == nil {
			t.Error("the signature is valid for a changed list, want it invalid")
		}
		var want strings.Builder
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range content {
				if name != checksumsFile && name != signatureFile && name != publicKeyFile && !yield(name) {
					return
				}
			}
		}) {
			fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256([]byte(content[name])), name)
		}
		if diff := cmp.Diff(want.String(), content[checksumsFile]); diff != "" {
			t.Errorf("checksums (-want +got):\n%s", diff)
		}
	})

	t.Run("is made without a key, and then has no signature", func(t *testing.T) {
		unsigned := o
		unsigned.output = t.TempDir()
		if _, err := unsigned.writeImages(nil); err != nil {
			t.Fatal(err)
		}
		if err := writeChecksums(unsigned.output, nil); err != nil {
			t.Fatal(err)
		}
		got := files(t, unsigned.output)
		if got[signatureFile] != "" || got[publicKeyFile] != "" || got[checksumsFile] == "" || len(got) != 9 {
			t.Errorf("got %d files, and signature %q", len(got), got[signatureFile])
		}
	})
}

// unpack unpacks a layout with tar, like users do.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// push copies all images of a layout into a repository, under their tags.
func push(t *testing.T, dir string, repo name.Repository) {
	t.Helper()
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		tag := repo.Tag(m.Annotations["org.opencontainers.image.ref.name"])
		if m.MediaType.IsIndex() {
			index, err := all.ImageIndex(m.Digest)
			if err == nil {
				err = remote.WriteIndex(tag, index)
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		image, err := all.Image(m.Digest)
		if err == nil {
			err = remote.Write(tag, image)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// layersOf returns the signatures or attestations of a digest by payload, with the signature of each.
func layersOf(t *testing.T, repo name.Repository, about v1.Hash, suffix string) map[string]string {
	t.Helper()
	image, err := remote.Image(repo.Tag("sha256-" + about.Hex + "." + suffix))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, descriptor := range manifest.Layers {
		layer, err := image.LayerByDigest(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		reader, err := layer.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		found[string(content)] = descriptor.Annotations[signatureAnnotation]
	}
	return found
}

func verifySignature(t *testing.T, repo name.Repository, digest v1.Hash, verifier signature.Verifier) {
	t.Helper()
	layers := layersOf(t, repo, digest, "sig")
	if len(layers) != 1 {
		t.Fatalf("%s: got %d signatures", digest, len(layers))
	}
	for signed, encoded := range layers {
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.VerifySignature(bytes.NewReader(sum), strings.NewReader(signed)); err != nil {
			t.Errorf("%s: %v", digest, err)
		}
		image := cosign.Cosign{}
		if err := json.Unmarshal([]byte(signed), &image); err != nil {
			t.Fatal(err)
		}
		if got := image.Image.DigestStr(); got != digest.String() {
			t.Errorf("the signature of %s: got digest %s", digest, got)
		}
	}
}

// attested verifies the attestations of a digest and returns their kinds.
func attested(t *testing.T, repo name.Repository, digest v1.Hash, key *ecdsa.PublicKey) []string {
	t.Helper()
	verifier, err := dsse.NewEnvelopeVerifier(&dsseKey{key})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for content := range layersOf(t, repo, digest, "att") {
		envelope := dsse.Envelope{}
		if err := json.Unmarshal([]byte(content), &envelope); err != nil {
			t.Fatal(err)
		}
		if _, err := verifier.Verify(t.Context(), &envelope); err != nil {
			t.Errorf("%s: %v", digest, err)
		}
		body, err := envelope.DecodeB64Payload()
		if err != nil {
			t.Fatal(err)
		}
		attestation := statement{}
		if err := json.Unmarshal(body, &attestation); err != nil {
			t.Fatal(err)
		}
		if attestation.Subject[0].Digest["sha256"] != digest.Hex {
			t.Errorf("the attestation of %s: got subjects %v", digest, attestation.Subject)
		}
		kinds = append(kinds, attestation.PredicateType)
	}
	return kinds
}

type dsseKey struct{ key *ecdsa.PublicKey }

func (k *dsseKey) Verify(_ context.Context, data, sum []byte) error {
	digest := sha256.Sum256(data)
	if !ecdsa.VerifyASN1(k.key, digest[:], sum) {
		return fmt.Errorf("the signature is not of this key")
	}
	return nil
}

func (k *dsseKey) KeyID() (string, error) { return "", nil }

func (k *dsseKey) Public() crypto.PublicKey { return k.key }

func TestKeys(t *testing.T) {
	key := newKey(t)
	sealed, err := encrypted.Encrypt(pkcs8(t, key), []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	ec, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	parameters := &pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}}
	for name, test := range map[string]struct {
		blocks   []*pem.Block
		password string
		wantErr  string
	}{
		"cosign's":                     {blocks: []*pem.Block{{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: sealed}}, password: "secret"},
		"cosign's of earlier versions": {blocks: []*pem.Block{{Type: "ENCRYPTED COSIGN PRIVATE KEY", Bytes: sealed}}, password: "secret"},
		"cosign's, wrong password":     {blocks: []*pem.Block{{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: sealed}}, password: "other", wantErr: "COSIGN_PASSWORD"},
		"openssl genpkey":              {blocks: []*pem.Block{{Type: "PRIVATE KEY", Bytes: pkcs8(t, key)}}},
		"openssl ecparam -genkey":      {blocks: []*pem.Block{parameters, {Type: "EC PRIVATE KEY", Bytes: ec}}},
		"RSA":                          {blocks: []*pem.Block{{Type: "PRIVATE KEY", Bytes: pkcs8(t, foreign)}}, wantErr: "ECDSA P-256"},
		"no key":                       {blocks: []*pem.Block{parameters}, wantErr: "no private key"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := loadSigner(writePEM(t, test.blocks...), []byte(test.password))
			switch {
			case test.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("want an error that contains %q, got %v", test.wantErr, err)
				}
			case err != nil:
				t.Error(err)
			case !s.key.Equal(key):
				t.Error("got another key")
			}
		})
	}
}
