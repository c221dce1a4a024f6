package volume

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/controllers/volume/judge"
)

// CacheTransform is for the manager's cache of PersistentVolumes: of the managed fields it keeps only what tells whether the mount
// options are declared elsewhere. Most volumes have one of a few sizes.
func CacheTransform(object any) (any, error) {
	pv, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return object, nil
	}
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range pv.ManagedFields {
		if !judge.TellsOwner(entry) {
			continue
		}
		fields := `{"f:spec":{"f:persistentVolumeReclaimPolicy":{}}}`
		if judge.OwnsMountOptions(entry) {
			fields = `{"f:spec":{"f:mountOptions":{}}}`
		}
		entry.FieldsV1 = metav1.NewFieldsV1(fields)
		kept = append(kept, entry)
	}
	pv.ManagedFields = kept
	if storage, ok := pv.Spec.Capacity[corev1.ResourceStorage]; ok && len(pv.Spec.Capacity) == 1 {
		pv.Spec.Capacity = sharedCapacities.share(storage.String(), func() corev1.ResourceList { return pv.Spec.Capacity })
	}
	return pv, nil
}
