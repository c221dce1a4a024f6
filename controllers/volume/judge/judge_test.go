package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func managedBy(manager string, operation metav1.ManagedFieldsOperationType, fields string) builders.VolumeOption {
	return func(pv *corev1.PersistentVolume) {
		pv.ManagedFields = append(pv.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields)})
	}
}

const ownsOptions = `{"f:spec":{"f:mountOptions":{},"f:nfs":{}}}`

func priority(n int32) builders.ProfileOption {
	return func(p *v1alpha1.StorageClientProfile) { p.Spec.Priority = n }
}

var patchGitOps = builders.Ruled(func(r *v1alpha1.VolumeRule) { r.GitOpsOwned = v1alpha1.GitOpsPatch })

func profiles(list ...v1alpha1.StorageClientProfile) *Profiles {
	return new(Compiler).Compile(lists.Pointers(list), catalogue.AllowList{}, false, nil)
}

type outcome struct {
	Action   Action
	State    State
	Reason   string
	Options  []string
	Original []string
	Profiles []string
}

func outcomeOf(d Verdict) outcome {
	out := outcome{Action: d.Action, State: d.State, Reason: d.Reason, Profiles: d.Profiles}
	if d.Action == ActionWrite || d.Action == ActionRestore {
		out.Options, out.Original = d.Options, d.Original
	}
	return out
}

var (
	fast     = builders.NFSProfile("fast", []string{"nconnect=4", "nocto"})
	keepsOwn = outcome{Action: ActionNone, State: StateUpToDate, Reason: v1alpha1.VolumeReasonKeepsOwnValue, Profiles: []string{"fast"}}
	upToDate = outcome{Action: ActionNone, State: StateUpToDate, Reason: v1alpha1.VolumeReasonUpToDate, Profiles: []string{"fast"}}
)

func leftAlone(reason string, profiles ...string) outcome {
	return outcome{Action: ActionNone, State: StateBlocked, Reason: reason, Profiles: profiles}
}

func written(original, options []string, profiles ...string) outcome {
	return outcome{Action: ActionWrite, State: StatePending, Reason: v1alpha1.VolumeReasonOptionsMerged, Original: original, Options: options, Profiles: profiles}
}

func restored(options ...string) outcome {
	return outcome{Action: ActionRestore, State: StatePending, Reason: v1alpha1.VolumeReasonRestored, Options: options}
}

var released = outcome{Action: ActionRelease, State: StatePending, Reason: v1alpha1.VolumeReasonReleased}

