package volume

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/text"
)

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
