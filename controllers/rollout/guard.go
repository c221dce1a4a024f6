package rollout

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/text"
)

// Annotations that prevent an autoscaler from deleting a node that appears empty or broken while it reboots.
const (
	clusterAutoscalerAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	karpenterAnnotation         = "karpenter.sh/do-not-disrupt"
)

// guards are the keys that the operator has set on a Node for a disruption. Keys that were set before are not included.
//
// The patch that cordons adds the keys and this list, the patch that uncordons removes both: no crash can separate them. The list has its own
// annotation, so that it remains if someone removes the disruption annotation from the Node.
type guards struct {
	Annotations []string `json:"annotations,omitempty"`
	Labels      []string `json:"labels,omitempty"`
}

// guardsOf decodes the list. A list that cannot be read is empty: its keys stay on the node.
func guardsOf(node *corev1.Node) guards {
	var out guards
	if err := json.Unmarshal([]byte(node.Annotations[v1alpha1.DisruptionGuardsAnnotation]), &out); err != nil {
		return guards{}
	}
	return out
}

// setGuards keeps autoscalers off the node, and removes it from external load balancers if requested. A key that already exists, with any value,
// belongs to another user and is not changed.
func setGuards(node *corev1.Node, excludeFromLoadBalancers bool) {
	managed := guardsOf(node)
	for _, key := range knownAnnotations {
		managed.Annotations = setKey(node.Annotations, managed.Annotations, key)
	}
	if excludeFromLoadBalancers {
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		managed.Labels = setKey(node.Labels, managed.Labels, corev1.LabelNodeExcludeBalancers)
	}
	if len(managed.Annotations)+len(managed.Labels) == 0 {
		return
	}
	node.Annotations[v1alpha1.DisruptionGuardsAnnotation] = text.JSON(managed)
}

func setKey(all map[string]string, managedKeys []string, key string) []string {
	if _, ok := all[key]; ok {
		return managedKeys
	}
	all[key] = v1alpha1.True
	if slices.Contains(managedKeys, key) {
		return managedKeys
	}
	return append(managedKeys, key)
}

// The known keys are the only keys that removeGuards may remove, regardless of the author of the list.
var (
	knownAnnotations = []string{clusterAutoscalerAnnotation, karpenterAnnotation}
	knownLabels      = []string{corev1.LabelNodeExcludeBalancers}
)

// removeGuards removes the keys that setGuards has set. A value that has changed since belongs to another user.
func removeGuards(node *corev1.Node) {
	managed := guardsOf(node)
	removeKeys(node.Annotations, managed.Annotations, knownAnnotations)
	removeKeys(node.Labels, managed.Labels, knownLabels)
	delete(node.Annotations, v1alpha1.DisruptionGuardsAnnotation)
}

func removeKeys(all map[string]string, managedKeys, known []string) {
	for _, key := range managedKeys {
		if all[key] == v1alpha1.True && slices.Contains(known, key) {
			delete(all, key)
		}
	}
}
