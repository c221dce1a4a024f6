package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// evictionTimeout bounds one eviction. A server that has not observed a PodDisruptionBudget yet asks to come back in ten
// seconds, and the client would do so ten times over while everything else waits.
const evictionTimeout = 5 * time.Second

// Drainer evicts nodes' pods, as far as they may go at the moment.
type Drainer struct {
	// Reader reads Pods and PodDisruptionBudgets from the API server, not from a cache.
	Reader client.Reader
	// Evictor evicts.
	Evictor Evictor
}

// Evict evicts once what may leave a node and reports what is left. While a pod is there that may not be evicted at all,
// nothing is: the drain could not end. options are those of the profile, with defaults.
//
// The rules are those of "kubectl drain": DaemonSet and static pods stay, pods without a controller need force, pods
// with an emptyDir need deleteEmptyDirData. Pods that have run to their end need not leave.
func (d *Drainer) Evict(ctx context.Context, node string, options v1alpha1.Drain) (Result, error) {
	result, evictable, err := d.sortPods(ctx, node, options)
	if err != nil {
		return Result{}, err
	}
	return d.evictAll(ctx, result, evictable, options)
}

// Inspect reports what is left on a node, and evicts nothing. due is true where Evict has something to do: a pod may be evicted, or none is
// left.
func (d *Drainer) Inspect(ctx context.Context, node string, options v1alpha1.Drain) (result Result, due bool, err error) {
	result, evictable, err := d.sortPods(ctx, node, options)
	if err != nil {
		return Result{}, false, err
	}
	return result, len(evictable) > 0 || result.Done(), nil
}

// sortPods lists a node's pods: those that may be evicted, and what is to be said of all others.
func (d *Drainer) sortPods(ctx context.Context, node string, options v1alpha1.Drain) (result Result, evictable []*corev1.Pod, err error) {
	var pods corev1.PodList
	if err := d.Reader.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return Result{}, nil, fmt.Errorf("list Pods on %s: %w", node, err)
	}
	waitFor, err := waitSelector(options.WaitForPodSelector)
	if err != nil {
		return Result{}, nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case staysOnNode(pod):
			result.LeftUIDs = append(result.LeftUIDs, volumeUIDs(pod)...)
		case hasEnded(pod):
		case pod.DeletionTimestamp != nil:
			result.Remaining = append(result.Remaining, podName(pod))
		case waitFor.Matches(labels.Set(pod.Labels)), ptr.Deref(options.WaitForJobs, true) && isJobPod(pod):
			result.WaitedFor = append(result.WaitedFor, podName(pod))
		default:
			if why := whyNotEvictable(pod, options); why != "" {
				result.Blocked = append(result.Blocked, Blocker{Pod: podName(pod), Why: why})
				continue
			}
			evictable = append(evictable, pod)
		}
	}
	return result, evictable, nil
}

func (d *Drainer) evictAll(ctx context.Context, result Result, pods []*corev1.Pod, options v1alpha1.Drain) (Result, error) {
	if len(result.Blocked) > 0 {
		for _, pod := range pods {
			result.Remaining = append(result.Remaining, podName(pod))
		}
		return result, nil
	}
	budgets := budgets{}
	for _, pod := range pods {
		refusal, err := d.evictOne(ctx, pod, options, budgets)
		switch {
		case err != nil:
			return Result{}, err
		case refusal == nil:
			result.Remaining = append(result.Remaining, podName(pod))
		case apierrors.IsNotFound(refusal), apierrors.IsConflict(refusal):
			// This pod is gone; one of the same name is somebody else.
		default:
			blocker, err := d.findBlocker(ctx, pod, refusal, budgets)
			if err != nil {
				return Result{}, err
			}
			if blocker == nil {
				result.Remaining = append(result.Remaining, podName(pod))
				continue
			}
			result.Blocked = append(result.Blocked, *blocker)
		}
	}
	return result, nil
}

// errTryLater stands for a server that asks to come back later.
var errTryLater = apierrors.NewTooManyRequests("come back later", 0)

