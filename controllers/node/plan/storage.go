package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// StorageCondition returns the condition StorageReachable of a managed node, and whether it has changed and must be written.
func StorageCondition(s Snapshot, clientNode *v1alpha1.StorageClientNode, now time.Time) (corev1.NodeCondition, bool) {
	verdict := evaluateStorage(clientNode, agentpod.SilentReason(s.Node, clientNode, s.AgentReady))
	if s.Unfenced != "" {
		verdict.Status, verdict.Reason = corev1.ConditionUnknown, v1alpha1.StorageReasonAgentSilent
		verdict.Message = "The node agent is not rolled out to this node: " + s.Unfenced
	}
	return stampTimes(fleet.FindStorageReachable(s.Node), verdict, now)
}

// evaluateStorage also reports storage as unreachable if it responds to some requests (Stuck), or responds with stale handles: pods hang or fail on
// such storage as well, and users have no other condition for it.
func evaluateStorage(clientNode *v1alpha1.StorageClientNode, silent string) corev1.NodeCondition {
	verdict := corev1.NodeCondition{Type: v1alpha1.StorageReachableNodeCondition, Status: corev1.ConditionTrue, Reason: v1alpha1.StorageReasonReachable}
	failing := fleet.FailingServers(clientNode)
	isSilent := func(s v1alpha1.ServerStatus) bool { return s.State == v1alpha1.ServerSilent }
	switch {
	case silent != "":
		verdict.Status, verdict.Reason, verdict.Message = corev1.ConditionUnknown, v1alpha1.StorageReasonAgentSilent, silent
	case len(failing) > 0:
		verdict.Status, verdict.Reason = corev1.ConditionFalse, v1alpha1.StorageReasonServerStuck
		if slices.ContainsFunc(failing, isSilent) {
			verdict.Reason = v1alpha1.StorageReasonServerSilent
		}
		verdict.Message = failingText(failing)
	case slices.ContainsFunc(clientNode.Status.Servers, fleet.IsStale):
		verdict.Status, verdict.Reason = corev1.ConditionFalse, v1alpha1.StorageReasonStaleHandles
		isFresh := func(s v1alpha1.ServerStatus) bool { return !fleet.IsStale(s) }
		verdict.Message = failingText(slices.DeleteFunc(slices.Clone(clientNode.Status.Servers), isFresh))
	case len(clientNode.Status.Servers) == 0:
		verdict.Message = "The node has no mounts from storage servers"
	default:
		verdict.Message = "No storage server has overdue requests from this node"
	}
	return verdict
}

// failingText describes servers and their users. Servers that do not respond at all come first.
func failingText(failing []v1alpha1.ServerStatus) string {
	sorted := slices.Clone(failing)
	slices.SortStableFunc(sorted, func(a, b v1alpha1.ServerStatus) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Server, b.Server))
	})
	return text.InOrder(lists.Each(sorted, fleet.ServerText), "; ")
}
