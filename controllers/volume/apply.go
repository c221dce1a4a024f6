package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
)

// applyStep applies one step in one write.
func (s *scope) applyStep(ctx context.Context, step plan.Step) error {
	data, err := patchFor(step)
	if err != nil {
		return err
	}
	if data == nil {
		s.reportStep(ctx, step)
		return nil
	}
	before := step.Target()
	pv := &corev1.PersistentVolume{}
	pv.Name = before.Name
	if err := s.Client.Patch(ctx, pv, client.RawPatch(types.MergePatchType, data), client.FieldOwner(v1alpha1.VolumesFieldManager)); err != nil {
		return fmt.Errorf("patch PersistentVolume %s: %w", before.Name, err)
	}
	s.reportStep(ctx, step)
	return nil
}

// patchFor returns the single write of a step. It contains options and annotations together, so that the volume is consistent after a crash at
// any time. It is a JSON merge patch: mountOptions is an atomic list, and the patch takes over its ownership. It can also remove the
// annotations without the list. Server-side apply would remove both. The resourceVersion makes the patch fail after any other change.
//
// It returns nil if the volume would not change: another user or controller removed the annotations, or only the ledger records the step.
func patchFor(step plan.Step) ([]byte, error) {
	pv := step.Target()
	var annotations map[string]any
	var spec map[string]any
	var err error
	switch step := step.(type) {
	case plan.WriteOptions:
		annotations, err = judge.AnnotationsWith(step.Verdict, step.Mark)
		spec = map[string]any{"mountOptions": orNil(step.Verdict.Options)}
	case plan.RestoreOptions:
		annotations, err = judge.AnnotationsWithout(step.FailedMount)
		spec = map[string]any{"mountOptions": orNil(step.Options)}
	case plan.ReleaseVolume:
		annotations, err = judge.AnnotationsWithout(nil)
	case plan.RecordSet:
		annotations, err = judge.AnnotationsForEarlier(step.Mark, step.FailedMount)
	default:
		err = fmt.Errorf("build patch: unexpected step %q", step)
	}
	if err != nil || !wouldChange(step) {
		return nil, err
	}
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": pv.ResourceVersion, "annotations": annotations}}
	if spec != nil {
		patch["spec"] = spec
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch of PersistentVolume %s: %w", pv.Name, err)
	}
	return data, nil
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
