package volume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/text"
)

func (s *scope) applyStep(ctx context.Context, step plan.Step) error {
	pv := &corev1.PersistentVolume{}
	pv.Name = step.Target().Name
	if data := patchFor(step); data != nil {
		if err := s.Client.Patch(ctx, pv, client.RawPatch(types.MergePatchType, data), client.FieldOwner(v1alpha1.VolumesFieldManager)); err != nil {
			return fmt.Errorf("patch PersistentVolume %s: %w", pv.Name, err)
		}
	}
	s.reportStep(ctx, step)
	return nil
}

// patchFor returns the single write of a step. It contains options and annotations together, so that the volume is consistent after a crash at
// any time. It is a JSON merge patch: mountOptions is an atomic list, and the patch takes over its ownership. It can also remove the
// annotations without the list. Server-side apply would remove both. The resourceVersion makes the patch fail after any other change.
//
// It returns nil if the volume would not change: another user or controller removed the annotations, or only the ledger records the step.
func patchFor(step plan.Step) []byte {
	if !wouldChange(step) {
		return nil
	}
	metadata := map[string]any{"resourceVersion": step.Target().ResourceVersion}
	patch := map[string]any{"metadata": metadata}
	switch step := step.(type) {
	case plan.WriteOptions:
		metadata["annotations"] = judge.AnnotationsWith(step.Verdict, step.Mark)
		patch["spec"] = map[string]any{"mountOptions": orNil(step.Verdict.Options)}
	case plan.RestoreOptions:
		metadata["annotations"] = judge.AnnotationsWithout(step.FailedMount)
		patch["spec"] = map[string]any{"mountOptions": orNil(step.Options)}
	case plan.ReleaseVolume:
		metadata["annotations"] = judge.AnnotationsWithout(nil)
	case plan.RecordSet:
		metadata["annotations"] = judge.AnnotationsForEarlier(step.Mark, step.FailedMount)
	}
	return []byte(text.JSON(patch))
}

func wouldChange(step plan.Step) bool {
	pv := step.Target()
	switch step := step.(type) {
	case plan.RestoreOptions:
		return judge.IsAnnotated(pv) || step.FailedMount != nil || !slices.Equal(step.Options, pv.Spec.MountOptions)
	case plan.ReleaseVolume:
		return judge.IsAnnotated(pv)
	case plan.RecordSet:
		return step.Mark != nil || step.FailedMount != nil
	}
	return true
}

// orNil removes the field if the list is empty.
func orNil(options []string) any {
	if len(options) == 0 {
		return nil
	}
	return options
}
