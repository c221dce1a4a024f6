package volume

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

// declaration is somebody else's claim on a volume's mount options.
type declaration struct {
	tool string
	sign string
}

func (d declaration) String() string {
	if d.tool == "" {
		return d.sign
	}
	return fmt.Sprintf("%s (%s)", d.tool, d.sign)
}

// declaredElsewhere looks for signs that the volume's mount options are declared in Git or in a manifest.
func declaredElsewhere(pv *corev1.PersistentVolume) (declaration, bool) {
	for _, s := range trackingSigns {
		for _, set := range []map[string]string{pv.Annotations, pv.Labels} {
			if value, ok := set[s.key]; ok && (s.value == "" || s.value == value) {
				return declaration{tool: s.tool, sign: s.key}, true
			}
		}
	}
	if manager, ok := applyManager(pv); ok {
		d := declaration{sign: fmt.Sprintf("apply manager %q", manager)}
		if strings.HasPrefix(manager, "argocd") {
			d.tool = argoCD
		}
		return d, true
	}
	if lastApplied(pv) {
		return declaration{tool: "kubectl apply", sign: corev1.LastAppliedConfigAnnotation}, true
	}
	return declaration{}, false
}

func applyManager(pv *corev1.PersistentVolume) (string, bool) {
	for _, entry := range pv.ManagedFields {
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.Manager != v1alpha1.VolumesFieldManager && ownsMountOptions(entry) {
			return entry.Manager, true
		}
	}
	return "", false
}

func ownsMountOptions(entry metav1.ManagedFieldsEntry) bool {
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

// lastApplied takes an annotation that cannot be read for one that declares them: the careful side.
func lastApplied(pv *corev1.PersistentVolume) bool {
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
