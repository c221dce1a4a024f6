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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/parallel"
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
	tried := d.tryEvictions(bounded, slices.Concat(m.evictable, m.returning), known)
	for _, pod := range m.returning {
		if all, err := known.list(bounded, d.Reader, pod.Namespace); err == nil {
			m.Budgets = append(m.Budgets, decidingBudgets(pod, all)...)
		}
	}
	m.block(tried)
	return Result{
		WaitedFor: m.WaitedFor, Blocked: m.Blocked, Left: m.Left, Budgets: m.Budgets, IgnoredPodUIDs: m.IgnoredPodUIDs,
	}, nil
}

// askBudgets adds the pods that stay and whose budgets do not allow the reboot now. It returns an error if the server did not respond in time.
func (d *Drainer) askBudgets(ctx context.Context, m *model) error {
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	known := &budgets{isRequired: true}
	tried := d.tryEvictions(bounded, m.returning, known)
	if err := bounded.Err(); err != nil {
		return fmt.Errorf("try the evictions of pods that stay on the node: %w", err)
	}
	for _, pod := range m.returning {
		all, err := known.list(ctx, d.Reader, pod.Namespace)
		if _, blocked := tried[pod.UID]; err != nil && !blocked {
			tried[pod.UID] = Blocker{Pod: podName(pod), Reason: "may have a PodDisruptionBudget: " + err.Error()}
		}
		m.Budgets = append(m.Budgets, decidingBudgets(pod, all)...)
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
func (d *Drainer) tryEvictions(ctx context.Context, pods []*corev1.Pod, known *budgets) map[types.UID]Blocker {
	var mutex sync.Mutex
	out := map[types.UID]Blocker{}
	parallel.ForEach(d.concurrency(), pods, func(pod *corev1.Pod) {
		if blocker := d.tryEviction(ctx, pod, known); blocker != nil {
			mutex.Lock()
			defer mutex.Unlock()
			out[pod.UID] = *blocker
		}
	})
	return out
}

// tryEviction finds the budgets that protect a pod. The server decides, except about pods that it has not counted: its client would wait for the
// count. A webhook with side effects rejects every dry run. In both cases, the status of the budgets decides.
func (d *Drainer) tryEviction(ctx context.Context, pod *corev1.Pod, known *budgets) *Blocker {
	all, err := known.list(ctx, d.Reader, pod.Namespace)
	obstacle := JudgeEviction(pod, all, d.Now())
	switch {
	case obstacle.IsNew() && !known.isRequired:
		return nil
	case obstacle != nil && obstacle.Uncounted:
		return obstacle
	}
	refusal := d.DryRunEvictor.Evict(ctx, pod)
	switch {
	case refusal == nil, ctx.Err() != nil, apierrors.IsNotFound(refusal), apierrors.IsConflict(refusal):
		return nil
	case known.isRequired && (err != nil || apierrors.IsTooManyRequests(refusal)):
		return cmp.Or(d.findBlocker(ctx, pod, refusal, known), &Blocker{Pod: podName(pod), Reason: "cannot be evicted: " + refusal.Error()})
	case err == nil && apierrors.IsTooManyRequests(refusal):
		return d.findBlocker(ctx, pod, refusal, known)
	}
	return obstacle
}
