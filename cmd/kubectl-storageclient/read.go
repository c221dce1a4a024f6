package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/catalogue"
)

// readProfiles returns the named profiles in the order of the names, or all profiles.
func readProfiles(ctx context.Context, c client.Client, names []string) ([]v1alpha1.StorageClientProfile, error) {
	if len(names) == 0 {
		var all v1alpha1.StorageClientProfileList
		if err := c.List(ctx, &all); err != nil {
			return nil, fmt.Errorf("list StorageClientProfiles: %w", err)
		}
		return all.Items, nil
	}
	var profiles []v1alpha1.StorageClientProfile
	for _, name := range names {
		profile, err := getProfile(ctx, c, name)
		if err != nil {
			return nil, err
		}
		profiles = append(profiles, *profile)
	}
	return profiles, nil
}

func readCluster(ctx context.Context, c client.Client, allow catalogue.AllowList) (overview.Cluster, error) {
	var profiles v1alpha1.StorageClientProfileList
	if err := c.List(ctx, &profiles); err != nil {
		return overview.Cluster{}, fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return overview.Cluster{}, fmt.Errorf("list Nodes: %w", err)
	}
	var clientNodes v1alpha1.StorageClientNodeList
	if err := c.List(ctx, &clientNodes); err != nil {
		return overview.Cluster{}, fmt.Errorf("list StorageClientNodes: %w", err)
	}
	return overview.Cluster{Profiles: profiles.Items, Nodes: nodes.Items, StorageClientNodes: clientNodes.Items, Allow: allow}, nil
}

// namePods replaces UIDs of running Pods with namespace/name, also in messages. It lists Pods once for each node.
func namePods(ctx context.Context, c client.Client, mounts []view.StaleMount) error {
	names := map[string]map[string]string{}
	for i := range mounts {
		onNode, known := names[mounts[i].Node]
		if !known {
			var err error
			if onNode, err = podNames(ctx, c, mounts[i].Node); err != nil {
				return err
			}
			names[mounts[i].Node] = onNode
		}
		mounts[i].Pods = slices.Clone(mounts[i].Pods)
		for j, uid := range mounts[i].Pods {
			mounts[i].Pods[j] = cmp.Or(onNode[uid], uid)
		}
		for uid, name := range onNode {
			mounts[i].Message = strings.ReplaceAll(mounts[i].Message, uid, name)
		}
	}
	return nil
}
