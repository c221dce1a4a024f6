package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/optionset"
)

// markAnnotations hold the mark of a batch and what is remembered of a failed mount.
var markAnnotations = []string{v1alpha1.MountOptionsStepAnnotation, v1alpha1.FailedMountOptionsAnnotation}

// Mark is what a volume remembers of the write that brought its list.
type Mark struct {
	// Since is when the batch began, in full seconds. Volumes of one batch share it. Of a volume that was created with its list it is
	// when that was.
	Since time.Time `json:"since,omitzero"`
	// Written is when the list was written; marks of earlier releases have none.
	Written time.Time `json:"written,omitzero"`
	// Set is the hash of the set of options that the list was written for, Rules are the rules of it, as profile/rule.
	Set   string   `json:"set"`
	Rules []string `json:"rules"`
	// Unproven is true if nothing had shown the set to work when the list was written: the batch is a canary. Marks of earlier releases do
	// not have it.
	Unproven bool `json:"unproven,omitempty"`
	// Created is true where the volume was created with the list, and belongs to no batch.
	Created bool `json:"created,omitempty"`
	// Evidence and Probed are written for the release before, which knows of a set what its volumes hold, and imported like Acquitted.
	// Evidence is what has shown the set to work. Probed is true if a probe has, which counts for the volume's server alone. Acquitted is a
	// failure that does not count.
	Evidence  string `json:"evidence,omitempty"`
	Probed    bool   `json:"probed,omitempty"`
	Acquitted string `json:"acquitted,omitempty"`
}

// MarkFor is the mark of a volume that is written for a verdict in the batch of a time.
func MarkFor(v Verdict, since time.Time) *Mark {
	return &Mark{Since: since, Set: v.Set, Rules: v.Rules}
}

// MarkOfCreation is the mark of a volume that is created with the options of a verdict. When that is, only the API server knows.
func MarkOfCreation(v Verdict) *Mark {
	return &Mark{Set: v.Set, Rules: v.Rules, Created: true, Unproven: true}
}

// WithEvidence is the mark with the mount by a pod that has shown its set of options to work.
func (m Mark) WithEvidence(evidence string) *Mark {
	m.Evidence, m.Probed = evidence, false
	if m.Created {
		m.Since = time.Time{}
	}
	return &m
}

// IsOfEarlierRelease says whether the mark says nothing of evidence.
func (m *Mark) IsOfEarlierRelease() bool { return m == nil || !m.Unproven && m.Evidence == "" }

// IsBatchOf says whether the volume was written in a batch of a profile.
func (m *Mark) IsBatchOf(profile string) bool {
	return m != nil && !m.Created && isOfProfile(m.Rules, profile)
}

// Profiles are the names of the profiles whose rules the list was written for.
func (m *Mark) Profiles() []string {
	if m == nil {
		return nil
	}
	return profilesOfRules(m.Rules)
}

// MarkOf returns nil for a volume that no batch has written, and for a mark that cannot be read.
func MarkOf(pv *corev1.PersistentVolume) *Mark {
	mark := readJSON[Mark](pv, v1alpha1.MountOptionsStepAnnotation)
	if mark != nil && mark.Created {
		mark.Since = pv.CreationTimestamp.Time
	}
	return mark
}

// FailedMountOf returns the failed mount that the annotation of a volume holds. Nil if there is none. A release before this one goes by
// it; this one imports it.
func FailedMountOf(pv *corev1.PersistentVolume) *optionset.Failed {
	return readJSON[optionset.Failed](pv, v1alpha1.FailedMountOptionsAnnotation)
}

func readJSON[T any](pv *corev1.PersistentVolume, key string) *T {
	text, ok := pv.Annotations[key]
	if !ok {
		return nil
	}
	out := new(T)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return nil
	}
	return out
}

// Reverted returns what becomes of a volume that a pod could not mount with the list that we wrote.
func Reverted(v Verdict, set *optionset.Record, b optionset.Blame) Verdict {
	out := Verdict{
		Action: ActionRestore, State: StatePending, Reason: v1alpha1.VolumeReasonFailedMount, Profiles: v.Profiles, rules: v.rules,
		Options: v.own,
	}
	until := "until a rule that declares them changes"
	if b.Unclear {
		until = "until a pod shows whether it mounts with these"
	}
	out.Message = fmt.Sprintf("a pod could not mount it with %s; restored %s, and no other volume gets these options %s", BlameText(set, b), listText(out.Options), until)
	return out
}

