package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/catalogue"
)

// VolumeBoundTo returns the volume that a PersistentVolumeClaim is bound to. Both must name each other. Nil if there is none.
func (s Snapshot) VolumeBoundTo(volumeClaim types.NamespacedName) *corev1.PersistentVolume {
	metadata := s.VolumeClaims[volumeClaim]
	i := slices.IndexFunc(s.Volumes, func(pv *corev1.PersistentVolume) bool {
		ref := pv.Spec.ClaimRef
		return metadata != nil && ref != nil && ref.Namespace == volumeClaim.Namespace && ref.Name == volumeClaim.Name &&
			ref.UID == metadata.UID && pv.Status.Phase == corev1.VolumeBound
	})
	if i < 0 {
		return nil
	}
	return s.Volumes[i]
}

// TrialTarget returns the mount that a trial of a profile's rules would make for a volume. obstacle explains why there is none. Empty if there is
// one.
func (s Snapshot) TrialTarget(
	pv *corev1.PersistentVolume, profile *v1alpha1.StorageClientProfile, allow catalogue.AllowList,
) (t judge.ProbeTarget, obstacle string) {
	in := judge.Input{Volume: pv, VolumeClaim: s.volumeClaimOf(pv), Entry: s.Ledger.EntryOf(pv.UID)}
	in.Class, in.HasClass = s.Classes[pv.Spec.StorageClassName]
	list, obstacle := judge.Candidate(in, profile, allow, s.Classes)
	if obstacle != "" {
		return t, obstacle
	}
	return judge.ProbeTargetOf(pv, judge.Verdict{Options: list}, s.Clones), ""
}
