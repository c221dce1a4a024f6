package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
)

// carrying gives a volume the record of a write by the operator.
func carrying(pv *corev1.PersistentVolume, applied, profiles string) {
	pv.Annotations = map[string]string{v1alpha1.OriginalMountOptionsAnnotation: "[]", v1alpha1.AppliedMountOptionsAnnotation: applied, v1alpha1.ProfilesAnnotation: profiles}
}

// standingCases are changes of the cluster with the volume pv1, which has the option nocto, and the profile eda, which declares it.
var standingCases = map[string]struct {
	change   func(pv *corev1.PersistentVolume, eda, other *v1alpha1.StorageClientProfile)
	standing volumeplan.VolumeState
	reason   string
}{
	"has the declared options": {func(pv *corev1.PersistentVolume, _, _ *v1alpha1.StorageClientProfile) {
		carrying(pv, `["nocto"]`, "eda")
	}, volumeplan.VolumeUpToDate, v1alpha1.VolumeReasonUpToDate},
	"lacks an option": {func(pv *corev1.PersistentVolume, _, _ *v1alpha1.StorageClientProfile) {
		pv.Spec.MountOptions = nil
	}, volumeplan.VolumePending, v1alpha1.VolumeReasonOptionsMerged},
	"is no longer selected": {func(pv *corev1.PersistentVolume, eda, _ *v1alpha1.StorageClientProfile) {
		carrying(pv, `["nocto"]`, "eda")
		eda.Spec.Volumes[0].Selector.Servers = []string{"elsewhere"}
	}, volumeplan.VolumePending, v1alpha1.VolumeReasonRestored},
	"is no longer selected by a profile that retains": {func(pv *corev1.PersistentVolume, eda, _ *v1alpha1.StorageClientProfile) {
		carrying(pv, `["nocto"]`, "eda")
		eda.Spec.Volumes[0].Selector.Servers, eda.Spec.DeletionPolicy = []string{"elsewhere"}, v1alpha1.DeletionRetain
	}, volumeplan.VolumePending, v1alpha1.VolumeReasonReleased},
	"keeps a value": {func(pv *corev1.PersistentVolume, eda, _ *v1alpha1.StorageClientProfile) {
		pv.Spec.MountOptions, eda.Spec.Volumes[0].MountOptions = []string{"nconnect=2"}, []v1alpha1.MountOption{"nconnect=8"}
	}, volumeplan.VolumeException, v1alpha1.VolumeReasonKeepsOwnValue},
	"is declared in Git": {func(pv *corev1.PersistentVolume, _, _ *v1alpha1.StorageClientProfile) {
		pv.Labels, pv.Spec.MountOptions = map[string]string{"kustomize.toolkit.fluxcd.io/name": "app"}, nil
	}, volumeplan.VolumeException, v1alpha1.VolumeReasonDeclaredElsewhere},
	"is declared in Git and lacks an option of another profile": {func(pv *corev1.PersistentVolume, _, other *v1alpha1.StorageClientProfile) {
		pv.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "app"}
		other.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"acregmax=60"}
	}, volumeplan.VolumeUpToDate, v1alpha1.VolumeReasonDeclaredElsewhere},
	"carries options of a paused profile": {func(pv *corev1.PersistentVolume, _, other *v1alpha1.StorageClientProfile) {
		carrying(pv, `["nocto"]`, "eda,other")
		other.Spec.Paused = true
	}, volumeplan.VolumeException, v1alpha1.VolumeReasonHeld},
	"is selected by profiles that disagree": {func(_ *corev1.PersistentVolume, eda, other *v1alpha1.StorageClientProfile) {
		eda.Spec.Volumes[0].MountOptions, other.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nocto", "acregmax=30"}, []v1alpha1.MountOption{"acregmax=60"}
	}, volumeplan.VolumeBlocked, v1alpha1.VolumeReasonConflict},
	"is selected by profiles that disagree about the read-ahead window": {func(_ *corev1.PersistentVolume, eda, other *v1alpha1.StorageClientProfile) {
		eda.Spec.Volumes[0].ReadAheadKiB, other.Spec.Volumes[0].ReadAheadKiB = ptr.To[int32](512), ptr.To[int32](1024)
	}, volumeplan.VolumeBlocked, v1alpha1.VolumeReasonConflict},
	"was changed by a user": {func(pv *corev1.PersistentVolume, _, _ *v1alpha1.StorageClientProfile) {
		carrying(pv, `["nocto","hard"]`, "eda")
	}, volumeplan.VolumeBlocked, v1alpha1.VolumeReasonConflict},
	"has the legacy annotation": {func(pv *corev1.PersistentVolume, _, _ *v1alpha1.StorageClientProfile) {
		pv.Annotations = map[string]string{corev1.MountOptionAnnotation: "soft"}
	}, volumeplan.VolumeBlocked, v1alpha1.VolumeReasonLegacyAnnotation},
	"has no class to follow": {func(_ *corev1.PersistentVolume, eda, _ *v1alpha1.StorageClientProfile) {
		eda.Spec.Volumes[0].MountOptionsFrom = v1alpha1.MountOptionsFromClass
	}, volumeplan.VolumeBlocked, v1alpha1.VolumeReasonNoClass},
	"is of an unknown driver": {func(pv *corev1.PersistentVolume, eda, _ *v1alpha1.StorageClientProfile) {
		pv.Spec.NFS, pv.Spec.CSI, pv.Spec.StorageClassName = nil, &corev1.CSIPersistentVolumeSource{Driver: "vendor.example.com"}, "gold"
		eda.Spec.Volumes[0].Selector = v1alpha1.VolumeSelector{StorageClassNames: []string{"gold"}}
	}, volumeplan.VolumeBlocked, v1alpha1.VolumeReasonWrongProtocol},
	"is a device": {func(pv *corev1.PersistentVolume, _, _ *v1alpha1.StorageClientProfile) {
		pv.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	}, volumeplan.VolumeBlocked, v1alpha1.VolumeReasonNoMount},
	"has a driver that would change a declared option": {func(pv *corev1.PersistentVolume, eda, _ *v1alpha1.StorageClientProfile) {
		pv.Spec.NFS, pv.Spec.CSI = nil, &corev1.CSIPersistentVolumeSource{Driver: "file.csi.azure.com", VolumeAttributes: map[string]string{"protocol": "nfs"}}
		pv.Spec.MountOptions, eda.Spec.Volumes[0].MountOptions = nil, []v1alpha1.MountOption{"nconnect=4", "vers=4.2"}
	}, volumeplan.VolumeBlocked, v1alpha1.VolumeReasonInvalidOptions},
}

