// Command krew packs the plugin for krew, kubectl's plugin manager: one archive for each platform, and the manifest that names
// them with their checksums. "make krew" compiles the binaries first.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"sigs.k8s.io/yaml"
)

const (
	pluginName = "storageclient"
	license    = "LICENSE"
)

// platform is the operating system and architecture of an archive. Go and krew use the same names.
type platform struct{ os, arch string }

// platforms lists the common platforms of kubectl.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

// binary is the plugin's file name.
func (p platform) binary() string {
	if p.os == "windows" {
		return "kubectl-storageclient.exe"
	}
	return "kubectl-storageclient"
}

// archive is the name of a release's archive.
func (p platform) archive(version string) string {
	return fmt.Sprintf("kubectl-storageclient_%s_%s_%s.tar.gz", version, p.os, p.arch)
}

// manifest contains the fields of a krew Plugin that this plugin needs: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
type manifest struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Name string `json:"name"`
}

type spec struct {
	Version          string   `json:"version"`
	Homepage         string   `json:"homepage"`
	ShortDescription string   `json:"shortDescription"`
	Description      string   `json:"description"`
	Caveats          string   `json:"caveats"`
	Platforms        []target `json:"platforms"`
}

type target struct {
	Selector selector `json:"selector"`
	URI      string   `json:"uri"`
	SHA256   string   `json:"sha256"`
	Files    []copied `json:"files"`
	Bin      string   `json:"bin"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// copied is a file of the archive that krew installs.
type copied struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func main() {
	list := flag.Bool("platforms", false, "List the platforms as os/arch, and do nothing else.")
	version := flag.String("version", "", "The release, e.g. v1.2.3.")
	binaries := flag.String("binaries", "bin/krew", "Directory of the binaries, in OS/ARCH/.")
	url := flag.String("url", "", "Where the releases' archives can be had.")
	output := flag.String("output", "dist/krew", "Directory for archives and manifest.")
	flag.Parse()
	if *list {
		for _, p := range platforms {
			fmt.Println(p.os + "/" + p.arch)
		}
		return
	}
	if err := pack(*version, *binaries, *url, *output, license); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

// releaseVersion is how krew wants a version to look.
var releaseVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// pack writes the archives of all platforms and the manifest.
func pack(version, binaries, url, output, licenseFile string) error {
	if !releaseVersion.MatchString(version) {
		return fmt.Errorf("version %q: krew takes one such as v1.2.3 (make krew VERSION=v1.2.3)", version)
	}
	if url == "" {
		return errors.New("-url is required")
	}
	if err := os.MkdirAll(output, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", output, err)
	}
	out := newManifest(version)
	for _, p := range platforms {
		archive, err := archiveOf(filepath.Join(binaries, p.os, p.arch, p.binary()), licenseFile)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(output, p.archive(version)), archive, 0o644); err != nil {
			return fmt.Errorf("write archive: %w", err)
		}
		sum := sha256.Sum256(archive)
		out.Spec.Platforms = append(out.Spec.Platforms, target{
			Selector: selector{MatchLabels: map[string]string{"os": p.os, "arch": p.arch}},
			URI:      fmt.Sprintf("%s/%s/%s", url, version, p.archive(version)),
			SHA256:   hex.EncodeToString(sum[:]),
			Files:    []copied{{From: p.binary(), To: "."}, {From: license, To: "."}},
			Bin:      p.binary(),
		})
	}
	data, err := yaml.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	return os.WriteFile(filepath.Join(output, pluginName+".yaml"), data, 0o644)
}

func newManifest(version string) manifest {
	return manifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   metadata{Name: pluginName},
		Spec: spec{
			Version:          version,
			Homepage:         "https://github.com/storageclient/operator",
			ShortDescription: "Show and control the tuning of storage clients",
			Description: "Shows the effect of StorageClientProfiles on nodes and volumes, and the progress of rollouts with the reason of each wait.\n" +
				"Approves, pauses and retries reboots. Explains parameters, mount options and advice.\n",
			Caveats: "The plugin needs the storage-client operator in the cluster. Only \"explain\" and \"version\" work without it.\n",
		},
	}
}

// archiveOf packs a binary and the license. The same files make the same bytes.
func archiveOf(binary, licenseFile string) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, file := range []struct {
		path string
		mode int64
	}{{binary, 0o755}, {licenseFile, 0o644}} {
		data, err := os.ReadFile(file.path)
		if err != nil {
			return nil, fmt.Errorf("read what is to be packed: %w", err)
		}
		if err := archive.WriteHeader(&tar.Header{Name: filepath.Base(file.path), Mode: file.mode, Size: int64(len(data)), Format: tar.FormatUSTAR}); err != nil {
			return nil, fmt.Errorf("pack %s: %w", file.path, err)
		}
		if _, err := io.Copy(archive, bytes.NewReader(data)); err != nil {
			return nil, fmt.Errorf("pack %s: %w", file.path, err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return nil, fmt.Errorf("pack %s: %w", binary, err)
	}
	return out.Bytes(), nil
}
