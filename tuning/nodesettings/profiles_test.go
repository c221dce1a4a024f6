package nodesettings

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Every profile that is handed out can be carried out as it stands.
func TestProfilesThatAreHandedOut(t *testing.T) {
	files, err := filepath.Glob("../../config/profiles/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	profiles := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.StorageClientProfile
		if err := yaml.Unmarshal(content, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if p.Kind != "StorageClientProfile" {
			continue
		}
		if err := yaml.UnmarshalStrict(content, &p); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		profiles[filepath.Base(filepath.Dir(file))] = true
		for _, problem := range Validate(&p, catalogue.AllowList{}) {
			if !problem.Warning {
				t.Errorf("%s: %s", file, problem)
			}
		}
	}
	for _, name := range []string{"azure-files-large-directories", "azure-netapp-files-eda", "azure-netapp-files-eda-literal", "nfs41-hpc", "smb-shares", "xfs-many-small-files"} {
		if !profiles[name] {
			t.Errorf("config/profiles/%s has no profile", name)
		}
	}
}

// What is the advice of these two works without a warning.
func TestProfilesOfDisksAndSharesWarnOfNothing(t *testing.T) {
	for _, name := range []string{"smb-shares", "xfs-many-small-files"} {
		content, err := os.ReadFile(filepath.Join("../../config/profiles", name, "profile.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.StorageClientProfile
		if err := yaml.UnmarshalStrict(content, &p); err != nil {
			t.Fatal(err)
		}
		for _, problem := range Validate(&p, catalogue.AllowList{}) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}
