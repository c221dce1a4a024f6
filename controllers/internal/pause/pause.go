// Package pause answers whether anything new may begin: pauses stand in a profile's field, and in an annotation
// on a profile, a Node or the manager's namespace.
package pause

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Annotated reports whether an object carries the annotation tuning.storageclient.dev/paused.
func Annotated(obj metav1.Object) bool {
	return obj.GetAnnotations()[v1alpha1.PausedAnnotation] == v1alpha1.True
}

// Profile reports whether a profile is paused by its field or by its annotation.
func Profile(profile *v1alpha1.StorageClientProfile) bool {
	return profile.Spec.Paused || Annotated(profile)
}

// Everything reports whether the manager's namespace is paused, which pauses all profiles and nodes. A
// namespace that does not exist, as where the manager runs outside the cluster, pauses nothing.
func Everything(ctx context.Context, reader client.Reader, namespace string) (bool, error) {
	var ns corev1.Namespace
	if err := reader.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("get Namespace %s: %w", namespace, err)
	}
	return Annotated(&ns), nil
}
