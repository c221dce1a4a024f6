package drain

import (
	"fmt"
	"slices"

	policyv1 "k8s.io/api/policy/v1"

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
