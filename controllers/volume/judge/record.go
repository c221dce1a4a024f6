package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/ledger"
)

// Record is what is remembered of a volume: by our annotations on it, or by its entry in the ledger.
type Record struct {
	// Present is true where anything is remembered.
	Present bool
	// Original is the volume's own list, Applied the one that we wrote last.
	Original, Applied []string
	// Profiles are those whose options the volume carries.
	Profiles []string
	// Broken says why what is remembered cannot be relied on.
	Broken string
	// Recalled is true where the annotations do not tell, since somebody removed or broke them, and the entry does.
	Recalled bool
	// PutBack is true where that has happened before, and the annotations were put back.
	PutBack bool
}

var recordAnnotations = []string{
	v1alpha1.OriginalMountOptionsAnnotation, v1alpha1.AppliedMountOptionsAnnotation, v1alpha1.ProfilesAnnotation,
}

// HasRecord says whether the volume carries any annotation of the record.
func HasRecord(pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(recordAnnotations, func(key string) bool { _, ok := pv.Annotations[key]; return ok })
}

// IsAnnotated says whether any of our annotations stands on the volume.
func IsAnnotated(pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(slices.Concat(recordAnnotations, markAnnotations), func(key string) bool { _, ok := pv.Annotations[key]; return ok })
}

// recallRecord reads the record of a volume: from its annotations, as long as these are whole, since they change in one write with the
// list; else from its entry in the ledger.
func recallRecord(pv *corev1.PersistentVolume, e *ledger.Entry) Record {
	r := RecordOf(pv)
	switch {
	case e == nil || r.IsWhole():
	case e.Broken != "":
		r.Present, r.Broken = true, e.Broken
	default:
		if lists, written := e.Recall(pv.Spec.MountOptions); written {
			return Record{Present: true, Original: lists.Original, Applied: lists.Applied, Profiles: e.Profiles, Recalled: true, PutBack: e.PutBack}
		}
	}
	return r
}

// IsWhole says whether the record can be relied on.
func (r Record) IsWhole() bool { return r.Present && r.Broken == "" }

// IsTold says whether the annotations tell the record.
func (r Record) IsTold() bool { return r.IsWhole() && !r.Recalled }

// Lists are the lists of a record, as the ledger keeps them.
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

// CarriesOurs says whether the volume's list is the one that we wrote last.
func (r Record) CarriesOurs(pv *corev1.PersistentVolume) bool {
	return r.IsWhole() && slices.Equal(pv.Spec.MountOptions, r.Applied)
}

// CarriedProfiles are the names of the profiles whose options the volume carries, as its annotation tells.
func CarriedProfiles(pv *corev1.PersistentVolume) []string {
	var names []string
	for name := range strings.SplitSeq(pv.Annotations[v1alpha1.ProfilesAnnotation], ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}
