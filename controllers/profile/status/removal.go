package status

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

// silentAfter is the time for which an agent must be silent before its node counts as unreachable. A pod of the agent that is being replaced is
// silent too.
const silentAfter = time.Minute

// Remaining work on nodes; the names follow.
const (
	agentLabelLeft  = "agent label not yet removed from "
	rolloutHasIt    = "waiting for the rollout to release "
	nodePaused      = "paused: "
	restoreNotSent  = "restore not yet sent to "
	restoringNode   = "restoring "
	cannotReachNode = "cannot reach "
	rebootRequired  = "waiting for the reboot that restoreReboot requires: "
)

// removal contains the remaining work for a profile that is being deleted.
type removal struct {
	// nodes are the nodes with remaining work, by that work.
	nodes map[string][]string
	// unreachable are nodes that cannot be reached, or are ignored. They are restored when they can be.
	unreachable []string
}

func (m removal) messages() []string {
	return lists.Each(slices.Sorted(maps.Keys(m.nodes)), func(work string) string { return work + text.List(m.nodes[work]) })
}

// findRemaining finds the remaining work on every node that a profile selects or that has its settings. Nodes that are gone do not keep the
// profile. Neither do unreachable nodes that already have their instructions, or that have failed.
func findRemaining(profile *fleet.Profile, all fleet.Snapshot, now time.Time) removal {
	found := removal{nodes: map[string][]string{}}
	for _, node := range all.Concerned(profile) {
		clientNode := all.ClientNodes[node.Name]
		reachable := agentpod.IsNodeReady(node) && (clientNode == nil || isReporting(node, clientNode, all.Ready[node.Name], now))
		work := remainingOn(profile, node, clientNode, reachable)
		switch {
		case work == "":
		case match.IsIgnored(node):
			found.unreachable = append(found.unreachable, node.Name)
		case clientNode != nil && !reachable && (isRestoreSent(profile, clientNode) && !fleet.IsDisrupted(node, clientNode) || isLost(node, clientNode)):
			found.unreachable = append(found.unreachable, node.Name)
		default:
			found.nodes[work] = append(found.nodes[work], node.Name)
		}
	}
	return found
}

// isReporting reports whether the reports of a node's agent are current, or the agent has been silent only for a short time.
func isReporting(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, ready bool, now time.Time) bool {
	condition := fleet.FindTuned(node)
	return agentpod.SilentReason(node, clientNode, ready) == "" || condition == nil || condition.Status != corev1.ConditionUnknown ||
		now.Sub(condition.LastTransitionTime.Time) < silentAfter
}

// isLost reports whether a node has failed and is not back: the rollout keeps its annotation, perhaps forever. The settings record how they are
// removed when the node returns.
func isLost(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) bool {
	return !agentpod.IsNodeReady(node) && clientNode.Status.Rollout != nil && clientNode.Status.Rollout.Phase == v1alpha1.RolloutFailed
}

// isRestoreSent reports whether a StorageClientNode already has all the instructions that its agent needs after the profile is gone.
func isRestoreSent(profile *fleet.Profile, clientNode *v1alpha1.StorageClientNode) bool {
	return clientNode.Spec.Release || !fleet.CarriesSettingsOf(profile.Name, clientNode)
}

func remainingOn(profile *fleet.Profile, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, reachable bool) string {
	switch {
	case clientNode == nil && node.Labels[v1alpha1.ManagedLabel] != "":
		return agentLabelLeft
	case clientNode == nil:
		return ""
	case fleet.IsDisrupted(node, clientNode):
		return rolloutHasIt
	case profile.Spec.DeletionPolicy == v1alpha1.DeletionRetain && !slices.ContainsFunc(clientNode.Spec.Settings, func(s v1alpha1.NodeSetting) bool {
		return s.Profile == profile.Name && s.OnRemoval != v1alpha1.DeletionRetain
	}):
		return ""
	case !isRestoreSent(profile, clientNode) && match.IsPaused(node):
		return nodePaused
	case !isRestoreSent(profile, clientNode):
		return restoreNotSent
	case clientNode.Spec.Release:
		return restoringNode
	case !reachable:
		return cannotReachNode
	}
	return leftoversOn(profile, clientNode)
}

// leftoversOn returns the remaining work on a node that other profiles still use, for settings that are no longer in its StorageClientNode.
func leftoversOn(profile *fleet.Profile, clientNode *v1alpha1.StorageClientNode) string {
	if clientNode.Status.ObservedGeneration < clientNode.Generation || clientNode.Status.Hash != clientNode.Spec.Hash {
		return restoringNode
	}
	atBoot := fleet.RestoresPending(clientNode)
	if profile.Spec.Rollout.Reboot.RestoreReboot && len(atBoot) > 0 {
		return rebootRequired
	}
	for _, setting := range clientNode.Status.Settings {
		wanted := slices.ContainsFunc(clientNode.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == setting.Key })
		if !wanted && !slices.Contains(atBoot, setting.Key) {
			return restoringNode
		}
	}
	return ""
}
