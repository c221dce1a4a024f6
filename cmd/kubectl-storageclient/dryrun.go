package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// dryRun is what the API server makes of a profile, without keeping it.
type dryRun struct {
	// After is the profile as it would be.
	After v1alpha1.StorageClientProfile
	// Refused is what the API server, a webhook or a policy has against it, empty if nothing.
	Refused string
	// Unchecked says why nobody was asked, empty if somebody was.
	Unchecked string
}

// tryProfile has the API server create the profile, or give the live one its spec, labels and annotations, as a dry run.
func tryProfile(ctx context.Context, c client.Client, written writtenProfile, live *v1alpha1.StorageClientProfile) (dryRun, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(profileKind)
	object.SetName(written.Name)
	out := dryRun{After: withoutServer(written, live)}
	var err error
	if live == nil {
		object.SetLabels(written.Labels)
		object.SetAnnotations(written.Annotations)
		object.Object["spec"] = specOf(written)
		err = c.Create(ctx, object, client.DryRunAll, client.FieldOwner(v1alpha1.PluginFieldManager), client.FieldValidation(metav1.FieldValidationStrict))
	} else {
		var patch []byte
		if patch, err = json.Marshal(patchTo(written, live)); err != nil {
			return dryRun{}, fmt.Errorf("encode patch of %s %s: %w", profileKind.Kind, written.Name, err)
		}
		err = c.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch), client.DryRunAll, client.FieldOwner(v1alpha1.PluginFieldManager), client.FieldValidation(metav1.FieldValidationStrict))
	}
	switch {
	case err == nil:
	case lacksRight(ctx, c, err, live):
		out.Unchecked = err.Error()
		return out, nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		out.Refused = err.Error()
		return out, nil
	default:
		return dryRun{}, fmt.Errorf("try %s %s: %w", profileKind.Kind, written.Name, err)
	}
	out.After = v1alpha1.StorageClientProfile{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &out.After); err != nil {
		return dryRun{}, fmt.Errorf("read what the API server makes of %s %s: %w", profileKind.Kind, written.Name, err)
	}
	return out, nil
}

// lacksRight reports whether the user may not create or patch the profile. A policy or a webhook that rejects it also answers Forbidden.
// The result is false if the API server does not report the user's rights.
func lacksRight(ctx context.Context, c client.Client, err error, live *v1alpha1.StorageClientProfile) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	write := &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "storageclientprofiles", Verb: "create"}
	if live != nil {
		write.Verb, write.Name = "patch", live.Name
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: write}}
	return c.Create(ctx, review) == nil && !review.Status.Allowed
}

// withoutServer is the live profile with what is written, defaults of the API server left out.
func withoutServer(written writtenProfile, live *v1alpha1.StorageClientProfile) v1alpha1.StorageClientProfile {
	if live == nil {
		return written.StorageClientProfile
	}
	after := *live.DeepCopy()
	after.Spec = *written.Spec.DeepCopy()
	after.Labels, after.Annotations = merge(live.Labels, written.Labels), merge(live.Annotations, written.Annotations)
	return after
}

func merge(live, written map[string]string) map[string]string {
	out := maps.Clone(live)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, written)
	return out
}

func specOf(written writtenProfile) any {
	if spec, ok := written.Object.Object["spec"]; ok && spec != nil {
		return spec
	}
	return map[string]any{}
}

// patchOperation is one of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patchTo replaces the spec as a whole, so that a field that is gone from the file is gone; an update would be refused whenever the
// manager has just written the status.
func patchTo(written writtenProfile, live *v1alpha1.StorageClientProfile) []patchOperation {
	out := []patchOperation{{"add", "/spec", specOf(written)}}
	if len(written.Labels) > 0 {
		out = append(out, patchOperation{"add", "/metadata/labels", merge(live.Labels, written.Labels)})
	}
	if len(written.Annotations) > 0 {
		out = append(out, patchOperation{"add", "/metadata/annotations", merge(live.Annotations, written.Annotations)})
	}
	return out
}
