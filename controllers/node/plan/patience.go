package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// passingAfter is the time for which a node applies settings, or its agent is silent, before a condition reports it. Most nodes are done by
	// then, so an earlier write would be useless.
	passingAfter = 30 * time.Second
	// rewordAfter is the minimum time before such a condition is written again if only its message has changed.
	rewordAfter = 5 * time.Minute
)

// Patience delays conditions about temporary states. It records the start of each state: a manager that has just started waits again. The zero
// Patience delays none.
type Patience struct {
	startTimes map[conditionKey]time.Time
}

type conditionKey struct {
	node string
	kind corev1.NodeConditionType
}

// NewPatience returns a Patience that records states.
func NewPatience() Patience { return Patience{startTimes: map[conditionKey]time.Time{}} }

// Forget must be called when a Node is gone.
func (p Patience) Forget(node string) {
	for _, kind := range []corev1.NodeConditionType{v1alpha1.TunedNodeCondition, v1alpha1.StorageReachableNodeCondition} {
		delete(p.startTimes, conditionKey{node, kind})
	}
}

// Hold returns the time for which a node's condition must not be replaced by the next one; 0: replace it now. old is the current condition, nil if
// there is none.
func (p Patience) Hold(node string, old *corev1.NodeCondition, next corev1.NodeCondition, now time.Time) time.Duration {
	if p.startTimes == nil {
		return 0
	}
	key := conditionKey{node, next.Type}
	if !isPassing(next) {
		delete(p.startTimes, key)
		return 0
	}
	if old != nil && old.Status == next.Status && old.Reason == next.Reason {
		return max(rewordAfter-now.Sub(old.LastHeartbeatTime.Time), 0)
	}
	if _, known := p.startTimes[key]; !known {
		p.startTimes[key] = now
	}
	return max(passingAfter-now.Sub(p.startTimes[key]), 0)
}

// isPassing reports whether a condition describes a temporary state.
func isPassing(condition corev1.NodeCondition) bool {
	// StorageReasonAgentSilent has the same value.
	return condition.Reason == v1alpha1.NodeReasonApplying || condition.Reason == v1alpha1.NodeReasonAgentSilent
}
