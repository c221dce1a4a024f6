package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

const onlyControlPlane = "the rollout does not reboot the only control-plane node; reboot it manually"

// RebootOf returns the reboot of a node for a profile. isDue is false if the node needs no boot for settings of that profile. all are the nodes of
// the cluster. wanted contains the desired settings of all profiles for the node. clientNode is nil if there is none.
func RebootOf(profile *v1alpha1.StorageClientProfile, node *corev1.Node, all []*corev1.Node, wanted nodesettings.Result,
	clientNode *v1alpha1.StorageClientNode,
) (reboot Reboot, isDue bool) {
	reboot = Reboot{Node: node.Name, Zone: node.Labels[corev1.LabelTopologyZone], Reasons: rebootsFor(profile, node, wanted.Settings, clientNode)}
	if len(reboot.Reasons) == 0 {
		return reboot, false
	}
	reboot.Held = NoRebootReason(node, all, wanted.Settings, clientNode)
	reboot.Refused = reboot.Held != ""
	reboot.Held = cmp.Or(reboot.Held, holdReason(node))
	return reboot, true
}

// SettingsOf returns the settings that come from a profile.
func SettingsOf(profile string, settings []v1alpha1.NodeSetting) []v1alpha1.NodeSetting {
	return slices.DeleteFunc(slices.Clone(settings), func(s v1alpha1.NodeSetting) bool { return s.Profile != profile })
}

// NoRebootReason returns the reason why the rollout would not reboot a node for its settings, empty if it would. Possible reasons: the node would not
// be accepted after the boot, its boot loader is not proven, or it is the only control-plane node.
func NoRebootReason(node *corev1.Node, all []*corev1.Node, settings []v1alpha1.NodeSetting, clientNode *v1alpha1.StorageClientNode) string {
	if obstacles := standingOf(settings, clientNode).Obstacles(); len(obstacles) > 0 {
		return standing.Describe(obstacles)
	}
	if match.IsControlPlane(node) && !slices.ContainsFunc(all, func(n *corev1.Node) bool { return n.Name != node.Name && match.IsControlPlane(n) }) {
		return onlyControlPlane
	}
	if clientNode != nil && clientNode.Status.Bootloader != nil && !clientNode.Status.Bootloader.Proven {
		loader := clientNode.Status.Bootloader
		return strings.TrimSuffix(fmt.Sprintf("boot loader %s: %s", loader.Type, loader.Message), ": ")
	}
	return ""
}

// standingOf returns the state that settings would have on a node, based on the reports about exactly these values. It includes the settings that
// the agent could not restore.
func standingOf(settings []v1alpha1.NodeSetting, clientNode *v1alpha1.StorageClientNode) standing.Report {
	if clientNode == nil {
		return standing.Report{}
	}
	wanted, known := byKey(settings), clientNode.Status
	unrestored := standing.Read(&clientNode.Spec, &clientNode.Status, "").Keys(standing.RestoreFailed)
	known.Settings = slices.DeleteFunc(slices.Clone(known.Settings), func(s v1alpha1.SettingStatus) bool {
		if setting, isWanted := wanted[s.Key]; isWanted {
			return setting.Value != s.Desired
		}
		return !slices.Contains(unrestored, s.Key)
	})
	return standing.Read(&v1alpha1.StorageClientNodeSpec{Settings: settings}, &known, "")
}

// rebootsFor returns the reasons of a profile for a reboot of a node. These are settings that require a reboot and are not known to be effective.
// If the profile requests reboots for removals, settings to remove are included.
func rebootsFor(profile *v1alpha1.StorageClientProfile, node *corev1.Node, settings []v1alpha1.NodeSetting, clientNode *v1alpha1.StorageClientNode) []string {
	var reasons []string
	for _, s := range settings {
		if s.Profile == profile.Name && nodesettings.TakesEffectAtBoot(s.Key) {
			if reason := bootReason(s, node, clientNode); reason != "" {
				reasons = append(reasons, reason)
			}
		}
	}
	if clientNode == nil || !profile.Spec.Rollout.Reboot.RestoreReboot {
		return reasons
	}
	for _, s := range SettingsOf(profile.Name, clientNode.Spec.Settings) {
		isWanted := slices.ContainsFunc(settings, func(wanted v1alpha1.NodeSetting) bool { return wanted.Key == s.Key })
		if nodesettings.TakesEffectAtBoot(s.Key) && !isWanted && s.OnRemoval == v1alpha1.DeletionRestore {
			reasons = append(reasons, fmt.Sprintf("%s is removed, now %s", s.Key, cmp.Or(s.Value, "set")))
		}
	}
	return reasons
}

// bootReason returns the reason for a reboot for one setting. It is empty if the setting is effective, or if the node does not support the setting
// and thus never stages it.
func bootReason(s v1alpha1.NodeSetting, node *corev1.Node, clientNode *v1alpha1.StorageClientNode) string {
	if status, isReported := statusIn(clientNode, s.Key); isReported && status.Desired == s.Value {
		if at := standing.Of(status, slices.Contains(clientNode.Status.RebootRequiredBy, s.Key)); at == standing.Effective || at == standing.Unavailable {
			return ""
		}
	}
	current, unknown := currentValue(s.Key, node, clientNode)
	return fmt.Sprintf("%s becomes %s, now %s", s.Key, cmp.Or(s.Value, "set"), cmp.Or(current, "unknown: "+unknown))
}

func statusIn(clientNode *v1alpha1.StorageClientNode, key string) (v1alpha1.SettingStatus, bool) {
	for _, s := range ptr.Deref(clientNode, v1alpha1.StorageClientNode{}).Status.Settings {
		if s.Key == key {
			return s, true
		}
	}
	return v1alpha1.SettingStatus{}, false
}

// currentValue returns the current value of a setting on a node, or the reason why it is unknown. Agents read only the settings that a profile
// declares, or that they still restore. A report before the last boot does not show the current value. A kernel argument without a report of a value
// was not passed, except for hash tables, which have a size without it.
func currentValue(key string, node *corev1.Node, clientNode *v1alpha1.StorageClientNode) (value, unknown string) {
	status, isReported := statusIn(clientNode, key)
	switch {
	case clientNode == nil:
		return "", "the node has no agent"
	case agentpod.SilentReason(node, clientNode, true) != "":
		return "", agentpod.SilentReason(node, clientNode, true)
	case !isReported:
		return "", "the node's agent reads only declared settings"
	case status.Observed != "":
		return status.Observed, ""
	case !nodesettings.TakesEffectAtBoot(key) || strings.HasSuffix(key, "hash_entries") || status.State == v1alpha1.SettingFailed:
		return "", cmp.Or(status.Message, "the node's agent reports no value")
	case status.State == v1alpha1.SettingInSync && status.Desired == "":
		return "set", ""
	}
	return "not set", ""
}
