package main

import (
	"cmp"
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

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
