package drain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// newFor is the age until which a PodDisruptionBudget may lack its first count.
const newFor = time.Minute

// maxDisruptedPods is MaxDisruptedPodSize of pkg/registry/core/pod/storage/eviction.go.
const maxDisruptedPods = 2000

// JudgeEviction returns the obstacle that PodDisruptionBudgets are to the eviction of a pod; nil if the API server would evict the pod now. It
// follows EvictionREST of Kubernetes (pkg/registry/core/pod/storage/eviction.go). now is the time of the API server's clock.
func JudgeEviction(pod *corev1.Pod, all []policyv1.PodDisruptionBudget, now time.Time) *Blocker {
	deciding := decidingBudgets(pod, all)
	if len(deciding) == 0 {
		return nil
	}
	blocker, status := &Blocker{Pod: podName(pod), Budgets: namesOf(deciding)}, deciding[0].Status
	allowed := meta.FindStatusCondition(status.Conditions, policyv1.DisruptionAllowedCondition)
	blocker.Uncounted = status.ObservedGeneration < deciding[0].Generation
	isOutdated := blocker.Uncounted || status.DisruptionsAllowed < 0 || len(status.DisruptedPods) > maxDisruptedPods
	switch {
	case len(deciding) > 1:
		blocker.Reason = "a pod that several budgets select cannot be evicted; change a budget's selector, or delete a budget"
	case !isOutdated && status.DisruptionsAllowed > 0:
		return nil
	case allowed != nil && allowed.Reason == policyv1.SyncFailedReason:
		blocker.Reason = fmt.Sprintf("its pods cannot be counted (%s); set an integer minAvailable", text.Cut(text.Line(allowed.Message), 80))
	case isOutdated && (!blocker.Uncounted || now.Sub(deciding[0].CreationTimestamp.Time) >= newFor):
		blocker.Reason = "its status is outdated; check the kube-controller-manager if that lasts longer than a minute"
	}
	return blocker
}

// decidingBudgets returns the budgets that decide about the eviction of a pod. No budget keeps a pod that does not run, and few keep an unready pod.
func decidingBudgets(pod *corev1.Pod, all []policyv1.PodDisruptionBudget) []policyv1.PodDisruptionBudget {
	if hasFinished(pod) || pod.Status.Phase == corev1.PodPending || pod.DeletionTimestamp != nil {
		return nil
	}
	selecting := lists.Filter(all, func(budget policyv1.PodDisruptionBudget) bool {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		return err == nil && budget.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels))
	})
	if len(selecting) != 1 || agentpod.IsReady(pod) {
		return selecting
	}
	status := selecting[0].Status
	if ptr.Deref(selecting[0].Spec.UnhealthyPodEvictionPolicy, policyv1.IfHealthyBudget) == policyv1.AlwaysAllow ||
		status.CurrentHealthy >= status.DesiredHealthy && status.DesiredHealthy > 0 {
		return nil
	}
	return selecting
}

func namesOf(budgets []policyv1.PodDisruptionBudget) []string {
	names := lists.Each(budgets, func(budget policyv1.PodDisruptionBudget) string { return budget.Namespace + "/" + budget.Name })
	slices.Sort(names)
	return names
}
