package node

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/text"
)

// step is what a node is due next.
type step string

const (
	// stepStay leaves object and label as they are.
	stepStay step = "Stay"
	// stepNone has nothing of ours on the node, or takes the last of it away.
	stepNone step = "None"
	// stepWrite gives the object a new spec, and creates it where there is none.
	stepWrite step = "Write"
	// stepRemove deletes the object of a node that is restored, then label and condition.
	stepRemove step = "Remove"
)

// input is what is known of a node when it is looked at.
type input struct {
	node   *corev1.Node
	scn    *v1alpha1.StorageClientNode // nil: none
	ready  bool                        // the agent's Pod on the node is Ready
	paused bool                        // the manager's namespace or the Node is
	view   *fleet.View
	wanted fleet.Wanted
	report fleet.Report // empty where scn is nil
}

// decision is the next step of a node, and why.
type decision struct {
	step step
	// spec is what the object is to hold after stepWrite; its reboot permit and its volumes are not ours to write.
	spec v1alpha1.StorageClientNodeSpec
	// gated is set where the step changes settings on the host and has to pass the live gate; limited where it
	// only has to keep to the profiles' limit, as a release does.
	gated, limited bool
	// note says what the node waits for. Empty: nothing.
	note string
	// after is when to look again without an event; 0: not.
	after time.Duration
}

// decide says what a node is due next. Nothing but its input goes into it.
func decide(in input) decision {
	if in.scn == nil && !in.wanted.Managed {
		return decision{step: stepNone}
	}
	if in.paused {
		return decision{step: stepStay, note: "paused"}
	}
	if paused := in.view.PausedBy(in.node, in.scn); len(paused) > 0 {
		return decision{step: stepStay, note: "paused by profile " + text.List(paused)}
	}
	if !in.wanted.Managed {
		return in.decideRelease()
	}
	return in.decideSettings()
}

func (in input) decideSettings() decision {
	spec := v1alpha1.StorageClientNodeSpec{Settings: in.wanted.Settings, Hash: in.wanted.Hash, BootHash: in.wanted.BootHash}
	if in.scn == nil {
		return decision{step: stepWrite, spec: spec, gated: spec.Hash != ""}
	}
	if withheld := fleet.Withheld(in.scn, in.wanted.Result); len(withheld) > 0 {
		return in.decideWithheld(spec, withheld)
	}
	if sameSpec(in.scn.Spec, spec) {
		return decision{step: stepStay}
	}
	dropped := in.dropped(spec.Settings)
	if retained, changed := in.withPolicies(dropped); changed {
		return decision{step: stepWrite, spec: retained, note: "waits until the agent knows which settings are to be retained"}
	}
	if in.unobserved() && slices.ContainsFunc(dropped, func(s v1alpha1.NodeSetting) bool { return s.OnRemoval == v1alpha1.DeletionRetain }) {
		return decision{step: stepStay, note: "waits until the agent knows which settings are to be retained"}
	}
	return decision{step: stepWrite, spec: spec, gated: in.scn.Spec.Hash != spec.Hash || in.scn.Spec.Release}
}

// decideWithheld takes boot settings back that a reboot did not bring. They are restored whatever their profile says of
// removal, since they never were in force: the agent has to know that before they go.
func (in input) decideWithheld(spec v1alpha1.StorageClientNodeSpec, keys []string) decision {
	held := func(s v1alpha1.NodeSetting) bool { return slices.Contains(keys, s.Key) }
	spec.Settings = slices.DeleteFunc(slices.Clone(spec.Settings), held)
	if sameSpec(in.scn.Spec, spec) {
		return decision{step: stepStay}
	}
	first := *in.scn.Spec.DeepCopy()
	changed := false
	for i := range first.Settings {
		if held(first.Settings[i]) && first.Settings[i].OnRemoval != v1alpha1.DeletionRestore {
			first.Settings[i].OnRemoval = v1alpha1.DeletionRestore
			changed = true
		}
	}
	note := "takes boot settings out again that had no effect: " + text.List(keys)
	switch {
	case changed:
		return decision{step: stepWrite, spec: first, note: note}
	case in.unobserved():
		return decision{step: stepStay, note: note}
	}
	return decision{step: stepWrite, spec: spec, note: note}
}

// decideRelease leads a node that no profile wants any more to the end: the agent restores what is not to be retained,
// a reboot that a profile asks for rids the node of boot arguments, and then the object goes.
func (in input) decideRelease() decision {
	spec, changed := in.withPolicies(in.scn.Spec.Settings)
	spec.Release = true
	switch {
	case !in.scn.Spec.Release:
		return decision{step: stepWrite, spec: spec, limited: in.report.Silent == "" && restores(spec)}
	case changed:
		return decision{step: stepWrite, spec: spec}
	case in.report.Silent != "":
		return decision{step: stepStay, note: "is restored when it returns"}
	case !in.scn.Status.Restored || in.unobserved():
		return decision{step: stepStay, note: "is being restored"}
	case fleet.Disrupted(in.node, in.scn):
		return decision{step: stepStay, note: "is held by the rollout"}
	case in.scn.Status.RebootRequired && in.restoreReboot():
		return decision{step: stepStay, note: "waits for the reboot that restoreReboot asks for"}
	}
	return decision{step: stepRemove}
}

// restores reports whether a release changes anything on the host.
func restores(spec v1alpha1.StorageClientNodeSpec) bool {
	return slices.ContainsFunc(spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.OnRemoval != v1alpha1.DeletionRetain })
}

// unobserved reports whether the agent has yet to see the spec as it stands.
func (in input) unobserved() bool { return in.scn.Status.ObservedGeneration < in.scn.Generation }

// dropped are the settings in force that a new list no longer holds.
func (in input) dropped(settings []v1alpha1.NodeSetting) []v1alpha1.NodeSetting {
	var dropped []v1alpha1.NodeSetting
	for _, old := range in.scn.Spec.Settings {
		if !slices.ContainsFunc(settings, func(s v1alpha1.NodeSetting) bool { return s.Key == old.Key }) {
			dropped = append(dropped, old)
		}
	}
	return dropped
}

// withPolicies is the spec in force in which the given settings carry onRemoval as their profiles have it now, and
// whether that differs. The agent has to know before a setting goes: afterwards there is nobody to ask.
func (in input) withPolicies(going []v1alpha1.NodeSetting) (v1alpha1.StorageClientNodeSpec, bool) {
	spec := *in.scn.Spec.DeepCopy()
	changed := false
	for i := range spec.Settings {
		setting := &spec.Settings[i]
		profile := in.view.Profile(setting.Profile)
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

func (in input) restoreReboot() bool {
	for _, source := range fleet.Sources(in.scn) {
		if profile := in.view.Profile(source); profile != nil && profile.Spec.Rollout.Reboot.RestoreReboot {
			return true
		}
	}
	return false
}

// sameSpec compares what this package writes, and only that.
func sameSpec(a, b v1alpha1.StorageClientNodeSpec) bool {
	a.RebootPermit, b.RebootPermit = nil, nil
	a.Volumes, b.Volumes = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

// waiting turns a decision into staying until the gate opens.
func (d decision) waiting(note string, after time.Duration) decision {
	return decision{step: stepStay, note: fmt.Sprintf("new settings: %s", note), after: after}
}
