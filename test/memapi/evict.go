package memapi

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// retryObserved is the retry delay until a controller has counted the pods of a budget (pkg/registry/core/pod/storage/eviction.go).
const retryObserved = 10

// maxDisrupted is the maximum number of evictions that the disruption controller has not confirmed.
const maxDisrupted = 2000

// evict evicts a pod if its budget permits it.
func (s *Server) evict(actor string, key types.NamespacedName, options *metav1.DeleteOptions, dryRun bool) error {
	found := s.tables[Pods].get(key)
	if found == nil {
		return apierrors.NewNotFound(Pods.resource(), key.Name)
	}
	pod := found.(*corev1.Pod)
	if options != nil && options.Preconditions != nil && !meets(pod, options.Preconditions) {
		return conflict(Pods, key.Name)
	}
	ended := []corev1.PodPhase{corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed}
	if !slices.Contains(ended, pod.Status.Phase) && pod.DeletionTimestamp == nil {
		if err := s.askBudget(actor, pod, dryRun); err != nil {
			return err
		}
	}
	if !dryRun {
		s.delete(actor, Pods, pod, true)
	}
	return nil
}

// askBudget uses up one disruption of the pod's budget. It returns an error if the budget is used up.
func (s *Server) askBudget(actor string, pod *corev1.Pod, dryRun bool) error {
	var budgets []*policyv1.PodDisruptionBudget
	for _, object := range s.tables[Budgets] {
		budget := object.(*policyv1.PodDisruptionBudget)
		if budget.Namespace != pod.Namespace {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
			budgets = append(budgets, budget)
		}
	}
	switch {
	case len(budgets) == 0:
		return nil
	case len(budgets) > 1:
		return apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget"))
	case !isReady(pod) && allowsUnready(budgets[0]):
		return nil
	case budgets[0].Status.ObservedGeneration < budgets[0].Generation:
		return apierrors.NewTooManyRequests("the budget is still being processed", retryObserved)
	case budgets[0].Status.DisruptionsAllowed < 0, len(budgets[0].Status.DisruptedPods) > maxDisrupted:
		return apierrors.NewForbidden(Budgets.resource(), budgets[0].Name, errors.New("the status is invalid"))
	case budgets[0].Status.DisruptionsAllowed == 0:
		return apierrors.NewTooManyRequests("cannot evict pod as it would violate the pod's disruption budget", 0)
	}
	if !dryRun {
		Change(s, actor, budgets[0], func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed-- })
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// allowsUnready reports whether a budget permits the eviction of a pod that is not ready, whatever it has counted.
func allowsUnready(b *policyv1.PodDisruptionBudget) bool {
	policy := b.Spec.UnhealthyPodEvictionPolicy
	return policy != nil && *policy == policyv1.AlwaysAllow || b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy
}
