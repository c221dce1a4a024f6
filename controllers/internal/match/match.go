// Package match decides which profiles concern a node, and whether a profile may be applied at all. The
// controllers share it, so that no two of them answer differently.
package match

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// Labels of control-plane nodes; the second is what clusters before Kubernetes 1.24 set.
const (
	labelControlPlane = "node-role.kubernetes.io/control-plane"
	labelMaster       = "node-role.kubernetes.io/master"
)

// Ignored reports whether an object has the annotation tuning.storageclient.dev/ignore.
func Ignored(obj metav1.Object) bool {
	return obj.GetAnnotations()[v1alpha1.IgnoreAnnotation] == v1alpha1.True
}

// IsClone reports whether an object was made for a probe. Nothing is done to it, or concluded from it, but by who made it.
func IsClone(obj metav1.Object) bool {
	return obj.GetLabels()[v1alpha1.TrialLabel] != "" && strings.HasPrefix(obj.GetName(), v1alpha1.ClonePrefix)
}

// Selector is a profile's choice of nodes, parsed once for many nodes.
type Selector struct {
	labels       labels.Selector
	required     map[string]string
	controlPlane bool
}

// SelectorOf parses a profile's choice of nodes. One that cannot be parsed selects nothing, and so does an empty one: who means all
// nodes says so.
func SelectorOf(profile *v1alpha1.StorageClientProfile) Selector {
	selector, err := metav1.LabelSelectorAsSelector(&profile.Spec.NodeSelector)
	switch {
	case profile.Spec.AllNodes:
		selector = labels.Everything()
	case err != nil || selector.Empty():
		selector = labels.Nothing()
	}
	out := Selector{labels: selector, controlPlane: profile.Spec.IncludeControlPlane}
	if !profile.Spec.AllNodes {
		out.required = profile.Spec.NodeSelector.MatchLabels
	}
	return out
}

// Labels is what the selector asks of a node's labels; Matches asks for more.
func (s Selector) Labels() labels.Selector { return s.labels }

// RequiredLabels are labels that a node must have, with these values, for the selector to match; there may be more that it asks for.
func (s Selector) RequiredLabels() map[string]string { return s.required }

// Matches reports whether the profile's node selector, its control-plane rule and the node's operating system (label
// kubernetes.io/os, which the agent's DaemonSet goes by too) bring profile and node together.
func (s Selector) Matches(node *corev1.Node) bool {
	if node.Labels[corev1.LabelOSStable] != string(corev1.Linux) {
		return false
	}
	if !s.controlPlane && ControlPlane(node) {
		return false
	}
	return s.labels.Matches(labels.Set(node.Labels))
}

// ControlPlane reports whether a node carries the label of control-plane nodes, the one of today or that of before 1.24.
func ControlPlane(node *corev1.Node) bool {
	_, current := node.Labels[labelControlPlane]
	_, old := node.Labels[labelMaster]
	return current || old
}

// Check says why nothing of a profile may be applied: reason Invalid, and a message that names field, value and remedy.
// Both are empty where it may be applied.
func Check(profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList) (reason, message string) {
	var problems []string
	for _, problem := range nodesettings.Validate(profile, allow) {
		if !problem.Warning {
			problems = append(problems, problem.String())
		}
	}
	// The API server refuses it; objects from before that may still be there.
	if selector := profile.Spec.NodeSelector; !profile.Spec.AllNodes && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		problems = append(problems, "spec.nodeSelector: selects no node: give it at least one label (matchLabels: {KEY: VALUE}) or expression, or set allNodes: true")
	}
	if len(problems) > 0 {
		return v1alpha1.ReasonInvalid, text.Join(problems, "; ")
	}
	return "", ""
}

// IsSameDeclaration reports whether two versions of a profile ask for the same: status and labels do not count.
func IsSameDeclaration(a, b *v1alpha1.StorageClientProfile) bool {
	if a.UID != b.UID || a.Name != b.Name {
		return false
	}
	if a.ResourceVersion == b.ResourceVersion && a.ResourceVersion != "" {
		return true
	}
	return a.Generation == b.Generation && a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero() &&
		maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers) && reflect.DeepEqual(a.Spec, b.Spec)
}

// Standing is what a profile does for the nodes that it selects.
type Standing string

const (
	// Active contributes its settings.
	Active Standing = "Active"
	// Held begins nothing and restores nothing: mode Plan, an invalid profile, a field that this version does not
	// honour, or no finalizer yet. What a node carries of it stays.
	Held Standing = "Held"
	// Leaving is being deleted: it contributes nothing any more.
	Leaving Standing = "Leaving"
)

// StandingOf says what a profile does for the nodes that it selects, whatever is paused.
func StandingOf(profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList) Standing {
	reason, _ := Check(profile, allow)
	return StandingOfChecked(profile, reason)
}

// StandingOfChecked is StandingOf where Check has been asked: invalid is the reason that it gave.
func StandingOfChecked(profile *v1alpha1.StorageClientProfile, invalid string) Standing {
	switch {
	case !profile.DeletionTimestamp.IsZero():
		return Leaving
	case profile.Spec.Mode == v1alpha1.ModePlan, !slices.Contains(profile.Finalizers, v1alpha1.Finalizer), invalid != "":
		return Held
	}
	return Active
}
