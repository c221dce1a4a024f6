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

// Blocker is a pod that cannot be evicted, with the reason.
type Blocker struct {
	// Pod is namespace and name; UID is set for pods in Left.
	Pod, UID string
	// Budgets are the PodDisruptionBudgets that protect it, namespace and name; empty if the reason is another one.
	Budgets []string
	// Reason is a sentence about any other reason, and about budgets that only a user can make allow the eviction.
	Reason string
	// Uncounted is true if the API server rejects the eviction until the pods of the budget have been counted.
	Uncounted bool
}

// IsNew reports whether the only obstacle is a new PodDisruptionBudget, whose pods are about to be counted.
func (b *Blocker) IsNew() bool { return b != nil && b.Uncounted && b.Reason == "" }

// String returns the pod and its budgets, or the reason.
func (b Blocker) String() string {
	if len(b.Budgets) == 0 {
		return fmt.Sprintf("Pod %s %s", b.Pod, b.Reason)
	}
	return fmt.Sprintf("Eviction of Pod %s blocked by PodDisruptionBudget %s", b.Pod, text.List(b.Budgets)) + text.Labelled(": ", b.Reason)
}

// Result contains the pods found by a pass. Pods are namespace and name.
type Result struct {
	// Remaining are pods that have been evicted, or are about to be, and are not gone.
	Remaining []string
	// WaitedFor are pods that run to completion: pods of Jobs, and pods that waitForPodSelector selects.
	WaitedFor []string
	// Blocked are pods that cannot be evicted.
	Blocked []Blocker
	// Left are pods that the drain leaves on the node because they would come back to it.
	Left []Blocker
	// KeepsVolumes is true if a pod that stays has a persistent volume.
	KeepsVolumes bool
	// Budgets are the PodDisruptionBudgets of the pods in Left, one for each pod. LookAhead fills it, and Drain once it has no other pod left.
	Budgets []policyv1.PodDisruptionBudget
	// IgnoredPodUIDs are the UIDs of DaemonSet and static pods, which stay.
	IgnoredPodUIDs []string
	// TooLate is true if no pod was evicted, and a pod that remains has a longer grace period than the time left.
	TooLate bool
	// Names are the names of the pods that are not gone and do not stay, by UID.
	Names map[string]string
}

// Done reports whether every pod that must leave is gone.
func (r Result) Done() bool { return len(r.Remaining)+len(r.WaitedFor)+len(r.Blocked) == 0 }

// IsHeldByBudgets reports whether the only obstacles are PodDisruptionBudgets.
func (r Result) IsHeldByBudgets() bool {
	return len(r.Blocked) > 0 && len(r.WaitedFor) == 0 && !slices.ContainsFunc(r.Blocked, func(b Blocker) bool { return b.Reason != "" })
}

// Remarks describes the pods that the drain leaves on the node; empty if there are none.
func (r Result) Remarks() string { return text.Labelled("Left on the node: ", listBlockers(r.Left)) }

func listBlockers(pods []Blocker) string { return text.Join(lists.Each(pods, Blocker.String), "; ") }

// String describes the pods for which the drain waits, most severe first.
func (r Result) String() string {
	if r.Done() {
		return "All pods that had to leave are gone"
	}
	parts := []string{listBlockers(r.Blocked)}
	for _, wait := range []struct {
		pods   []string
		action string
	}{{r.WaitedFor, "finish"}, {r.Remaining, "terminate"}} {
		switch len(wait.pods) {
		case 0:
		case 1:
			parts = append(parts, fmt.Sprintf("Waiting for pod %s to %s", wait.pods[0], wait.action))
		default:
			parts = append(parts, fmt.Sprintf("Waiting for pods %s to %s", text.List(wait.pods), wait.action))
		}
	}
	if r.TooLate {
		parts = append(parts, "No pod is evicted, because the time left is shorter than their grace periods")
	}
	return text.Combine(". ", parts...)
}

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
