package judge

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/embedded"
	"github.com/storageclient/operator/tuning/lists"
)

// tool is another tool that declares volumes.
type tool struct {
	ID, Name string
	// Declare is the instruction to declare the mount options in the tool, Cede to let the operator manage them. One of them is empty.
	Declare, Cede string
	// Signs are labels or annotations with which the tool marks its objects. Without a value, any value matches.
	Signs []struct{ Key, Value string }
	// Managers are name prefixes of the tool's field managers.
	Managers []string
}

//go:embed tools.yaml
var toolsYAML []byte

var tools = embedded.Parse[[]*tool]("tools that declare volumes", toolsYAML)

var (
	argoCD, kubectlApply, kubectlReplace, anyApply = toolOf("argoCD"), toolOf("kubectlApply"), toolOf("kubectlReplace"), toolOf("anyApply")
	terraformTyped, terraformManifest              = toolOf("terraformTyped"), toolOf("terraformManifest")
)

func toolOf(id string) *tool {
	return tools[slices.IndexFunc(tools, func(t *tool) bool { return t.ID == id })]
}

// kappPaths returns the paths that kapp must leave unchanged. kapp removes annotations that its manifests do not name, unless its rules copy
// them.
func kappPaths() string {
	keys := lists.Each(slices.Concat(recordAnnotations, markAnnotations), func(key string) string { return "[metadata, annotations, " + key + "]" })
	return strings.Join(append([]string{"[spec, mountOptions]"}, keys...), ", ")
}

func fluxPatch(volume string, list []string) string {
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/mountOptions","value":%s}]`, listText(list))
	return fmt.Sprintf("patches: [{target: {kind: PersistentVolume, name: %s}, patch: '%s'}]", volume, strings.ReplaceAll(patch, "'", "''"))
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
	if o.Name == "" {
		return o.sign
	}
	return fmt.Sprintf("%s (%s)", o.Name, o.sign)
}

// blocks returns the text to paste there: to declare the mount options, or to let the operator manage them. One of them is empty.
func (o owner) blocks(volume string, list []string) (declare, cede string) {
	spec := fmt.Sprintf("spec: {mountOptions: %s}", listText(list))
	values := strings.NewReplacer("$volume", volume, "$spec", spec, "$patches", fluxPatch(volume, list), "$paths", kappPaths())
	return values.Replace(o.Declare), values.Replace(o.Cede)
}

// ownerOf searches for signs that the volume's mount options are managed by another tool, in Git or in a manifest.
func ownerOf(pv *corev1.PersistentVolume) (manager owner, elsewhere bool) {
	for _, t := range tools {
		for _, s := range t.Signs {
			for _, set := range []map[string]string{pv.Annotations, pv.Labels} {
				if value, ok := set[s.Key]; ok && (s.Value == "" || s.Value == value) {
					return owner{tool: t, sign: s.Key}, true
				}
			}
		}
	}
	for _, entry := range pv.ManagedFields {
		if manager, found := managerOf(entry); found {
			return manager, true
		}
	}
	if _, _, declared := lastApplied(pv); declared {
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
	if list, known, declared := lastApplied(pv); declared && (!known || slices.Equal(list, pv.Spec.MountOptions)) {
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
		return owner{tool: cmp.Or(toolOfManager(entry.Manager), anyApply), sign: fmt.Sprintf("apply manager %q", entry.Manager)}, true
	case metav1.ManagedFieldsOperationUpdate:
		// A tool that updates or replaces volumes instead of applying them counts while it owns the mount options.
		manager = owner{tool: toolOfManager(entry.Manager), sign: fmt.Sprintf("field manager %q", entry.Manager)}
		if manager.tool != nil && manager.tool != terraformManifest && entry.Subresource == "" && OwnsMountOptions(entry) {
			return manager, true
		}
		known := func(prefix string) bool { return strings.HasPrefix(entry.Manager, prefix) }
		return owner{tool: terraformTyped, sign: manager.sign},
			entry.Subresource == "" && slices.ContainsFunc(updateManagers, known) && len(specFieldsOf(entry)) > 0
	}
	return owner{}, false
}

// toolOfManager returns the tool of a field manager that applies, or that updates and replaces. Nil if it is unknown.
func toolOfManager(manager string) *tool {
	for _, t := range tools {
		if slices.ContainsFunc(t.Managers, func(prefix string) bool { return strings.HasPrefix(manager, prefix) }) {
			return t
		}
	}
	return nil
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

// lastApplied returns the mount options that kubectl applied last. known is true if they can be read. declared is true if the configuration declares
// them. A configuration that cannot be read counts as a declaration: the safe assumption.
func lastApplied(pv *corev1.PersistentVolume) (list []string, known, declared bool) {
	config, exists := pv.Annotations[corev1.LastAppliedConfigAnnotation]
	var manifest struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if !exists || json.Unmarshal([]byte(config), &manifest) != nil {
		return nil, false, exists
	}
	value, declared := manifest.Spec["mountOptions"]
	known = declared && json.Unmarshal(value, &list) == nil
	return list, known, declared
}
