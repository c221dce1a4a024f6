package fleet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/tuning/standing"
)

// Report is how the settings of a node stand, and whether that can be believed.
type Report struct {
	standing.Report
	// Silent says why what the agent reported cannot be believed; empty if it can.
	Silent string
}

// IsTuned reports whether every setting was read back with its desired value, exceptions aside.
func (r Report) IsTuned() bool { return r.Silent == "" && r.Report.IsTuned() }

// UnprovenNote says why the first of the settings that new connections have to confirm cannot be confirmed now; empty if there is none.
func (r Report) UnprovenNote() string {
	for _, s := range r.Select(standing.Unproven) {
		if s.Message != "" {
			return s.Message
		}
	}
	return ""
}

// ReportOf reads a node's report. With a profile's name it covers the settings that come from that profile only,
// with an empty one all. ready is whether the agent's Pod on the node is Ready.
func ReportOf(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, ready bool, profile string) Report {
	return Report{
		Report: standing.Read(&clientNode.Spec, &clientNode.Status, profile),
		Silent: agentpod.WhySilent(node, clientNode, ready),
	}
}

// RestoresPending are the keys that have been taken out of a node's boot menu and stay in force until it boots,
// sorted: required keys that its client node no longer holds, or all of them while it is being released.
func RestoresPending(clientNode *v1alpha1.StorageClientNode) []string {
	var keys []string
	for _, key := range clientNode.Status.RebootRequiredBy {
		if clientNode.Spec.Release || !slices.ContainsFunc(clientNode.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key }) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// IsDisrupted reports whether the rollout disrupts a node, is about to, or has just returned it to service: its client node is needed.
func IsDisrupted(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) bool {
	if _, ours := node.Annotations[v1alpha1.DisruptionAnnotation]; ours || clientNode.Spec.RebootPermit != nil {
		return true
	}
	if clientNode.Status.Rollout == nil {
		return false
	}
	switch clientNode.Status.Rollout.Phase {
	case v1alpha1.RolloutClaimed, v1alpha1.RolloutDraining, v1alpha1.RolloutRebooting, v1alpha1.RolloutSettling, v1alpha1.RolloutReleasing:
		return true
	case v1alpha1.RolloutApplying, v1alpha1.RolloutUpToDate, v1alpha1.RolloutWaiting, v1alpha1.RolloutFailed:
	}
	return false
}

// IsWritable reports whether a client node may get a new generation now for what is no setting. The agent has to have seen the one
// before, and to be there to see this one: whoever waits for it to have seen the spec waits no longer than it takes to look. A node
// that the rollout holds, or that is released, keeps what it has.
func IsWritable(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, ready bool) bool {
	return node.DeletionTimestamp.IsZero() && clientNode.DeletionTimestamp.IsZero() && !pause.Annotated(node) && !clientNode.Spec.Release &&
		agentpod.NodeReady(node) && agentpod.WhySilent(node, clientNode, ready) == "" && clientNode.Status.ObservedGeneration >= clientNode.Generation &&
		!IsDisrupted(node, clientNode)
}

// PausedBy names the paused profiles that select a node or that it carries settings of: nothing new begins there. A
// profile on its way out with Retain is not held up by its own pause.
func (s *ProfileSet) PausedBy(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) []string {
	var paused []string
	for _, profile := range s.paused {
		if profile.Standing == match.Leaving && profile.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
			continue
		}
		if CarriesSettingsOf(profile.Name, clientNode) || (profile.Standing == match.Active && profile.Selects(node)) {
			paused = append(paused, profile.Name)
		}
	}
	return paused
}
