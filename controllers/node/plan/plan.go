// Package plan decides the next step for one node, whether the live gate admits the node now, and the content of its condition Tuned. It has no
// client and no clock.
package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

// Step is the next step for a node.
type Step interface {
	// String returns the kind of step.
	String() string
}

// Stay leaves the StorageClientNode and the label unchanged.
type Stay struct {
	// Note is the reason for which the node waits, empty if it does not wait.
	Note string
	// RequeueAfter is the time until the next check without an event; 0: never.
	RequeueAfter time.Duration
}

// None removes the last traces of the operator from the node, if there are any.
type None struct{}

// Write updates the spec of the StorageClientNode, or creates the object.
type Write struct {
	// Spec is the new spec; other controllers write its reboot permit, volumes and trial.
	Spec v1alpha1.StorageClientNodeSpec
	// Gated is true if the step changes settings on the host and must pass the live gate. Limited is true if only the profiles' limit applies, as
	// for a restore.
	Gated, Limited bool
	// Note is the reason for which the node waits, empty if it does not wait.
	Note string
}

// Remove deletes the StorageClientNode of a node that is restored, then label and condition.
type Remove struct{}

func (Stay) String() string   { return "Stay" }
func (None) String() string   { return "None" }
func (Write) String() string  { return "Write" }
func (Remove) String() string { return "Remove" }

const (
	noteRestoring = "Restoring"
	noteGate      = "New settings: "
	noteSilent    = "Waiting for the node's agent before restoring the node"
	noteRetained  = "Waiting for the agent to receive the list of settings to keep"
)

// Snapshot is the complete input of the plan for one node.
type Snapshot struct {
	Node       *corev1.Node
	ClientNode *v1alpha1.StorageClientNode // nil: none
	AgentReady bool                        // the agent's Pod on the node is Ready
	Paused     bool                        // the manager's namespace or the Node is paused
	Profiles   *fleet.ProfileSet
	Desired    fleet.Desired
	Report     fleet.Report // empty if ClientNode is nil
	// Unfenced is the reason why the node gets no agent; empty if it has one, or may get one.
	Unfenced string
	Limits   Limits
}

// Limits are the limits of live changes for all profiles.
type Limits struct {
	// MaxConcurrentLive is the maximum number of nodes in the cluster with a live change at a time: a number, or a percentage of all nodes.
	MaxConcurrentLive intstr.IntOrString
	// MinSoak is the minimum time for which a canary must stay healthy before other nodes follow.
	MinSoak time.Duration
	// UntunedTaint is the key of the taint that a node has until it is tuned for the first time: it has no workload yet.
	UntunedTaint string
}

// For returns the next step for a node.
func For(s Snapshot) Step {
	if s.ClientNode == nil && !s.Desired.Managed {
		return None{}
	}
	if s.Paused {
		return Stay{Note: "Paused"}
	}
	if paused := s.Profiles.PausedBy(s.Node, s.ClientNode); len(paused) > 0 {
		return Stay{Note: "Paused by StorageClientProfile " + text.List(paused)}
	}
	if !s.Desired.Managed {
		return s.planRelease()
	}
	return s.planSettings()
}

// HasRestore reports whether the node has a StorageClientNode of which some settings must be restored: no profile manages the node, or a
// profile whose settings it has is gone or is being deleted.
func (s Snapshot) HasRestore() bool {
	return s.ClientNode != nil && (!s.Desired.Managed || slices.ContainsFunc(fleet.SourcesOf(s.ClientNode), s.hasLeft))
}

func (s Snapshot) hasLeft(name string) bool {
	profile := s.Profiles.ByName(name)
	return profile == nil || profile.Phase == match.Leaving
}

// withoutNews returns the current settings without settings of profiles that are gone or are being deleted. Such a setting stays if another profile
// declares the same value.
func (s Snapshot) withoutNews() []v1alpha1.NodeSetting {
	return lists.Pick(s.ClientNode.Spec.Settings, func(current v1alpha1.NodeSetting) (v1alpha1.NodeSetting, bool) {
		if !s.hasLeft(current.Profile) {
			return current, true
		}
		at := slices.IndexFunc(s.Desired.Settings, func(wanted v1alpha1.NodeSetting) bool {
			return wanted.Key == current.Key && wanted.Value == current.Value
		})
		if at < 0 {
			return current, false
		}
		return s.Desired.Settings[at], true
	})
}

func (s Snapshot) planSettings() Step {
	spec := v1alpha1.StorageClientNodeSpec{Settings: s.Desired.Settings, Hash: s.Desired.Hash, BootHash: s.Desired.BootHash}
	if s.ClientNode == nil {
		return Write{Spec: spec, Gated: spec.Hash != ""}
	}
	isLeaving := !s.Node.DeletionTimestamp.IsZero()
	if isLeaving {
		spec.Settings = s.withoutNews()
		spec.Hash, spec.BootHash = nodesettings.Hashes(spec.Settings)
	}
	if withheld := fleet.WithheldSettings(s.ClientNode, s.Desired.Result); len(withheld) > 0 {
		return s.planWithheld(spec, withheld)
	}
	if sameSpec(s.ClientNode.Spec, spec) {
		return Stay{}
	}
	dropped := s.droppedSettings(spec.Settings)
	if retained, changed := s.withCurrentPolicies(dropped); changed {
		return Write{Spec: retained, Note: noteRetained}
	}
	if s.isUnobserved() && slices.ContainsFunc(dropped, func(s v1alpha1.NodeSetting) bool { return s.OnRemoval == v1alpha1.DeletionRetain }) {
		return Stay{Note: noteRetained}
	}
	changes := s.ClientNode.Spec.Hash != spec.Hash || s.ClientNode.Spec.Release
	return Write{Spec: spec, Gated: changes && !isLeaving, Limited: changes && isLeaving && s.Report.Silent == ""}
}