func TestVerdict(t *testing.T) {
	hard := []string{"hard"}
	merged := []string{"hard", "nconnect=4", "nocto"}
	managed := func(more ...builders.VolumeOption) *corev1.PersistentVolume {
		return builders.NFSVolume(merged, append([]builders.VolumeOption{builders.Carrying(hard, merged, "fast")}, more...)...)
	}
	tests := map[string]struct {
		volume   *corev1.PersistentVolume
		profiles []v1alpha1.StorageClientProfile
		class    []string
		want     outcome
		message  string
	}{
		"first adoption keeps the volume's list as the original": {
			volume: builders.NFSVolume(hard), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"a volume without options has an empty original": {
			volume: builders.NFSVolume(nil), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(nil, []string{"nconnect=4", "nocto"}, "fast"),
		},
		"a volume that already has the options is not adopted": {
			volume: builders.NFSVolume(merged), profiles: []v1alpha1.StorageClientProfile{fast}, want: upToDate,
		},
		"a volume with the declared options is unchanged": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{fast}, want: upToDate,
		},
		"a changed rule is merged into the original, not into the last options": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"actimeo=30"})},
			want: written(hard, []string{"hard", "actimeo=30"}, "fast"),
		},
		"the value of the volume stays by default": {
			volume: builders.NFSVolume([]string{"nconnect=2"}), profiles: []v1alpha1.StorageClientProfile{fast},
			want:    written([]string{"nconnect=2"}, []string{"nconnect=2", "nocto"}, "fast"),
			message: "nconnect stays 2 (profile wants 4; onConflict: KeepVolume)",
		},
		"UseProfile replaces the volume's value": {
			volume: builders.NFSVolume([]string{"nconnect=2"}), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nconnect=4"}, builders.OnConflict(v1alpha1.ConflictUseProfile))},
			want: written([]string{"nconnect=2"}, []string{"nconnect=4"}, "fast"),
		},
		"UseProfileOverClass replaces a value of the class": {
			volume: builders.NFSVolume([]string{"nconnect=2"}), class: []string{"nconnect=2"},
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nconnect=4"}, builders.OnConflict(v1alpha1.ConflictUseProfileOverClass))},
			want:     written([]string{"nconnect=2"}, []string{"nconnect=4"}, "fast"),
		},
		"UseProfileOverClass leaves a value that the class does not have": {
			volume: builders.NFSVolume([]string{"nconnect=2"}), class: []string{"nconnect=8"},
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nconnect=4"}, builders.OnConflict(v1alpha1.ConflictUseProfileOverClass))},
			want:     keepsOwn,
		},
		"a value that was replaced stays replaced when its class is deleted": {
			volume:   builders.NFSVolume([]string{"nconnect=4"}, builders.Carrying([]string{"nconnect=2"}, []string{"nconnect=4"}, "fast")),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nconnect=4"}, builders.OnConflict(v1alpha1.ConflictUseProfileOverClass))},
			want:     upToDate,
		},

		"declared by a foreign apply manager: reported, not written": {
			volume: builders.NFSVolume(hard, managedBy("flux", metav1.ManagedFieldsOperationApply, ownsOptions)), profiles: []v1alpha1.StorageClientProfile{fast},
			want:    leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
			message: `apply manager "flux"`,
		},
		"an apply manager of other fields does not manage the options": {
			volume: builders.NFSVolume(hard, managedBy("flux", metav1.ManagedFieldsOperationApply, `{"f:spec":{"f:nfs":{}}}`)), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"an apply manager with the operator's name does not manage the options": {
			volume: builders.NFSVolume(hard, managedBy(v1alpha1.VolumesFieldManager, metav1.ManagedFieldsOperationApply, ownsOptions)), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"a creator that owns the options by an update does not manage them": {
			volume: builders.NFSVolume(hard, managedBy("csi-provisioner", metav1.ManagedFieldsOperationUpdate, ownsOptions)), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"declared by kubectl apply": {
			volume:   builders.NFSVolume(hard, builders.Annotated(corev1.LastAppliedConfigAnnotation, `{"spec":{"mountOptions":["hard"]}}`)),
			profiles: []v1alpha1.StorageClientProfile{fast},
			want:     leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"kubectl apply of a manifest without mountOptions does not manage them": {
			volume:   builders.NFSVolume(hard, builders.Annotated(corev1.LastAppliedConfigAnnotation, `{"spec":{"nfs":{"server":"filer"}}}`)),
			profiles: []v1alpha1.StorageClientProfile{fast},
			want:     written(hard, merged, "fast"),
		},
		"a last-applied annotation that cannot be read counts as a declaration": {
			volume: builders.NFSVolume(hard, builders.Annotated(corev1.LastAppliedConfigAnnotation, `{`)), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by an annotation of Argo CD, with the block to paste": {
			volume: builders.NFSVolume(hard, builders.Annotated("argocd.argoproj.io/tracking-id", "app:/PersistentVolume:/pv1")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
			message: `{ignoreDifferences: [{group: "", kind: PersistentVolume, name: pv1, jsonPointers: [/spec/mountOptions]}], ` +
				`syncPolicy: {syncOptions: [RespectIgnoreDifferences=true]}}`,
		},
		"tracked by a label of Argo CD": {
			volume: builders.NFSVolume(hard, builders.Labelled("argocd.argoproj.io/instance", "app")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by Flux's kustomizations": {
			volume: builders.NFSVolume(hard, builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by Flux's Helm releases": {
			volume: builders.NFSVolume(hard, builders.Labelled("helm.toolkit.fluxcd.io/name", "app")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by Helm's label": {
			volume: builders.NFSVolume(hard, builders.Labelled("app.kubernetes.io/managed-by", "Helm")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by Helm's annotation": {
			volume: builders.NFSVolume(hard, builders.Annotated("meta.helm.sh/release-name", "app")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"managed by something other than Helm": {
			volume: builders.NFSVolume(hard, builders.Labelled("app.kubernetes.io/managed-by", "somebody")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"options in Git that are as declared are up to date": {
			volume: builders.NFSVolume(merged, builders.Labelled("argocd.argoproj.io/instance", "app")), profiles: []v1alpha1.StorageClientProfile{fast}, want: upToDate,
		},
		"declared elsewhere and gitOpsOwned Patch is written": {
			volume: builders.NFSVolume(hard, builders.Labelled("argocd.argoproj.io/instance", "app")), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, patchGitOps)},
			want: written(hard, []string{"hard", "nocto"}, "fast"),
		},
		"one rule that only reports keeps another's Patch from a declared volume": {
			volume:   builders.NFSVolume(hard, builders.Labelled("argocd.argoproj.io/instance", "app")),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"nocto"}, patchGitOps), builders.NFSProfile("b", []string{"nconnect=4"})},
			want:     leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "a", "b"),
		},

		"changed by another user: unchanged": {
			volume: builders.NFSVolume([]string{"soft"}, builders.Carrying(hard, merged, "fast")), profiles: []v1alpha1.StorageClientProfile{fast},
			want:    leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
			message: `Another user or controller changed mountOptions to ["soft"]; last written: ["hard","nconnect=4","nocto"]`,
		},
		"restored to the original by another user: not written again": {
			volume: builders.NFSVolume(hard, builders.Carrying(hard, merged, "fast")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
		},
		"reordered by another user: unchanged": {
			volume: builders.NFSVolume([]string{"nocto", "hard", "nconnect=4"}, builders.Carrying(hard, merged, "fast")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
		},
		"an unreadable annotation: unchanged": {
			volume: managed(builders.Annotated(v1alpha1.OriginalMountOptionsAnnotation, "hard")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
		},
		"a missing annotation: unchanged": {
			volume:   managed(func(pv *corev1.PersistentVolume) { delete(pv.Annotations, v1alpha1.OriginalMountOptionsAnnotation) }),
			profiles: []v1alpha1.StorageClientProfile{fast},
			want:     leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
		},
		"the legacy annotation blocks": {
			volume: builders.NFSVolume(hard, builders.Annotated(corev1.MountOptionAnnotation, "hard")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonLegacyAnnotation, "fast"),
		},

		"restored when no rule selects it any longer": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Selecting(v1alpha1.VolumeSelector{Servers: []string{"other"}}))},
			want: restored("hard"),
		},
		"restored when the profile is being deleted": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Deleted)}, want: restored("hard"),
		},
		"restored when the profile is being deleted from mode Plan": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Deleted, builders.InModePlan)}, want: restored("hard"),
		},
		"restored when the profile is gone": {volume: managed(), want: restored("hard")},
		"restored to no options at all": {
			volume: builders.NFSVolume([]string{"nocto"}, builders.Carrying(nil, []string{"nocto"}, "fast")), want: restored(),
		},
		"released with Retain": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Deleted, builders.Retaining)}, want: released,
		},
		"released at once with Retain, paused or not": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Deleted, builders.Retaining, builders.Paused)}, want: released,
		},
		"released without a restore if another user changed it": {
			volume: builders.NFSVolume([]string{"soft"}, builders.Carrying(hard, merged, "fast")), want: released,
		},
		"released without a restore if another tool manages it now": {
			volume: managed(managedBy("argocd-controller", metav1.ManagedFieldsOperationApply, ownsOptions)), want: released,
		},
		"restored if another tool manages it and the rule patches": {
			volume: managed(builders.Labelled("argocd.argoproj.io/instance", "app")), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Deleted, patchGitOps)},
			want: restored("hard"),
		},
		"one of two profiles is deleted: the other's options stay, merged into the original": {
			volume:   builders.NFSVolume([]string{"hard", "nconnect=4", "nocto"}, builders.Carrying(hard, []string{"hard", "nconnect=4", "nocto"}, "a", "b")),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"nconnect=4"}, builders.Deleted), builders.NFSProfile("b", []string{"nocto"})},
			want:     written(hard, []string{"hard", "nocto"}, "b"),
		},

		"mode Plan does not write": {
			volume: builders.NFSVolume(hard), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.InModePlan)},
			want: outcome{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonNotSelected},
		},
		"mode Plan later restores nothing either": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.InModePlan)},
			want: outcome{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld},
		},
		"a paused profile's volume stays unchanged": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Paused)},
			want: outcome{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld},
		},
		"a paused profile is not restored while it is being deleted": {
			volume: managed(), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Paused, builders.Deleted)},
			want: outcome{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld},
		},
		"a profile without its finalizer does not write": {
			volume:   builders.NFSVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil })},
			want:     outcome{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonNotSelected},
		},
		"an ignored volume is unchanged": {
			volume: managed(builders.Annotated(v1alpha1.IgnoreAnnotation, "true")), want: outcome{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonIgnored},
		},
		"a volume that is being deleted is unchanged": {
			volume: managed(func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
			want:   outcome{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonIgnored},
		},
		"options for NFS are not written to SMB": {
			volume: builders.NFSVolume(hard, builders.CSI("smb.csi.k8s.io", nil)), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}}))},
			want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "fast"),
		},
		"options for NFS are not written to an unknown driver": {
			volume: builders.NFSVolume(hard, builders.CSI("csi.example.com", nil)), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}}))},
			want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "fast"),
		},
		"a rule that names the driver vouches for it": {
			volume: builders.NFSVolume(hard, builders.CSI("csi.example.com", nil)), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, builders.Selecting(v1alpha1.VolumeSelector{Drivers: []string{"csi.example.com"}}))},
			want: written(hard, []string{"hard", "nocto"}, "fast"),
		},
		"options that mount would reject together are not written": {
			volume: builders.NFSVolume([]string{"vers=4.1"}), profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"proto=udp"})},
			want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "fast"),
		},

		"the higher priority wins key by key": {
			volume:   builders.NFSVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("low", []string{"nconnect=2", "nocto"}), builders.NFSProfile("high", []string{"nconnect=8"}, priority(10))},
			want:     written(hard, []string{"hard", "nconnect=8", "nocto"}, "high", "low"),
		},
		"the lower priority sets the timers that the higher one does not": {
			volume:   builders.NFSVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("low", []string{"actimeo=30"}), builders.NFSProfile("high", []string{"acregmin=5"}, priority(10))},
			want:     written(hard, []string{"hard", "acregmin=5", "acregmax=30", "acdirmin=30", "acdirmax=30"}, "high", "low"),
		},
		"profiles that agree do not conflict": {
			volume:   builders.NFSVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"nconnect=4"}), builders.NFSProfile("b", []string{"nconnect=4"})},
			want:     written(hard, []string{"hard", "nconnect=4"}, "a", "b"),
		},
		"equal priorities that disagree leave the option out and write the rest": {
			volume:   builders.NFSVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"nconnect=4"}), builders.NFSProfile("b", []string{"nconnect=8", "nocto"})},
			want:     written(hard, []string{"hard", "nocto"}, "a", "b"),
			message:  "profiles of equal priority disagree: nconnect=4 (a) against nconnect=8 (b)",
		},
		"equal priorities that disagree later keep the current value": {
			volume:   builders.NFSVolume([]string{"hard", "nconnect=4"}, builders.Carrying(hard, []string{"hard", "nconnect=4"}, "a", "b")),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"nconnect=4"}), builders.NFSProfile("b", []string{"nconnect=8"})},
			want:     leftAlone(v1alpha1.VolumeReasonConflict, "a", "b"),
		},
		"a third profile below does not settle a conflict": {
			volume: builders.NFSVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"nconnect=4"}), builders.NFSProfile("b", []string{"nconnect=8"}),
				builders.NFSProfile("c", []string{"nconnect=2"}, priority(-1))},
			want: leftAlone(v1alpha1.VolumeReasonConflict, "a", "b", "c"),
		},
		"the first rule of a profile wins": {
			volume: builders.NFSVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nconnect=4"}, builders.Specified(func(s *v1alpha1.StorageClientProfileSpec) {
				second := *s.Volumes[0].DeepCopy()
				second.Name, second.MountOptions = "second", []v1alpha1.MountOption{"nconnect=8", "nocto"}
				s.Volumes = append(s.Volumes, second)
			}))},
			want: written(hard, []string{"hard", "nconnect=4", "nocto"}, "fast"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := test.volume.DeepCopy()
			d := Volume(Input{Volume: test.volume, VolumeClaim: builders.VolumeClaimOf(test.volume, nil), Class: test.class, Profiles: profiles(test.profiles...)})
			if diff := cmp.Diff(test.want, outcomeOf(d), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", d.Message, diff)
			}
			if !strings.Contains(d.Message, test.message) {
				t.Errorf("got message %q, want it to contain %q", d.Message, test.message)
			}
			if diff := cmp.Diff(before, test.volume); diff != "" {
				t.Errorf("the evaluation changed its input (-before +after):\n%s", diff)
			}
		})
	}
}

