package main

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/tuning/servermap"
)

func readServers(ctx context.Context, c client.Client, _ []string) (printable, error) {
	var clientNodes v1alpha1.StorageClientNodeList
	var profiles v1alpha1.StorageClientProfileList
	err := readLists(ctx, c, &clientNodes, &profiles)
	return view.ServerReport{Servers: servermap.Build(clientNodes.Items, profiles.Items)}, err
}
