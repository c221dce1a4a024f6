package nodesettings

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeletLabels returns the label keys of a selector that a kubelet may set on its own Node, sorted: all except labels with the prefix that the
// admission plugin NodeRestriction reserves (kubernetes plugin/pkg/admission/noderestriction). A nil selector has none.
func KubeletLabels(selector *metav1.LabelSelector) []string {
	if selector == nil {
		return nil
	}
	keys := slices.Collect(maps.Keys(selector.MatchLabels))
	for _, expression := range selector.MatchExpressions {
		keys = append(keys, expression.Key)
	}
	slices.Sort(keys)
	return slices.Compact(slices.DeleteFunc(keys, func(key string) bool {
		namespace, _, _ := strings.Cut(key, "/")
		return namespace == corev1.LabelNamespaceNodeRestriction || strings.HasSuffix(namespace, "."+corev1.LabelNamespaceNodeRestriction)
	}))
}
