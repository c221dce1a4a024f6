package plan

import (
	"fmt"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// restores contains the limit for a profile, and the number of its nodes that are being restored. Unreachable nodes and nodes with a failed restore
// do not count: they would block the restore of all others.
type restores struct{ limit, releasing int }

func restoresOf(all fleet.Snapshot, profile *fleet.Profile) *restores {
	carrying, out := 0, &restores{}
	for _, node := range all.Nodes {
		clientNode := all.ClientNodes[node.Name]
		if clientNode == nil || !fleet.CarriesSettingsOf(profile.Name, clientNode) {
			continue
		}
		carrying++
		if clientNode.Spec.Release && !clientNode.Status.Restored && !hasFailedToRestore(clientNode) &&
			agentpod.SilentReason(node, clientNode, all.Ready[node.Name]) == "" {
			out.releasing++
		}
	}
	out.limit = v1alpha1.ResolveShare(*profile.Spec.WithDefaults().Rollout.MaxConcurrentLive, carrying)
	return out
}

// note returns the reason why another node must wait; empty if it need not.
func (r *restores) note() string {
	if r.releasing < r.limit {
		return ""
	}
	return fmt.Sprintf("Restore: queued; at most %s at a time", text.Count(r.limit, "node"))
}

// hasFailedToRestore reports whether the agent has reported for the release that a setting could not be restored.
func hasFailedToRestore(clientNode *v1alpha1.StorageClientNode) bool {
	return clientNode.Status.ObservedGeneration >= clientNode.Generation &&
		slices.ContainsFunc(clientNode.Status.Settings, func(s v1alpha1.SettingStatus) bool { return standing.Of(s, false) == standing.Failed })
}
