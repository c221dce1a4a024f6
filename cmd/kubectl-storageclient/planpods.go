package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/rollout/drain"
)

const (
	// singleNodes is up to how many nodes are asked for their pods one by one: all pods of the cluster are more to read.
	singleNodes = 20
	// podsAtOnce is how many pods a page holds.
	podsAtOnce = 500
)

// countPods counts what a drain of each node meets, with the drain options of that node.
func countPods(ctx context.Context, c client.Client, options map[string]v1alpha1.Drain) (map[string]*view.Pods, error) {
	counts := make(map[string]*view.Pods, len(options))
	for node := range options {
		counts[node] = &view.Pods{}
	}
	selections := [][]client.ListOption{{}}
	if len(options) <= singleNodes {
		selections = nil
		for node := range options {
			selections = append(selections, []client.ListOption{client.MatchingFields{"spec.nodeName": node}})
		}
	}
	for _, selection := range selections {
		if err := countSelected(ctx, c, selection, options, counts); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// countSelected reads page by page, and keeps no page.
func countSelected(ctx context.Context, c client.Client, selection []client.ListOption, options map[string]v1alpha1.Drain, counts map[string]*view.Pods) error {
	for next := ""; ; {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, append(selection, client.Limit(podsAtOnce), client.Continue(next))...); err != nil {
			return fmt.Errorf("list Pods: %w", err)
		}
		for i := range pods.Items {
			node := pods.Items[i].Spec.NodeName
			if counts[node] == nil {
				continue
			}
			if err := addPod(counts[node], pods.Items[i:i+1], options[node]); err != nil {
				return err
			}
		}
		if next = pods.Continue; next == "" {
			return nil
		}
	}
}

// addPod counts one pod as the drain sorts it.
func addPod(count *view.Pods, pod []corev1.Pod, options v1alpha1.Drain) error {
	sorted, evictable, err := drain.SortPods(pod, options)
	if err != nil {
		return err
	}
	count.Evicted += len(evictable)
	count.WaitedFor += len(sorted.WaitedFor)
	for _, blocker := range sorted.Blocked {
		count.Blocked = append(count.Blocked, blocker.String())
	}
	return nil
}

// podsOf counts the pods of the nodes that would reboot. What may not be read is no error: unknown says what that costs.
func podsOf(ctx context.Context, c client.Client, options map[string]v1alpha1.Drain) (counts map[string]*view.Pods, unknown string, err error) {
	if len(options) == 0 {
		return nil, "", nil
	}
	counts, err = countPods(ctx, c, options)
	if apierrors.IsForbidden(err) {
		return nil, "how many pods would be evicted: you may not list Pods", nil
	}
	return counts, "", err
}
