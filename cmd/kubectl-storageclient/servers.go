package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/tuning/servermap"
)

// htmlFormat is an additional format of "servers" and "trial".
const htmlFormat = "html"

func serversCommand(env *environment) *cobra.Command {
	var o output
	cmd := env.command("servers", cobra.NoArgs, func(ctx context.Context, c client.Client, _ []string) error {
		return showServers(ctx, env, c, o)
	})
	o.addFlag(cmd, htmlFormat)
	return cmd
}

func showServers(ctx context.Context, env *environment, c client.Client, o output) error {
	var clientNodes v1alpha1.StorageClientNodeList
	if err := c.List(ctx, &clientNodes); err != nil {
		return fmt.Errorf("list StorageClientNodes: %w", err)
	}
	var profiles v1alpha1.StorageClientProfileList
	if err := c.List(ctx, &profiles); err != nil {
		return fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	report := view.ServerReport{Servers: servermap.Build(clientNodes.Items, profiles.Items)}
	if o == htmlFormat {
		return report.WriteHTML(env.Out)
	}
	return o.write(env, report)
}
