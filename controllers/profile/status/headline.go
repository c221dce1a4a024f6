package status

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Change is a condition that has changed, for an event on the profile.
type Change struct {
	// Kind is Normal, or Warning if a user must act.
	Kind string
	metav1.Condition
}

// Changes returns the changes between two sets of conditions: the state of the profile, then new conflicts and stale mounts. A new message alone is
// no change: an event for each step of each node would be too many.
func Changes(before, after []metav1.Condition) []Change {
	var out []Change
	main := headline(after)
	if main != nil && !isSame(headline(before), main) {
		out = append(out, Change{kindOf(main), *main})
	}
	for _, other := range []struct {
		name   string
		status metav1.ConditionStatus
	}{{v1alpha1.ConditionConflict, metav1.ConditionTrue}, {v1alpha1.ConditionMountsEffective, metav1.ConditionFalse}} {
		c := meta.FindStatusCondition(after, other.name)
		if c == nil || c.Status != other.status || isSame(meta.FindStatusCondition(before, other.name), c) || main != nil && main.Reason == c.Reason {
			continue
		}
		out = append(out, Change{kindOf(c), *c})
	}
	return out
}

// headline returns the condition that best describes the state of a profile, nil if it has none.
func headline(conditions []metav1.Condition) *metav1.Condition {
	for _, name := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReady, v1alpha1.ConditionPaused, v1alpha1.ConditionReconciling} {
		if meta.IsStatusConditionTrue(conditions, name) {
			return meta.FindStatusCondition(conditions, name)
		}
	}
	return meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
}

func isSame(a, b *metav1.Condition) bool {
	return a != nil && a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
}

func kindOf(c *metav1.Condition) string {
	if c.Status == metav1.ConditionTrue && (c.Type == v1alpha1.ConditionStalled || c.Type == v1alpha1.ConditionConflict) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
