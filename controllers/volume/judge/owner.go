package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// tool is another tool that declares volumes. Its instructions are YAML in flow style or the tool's language, so that they can be pasted from
// an event.
type tool struct {
	name string
	// declare returns instructions to declare the mount options in the tool, cede to let the operator manage them. One of them is nil.
	declare func(volume string, list []string) string
	cede    func(volume string) string
}

var (
	argoCD = &tool{name: "Argo CD", cede: func(volume string) string {
		return fmt.Sprintf(`in the Application's spec: {ignoreDifferences: [{group: "", kind: PersistentVolume, name: %s, `+
			`jsonPointers: [/spec/mountOptions]}], syncPolicy: {syncOptions: [RespectIgnoreDifferences=true]}}`, volume)
	}}
	flux = &tool{name: "Flux", declare: func(volume string, list []string) string {
		return fmt.Sprintf("in the Kustomization's spec: {%s}", fluxPatch(volume, list))
	}}
	fluxHelm = &tool{name: "Flux", declare: func(volume string, list []string) string {
		return fmt.Sprintf("in the HelmRelease's spec: {postRenderers: [{kustomize: {%s}}]}", fluxPatch(volume, list))
	}}
	helm = &tool{name: "Helm", declare: func(_ string, list []string) string { return "in the chart's template: " + specBlock(list) }}
	kapp = &tool{name: "kapp", cede: func(volume string) string {
		return fmt.Sprintf(`next to the manifests: {apiVersion: kapp.k14s.io/v1alpha1, kind: Config, rebaseRules: [{paths: [%s], type: copy, `+
			`sources: [existing, new], resourceMatchers: [{kindNamespaceNameMatcher: {kind: PersistentVolume, namespace: "", name: %s}}]}]}`,
			kappPaths(), volume)
	}}
	pulumi     = &tool{name: "Pulumi", cede: func(string) string { return `in the resource's options: ignoreChanges: ["spec.mountOptions"]` }}
	crossplane = &tool{name: "Crossplane", declare: func(_ string, list []string) string {
		return "in the Object's spec.forProvider.manifest: " + specBlock(list)
	}}
	terraformTyped = &tool{name: "Terraform", cede: func(string) string {
		return "in the resource: lifecycle { ignore_changes = [spec[0].mount_options, metadata[0].annotations] }"
	}}
	terraformManifest = &tool{name: "Terraform", cede: func(string) string {
		return `in the kubernetes_manifest: computed_fields = ["spec.mountOptions", "metadata.annotations"]`
	}}
	kubectlApply = &tool{name: "kubectl apply", declare: inManifest}
	anyApply     = &tool{declare: inManifest}
)

func inManifest(_ string, list []string) string { return "in the manifest: " + specBlock(list) }

// kappPaths returns the paths that kapp must leave unchanged. kapp removes annotations that its manifests do not name, unless its rules copy
// them.
func kappPaths() string {
	paths := []string{"[spec, mountOptions]"}
	for _, key := range slices.Concat(recordAnnotations, markAnnotations) {
		paths = append(paths, "[metadata, annotations, "+key+"]")
	}
	return strings.Join(paths, ", ")
}

func specBlock(list []string) string { return fmt.Sprintf("spec: {mountOptions: %s}", listText(list)) }

func fluxPatch(volume string, list []string) string {
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/mountOptions","value":%s}]`, listText(list))
	return fmt.Sprintf("patches: [{target: {kind: PersistentVolume, name: %s}, patch: '%s'}]", volume, strings.ReplaceAll(patch, "'", "''"))
}

// trackingSign is a label or an annotation with which a tool marks its objects.
type trackingSign struct {
	key  string
	tool *tool
	// value limits the sign to one value. Empty matches any value.
	value string
}

var trackingSigns = []trackingSign{
	{key: "argocd.argoproj.io/tracking-id", tool: argoCD},
	{key: "argocd.argoproj.io/instance", tool: argoCD},
	{key: "kustomize.toolkit.fluxcd.io/name", tool: flux},
	{key: "helm.toolkit.fluxcd.io/name", tool: fluxHelm},
	{key: "app.kubernetes.io/managed-by", tool: helm, value: "Helm"},
	{key: "meta.helm.sh/release-name", tool: helm},
	{key: "kapp.k14s.io/app", tool: kapp},
	{key: "app.kubernetes.io/managed-by", tool: pulumi, value: "pulumi"},
}

// applyManagers are name prefixes of field managers of tools that apply, or that update and replace.
var applyManagers = []struct {
	prefix string
	tool   *tool
}{
	{"argocd", argoCD}, {"kustomize-controller", flux}, {"helm-controller", fluxHelm}, {"helm", helm}, {"kapp", kapp}, {"pulumi", pulumi},
	{"crossplane", crossplane}, {"Terraform", terraformManifest},
}

// updateManagers are name prefixes of the field managers of Terraform's provider, which come from its user agent. The provider creates and updates,
// and restores its declaration at the next run.
var updateManagers = []string{"HashiCorp", "Terraform", "terraform-provider-kubernetes"}

// owner is another tool that declares a volume's mount options, with the sign that identifies it.
type owner struct {
	*tool
	sign string
}

func (o owner) String() string {
	if o.name == "" {
		return o.sign
	}
	return fmt.Sprintf("%s (%s)", o.name, o.sign)
}

