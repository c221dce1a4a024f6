package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// bill contains the fields of an SPDX 2.3 document that a static Go binary needs: https://spdx.github.io/spdx-spec/v2.3
type bill struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creationInfo   `json:"creationInfo"`
	Packages          []spdxPackage  `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	SPDXID           string        `json:"SPDXID"`
	Name             string        `json:"name"`
	VersionInfo      string        `json:"versionInfo"`
	DownloadLocation string        `json:"downloadLocation"`
	FilesAnalyzed    bool          `json:"filesAnalyzed"`
	LicenseConcluded string        `json:"licenseConcluded"`
	LicenseDeclared  string        `json:"licenseDeclared"`
	CopyrightText    string        `json:"copyrightText"`
	Purpose          string        `json:"primaryPackagePurpose,omitempty"`
	Checksums        []checksum    `json:"checksums,omitempty"`
	ExternalRefs     []externalRef `json:"externalRefs"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	documentID  = "SPDXRef-DOCUMENT"
	unsaid      = "NOASSERTION"
	licenseName = "Apache-2.0"
)

// billOf lists the modules that a binary was linked from, based on its build information.
func billOf(binary, version, architecture string, created time.Time) (bill, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return bill{}, fmt.Errorf("read what %s was built from: %w", binary, err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return bill{}, fmt.Errorf("read the binary: %w", err)
	}
	sum := hex.EncodeToString(sha256Of(content))
	program := filepath.Base(binary)
	b := bill{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: fmt.Sprintf("%s %s linux/%s", program, version, architecture),
		DocumentNamespace: fmt.Sprintf("%s/sbom/%s/%s/%s/%s", repository, version, program, architecture, sum),
		CreationInfo:      creationInfo{Created: created.Format(time.RFC3339), Creators: []string{"Tool: storage-client-operator-release-" + version}},
	}
	main := newPackage(info.Main.Path, version)
	main.Name, main.Purpose, main.Checksums = program, "APPLICATION", []checksum{{Algorithm: "SHA256", Value: sum}}
	main.LicenseConcluded, main.LicenseDeclared, main.DownloadLocation = licenseName, licenseName, "git+"+repository+"@"+version
	b.Packages = []spdxPackage{main}
	b.Relationships = []relationship{{Element: documentID, Type: "DESCRIBES", Related: main.SPDXID}}
	modules := append([]*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
	for _, module := range modules {
		if module.Replace != nil {
			module = module.Replace
		}
		p := newPackage(module.Path, module.Version)
		b.Packages = append(b.Packages, p)
		b.Relationships = append(b.Relationships, relationship{Element: main.SPDXID, Type: "DEPENDS_ON", Related: p.SPDXID})
	}
	return b, nil
}

var notInIDs = regexp.MustCompile(`[^A-Za-z0-9.-]`)

func newPackage(path, version string) spdxPackage {
	return spdxPackage{
		SPDXID: "SPDXRef-" + notInIDs.ReplaceAllString(path+"-"+version, "-"), Name: path, VersionInfo: version,
		DownloadLocation: unsaid, LicenseConcluded: unsaid, LicenseDeclared: unsaid, CopyrightText: unsaid,
		ExternalRefs: []externalRef{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: "pkg:golang/" + path + "@" + version}},
	}
}

// statement is an attestation: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     any       `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

func newStatement(name string, digest v1.Hash, kind string, predicate any) statement {
	return statement{
		Type:          "https://in-toto.io/Statement/v1",
		Subject:       []subject{{Name: name, Digest: map[string]string{digest.Algorithm: digest.Hex}}},
		PredicateType: kind, Predicate: predicate,
	}
}

// provenance describes the build of the images: https://slsa.dev/spec/v1.0/provenance
type provenance struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string               `json:"buildType"`
	ExternalParameters   map[string]string    `json:"externalParameters"`
	ResolvedDependencies []resourceDescriptor `json:"resolvedDependencies"`
}

type resourceDescriptor struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

type runDetails struct {
	Builder builder `json:"builder"`
}

type builder struct {
	ID string `json:"id"`
}

// provenance has no times of the build: the same commit would not make the same bytes.
func (o options) provenance() provenance {
	return provenance{
		BuildDefinition: buildDefinition{
			BuildType:          repository + "/blob/main/docs/versions.md#how-a-release-is-built",
			ExternalParameters: map[string]string{"repository": repository, "version": o.version, "registry": o.registry},
			ResolvedDependencies: []resourceDescriptor{
				{URI: "git+" + repository + "@refs/tags/" + o.version, Digest: map[string]string{"gitCommit": o.commit}},
			},
		},
		RunDetails: runDetails{Builder: builder{ID: o.builder}},
	}
}

func sha256Of(content []byte) []byte {
	sum := sha256.Sum256(content)
	return sum[:]
}

// encode writes indented JSON. The output is the same for the same value.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	return out.Bytes(), err
}
