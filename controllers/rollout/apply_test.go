package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// Another client changes the object of each step between the read and the write.
func TestAStepThatMeetsAnotherVersionIsAConflict(t *testing.T) {
	const name = "a"
	taint := corev1.Taint{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule}
	for _, step := range []plan.Step{
		plan.Cordon{OnNode: plan.OnNode{Node: name}},
		plan.Uncordon{OnNode: plan.OnNode{Node: name}},
		plan.RemoveGuards{OnNode: plan.OnNode{Node: name}},
		plan.RemoveTaint{OnNode: plan.OnNode{Node: name}},
		plan.SetMaintenance{OnNode: plan.OnNode{Node: name}, State: plan.MaintenanceDraining},
		plan.GivePermit{OnNode: plan.OnNode{Node: name}, Permit: v1alpha1.RebootPermit{ID: "id"}},
		plan.ClearPermit{OnNode: plan.OnNode{Node: name}},
		plan.WriteNote{OnNode: plan.OnNode{Node: name}},
	} {
		t.Run(fmt.Sprintf("%T", step), func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.DisruptionGuardsAnnotation: "{}"}}}
			node.Spec.Taints = []corev1.Taint{taint}
			clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
			clientNode.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "before"}
			s := passOf(t, node, clientNode)
			s.UntunedTaint = v1alpha1.UntunedTaint
			if _, err := s.readSnapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			other, otherClientNode := &corev1.Node{}, &v1alpha1.StorageClientNode{}
			change(t, s.Client, name, other, func() { other.Labels = map[string]string{"somebody": "else"} })
			change(t, s.Client, name, otherClientNode, func() { otherClientNode.Labels = map[string]string{"somebody": "else"} })
			apply := func() error { return s.applyStep(t.Context(), step) }
			if note, ok := step.(plan.WriteNote); ok {
				apply = func() error { return s.writeNote(t.Context(), name, note.Note) }
			}
			if err := apply(); !apierrors.IsConflict(err) {
				t.Errorf("got %v, want a conflict", err)
			}
		})
	}
}

// An admission policy denies the withdrawal of a permit. The error goes into the note, so it names those who must act.
func TestADeniedWithdrawalNamesWhoMustAllowIt(t *testing.T) {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	clientNode.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "id"}
	s := passOf(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, clientNode)
	if _, err := s.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Client = interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewForbidden(corev1.Resource("storageclientnodes"), "a", errors.New("policy x denied it"))
		},
	})
	err := s.applyStep(t.Context(), plan.ClearPermit{OnNode: plan.OnNode{Node: "a"}, ID: "id"})
	if err == nil || !strings.Contains(err.Error(), "policy x denied it") || !strings.Contains(err.Error(), "must allow it") || !apierrors.IsForbidden(err) {
		t.Errorf("got error %v, want the policy and the owner in it", err)
	}
}
