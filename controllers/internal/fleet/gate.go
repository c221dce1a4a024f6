package fleet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
)

// Gates are all nodes for the gates of live changes.
type Gates struct {
	// Nodes are those of each profile, in the order of the snapshot. A node that is left alone, or without anything to set, is not among them.
	Nodes map[string][]livegate.Node
	// Managed are those of the cluster that hold settings.
	Managed []livegate.Node
}

// GatesOf looks at each node once for all profiles.
func GatesOf(all Snapshot, untunedTaint string) Gates {
	gates := Gates{Nodes: map[string][]livegate.Node{}, Managed: make([]livegate.Node, 0, len(all.Nodes))}
	canaries := map[string]labels.Selector{}
	for _, node := range all.Nodes {
		clientNode := all.ClientNodes[node.Name]
		if !node.DeletionTimestamp.IsZero() || match.Ignored(node) {
			continue
		}
		entry := GateEntry(all, node, clientNode, untunedTaint)
		if entry.Managed {
			gates.Managed = append(gates.Managed, entry)
		}
		wanted := all.Profiles.Wanted(node, clientNode)
		if !wanted.Managed || (clientNode == nil && wanted.Hash == "") {
			continue
		}
		entry.Wanted = wanted.Hash
		for _, profile := range all.Profiles.Concerning(node, clientNode) {
			if canaries[profile.Name] == nil {
				canaries[profile.Name] = CanarySelector(profile)
			}
			entry.Canary = canaries[profile.Name].Matches(labels.Set(node.Labels))
			gates.Nodes[profile.Name] = append(gates.Nodes[profile.Name], entry)
		}
	}
	return gates
}

// CanarySelector selects the nodes that a profile chooses for its canary; where it chooses none, no node.
func CanarySelector(profile *Profile) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(profile.Spec.WithDefaults().Rollout.Canary.NodeSelector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// GateEntry is a node for the gate of live changes, but for what it is to have and whether it is a chosen canary. A node with the taint
// has no work yet.
func GateEntry(all Snapshot, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, untunedTaint string) livegate.Node {
	paused := pause.Annotated(node) || len(all.Profiles.PausedBy(node, clientNode)) > 0
	entry := livegate.Node{Name: node.Name, Created: node.CreationTimestamp.Time, Alive: !paused && agentpod.NodeReady(node)}
	entry.Empty = slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == untunedTaint })
	if clientNode == nil {
		return entry
	}
	report := ReportOf(node, clientNode, all.Ready[node.Name], "")
	entry.Managed = !clientNode.Spec.Release
	entry.Carries = clientNode.Spec.Hash
	entry.Alive = entry.Alive && report.Silent == ""
	entry.Taken = report.IsTaken()
	entry.Unconfirmed = report.UnprovenNote()
	if report.Silent != "" && IsAgentSilent(node) {
		entry.SilentSince = FindTuned(node).LastTransitionTime.Time
		entry.NeverStarted = clientNode.Status.BootID == "" && agentpod.NodeReady(node)
	}
	entry.Failed = !report.Applying && report.HasFailed()
	if report.Silent == "" && report.Soaks() {
		entry.TakenSince = tunedSince(clientNode)
	}
	return entry
}

// tunedSince returns since when the node has had the settings that its client node holds, by the rollout's note; zero if the note has none,
// or is about other settings. An edit of a profile does not change that until the client node holds the new settings: the gate counts the
// time of no node that holds other settings than it should.
func tunedSince(clientNode *v1alpha1.StorageClientNode) time.Time {
	rollout := clientNode.Status.Rollout
	if rollout == nil || rollout.Tuned == nil || rollout.Tuned.Hash != clientNode.Spec.Hash {
		return time.Time{}
	}
	return rollout.Tuned.Since.Time
}

// IsAgentSilent reports whether the condition Tuned says that the node's agent is silent, and has been for longer than a restart takes.
func IsAgentSilent(node *corev1.Node) bool {
	condition := FindTuned(node)
	return condition != nil && condition.Reason == v1alpha1.NodeReasonAgentSilent
}
