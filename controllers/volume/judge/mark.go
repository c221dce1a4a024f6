package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// markAnnotations are the annotations that hold the mark of a batch and a failed mount.
var markAnnotations = []string{v1alpha1.MountOptionsStepAnnotation, v1alpha1.FailedMountOptionsAnnotation}

// Mark is the annotation on a volume about the write of its mount options: its batch and its option set.
type Mark struct {
	// Since is the start of the batch, in full seconds. All volumes of a batch share it. For a volume that was created with its options, it is the
	// time of creation.
	Since time.Time `json:"since,omitzero"`
	// Written is the time of the write. Zero in marks of earlier releases. With Created and evidence, it is the time of creation.
	Written time.Time `json:"written,omitzero"`
	// Set is the hash of the option set of the write. Empty in marks of the previous release. Rules are the rules of the set, as profile/rule.
	// RuleSet is their hash.
	Set     string   `json:"list,omitempty"`
	RuleSet string   `json:"set"`
	Rules   []string `json:"rules"`
	// Cluster is the UID of the cluster in which the mark was written. Empty in marks of earlier releases, and if it is unknown.
	Cluster types.UID `json:"cluster,omitempty"`
	// Unproven is true if there was no evidence for the set at the time of the write: the batch is a canary. Not set in marks of earlier releases.
	Unproven bool `json:"unproven,omitempty"`
	// Created is true if the volume was created with the options. It then belongs to no batch, unless it is the canary.
	Created bool `json:"created,omitempty"`
	// Failed is true if a pod could not mount the volume with options that the operator wrote before, and another cause is unknown.
	Failed bool `json:"failed,omitempty"`
	// Replaced are the options of the class that rules with UseProfileOverClass replaced, by profile. Not set if the write replaced no value, and in
	// marks of earlier releases.
	Replaced map[string][]string `json:"replaced,omitzero"`
	// Evidence, Probed and Cleared are for the previous release, which knows a set only from its volumes. This release writes and imports them.
	// Evidence describes the observation that the set works. Probed is true if a probe made it, which counts for the volume's server alone. Cleared
	// is a failure that does not count.
	Evidence string `json:"evidence,omitempty"`
	Probed   bool   `json:"probed,omitempty"`
	Cleared  string `json:"acquitted,omitempty"`
}

// MarkFor returns the mark of a volume that a batch of a given start time writes for a verdict.
func MarkFor(v Verdict, start time.Time) *Mark {
	return &Mark{Since: start, Set: v.Set, RuleSet: v.RuleSet, Rules: v.Rules, Replaced: v.replaced}
}

// MarkOfCreation returns the mark of a volume that is created with the options of a verdict. Only the API server knows the time of creation.
func MarkOfCreation(v Verdict, cluster types.UID) *Mark {
	return &Mark{Set: v.Set, RuleSet: v.RuleSet, Rules: v.Rules, Created: true, Unproven: v.IsCanary, Cluster: cluster, Replaced: v.replaced}
}

// ReservationFor returns the ConfigMap that lets a new volume be the canary of an option set. Its name is the same for all volumes of the set, on
// any server: a mount of one is evidence for all.
func ReservationFor(pv *corev1.PersistentVolume, set string) *corev1.ConfigMap {
	server, volumeClaim := SourceOf(pv).Server, ptr.Deref(pv.Spec.ClaimRef, corev1.ObjectReference{}).UID
	out := &corev1.ConfigMap{Data: map[string]string{"set": set, "server": server, "volume": pv.Name, "claim": string(volumeClaim)}}
	out.Namespace, out.Name = v1alpha1.ManagerNamespace, v1alpha1.CanaryConfigMapPrefix+set
	return out
}

// WithEvidence returns the mark with the mount by a pod that is the evidence for its option set.
func (m Mark) WithEvidence(evidence string) *Mark {
	m.Evidence, m.Probed = evidence, false
	if m.Created {
		m.Since, m.Written = time.Time{}, m.Since
	}
	return &m
}

func (m Mark) withReplaced(options map[string][]string) *Mark {
	m.Replaced = options
	return &m
}

// IsOfEarlierRelease reports whether the mark does not mention evidence.
func (m *Mark) IsOfEarlierRelease() bool { return m == nil || !m.Unproven && m.Evidence == "" }

