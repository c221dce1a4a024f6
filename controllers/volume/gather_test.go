package volume

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

func TestGathererJudgesEachVersionOnce(t *testing.T) {
	g := &Gatherer{}
	optionsOf := func(list ...v1alpha1.StorageClientProfile) []string {
		return Decide(Input{Volume: nfsVolume(nil), Profiles: g.compile(list, catalogue.AllowList{}, false)}).Options
	}
	p := nfsProfile("fast", []string{"nconnect=4"})
	p.UID, p.ResourceVersion = "a", "1"
	optionsOf(p)

	changed := nfsProfile("fast", []string{"nconnect=8"})
	changed.UID, changed.ResourceVersion = p.UID, p.ResourceVersion
	if diff := cmp.Diff([]string{"nconnect=4"}, optionsOf(changed)); diff != "" {
		t.Errorf("the same version is judged again (-want +got):\n%s", diff)
	}
	changed.ResourceVersion = "2"
	if diff := cmp.Diff([]string{"nconnect=8"}, optionsOf(changed)); diff != "" {
		t.Errorf("a new version is not judged (-want +got):\n%s", diff)
	}
	recreated := nfsProfile("fast", []string{"nocto"})
	recreated.UID, recreated.ResourceVersion = "b", "2"
	if diff := cmp.Diff([]string{"nocto"}, optionsOf(recreated)); diff != "" {
		t.Errorf("another profile of the name is not judged (-want +got):\n%s", diff)
	}
	if len(g.judged) != 1 {
		t.Errorf("%d judgements are kept, want that of the one profile there is", len(g.judged))
	}
}
