package nodesettings

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// The rules of hashes.golden apply to these lines too: they cover later fields.
func TestHashesOfLaterFieldsNeverChange(t *testing.T) {
	for file, want := range map[string][3]string{
		"raised": {"c52db8e09697ae8e", "0705087be39beafe", "6aef69c715541559"},
	} {
		p := readLater(t, file)
		hash, bootHash := Hashes(Settings(p))
		if diff := cmp.Diff(want, [3]string{hash, bootHash, PlanHash(p)}); diff != "" {
			t.Errorf("%s: hash, boot hash and plan (-before +now):\n%s", file, diff)
		}
	}
}

// Omitted fields keep their meaning. A line may be added for a new field if it describes the behavior of all earlier releases.
func TestDefaultsNeverChange(t *testing.T) {
	p := v1alpha1.StorageClientProfile{}
	p.Spec.Volumes = []v1alpha1.VolumeRule{{Name: "any"}}
	got, err := yaml.Marshal(p.Spec.WithDefaults())
	check.NoError(t, err)
	want, err := os.ReadFile("testdata/defaults.golden.yaml")
	check.NoError(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("defaults (-before +now):\n%s", diff)
	}
}

func readLater(t *testing.T, file string) *v1alpha1.StorageClientProfile {
	t.Helper()
	data, err := os.ReadFile("testdata/later/" + file + ".yaml")
	check.NoError(t, err)
	p := &v1alpha1.StorageClientProfile{}
	check.NoError(t, yaml.UnmarshalStrict(data, p))
	return p
}
