package nodesettings

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeletLabels are labels in protected namespaces that a kubelet may nevertheless set on its own Node (kubernetes
// staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go). It may also set all labels in kubeletNamespaces.
var (
	kubeletLabels = []string{
		"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		"beta.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
		"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
	}
	kubeletNamespaces = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
)

// KubeletLabels returns the label keys of a selector that a kubelet may set on its own Node, sorted. The admission plugin NodeRestriction rejects
// the others (kubernetes plugin/pkg/admission/noderestriction). A nil selector has none.
func KubeletLabels(selector *metav1.LabelSelector) []string {
	if selector == nil {
		return nil
	}
	var keys []string
	for key := range selector.MatchLabels {
		keys = append(keys, key)
	}
	for _, expression := range selector.MatchExpressions {
		keys = append(keys, expression.Key)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !isKubeletLabel(key) })
	slices.Sort(keys)
	return slices.Compact(keys)
}

func isKubeletLabel(key string) bool {
	namespace, _, _ := strings.Cut(key, "/")
	isIn := func(domain string) bool { return namespace == domain || strings.HasSuffix(namespace, "."+domain) }
	switch {
	case !strings.Contains(key, "/"), !isIn("kubernetes.io") && !isIn("k8s.io"):
		return true
	case isIn("node-restriction.kubernetes.io"):
		return false
	}
	return slices.Contains(kubeletLabels, key) || slices.ContainsFunc(kubeletNamespaces, isIn)
}
