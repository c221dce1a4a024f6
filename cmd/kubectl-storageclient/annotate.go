package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
)

func approveCommand(env *environment) *cobra.Command {
	var plan string
	var overrides managerFlags
	cmd := env.profileCommand("approve PROFILE", cobra.ExactArgs(1), func(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, _ []string) error {
		return approvePlan(ctx, env, c, profile, plan, overrides)
	})
	cmd.Flags().StringVar(&plan, "plan", "", "Hash of the plan to approve. The command fails if the profile's plan has another hash")
	overrides.addBudgetFlag(cmd)
	return cmd
}

func approvePlan(ctx context.Context, env *environment, c client.Client, profile *v1alpha1.StorageClientProfile, plan string, overrides managerFlags) error {
	if err := view.CheckApprovable(profile, plan); err != nil {
		return err
	}
	preview, budget, err := previewApproval(ctx, c, env, profile, overrides)
	switch {
	case apierrors.IsForbidden(err):
		// A user who can approve may lack read access to nodes. The manager's status names the first of them.
		if err := writeLines(env.Out, append(view.DescribeApproval(profile), fmt.Sprintf("Cannot show why each node reboots: %v", err))...); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if err := view.WriteApproval(env.text(), profile, preview, budget); err != nil {
			return err
		}
	}
	if err := annotateProfile(ctx, c, profile, v1alpha1.ApprovedPlanAnnotation, profile.Status.Plan.Hash); err != nil {
		return view.ExplainRejection(profile, err)
	}
	return writeLines(env.Out, fmt.Sprintf("Approved plan %s of %s.", profile.Status.Plan.Hash, profile.Name))
}

// previewApproval returns the preview that "plan" shows for the plan to approve, and the budget of the cluster. It returns an error if
// the plan differs from the manager's plan.
func previewApproval(ctx context.Context, c client.Client, env *environment, profile *v1alpha1.StorageClientProfile, overrides managerFlags) (overview.Preview, view.Budget, error) {
	settings, cluster, err := readPlanned(ctx, env, c, overrides)
	if err != nil {
		return overview.Preview{}, view.Budget{}, err
	}
	cluster.Allow = settings.accepted()
	preview := overview.Plan(profile, cluster)
	return preview, settings.budget, view.CheckPreview(profile, preview)
}

// pauseCommand sets the pause annotation, or removes it if value is nil.
func pauseCommand(env *environment, use string, value any) *cobra.Command {
	return env.profileCommand(use, cobra.ExactArgs(1), func(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, _ []string) error {
		if err := annotateProfile(ctx, c, profile, v1alpha1.PausedAnnotation, value); err != nil {
			return err
		}
		return writeLines(env.Out, view.DescribePause(profile, value != nil))
	})
}

// annotateProfile sets one annotation, or removes it if value is nil. It needs no precondition: an approval names the displayed plan, and
// the status changes too often for one.
func annotateProfile(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, key string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return fmt.Errorf("encode patch of StorageClientProfile %s: %w", profile.Name, err)
	}
	annotated := profile.DeepCopy()
	if err := c.Patch(ctx, annotated, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.PluginFieldManager)); err != nil {
		return fmt.Errorf("annotate StorageClientProfile %s: %w", profile.Name, err)
	}
	if value == nil {
		return nil
	}
	return ownAnnotation(ctx, c, annotated, key)
}

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

// retryProfile requests that the manager clears failures. It sets an annotation that the manager handles once for each value.
func (env *environment) retryProfile(ctx context.Context, c client.Client, profile *v1alpha1.StorageClientProfile, rest []string) error {
	node := cmp.Or(rest...)
	var clientNodes v1alpha1.StorageClientNodeList
	if err := readLists(ctx, c, &clientNodes); err != nil {
		return err
	}
	failures := view.FindFailures(profile, clientNodes.Items, node)
	if err := failures.CheckRetryable(profile.Name, node); err != nil {
		return err
	}
	value := env.now().UTC().Format(time.RFC3339Nano)
	if node != "" {
		value += "/" + node
	}
	if err := annotateProfile(ctx, c, profile, v1alpha1.RetryAnnotation, value); err != nil {
		return err
	}
	return writeLines(env.Out, failures.DescribeRetry(profile.Name, node)...)
}
