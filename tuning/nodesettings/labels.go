package nodesettings

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/tuning/lists"
)

// restricted is the namespace of labels that only an administrator may set on a Node.
const restricted = "node-restriction.kubernetes.io"

// KubeletLabels returns the label keys of a selector that a kubelet may set on its own Node, sorted: all except labels with the prefix that the
// admission plugin NodeRestriction reserves (kubernetes plugin/pkg/admission/noderestriction). A nil selector has none.
func KubeletLabels(selector *metav1.LabelSelector) []string {
	if selector == nil {
		return nil
	}
	required := lists.Each(selector.MatchExpressions, func(expression metav1.LabelSelectorRequirement) string { return expression.Key })
	return slices.DeleteFunc(lists.Distinct(slices.Collect(maps.Keys(selector.MatchLabels)), required), func(key string) bool {
		namespace, _, _ := strings.Cut(key, "/")
		return namespace == restricted || strings.HasSuffix(namespace, "."+restricted)
	})
}