// blocks returns the text to paste there: to declare the mount options, or to let the operator manage them. One of them is empty.
func (o owner) blocks(volume string, list []string) (declare, cede string) {
	if o.declare != nil {
		return o.declare(volume, list), ""
	}
	return "", o.cede(volume)
}

// ownerOf searches for signs that the volume's mount options are managed by another tool, in Git or in a manifest.
func ownerOf(pv *corev1.PersistentVolume) (manager owner, elsewhere bool) {
	for _, s := range trackingSigns {
		for _, set := range []map[string]string{pv.Annotations, pv.Labels} {
			if value, ok := set[s.key]; ok && (s.value == "" || s.value == value) {
				return owner{tool: s.tool, sign: s.key}, true
			}
		}
	}
	for _, entry := range pv.ManagedFields {
		if manager, found := managerOf(entry); found {
			return manager, true
		}
	}
	if isInLastApplied(pv) {
		return lastAppliedOwner, true
	}
	return owner{}, false
}

var lastAppliedOwner = owner{tool: kubectlApply, sign: corev1.LastAppliedConfigAnnotation}

// appliedBy returns the tool that wrote the last applied configuration: Argo CD writes it too.
func appliedBy(pv *corev1.PersistentVolume) owner {
	if tracker, tracked := ownerOf(pv); tracked && tracker.tool == argoCD {
		return tracker
	}
	return lastAppliedOwner
}

// declarerOf searches for a tool that declares the current mount options: another write would start a conflict with it. A tool that only
// tracks the volume may declare no mount options, or the previous ones.
func declarerOf(pv *corev1.PersistentVolume) (declarer owner, declared bool) {
	for _, entry := range pv.ManagedFields {
		if manager, found := managerOf(entry); found && OwnsMountOptions(entry) {
			return manager, true
		}
	}
	if list, known := lastAppliedList(pv); isInLastApplied(pv) && (!known || slices.Equal(list, pv.Spec.MountOptions)) {
		return appliedBy(pv), true
	}
	return owner{}, false
}

// ShowsManager reports whether an entry of the managed fields shows that another tool manages the mount options, or replaced them.
func ShowsManager(entry metav1.ManagedFieldsEntry) bool {
	_, found := managerOf(entry)
	return found || isReplacer(entry) && OwnsMountOptions(entry)
}

func managerOf(entry metav1.ManagedFieldsEntry) (manager owner, found bool) {
	switch entry.Operation {
	case metav1.ManagedFieldsOperationApply:
		if entry.Manager == v1alpha1.VolumesFieldManager || !OwnsMountOptions(entry) {
			return owner{}, false
		}
		manager = owner{tool: anyApply, sign: fmt.Sprintf("apply manager %q", entry.Manager)}
		for _, known := range applyManagers {
			if manager.tool == anyApply && strings.HasPrefix(entry.Manager, known.prefix) {
				manager.tool = known.tool
			}
		}
		return manager, true
	case metav1.ManagedFieldsOperationUpdate:
		if manager, found = updaterOf(entry); found {
			return manager, true
		}
		known := func(prefix string) bool { return strings.HasPrefix(entry.Manager, prefix) }
		return owner{tool: terraformTyped, sign: fmt.Sprintf("field manager %q", entry.Manager)},
			entry.Subresource == "" && slices.ContainsFunc(updateManagers, known) && len(specFieldsOf(entry)) > 0
	}
	return owner{}, false
}

// updaterOf detects tools that update or replace volumes instead of applying them. They count while they own the mount options.
func updaterOf(entry metav1.ManagedFieldsEntry) (manager owner, found bool) {
	for _, known := range applyManagers {
		if known.tool != terraformManifest && strings.HasPrefix(entry.Manager, known.prefix) && entry.Subresource == "" && OwnsMountOptions(entry) {
			return owner{tool: known.tool, sign: fmt.Sprintf("field manager %q", entry.Manager)}, true
		}
	}
	return owner{}, false
}

// OwnsMountOptions reports whether an entry of the managed fields contains spec.mountOptions.
func OwnsMountOptions(entry metav1.ManagedFieldsEntry) bool {
	_, owns := specFieldsOf(entry)["f:mountOptions"]
	return owns
}

func specFieldsOf(entry metav1.ManagedFieldsEntry) map[string]json.RawMessage {
	if entry.FieldsV1 == nil {
		return nil
	}
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		return nil
	}
	return fields.Spec
}

// lastAppliedList returns the mount options that kubectl applied last. known is false if they cannot be read.
func lastAppliedList(pv *corev1.PersistentVolume) (list []string, known bool) {
	var manifest struct {
		Spec struct {
			MountOptions []string `json:"mountOptions"`
		} `json:"spec"`
	}
	err := json.Unmarshal([]byte(pv.Annotations[corev1.LastAppliedConfigAnnotation]), &manifest)
	return manifest.Spec.MountOptions, err == nil
}

// isInLastApplied reports whether the last applied configuration declares mount options. An annotation that cannot be read counts as a
// declaration: the safe assumption.
func isInLastApplied(pv *corev1.PersistentVolume) bool {
	text, ok := pv.Annotations[corev1.LastAppliedConfigAnnotation]
	if !ok {
		return false
	}
	var manifest struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal([]byte(text), &manifest); err != nil {
		return true
	}
	_, declares := manifest.Spec["mountOptions"]
	return declares
}
