package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/suggest"
	"github.com/storageclient/operator/tuning/text"
)

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
