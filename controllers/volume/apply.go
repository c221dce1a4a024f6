package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

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
// It returns nil if the volume would not change: another user or controller removed the annotations, an earlier manager made the write, or only the
// ledger records the step.
func patchFor(step plan.Step) []byte {
	pv, annotations, options, spec := step.Target(), map[string]any{}, step.Target().Spec.MountOptions, map[string]any(nil)
	switch step := step.(type) {
	case plan.WriteOptions:
		annotations, options = judge.AnnotationsWith(step.Verdict, step.Mark), step.Verdict.Options
		spec = map[string]any{"mountOptions": orNil(options)}
	case plan.RestoreOptions:
		annotations, options = judge.AnnotationsWithout(step.FailedMount), step.Options
		spec = map[string]any{"mountOptions": orNil(options)}
	case plan.ReleaseVolume:
		annotations = judge.AnnotationsWithout(nil)
	case plan.RecordSet:
		annotations = judge.AnnotationsForEarlier(step.Mark, step.FailedMount)
	}
	maps.DeleteFunc(annotations, func(key string, value any) bool {
		current, found := pv.Annotations[key]
		return found && value == current || !found && value == nil
	})
	if len(annotations) == 0 && slices.Equal(options, pv.Spec.MountOptions) {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": pv.ResourceVersion, "annotations": annotations}}
	if spec != nil {
		patch["spec"] = spec
	}
	return []byte(text.JSON(patch))
}

// orNil removes the field if the list is empty.
func orNil(options []string) any {
	if len(options) == 0 {
		return nil
	}
	return options
}

// maxNote is the maximum length of a note in the events API, in bytes.
const maxNote = 1024

// reportStep writes a log line and an event for a step that ran.
func (s *scope) reportStep(ctx context.Context, step plan.Step) {
	note, action := step.Explain(), judge.ActionWrite
	switch step.(type) {
	case plan.RestoreOptions:
		action = judge.ActionRestore
	case plan.ReleaseVolume:
		action = judge.ActionRelease
	case plan.RecordSet:
		action = judge.ActionNone
	}
	log.FromContext(ctx).Info("Updated PersistentVolume", "PersistentVolume", note.Volume, "action", action,
		"reason", note.Reason, "message", note.Message)
	s.sendEvent(note, action)
}

// reportNotes writes a log line and an event for each volume that is blocked or keeps its original value. An unchanged reason and message are
// not reported again.
func (s *scope) reportNotes(ctx context.Context, notes map[string]plan.Note) {
	maps.DeleteFunc(s.reported, func(volume, _ string) bool { return !isReportedOnce(notes[volume]) })
	for name, note := range notes {
		if !isReportedOnce(note) {
			continue
		}
		content := note.Reason + " " + note.Message
		if s.reported[name] == content {
			continue
		}
		s.reported[name] = content
		log.FromContext(ctx).Info("PersistentVolume differs from its profiles", "PersistentVolume", name, "reason", note.Reason, "message", note.Message)
		s.sendEvent(note, judge.ActionNone)
	}
}

// isReportedOnce reports whether a volume stays in its state although it differs from the profiles.
func isReportedOnce(note plan.Note) bool {
	return note.State == judge.StateBlocked || note.Reason == v1alpha1.VolumeReasonKeepsOwnValue
}

func (s *scope) sendEvent(note plan.Note, action judge.Action) {
	eventType := corev1.EventTypeNormal
	if note.State == judge.StateBlocked || note.Reason == v1alpha1.VolumeReasonFailedMount {
		eventType = corev1.EventTypeWarning
	}
	s.Recorder.Eventf(note.Object, nil, eventType, note.Reason, string(action), "%s", text.CutBytes(note.Message, maxNote))
}
