package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/builders"
)

func verdictOf(pv *corev1.PersistentVolume, list ...v1alpha1.StorageClientProfile) Verdict {
	return Volume(Input{Volume: pv, Profiles: profiles(list...)})
}

// carryOut applies a verdict to its volume.
func carryOut(t *testing.T, pv *corev1.PersistentVolume, v Verdict) {
	t.Helper()
	annotations := AnnotationsWithout(nil)
	if v.Action == ActionWrite {
		annotations = AnnotationsWith(v, nil)
	}
	for key, value := range annotations {
		delete(pv.Annotations, key)
		if text, ok := value.(string); ok {
			pv.Annotations[key] = text
		}
	}
	if v.Action == ActionWrite || v.Action == ActionRestore {
		pv.Spec.MountOptions = v.Options
	}
}

// Users and drivers write several options into one entry. They have the same meaning as separate entries.
func TestEntriesJoinedByCommas(t *testing.T) {
	actimeo := builders.NFSProfile("fast", []string{"actimeo=600"})
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		want   outcome
	}{
		"are split when the options are written": {
			volume: builders.NFSVolume([]string{"hard,bg,nfsvers=3"}),
			want:   written([]string{"hard,bg,nfsvers=3"}, []string{"hard", "bg", "nfsvers=3", "actimeo=600"}, "fast"),
		},
		"with options that no rule may set": {
			volume: builders.NFSVolume([]string{"rw,port=2049,vers=4.1"}),
			want:   written([]string{"rw,port=2049,vers=4.1"}, []string{"rw", "port=2049", "vers=4.1", "actimeo=600"}, "fast"),
		},
		"stay unchanged without a change":    {volume: builders.NFSVolume([]string{"hard,actimeo=600"}), want: upToDate},
		"stay if the volume keeps its value": {volume: builders.NFSVolume([]string{"hard,actimeo=30"}), want: keepsOwn},
		"are restored unchanged": {
			volume: builders.NFSVolume([]string{"hard", "bg", "nocto"}, builders.Carrying([]string{"hard,bg"}, []string{"hard", "bg", "nocto"}, "gone")),
			want:   written([]string{"hard,bg"}, []string{"hard", "bg", "actimeo=600"}, "fast"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(test.volume, actimeo)
			if diff := cmp.Diff(test.want, outcomeOf(v)); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", v.Message, diff)
			}
			if carried := v.Carried["fast"]; v.Action == ActionWrite && !slices.Equal(carried, []string{"actimeo=600"}) {
				t.Errorf("got options %q from the profile, want actimeo=600", carried)
			}
		})
	}
}

