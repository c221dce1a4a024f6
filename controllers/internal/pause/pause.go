// Package pause reports whether new changes are paused: by the field of a profile, or by an annotation on a profile, a Node or the manager's
// namespace.
package pause

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
)

// IsAnnotated reports whether an object has the annotation tuning.storageclient.dev/paused.
func IsAnnotated(obj metav1.Object) bool {
	return v1alpha1.IsStopped(obj, v1alpha1.PausedAnnotation)
}

// IsProfilePaused reports whether a profile is paused by its field or by its annotation.
func IsProfilePaused(profile *v1alpha1.StorageClientProfile) bool {
	return profile.Spec.Paused || IsAnnotated(profile)
}