// TestAllOutputsAgreeOnEachStanding compares volumes, diff, plan and the status.
func TestAllOutputsAgreeOnEachStanding(t *testing.T) {
	seen := map[volumeplan.VolumeState]bool{volumeplan.VolumeHeld: true} // only without a profile: see TestVolumesOfAllProfilesAreHeld
	for name, test := range standingCases {
		seen[test.standing] = true
		t.Run("a volume "+name, func(t *testing.T) {
			profile, other := eda(), eda()
			profile.Spec.Node, other.Spec.Node, other.Name = nil, nil, "other"
			pv := cluster()[2].(*corev1.PersistentVolume)
			test.change(pv, profile, other)
			objects := []client.Object{pv, profile}
			if len(other.Spec.Volumes[0].MountOptions) > 0 && other.Spec.Volumes[0].MountOptions[0] != "nocto" || other.Spec.Paused || other.Spec.Volumes[0].ReadAheadKiB != nil {
				objects = append(objects, other)
			}
			w := planWorldOf(t, 1, objects)
			w.reconcile(w.profiles, "eda")
			live, err := getProfile(t.Context(), w.client, "eda")
			w.must(err)
			v := w.volumesOf("eda")[0]
			if v.State != test.standing || v.Reason != test.reason {
				t.Fatalf("got %s %s: %s; want %s %s", v.State, v.Reason, v.Message, test.standing, test.reason)
			}
			status, want := live.Status.Volumes, [3]int32{}
			for i, standing := range []volumeplan.VolumeState{volumeplan.VolumeUpToDate, volumeplan.VolumeException, volumeplan.VolumeBlocked} {
				if standing == v.State {
					want[i] = 1
				}
			}
			if got := [3]int32{status.UpToDate, status.Exceptions, status.Blocked}; got != want {
				t.Errorf("status counts %v volumes up to date, as exceptions and blocked, want %v", got, want)
			}
			out := map[string]string{"volumes": w.run("", "volumes", "eda").out, "diff": w.run("", "diff", "eda").out, "plan": w.run("", "plan", "eda").out}
			wants := map[string][]string{"volumes": {fmt.Sprintf("1 volume matches profile eda: 1 %s.", v.State)}}
			switch message := "pv1: " + v.Reason + ": " + v.Message; v.State {
			case volumeplan.VolumeUpToDate:
				wants["diff"], wants["plan"] = []string{"1 volume has the mount options of eda."}, []string{"0 volumes would change, 1 up to date, 0 left unchanged."}
			case volumeplan.VolumePending:
				wants["diff"] = []string{"1 volume (pv1): " + v.Reason}
			case volumeplan.VolumeException:
				wants["plan"] = []string{"0 volumes would change, 0 up to date, 1 exception, 0 left unchanged.", message}
			case volumeplan.VolumeBlocked:
				wants["plan"] = []string{"0 volumes would change, 0 up to date, 1 left unchanged.", message}
			case volumeplan.VolumeHeld:
				t.Error("a volume of an active profile is held")
			}
			if v.State == volumeplan.VolumeException || v.State == volumeplan.VolumeBlocked {
				wants["volumes"] = append(wants["volumes"], "pv1: "+v.Reason+": "+v.Message)
				wants["diff"] = []string{"1 volume (pv1): " + v.Reason, "  " + v.Message}
			}
			for command, texts := range wants {
				for _, want := range texts {
					if !strings.Contains(out[command], want) {
						t.Errorf("%s lacks %q:\n%s", command, want, out[command])
					}
				}
			}
			if v.State != volumeplan.VolumeUpToDate && strings.Contains(out["diff"], "has the mount options") {
				t.Errorf("diff counts the volume as up to date:\n%s", out["diff"])
			}
		})
	}
	for _, standing := range volumeplan.VolumeStates {
		if !seen[standing] {
			t.Errorf("no case for %s", standing)
		}
	}
}

