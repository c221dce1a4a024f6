package plan

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

// A second profile does not change the settings or options of the first one: their options are equal or disjoint. The first one counts its volumes as up to date while the
// second is applied, and no message names a time in the past.
func TestASecondProfileDisturbsNoOptions(t *testing.T) {
	all := []string{"nconnect=4", "nocto", "actimeo=30", "noresvport"}
	times := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		drawOptions := func(name string) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 3, rapid.ID).Draw(t, "options of "+name)
		}
		first := builders.NFSProfile("m", drawOptions("m"))
		name := rapid.SampledFrom([]string{"a", "z"}).Draw(t, "name")
		second := builders.NFSProfile(name, drawOptions(name), builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) {
			s.Priority = rapid.Int32Range(-1, 1).Draw(t, "priority")
		}))
		var volumes []*corev1.PersistentVolume
		for i := range 3 {
			volumes = append(volumes, created(fmt.Sprintf("v%d", i), i))
		}
		at := noon
		pass := func(profiles ...v1alpha1.StorageClientProfile) Summary {
			s := Snapshot{Profiles: new(judge.Compiler).Compile(lists.Pointers(profiles), catalogue.AllowList{}, false, nil), Volumes: volumes, Now: at}
			got := Summarize("m", s)
			for _, text := range times.FindAllString(got.Batch, -1) {
				if end, err := time.Parse(time.RFC3339, text); err != nil || !end.After(at) {
					t.Fatalf("at %s: got a time in the past in %q", at.Format(time.RFC3339), got.Batch)
				}
			}
			for _, step := range For(s).Steps {
				volumes = slices.Clone(volumes)
				for i := range volumes {
					volumes[i] = volumes[i].DeepCopy()
				}
				carryOut(outer, step, volumes)
			}
			at = at.Add(7 * time.Minute)
			return got
		}
		proceed := builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) {
			s.Rollout.Volumes = &v1alpha1.VolumeRollout{OnNoEvidence: v1alpha1.NoEvidenceProceed}
		})
		proceed(&first)
		if rapid.Bool().Draw(t, "the second proceeds without evidence") {
			proceed(&second)
		}
		for range 6 {
			pass(first)
		}
		if got := pass(first); got.UpToDate != 3 {
			t.Fatalf("alone: got %d of %d up to date: %s", got.UpToDate, got.Matched, got.Batch)
		}
		for range 4 {
			if got := pass(first, second); got.UpToDate != 3 || got.IsOpen() || got.AwaitsEvidence(at) {
				t.Fatalf("with the second: got %d of %d up to date: %s", got.UpToDate, got.Matched, got.Batch)
			}
		}
	})
}
