package volume

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

type pvOption func(*corev1.PersistentVolume)

// nfsVolume is an in-tree NFS volume of the class "nfs", bound to the claim eda/data.
func nfsVolume(options []string, more ...pvOption) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1", ResourceVersion: "7", Annotations: map[string]string{}, Labels: map[string]string{}}}
	pv.Spec.NFS = &corev1.NFSVolumeSource{Server: "filer", Path: "/data"}
	pv.Spec.StorageClassName = "nfs"
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "eda", Name: "data", UID: "claim-uid"}
	pv.Spec.MountOptions = options
	for _, o := range more {
		o(pv)
	}
	return pv
}

func annotated(key, value string) pvOption {
	return func(pv *corev1.PersistentVolume) { pv.Annotations[key] = value }
}

func labelled(key, value string) pvOption {
	return func(pv *corev1.PersistentVolume) { pv.Labels[key] = value }
}

// carrying makes a volume one that we wrote.
func carrying(original, applied []string, profiles ...string) pvOption {
	return func(pv *corev1.PersistentVolume) {
		for key, list := range map[string][]string{
			v1alpha1.OriginalMountOptionsAnnotation: original, v1alpha1.AppliedMountOptionsAnnotation: applied,
		} {
			text, err := json.Marshal(append([]string{}, list...))
			if err != nil {
				panic(err)
			}
			pv.Annotations[key] = string(text)
		}
		pv.Annotations[v1alpha1.ProfilesAnnotation] = strings.Join(profiles, ",")
	}
}

func managedBy(manager string, operation metav1.ManagedFieldsOperationType, fields string) pvOption {
	return func(pv *corev1.PersistentVolume) {
		pv.ManagedFields = append(pv.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields)})
	}
}

const ownsOptions = `{"f:spec":{"f:mountOptions":{},"f:nfs":{}}}`

type profileOption func(*v1alpha1.StorageClientProfile)

// nfsProfile has one rule for all NFS volumes.
func nfsProfile(name string, options []string, more ...profileOption) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, Finalizers: []string{v1alpha1.Finalizer}}}
	rule := v1alpha1.VolumeRule{Name: "rule", Selector: v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{v1alpha1.ProtocolNFS}}}
	for _, o := range options {
		rule.MountOptions = append(rule.MountOptions, v1alpha1.MountOption(o))
	}
	p.Spec.Volumes = []v1alpha1.VolumeRule{rule}
	for _, o := range more {
		o(&p)
	}
	return p
}

func priority(n int32) profileOption {
	return func(p *v1alpha1.StorageClientProfile) { p.Spec.Priority = n }
}

func ruled(change func(*v1alpha1.VolumeRule)) profileOption {
	return func(p *v1alpha1.StorageClientProfile) { change(&p.Spec.Volumes[0]) }
}

func onConflict(policy v1alpha1.ConflictPolicy) profileOption {
	return ruled(func(r *v1alpha1.VolumeRule) { r.OnConflict = policy })
}

var patchGitOps = ruled(func(r *v1alpha1.VolumeRule) { r.GitOpsOwned = v1alpha1.GitOpsPatch })

func selecting(selector v1alpha1.VolumeSelector) profileOption {
	return ruled(func(r *v1alpha1.VolumeRule) { r.Selector = selector })
}

func specified(change func(*v1alpha1.StorageClientProfileSpec)) profileOption {
	return func(p *v1alpha1.StorageClientProfile) { change(&p.Spec) }
}

func deleted(p *v1alpha1.StorageClientProfile) {
	now := metav1.Now()
	p.DeletionTimestamp = &now
}

var (
	retain = specified(func(s *v1alpha1.StorageClientProfileSpec) { s.DeletionPolicy = v1alpha1.DeletionRetain })
	plan   = specified(func(s *v1alpha1.StorageClientProfileSpec) { s.Mode = v1alpha1.ModePlan })
	paused = specified(func(s *v1alpha1.StorageClientProfileSpec) { s.Paused = true })
)

func claimOf(pv *corev1.PersistentVolume, labels map[string]string) *metav1.PartialObjectMetadata {
	claim := claimMetadata()
	claim.Namespace, claim.Name, claim.UID = pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID
	claim.Labels = labels
	return claim
}

