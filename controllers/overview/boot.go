package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

const onlyControlPlane = "the only control-plane node is not rebooted by the rollout; reboot it by hand"

// RebootOf is what a profile's plan says of one node. due is false where the node needs no boot for settings of that profile. wanted
// is what all profiles want of the node, clientNode is nil where no agent has reported.
func RebootOf(profile *v1alpha1.StorageClientProfile, node *corev1.Node, all []*corev1.Node, wanted nodesettings.Result,
	clientNode *v1alpha1.StorageClientNode,
) (reboot Reboot, due bool) {
	reboot = Reboot{Node: node.Name, Zone: node.Labels[corev1.LabelTopologyZone], Why: rebootsFor(profile, wanted.Settings, clientNode)}
	if len(reboot.Why) == 0 {
		return reboot, false
	}
	reboot.Held = WhyNotRebooted(node, all, wanted.Settings, clientNode)
	reboot.Refused = reboot.Held != ""
	reboot.Held = cmp.Or(reboot.Held, holdOn(node))
	return reboot, true
}

// SettingsOf are the settings among these that come from a profile.
func SettingsOf(profile string, settings []v1alpha1.NodeSetting) []v1alpha1.NodeSetting {
	return slices.DeleteFunc(slices.Clone(settings), func(s v1alpha1.NodeSetting) bool { return s.Profile != profile })
}

// WhyNotRebooted says why the rollout would not reboot a node for boot settings among these, empty if it would: the node would not
// be accepted after the boot, its boot loader is not proven, or nothing would stand in for it.
func WhyNotRebooted(node *corev1.Node, all []*corev1.Node, settings []v1alpha1.NodeSetting, clientNode *v1alpha1.StorageClientNode) string {
	if obstacles := standingOf(settings, clientNode).Obstacles(); len(obstacles) > 0 {
		return standing.Describe(obstacles)
	}
	if match.ControlPlane(node) && !slices.ContainsFunc(all, func(n *corev1.Node) bool { return n.Name != node.Name && match.ControlPlane(n) }) {
		return onlyControlPlane
	}
	if clientNode != nil && clientNode.Status.Bootloader != nil && !clientNode.Status.Bootloader.Proven {
		loader := clientNode.Status.Bootloader
		return strings.TrimSuffix(fmt.Sprintf("boot loader %s: %s", loader.Type, loader.Message), ": ")
	}
	return ""
}

// standingOf returns the standing of settings that a node would have, by the reports on these very values, and of those that its agent
// could not restore.
func standingOf(settings []v1alpha1.NodeSetting, clientNode *v1alpha1.StorageClientNode) standing.Report {
	if clientNode == nil {
		return standing.Report{}
	}
	values := make(map[string]string, len(settings))
	for _, s := range settings {
		values[s.Key] = s.Value
	}
	known := clientNode.Status
	unrestored := standing.Read(&clientNode.Spec, &clientNode.Status, "").Keys(standing.RestoreFailed)
	known.Settings = slices.DeleteFunc(slices.Clone(known.Settings), func(s v1alpha1.SettingStatus) bool {
		if value, wanted := values[s.Key]; wanted {
			return value != s.Desired
		}
		return !slices.Contains(unrestored, s.Key)
	})
	return standing.Read(&v1alpha1.StorageClientNodeSpec{Settings: settings}, &known, "")
}

// rebootsFor says why a node would reboot for what comes from a profile: a boot setting that it is not known to have in force, or
// one to be rid of where the profile asks for that.
func rebootsFor(profile *v1alpha1.StorageClientProfile, settings []v1alpha1.NodeSetting, clientNode *v1alpha1.StorageClientNode) []string {
	var why []string
	for _, s := range settings {
		if s.Profile == profile.Name && nodesettings.TakesEffectAtBoot(s.Key) {
			if reason := bootReason(s, clientNode); reason != "" {
				why = append(why, reason)
			}
		}
	}
	if clientNode == nil || !profile.Spec.Rollout.Reboot.RestoreReboot {
		return why
	}
	for _, s := range SettingsOf(profile.Name, clientNode.Spec.Settings) {
		isWanted := slices.ContainsFunc(settings, func(wanted v1alpha1.NodeSetting) bool { return wanted.Key == s.Key })
		if nodesettings.TakesEffectAtBoot(s.Key) && !isWanted && s.OnRemoval == v1alpha1.DeletionRestore {
			why = append(why, fmt.Sprintf("%s is removed, now %s", s.Key, cmp.Or(s.Value, "set")))
		}
	}
	return why
}

// bootReason is empty for a setting that is in force, and for one that the node cannot take: it is never staged.
func bootReason(s v1alpha1.NodeSetting, clientNode *v1alpha1.StorageClientNode) string {
	becomes := fmt.Sprintf("%s becomes %s", s.Key, cmp.Or(s.Value, "set"))
	if clientNode == nil {
		return becomes + ", now unknown: no agent report yet"
	}
	for _, status := range clientNode.Status.Settings {
		if status.Key != s.Key || status.Desired != s.Value {
			continue
		}
		switch standing.Of(status, slices.Contains(clientNode.Status.RebootRequiredBy, s.Key)) {
		case standing.Effective, standing.Unavailable:
			return ""
		default:
			return becomes + ", now " + cmp.Or(status.Observed, "not set")
		}
	}
	return becomes
}
