package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

var _ = Describe("The documentation's YAML", func() {
	DescribeTable("is accepted by the API server: every block of",
		func(page string) {
			content, err := os.ReadFile(filepath.Join(configDir, "..", page))
			Expect(err).NotTo(HaveOccurred())
			text := string(content)
			Expect(yamlOpening.FindAllString(text, -1)).To(HaveLen(len(yamlBlocks(text))), "every YAML fence must start a line and have the language yaml")
			profiles := 0
			for _, b := range yamlBlocks(text) {
				profiles += tryBlock(b)
			}
			if page == "README.md" || strings.HasPrefix(page, "docs/guides/") && page != "docs/guides/index.md" {
				Expect(profiles).To(BeNumerically(">", 0), "no StorageClientProfile in %s", page)
			}
		},
		pages(),
	)
})

// pages are the Markdown files that users read.
func pages() []TableEntry {
	var entries []TableEntry
	for _, path := range pagePaths() {
		entries = append(entries, Entry(path, path))
	}
	return entries
}

func pagePaths() []string {
	root := filepath.Join(configDir, "..")
	var paths []string
	for _, folder := range []string{"docs", "config"} {
		err := fs.WalkDir(os.DirFS(root), folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".md" {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			panic(err)
		}
	}
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil || len(top) == 0 || len(paths) == 0 {
		panic("no documentation is found")
	}
	for _, path := range top {
		paths = append(paths, filepath.Base(path))
	}
	return paths
}

// block is fenced YAML. A fragment is part of an object, and is marked by a comment above it.
type block struct {
	text     string
	fragment bool
}

var (
	yamlFence   = regexp.MustCompile("(?ms)^(<!-- fragment -->\n)?```yaml\n(.*?)^```$")
	yamlOpening = regexp.MustCompile("(?m)^[ \t>]*(?:```|~~~)[ \t]*(?i:ya?ml)")
)

// yamlBlocks returns the fenced YAML blocks of a Markdown text.
func yamlBlocks(markdown string) []block {
	var blocks []block
	for _, match := range yamlFence.FindAllStringSubmatch(markdown, -1) {
		blocks = append(blocks, block{text: match[2], fragment: match[1] != ""})
	}
	return blocks
}

// foreign are the API groups of other projects, which this API server does not serve.
var foreign = []string{"argoproj.io"}

// tryBlock sends every object of a block to the API server, and returns the number of profiles.
func tryBlock(b block) int {
	GinkgoHelper()
	if b.fragment {
		var content map[string]any
		Expect(yaml.UnmarshalStrict([]byte(b.text), &content)).To(Succeed(), b.text)
		Expect(content).NotTo(HaveKey("apiVersion"), "a complete object must not be marked as a fragment:\n%s", b.text)
		return 0
	}
	objects := parseManifests([]byte(b.text))
	Expect(objects).NotTo(BeEmpty(), b.text)
	profiles := 0
	for _, object := range objects {
		switch kind := object.GroupVersionKind(); {
		case kind.Group == "kustomize.config.k8s.io":
			rendered := renderOverlay(b.text)
			Expect(rendered).NotTo(BeEmpty(), b.text)
			for _, object := range rendered {
				admit(object)
			}
			profiles += tryProfiles(rendered)
		case kind == v1alpha1.GroupVersion.WithKind("StorageClientProfile"):
			profiles += tryProfiles([]*unstructured.Unstructured{object})
		case scheme.Recognizes(kind):
			tryObject(object)
		default:
			Expect(foreign).To(ContainElement(kind.Group), "unknown kind, and not marked as a fragment:\n%s", b.text)
		}
	}
	return profiles
}

// tryProfiles expects that this build applies the profiles among the objects completely. It returns their number.
func tryProfiles(objects []*unstructured.Unstructured) int {
	GinkgoHelper()
	isOther := func(object *unstructured.Unstructured) bool {
		return object.GroupVersionKind() != v1alpha1.GroupVersion.WithKind("StorageClientProfile")
	}
	profiles := slices.DeleteFunc(slices.Clone(objects), isOther)
	for _, object := range profiles {
		profile := profileFrom(object)
		tryObject(object)
		for _, problem := range nodesettings.Validate(profile, catalogue.AllowList{}) {
			Expect(problem.Warning).To(BeTrue(), "%s: %s", object.GetName(), problem)
		}
	}
	return len(profiles)
}

// tryObject creates an object as a dry run, so that pages may use a name more than once.
func tryObject(object *unstructured.Unstructured) {
	GinkgoHelper()
	strict := client.WithFieldValidation(k8s, "Strict")
	Expect(strict.Create(ctx, object, client.DryRunAll)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
}
