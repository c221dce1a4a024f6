// Package agentpod tells whether a node's agent is to be believed. An agent is alive while its Pod is Ready, and
// what it reported holds for the boot that it reported in; there is no heartbeat in the API.
package agentpod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// NodeNameField is the field of Pods that ReadyOn selects by; a cached client needs an index of that name.
const NodeNameField = "spec.nodeName"

// ComponentLabel and Component tell the agent's Pods apart in their namespace.
const (
	ComponentLabel = "app.kubernetes.io/component"
	Component      = "node-agent"
)

// IndexNodeName is the index function of NodeNameField.
func IndexNodeName(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// ReadyNodes are the nodes whose agent's Pod is Ready.
func ReadyNodes(ctx context.Context, reader client.Reader, namespace string) (map[string]bool, error) {
	return readyNodes(ctx, reader, namespace)
}

// ReadyOn reports whether the agent's Pod on one node is Ready.
func ReadyOn(ctx context.Context, reader client.Reader, namespace, node string) (bool, error) {
	ready, err := readyNodes(ctx, reader, namespace, client.MatchingFields{NodeNameField: node})
	return ready[node], err
}

func readyNodes(ctx context.Context, reader client.Reader, namespace string, opts ...client.ListOption) (map[string]bool, error) {
	opts = append(opts, client.InNamespace(namespace), client.MatchingLabels{ComponentLabel: Component}, client.UnsafeDisableDeepCopy)
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, opts...); err != nil {
		return nil, fmt.Errorf("list agent Pods in %s: %w", namespace, err)
	}
	ready := make(map[string]bool, len(pods.Items))
	for i := range pods.Items {
		if Ready(&pods.Items[i]) {
			ready[pods.Items[i].Spec.NodeName] = true
		}
	}
	return ready, nil
}

// Ready reports whether a Pod is Ready and stays.
func Ready(pod *corev1.Pod) bool {
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

// Silent says why what an agent reported cannot be believed; it is empty where it can. ready is whether the
// agent's Pod on the node is Ready.
func Silent(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, ready bool) string {
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
