package advice

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/test/check"
)

// maxFields is the limit of the number of fields in the spec of a profile, inner parts of selectors included. It only goes down.
const maxFields = 100

// completeBlock matches YAML that test/integration applies; it does not apply fragments.
var completeBlock = regexp.MustCompile("(?ms)^(<!-- fragment -->\n)?```yaml\n(.*?)^```$")

// addSchemaFields adds the paths of all fields of a schema, without the indexes of lists. Maps with free keys have no inner fields.
func addSchemaFields(schema map[string]any, prefix string, into map[string]bool) {
	if items, ok := schema["items"].(map[string]any); ok {
		schema = items
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, field := range properties {
		into[prefix+name] = true
		addSchemaFields(field.(map[string]any), prefix+name+".", into)
	}
}

// addShownFields adds the paths of all fields of an object.
func addShownFields(value any, prefix string, into map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			into[prefix+name] = true
			addShownFields(field, prefix+name+".", into)
		}
	case []any:
		for _, item := range value {
			addShownFields(item, prefix, into)
		}
	}
}

// appliedTexts returns all YAML that test/integration applies: presets, samples, and complete objects in the pages.
func appliedTexts(t *testing.T) (texts []string) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		isPage := path.Ext(name) == ".md" && (path.Dir(name) == "." || strings.HasPrefix(name, "docs/"))
		isShipped := path.Ext(name) == ".yaml" && (strings.HasPrefix(name, "config/profiles/") || strings.HasPrefix(name, "config/samples/"))
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(path.Base(name), "."):
			return fs.SkipDir
		case !isPage && !isShipped:
			return nil
		}
		data, err := fs.ReadFile(root, name)
		if err != nil || isShipped {
			texts = append(texts, string(data))
			return err
		}
		for _, block := range completeBlock.FindAllStringSubmatch(string(data), -1) {
			if block[1] == "" {
				texts = append(texts, block[2])
			}
		}
		return nil
	})
	if err != nil || len(texts) < 20 {
		t.Fatalf("got %d texts, %v", len(texts), err)
	}
	return texts
}

// Users learn a field from an example. A field without one costs states and tests, and can be removed.
func TestEachFieldOfTheSpecIsShownInYAMLThatATestApplies(t *testing.T) {
	data, err := os.ReadFile("../../config/crd/bases/tuning.storageclient.dev_storageclientprofiles.yaml")
	check.NoError(t, err)
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct{ Spec map[string]any }
					}
				}
			}
		}
	}
	check.NoError(t, yaml.Unmarshal(data, &definition))
	fields, shown := map[string]bool{}, map[string]bool{}
	for _, version := range definition.Spec.Versions {
		addSchemaFields(version.Schema.OpenAPIV3Schema.Properties.Spec, "", fields)
	}
	for _, text := range appliedTexts(t) {
		for _, document := range strings.Split(text, "\n---\n") {
			var object struct {
				Kind string
				Spec map[string]any
			}
			if err := yaml.Unmarshal([]byte(document), &object); err == nil && object.Kind == "StorageClientProfile" {
				addShownFields(object.Spec, "", shown)
			}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !shown[field] {
			t.Errorf("spec.%s: add an example to the page where users would look for it, or remove the field", field)
		}
	}
	if len(fields) < 50 || len(fields) > maxFields {
		t.Errorf("got %d fields in spec, want at most %d", len(fields), maxFields)
	}
}