// IsNewCanary reports whether the volume was created as the canary of its set. Marks of the previous release have no set, and all are unproven.
func (m *Mark) IsNewCanary() bool { return m != nil && m.Created && m.Unproven && m.Set != "" }

// IsBatchOf reports whether a batch of a profile wrote the volume.
func (m *Mark) IsBatchOf(profile string) bool {
	return m != nil && (!m.Created || m.IsNewCanary()) && optionset.Identity{Rules: m.Rules}.IsDeclaredBy(profile)
}

// Profiles returns the names of the profiles whose rules led to the write.
func (m *Mark) Profiles() []string { return profilesOfRules(ptr.Deref(m, Mark{}).Rules) }

// MarkOf returns nil for a volume without a mark, and for a mark that cannot be read.
func MarkOf(pv *corev1.PersistentVolume) *Mark {
	mark := readJSON[Mark](pv, v1alpha1.MountOptionsStepAnnotation)
	if mark != nil && mark.Created {
		mark.Since = pv.CreationTimestamp.Time
	}
	return mark
}

// ClockTolerance is the assumed maximum error of a time by the API server's clock, which has whole seconds and may have several replicas.
const ClockTolerance = 5 * time.Second

// isForeign reports whether a record on a volume is about another one, as after a restore from a backup: another cluster wrote it, or it is older
// than the volume. The time may be missing.
func (in Input) isForeign(cluster types.UID, at time.Time) bool {
	return cluster != "" && in.Cluster != "" && cluster != in.Cluster || !at.IsZero() && at.Before(in.Volume.CreationTimestamp.Add(-ClockTolerance))
}

// ownMark returns the mark of the volume. Nil if it is about another one. An observation about a volume that was created with its options counts if
// both clusters are known, or if it has the time of the volume's creation.
func (in Input) ownMark() *Mark {
	m := MarkOf(in.Volume)
	isUnbound := m != nil && m.Created && (m.Cluster == "" || in.Cluster == "") && m.Evidence+m.Cleared != "" &&
		m.Written.Sub(in.Volume.CreationTimestamp.Time).Abs() > ClockTolerance
	// Marks of earlier releases have no time of the write, but the time of its batch.
	if m == nil || isUnbound || in.isForeign(m.Cluster, cmp.Or(m.Written, m.Since)) {
		return nil
	}
	return m
}

// ownFailedMount returns the failed mount in the annotation of the volume. Nil if it is about another one.
func (in Input) ownFailedMount() *optionset.Failed {
	f := FailedMountOf(in.Volume)
	if f == nil || in.isForeign(f.Cluster, f.Since) || f.UID != "" && f.UID != in.Volume.UID {
		return nil
	}
	return f
}

// FailedMountOf returns the failed mount in the annotation of a volume. Nil if there is none. An earlier release relies on it. This release
// imports it.
func FailedMountOf(pv *corev1.PersistentVolume) *optionset.Failed {
	return readJSON[optionset.Failed](pv, v1alpha1.FailedMountOptionsAnnotation)
}

func readJSON[T any](pv *corev1.PersistentVolume, key string) *T {
	out := new(T)
	if err := json.Unmarshal([]byte(pv.Annotations[key]), out); err != nil {
		return nil
	}
	return out
}

// Reverted returns the verdict on a volume that a pod could not mount with the options that the operator wrote.
func Reverted(v Verdict, set *optionset.Record, b optionset.Blame) Verdict {
	out := Verdict{
		Action: ActionRestore, State: StatePending, Reason: v1alpha1.VolumeReasonFailedMount, Profiles: v.Profiles,
		Options: v.recordedOriginal,
	}
	condition := "until a rule that declares them changes"
	if b.Unclear {
		condition = "until a pod shows whether the original options work"
	}
	out.Message = fmt.Sprintf("A pod could not mount the volume with %s; restored %s; no other volume gets these options %s",
		BlameText(set, b), listText(out.Options), condition)
	return out
}

