package volume

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/builders"
)

func TestCacheTransformKeepsTheRelevantFields(t *testing.T) {
	const ownsOptions = `{"f:spec":{"f:mountOptions":{},"f:nfs":{}}}`
	managedBy := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) builders.VolumeOption {
		return func(pv *corev1.PersistentVolume) {
			pv.ManagedFields = append(pv.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields)})
		}
	}
	pv := builders.NFSVolume(nil, managedBy("kubelet", metav1.ManagedFieldsOperationUpdate, ownsOptions),
		managedBy("labeller", metav1.ManagedFieldsOperationApply, `{"f:metadata":{}}`), managedBy("flux", metav1.ManagedFieldsOperationApply, ownsOptions))
	noteOf := func() plan.Note {
		return plan.For(snapshotOf([]*corev1.PersistentVolume{pv}, *fastProfile())).Notes[pv.Name]
	}
	before := noteOf()
	if _, err := NewCacheTransform()(pv); err != nil {
		t.Fatal(err)
	}
	if after := noteOf(); after.Reason != v1alpha1.VolumeReasonDeclaredElsewhere || before.Message != after.Message {
		t.Errorf("got message %q before and %q (%s) after the transform, want the same message and reason %s", before.Message,
			after.Message, after.Reason, v1alpha1.VolumeReasonDeclaredElsewhere)
	}
	if n := len(pv.ManagedFields); n != 1 {
		t.Errorf("got %d managed fields, want 1", n)
	}
}
