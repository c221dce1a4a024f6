// Package agentpod tells whether a node's agent is to be believed. An agent is alive while its Pod is Ready, and
// what it reported holds for the boot that it reported in; there is no heartbeat in the API.
package agentpod

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// ComponentLabel and Component tell the agent's Pods apart in their namespace.
const (
	ComponentLabel = "app.kubernetes.io/component"
	Component      = "node-agent"
)

// IsReady reports whether a Pod is Ready and stays.
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

// WhySilent says why what an agent reported cannot be believed; it is empty where it can. ready is whether the
// agent's Pod on the node is Ready.
func WhySilent(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, ready bool) string {
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

// NodeReady reports whether the Node's condition Ready is True.
func NodeReady(node *corev1.Node) bool {
	condition := readyCondition(node)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// ReadySince is when the Node's condition Ready changed last; zero where that is not known.
func ReadySince(node *corev1.Node) time.Time {
	if condition := readyCondition(node); condition != nil {
		return condition.LastTransitionTime.Time
	}
	return time.Time{}
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
