package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Record is what our annotations on a volume remember.
type Record struct {
	// Present is true as long as any of our annotations stands on the volume.
	Present bool
	// Original is the volume's own list, Applied the one that we wrote last.
	Original, Applied []string
	// Profiles are those whose options the volume carries.
	Profiles []string
	// Broken says why the annotations cannot be relied on.
	Broken string
}

// recordAnnotations hold the record.
var recordAnnotations = []string{
	v1alpha1.OriginalMountOptionsAnnotation, v1alpha1.AppliedMountOptionsAnnotation, v1alpha1.ProfilesAnnotation,
}

// HasRecord says whether the volume carries any annotation of the record.
func HasRecord(pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(recordAnnotations, func(key string) bool { _, ok := pv.Annotations[key]; return ok })
}

// RecordOf reads the record of a volume.
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
	return r.Present && r.Broken == "" && slices.Equal(pv.Spec.MountOptions, r.Applied)
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
