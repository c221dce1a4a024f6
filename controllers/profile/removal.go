package profile

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
)

// silentAfter is how long an agent has to be unheard of before its node counts as unreachable: a pod of the agent
// that is being replaced is silent too.
const silentAfter = time.Minute

// removal is what a profile that is being deleted still waits for, one entry for a node.
type removal struct {
	nodes []string
	// left are nodes that cannot be reached, or are ignored, and will restore when they can.
	left []string
}

// remaining looks at every node that a profile selects or that carries settings of it. Nodes that are gone, or cannot
// be reached and have been told what to do, do not hold the profile up.
func remaining(profile *fleet.Profile, all fleet.Snapshot, now time.Time) removal {
	var left removal
	for i := range all.Nodes {
		node := &all.Nodes[i]
		scn := all.Objects[node.Name]
		if !profile.Selects(node) && !fleet.Concerns(profile.Name, scn) {
			continue
		}
		reachable := agentpod.NodeReady(node) && (scn == nil || heard(node, scn, all.Ready[node.Name], now))
		why := restoring(profile, node, scn, reachable)
		switch {
		case why == "":
		case match.Ignored(node):
			left.left = append(left.left, node.Name)
		case scn != nil && !reachable && told(profile, scn) && !fleet.Disrupted(node, scn):
			left.left = append(left.left, node.Name)
		default:
			left.nodes = append(left.nodes, fmt.Sprintf("%s %s", node.Name, why))
		}
	}
	slices.Sort(left.nodes)
	slices.Sort(left.left)
	return left
}

// heard reports whether a node's agent is to be believed, or has been silent for a short time only.
func heard(node *corev1.Node, scn *v1alpha1.StorageClientNode, ready bool, now time.Time) bool {
	if agentpod.Silent(node, scn, ready) == "" {
		return true
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1alpha1.TunedNodeCondition && condition.Status == corev1.ConditionUnknown {
			return now.Sub(condition.LastTransitionTime.Time) < silentAfter
		}
	}
	return true
}

// told reports whether a node's object already says all that its agent needs to know once the profile is gone.
func told(profile *fleet.Profile, scn *v1alpha1.StorageClientNode) bool {
	return scn.Spec.Release || !fleet.Concerns(profile.Name, scn)
}

// restoring says what is still to be done on a node; empty: nothing.
func restoring(profile *fleet.Profile, node *corev1.Node, scn *v1alpha1.StorageClientNode, reachable bool) string {
	switch {
	case scn == nil && node.Labels[v1alpha1.ManagedLabel] != "":
		return "still has the agent's label"
	case scn == nil:
		return ""
	case fleet.Disrupted(node, scn):
		return "is held by the rollout"
	case profile.Spec.DeletionPolicy == v1alpha1.DeletionRetain && retains(profile.Name, scn):
		return ""
	case !told(profile, scn) && pause.Annotated(node):
		return "is paused"
	case !told(profile, scn):
		return "has not been told yet"
	case scn.Spec.Release:
		return "is being restored"
	case !reachable:
		return "cannot be reached"
	}
	return leftovers(profile, scn)
}

// retains reports whether a node's object says of all settings of a profile that they stay.
func retains(profile string, scn *v1alpha1.StorageClientNode) bool {
	return !slices.ContainsFunc(scn.Spec.Settings, func(s v1alpha1.NodeSetting) bool {
		return s.Profile == profile && s.OnRemoval != v1alpha1.DeletionRetain
	})
}

// leftovers says what a node that other profiles go on with still has of settings that are gone from its object.
func leftovers(profile *fleet.Profile, scn *v1alpha1.StorageClientNode) string {
	if scn.Status.ObservedGeneration < scn.Generation || scn.Status.Hash != scn.Spec.Hash {
		return "is being restored"
	}
	atBoot := fleet.RestoresPending(scn)
	if profile.Spec.Rollout.Reboot.RestoreReboot && len(atBoot) > 0 {
		return "waits for the reboot that restoreReboot asks for"
	}
	for _, setting := range scn.Status.Settings {
		wanted := slices.ContainsFunc(scn.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == setting.Key })
		if !wanted && !slices.Contains(atBoot, setting.Key) {
			return "is being restored"
		}
	}
	return ""
}
