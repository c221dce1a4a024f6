package trial

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/trial/plan"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
)

// readTrials returns all StorageClientTrials, oldest first. It ignores trials that are being deleted.
func (r *Reconciler) readTrials(ctx context.Context, volumes volumeplan.Snapshot, profiles []v1alpha1.StorageClientProfile) ([]plan.Trial, error) {
	var list v1alpha1.StorageClientTrialList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list StorageClientTrials: %w", err)
	}
	return plan.ResolveAll(list.Items, volumes, profiles, r.Allow), nil
}

// patchStatus changes the status of a trial, based on the version that was read. New passes are appended, and a newer list must not be lost.
func (r *Reconciler) patchStatus(ctx context.Context, step plan.WriteStatus) error {
	changed := step.Trial.DeepCopy()
	changed.Status = *step.Status
	patch := client.MergeFromWithOptions(step.Trial, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, changed, patch, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch status of StorageClientTrial %s: %w", client.ObjectKeyFromObject(step.Trial), err)
	}
	return nil
}
