// Package match decides which profiles concern a node, whether a profile may be applied, and in which order the rollout reboots nodes. All controllers
// share it, so that they make the same decisions.
package match

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// IsIgnored reports whether an object has the annotation tuning.storageclient.dev/ignore.
func IsIgnored(obj metav1.Object) bool {
	return v1alpha1.IsStopped(obj, v1alpha1.IgnoreAnnotation)
}

// Selector is a profile's choice of nodes, parsed once for many nodes.
type Selector struct {
	// Labels is the label selector; Matches also checks other conditions.
	Labels labels.Selector
	// RequiredLabels are labels, with values, that a node must have for the selector to match. The selector may have further requirements.
	RequiredLabels map[string]string
	controlPlane   bool
}

// SelectorOf parses a profile's choice of nodes. An invalid selector selects no node, and neither does an empty one: to select all nodes, a profile
// must set allNodes. The selector leaves out control-plane nodes if the profile or the installation does. For the profile's choice alone, pass an
// empty allow-list.
func SelectorOf(profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList) Selector {
	selector, err := metav1.LabelSelectorAsSelector(&profile.Spec.NodeSelector)
	switch {
	case profile.Spec.AllNodes:
		selector = labels.Everything()
	case err != nil || selector.Empty():
		selector = labels.Nothing()
	}
	out := Selector{Labels: selector, controlPlane: profile.Spec.IncludeControlPlane && !allow.ExcludesControlPlane()}
	if !profile.Spec.AllNodes {
		out.RequiredLabels = profile.Spec.NodeSelector.MatchLabels
	}
	return out
}

// Matches reports whether the profile's node selector, its control-plane rule and the node's operating system match the node. The operating system
// is the label kubernetes.io/os, which the agent's DaemonSet also uses.
func (s Selector) Matches(node *corev1.Node) bool {
	if node.Labels[corev1.LabelOSStable] != string(corev1.Linux) {
		return false
	}
	if !s.controlPlane && IsControlPlane(node) {
		return false
	}
	return s.Labels.Matches(labels.Set(node.Labels))
}

// IsControlPlane reports whether a node has a label of control-plane nodes or of members of etcd.
func IsControlPlane(node *corev1.Node) bool {
	return slices.ContainsFunc(v1alpha1.ControlPlaneLabels, func(label string) bool {
		_, labeled := node.Labels[label]
		return labeled
	})
}

// Check returns the reason why a profile may not be applied: reason Invalid, and a message that names field, value and remedy. Both are empty if it
// may be applied.
func Check(profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList) (reason, message string) {
	failed := lists.Filter(nodesettings.Validate(profile, allow), func(problem nodesettings.Problem) bool { return !problem.Warning })
	problems := lists.Each(failed, nodesettings.Problem.String)
	// The API server rejects it; older objects may still exist.
	if selector := profile.Spec.NodeSelector; !profile.Spec.AllNodes && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		problems = append(problems,
			"spec.nodeSelector: selects no node: add at least one label (matchLabels: {KEY: VALUE}) or expression, or set allNodes: true")
	}
	if len(problems) > 0 {
		return v1alpha1.ReasonInvalid, text.Join(problems, "; ")
	}
	return "", ""
}

// IsSameDeclaration reports whether two versions of a profile declare the same. It ignores status and labels.
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

// Phase is the effect of a profile on the nodes that it selects.
type Phase string

const (
	// Active contributes its settings.
	Active Phase = "Active"
	// Held starts no change and restores no setting: mode Plan, an invalid profile, or no finalizer yet. Its settings on nodes stay.
	Held Phase = "Held"
	// Leaving is being deleted: it no longer contributes settings.
	Leaving Phase = "Leaving"
)

// PhaseOf returns the effect of a profile on the nodes that it selects, regardless of pauses.
func PhaseOf(profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList) Phase {
	reason, _ := Check(profile, allow)
	return PhaseOfChecked(profile, reason)
}

// PhaseOfChecked is PhaseOf with the known result of Check: invalid is its reason.
func PhaseOfChecked(profile *v1alpha1.StorageClientProfile, invalid string) Phase {
	switch {
	case !profile.DeletionTimestamp.IsZero():
		return Leaving
	case profile.Spec.Mode == v1alpha1.ModePlan, !slices.Contains(profile.Finalizers, v1alpha1.Finalizer), invalid != "":
		return Held
	}
	return Active
}

// IsPaused reports whether an object has the annotation tuning.storageclient.dev/paused: a profile, a Node, or the manager's namespace.
func IsPaused(obj metav1.Object) bool {
	return v1alpha1.IsStopped(obj, v1alpha1.PausedAnnotation)
}

// IsProfilePaused reports whether a profile is paused by its field or by its annotation.
func IsProfilePaused(profile *v1alpha1.StorageClientProfile) bool {
	return profile.Spec.Paused || IsPaused(profile)
}

// Turn contains the data that determines a node's place in the order of the rollout.
type Turn struct {
	// Name is the node's name.
	Name string
	// Created is the creation time of the Node.
	Created time.Time
	// Labels are the Node's labels, Zone is the value of its zone label, empty if it has none.
	Labels map[string]string
	Zone   string
	// Manager marks the node that runs the manager's pod.
	Manager bool
	// BootHash is the desired boot hash: a canary is evidence for the nodes with the same hash.
	BootHash string
	// Blocked is true if the node currently cannot be rebooted. It is no canary, and comes after all other nodes.
	Blocked bool
}

// Compare sorts nodes in the order of the rollout: zone by zone, nodes without a zone last. Within a zone, the oldest node is first. The manager's
// node comes after all others.
func (t Turn) Compare(other Turn) int {
	return cmp.Or(
		compareBool(t.Manager, other.Manager), compareBool(t.Zone == "", other.Zone == ""), cmp.Compare(t.Zone, other.Zone),
		t.Created.Compare(other.Created), cmp.Compare(t.Name, other.Name),
	)
}

// InTurn returns the nodes of a profile in the order in which the rollout reboots them without other delays: the canaries of its groups, then the
// others. rule is the profile's, with defaults.
func InTurn(nodes []Turn, rule v1alpha1.Canary) []Turn {
	const canary, other, blocked = 0, 1, 2
	chosen := LabelMatcher(rule.NodeSelector)
	proving, ranks := map[string]int32{}, make(map[string]int, len(nodes))
	out := slices.SortedFunc(slices.Values(nodes), Turn.Compare)
	for _, t := range out {
		switch {
		case t.Blocked:
			ranks[t.Name] = blocked
		case rule.NodeSelector != nil && chosen(t.Labels), rule.NodeSelector == nil && proving[t.BootHash] < *rule.Nodes:
			ranks[t.Name] = canary
			proving[t.BootHash]++
		default:
			ranks[t.Name] = other
		}
	}
	slices.SortStableFunc(out, func(a, b Turn) int { return cmp.Compare(ranks[a.Name], ranks[b.Name]) })
	return out
}

// LabelMatcher matches the labels that a selector selects; an invalid selector selects none.
func LabelMatcher(selector *metav1.LabelSelector) func(map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		parsed = labels.Nothing()
	}
	return func(set map[string]string) bool { return parsed.Matches(labels.Set(set)) }
}

// compareBool sorts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