// evictOne asks for one eviction. The refusal is the server's; the error ends the pass.
func (d *Drainer) evictOne(ctx context.Context, pod *corev1.Pod, options v1alpha1.Drain, known budgets) (refusal, err error) {
	if slices.ContainsFunc(budgetsOf(pod, known[pod.Namespace]), isUncounted) {
		return errTryLater, nil
	}
	bounded, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	refusal = d.Evictor.Evict(bounded, pod, gracePeriod(options))
	switch {
	case refusal == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("evict Pod %s: %w", podName(pod), refusal)
	case bounded.Err() != nil:
		return errTryLater, nil
	}
	return refusal, nil
}

// budgets are the PodDisruptionBudgets of the namespaces that have been read in this pass.
type budgets map[string][]policyv1.PodDisruptionBudget

// budgetsOf are the budgets that a pod belongs to.
func budgetsOf(pod *corev1.Pod, all []policyv1.PodDisruptionBudget) []policyv1.PodDisruptionBudget {
	var out []policyv1.PodDisruptionBudget
	for i := range all {
		selector, err := metav1.LabelSelectorAsSelector(all[i].Spec.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, all[i])
		}
	}
	return out
}

// isUncounted reports whether the server refuses evictions since nobody has counted the budget's pods yet.
func isUncounted(budget policyv1.PodDisruptionBudget) bool {
	return budget.Status.ObservedGeneration < budget.Generation
}

// findBlocker says what keeps a pod whose eviction was refused; nil where the server only asks for patience.
func (d *Drainer) findBlocker(ctx context.Context, pod *corev1.Pod, refusal error, known budgets) (*Blocker, error) {
	if _, listed := known[pod.Namespace]; !listed {
		var list policyv1.PodDisruptionBudgetList
		if err := d.Reader.List(ctx, &list, client.InNamespace(pod.Namespace)); err != nil {
			return nil, fmt.Errorf("list PodDisruptionBudgets in %s: %w", pod.Namespace, err)
		}
		known[pod.Namespace] = list.Items
	}
	blocker := Blocker{Pod: podName(pod)}
	for _, budget := range budgetsOf(pod, known[pod.Namespace]) {
		blocker.Budgets = append(blocker.Budgets, budget.Namespace+"/"+budget.Name)
	}
	slices.Sort(blocker.Budgets)
	switch {
	case apierrors.IsInternalError(refusal) && len(blocker.Budgets) > 1:
		// The eviction API answers 500 for a pod with more than one budget, and always will.
		blocker.Why = "a pod that several budgets select cannot be evicted; change a budget's selector, or delete a budget"
	case !apierrors.IsTooManyRequests(refusal):
		// A webhook that refuses is such a case.
		blocker.Why = "cannot be evicted: " + refusal.Error()
	case len(blocker.Budgets) == 0:
		return nil, nil
	}
	return &blocker, nil
}

// staysOnNode reports whether a drain leaves the pod on the node.
func staysOnNode(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// volumeUIDs are those under which the kubelet keeps the pod's volumes: a static pod's own UID is the value of the
// annotation on its mirror.
func volumeUIDs(pod *corev1.Pod) []string {
	out := []string{string(pod.UID)}
	if static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static != "" {
		out = append(out, static)
	}
	return out
}

// waitSelector selects the pods that run to their end. An empty selector, as the API's documentation shows it, selects none.
func waitSelector(selector *metav1.LabelSelector) (labels.Selector, error) {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return labels.Nothing(), nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("parse rollout.drain.waitForPodSelector: %w", err)
	}
	return parsed, nil
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isJobPod(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job" && owner.APIVersion == batchv1.SchemeGroupVersion.String()
}

// whyNotEvictable says why a pod may not be evicted at all.
func whyNotEvictable(pod *corev1.Pod, options v1alpha1.Drain) string {
	if metav1.GetControllerOf(pod) == nil && !options.Force {
		return "has no controller to start it elsewhere (set rollout.drain.force to evict it)"
	}
	local := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
	if local && !options.DeleteEmptyDirData {
		return "has an emptyDir, whose data would be lost (set rollout.drain.deleteEmptyDirData to evict it)"
	}
	return ""
}

func gracePeriod(options v1alpha1.Drain) *int64 {
	if seconds := ptr.Deref(options.GracePeriodSeconds, -1); seconds >= 0 {
		return ptr.To(int64(seconds))
	}
	return nil
}

func podName(pod *corev1.Pod) string {
	return pod.Namespace + "/" + pod.Name
}
