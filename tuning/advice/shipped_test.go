package advice

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// shipped returns the profiles of config and of the documentation, by a name for messages.
func shipped(t *testing.T) map[string]v1alpha1.StorageClientProfile {
	t.Helper()
	documents := map[string]string{}
	for _, pattern := range []string{"../../config/profiles/*/*.yaml", "../../config/samples/*.yaml", "../../README.md", "../../docs/*.md", "../../docs/guides/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: got %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			check.NoError(t, err)
			texts := []string{string(data)}
			if strings.HasSuffix(file, ".md") {
				texts = nil
				for _, block := range yamlBlock.FindAllStringSubmatch(string(data), -1) {
					texts = append(texts, block[1])
				}
			}
			for _, text := range texts {
				for _, document := range strings.Split(text, "\n---\n") {
					if strings.Contains(document, "kind: StorageClientProfile\n") {
						documents[file+", "+document] = document
					}
				}
			}
		}
	}
	profiles := map[string]v1alpha1.StorageClientProfile{}
	for name, document := range documents {
		var p v1alpha1.StorageClientProfile
		if err := yaml.UnmarshalStrict([]byte(document), &p); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		file, _, _ := strings.Cut(name, ", ")
		profiles[file+", "+p.Name] = p
	}
	return profiles
}

// The shipped profiles and the profiles in the documentation follow the advice of the project.
func TestShippedProfilesHaveNoWarnings(t *testing.T) {
	profiles := shipped(t)
	if len(profiles) < 10 {
		t.Fatalf("got only %d profiles", len(profiles))
	}
	for name, p := range profiles {
		for _, a := range For(Input{Profile: &p}) {
			if a.Severity != v1alpha1.SeverityInfo {
				t.Errorf("%s: %s %s: %s", name, a.Severity, a.ID, a.Text)
			}
		}
		for _, problem := range nodesettings.Validate(&p, catalogue.AllowList{}) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}