func TestVerdictHoldsEverythingWhileTheManagersNamespaceIsPaused(t *testing.T) {
	pv := builders.NFSVolume([]string{"nocto"}, builders.Carrying(nil, []string{"nocto"}, "gone"))
	d := Volume(Input{Volume: pv, Profiles: new(Compiler).Compile(nil, catalogue.AllowList{}, true, nil)})
	if want := (outcome{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld}); !cmp.Equal(want, outcomeOf(d)) {
		t.Errorf("verdict (-want +got):\n%s", cmp.Diff(want, outcomeOf(d)))
	}
}

func TestVerdictUsesTheBoundClaim(t *testing.T) {
	byClaim := builders.NFSProfile("fast", []string{"nocto"}, builders.Selecting(v1alpha1.VolumeSelector{ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "tools"}}}))
	tests := map[string]struct {
		claim func(*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata
		want  Action
	}{
		"the claim's label selects": {
			claim: func(c *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata { return c }, want: ActionWrite,
		},
		"a claim of the same name and another UID is another claim": {
			claim: func(c *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
				c.UID = types.UID("other")
				return c
			}, want: ActionNone,
		},
		"a claim with the annotation ignore excludes the volume": {
			claim: func(c *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
				c.Annotations = map[string]string{v1alpha1.IgnoreAnnotation: "true"}
				return c
			}, want: ActionNone,
		},
		"no claim": {
			claim: func(*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata { return nil }, want: ActionNone,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := builders.NFSVolume(nil)
			claim := test.claim(builders.VolumeClaimOf(pv, map[string]string{"role": "tools"}))
			if d := Volume(Input{Volume: pv, VolumeClaim: claim, Profiles: profiles(byClaim)}); d.Action != test.want {
				t.Errorf("got action %s (%s: %s), want %s", d.Action, d.Reason, d.Message, test.want)
			}
		})
	}
}
