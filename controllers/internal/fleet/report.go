package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// Report contains the state of a node's settings, and whether that state is current.
type Report struct {
	standing.Report
	// Silent is the reason why the report of the agent is not current; empty if it is.
	Silent string
}

// IsTuned reports whether every setting was read back with its desired value, exceptions aside.
func (r Report) IsTuned() bool { return r.Silent == "" && r.Report.IsTuned() }

// UnprovenNote returns the reason why a setting that new connections must confirm cannot be confirmed now; empty if there is none.
func (r Report) UnprovenNote() string {
	for _, s := range r.Select(standing.Unproven) {
		if s.Message != "" {
			return s.Message
		}
	}
	return ""
}

// ReportOf reads a node's report. With the name of a profile, it covers only the settings of that profile; with an empty name, all settings. ready
// is true if the agent's Pod on the node is Ready.
func ReportOf(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, ready bool, profile string) Report {
	return Report{
		Report: standing.Read(&clientNode.Spec, &clientNode.Status, profile),
		Silent: agentpod.SilentReason(node, clientNode, ready),
	}
}

// RestoresPending returns the keys that have been removed from a node's boot menu but stay effective until it boots, sorted. These are required
// keys that its StorageClientNode no longer contains, or all of them while it is being released.
func RestoresPending(clientNode *v1alpha1.StorageClientNode) []string {
	keys := slices.DeleteFunc(slices.Clone(clientNode.Status.RebootRequiredBy), func(key string) bool {
		return !clientNode.Spec.Release && slices.ContainsFunc(clientNode.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key })
	})
	slices.Sort(keys)
	return keys
}

// IsDisrupted reports whether the rollout disrupts a node, is about to, or has just returned it to service: its StorageClientNode is needed.
func IsDisrupted(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) bool {
	if _, isClaimed := node.Annotations[v1alpha1.DisruptionAnnotation]; isClaimed || clientNode.Spec.RebootPermit != nil {
		return true
	}
	rollout := clientNode.Status.Rollout
	return rollout != nil && !rollout.Phase.IsInService() && rollout.Phase != v1alpha1.RolloutFailed
}

// IsWritable reports whether a StorageClientNode may get a new generation now for a change that is no setting. The agent must have seen the
// previous generation and must be alive to see the new one. So a caller that waits for the agent to see the spec waits only briefly. Nodes that the
// rollout disrupts, and nodes that are being released, are not writable.
func IsWritable(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, ready bool) bool {
	return node.DeletionTimestamp.IsZero() && clientNode.DeletionTimestamp.IsZero() && !match.IsPaused(node) && !clientNode.Spec.Release &&
		agentpod.IsNodeReady(node) && agentpod.SilentReason(node, clientNode, ready) == "" &&
		clientNode.Status.ObservedGeneration >= clientNode.Generation &&
		!IsDisrupted(node, clientNode)
}

// PausedBy returns the names of the paused profiles that select a node or whose settings it has: no change may start there. The pause of a profile
// does not delay its deletion with policy Retain.
func (s *ProfileSet) PausedBy(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) []string {
	var paused []string
	for _, profile := range s.paused {
		if profile.Phase == match.Leaving && profile.Spec.DeletionPolicy == v1alpha1.DeletionRetain {
			continue
		}
		if CarriesSettingsOf(profile.Name, clientNode) || (profile.Phase == match.Active && profile.Selects(node)) {
			paused = append(paused, profile.Name)
		}
	}
	return paused
}

// FindTuned returns a Node's condition Tuned, or nil.
func FindTuned(node *corev1.Node) *corev1.NodeCondition {
	return agentpod.FindCondition(node, v1alpha1.TunedNodeCondition)
}

// FindStorageReachable returns a Node's condition StorageReachable, or nil.
func FindStorageReachable(node *corev1.Node) *corev1.NodeCondition {
	return agentpod.FindCondition(node, v1alpha1.StorageReachableNodeCondition)
}

// Owns reports whether a StorageClientNode belongs to the Node, and not to a former Node of the same name.
func Owns(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) bool {
	return slices.ContainsFunc(clientNode.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == node.UID })
}

// NodeOf returns a reference to the Node of a StorageClientNode, for an event.
func NodeOf(clientNode *v1alpha1.StorageClientNode) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: clientNode.Name}}
	for _, owner := range clientNode.OwnerReferences {
		if owner.Kind == "Node" {
			node.UID = owner.UID
		}
	}
	return node
}

// WithheldSettings returns the settings that require a reboot and that a node must not get, sorted. A permitted reboot did not make them effective,
// so they must leave the boot menu again while the node stays failed at this boot hash. The StorageClientNode still contains the desired hashes, so
// that the failure stays and no setting is tried twice. Settings that are already left out stay out, so no other record is needed.
func WithheldSettings(clientNode *v1alpha1.StorageClientNode, wanted nodesettings.Result) []string {
	if clientNode == nil || clientNode.Spec.Release || clientNode.Spec.BootHash != wanted.BootHash ||
		!standing.RebootedWithoutEffect(&clientNode.Spec, &clientNode.Status) {
		return nil
	}
	keys := lists.Filter(lists.Each(wanted.Settings, func(s v1alpha1.NodeSetting) string { return s.Key }), func(key string) bool {
		return nodesettings.TakesEffectAtBoot(key) && !isEffective(clientNode, key)
	})
	slices.Sort(keys)
	return keys
}

// isEffective reports whether a key is among the node's settings and its agent does not report that it has no effect.
func isEffective(clientNode *v1alpha1.StorageClientNode, key string) bool {
	named := slices.ContainsFunc(clientNode.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == key })
	return named && !slices.ContainsFunc(clientNode.Status.Settings, func(s v1alpha1.SettingStatus) bool {
		state := standing.Of(s, false)
		return s.Key == key && (state == standing.Failed || state.IsPending())
	})
}

// IsFailing reports whether a storage server does not respond to a node, or not to all of its requests.
func IsFailing(s v1alpha1.ServerStatus) bool {
	return s.State == v1alpha1.ServerSilent || s.State == v1alpha1.ServerStuck
}

// IsStale reports whether a storage server responds to a node but no longer knows the files of some of its mounts. A stale mount does not delay a
// drain, because it can be unmounted.
func IsStale(s v1alpha1.ServerStatus) bool { return s.Reason == v1alpha1.ServerReasonStaleHandles }

// ServerText describes a failing server: the start of the failure, the checks to make, and its users.
func ServerText(s v1alpha1.ServerStatus) string {
	entry := fmt.Sprintf("%s server %s", s.Protocol, s.Server)
	switch {
	case IsStale(s):
		entry += " returns stale file handles"
	case s.State == v1alpha1.ServerSilent:
		entry += " does not respond"
	default:
		entry += " has overdue requests"
	}
	if s.Since != nil {
		entry += " since " + s.Since.UTC().Format(time.RFC3339)
	}
	entry += text.Labelled(": ", s.Message)
	if users := usersText(s); users != "" {
		entry += " (" + users + ")"
	}
	return entry
}

func usersText(s v1alpha1.ServerStatus) string {
	var parts []string
	if len(s.Volumes) > 0 {
		parts = append(parts, text.Count(len(s.Volumes), "volume")+" "+text.List(s.Volumes))
	}
	if len(s.PodUIDs) > 0 {
		parts = append(parts, text.Count(len(s.PodUIDs), "pod"))
	}
	return strings.Join(parts, "; ")
}
