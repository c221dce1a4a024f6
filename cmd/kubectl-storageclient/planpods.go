package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/tuning/lists"
)

const (
	// singleNodes is the maximum number of nodes whose Pods are listed separately, to avoid reading all Pods of the cluster.
	singleNodes = 20
	// podsAtOnce is the number of Pods in a page.
	podsAtOnce = 500
)

// countPods counts the Pods that a drain of each node would handle, with the drain options of that node.
func countPods(
	ctx context.Context, c client.Client, options map[string]v1alpha1.Drain, budgets []policyv1.PodDisruptionBudget,
) (map[string]*view.Pods, error) {
	counts := make(map[string]*view.Pods, len(options))
	var selections [][]client.ListOption
	for node := range options {
		counts[node] = &view.Pods{}
		selections = append(selections, []client.ListOption{client.MatchingFields{"spec.nodeName": node}})
	}
	if len(options) > singleNodes {
		selections = [][]client.ListOption{{}}
	}
	for _, selection := range selections {
		if err := countSelected(ctx, c, selection, options, budgets, counts); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// countSelected reads one page at a time and does not keep it.
func countSelected(
	ctx context.Context, c client.Client, selection []client.ListOption, options map[string]v1alpha1.Drain, budgets []policyv1.PodDisruptionBudget,
	counts map[string]*view.Pods,
) error {
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
			if err := addPod(counts[node], pods.Items[i:i+1], options[node], budgets); err != nil {
				return err
			}
		}
		if next = pods.Continue; next == "" {
			return nil
		}
	}
}

func addPod(count *view.Pods, pod []corev1.Pod, options v1alpha1.Drain, budgets []policyv1.PodDisruptionBudget) error {
	sorted, evictable, err := drain.SortPods(pod, options, time.Now())
	if err != nil {
		return err
	}
	count.Evicted += len(evictable)
	count.WaitedFor += len(sorted.WaitedFor)
	count.Blocked = append(count.Blocked, lists.Each(sorted.Blocked, drain.Blocker.String)...)
	if remarks := sorted.Remarks(); remarks != "" {
		count.Remarks = append(count.Remarks, remarks)
	}
	for _, evicted := range evictable {
		blocker := drain.JudgeEviction(evicted, budgets, time.Now())
		if blocker == nil || blocker.IsNew() {
			continue
		}
		outlook := "the rollout skips the node while they keep it (rollout.drain.lookAhead)"
		if options.LookAhead == v1alpha1.LookAheadCordonFirst && blocker.Reason == "" {
			outlook = "if they keep it for 10 minutes and no other node can be claimed, the rollout cordons the node and evicts this pod first"
		}
		count.Kept = append(count.Kept, fmt.Sprintf("Node %s: %s; %s", evicted.Spec.NodeName, blocker, outlook))
	}
	return nil
}

// podsOf counts the Pods of the nodes that would reboot. Missing permissions are not an error; unknown then describes the missing data.
func podsOf(ctx context.Context, c client.Client, options map[string]v1alpha1.Drain) (counts map[string]*view.Pods, unknown string, err error) {
	if len(options) == 0 {
		return nil, "", nil
	}
	var budgets policyv1.PodDisruptionBudgetList
	if err := c.List(ctx, &budgets); apierrors.IsForbidden(err) {
		unknown = "pods that PodDisruptionBudgets keep: no permission to list PodDisruptionBudgets"
	} else if err != nil {
		return nil, "", fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	counts, err = countPods(ctx, c, options, budgets.Items)
	if apierrors.IsForbidden(err) {
		return nil, "number of evicted pods: no permission to list Pods", nil
	}
	return counts, unknown, err
}