// BlameText returns the text of a failed mount: with what, by which driver, and what the event says.
func BlameText(set *optionset.Record, b optionset.Blame) string {
	list := "the declared options"
	if len(b.Options) > 0 {
		list = listText(b.Options)
	}
	return fmt.Sprintf("%s (driver %s): the event says %s", list, set.Driver, quote(b.Text))
}

// PutBackText says of a volume that it gets its own list back since another one could not be mounted with the declared options.
func PutBackText(failed string, own []string) string {
	return fmt.Sprintf("%s could not be mounted with the declared options, and no mount has shown them to work: restored %s", failed, listText(own))
}

// releaseFailedMount takes what is remembered of a failed mount off a volume, once no profile declares the list any more.
func (s *scope) releaseFailedMount(v Verdict) Verdict {
	_, marked := s.Volume.Annotations[v1alpha1.FailedMountOptionsAnnotation]
	if !marked || s.record.Present || v.Action != ActionNone || v.State == StateHeld || s.isIgnored() || s.Profiles.pausedAll {
		return v
	}
	if failed := FailedMountOf(s.Volume); failed != nil {
		for _, p := range s.Profiles.byPrecedence {
			if isOfProfile(failed.Rules, p.Name) && p.hold != nil {
				return v
			}
		}
		if s.Profiles.Declare(SetOf(SourceOf(s.Volume), failed.Set, failed.Rules)) {
			return v
		}
	}
	v.Action, v.Reason, v.Message = ActionRelease, v1alpha1.VolumeReasonReleased, "no profile declares the options any more that could not be mounted"
	return v
}

// AnnotationsOfCreation are those of a volume that is created with the options of a verdict.
func AnnotationsOfCreation(v Verdict) (map[string]string, error) {
	annotations, err := annotationsOf(v)
	if err != nil {
		return nil, err
	}
	annotations[v1alpha1.MountOptionsStepAnnotation], err = jsonText(MarkOfCreation(v))
	return annotations, err
}

// annotationsOf are the record that a write leaves on the volume beside the options.
func annotationsOf(v Verdict) (map[string]string, error) {
	// An empty list is written as [], which differs from no annotation at all.
	original, err := jsonText(append([]string{}, v.Original...))
	if err != nil {
		return nil, err
	}
	applied, err := jsonText(append([]string{}, v.Options...))
	if err != nil {
		return nil, err
	}
	return map[string]string{
		v1alpha1.OriginalMountOptionsAnnotation: original,
		v1alpha1.AppliedMountOptionsAnnotation:  applied,
		v1alpha1.ProfilesAnnotation:             strings.Join(v.Profiles, ","),
	}, nil
}

// AnnotationsWithout are all of our annotations as a volume is left that carries nothing of ours any more, but for what is
// remembered of a failed mount, if that is given. nil removes one.
func AnnotationsWithout(failed *optionset.Failed) (map[string]any, error) {
	annotations := map[string]any{}
	for _, key := range slices.Concat(markAnnotations, recordAnnotations) {
		annotations[key] = nil
	}
	if failed == nil {
		return annotations, nil
	}
	text, err := jsonText(failed)
	annotations[v1alpha1.FailedMountOptionsAnnotation] = text
	return annotations, err
}

// AnnotationsForEarlier returns the annotations of a mark and of a failed mount, as far as they are given, and nothing else.
func AnnotationsForEarlier(mark *Mark, failed *optionset.Failed) (annotations map[string]any, err error) {
	annotations = map[string]any{}
	if mark != nil {
		annotations[v1alpha1.MountOptionsStepAnnotation], err = jsonText(mark)
	}
	if failed != nil && err == nil {
		annotations[v1alpha1.FailedMountOptionsAnnotation], err = jsonText(failed)
	}
	return annotations, err
}

// AnnotationsWith are those that a write leaves, with the mark of its batch where it has one. nil removes one.
func AnnotationsWith(v Verdict, mark *Mark) (map[string]any, error) {
	record, err := annotationsOf(v)
	if err != nil {
		return nil, err
	}
	annotations := map[string]any{}
	for key, text := range record {
		annotations[key] = text
	}
	if mark == nil {
		return annotations, nil
	}
	annotations[v1alpha1.FailedMountOptionsAnnotation] = nil
	annotations[v1alpha1.MountOptionsStepAnnotation], err = jsonText(mark)
	return annotations, err
}
