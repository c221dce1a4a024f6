package plan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
)

func TestTrialTarget(t *testing.T) {
	other := builders.NFSProfile("other", []string{"actimeo=600"})
	planned := builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) { s.Mode = v1alpha1.ModePlan })
	own := func(options ...string) builders.VolumeOption {
		return func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = options }
	}
	for name, test := range map[string]struct {
		profile v1alpha1.StorageClientProfile
		volume  *corev1.PersistentVolume
		want    []string
		reason  string
	}{
		"an active profile":          {builders.NFSProfile("p", []string{"nocto"}), created("a", 0), []string{"hard", "nocto"}, ""},
		"a profile in mode Plan":     {builders.NFSProfile("p", []string{"nocto"}, planned), created("a", 0), []string{"hard", "nocto"}, ""},
		"a paused profile":           {builders.NFSProfile("p", []string{"nocto"}, builders.Paused), created("a", 0), []string{"hard", "nocto"}, ""},
		"options of another profile": {builders.NFSProfile("p", []string{"nocto"}), created("a", 0, written(other, 10)), []string{"hard", "nocto"}, ""},
		"rw on a read-only volume":   {builders.NFSProfile("p", []string{"rw", "nocto"}), created("a", 0, own("ro")), []string{"nocto", "ro"}, ""},
		"a profile whose rules select other volumes": {builders.NFSProfile("p", []string{"nocto"}), created("a", 0, func(pv *corev1.PersistentVolume) {
			pv.Spec.NFS, pv.Spec.Local = nil, &corev1.LocalVolumeSource{Path: "/a"}
		}), nil, "no rule of StorageClientProfile p selects the volume"},
		"a read-ahead alone":                {builders.NFSProfile("p", nil, builders.Ruled(func(r *v1alpha1.VolumeRule) { r.ReadAheadKiB = ptr.To[int32](1024) })), created("a", 0), []string{"hard"}, ""},
		"a profile with a forbidden option": {builders.NFSProfile("p", []string{"suid"}), created("a", 0), nil, "suid"},
		"an ignored volume": {builders.NFSProfile("p", []string{"nocto"}), created("a", 0, func(pv *corev1.PersistentVolume) {
			metav1.SetMetaDataAnnotation(&pv.ObjectMeta, v1alpha1.IgnoreAnnotation, v1alpha1.True)
		}), nil, v1alpha1.IgnoreAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			s := probedBy(other, test.volume)
			target, reason := s.TrialTarget(s.Volumes[0], &test.profile, catalogue.AllowList{})
			if !slices.Equal(target.Options, test.want) || (reason == "") != (test.reason == "") || !strings.Contains(reason, test.reason) {
				t.Errorf("got options %v, reason %q; want %v, %q", target.Options, reason, test.want, test.reason)
			}
		})
	}
}

func TestVolumeOfClaim(t *testing.T) {
	key := types.NamespacedName{Namespace: "eda", Name: "tools"}
	bound := func(uid string, phase corev1.PersistentVolumePhase) builders.VolumeOption {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef, pv.Status.Phase = &corev1.ObjectReference{Namespace: "eda", Name: "tools", UID: types.UID(uid)}, phase
		}
	}
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		found  bool
	}{
		"both name each other":          {created("a", 0, bound("1", corev1.VolumeBound)), true},
		"a claim of the same name only": {created("a", 0, bound("2", corev1.VolumeBound)), false},
		"a volume that was released":    {created("a", 0, bound("1", corev1.VolumeReleased)), false},
		"a volume without a claim":      {created("a", 0, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil }), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{Volumes: []*corev1.PersistentVolume{test.volume}, VolumeClaims: map[types.NamespacedName]*metav1.PartialObjectMetadata{
				key: {ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "tools", UID: "1"}},
			}}
			if got := s.VolumeBoundTo(key); (got != nil) != test.found {
				t.Errorf("got %v, want a volume: %t", got, test.found)
			}
			if s.VolumeBoundTo(types.NamespacedName{Namespace: "other", Name: "tools"}) != nil {
				t.Error("got the volume for a claim in another namespace, want none")
			}
		})
	}
}
