package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func snapshotOf(volumes []*corev1.PersistentVolume, list ...v1alpha1.StorageClientProfile) Snapshot {
	s := Snapshot{Profiles: new(judge.Compiler).Compile(lists.Pointers(list), catalogue.AllowList{}, false, nil), VolumeClaims: map[types.NamespacedName]*metav1.PartialObjectMetadata{}}
	for _, pv := range volumes {
		s.Volumes = append(s.Volumes, pv.DeepCopy())
		s.VolumeClaims[types.NamespacedName{Namespace: "eda", Name: "data"}] = builders.VolumeClaimOf(pv, nil)
	}
	return s
}

var fast = builders.NFSProfile("fast", []string{"nconnect=4", "nocto"})

func TestSummarize(t *testing.T) {
	wanted := []string{"nconnect=4", "nocto"}
	carried := func(name string, more ...builders.VolumeOption) *corev1.PersistentVolume {
		return builders.NFSVolume(wanted, append([]builders.VolumeOption{builders.Named(name), builders.Carrying(nil, wanted, "fast")}, more...)...)
	}
	gitOps := func(name string) *corev1.PersistentVolume {
		return builders.NFSVolume(nil, builders.Named(name), builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app"))
	}
	fourEach, oneEach := advice.Server{Name: "filer", Nconnect: 4}, advice.Server{Name: "filer"}
	tests := map[string]struct {
		snapshot Snapshot
		want     Summary
		message  string
	}{
		"counts by state, and examples by name": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{
				carried("done"), builders.NFSVolume(nil, builders.Named("pending")), gitOps("d"), gitOps("c"), gitOps("b"), gitOps("a"),
				builders.NFSVolume(nil, builders.Named("smb"), builders.CSI("smb.csi.k8s.io", nil)), builders.NFSVolume(nil, builders.Named("ignored"), builders.Annotated(v1alpha1.IgnoreAnnotation, "true")),
			}, fast),
			want: Summary{Matched: 6, UpToDate: 1, Exceptions: 4, Servers: []advice.Server{fourEach, oneEach}, Volumes: []Volume{{Name: "done", Wanted: wanted}},
				ExceptionExamples: []Note{{Volume: "a", Reason: v1alpha1.VolumeReasonDeclaredElsewhere}, {Volume: "b", Reason: v1alpha1.VolumeReasonDeclaredElsewhere}, {Volume: "c", Reason: v1alpha1.VolumeReasonDeclaredElsewhere}}},
		},
		"a deleted profile waits for volumes that carry it": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{carried("b"), carried("a"), builders.NFSVolume(nil, builders.Named("other"))}, builders.NFSProfile("fast", wanted, builders.Deleted)),
			want:     Summary{Unrestored: []string{"a", "b"}},
		},
		"a paused profile that is deleted waits too": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{carried("a")}, builders.NFSProfile("fast", wanted, builders.Deleted, builders.Paused)),
			want:     Summary{Unrestored: []string{"a"}, Matched: 0},
		},
		"volumes that must not change do not delay a deleted profile": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{
				carried("ignored", builders.Annotated(v1alpha1.IgnoreAnnotation, "true")),
				builders.NFSVolume([]string{"soft"}, builders.Named("changed"), builders.Carrying(nil, wanted, "fast", "other")),
			}, builders.NFSProfile("fast", wanted, builders.Deleted), builders.NFSProfile("other", []string{"nocto"})),
			want: Summary{},
		},
		"mode Plan counts the pending changes": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{builders.NFSVolume(nil, builders.Named("pending")), builders.NFSVolume(wanted, builders.Named("done")), gitOps("git")}, builders.NFSProfile("fast", wanted, builders.InModePlan)),
			want: Summary{Matched: 3, UpToDate: 1, Exceptions: 1, Servers: []advice.Server{fourEach, oneEach}, Volumes: []Volume{{Name: "done", Wanted: wanted}},
				ExceptionExamples: []Note{{Volume: "git", Reason: v1alpha1.VolumeReasonDeclaredElsewhere}}},
		},
		"a kept value is an exception": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{builders.NFSVolume([]string{"nconnect=2", "nocto"})}, fast),
			want: Summary{Matched: 1, Exceptions: 1, Servers: []advice.Server{{Name: "filer", Nconnect: 2}}, Volumes: []Volume{{Name: "pv1", Wanted: []string{"nocto"}}},
				ExceptionExamples: []Note{{Volume: "pv1", Reason: v1alpha1.VolumeReasonKeepsOwnValue}}},
		},
		"a value kept against another profile is no exception of this one": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{builders.NFSVolume([]string{"nconnect=4", "nocto", "soft"})}, fast, builders.NFSProfile("other", []string{"hard"})),
			want:     Summary{Matched: 1, UpToDate: 1, Servers: []advice.Server{fourEach}, Volumes: []Volume{{Name: "pv1", Wanted: wanted}}},
		},
		"nor a change that another profile declares for a volume in Git": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{builders.NFSVolume(wanted, builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app"))}, fast, builders.NFSProfile("other", []string{"hard"})),
			want:     Summary{Matched: 1, UpToDate: 1, Servers: []advice.Server{fourEach}},
		},
		"a volume that another user changed is blocked": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{builders.NFSVolume([]string{"soft"}, builders.Carrying(nil, wanted, "fast"))}, fast),
			want: Summary{Matched: 1, Blocked: 1, Servers: []advice.Server{oneEach},
				BlockedExamples: []Note{{Volume: "pv1", Reason: v1alpha1.VolumeReasonConflict}}},
		},
		"a volume that another profile's pause holds is an exception": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{carried("v", builders.Carrying(nil, wanted, "fast", "other"))},
				builders.NFSProfile("fast", []string{"nconnect=4", "nocto", "noatime"}), builders.NFSProfile("other", []string{"noac"}, builders.Paused)),
			want: Summary{Matched: 1, Exceptions: 1, Servers: []advice.Server{fourEach}, Unrestored: []string{"v"}, ExceptionExamples: []Note{{Volume: "v", Reason: v1alpha1.VolumeReasonHeld}}},
		},
		"another profile's options are not this one's": {
			snapshot: snapshotOf([]*corev1.PersistentVolume{builders.NFSVolume([]string{"nconnect=4", "nocto", "hard"})}, fast, builders.NFSProfile("other", []string{"hard"})),
			want:     Summary{Matched: 1, UpToDate: 1, Servers: []advice.Server{fourEach}, Volumes: []Volume{{Name: "pv1", Wanted: wanted}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Summarize("fast", test.snapshot)
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Note{}, "Message", "State"), cmpopts.IgnoreFields(Summary{}, "Evidence")); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExceptionsAreNamedWithBothValues(t *testing.T) {
	tests := map[string]struct {
		volume *corev1.PersistentVolume
		want   string
	}{
		"a value that is kept": {builders.NFSVolume([]string{"nconnect=2", "nocto"}), "pv1: nconnect stays 2 (profile wants 4; onConflict: KeepVolume)"},
		"a list in Git": {
			builders.NFSVolume([]string{"hard"}, builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app")),
			`pv1: Not changed: managed by Flux (kustomize.toolkit.fluxcd.io/name); mountOptions are ["hard"]; add ["nconnect=4","nocto"] there, `,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Summarize("fast", snapshotOf([]*corev1.PersistentVolume{test.volume}, fast)).DescribeExceptions(); !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	many := Summary{Exceptions: 5, ExceptionExamples: []Note{{Volume: "a", Message: "x"}, {Volume: "b", Message: "y"}, {Volume: "c", Message: "z"}}}
	if got, want := many.DescribeExceptions(), "a: x; b: y; c: z and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConflictMessageNamesThreeVolumes(t *testing.T) {
	s := Summary{Blocked: 5, BlockedExamples: []Note{
		{Volume: "a", Reason: v1alpha1.VolumeReasonConflict, Message: "changed"}, {Volume: "b", Reason: v1alpha1.VolumeReasonConflict, Message: "changed"},
		{Volume: "c", Reason: v1alpha1.VolumeReasonDeclaredElsewhere, Message: "in Git"}}}
	message, conflict := s.Conflict()
	if want := "a: VolumeConflict: changed; b: VolumeConflict: changed; c: VolumeDeclaredElsewhere: in Git and 2 more"; message != want || !conflict {
		t.Errorf("got message %q, conflict %t; want %q, true", message, conflict, want)
	}
}

func TestStaleMounts(t *testing.T) {
	volumes := []Volume{{Name: "pv1", Wanted: []string{"nconnect=4", "actimeo=30", "rsize=2097152"}}}
	effective := []string{"rw", "vers=4.1", "rsize=1048576", "acregmin=30", "acregmax=30", "acdirmin=30", "acdirmax=30", "hard", "nconnect=4"}
	old := []string{"rw", "vers=4.1", "rsize=1048576", "acregmin=3", "acregmax=60", "acdirmin=30", "acdirmax=60", "hard", "nconnect=4"}
	mount := func(volume string, options []string, state v1alpha1.MountState) v1alpha1.MountStatus {
		return v1alpha1.MountStatus{MountPoint: "/mnt/" + volume, Volume: volume, PodUIDs: []string{"uid"}, Options: options, State: state}
	}
	tests := map[string]struct {
		mount v1alpha1.MountStatus
		want  string
	}{
		"a mount with the options is effective, rounding aside": {mount: mount("pv1", effective, v1alpha1.MountEffective)},
		"a mount with old timers is stale":                      {mount: mount("pv1", old, v1alpha1.MountEffective), want: "acregmin is 3, desired 30: the mount was made with a different value"},
		"a mount that the node reports as stale is stale":       {mount: mount("pv1", effective, v1alpha1.MountStale), want: "the node reports the mount as stale"},
		"a mount of another volume is ignored":                  {mount: mount("pv2", old, v1alpha1.MountStale)},
		"a mount without a volume is ignored":                   {mount: mount("", old, v1alpha1.MountStale)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.StorageClientNodeStatus{Mounts: []v1alpha1.MountStatus{test.mount}}}
			var want []StaleMount
			if test.want != "" {
				want = []StaleMount{{Node: "n1", Volume: "pv1", MountPoint: "/mnt/pv1", Pods: []string{"uid"}, Message: test.want}}
			}
			if diff := cmp.Diff(want, StaleMounts(volumes, []*v1alpha1.StorageClientNode{&node})); diff != "" {
				t.Errorf("stale mounts (-want +got):\n%s", diff)
			}
		})
	}
}