func profiles(list ...v1alpha1.StorageClientProfile) Profiles {
	return Compile(list, catalogue.AllowList{}, false)
}

type outcome struct {
	Action   Action
	State    State
	Reason   string
	Options  []string
	Original []string
	Profiles []string
}

func outcomeOf(d Decision) outcome {
	out := outcome{Action: d.Action, State: d.State, Reason: d.Reason, Profiles: d.Profiles}
	if d.Action == ActionWrite || d.Action == ActionRestore {
		out.Options, out.Original = d.Options, d.Original
	}
	return out
}

var (
	fast     = nfsProfile("fast", []string{"nconnect=4", "nocto"})
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

func TestDecide(t *testing.T) {
	hard := []string{"hard"}
	merged := []string{"hard", "nconnect=4", "nocto"}
	ours := func(more ...pvOption) *corev1.PersistentVolume {
		return nfsVolume(merged, append([]pvOption{carrying(hard, merged, "fast")}, more...)...)
	}
	tests := map[string]struct {
		volume   *corev1.PersistentVolume
		profiles []v1alpha1.StorageClientProfile
		class    []string
		want     outcome
		message  string
	}{
		"first adoption keeps the volume's list as the original": {
			volume: nfsVolume(hard), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"a volume without options has an empty original": {
			volume: nfsVolume(nil), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(nil, []string{"nconnect=4", "nocto"}, "fast"),
		},
		"a volume that has the options anyway is not taken up": {
			volume: nfsVolume(merged), profiles: []v1alpha1.StorageClientProfile{fast}, want: upToDate,
		},
		"a volume that carries the options is left as it is": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{fast}, want: upToDate,
		},
		"a changed rule is merged into the original, not into the last list": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"actimeo=30"})},
			want: written(hard, []string{"hard", "actimeo=30"}, "fast"),
		},
		"the volume's own value stays by default": {
			volume: nfsVolume([]string{"nconnect=2"}), profiles: []v1alpha1.StorageClientProfile{fast},
			want:    written([]string{"nconnect=2"}, []string{"nconnect=2", "nocto"}, "fast"),
			message: "the volume's own value stays: nconnect is 2, declared 4",
		},
		"UseProfile replaces the volume's value": {
			volume: nfsVolume([]string{"nconnect=2"}), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nconnect=4"}, onConflict(v1alpha1.ConflictUseProfile))},
			want: written([]string{"nconnect=2"}, []string{"nconnect=4"}, "fast"),
		},
		"UseProfileOverClass replaces a value of the class": {
			volume: nfsVolume([]string{"nconnect=2"}), class: []string{"nconnect=2"},
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nconnect=4"}, onConflict(v1alpha1.ConflictUseProfileOverClass))},
			want:     written([]string{"nconnect=2"}, []string{"nconnect=4"}, "fast"),
		},
		"UseProfileOverClass leaves a value that the class does not have": {
			volume: nfsVolume([]string{"nconnect=2"}), class: []string{"nconnect=8"},
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nconnect=4"}, onConflict(v1alpha1.ConflictUseProfileOverClass))},
			want:     upToDate,
		},
		"a value that was replaced stays replaced when its class is deleted": {
			volume:   nfsVolume([]string{"nconnect=4"}, carrying([]string{"nconnect=2"}, []string{"nconnect=4"}, "fast")),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nconnect=4"}, onConflict(v1alpha1.ConflictUseProfileOverClass))},
			want:     upToDate,
		},

		"declared by a foreign apply manager: reported, not written": {
			volume: nfsVolume(hard, managedBy("flux", metav1.ManagedFieldsOperationApply, ownsOptions)), profiles: []v1alpha1.StorageClientProfile{fast},
			want:    leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
			message: `apply manager "flux"`,
		},
		"an apply manager of other fields declares nothing": {
			volume: nfsVolume(hard, managedBy("flux", metav1.ManagedFieldsOperationApply, `{"f:spec":{"f:nfs":{}}}`)), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"an apply manager of our own name declares nothing": {
			volume: nfsVolume(hard, managedBy(v1alpha1.VolumesFieldManager, metav1.ManagedFieldsOperationApply, ownsOptions)), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"a creator that owns the list by an update declares nothing": {
			volume: nfsVolume(hard, managedBy("csi-provisioner", metav1.ManagedFieldsOperationUpdate, ownsOptions)), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"declared by kubectl apply": {
			volume:   nfsVolume(hard, annotated(corev1.LastAppliedConfigAnnotation, `{"spec":{"mountOptions":["hard"]}}`)),
			profiles: []v1alpha1.StorageClientProfile{fast},
			want:     leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"kubectl apply of a manifest without mountOptions declares nothing": {
			volume:   nfsVolume(hard, annotated(corev1.LastAppliedConfigAnnotation, `{"spec":{"nfs":{"server":"filer"}}}`)),
			profiles: []v1alpha1.StorageClientProfile{fast},
			want:     written(hard, merged, "fast"),
		},
		"a last-applied annotation that cannot be read counts as a declaration": {
			volume: nfsVolume(hard, annotated(corev1.LastAppliedConfigAnnotation, `{`)), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by an annotation of Argo CD, with the block to paste": {
			volume: nfsVolume(hard, annotated("argocd.argoproj.io/tracking-id", "app:/PersistentVolume:/pv1")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
			message: `{ignoreDifferences: [{group: "", kind: PersistentVolume, name: pv1, jsonPointers: [/spec/mountOptions]}], ` +
				`syncPolicy: {syncOptions: [RespectIgnoreDifferences=true]}}`,
		},
		"tracked by a label of Argo CD": {
			volume: nfsVolume(hard, labelled("argocd.argoproj.io/instance", "app")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by Flux's kustomizations": {
			volume: nfsVolume(hard, labelled("kustomize.toolkit.fluxcd.io/name", "app")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by Flux's Helm releases": {
			volume: nfsVolume(hard, labelled("helm.toolkit.fluxcd.io/name", "app")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by Helm's label": {
			volume: nfsVolume(hard, labelled("app.kubernetes.io/managed-by", "Helm")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"tracked by Helm's annotation": {
			volume: nfsVolume(hard, annotated("meta.helm.sh/release-name", "app")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "fast"),
		},
		"managed by something other than Helm": {
			volume: nfsVolume(hard, labelled("app.kubernetes.io/managed-by", "somebody")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: written(hard, merged, "fast"),
		},
		"declared elsewhere with the wanted options is up to date": {
			volume: nfsVolume(merged, labelled("argocd.argoproj.io/instance", "app")), profiles: []v1alpha1.StorageClientProfile{fast}, want: upToDate,
		},
		"declared elsewhere and gitOpsOwned Patch is written": {
			volume: nfsVolume(hard, labelled("argocd.argoproj.io/instance", "app")), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, patchGitOps)},
			want: written(hard, []string{"hard", "nocto"}, "fast"),
		},
		"one rule that only reports keeps another's Patch from a declared volume": {
			volume:   nfsVolume(hard, labelled("argocd.argoproj.io/instance", "app")),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("a", []string{"nocto"}, patchGitOps), nfsProfile("b", []string{"nconnect=4"})},
			want:     leftAlone(v1alpha1.VolumeReasonDeclaredElsewhere, "a", "b"),
		},

		"changed by somebody else: left alone": {
			volume: nfsVolume([]string{"soft"}, carrying(hard, merged, "fast")), profiles: []v1alpha1.StorageClientProfile{fast},
			want:    leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
			message: `somebody else changed mountOptions to ["soft"]; last written: ["hard","nconnect=4","nocto"]`,
		},
		"put back to the original by somebody else: left alone, not written again": {
			volume: nfsVolume(hard, carrying(hard, merged, "fast")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
		},
		"reordered by somebody else: left alone": {
			volume: nfsVolume([]string{"nocto", "hard", "nconnect=4"}, carrying(hard, merged, "fast")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
		},
		"an annotation that cannot be read: left alone": {
			volume: ours(annotated(v1alpha1.OriginalMountOptionsAnnotation, "hard")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
		},
		"an annotation that is missing: left alone": {
			volume:   ours(func(pv *corev1.PersistentVolume) { delete(pv.Annotations, v1alpha1.OriginalMountOptionsAnnotation) }),
			profiles: []v1alpha1.StorageClientProfile{fast},
			want:     leftAlone(v1alpha1.VolumeReasonConflict, "fast"),
		},
		"the legacy annotation blocks": {
			volume: nfsVolume(hard, annotated(corev1.MountOptionAnnotation, "hard")), profiles: []v1alpha1.StorageClientProfile{fast},
			want: leftAlone(v1alpha1.VolumeReasonLegacyAnnotation, "fast"),
		},

		"restored when no rule selects it any more": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, selecting(v1alpha1.VolumeSelector{Servers: []string{"other"}}))},
			want: restored("hard"),
		},
		"restored when the profile is being deleted": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, deleted)}, want: restored("hard"),
		},
		"restored when the profile is being deleted from mode Plan": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, deleted, plan)}, want: restored("hard"),
		},
		"restored when the profile is gone": {volume: ours(), want: restored("hard")},
		"restored to no options at all": {
			volume: nfsVolume([]string{"nocto"}, carrying(nil, []string{"nocto"}, "fast")), want: restored(),
		},
		"let go with Retain": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, deleted, retain)}, want: released,
		},
		"let go at once with Retain, paused or not": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, deleted, retain, paused)}, want: released,
		},
		"let go without a restore where somebody else changed it": {
			volume: nfsVolume([]string{"soft"}, carrying(hard, merged, "fast")), want: released,
		},
		"let go without a restore where it has come to be declared elsewhere": {
			volume: ours(labelled("argocd.argoproj.io/instance", "app")), want: released,
		},
		"restored where it is declared elsewhere and the rule patches": {
			volume: ours(labelled("argocd.argoproj.io/instance", "app")), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, deleted, patchGitOps)},
			want: restored("hard"),
		},
		"one profile of two goes: the other's options stay, laid over the original": {
			volume:   nfsVolume([]string{"hard", "nconnect=4", "nocto"}, carrying(hard, []string{"hard", "nconnect=4", "nocto"}, "a", "b")),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("a", []string{"nconnect=4"}, deleted), nfsProfile("b", []string{"nocto"})},
			want:     written(hard, []string{"hard", "nocto"}, "b"),
		},

		"mode Plan writes nothing": {
			volume: nfsVolume(hard), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, plan)},
			want: outcome{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonNotSelected},
		},
		"mode Plan later restores nothing either": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, plan)},
			want: outcome{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld},
		},
		"a paused profile's volume stays as it is": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, paused)},
			want: outcome{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld},
		},
		"a paused profile is not restored while it is being deleted": {
			volume: ours(), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, paused, deleted)},
			want: outcome{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld},
		},
		"a profile without its finalizer writes nothing": {
			volume:   nfsVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil })},
			want:     outcome{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonNotSelected},
		},
		"an ignored volume is left alone": {
			volume: ours(annotated(v1alpha1.IgnoreAnnotation, "true")), want: outcome{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonIgnored},
		},
		"a volume that is being deleted is left alone": {
			volume: ours(func(pv *corev1.PersistentVolume) { now := metav1.Now(); pv.DeletionTimestamp = &now }),
			want:   outcome{Action: ActionNone, State: StateUnselected, Reason: v1alpha1.VolumeReasonIgnored},
		},
		"options for NFS stay away from SMB": {
			volume: nfsVolume(hard, csi("smb.csi.k8s.io", nil)), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}}))},
			want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "fast"),
		},
		"options for NFS stay away from a driver that nobody vouches for": {
			volume: nfsVolume(hard, csi("csi.example.com", nil)), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}}))},
			want: leftAlone(v1alpha1.VolumeReasonWrongProtocol, "fast"),
		},
		"a rule that names the driver vouches for it": {
			volume: nfsVolume(hard, csi("csi.example.com", nil)), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nocto"}, selecting(v1alpha1.VolumeSelector{Drivers: []string{"csi.example.com"}}))},
			want: written(hard, []string{"hard", "nocto"}, "fast"),
		},
		"options that mount would refuse together are not written": {
			volume: nfsVolume([]string{"vers=4.1"}), profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"proto=udp"})},
			want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "fast"),
		},

		"the higher priority wins key by key": {
			volume:   nfsVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("low", []string{"nconnect=2", "nocto"}), nfsProfile("high", []string{"nconnect=8"}, priority(10))},
			want:     written(hard, []string{"hard", "nconnect=8", "nocto"}, "high", "low"),
		},
		"the lower priority sets the timers that the higher one does not": {
			volume:   nfsVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("low", []string{"actimeo=30"}), nfsProfile("high", []string{"acregmin=5"}, priority(10))},
			want:     written(hard, []string{"hard", "acregmin=5", "acregmax=30", "acdirmin=30", "acdirmax=30"}, "high", "low"),
		},
		"profiles that agree do not conflict": {
			volume:   nfsVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("a", []string{"nconnect=4"}), nfsProfile("b", []string{"nconnect=4"})},
			want:     written(hard, []string{"hard", "nconnect=4"}, "a", "b"),
		},
		"equal priorities that disagree leave the option out and write the rest": {
			volume:   nfsVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("a", []string{"nconnect=4"}), nfsProfile("b", []string{"nconnect=8", "nocto"})},
			want:     written(hard, []string{"hard", "nocto"}, "a", "b"),
			message:  "profiles of equal priority disagree: nconnect=4 (a) against nconnect=8 (b)",
		},
		"equal priorities that come to disagree leave what is in force": {
			volume:   nfsVolume([]string{"hard", "nconnect=4"}, carrying(hard, []string{"hard", "nconnect=4"}, "a", "b")),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("a", []string{"nconnect=4"}), nfsProfile("b", []string{"nconnect=8"})},
			want:     leftAlone(v1alpha1.VolumeReasonConflict, "a", "b"),
		},
		"a third profile below does not settle a conflict": {
			volume: nfsVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("a", []string{"nconnect=4"}), nfsProfile("b", []string{"nconnect=8"}),
				nfsProfile("c", []string{"nconnect=2"}, priority(-1))},
			want: leftAlone(v1alpha1.VolumeReasonConflict, "a", "b", "c"),
		},
		"the first of a profile's own rules wins": {
			volume: nfsVolume(hard),
			profiles: []v1alpha1.StorageClientProfile{nfsProfile("fast", []string{"nconnect=4"}, specified(func(s *v1alpha1.StorageClientProfileSpec) {
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
			d := Decide(Input{Volume: test.volume, Claim: claimOf(test.volume, nil), Class: test.class, Profiles: profiles(test.profiles...)})
			if diff := cmp.Diff(test.want, outcomeOf(d), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("decision (-want +got), message %q:\n%s", d.Message, diff)
			}
			if !strings.Contains(d.Message, test.message) {
				t.Errorf("message is %q, want it to contain %q", d.Message, test.message)
			}
			if diff := cmp.Diff(before, test.volume); diff != "" {
				t.Errorf("Decide changed its input (-before +after):\n%s", diff)
			}
		})
	}
}

func csi(driver string, attributes map[string]string) pvOption {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NFS = nil
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle", VolumeAttributes: attributes}
	}
}