// Original options are restored as documented, even if the rule is deleted or changed to ReportOnly.
func TestOptionsAreRestoredAfterThePatchingRuleIsGone(t *testing.T) {
	patching := builders.NFSProfile("fast", []string{"nocto"}, patchGitOps)
	onOther := builders.NFSProfile("fast", []string{"nocto"}, builders.Selecting(v1alpha1.VolumeSelector{Servers: []string{"other"}}))
	reporting := builders.NFSProfile("fast", []string{"nocto"})
	fluxed := func() *corev1.PersistentVolume {
		pv := builders.NFSVolume([]string{"hard"}, builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app"))
		carryOut(t, pv, verdictOf(pv, patching))
		return pv
	}
	leaving := reporting
	builders.Deleted(&leaving)
	leavingPatching := patching
	builders.Deleted(&leavingPatching)
	tracked := builders.Annotated("argocd.argoproj.io/tracking-id", "app:/PersistentVolume:/v")
	declaring := func(list string) builders.VolumeOption {
		return builders.Annotated(corev1.LastAppliedConfigAnnotation, `{"spec":{"mountOptions":`+list+`}}`)
	}
	managed := func(more ...builders.VolumeOption) *corev1.PersistentVolume {
		return builders.NFSVolume([]string{"hard", "nocto"}, append([]builders.VolumeOption{builders.Carrying([]string{"hard"}, []string{"hard", "nocto"}, "fast")}, more...)...)
	}
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		with   []v1alpha1.StorageClientProfile
		want   outcome
	}{
		"the rule goes from a living profile":                          {volume: fluxed(), with: []v1alpha1.StorageClientProfile{onOther}, want: restored("hard")},
		"the profile is gone":                                          {volume: fluxed(), want: restored("hard")},
		"the rule comes to report only: the record stays":              {volume: fluxed(), with: []v1alpha1.StorageClientProfile{reporting}, want: upToDate},
		"the rule reports only, and then the profile is deleted":       {volume: fluxed(), with: []v1alpha1.StorageClientProfile{leaving}, want: restored("hard")},
		"a manifest declares the applied options now: they stay":       {volume: managed(declaring(`["hard","nocto"]`)), want: released},
		"a manifest that declares another list is not in the way":      {volume: managed(declaring(`["hard"]`)), want: restored("hard")},
		"an apply manager declares the applied options now: they stay": {volume: managed(managedBy("kustomize-controller", metav1.ManagedFieldsOperationApply, ownsOptions)), want: released},
		"a manifest that cannot be read may declare it: it stays":      {volume: managed(builders.Annotated(corev1.LastAppliedConfigAnnotation, "{")), want: released},
		"Argo CD echoes the options in the last applied ones":          {volume: managed(tracked, declaring(`["hard","nocto"]`)), with: []v1alpha1.StorageClientProfile{leavingPatching}, want: restored("hard")},
		"Argo CD echoes the options as an apply manager": {volume: managed(tracked, managedBy("argocd-controller", metav1.ManagedFieldsOperationApply, ownsOptions)),
			with: []v1alpha1.StorageClientProfile{leavingPatching}, want: restored("hard")},
		"Argo CD echoes the options as an update manager": {volume: managed(tracked, managedBy("argocd-controller", metav1.ManagedFieldsOperationUpdate, ownsOptions)),
			with: []v1alpha1.StorageClientProfile{leavingPatching}, want: restored("hard")},
		"Argo CD echoes them, and another rule of a living profile selects nothing": {volume: managed(tracked, declaring(`["hard","nocto"]`)),
			with: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", []string{"nocto"}, patchGitOps, builders.Selecting(v1alpha1.VolumeSelector{Servers: []string{"other"}}))}, want: restored("hard")},
		"under ReportOnly Argo CD declares them itself":             {volume: managed(tracked, declaring(`["hard","nocto"]`)), with: []v1alpha1.StorageClientProfile{leaving}, want: released},
		"a user changed the options of a managed volume: they stay": {volume: builders.NFSVolume([]string{"soft"}, builders.Carrying([]string{"hard"}, []string{"hard", "nocto"}, "fast"), builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app")), want: released},
		"and Retain keeps the options of a managed volume":          {volume: fluxed(), with: []v1alpha1.StorageClientProfile{builders.NFSProfile("fast", nil, builders.Retaining)}, want: released},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(test.volume, test.with...)
			if diff := cmp.Diff(test.want, outcomeOf(v)); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", v.Message, diff)
			}
			if strings.Contains(name, "Argo CD declares") && !strings.Contains(v.Message, "Argo CD (argocd.argoproj.io/tracking-id) now manages them") {
				t.Errorf("message: got %q, want it to name Argo CD", v.Message)
			}
		})
	}
}

