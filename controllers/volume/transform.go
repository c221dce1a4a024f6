package volume

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CacheTransform is for the manager's cache of PersistentVolumes: of the managed fields it keeps only who applies the
// mount options, which Decide has to know.
func CacheTransform(object any) (any, error) {
	pv, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return object, nil
	}
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range pv.ManagedFields {
		if entry.Operation == metav1.ManagedFieldsOperationApply && ownsMountOptions(entry) {
			entry.FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:mountOptions":{}}}`)
			kept = append(kept, entry)
		}
	}
	pv.ManagedFields = kept
	return pv, nil
}
