package judge

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func TestCompilerComparesWithTheVersionThatItCompiled(t *testing.T) {
	c := &Compiler{}
	optionsOf := func(option, version string) []string {
		p := builders.NFSProfile("fast", []string{option})
		p.UID, p.ResourceVersion = "a", version
		return Volume(Input{Volume: builders.NFSVolume(nil), Profiles: c.Compile(lists.Pointers([]v1alpha1.StorageClientProfile{p}), catalogue.AllowList{}, false, nil)}).Options
	}
	optionsOf("nconnect=4", "1")
	optionsOf("nconnect=8", "1")
	for _, version := range []string{"2", "3", "4"} {
		if diff := cmp.Diff([]string{"nconnect=8"}, optionsOf("nconnect=8", version)); diff != "" {
			t.Errorf("options of version %s (-want +got):\n%s", version, diff)
		}
	}
}

func TestCompilerKeepsNothingOfTheList(t *testing.T) {
	c := &Compiler{}
	p := builders.NFSProfile("fast", []string{"nconnect=4"})
	p.UID, p.ResourceVersion = "a", "1"
	list := []v1alpha1.StorageClientProfile{p}
	c.Compile(lists.Pointers(list), catalogue.AllowList{}, false, nil)
	q := builders.NFSProfile("fast", []string{"nconnect=8"})
	q.UID, q.ResourceVersion = "a", "2"
	list[0] = q
	got := Volume(Input{Volume: builders.NFSVolume(nil), Profiles: c.Compile(lists.Pointers(list), catalogue.AllowList{}, false, nil)}).Options
	if diff := cmp.Diff([]string{"nconnect=8"}, got); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}