// planWithheld removes settings that a reboot did not make effective. They are restored regardless of the profile's removal policy, because they
// were never effective: the agent must have that policy before they are removed.
func (s Snapshot) planWithheld(spec v1alpha1.StorageClientNodeSpec, keys []string) Step {
	isWithheld := func(s v1alpha1.NodeSetting) bool { return slices.Contains(keys, s.Key) }
	spec.Settings = slices.DeleteFunc(slices.Clone(spec.Settings), isWithheld)
	if sameSpec(s.ClientNode.Spec, spec) {
		return Stay{}
	}
	first := *s.ClientNode.Spec.DeepCopy()
	changed := false
	for i := range first.Settings {
		if isWithheld(first.Settings[i]) && first.Settings[i].OnRemoval != v1alpha1.DeletionRestore {
			first.Settings[i].OnRemoval = v1alpha1.DeletionRestore
			changed = true
		}
	}
	note := "Removing settings that had no effect after a reboot: " + text.List(keys)
	switch {
	case changed:
		return Write{Spec: first, Note: note}
	case s.isUnobserved():
		return Stay{Note: note}
	}
	return Write{Spec: spec, Note: note}
}

// planRelease plans the release of a node that no profile selects any longer. The agent restores the settings that are not retained, a reboot that
// a profile requests removes kernel arguments, and then the StorageClientNode is deleted. A Node that is being deleted does not wait for that reboot.
func (s Snapshot) planRelease() Step {
	spec, changed := s.withCurrentPolicies(s.ClientNode.Spec.Settings)
	spec.Release = true
	isLeaving := !s.Node.DeletionTimestamp.IsZero()
	switch {
	case !s.ClientNode.Spec.Release:
		changesHost := slices.ContainsFunc(spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.OnRemoval != v1alpha1.DeletionRetain })
		return Write{Spec: spec, Limited: s.Report.Silent == "" && changesHost}
	case changed:
		return Write{Spec: spec}
	case s.Report.Silent != "" && isLeaving:
		return Stay{Note: noteSilent + "; the Node is being deleted: if its machine is gone, remove its finalizers"}
	case s.Report.Silent != "":
		return Stay{Note: noteSilent}
	case !s.ClientNode.Status.Restored || s.isUnobserved():
		return Stay{Note: noteRestoring}
	case fleet.IsDisrupted(s.Node, s.ClientNode):
		return Stay{Note: "Waiting for the rollout to release the node"}
	case s.ClientNode.Status.RebootRequired && s.wantsRestoreReboot() && !isLeaving:
		return Stay{Note: "Waiting for the reboot that restoreReboot requires"}
	}
	return Remove{}
}

func (s Snapshot) isUnobserved() bool {
	return s.ClientNode.Status.ObservedGeneration < s.ClientNode.Generation
}

func (s Snapshot) droppedSettings(settings []v1alpha1.NodeSetting) []v1alpha1.NodeSetting {
	return slices.DeleteFunc(slices.Clone(s.ClientNode.Spec.Settings), func(old v1alpha1.NodeSetting) bool {
		return slices.ContainsFunc(settings, func(s v1alpha1.NodeSetting) bool { return s.Key == old.Key })
	})
}

// withCurrentPolicies returns the current spec with onRemoval of the given settings updated from their profiles, and whether that is a change. The
// agent must have the policy before a setting is removed, because it is not available afterwards.
func (s Snapshot) withCurrentPolicies(going []v1alpha1.NodeSetting) (v1alpha1.StorageClientNodeSpec, bool) {
	spec := *s.ClientNode.Spec.DeepCopy()
	changed := false
	for i := range spec.Settings {
		setting := &spec.Settings[i]
		profile := s.Profiles.ByName(setting.Profile)
		if profile == nil || profile.Phase == match.Held ||
			!slices.ContainsFunc(going, func(s v1alpha1.NodeSetting) bool { return s.Key == setting.Key }) {
			continue
		}
		if policy := profile.Spec.WithDefaults().DeletionPolicy; policy != setting.OnRemoval {
			setting.OnRemoval = policy
			changed = true
		}
	}
	return spec, changed
}

func (s Snapshot) wantsRestoreReboot() bool {
	return slices.ContainsFunc(s.Profiles.Carried(s.ClientNode), func(p *fleet.Profile) bool { return p.Spec.Rollout.Reboot.RestoreReboot })
}

// Into sets the fields that this package writes. All other fields have another writer.
func (w Write) Into(spec *v1alpha1.StorageClientNodeSpec) {
	spec.Settings, spec.Hash, spec.BootHash, spec.Release, spec.Canary = w.Spec.Settings, w.Spec.Hash, w.Spec.BootHash, w.Spec.Release, w.Spec.Canary
}

// sameSpec reports whether a write would change nothing. Canary is written once, together with the settings.
func sameSpec(current, next v1alpha1.StorageClientNodeSpec) bool {
	written := current
	next.Canary = current.Canary
	Write{Spec: next}.Into(&written)
	return equality.Semantic.DeepEqual(current, written)
}
