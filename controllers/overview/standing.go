package overview

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
)

// Standing is the progress of one node toward the declarations of a profile.
type Standing struct {
	Node
	// Zone is the zone of the node, empty if it has none or its Node may not be read.
	Zone string `json:"zone,omitempty"`
	// Done is true if no work is left on the node.
	Done bool `json:"done"`
}

// Standings returns the nodes of a profile as Nodes does, with their zones. A node is done if the rollout's note or the Node's condition Tuned
// reports this, and the other does not contradict. The condition counts only once the agent has verified every value.
func Standings(profile *v1alpha1.StorageClientProfile, c Cluster) []Standing {
	var out []Standing
	for _, m := range membersOf(profile, c) {
		s := Standing{Node: statusOf(m), Zone: m.node.Labels[corev1.LabelTopologyZone]}
		tuned := fleet.FindTuned(m.node)
		// The condition omits states that last only seconds. The agent's report shows them.
		isTuned := tuned != nil && tuned.Status == corev1.ConditionTrue &&
			(m.clientNode == nil || fleet.ReportOf(m.node, m.clientNode, true, "").IsSettled())
		switch {
		case s.Phase != string(v1alpha1.RolloutUpToDate):
			s.Done = s.Phase == noPhase && isTuned
		case tuned != nil && tuned.Status == corev1.ConditionTrue && !isTuned:
			s.Phase, s.Reason, s.Message = noPhase, v1alpha1.NodeReasonApplying, "Waiting for the agent to report the settings"
		case tuned != nil && !isTuned:
			s.Phase, s.Reason, s.Message, s.Since = noPhase, tuned.Reason, tuned.Message, tuned.LastTransitionTime.DeepCopy()
		default:
			s.Done = true
		}
		out = append(out, s)
	}
	return out
}

// NodesOf returns Nodes for StorageClientNodes, for users who may not list Nodes. The returned Nodes only have names.
func NodesOf(clientNodes []v1alpha1.StorageClientNode) []corev1.Node {
	out := make([]corev1.Node, len(clientNodes))
	for i := range clientNodes {
		out[i].Name = clientNodes[i].Name
	}
	return out
}
