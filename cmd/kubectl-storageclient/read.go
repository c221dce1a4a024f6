package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/servermap"
	"github.com/storageclient/operator/tuning/suggest"
	"github.com/storageclient/operator/tuning/text"
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
	return view.ServerReport{Servers: servermap.Build(clientNodes.Items, lists.Pointers(profiles.Items))}, err
}

func (env *environment) readNode(ctx context.Context, c client.Client, args []string) (printable, error) {
	name, unknown := args[0], []string(nil)
	clientNode := &v1alpha1.StorageClientNode{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, clientNode); apierrors.IsNotFound(err) {
		clientNode = nil
	} else if err != nil {
		return nil, fmt.Errorf("get StorageClientNode %s: %w", name, err)
	}
	node := &corev1.Node{}
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err) && clientNode == nil:
		return nil, suggestName(ctx, c, nodeKind, fmt.Errorf("get Node %s: %w", name, err), name)
	case apierrors.IsForbidden(err):
		unknown = append(unknown, "the Node (its boot and readiness are unknown): "+err.Error())
		node = nil
	case apierrors.IsNotFound(err):
		unknown = append(unknown, "the Node: it does not exist")
		node = nil
	case err != nil:
		return nil, fmt.Errorf("get Node %s: %w", name, err)
	}
	var pods map[string]string
	if clientNode != nil && len(clientNode.Status.Mounts) > 0 {
		var err error
		if pods, err = podNames(ctx, c, name); apierrors.IsForbidden(err) {
			unknown = append(unknown, "names of pods (UIDs are shown instead): "+err.Error())
		} else if err != nil {
			return nil, err
		}
	}
	report := view.NewNodeReport(name, node, clientNode, pods, env.now())
	report.Unknown = unknown
	return report, nil
}

// podNames returns namespace/name of the Pods on a node, by UID.
func podNames(ctx context.Context, c client.Client, node string) (map[string]string, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list Pods on Node %s: %w", node, err)
	}
	return lists.Map(lists.Pointers(pods.Items), func(pod *corev1.Pod) (string, string) { return string(pod.UID), pod.Namespace + "/" + pod.Name }), nil
}

// suggestName adds the most similar existing name to a "not found" error, or all existing names.
func suggestName(ctx context.Context, c client.Client, kind schema.GroupVersionKind, err error, name string) error {
	names, listErr := readNames(ctx, c, kind)
	if listErr != nil || len(names) == 0 {
		return err
	}
	if suggestion, ok := suggest.Closest(name, names); ok {
		return fmt.Errorf("%w. Did you mean %s?", err, suggestion)
	}
	return fmt.Errorf("%w. Available: %s", err, text.List(names))
}
