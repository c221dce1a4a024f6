package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

func TestList(t *testing.T) {
	wanted := []string{"nconnect=4", "nocto"}
	volumes := []*corev1.PersistentVolume{
		builders.NFSVolume([]string{"ro"}, builders.Named("pending")),
		builders.NFSVolume(wanted, builders.Named("done"), builders.Carrying(nil, wanted, "fast")),
		builders.NFSVolume(nil, builders.Named("git"), builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app")),
		builders.NFSVolume(nil, builders.Named("smb"), builders.CSI("smb.csi.k8s.io", nil)),
		builders.NFSVolume(wanted, builders.Named("left"), builders.Carrying([]string{"ro"}, wanted, "gone")),
	}
	row := func(name string, state VolumeState, reason string, now, wanted []string, profiles ...string) Listed {
		return Listed{Volume: name, VolumeClaim: "eda/data", Protocol: v1alpha1.ProtocolNFS, Profiles: profiles, Now: now, Desired: wanted, State: state, Reason: reason}
	}
	pending := row("pending", VolumePending, v1alpha1.VolumeReasonOptionsMerged, []string{"ro"}, []string{"ro", "nconnect=4", "nocto"}, "fast")
	done := row("done", VolumeUpToDate, v1alpha1.VolumeReasonUpToDate, wanted, wanted, "fast")
	git := row("git", VolumeException, v1alpha1.VolumeReasonDeclaredElsewhere, []string{}, wanted, "fast")
	for name, test := range map[string]struct {
		profile string
		list    []v1alpha1.StorageClientProfile
		want    []Listed
		held    bool
	}{
		"of one profile":      {"fast", []v1alpha1.StorageClientProfile{fast}, []Listed{done, git, pending}, false},
		"of a paused profile": {"fast", []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", wanted, builders.Paused)}, []Listed{done, git, pending}, true},
		"of another":          {"other", []v1alpha1.StorageClientProfile{fast}, nil, false},
		"leftovers of a deleted profile": {
			"gone", nil, []Listed{row("left", VolumePending, v1alpha1.VolumeReasonRestored, wanted, []string{"ro"}, "gone")}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotOf(volumes[:4], test.list...)
			if test.profile == "gone" {
				s = snapshotOf(volumes[4:])
			}
			s.Now = time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
			got, held := List(test.profile, s)
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(Listed{}, "Message", "Driver", "Exceptions")); diff != "" || held != test.held {
				t.Errorf("got held %t, want %t; list (-want +got):\n%s", held, test.held, diff)
			}
		})
	}
}

// A kept original value is an exception, even if no write is pending.
func TestListReportsKeptValues(t *testing.T) {
	keptOptions := []string{"nconnect=2", "nocto"}
	volumes := []*corev1.PersistentVolume{
		builders.NFSVolume(keptOptions, builders.Named("keeps"), builders.Carrying([]string{"nconnect=2"}, keptOptions, "fast")),
		builders.NFSVolume([]string{"nconnect=4", "nocto"}, builders.Named("done"), builders.Carrying(nil, []string{"nconnect=4", "nocto"}, "fast")),
	}
	for _, profile := range []string{"fast", ""} {
		listed, _ := List(profile, snapshotOf(volumes, fast))
		if len(listed) != 2 || len(listed[0].Exceptions) != 0 || listed[0].Volume != "done" {
			t.Fatalf("list of %q: got %+v, want two volumes, the first without exceptions", profile, listed)
		}
		want := []string{"nconnect stays 2 (profile wants 4; onConflict: KeepVolume)"}
		if diff := cmp.Diff(want, listed[1].Exceptions); diff != "" || !cmp.Equal(listed[1].Now, listed[1].Desired) {
			t.Errorf("list of %q: got %+v; exceptions (-want +got):\n%s", profile, listed[1], diff)
		}
	}
}

// The list contains the kubelet's message, which is too long for the condition.
func TestListReportsFailedMounts(t *testing.T) {
	s := snapshotOf([]*corev1.PersistentVolume{created("a", 9, failedFor(fast)), created("b", 5)}, fast)
	s.Now = noon
	listed, _ := List("fast", s)
	if want := `; it could not be mounted with ["hard","nocto"] (driver kubernetes.io/nfs, event: "exit status 32")`; len(listed) != 2 || !strings.HasSuffix(listed[0].Message, want) {
		t.Errorf("got %+v, want the message of a to end with %q", listed, want)
	}
	if strings.Contains(listed[1].Message, "exit status 32") {
		t.Errorf("message of b without a failed mount: got %q, want no failure", listed[1].Message)
	}
}

func TestListOfAllNamesEveryVolumeThatConcernsAProfile(t *testing.T) {
	s := snapshotOf([]*corev1.PersistentVolume{
		builders.NFSVolume(nil, builders.Named("b")), builders.NFSVolume(nil, builders.Named("a")), builders.NFSVolume(nil, builders.Named("smb"), builders.CSI("smb.csi.k8s.io", nil)),
	}, fast)
	got, _ := List("", s)
	var names []string
	for _, v := range got {
		names = append(names, v.Volume)
	}
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if got, held := List("fast", Snapshot{}); got != nil || held {
		t.Errorf("list of an empty snapshot: got %v, held %t; want none", got, held)
	}
}
