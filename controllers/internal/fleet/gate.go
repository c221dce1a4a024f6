package fleet

import (
	"cmp"
	"slices"
	"strings"
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
	if condition := FindTuned(node); report.Silent != "" && condition != nil && condition.Reason == v1alpha1.NodeReasonAgentSilent {
		// Not that of the message, which changes each time that the agent's Pod is restarted.
		entry.SilentSince = condition.LastTransitionTime.Time
		entry.NeverStarted = clientNode.Status.BootID == "" && agentpod.NodeReady(node)
	}
	entry.Failed = !report.Applying && report.HasFailed()
	entry.TakenSince = takenSince(node, clientNode.Spec.Hash, report)
	return entry
}

// SettingsName ends what the condition Tuned says of settings that a node has taken: by it one can tell which they are.
func SettingsName(hash string) string { return " (settings " + cmp.Or(hash, "none") + ")" }

// takenSince is since when the node has had the settings of that hash, by the condition that says so. That it has them now is
// observed afresh; only the time comes from the condition, and not from one that still speaks of the settings before.
func takenSince(node *corev1.Node, hash string, report Report) time.Time {
	condition := FindTuned(node)
	if condition == nil || report.Silent != "" || !report.Soaks() || !strings.HasSuffix(condition.Message, SettingsName(hash)) {
		return time.Time{}
	}
	switch condition.Reason {
	case v1alpha1.NodeReasonTuned, v1alpha1.NodeReasonTunedWithExceptions, v1alpha1.NodeReasonRebootPending, v1alpha1.NodeReasonSettingsFailed:
		return condition.LastHeartbeatTime.Time
	}
	return time.Time{}
}
