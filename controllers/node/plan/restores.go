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

// restores are the nodes that carry settings of a profile, and those of them that are being restored. Nodes that are unreachable do not
// count as such, nor do those where it has failed: they would keep all others from being restored.
type restores struct{ limit, releasing int }

func restoresOf(all fleet.Snapshot, profile *fleet.Profile) *restores {
	carrying, out := 0, &restores{}
	for _, node := range all.Nodes {
		clientNode := all.ClientNodes[node.Name]
		if clientNode == nil || !fleet.CarriesSettingsOf(profile.Name, clientNode) {
			continue
		}
		carrying++
		if clientNode.Spec.Release && !clientNode.Status.Restored && !hasFailedToRestore(clientNode) && agentpod.WhySilent(node, clientNode, all.Ready[node.Name]) == "" {
			out.releasing++
		}
	}
	out.limit = v1alpha1.ResolveShare(*profile.Spec.WithDefaults().Rollout.MaxConcurrentLive, carrying)
	return out
}

// note says why one more has to wait; empty: it need not.
func (r *restores) note() string {
	if r.releasing < r.limit {
		return ""
	}
	return fmt.Sprintf("Restore: waiting for its turn, at most %s at a time", text.Count(r.limit, "node"))
}

// hasFailedToRestore reports whether the agent has said of the release that something could not be restored.
func hasFailedToRestore(clientNode *v1alpha1.StorageClientNode) bool {
	return clientNode.Status.ObservedGeneration >= clientNode.Generation &&
		slices.ContainsFunc(clientNode.Status.Settings, func(s v1alpha1.SettingStatus) bool { return standing.Of(s, false) == standing.Failed })
}
