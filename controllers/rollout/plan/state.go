package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// nodeState is a node with what follows from its objects. What this pass changes, it changes here too.
type nodeState struct {
	*Node
	claim *v1alpha1.Disruption
	// permit is the permit that stands; nil once this pass has cleared it.
	permit *v1alpha1.RebootPermit
	// note is status.rollout, zero if there is none.
	note v1alpha1.RolloutStatus
	// target names what attempts and a failure speak of: the boot hash, or its removal.
	target string
	need   need
	// zone is the node's, empty if it has none.
	zone string
	// forgiven are the profiles whose budgets the node does not use up, since it has been unavailable for so long.
	forgiven []string
	// maintenanceShown is what our conditions say, maintenance what they are to say after this pass.
	maintenanceShown, maintenance Maintenance
}

// need is whether and for whom a node has to reboot.
type need struct {
	kind needKind
	// profiles are those that need it, the one that leads first.
	profiles []string
	// names are the same profiles, sorted, so that what is said of several does not flap.
	names []string
	// removalsOnly is true where only removals wait for a boot that nobody asks for.
	removalsOnly bool
	// uncovered wait for a boot that no boot hash, and so no approval and no count of attempts, speaks of.
	uncovered []string
}

type needKind int

const (
	needNone needKind = iota
	needUnknown
	needReboot
)

// releaseTarget is what a node's attempts speak of while it is being released.
const releaseTarget = "release-"

func (p *planner) stateOf(node *Node) *nodeState {
	v := &nodeState{Node: node, zone: node.Labels[corev1.LabelTopologyZone], maintenanceShown: node.Maintenance}
	if claim, found := p.Claims[node.Name]; found {
		v.claim = &claim
	}
	if node.ClientNode != nil {
		v.permit = node.ClientNode.Spec.RebootPermit
		v.target = node.ClientNode.Spec.BootHash
		if node.ClientNode.Spec.Release {
			v.target = releaseTarget + v.target
		}
		if node.ClientNode.Status.Rollout != nil {
			v.note = *node.ClientNode.Status.Rollout
		}
	}
	v.need = p.needOf(v)
	return v
}

// rolloutTurn is what the node's place in the order hangs on.
func (v *nodeState) rolloutTurn() Turn {
	return Turn{Name: v.Name, Created: v.Created, Labels: v.Labels, Zone: v.zone, Manager: v.Manager}
}

// isDisrupted reports whether the node is disrupted by us, or may be at any moment.
func (v *nodeState) isDisrupted() bool {
	return v.claim != nil || v.Mark != nil || (v.permit != nil && !v.hasBooted())
}

// hasBooted reports whether the permit's boot is over.
func (v *nodeState) hasBooted() bool {
	return v.permit != nil && v.BootID != "" && v.BootID != v.permit.BootID
}

// isCordonedByUs reports whether the node is cordoned by us.
func (v *nodeState) isCordonedByUs() bool {
	return v.Mark != nil && v.Unschedulable
}

// hasFailed reports whether the node has failed at its present boot hash.
func (v *nodeState) hasFailed() bool {
	return v.ClientNode != nil && v.note.Phase == v1alpha1.RolloutFailed && v.note.BootHash == v.target
}

// attemptsGiven is how many permits have been given for the present boot hash.
func (v *nodeState) attemptsGiven() int32 {
	if v.note.BootHash != v.target {
		return 0
	}
	return v.note.Attempts
}

// hasReportedSinceBoot reports whether the agent has spoken since the node's last boot.
func (v *nodeState) hasReportedSinceBoot() bool {
	return v.ClientNode != nil && v.ClientNode.Status.BootID != "" && v.ClientNode.Status.BootID == v.BootID
}

// hasSeenSpec reports whether the agent has seen the spec as it stands.
func (v *nodeState) hasSeenSpec() bool {
	return v.hasReportedSinceBoot() && v.ClientNode.Status.ObservedGeneration >= v.ClientNode.Generation
}

// hasReportedSettings reports whether the agent speaks of the settings that it is to have, or of their removal.
func (v *nodeState) hasReportedSettings() bool {
	if v.ClientNode != nil && v.ClientNode.Spec.Release {
		return v.hasSeenSpec() && v.ClientNode.Status.Restored
	}
	return v.hasReportedSinceBoot() && v.ClientNode.Status.Hash == v.ClientNode.Spec.Hash
}