// Retain leaves a profile's options on the volume, even if another profile still selects it.
func TestRetainWithAnotherProfile(t *testing.T) {
	carrying := func(original, applied []string, profiles ...string) *corev1.PersistentVolume {
		return builders.NFSVolume(applied, builders.Carrying(original, applied, profiles...))
	}
	useProfile := builders.OnConflict(v1alpha1.ConflictUseProfile)
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		with   []v1alpha1.StorageClientProfile
		want   outcome
	}{
		"its options become original ones": {
			volume: carrying([]string{"hard"}, []string{"hard", "actimeo=600", "nocto"}, "a", "b"),
			with:   []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"actimeo=600"}, priority(100), builders.Retaining, builders.Deleted), builders.NFSProfile("b", []string{"nocto"})},
			want:   written([]string{"hard", "actimeo=600"}, []string{"hard", "actimeo=600", "nocto"}, "b"),
		},
		"even if its rule no longer matches": {
			volume: carrying([]string{"hard"}, []string{"hard", "actimeo=600", "nocto"}, "a", "b"),
			with: []v1alpha1.StorageClientProfile{
				builders.NFSProfile("a", []string{"actimeo=600"}, builders.Retaining, builders.Selecting(v1alpha1.VolumeSelector{Servers: []string{"other"}})),
				builders.NFSProfile("b", []string{"nocto"}),
			},
			want: written([]string{"hard", "actimeo=600"}, []string{"hard", "actimeo=600", "nocto"}, "b"),
		},
		"without a new order": {
			volume: carrying([]string{"hard"}, []string{"hard", "nocto", "actimeo=600"}, "a", "b"),
			with:   []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"actimeo=600"}, builders.Retaining, builders.Deleted), builders.NFSProfile("b", []string{"nocto"})},
			want:   written([]string{"hard", "actimeo=600"}, []string{"hard", "nocto", "actimeo=600"}, "b"),
		},
		"another spelling of an option of the other profile does not": {
			volume: carrying([]string{"hard"}, []string{"hard", "proto=tcp", "nocto"}, "a", "b"),
			with:   []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"nocto"}, priority(100), builders.Retaining, builders.Deleted), builders.NFSProfile("b", []string{"tcp"})},
			want:   written([]string{"hard", "nocto"}, []string{"hard", "nocto", "tcp"}, "b"),
		},
		"a value that the other profile replaced is restored with it": {
			volume: carrying([]string{"hard", "nconnect=2"}, []string{"hard", "nconnect=4", "actimeo=600"}, "a", "b"),
			with:   []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"actimeo=600"}, builders.Retaining, builders.Deleted), builders.NFSProfile("b", []string{"nconnect=4"}, useProfile)},
			want:   written([]string{"hard", "nconnect=2", "actimeo=600"}, []string{"hard", "nconnect=4", "actimeo=600"}, "b"),
		},
		"a value that it replaced stays replaced": {
			volume: carrying([]string{"hard", "nconnect=2"}, []string{"hard", "nconnect=8", "nocto"}, "a", "b"),
			with:   []v1alpha1.StorageClientProfile{builders.NFSProfile("a", []string{"nconnect=8"}, useProfile, builders.Retaining, builders.Deleted), builders.NFSProfile("b", []string{"nocto"})},
			want:   written([]string{"hard", "nconnect=8"}, []string{"hard", "nconnect=8", "nocto"}, "b"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(test.volume, test.with...)
			if diff := cmp.Diff(test.want, outcomeOf(v)); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", v.Message, diff)
			}
			carryOut(t, test.volume, v)
			if again := verdictOf(test.volume, test.with...); again.State != StateUpToDate {
				t.Errorf("second evaluation: got %s: %s, want %s", again.State, again.Message, StateUpToDate)
			}
		})
	}
}

// A mutating webhook that runs later may add options to a new volume: they count as original.
func TestOptionsThatAnotherWebhookAdds(t *testing.T) {
	newVolume := func(list ...string) *corev1.PersistentVolume {
		pv := builders.NFSVolume([]string{"hard"})
		for key, text := range AnnotationsOfCreation(verdictOf(pv, fast), "") {
			pv.Annotations[key] = text
		}
		pv.Spec.MountOptions = list
		return pv
	}
	ofABatch := builders.NFSVolume([]string{"hard", "nconnect=4", "nocto", "noresvport"}, builders.Carrying([]string{"hard"}, []string{"hard", "nconnect=4", "nocto"}, "fast"),
		builders.Annotated(v1alpha1.MountOptionsStepAnnotation, builders.JSON(Mark{Rules: []string{"fast/rule"}})))
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		want   outcome
	}{
		"becomes an original option":                          {newVolume("hard", "nconnect=4", "nocto", "noresvport"), written([]string{"hard", "noresvport"}, []string{"hard", "nconnect=4", "nocto", "noresvport"}, "fast")},
		"at any position":                                     {newVolume("noresvport", "hard", "nconnect=4", "nocto"), written([]string{"hard", "noresvport"}, []string{"noresvport", "hard", "nconnect=4", "nocto"}, "fast")},
		"no addition, no change":                              {newVolume("hard", "nconnect=4", "nocto"), upToDate},
		"an option is removed":                                {newVolume("hard", "nocto", "noresvport"), leftAlone(v1alpha1.VolumeReasonConflict, "fast")},
		"a volume that the operator wrote later is unchanged": {ofABatch, leftAlone(v1alpha1.VolumeReasonConflict, "fast")},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(test.volume, fast)
			if diff := cmp.Diff(test.want, outcomeOf(v)); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", v.Message, diff)
			}
			if v.Action == ActionWrite && v.ChangesOptions(test.volume) {
				t.Error("got changed options on the volume, want only a new record")
			}
			carryOut(t, test.volume, v)
			if again := verdictOf(test.volume, fast); v.Action == ActionWrite && again.State != StateUpToDate {
				t.Errorf("second evaluation: got %s: %s, want %s", again.State, again.Message, StateUpToDate)
			}
		})
	}
}

