package judge

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// trackingSign is a label or an annotation by which a GitOps tool marks what it applies.
type trackingSign struct {
	key, tool string
	// value narrows the sign to one value; empty stands for any.
	value string
}

const argoCD = "Argo CD"

var trackingSigns = []trackingSign{
	{key: "argocd.argoproj.io/tracking-id", tool: argoCD},
	{key: "argocd.argoproj.io/instance", tool: argoCD},
	{key: "kustomize.toolkit.fluxcd.io/name", tool: "Flux"},
	{key: "helm.toolkit.fluxcd.io/name", tool: "Flux"},
	{key: "app.kubernetes.io/managed-by", tool: "Helm", value: "Helm"},
	{key: "meta.helm.sh/release-name", tool: "Helm"},
}

// owner is who declares a volume's mount options beside us, and the sign that tells.
type owner struct {
	tool string
	sign string
}

func (o owner) String() string {
	if o.tool == "" {
		return o.sign
	}
	return fmt.Sprintf("%s (%s)", o.tool, o.sign)
}

// ownerOf looks for signs that the volume's mount options are declared elsewhere, in Git or in a manifest.
func ownerOf(pv *corev1.PersistentVolume) (by owner, elsewhere bool) {
	for _, s := range trackingSigns {
		for _, set := range []map[string]string{pv.Annotations, pv.Labels} {
			if value, ok := set[s.key]; ok && (s.value == "" || s.value == value) {
				return owner{tool: s.tool, sign: s.key}, true
			}
		}
	}
	if manager, ok := applyManagerOf(pv); ok {
		by := owner{sign: fmt.Sprintf("apply manager %q", manager)}
		if strings.HasPrefix(manager, "argocd") {
			by.tool = argoCD
		}
		return by, true
	}
	if isInLastApplied(pv) {
		return owner{tool: "kubectl apply", sign: corev1.LastAppliedConfigAnnotation}, true
	}
	return owner{}, false
}

func applyManagerOf(pv *corev1.PersistentVolume) (string, bool) {
	for _, entry := range pv.ManagedFields {
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.Manager != v1alpha1.VolumesFieldManager && OwnsMountOptions(entry) {
			return entry.Manager, true
		}
	}
	return "", false
}

// OwnsMountOptions says whether an entry of the managed fields holds spec.mountOptions.
func OwnsMountOptions(entry metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		return false
	}
	_, owns := fields.Spec["f:mountOptions"]
	return owns
}

// isInLastApplied takes an annotation that cannot be read for one that declares them: the careful side.
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
