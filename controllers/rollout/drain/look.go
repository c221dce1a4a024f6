package drain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/tuning/lists"
)

// lookTimeout limits the dry-run evictions on a node, because a pass waits for them. Requests that are still pending then have no result.
const lookTimeout = 5 * time.Second

// NewRunner returns a runner that reads from reader, evicts through writer, and takes the time from now.
func NewRunner(reader client.Reader, writer client.Client, now func() time.Time) *Runner {
	evictor, dryRunEvictor := PolicyEvictor{Client: writer}, PolicyEvictor{Client: writer, DryRun: true}
	return &Runner{Drainer: Drainer{Reader: reader, Evictor: evictor, DryRunEvictor: dryRunEvictor, Now: now}}
}

// LookAhead reports the obstacles to a drain of a node, and evicts no pod. These are pods that the rules protect, pods that the drain would wait
// for, and pods whose eviction the server rejects because of a PodDisruptionBudget. Obstacles that cannot be determined are omitted.
//
// It also tries pods that a drain leaves on the node: the reboot stops them too, so their budgets must allow it.
func (d *Drainer) LookAhead(ctx context.Context, node string, options v1alpha1.Drain) (Result, error) {
	m, err := d.readModel(ctx, node, options, cached)
	if err != nil {
		return Result{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	known := &budgets{}
	tried := d.tryEvictions(bounded, slices.Concat(m.evictable, m.returning), options, known)
	for _, pod := range m.returning {
		if all, err := known.list(bounded, d.Reader, pod.Namespace); err == nil {
			m.Budgets = append(m.Budgets, budgetsOf(pod, all)...)
		}
	}
	m.block(tried)
	return Result{
		WaitedFor: m.WaitedFor, Blocked: m.Blocked, Disregarded: m.Disregarded, Left: m.Left, Budgets: m.Budgets, IgnoredPodUIDs: m.IgnoredPodUIDs,
	}, nil
}

// askBudgets adds the pods that stay and whose budgets do not allow the reboot now. It returns an error if the server did not respond in time.
func (d *Drainer) askBudgets(ctx context.Context, m *model, options v1alpha1.Drain) error {
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	known := &budgets{isRequired: true}
	tried := d.tryEvictions(bounded, m.returning, options, known)
	if err := bounded.Err(); err != nil {
		return fmt.Errorf("try the evictions of pods that stay on the node: %w", err)
	}
	for _, pod := range m.returning {
		all, err := known.list(ctx, d.Reader, pod.Namespace)
		if _, blocked := tried[pod.UID]; err != nil && !blocked {
			tried[pod.UID] = Blocker{Pod: podName(pod), Reason: "may have a PodDisruptionBudget: " + err.Error()}
		}
		m.Budgets = append(m.Budgets, budgetsOf(pod, all)...)
	}
	m.block(tried)
	return nil
}

// block adds blockers, and why pods stay.
func (m *model) block(tried map[types.UID]Blocker) {
	for _, pod := range m.Left {
		if blocker, blocked := tried[types.UID(pod.UID)]; blocked {
			blocker.Reason = cmp.Or(blocker.Reason, "a drain would leave the pod on the node, because it "+pod.Reason)
			tried[types.UID(pod.UID)] = blocker
		}
	}
	m.Blocked = slices.AppendSeq(m.Blocked, maps.Values(tried))
}

// tryEvictions returns the pods whose eviction budgets would reject, by UID.
func (d *Drainer) tryEvictions(ctx context.Context, pods []*corev1.Pod, options v1alpha1.Drain, known *budgets) map[types.UID]Blocker {
	var mutex sync.Mutex
	out := map[types.UID]Blocker{}
	parallel.ForEach(d.concurrency(), pods, func(pod *corev1.Pod) {
		if blocker := d.tryEviction(ctx, pod, options, known); blocker != nil {
			mutex.Lock()
			defer mutex.Unlock()
			out[pod.UID] = *blocker
		}
	})
	return out
}

// KeptBy returns the PodDisruptionBudgets that currently keep a pod, according to their status; nil if none does.
func KeptBy(pod *corev1.Pod, all []policyv1.PodDisruptionBudget) *Blocker {
	keeping := lists.Pick(budgetsOf(pod, all), func(b policyv1.PodDisruptionBudget) (string, bool) {
		return b.Namespace + "/" + b.Name, b.Namespace == pod.Namespace && b.Status.DisruptionsAllowed == 0 && agentpod.IsReady(pod)
	})
	if len(keeping) == 0 {
		return nil
	}
	return &Blocker{Pod: podName(pod), Budgets: keeping}
}

// tryEviction finds the budgets that would protect a pod. Only "too many requests" is a valid result, and only for pods that budgets select:
// webhooks with side effects reject every dry run. In that case, the status of the budgets decides.
func (d *Drainer) tryEviction(ctx context.Context, pod *corev1.Pod, options v1alpha1.Drain, known *budgets) *Blocker {
	refusal := d.DryRunEvictor.Evict(ctx, pod, gracePeriod(options))
	if refusal == nil || ctx.Err() != nil || apierrors.IsNotFound(refusal) || apierrors.IsConflict(refusal) {
		return nil
	}
	all, err := known.list(ctx, d.Reader, pod.Namespace)
	podBudgets := budgetsOf(pod, all)
	if known.isRequired && (err != nil || apierrors.IsTooManyRequests(refusal)) {
		return cmp.Or(d.findBlocker(ctx, pod, refusal, known), &Blocker{Pod: podName(pod), Reason: "cannot be evicted: " + refusal.Error()})
	}
	if err != nil || slices.ContainsFunc(podBudgets, isUncounted) {
		return nil
	}
	spent := slices.ContainsFunc(podBudgets, func(b policyv1.PodDisruptionBudget) bool { return b.Status.DisruptionsAllowed == 0 })
	switch {
	case apierrors.IsTooManyRequests(refusal), len(podBudgets) > 1:
		return d.findBlocker(ctx, pod, refusal, known)
	case spent && agentpod.IsReady(pod):
		return d.findBlocker(ctx, pod, errTryLater, known)
	}
	return nil
}