// Trident drops the options of its backend as soon as the volume has any mount options.
func TestADriverWithBackendOptions(t *testing.T) {
	of := func(protocol, fsType string) builders.VolumeOption {
		return func(pv *corev1.PersistentVolume) {
			builders.CSI("csi.trident.netapp.io", map[string]string{"protocol": protocol})(pv)
			pv.Spec.CSI.FSType = fsType
		}
	}
	rule := func(options ...string) v1alpha1.StorageClientProfile {
		return builders.NFSProfile("fast", options, builders.Selecting(v1alpha1.VolumeSelector{Drivers: []string{"csi.trident.netapp.io"}}))
	}
	for name, test := range map[string]struct {
		volume  *corev1.PersistentVolume
		with    v1alpha1.StorageClientProfile
		want    outcome
		message string
	}{
		"no options on NFS, and a rule without a version": {
			volume: builders.NFSVolume(nil, of("file", "")), with: rule("nconnect=8", "hard"), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "fast"),
			message: "driver csi.trident.netapp.io uses the options of its backend only if the volume has none; also declare nfsvers and all other options of the backend",
		},
		"no options on NFS, and a rule with a version": {
			volume: builders.NFSVolume(nil, of("file", "")), with: rule("nfsvers=3", "hard"), want: written(nil, []string{"nfsvers=3", "hard"}, "fast"),
		},
		"a volume with options no longer has those of the backend": {
			volume: builders.NFSVolume([]string{"hard"}, of("file", "")), with: rule("nconnect=8"), want: written([]string{"hard"}, []string{"hard", "nconnect=8"}, "fast"),
		},
		"no options on XFS, and a rule without nouuid": {
			volume: builders.NFSVolume(nil, of("block", "xfs")), with: rule("noatime"), want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "fast"), message: "also declare nouuid",
		},
		"no options on XFS, and a rule with nouuid": {
			volume: builders.NFSVolume(nil, of("block", "xfs")), with: rule("noatime", "nouuid"), want: written(nil, []string{"noatime", "nouuid"}, "fast"),
		},
		"options that were originally empty count as empty": {
			volume: builders.NFSVolume([]string{"nocto"}, of("file", ""), builders.Carrying(nil, []string{"nocto"}, "fast")), with: rule("nconnect=8"),
			want: leftAlone(v1alpha1.VolumeReasonInvalidOptions, "fast"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(test.volume, test.with)
			if diff := cmp.Diff(test.want, outcomeOf(v)); diff != "" {
				t.Errorf("verdict (-want +got), message %q:\n%s", v.Message, diff)
			}
			if !strings.Contains(v.Message, test.message) {
				t.Errorf("got message %q, want it to contain %q", v.Message, test.message)
			}
		})
	}
}

