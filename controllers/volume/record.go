package volume

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// record is what our annotations on a volume hold.
type record struct {
	// present is true as long as any of our annotations stands on the volume.
	present           bool
	original, applied []string
	profiles          []string
	// broken says why the annotations cannot be relied on.
	broken string
}

var ourAnnotations = []string{
	v1alpha1.OriginalMountOptionsAnnotation, v1alpha1.AppliedMountOptionsAnnotation, v1alpha1.ProfilesAnnotation,
}

// hasRecord says whether the volume carries any of our annotations.
func hasRecord(pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(ourAnnotations, func(key string) bool { _, ok := pv.Annotations[key]; return ok })
}

func readRecord(pv *corev1.PersistentVolume) record {
	r := record{present: hasRecord(pv), profiles: CarriedProfiles(pv)}
	if !r.present {
		return r
	}
	for key, list := range map[string]*[]string{
		v1alpha1.OriginalMountOptionsAnnotation: &r.original, v1alpha1.AppliedMountOptionsAnnotation: &r.applied,
	} {
		text, ok := pv.Annotations[key]
		if !ok {
			r.broken = fmt.Sprintf("annotation %s is missing", key)
			return r
		}
		if err := json.Unmarshal([]byte(text), list); err != nil {
			r.broken = fmt.Sprintf("annotation %s is not a JSON list of strings", key)
			return r
		}
	}
	return r
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
