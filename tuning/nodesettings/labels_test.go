package nodesettings

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLabelsThatAKubeletMaySet(t *testing.T) {
	for key, want := range map[string]bool{
		"node-restriction.kubernetes.io/canary":         false,
		"team.node-restriction.kubernetes.io/canary":    false,
		"storage.k8s.io/canary":                         true,
		"canary":                                        true,
		"example.com/canary":                            true,
		"notkubernetes.io/canary":                       true,
		"eks.amazonaws.com/nodegroup":                   true,
		"kubernetes.io/hostname":                        true,
		"topology.kubernetes.io/zone":                   true,
		"node.kubernetes.io/instance-type":              true,
		"kubelet.kubernetes.io/canary":                  true,
		"pool.node.kubernetes.io/canary":                true,
		"node-restriction.kubernetes.io.example/canary": true,
	} {
		for name, selector := range map[string]metav1.LabelSelector{
			"matchLabels":      {MatchLabels: map[string]string{key: "true", "node-restriction.kubernetes.io/other": ""}},
			"matchExpressions": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}}},
		} {
			if got := KubeletLabels(&selector); (len(got) == 1 && got[0] == key) != want {
				t.Errorf("%s in %s: got %q, want it listed: %t", key, name, got, want)
			}
		}
	}
	all := metav1.LabelSelector{MatchLabels: map[string]string{"b": "", "a": ""}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "b"}}}
	if diff := cmp.Diff([]string{"a", "b"}, KubeletLabels(&all)); diff != "" || KubeletLabels(nil) != nil {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
