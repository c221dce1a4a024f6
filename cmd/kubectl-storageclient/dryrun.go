package main

import (
	"context"
	"encoding/json"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

// dryRunProfile runs a dry run that creates the profile, or updates spec, labels, and annotations of the live profile.
func dryRunProfile(ctx context.Context, c client.Client, written writtenProfile, live *v1alpha1.StorageClientProfile) (view.DryRunProfile, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(profileKind)
	object.SetName(written.Name)
	out := view.DryRunProfile{Name: written.Name, File: written.File, Before: live, After: mergeProfile(written, live)}
	var err error
	if live == nil {
		object.SetLabels(written.Labels)
		object.SetAnnotations(written.Annotations)
		object.Object["spec"] = specOf(written)
		err = c.Create(ctx, object, client.DryRunAll, client.FieldOwner(v1alpha1.PluginFieldManager), client.FieldValidation(metav1.FieldValidationStrict))
	} else {
		var patch []byte
		if patch, err = json.Marshal(replacementPatch(written, live)); err != nil {
			return out, fmt.Errorf("encode patch of %s %s: %w", profileKind.Kind, written.Name, err)
		}
		err = c.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch), client.DryRunAll, client.FieldOwner(v1alpha1.PluginFieldManager), client.FieldValidation(metav1.FieldValidationStrict))
	}
	switch {
	case err == nil:
	case lacksPermission(ctx, c, err, live):
		out.Unchecked = err.Error()
		return out, nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		out.Rejection = err.Error()
		return out, nil
	default:
		return out, fmt.Errorf("dry run of %s %s: %w", profileKind.Kind, written.Name, err)
	}
	out.After = v1alpha1.StorageClientProfile{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &out.After); err != nil {
		return out, fmt.Errorf("decode dry run of %s %s: %w", profileKind.Kind, written.Name, err)
	}
	return out, nil
}

// lacksPermission reports whether the user lacks permission to create or patch the profile. A rejection by a policy or webhook is Forbidden
// too. The result is false if the API server does not report the user's permissions.
func lacksPermission(ctx context.Context, c client.Client, err error, live *v1alpha1.StorageClientProfile) bool {
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

// mergeProfile returns the live profile with the written fields, without defaults of the API server.
func mergeProfile(written writtenProfile, live *v1alpha1.StorageClientProfile) v1alpha1.StorageClientProfile {
	if live == nil {
		return written.StorageClientProfile
	}
	after := *live.DeepCopy()
	after.Spec = *written.Spec.DeepCopy()
	after.Labels, after.Annotations = labels.Merge(live.Labels, written.Labels), labels.Merge(live.Annotations, written.Annotations)
	return after
}

func specOf(written writtenProfile) any {
	if spec, ok := written.Object.Object["spec"]; ok && spec != nil {
		return spec
	}
	return map[string]any{}
}

// replacementPatch returns a patch that replaces the whole spec, so that fields missing from the file are removed. An update would conflict with
// each status write of the manager.
func replacementPatch(written writtenProfile, live *v1alpha1.StorageClientProfile) []map[string]any {
	out := []map[string]any{{"op": "add", "path": "/spec", "value": specOf(written)}}
	if len(written.Labels) > 0 {
		out = append(out, map[string]any{"op": "add", "path": "/metadata/labels", "value": labels.Merge(live.Labels, written.Labels)})
	}
	if len(written.Annotations) > 0 {
		out = append(out, map[string]any{"op": "add", "path": "/metadata/annotations", "value": labels.Merge(live.Annotations, written.Annotations)})
	}
	return out
}
