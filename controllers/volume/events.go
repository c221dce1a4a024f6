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

// maxNote is the longest note that the events API takes, in bytes.
const maxNote = 1024

// reportStep makes a log line and an event of a step that was taken.
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
	log.FromContext(ctx).Info("Wrote volume", "PersistentVolume", note.Volume, "action", action, "reason", note.Reason, "message", note.Message)
	s.sendEvent(note, action)
}

// reportNotes makes a log line and an event of each volume that has come to be blocked, or to keep a value of its own, or does so for
// another reason than before. What stands makes none.
func (s *scope) reportNotes(ctx context.Context, notes map[string]plan.Note) {
	maps.DeleteFunc(s.reported, func(volume, _ string) bool { return !isToldOnce(notes[volume]) })
	for name, note := range notes {
		if !isToldOnce(note) {
			continue
		}
		said := note.Reason + " " + note.Message
		if s.reported[name] == said {
			continue
		}
		s.reported[name] = said
		log.FromContext(ctx).Info("Volume differs from what is declared", "PersistentVolume", name, "reason", note.Reason, "message", note.Message)
		s.sendEvent(note, judge.ActionNone)
	}
}

// isToldOnce says whether nothing more happens to a volume although it differs from what is declared.
func isToldOnce(note plan.Note) bool {
	return note.State == judge.StateBlocked || note.Reason == v1alpha1.VolumeReasonKeepsOwnValue
}

func (s *scope) sendEvent(note plan.Note, action judge.Action) {
	eventType := corev1.EventTypeNormal
	if note.State == judge.StateBlocked || note.Reason == v1alpha1.VolumeReasonFailedMount {
		eventType = corev1.EventTypeWarning
	}
	s.Recorder.Eventf(note.Object, nil, eventType, note.Reason, string(action), "%s", text.CutBytes(note.Message, maxNote))
}
