package rollout

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Annotations that keep an autoscaler from deleting a node which it takes for empty or broken while it reboots.
const (
	clusterAutoscalerAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	karpenterAnnotation         = "karpenter.sh/do-not-disrupt"
)

// guards are the keys that we have set on a Node for a disruption. What others had set before is not among them.
//
// They come in the patch that cordons and go in the patch that uncordons, and the list of them with them: no crash comes
// in between. The list is an annotation of its own, so that it outlives somebody who takes our mark off the Node.
type guards struct {
	Annotations []string `json:"annotations,omitempty"`
	Labels      []string `json:"labels,omitempty"`
}

// guardsOf reads the list. One that cannot be read names nothing: what it named is left as it is.
func guardsOf(node *corev1.Node) guards {
	var out guards
	if err := json.Unmarshal([]byte(node.Annotations[v1alpha1.DisruptionGuardsAnnotation]), &out); err != nil {
		return guards{}
	}
	return out
}

// setGuards keeps autoscalers off the node, and takes it out of external load balancers where that is asked for. What is
// there already, whatever its value, is somebody's and stays theirs.
func setGuards(node *corev1.Node, excludeFromLoadBalancers bool) {
	ours := guardsOf(node)
	for _, key := range knownAnnotations {
		ours.Annotations = setKey(node.Annotations, ours.Annotations, key)
	}
	if excludeFromLoadBalancers {
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		ours.Labels = setKey(node.Labels, ours.Labels, corev1.LabelNodeExcludeBalancers)
	}
	if len(ours.Annotations)+len(ours.Labels) == 0 {
		return
	}
	list, err := json.Marshal(ours)
	if err != nil {
		panic(err) // two lists of strings
	}
	node.Annotations[v1alpha1.DisruptionGuardsAnnotation] = string(list)
}

func setKey(all map[string]string, ours []string, key string) []string {
	if _, there := all[key]; there {
		return ours
	}
	all[key] = v1alpha1.True
	if slices.Contains(ours, key) {
		return ours
	}
	return append(ours, key)
}

// known are the only keys that a list may have us remove, whoever wrote it.
var (
	knownAnnotations = []string{clusterAutoscalerAnnotation, karpenterAnnotation}
	knownLabels      = []string{corev1.LabelNodeExcludeBalancers}
)

// removeGuards takes away what setGuards has set. A value that somebody has changed since is theirs.
func removeGuards(node *corev1.Node) {
	ours := guardsOf(node)
	removeKeys(node.Annotations, ours.Annotations, knownAnnotations)
	removeKeys(node.Labels, ours.Labels, knownLabels)
	delete(node.Annotations, v1alpha1.DisruptionGuardsAnnotation)
}

func removeKeys(all map[string]string, ours, known []string) {
	for _, key := range ours {
		if all[key] == v1alpha1.True && slices.Contains(known, key) {
			delete(all, key)
		}
	}
}
