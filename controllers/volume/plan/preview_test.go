package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/advice"
)

func TestPreviewVolumesReturnsOldAndNewOptions(t *testing.T) {
	wanted := []string{"nconnect=4", "nocto"}
	volumes := []*corev1.PersistentVolume{
		builders.NFSVolume([]string{"hard"}, builders.Named("pv-new")),
		builders.NFSVolume(wanted, builders.Named("pv-done"), builders.Carrying(nil, wanted, "fast")),
		builders.NFSVolume(nil, builders.Named("pv-git"), builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app")),
		builders.NFSVolume([]string{"soft"}, builders.Named("pv-left"), builders.Carrying([]string{"hard"}, []string{"soft"}, "gone")),
	}
	volumes = append(volumes, builders.NFSVolume([]string{"hard"}, builders.Named("pv-annotated")))
	volumes[4].Annotations = map[string]string{corev1.MountOptionAnnotation: "soft"}
	describe := func(changes []Change) []string {
		var out []string
		for _, c := range changes {
			out = append(out, c.Volume+" of "+strings.Join(c.Profiles, ",")+": "+strings.Join(c.Old, ",")+" > "+strings.Join(c.New, ","))
		}
		return out
	}
	t.Run("of the requested profiles", func(t *testing.T) {
		got := PreviewVolumes([]string{"fast"}, snapshotOf(volumes, fast))
		if diff := cmp.Diff([]string{"pv-left of fast,gone: soft > hard,nconnect=4,nocto", "pv-new of fast: hard > hard,nconnect=4,nocto"}, describe(got.Changes)); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"pv-git of fast:  > "}, describe(got.Exceptions)); diff != "" || got.Exceptions[0].Reason != v1alpha1.VolumeReasonDeclaredElsewhere {
			t.Errorf("got exceptions %+v (-want +got):\n%s", got.Exceptions, diff)
		}
		if diff := cmp.Diff([]string{"pv-annotated of fast: hard > hard"}, describe(got.Blocked)); diff != "" || got.Blocked[0].Reason != v1alpha1.VolumeReasonLegacyAnnotation {
			t.Errorf("got blocked volumes %+v (-want +got):\n%s", got.Blocked, diff)
		}
		if got.Matched != 5 || got.UpToDate != 1 || got.ChangedBy["fast"] != 2 {
			t.Errorf("got %d matched, %d up to date, %v changed; want 5, 1, 2 by fast", got.Matched, got.UpToDate, got.ChangedBy)
		}
		if diff := cmp.Diff(map[string][]advice.Server{"fast": {{Name: "filer", Nconnect: 4}, {Name: "filer"}}}, got.Servers); diff != "" {
			t.Errorf("servers (-want +got):\n%s", diff)
		}
	})
	t.Run("a volume that a profile releases gets its original options", func(t *testing.T) {
		smb := fast
		smb.Spec.Volumes = nil
		got := PreviewVolumes([]string{"fast"}, snapshotOf(volumes, smb))
		if diff := cmp.Diff([]string{"pv-done of fast: nconnect=4,nocto > "}, describe(got.Changes)); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
	})
	t.Run("a volume that a profile with the policy Retain releases keeps its options", func(t *testing.T) {
		retaining := fast
		retaining.Spec.Volumes, retaining.Spec.DeletionPolicy = nil, v1alpha1.DeletionRetain
		if got := PreviewVolumes([]string{"fast"}, snapshotOf(volumes, retaining)); len(got.Changes) > 0 {
			t.Errorf("got changes %q, want none", describe(got.Changes))
		}
	})
	t.Run("others are left out", func(t *testing.T) {
		if got := PreviewVolumes([]string{"other"}, snapshotOf(volumes, fast)); len(got.Changes)+len(got.Blocked)+got.Matched > 0 {
			t.Errorf("preview of a profile without volumes: got %+v, want it empty", got)
		}
	})
}