func TestDecideHoldsEverythingWhileTheManagersNamespaceIsPaused(t *testing.T) {
	pv := nfsVolume([]string{"nocto"}, carrying(nil, []string{"nocto"}, "gone"))
	d := Decide(Input{Volume: pv, Profiles: Compile(nil, catalogue.AllowList{}, true)})
	if want := (outcome{Action: ActionNone, State: StateHeld, Reason: v1alpha1.VolumeReasonHeld}); !cmp.Equal(want, outcomeOf(d)) {
		t.Errorf("decision: %s", cmp.Diff(want, outcomeOf(d)))
	}
}

func TestDecideGoesByTheClaimThatTheVolumeIsBoundTo(t *testing.T) {
	byClaim := nfsProfile("fast", []string{"nocto"}, selecting(v1alpha1.VolumeSelector{ClaimSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "tools"}}}))
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
		"a claim with the annotation ignore keeps us away": {
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
			pv := nfsVolume(nil)
			claim := test.claim(claimOf(pv, map[string]string{"role": "tools"}))
			if d := Decide(Input{Volume: pv, Claim: claim, Profiles: profiles(byClaim)}); d.Action != test.want {
				t.Errorf("action is %s (%s: %s), want %s", d.Action, d.Reason, d.Message, test.want)
			}
		})
	}
}