func TestVolumesOfAllProfilesAreHeld(t *testing.T) {
	objects := cluster()
	pv, profile := objects[2].(*corev1.PersistentVolume), eda()
	carrying(pv, `["nocto"]`, "eda")
	profile.Spec.Paused = true
	w := planWorldOf(t, 1, append(objects, profile))
	if out := w.run("", "volumes").out; !strings.Contains(out, "1 volume matches any profile: 1 Held.") {
		t.Errorf("got:\n%s", out)
	}
}

// Two profiles disagree about one option, and the new one declares another one as well: the volume is written, and differs after the write.
func TestThePlanShowsTheConflictNextToAWrittenOption(t *testing.T) {
	other := eda()
	other.Name, other.Spec.Node, other.Spec.Volumes[0].MountOptions = "other", nil, []v1alpha1.MountOption{"acregmax=30"}
	objects := append(slices.DeleteFunc(fileCluster(), func(o client.Object) bool { return o.GetName() == "eda" }), other)
	file := strings.Replace(edaFile, "[nocto, nconnect=4]", "[noresvport, acregmax=60]", 1)
	w := planWorldOf(t, 1, objects)
	const conflict = "pv1: VolumeConflict: Profiles of equal priority disagree: acregmax=60 (eda) against acregmax=30 (other); " +
		"these options keep their values, all others are as declared; give one of them a higher priority"
	planned := w.run(file, "plan", "-f", "-").out
	for _, want := range []string{"+ nocto,noresvport", "1 volume still different after the change:\n  " + conflict} {
		if !strings.Contains(planned, want) {
			t.Errorf("the plan lacks %q:\n%s", want, planned)
		}
	}
	written := eda()
	written.Spec.Volumes[0].MountOptions, written.Spec.Node = []v1alpha1.MountOption{"noresvport", "acregmax=60"}, nil
	w.apply([]*v1alpha1.StorageClientProfile{written})
	w.settle()
	for command, want := range map[string]string{"volumes": conflict, "diff": strings.TrimPrefix(conflict, "pv1: VolumeConflict: "), "plan": conflict} {
		if out := w.run("", command, "eda").out; !strings.Contains(out, want) || strings.Contains(out, "has the mount options") {
			t.Errorf("%s lacks %q, or counts the volume as up to date:\n%s", command, want, out)
		}
	}
}
