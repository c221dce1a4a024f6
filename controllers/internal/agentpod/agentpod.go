// Package agentpod decides whether a report of a node's agent is current. An agent is alive while its Pod is Ready, and its report is valid for the
// boot in which it was made; there is no heartbeat in the API.
package agentpod

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// ComponentLabel and Component identify the agent's Pods in their namespace.
const (
	ComponentLabel = "app.kubernetes.io/component"
	Component      = "node-agent"
)

// IsReady reports whether a Pod is Ready and is not being deleted.
func IsReady(pod *corev1.Pod) bool {
	if !pod.DeletionTimestamp.IsZero() {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// SilentReason returns the reason why the report of an agent is not current, empty if it is. ready is true if the agent's Pod on the node is Ready.
func SilentReason(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, ready bool) string {
	switch {
	case !ready:
		return "the node's agent is not Ready"
	case clientNode.Status.BootID == "":
		return "the node's agent has not reported yet"
	case clientNode.Status.BootID != node.Status.NodeInfo.BootID:
		return "the node's agent has not reported since the node's last boot"
	}
	return ""
}

// IsNodeReady reports whether the Node's condition Ready is True.
func IsNodeReady(node *corev1.Node) bool {
	condition := FindCondition(node, corev1.NodeReady)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// ReadySince returns the time of the last change of the Node's condition Ready; zero if unknown.
func ReadySince(node *corev1.Node) time.Time {
	if condition := FindCondition(node, corev1.NodeReady); condition != nil {
		return condition.LastTransitionTime.Time
	}
	return time.Time{}
}

// FindCondition returns a condition of a Node, or nil.
func FindCondition(node *corev1.Node, conditionType corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == conditionType {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
