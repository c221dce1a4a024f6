// Package pause reports whether new changes are paused: by the field of a profile, or by an annotation on a profile, a Node or the manager's
// namespace.
package pause

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Annotated reports whether an object has the annotation tuning.storageclient.dev/paused.
func Annotated(obj metav1.Object) bool {
	return obj.GetAnnotations()[v1alpha1.PausedAnnotation] == v1alpha1.True
}

// Profile reports whether a profile is paused by its field or by its annotation.
func Profile(profile *v1alpha1.StorageClientProfile) bool {
	return profile.Spec.Paused || Annotated(profile)
}
