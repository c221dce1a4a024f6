package nodesettings

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// restricted is the namespace of labels that only an administrator may set on a Node.
const restricted = "node-restriction.kubernetes.io"

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
		return namespace == restricted || strings.HasSuffix(namespace, "."+restricted)
	}))
}
