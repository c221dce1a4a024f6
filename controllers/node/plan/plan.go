// Package plan decides what one node is due next, whether the live gate lets it go now, and what its condition Tuned says.
// It has no client and no clock.
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
	"github.com/storageclient/operator/tuning/text"
)

// Step is what a node is due next.
type Step interface {
	// String names the kind of step.
	String() string
}

// Stay leaves client node and label as they are.
type Stay struct {
	// Note says what the node waits for. Empty: nothing.
	Note string
	// RequeueAfter is when to ask again without an event; 0: not.
	RequeueAfter time.Duration
}

// None has nothing of ours on the node, or takes the last of it away.
type None struct{}

// Write gives the client node a new spec, and creates it where there is none.
type Write struct {
	// Spec is what the client node is to hold; its reboot permit, its volumes and its trial are not ours to write.
	Spec v1alpha1.StorageClientNodeSpec
	// Gated is set where the step changes settings on the host and has to pass the live gate; Limited where it
	// only has to keep to the profiles' limit, as a restore does.
	Gated, Limited bool
	// Note says what the node waits for. Empty: nothing.
	Note string
}

// Remove deletes the client node of a node that is restored, then label and condition.
type Remove struct{}

func (Stay) String() string   { return "Stay" }
func (None) String() string   { return "None" }
func (Write) String() string  { return "Write" }
func (Remove) String() string { return "Remove" }

const (
	noteRestoring = "Restoring"
	noteGate      = "New settings: "
	noteRetained  = "Waiting for the agent to learn which settings to keep"
)

// Snapshot is all that the plan of one node rests on.
type Snapshot struct {
	Node       *corev1.Node
	ClientNode *v1alpha1.StorageClientNode // nil: none
	AgentReady bool                        // the agent's Pod on the node is Ready
	Paused     bool                        // the manager's namespace or the Node is
	Profiles   *fleet.ProfileSet
	Wanted     fleet.Wanted
	Report     fleet.Report // empty where ClientNode is nil
	// Unfenced says why the node gets no agent; empty: it has one, or may get one.
	Unfenced string
	Limits   Limits
}

// Limits are what live changes keep to whatever a profile says.
type Limits struct {
	// MaxConcurrentLive is how many nodes of the cluster take a live change at a time: a number, or a percentage of all nodes.
	MaxConcurrentLive intstr.IntOrString
	// MinSoak is the least time for which a canary stays well before others follow.
	MinSoak time.Duration
	// UntunedTaint is the key of the taint that a node bears until it is tuned first: no work has come to it.
	UntunedTaint string
}

// For says what a node is due next.
func For(s Snapshot) Step {
	if s.ClientNode == nil && !s.Wanted.Managed {
		return None{}
	}
	if s.Paused {
		return Stay{Note: "Paused"}
	}
	if paused := s.Profiles.PausedBy(s.Node, s.ClientNode); len(paused) > 0 {
		return Stay{Note: "Paused by profile " + text.List(paused)}
	}
	if !s.Wanted.Managed {
		return s.planRelease()
	}
	return s.planSettings()
}

func (s Snapshot) planSettings() Step {
	spec := v1alpha1.StorageClientNodeSpec{Settings: s.Wanted.Settings, Hash: s.Wanted.Hash, BootHash: s.Wanted.BootHash}
	if s.ClientNode == nil {
		return Write{Spec: spec, Gated: spec.Hash != ""}
	}
	if withheld := fleet.WithheldSettings(s.ClientNode, s.Wanted.Result); len(withheld) > 0 {
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
	return Write{Spec: spec, Gated: s.ClientNode.Spec.Hash != spec.Hash || s.ClientNode.Spec.Release}
}

// planWithheld takes boot settings back that a reboot did not bring. They are restored whatever their profile says of
// removal, since they never were in force: the agent has to know that before they go.
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
	note := "Removing boot settings that had no effect: " + text.List(keys)
	switch {
	case changed:
		return Write{Spec: first, Note: note}
	case s.isUnobserved():
		return Stay{Note: note}
	}
	return Write{Spec: spec, Note: note}
}

// planRelease leads a node that no profile wants any more to the end: the agent restores what is not to be retained,
// a reboot that a profile asks for rids the node of boot arguments, and then the client node goes.
func (s Snapshot) planRelease() Step {
	spec, changed := s.withCurrentPolicies(s.ClientNode.Spec.Settings)
	spec.Release = true
	switch {
	case !s.ClientNode.Spec.Release:
		changesHost := slices.ContainsFunc(spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.OnRemoval != v1alpha1.DeletionRetain })
		return Write{Spec: spec, Limited: s.Report.Silent == "" && changesHost}
	case changed:
		return Write{Spec: spec}
	case s.Report.Silent != "":
		return Stay{Note: "Waiting for the node to return before restoring it"}
	case !s.ClientNode.Status.Restored || s.isUnobserved():
		return Stay{Note: noteRestoring}
	case fleet.IsDisrupted(s.Node, s.ClientNode):
		return Stay{Note: "Waiting for the rollout to release the node"}
	case s.ClientNode.Status.RebootRequired && s.wantsRestoreReboot():
		return Stay{Note: "Waiting for the reboot that restoreReboot requires"}
	}
	return Remove{}
}

// isUnobserved reports whether the agent has yet to see the spec as it stands.
func (s Snapshot) isUnobserved() bool {
	return s.ClientNode.Status.ObservedGeneration < s.ClientNode.Generation
}

// droppedSettings are the settings in force that a new list no longer holds.
func (s Snapshot) droppedSettings(settings []v1alpha1.NodeSetting) []v1alpha1.NodeSetting {
	var dropped []v1alpha1.NodeSetting
	for _, old := range s.ClientNode.Spec.Settings {
		if !slices.ContainsFunc(settings, func(s v1alpha1.NodeSetting) bool { return s.Key == old.Key }) {
			dropped = append(dropped, old)
		}
	}
	return dropped
}

// withCurrentPolicies is the spec in force in which the given settings carry onRemoval as their profiles have it now, and
// whether that differs. The agent has to know before a setting goes: afterwards there is nobody to ask.
func (s Snapshot) withCurrentPolicies(going []v1alpha1.NodeSetting) (v1alpha1.StorageClientNodeSpec, bool) {
	spec := *s.ClientNode.Spec.DeepCopy()
	changed := false
	for i := range spec.Settings {
		setting := &spec.Settings[i]
		profile := s.Profiles.ByName(setting.Profile)
		if profile == nil || profile.Standing == match.Held ||
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
	for _, source := range fleet.SourcesOf(s.ClientNode) {
		if profile := s.Profiles.ByName(source); profile != nil && profile.Spec.Rollout.Reboot.RestoreReboot {
			return true
		}
	}
	return false
}

// sameSpec compares what this package writes, and only that.
func sameSpec(a, b v1alpha1.StorageClientNodeSpec) bool {
	a.RebootPermit, b.RebootPermit = nil, nil
	// Whether it was the canary of these settings is said once, with them.
	a.Canary, b.Canary = false, false
	a.Volumes, b.Volumes = nil, nil
	a.Trial, b.Trial = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}
