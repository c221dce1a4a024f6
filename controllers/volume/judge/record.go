package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/tuning/lists"
)

// Record is the record of a volume, from its annotations or from its entry in the ledger.
type Record struct {
	// Present is true if there is a record.
	Present bool
	// Original are the original mount options. Applied are the options that the operator wrote last.
	Original, Applied []string
	// Profiles are the profiles whose options the volume carries.
	Profiles []string
	// Broken explains why the record is unreliable. Empty if it is reliable.
	Broken string
	// Recalled is true if the record comes from the entry, because another user or controller removed or broke the annotations.
	Recalled bool
	// AnnotationsRestored is true if the annotations were removed before and the operator restored them.
	AnnotationsRestored bool
}

var recordAnnotations = []string{
	v1alpha1.OriginalMountOptionsAnnotation, v1alpha1.AppliedMountOptionsAnnotation, v1alpha1.ProfilesAnnotation,
}

// HasRecord reports whether the volume has any annotation of the record.
func HasRecord(pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(recordAnnotations, func(key string) bool { _, ok := pv.Annotations[key]; return ok })
}

// IsAnnotated reports whether the volume has any annotation of the operator.
func IsAnnotated(pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(slices.Concat(recordAnnotations, markAnnotations), func(key string) bool { _, ok := pv.Annotations[key]; return ok })
}

// recallRecord reads the record of a volume from its annotations if they are complete: they change in the same write as the mount options.
// Otherwise it reads the entry in the ledger.
func recallRecord(pv *corev1.PersistentVolume, e *ledger.Entry) Record {
	r := RecordOf(pv)
	switch {
	case e == nil || r.IsWhole():
	case e.Broken != "":
		r.Present, r.Broken = true, e.Broken
	default:
		if lists, written := e.Recall(pv.Spec.MountOptions); written {
			return Record{
				Present: true, Original: lists.Original, Applied: lists.Applied, Profiles: e.Profiles, Recalled: true,
				AnnotationsRestored: e.AnnotationsRestored,
			}
		}
	}
	return r
}

// IsWhole reports whether the record is reliable.
func (r Record) IsWhole() bool { return r.Present && r.Broken == "" }

// IsFromAnnotations reports whether the record comes from the annotations.
func (r Record) IsFromAnnotations() bool { return r.IsWhole() && !r.Recalled }

// Lists returns the lists of a record in the form of the ledger.
func (r Record) Lists() ledger.Lists { return ledger.Lists{Original: r.Original, Applied: r.Applied} }

// RecordOf reads the record of a volume from its annotations.
func RecordOf(pv *corev1.PersistentVolume) Record {
	r := Record{Present: HasRecord(pv), Profiles: CarriedProfiles(pv)}
	if !r.Present {
		return r
	}
	for _, field := range []struct {
		key  string
		list *[]string
	}{{v1alpha1.OriginalMountOptionsAnnotation, &r.Original}, {v1alpha1.AppliedMountOptionsAnnotation, &r.Applied}} {
		text, ok := pv.Annotations[field.key]
		if !ok {
			r.Broken = fmt.Sprintf("annotation %s is missing", field.key)
			return r
		}
		if err := json.Unmarshal([]byte(text), field.list); err != nil {
			r.Broken = fmt.Sprintf("annotation %s is not a JSON list of strings", field.key)
			return r
		}
	}
	return r
}

// HasAppliedOptions reports whether the volume still has the mount options that the operator wrote last.
func (r Record) HasAppliedOptions(pv *corev1.PersistentVolume) bool {
	return r.IsWhole() && slices.Equal(pv.Spec.MountOptions, r.Applied)
}

// CarriedProfiles returns the names of the profiles whose options the volume carries, from its annotation.
func CarriedProfiles(pv *corev1.PersistentVolume) []string {
	names := lists.Each(strings.Split(pv.Annotations[v1alpha1.ProfilesAnnotation], ","), strings.TrimSpace)
	return lists.Filter(names, func(name string) bool { return name != "" })
}
