package volume

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume/judge"
)

// maxCapacities limits the number of shared volume sizes: most volumes have one of a few sizes.
const maxCapacities = 1 << 10

// NewCacheTransform returns the transform of the manager's cache of PersistentVolumes. It keeps only the managed fields that show whether
// another tool manages the mount options.
func NewCacheTransform() func(object any) (any, error) {
	capacities := store.NewPool[corev1.ResourceList](maxCapacities)
	return func(object any) (any, error) {
		if pv, ok := object.(*corev1.PersistentVolume); ok {
			pv.ManagedFields = relevantFields(pv)
			if storage, ok := pv.Spec.Capacity[corev1.ResourceStorage]; ok && len(pv.Spec.Capacity) == 1 {
				pv.Spec.Capacity = capacities.Share(storage.String(), func() corev1.ResourceList { return pv.Spec.Capacity })
			}
		}
		return object, nil
	}
}

func relevantFields(pv *corev1.PersistentVolume) []metav1.ManagedFieldsEntry {
	var entries []metav1.ManagedFieldsEntry
	for _, entry := range pv.ManagedFields {
		if !judge.ShowsManager(entry) {
			continue
		}
		fields := `{"f:spec":{"f:persistentVolumeReclaimPolicy":{}}}`
		if judge.OwnsMountOptions(entry) {
			fields = `{"f:spec":{"f:mountOptions":{}}}`
		}
		entry.FieldsV1 = metav1.NewFieldsV1(fields)
		entries = append(entries, entry)
	}
	return entries
}
