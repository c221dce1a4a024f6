package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/lists"
)

// TestMaintenanceConditionsOfOthersAreKept has another controller's condition of a type that the rollout also sets, in each step of a rollout.
func TestMaintenanceConditionsOfOthersAreKept(t *testing.T) {
	for _, kind := range maintenanceTypes {
		for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
			other := corev1.NodeCondition{Type: kind, Status: status, Reason: "NodeMaintenance", Message: "disk replacement"}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, other}
			s := passOf(t, node)
			s.nodes, s.changed = map[string]*corev1.Node{"a": node}, sets.New[string]()
			var got corev1.Node
			for _, step := range []plan.SetMaintenance{
				{State: plan.MaintenanceDraining}, {State: plan.MaintenanceDrained}, {State: plan.MaintenanceDrained, Permitting: true}, {State: plan.MaintenanceNone},
			} {
				step.Node = "a"
				check.NoError(t, s.Get(t.Context(), client.ObjectKey{Name: "a"}, s.nodes["a"]))
				check.NoError(t, s.setMaintenance(t.Context(), step))
				check.NoError(t, s.Get(t.Context(), client.ObjectKey{Name: "a"}, &got))
				ofKind := lists.Filter(got.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
				if diff := cmp.Diff([]corev1.NodeCondition{other}, ofKind); diff != "" {
					t.Errorf("%s %s, after %+v (-want +got):\n%s", kind, status, step, diff)
				}
			}
			if len(got.Status.Conditions) != 2 {
				t.Errorf("%s %s: got conditions %v, want the operator's removed", kind, status, got.Status.Conditions)
			}
		}
	}
}

func TestGuardsAreSetAndRemovedAndOtherKeysAreKept(t *testing.T) {
	const list = v1alpha1.DisruptionGuardsAnnotation
	for name, c := range map[string]struct {
		before    metav1.ObjectMeta
		exclude   bool
		change    func(*corev1.Node)
		during    metav1.ObjectMeta
		afterward metav1.ObjectMeta
	}{
		"a plain node": {
			during: metav1.ObjectMeta{Annotations: map[string]string{
				clusterAutoscalerAnnotation: "true", karpenterAnnotation: "true",
				list: `{"annotations":["` + clusterAutoscalerAnnotation + `","` + karpenterAnnotation + `"]}`,
			}},
		},
		"a node that load balancers exclude": {
			exclude: true,
			during: metav1.ObjectMeta{
				Annotations: map[string]string{
					clusterAutoscalerAnnotation: "true", karpenterAnnotation: "true",
					list: `{"annotations":["` + clusterAutoscalerAnnotation + `","` + karpenterAnnotation + `"],"labels":["` + corev1.LabelNodeExcludeBalancers + `"]}`,
				},
				Labels: map[string]string{corev1.LabelNodeExcludeBalancers: "true"},
			},
		},
		"values of others stay": {
			before: metav1.ObjectMeta{
				Annotations: map[string]string{karpenterAnnotation: "false"}, Labels: map[string]string{corev1.LabelNodeExcludeBalancers: ""},
			},
			exclude: true,
			during: metav1.ObjectMeta{
				Annotations: map[string]string{
					clusterAutoscalerAnnotation: "true", karpenterAnnotation: "false", list: `{"annotations":["` + clusterAutoscalerAnnotation + `"]}`,
				},
				Labels: map[string]string{corev1.LabelNodeExcludeBalancers: ""},
			},
			afterward: metav1.ObjectMeta{
				Annotations: map[string]string{karpenterAnnotation: "false"}, Labels: map[string]string{corev1.LabelNodeExcludeBalancers: ""},
			},
		},
		"values that others have changed stay, and so does a foreign key in the list": {
			change: func(n *corev1.Node) {
				n.Annotations[karpenterAnnotation] = "mine"
				n.Annotations["example.com/x"] = "true"
				n.Annotations[list] = `{"annotations":["` + clusterAutoscalerAnnotation + `","` + karpenterAnnotation + `","example.com/x"]}`
			},
			during: metav1.ObjectMeta{Annotations: map[string]string{
				clusterAutoscalerAnnotation: "true", karpenterAnnotation: "mine", "example.com/x": "true",
				list: `{"annotations":["` + clusterAutoscalerAnnotation + `","` + karpenterAnnotation + `","example.com/x"]}`,
			}},
			afterward: metav1.ObjectMeta{Annotations: map[string]string{karpenterAnnotation: "mine", "example.com/x": "true"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: *c.before.DeepCopy()}
			if node.Annotations == nil {
				node.Annotations = map[string]string{}
			}
			setGuards(node, c.exclude)
			setGuards(node, c.exclude) // a second cordon
			if c.change != nil {
				c.change(node)
			}
			check.Equal(t, "during", c.during, node.ObjectMeta, cmpopts.EquateEmpty())
			removeGuards(node)
			check.Equal(t, "afterwards", c.afterward, node.ObjectMeta, cmpopts.EquateEmpty())
		})
	}
}