// BlameText returns the text of a failed mount: the options, the driver, and the message of the event.
func BlameText(set *optionset.Record, b optionset.Blame) string {
	list := "the declared options"
	if len(b.Options) > 0 {
		list = listText(b.Options)
	}
	// The text comes from outside the operator: it cannot end the quotation.
	return fmt.Sprintf("%s (driver %s, event: %s)", list, set.Driver, `"`+strings.ReplaceAll(text.Line(b.Text), `"`, "'")+`"`)
}

// RestoredText returns the message for a volume that is restored because another one could not be mounted with the declared options.
func RestoredText(failed string, original []string) string {
	return fmt.Sprintf("PersistentVolume %s could not be mounted with the declared options, which no mount has proven; restored %s",
		failed, listText(original))
}

// releaseFailedMount removes the failed mount from a volume when no profile declares the options any longer.
func (s *scope) releaseFailedMount(v Verdict) Verdict {
	_, marked := s.Volume.Annotations[v1alpha1.FailedMountOptionsAnnotation]
	if !marked || s.record.Present || v.Action != ActionNone || v.State == StateHeld || s.isIgnored() || s.Profiles.pausedAll {
		return v
	}
	if failed := FailedMountOf(s.Volume); failed != nil {
		holds := func(p *Profile) bool { return p.hold != nil && failed.IsDeclaredBy(p.Name) }
		if slices.ContainsFunc(s.Profiles.byPrecedence, holds) || s.Profiles.Declare(SetOf(SourceOf(s.Volume), failed.Set, failed.RuleSet, failed.Rules)) {
			return v
		}
	}
	v.Action, v.Reason, v.Message = ActionRelease, v1alpha1.VolumeReasonReleased, "Cleared the failed mount: no profile declares its options anymore"
	return v
}

// AnnotationsOfCreation returns the annotations of a volume that is created with the options of a verdict.
func AnnotationsOfCreation(v Verdict, cluster types.UID) map[string]string {
	annotations := annotationsOf(v)
	annotations[v1alpha1.MountOptionsStepAnnotation] = text.JSON(MarkOfCreation(v, cluster))
	return annotations
}

// annotationsOf returns the record that accompanies the options in a write.
func annotationsOf(v Verdict) map[string]string {
	return map[string]string{
		// An empty list is written as [], which differs from no annotation at all.
		v1alpha1.OriginalMountOptionsAnnotation: text.JSON(append([]string{}, v.Original...)),
		v1alpha1.AppliedMountOptionsAnnotation:  text.JSON(append([]string{}, v.Options...)),
		v1alpha1.ProfilesAnnotation:             strings.Join(v.Profiles, ","),
	}
}

// AnnotationsWithout returns the patch that removes all annotations of the operator from a volume, except the failed mount if one is given. A nil
// value removes a key.
func AnnotationsWithout(failed *optionset.Failed) map[string]any {
	annotations := lists.Map(slices.Concat(markAnnotations, recordAnnotations), func(key string) (string, any) { return key, nil })
	maps.Copy(annotations, AnnotationsForEarlier(nil, failed))
	return annotations
}

// AnnotationsForEarlier returns the annotations that an earlier release reads: the given mark and failed mount. Either may be nil.
func AnnotationsForEarlier(mark *Mark, failed *optionset.Failed) map[string]any {
	annotations := map[string]any{}
	if mark != nil {
		annotations[v1alpha1.MountOptionsStepAnnotation] = text.JSON(mark)
	}
	if failed != nil {
		annotations[v1alpha1.FailedMountOptionsAnnotation] = text.JSON(failed)
	}
	return annotations
}

// AnnotationsWith returns the annotations of a write. With a mark, it adds the mark and removes a failed mount: a nil value removes a key. Without
// one, the current mark of the volume stays, with the replaced values of the verdict.
func AnnotationsWith(v Verdict, mark *Mark) map[string]any {
	annotations := map[string]any{}
	for key, value := range annotationsOf(v) {
		annotations[key] = value
	}
	switch {
	case mark != nil:
		annotations[v1alpha1.FailedMountOptionsAnnotation] = nil
		annotations[v1alpha1.MountOptionsStepAnnotation] = text.JSON(mark)
	case v.mark != nil:
		annotations[v1alpha1.MountOptionsStepAnnotation] = text.JSON(v.mark)
	}
	return annotations
}
