package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/servermap"
)

// readProfiles returns the named profiles in the order of the names, or all profiles.
func readProfiles(ctx context.Context, c client.Client, names []string) ([]v1alpha1.StorageClientProfile, error) {
	if len(names) == 0 {
		var all v1alpha1.StorageClientProfileList
		err := readLists(ctx, c, &all)
		return all.Items, err
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
	var nodes corev1.NodeList
	var clientNodes v1alpha1.StorageClientNodeList
	err := readLists(ctx, c, &profiles, &nodes, &clientNodes)
	return overview.Cluster{Profiles: profiles.Items, Nodes: nodes.Items, StorageClientNodes: clientNodes.Items, Allow: allow}, err
}

// readLists reads lists in order, up to the first error.
func readLists(ctx context.Context, c client.Client, all ...client.ObjectList) error {
	for _, list := range all {
		if err := c.List(ctx, list); err != nil {
			return fmt.Errorf("list %ss: %w", strings.TrimSuffix(reflect.TypeOf(list).Elem().Name(), "List"), err)
		}
	}
	return nil
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

func readServers(ctx context.Context, c client.Client, _ []string) (printable, error) {
	var clientNodes v1alpha1.StorageClientNodeList
	var profiles v1alpha1.StorageClientProfileList
	err := readLists(ctx, c, &clientNodes, &profiles)
	return view.ServerReport{Servers: servermap.Build(clientNodes.Items, profiles.Items)}, err
}
