package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// ownAnnotation makes the plugin an owner of an annotation that it has just set. The API server skips this if the annotation already had
// this value. The annotation would then disappear with its only owner, possibly kubectl. profile is the API server's response.
func ownAnnotation(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, key string) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		entries, err := addOwnership(profile.ManagedFields, key)
		if err != nil || entries == nil {
			return err
		}
		// The patch replaces the whole list, so it must be based on the last version.
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": profile.ResourceVersion, "managedFields": entries}})
		if err != nil {
			return err
		}
		err = c.Patch(ctx, profile.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.PluginFieldManager))
		if apierrors.IsConflict(err) {
			if live, readErr := getProfile(ctx, c, profile.Name); readErr == nil {
				profile = live
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("take ownership of annotation %s of StorageClientProfile %s (it is set, but Flux can remove it): %w", key, profile.Name, err)
	}
	return nil
}

// addOwnership returns managed fields with the plugin as an owner of an annotation. Nil if it already is one.
func addOwnership(entries []metav1.ManagedFieldsEntry, key string) ([]metav1.ManagedFieldsEntry, error) {
	isOwn := func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == v1alpha1.PluginFieldManager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
	}
	entries = slices.Clone(entries)
	at, fields := slices.IndexFunc(entries, isOwn), map[string]any{}
	if at < 0 {
		at = len(entries)
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: v1alpha1.PluginFieldManager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: v1alpha1.GroupVersion.String(), FieldsType: "FieldsV1",
		})
	} else if existing := entries[at].FieldsV1; existing != nil {
		if err := json.Unmarshal(existing.GetRawBytes(), &fields); err != nil {
			return nil, fmt.Errorf("read managed fields: %w", err)
		}
	}
	path := []string{"f:metadata", "f:annotations", "f:" + key}
	if _, found, _ := unstructured.NestedFieldNoCopy(fields, path...); found {
		return nil, nil
	}
	if err := unstructured.SetNestedMap(fields, map[string]any{}, path...); err != nil {
		return nil, fmt.Errorf("add %s to managed fields: %w", key, err)
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode managed fields: %w", err)
	}
	entries[at].FieldsV1 = metav1.NewFieldsV1(string(data))
	return entries, nil
}
