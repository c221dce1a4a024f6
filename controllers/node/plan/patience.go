package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// passingAfter is how long a node applies settings, or its agent is silent, before a condition says so: most nodes are done by then, and
	// a write on the way would be one that nobody reads.
	passingAfter = 30 * time.Second
	// rewordAfter is how soon a condition that says so is written again where only its words have changed.
	rewordAfter = 5 * time.Minute
)

// Patience holds back what conditions would say of states that pass. It remembers since when they have lasted: a manager that has just
// started waits anew. The zero Patience holds nothing back.
type Patience struct {
	since map[conditionKey]time.Time
}

type conditionKey struct {
	node string
	kind corev1.NodeConditionType
}

// NewPatience returns a patience with a memory.
func NewPatience() Patience { return Patience{since: map[conditionKey]time.Time{}} }

// Forget is due once a Node is gone.
func (p Patience) Forget(node string) {
	for _, kind := range []corev1.NodeConditionType{v1alpha1.TunedNodeCondition, v1alpha1.StorageReachableNodeCondition} {
		delete(p.since, conditionKey{node, kind})
	}
}

// Hold is for how long a node's condition is not to be replaced by the next one yet; 0: it may be now. old is the one that stands, nil for
// none.
func (p Patience) Hold(node string, old *corev1.NodeCondition, next corev1.NodeCondition, now time.Time) time.Duration {
	if p.since == nil {
		return 0
	}
	key := conditionKey{node, next.Type}
	if !isPassing(next) {
		delete(p.since, key)
		return 0
	}
	if old != nil && old.Status == next.Status && old.Reason == next.Reason {
		return max(rewordAfter-now.Sub(old.LastHeartbeatTime.Time), 0)
	}
	if _, known := p.since[key]; !known {
		p.since[key] = now
	}
	return max(passingAfter-now.Sub(p.since[key]), 0)
}

// isPassing reports whether a condition speaks of a state that passes by itself.
func isPassing(condition corev1.NodeCondition) bool {
	// StorageReasonAgentSilent is the same word.
	return condition.Reason == v1alpha1.NodeReasonApplying || condition.Reason == v1alpha1.NodeReasonAgentSilent
}
