// Package drain makes one pass over the pods of a node. It evicts the pods that it may evict and reports the rest. It never waits: the caller
// repeats the pass until the result is done.
package drain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// Limits of requests to the API server for one node.
const (
	// listTimeout limits a read, because a pass waits for it.
	listTimeout = 5 * time.Second
	// evictionTimeout limits one eviction. It is longer than the maximum of an admission webhook, which is 30 s
	// (kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers, "Timeouts").
	evictionTimeout = 35 * time.Second
	// maxEvictions is the default number of concurrent evictions on a node.
	maxEvictions = 5
)

// Drainer reads nodes' pods and evicts them.
type Drainer struct {
	// Reader reads Pods and PodDisruptionBudgets from the API server, not from a cache.
	Reader client.Reader
	// Evictor evicts; DryRunEvictor only simulates an eviction.
	Evictor, DryRunEvictor Evictor
	// Concurrency is the number of concurrent evictions on a node; 0: 5.
	Concurrency int
	// Now is the current time.
	Now func() time.Time
}

func (d *Drainer) concurrency() int { return cmp.Or(d.Concurrency, maxEvictions) }

func (d *Drainer) readModel(ctx context.Context, node string, options v1alpha1.Drain, version string) (model, error) {
	pods, err := d.listPods(ctx, node, version)
	if err != nil {
		return model{}, err
	}
	return newModel(pods, options, d.Now())
}

// Resource versions for a list request. With consistent, the API server returns the current state, which a permit requires. With cached, it may
// respond from its watch cache, which has an index of Pods by node: enough to follow the progress of a drain.
const (
	consistent = ""
	cached     = "0"
)

func (d *Drainer) listPods(ctx context.Context, node, version string) ([]corev1.Pod, error) {
	bounded, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var pods corev1.PodList
	options := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}}
	if err := d.Reader.List(bounded, &pods, options, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list Pods on %s: %w", node, err)
	}
	return pods.Items, nil
}

// evict requests one eviction. evicted is true if the server has accepted it. blocker describes the obstacle; it is nil if there is none, or if the
// server only requests a later attempt.
func (d *Drainer) evict(ctx context.Context, pod *corev1.Pod, known *budgets) (evicted bool, blocker *Blocker) {
	// The client would wait for the count.
	all, _ := known.list(ctx, d.Reader, pod.Namespace)
	if obstacle := JudgeEviction(pod, all, d.Now()); obstacle != nil && obstacle.Uncounted {
		return false, obstacle
	}
	bounded, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	refusal := d.Evictor.Evict(bounded, pod)
	if refusal != nil && bounded.Err() != nil {
		refusal = fmt.Errorf("the API server did not respond within %s: %w", evictionTimeout, refusal)
	}
	switch {
	case refusal == nil:
		return true, nil
	case apierrors.IsNotFound(refusal), apierrors.IsConflict(refusal), ctx.Err() != nil:
		// This pod is gone and another pod has its name, or the drain has stopped.
		return false, nil
	}
	return false, d.findBlocker(ctx, pod, refusal, known)
}

// budgets are the PodDisruptionBudgets of the namespaces that have been read in this run.
type budgets struct {
	mutex       sync.Mutex
	byNamespace map[string][]policyv1.PodDisruptionBudget
	// isRequired is true if obstacles that cannot be determined count as well.
	isRequired bool
}

// list returns the budgets of a namespace. It reads each namespace once in a run.
func (b *budgets) list(ctx context.Context, reader client.Reader, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if known, listed := b.byNamespace[namespace]; listed {
		return known, nil
	}
	bounded, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var list policyv1.PodDisruptionBudgetList
	if err := reader.List(bounded, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list PodDisruptionBudgets in %s: %w", namespace, err)
	}
	if b.byNamespace == nil {
		b.byNamespace = map[string][]policyv1.PodDisruptionBudget{}
	}
	b.byNamespace[namespace] = list.Items
	return list.Items, nil
}

// findBlocker returns the obstacle to a pod whose eviction was rejected; nil if the server only requests a later attempt.
func (d *Drainer) findBlocker(ctx context.Context, pod *corev1.Pod, refusal error, known *budgets) *Blocker {
	all, err := known.list(ctx, d.Reader, pod.Namespace)
	obstacle := JudgeEviction(pod, all, d.Now())
	switch deciding := decidingBudgets(pod, all); {
	case err != nil:
		return &Blocker{Pod: podName(pod), Reason: fmt.Sprintf("cannot be evicted: %s; %s", refusal, err)}
	case len(deciding) > 1, obstacle != nil && apierrors.IsTooManyRequests(refusal):
		return obstacle
	case !apierrors.IsTooManyRequests(refusal):
		// For example, a webhook rejected the eviction or was too slow.
		return &Blocker{Pod: podName(pod), Reason: "cannot be evicted: " + refusal.Error()}
	case len(deciding) == 1:
		return &Blocker{Pod: podName(pod), Budgets: namesOf(deciding)}
	}
	return nil
}

// IsVacant reports whether a node has only pods that a drain leaves and pods that have run to completion.
func (d *Drainer) IsVacant(ctx context.Context, node string) (bool, error) {
	pods, err := d.listPods(ctx, node, consistent)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return !staysOnNode(&pod) && !hasFinished(&pod) }), nil
}

// Evictor requests the eviction of a pod. Errors are errors of the API: not found and conflict mean that the pod is gone, too many requests means
// that a PodDisruptionBudget protects it.
type Evictor interface {
	// Evict requests the eviction of exactly this pod, with its own grace period.
	Evict(ctx context.Context, pod *corev1.Pod) error
}

// PolicyEvictor evicts through policy/v1, the eviction subresource of pods.
type PolicyEvictor struct {
	// Client writes.
	Client client.Client
	// DryRun requests a dry run: the server responds as usual and evicts no pod.
	DryRun bool
}

// Evict implements Evictor.
func (e PolicyEvictor) Evict(ctx context.Context, pod *corev1.Pod) error {
	// The UID protects a newer pod of the same name.
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}}
	if !e.DryRun {
		if !hasStarted(pod) {
			// It may start at any moment, and then has work to lose.
			eviction.DeleteOptions.Preconditions.ResourceVersion = &pod.ResourceVersion
		}
		return e.Client.SubResource("eviction").Create(ctx, pod, eviction)
	}
	eviction.DeleteOptions.DryRun = []string{metav1.DryRunAll}
	return e.Client.SubResource("eviction").Create(ctx, pod, eviction, client.DryRunAll)
}