// isChanging reports whether the boot settings are about to change.
func (v *nodeState) isChanging() bool {
	return v.ClientNode != nil && !v.ClientNode.Spec.Release && v.ClientNode.Spec.BootHash != v.ClientNode.WantedBootHash
}

// isPermitOutdated reports whether the permit was given for something that is no longer asked for.
func (v *nodeState) isPermitOutdated() bool {
	return v.permit.BootHash != v.ClientNode.Spec.BootHash || v.note.BootHash != v.target
}

// permitAnswer is what the agent says about the permit, empty if nothing.
func (v *nodeState) permitAnswer() v1alpha1.RebootStatus {
	if v.ClientNode.Status.Reboot == nil || v.ClientNode.Status.Reboot.PermitID != v.permit.ID {
		return v1alpha1.RebootStatus{}
	}
	return *v.ClientNode.Status.Reboot
}

// unmetSettings sorts the keys that are not as declared into those that will not become so by themselves and others.
func (v *nodeState) unmetSettings() (bad, waiting []string) {
	states := make(map[string]v1alpha1.SettingStatus, len(v.ClientNode.Status.Settings))
	for _, s := range v.ClientNode.Status.Settings {
		states[s.Key] = s
	}
	for _, s := range v.ClientNode.Spec.Settings {
		switch status := states[s.Key]; status.State {
		case v1alpha1.SettingInSync, v1alpha1.SettingClamped, v1alpha1.SettingUnsupported:
		case v1alpha1.SettingFailed:
			bad = append(bad, s.Key)
		case v1alpha1.SettingPending:
			if status.TakesEffect != v1alpha1.EffectNextMount && status.TakesEffect != v1alpha1.EffectNewTransport {
				waiting = append(waiting, s.Key)
			}
		default:
			waiting = append(waiting, s.Key)
		}
	}
	return bad, waiting
}

// isReadBack reports whether every value has been read back, exceptions aside.
func (v *nodeState) isReadBack() bool {
	bad, waiting := v.unmetSettings()
	return len(bad)+len(waiting) == 0
}

// isTuned reports whether the node carries what the profiles ask for, and nothing waits for a boot.
func (v *nodeState) isTuned() bool {
	return v.hasReportedSettings() && !v.ClientNode.Spec.Release && !v.ClientNode.Status.RebootRequired && !v.isChanging() && v.isReadBack() && len(v.ClientNode.Withheld) == 0
}

// isHealthy reports whether the node is as it has to be after its boot.
func (v *nodeState) isHealthy() bool {
	return v.Ready && v.hasSeenSpec() && v.need.kind == needNone && len(v.ClientNode.Withheld) == 0 && (v.ClientNode.Spec.Release || v.isReadBack())
}

// hasRecovered reports whether a failed node is as declared after all. Where a reboot had no effect and something else is
// wanted by now, the settings on the object may lack what was taken out of them: their successors decide.
func (v *nodeState) hasRecovered() bool {
	return v.isHealthy() && !(v.note.Reason == v1alpha1.RolloutReasonRebootWithoutEffect && v.isChanging())
}

// whyUnavailable says why the node is out of service through no doing of ours, empty if it is not.
func (v *nodeState) whyUnavailable() string {
	switch {
	case v.Deleting:
		return v1alpha1.RolloutReasonNodeDeleting
	case v.Unschedulable && v.Mark == nil:
		return v1alpha1.RolloutReasonCordonedByOthers
	case !v.Ready:
		return v1alpha1.RolloutReasonNodeUnavailable
	}
	return ""
}

