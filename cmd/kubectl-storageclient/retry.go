package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
)

func retryCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:  "retry PROFILE [NODE]",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			node := ""
			if len(args) > 1 {
				node = args[1]
			}
			return retryProfile(cmd.Context(), env, args[0], node)
		},
	}
}

// retryProfile requests that the manager clears failures. It sets an annotation that the manager handles once for each value.
func retryProfile(ctx context.Context, env *environment, name, node string) error {
	c, err := env.connect()
	if err != nil {
		return err
	}
	profile, err := getProfile(ctx, c, name)
	if err != nil {
		return err
	}
	var clientNodes v1alpha1.StorageClientNodeList
	if err := c.List(ctx, &clientNodes); err != nil {
		return fmt.Errorf("list StorageClientNodes: %w", err)
	}
	failures := view.FindFailures(profile, clientNodes.Items, node)
	if err := failures.CheckRetryable(name, node); err != nil {
		return err
	}
	value := env.now().UTC().Format(time.RFC3339Nano)
	if node != "" {
		value += "/" + node
	}
	if err := annotateProfile(ctx, c, profile, v1alpha1.RetryAnnotation, value); err != nil {
		return err
	}
	return writeLines(env.Out, failures.DescribeRetry(name, node)...)
}