// The message contains a snippet in the format of the tool that declares the options.
func TestTheRemedyIsForTheTool(t *testing.T) {
	lastApplied := builders.Annotated(corev1.LastAppliedConfigAnnotation, `{"spec":{"mountOptions":["hard"]}}`)
	apply := func(manager string) builders.VolumeOption {
		return managedBy(manager, metav1.ManagedFieldsOperationApply, ownsOptions)
	}
	const list = `["hard","nconnect=4","nocto"]`
	for name, test := range map[string]struct {
		sign builders.VolumeOption
		want []string
	}{
		"kubectl apply":       {lastApplied, []string{"kubectl apply", "in the manifest: spec: {mountOptions: " + list + "}"}},
		"server-side apply":   {apply("ci"), []string{`apply manager "ci"`, "in the manifest: spec: {mountOptions: " + list + "}"}},
		"Argo CD":             {builders.Labelled("argocd.argoproj.io/instance", "app"), []string{"Argo CD", "in the Application's spec: {ignoreDifferences: [{"}},
		"Argo CD, as manager": {apply("argocd-controller"), []string{"Argo CD", "in the Application's spec: {ignoreDifferences: [{"}},
		"Flux": {builders.Labelled("kustomize.toolkit.fluxcd.io/name", "app"), []string{"Flux",
			`in the Kustomization's spec: {patches: [{target: {kind: PersistentVolume, name: pv1}, patch: '[{"op":"add","path":"/spec/mountOptions","value":` + list + `}]'}]}`}},
		"Flux, as manager": {apply("kustomize-controller"), []string{"Flux", "in the Kustomization's spec: {patches: [{"}},
		"Flux's Helm releases": {builders.Labelled("helm.toolkit.fluxcd.io/name", "app"), []string{"Flux",
			`in the HelmRelease's spec: {postRenderers: [{kustomize: {patches: [{target: {kind: PersistentVolume, name: pv1}, patch: '`}},
		"Helm": {builders.Labelled("app.kubernetes.io/managed-by", "Helm"), []string{"Helm", "in the chart's template: spec: {mountOptions: " + list + "}"}},
		"Terraform's typed resource": {managedBy("HashiCorp", metav1.ManagedFieldsOperationUpdate, `{"f:spec":{"f:nfs":{}}}`), []string{"Terraform",
			"in the resource: lifecycle { ignore_changes = [spec[0].mount_options, metadata[0].annotations] }"}},
		"Terraform's manifest": {apply("Terraform"), []string{"Terraform", `in the kubernetes_manifest: computed_fields = ["spec.mountOptions", "metadata.annotations"]`}},
		"kapp": {builders.Labelled("kapp.k14s.io/app", "1"), []string{"kapp", "next to the manifests: {apiVersion: kapp.k14s.io/v1alpha1, kind: Config, rebaseRules: [{paths: [[spec, mountOptions], " +
			"[metadata, annotations, tuning.storageclient.dev/original-mount-options], [metadata, annotations, tuning.storageclient.dev/applied-mount-options], " +
			"[metadata, annotations, tuning.storageclient.dev/profiles], [metadata, annotations, tuning.storageclient.dev/mount-options-step], " +
			"[metadata, annotations, tuning.storageclient.dev/failed-mount-options]], " +
			"type: copy, sources: [existing, new], resourceMatchers: [{kindNamespaceNameMatcher: {kind: PersistentVolume, namespace: \"\", name: pv1}}]}]}"}},
		"Pulumi":            {apply("pulumi-kubernetes-1a2b"), []string{"Pulumi", `in the resource's options: ignoreChanges: ["spec.mountOptions"]`}},
		"Pulumi by a label": {builders.Labelled("app.kubernetes.io/managed-by", "pulumi"), []string{"Pulumi", `ignoreChanges: ["spec.mountOptions"]`}},
		"Crossplane":        {apply("crossplane-kubernetes-provider"), []string{"Crossplane", "in the Object's spec.forProvider.manifest: spec: {mountOptions: " + list + "}"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(builders.NFSVolume([]string{"hard"}, test.sign), fast)
			if v.Reason != v1alpha1.VolumeReasonDeclaredElsewhere {
				t.Errorf("got reason %s: %s, want %s", v.Reason, v.Message, v1alpha1.VolumeReasonDeclaredElsewhere)
			}
			for _, want := range test.want {
				if !strings.Contains(v.Message, want) {
					t.Errorf("got message %q, want it to contain %q", v.Message, want)
				}
			}
		})
	}
}