// needOf tells whether a node has to reboot, and which profiles want it to. Keys that the object holds are due; others,
// and all of them while the node is released, are removals, which only a profile with restoreReboot reboots for.
func (p *planner) needOf(v *nodeState) need {
	switch {
	case v.ClientNode == nil:
		return need{kind: needNone}
	case !v.hasReportedSettings():
		holder := v.claimingProfile()
		return need{kind: needUnknown, profiles: holder, names: holder}
	case !v.ClientNode.Status.RebootRequired:
		return need{kind: needNone}
	}
	sources := make(map[string]string, len(v.ClientNode.Spec.Settings))
	for _, s := range v.ClientNode.Spec.Settings {
		sources[s.Key] = s.Profile
	}
	var profiles, uncovered []string
	if v.ClientNode.Spec.Release || len(v.ClientNode.Status.RebootRequiredBy) == 0 {
		profiles = p.allSources(v)
	} else {
		for _, key := range v.ClientNode.Status.RebootRequiredBy {
			if source, due := sources[key]; due && !nodesettings.TakesEffectAtBoot(key) {
				uncovered = append(uncovered, key)
			} else if due {
				profiles = append(profiles, source)
			} else {
				profiles = append(profiles, p.restoringProfiles(v, key)...)
			}
		}
	}
	if len(profiles) == 0 {
		return need{kind: needNone, removalsOnly: true, uncovered: uncovered}
	}
	profiles = p.rankProfiles(profiles)
	names := profiles
	if !slices.IsSorted(profiles) {
		names = slices.Sorted(slices.Values(profiles))
	}
	return need{kind: needReboot, profiles: profiles, names: names}
}

// claimingProfile is the profile that the node is held for, while nobody can tell which need it.
func (v *nodeState) claimingProfile() []string {
	switch {
	case v.claim != nil && v.claim.Profile != "":
		return []string{v.claim.Profile}
	case v.Mark != nil && v.Mark.Profile != "":
		return []string{v.Mark.Profile}
	}
	return nil
}

// allSources is all sources of the node's settings; of a released node, those that ask for the reboot.
func (p *planner) allSources(v *nodeState) []string {
	var out []string
	for _, s := range v.ClientNode.Spec.Settings {
		if !v.ClientNode.Spec.Release || p.rebootsToRestore(s.Profile) {
			out = append(out, s.Profile)
		}
	}
	return out
}

// restoringProfiles are the profiles that ask for a reboot to be rid of a key: of those that declare it, or of all of the
// node's where nobody does any more. One that is being deleted asks for every key: it waits for them.
func (p *planner) restoringProfiles(v *nodeState, key string) []string {
	declared := slices.ContainsFunc(v.Profiles, func(name string) bool {
		return p.profiles[name] != nil && p.profiles[name].BootKeys.Has(key)
	})
	var out []string
	for _, name := range v.Profiles {
		if p.rebootsToRestore(name) && (!declared || p.profiles[name].Deleting || p.profiles[name].BootKeys.Has(key)) {
			out = append(out, name)
		}
	}
	return out
}

func (p *planner) rebootsToRestore(name string) bool {
	profile := p.profiles[name]
	return profile != nil && profile.Rollout.Reboot.RestoreReboot
}

// rankProfiles sorts profiles so that the first gives the drain its options: the highest priority, on a tie the longer
// timeout. Those that do not exist come last.
func (p *planner) rankProfiles(names []string) []string {
	slices.SortFunc(names, func(a, b string) int {
		x, y := p.profiles[a], p.profiles[b]
		if x == nil || y == nil {
			return cmp.Or(compareBool(x == nil, y == nil), cmp.Compare(a, b))
		}
		return cmp.Or(
			cmp.Compare(y.Priority, x.Priority),
			cmp.Compare(toDuration(y.Rollout.Drain.TimeoutSeconds), toDuration(x.Rollout.Drain.TimeoutSeconds)),
			cmp.Compare(a, b),
		)
	})
	return slices.Compact(names)
}

// rulesFor is the rollout's rules for a node: of the profile that leads those that need the reboot, else of the one that it
// is held for, else the defaults.
func (p *planner) rulesFor(v *nodeState) v1alpha1.Rollout {
	for _, name := range slices.Concat(v.need.profiles, v.claimingProfile()) {
		if profile := p.profiles[name]; profile != nil {
			return profile.Rollout
		}
	}
	return (&v1alpha1.StorageClientProfileSpec{}).WithDefaults().Rollout
}

// disruptedSince is when the node was cordoned, or claimed where nobody can tell.
func (v *nodeState) disruptedSince() time.Time {
	switch {
	case v.Mark != nil && !v.Mark.Since.IsZero():
		return v.Mark.Since.Time
	case v.claim != nil:
		return v.claim.Since.Time
	}
	return time.Time{}
}

// noteSince is when the phase that is on record began.
func (v *nodeState) noteSince() time.Time {
	if v.note.Since == nil {
		return time.Time{}
	}
	return v.note.Since.Time
}
