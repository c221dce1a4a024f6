package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// view is a node with what follows from its objects. What this pass changes, it changes here too.
type view struct {
	*Node
	claim *v1alpha1.Disruption
	// permit is the permit that stands; nil once this pass has cleared it.
	permit *v1alpha1.RebootPermit
	// record is status.rollout, zero if there is none.
	record v1alpha1.RolloutStatus
	// target names what attempts and a failure speak of: the boot hash, or its removal.
	target string
	need   need
	// zone is the node's, empty if it has none.
	zone string
	// forgiven are the profiles whose budgets the node does not use up, since it has been unavailable for so long.
	forgiven []string
	// shown is what our conditions say, maintenance what they are to say after this pass.
	shown, maintenance Maintenance
}

// need is whether and for whom a node has to reboot.
type need struct {
	kind needKind
	// profiles are those that need it, the one that leads first.
	profiles []string
	// names are the same profiles, sorted, so that what is said of several does not flap.
	names []string
	// later is true where only removals wait for a boot that nobody asks for.
	later bool
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

func (p *planner) look(n *Node) *view {
	v := &view{Node: n, zone: n.Labels[corev1.LabelTopologyZone], shown: n.Maintenance}
	if claim, found := p.Claims[n.Name]; found {
		v.claim = &claim
	}
	if n.Client != nil {
		v.permit = n.Client.Spec.RebootPermit
		v.target = n.Client.Spec.BootHash
		if n.Client.Spec.Release {
			v.target = releaseTarget + v.target
		}
		if n.Client.Status.Rollout != nil {
			v.record = *n.Client.Status.Rollout
		}
	}
	v.need = p.needOf(v)
	return v
}

// turn is what the node's place in the order hangs on.
func (v *view) turn() Turn {
	return Turn{Name: v.Name, Created: v.Created, Labels: v.Labels, Zone: v.zone, Manager: v.Manager}
}

// held reports whether the node is disrupted by us, or may be at any moment.
func (v *view) held() bool {
	return v.claim != nil || v.Mark != nil || (v.permit != nil && !v.booted())
}

// booted reports whether the permit's boot is over.
func (v *view) booted() bool {
	return v.permit != nil && v.BootID != "" && v.BootID != v.permit.BootID
}

// ours reports whether the node is cordoned by us.
func (v *view) ours() bool {
	return v.Mark != nil && v.Unschedulable
}

// failed reports whether the node has failed at its present boot hash.
func (v *view) failed() bool {
	return v.Client != nil && v.record.Phase == v1alpha1.RolloutFailed && v.record.BootHash == v.target
}

// attempts is how many permits have been given for the present boot hash.
func (v *view) attempts() int32 {
	if v.record.BootHash != v.target {
		return 0
	}
	return v.record.Attempts
}

// believable reports whether the agent has spoken since the node's last boot.
func (v *view) believable() bool {
	return v.Client != nil && v.Client.Status.BootID != "" && v.Client.Status.BootID == v.BootID
}

// acknowledged reports whether the agent has seen the spec as it stands.
func (v *view) acknowledged() bool {
	return v.believable() && v.Client.Status.ObservedGeneration >= v.Client.Generation
}

// reported reports whether the agent speaks of the settings that it is to have, or of their removal.
func (v *view) reported() bool {
	if v.Client != nil && v.Client.Spec.Release {
		return v.acknowledged() && v.Client.Status.Restored
	}
	return v.believable() && v.Client.Status.Hash == v.Client.Spec.Hash
}

// stale reports whether the boot settings are about to change.
func (v *view) stale() bool {
	return v.Client != nil && !v.Client.Spec.Release && v.Client.Spec.BootHash != v.Client.WantedBootHash
}

// superseded reports whether the permit was given for something that is no longer asked for.
func (v *view) superseded() bool {
	return v.permit.BootHash != v.Client.Spec.BootHash || v.record.BootHash != v.target
}

// answer is what the agent says about the permit, empty if nothing.
func (v *view) answer() v1alpha1.RebootStatus {
	if v.Client.Status.Reboot == nil || v.Client.Status.Reboot.PermitID != v.permit.ID {
		return v1alpha1.RebootStatus{}
	}
	return *v.Client.Status.Reboot
}

// settings sorts the keys that are not as declared into those that will not become so by themselves and others.
func (v *view) settings() (bad, waiting []string) {
	states := make(map[string]v1alpha1.SettingStatus, len(v.Client.Status.Settings))
	for _, s := range v.Client.Status.Settings {
		states[s.Key] = s
	}
	for _, s := range v.Client.Spec.Settings {
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

// readBack reports whether every value has been read back, exceptions aside.
func (v *view) readBack() bool {
	bad, waiting := v.settings()
	return len(bad)+len(waiting) == 0
}

// tuned reports whether the node carries what the profiles ask for, and nothing waits for a boot.
func (v *view) tuned() bool {
	return v.reported() && !v.Client.Spec.Release && !v.Client.Status.RebootRequired && !v.stale() && v.readBack() && len(v.Client.Withheld) == 0
}

// healthy reports whether the node is as it has to be after its boot.
func (v *view) healthy() bool {
	return v.Ready && v.acknowledged() && v.need.kind == needNone && len(v.Client.Withheld) == 0 && (v.Client.Spec.Release || v.readBack())
}

// recovered reports whether a failed node is as declared after all. Where a reboot had no effect and something else is
// wanted by now, the settings on the object may lack what was taken out of them: their successors decide.
func (v *view) recovered() bool {
	return v.healthy() && !(v.record.Reason == v1alpha1.RolloutReasonRebootWithoutEffect && v.stale())
}

// unavailable says why the node is out of service through no doing of ours, empty if it is not.
func (v *view) unavailable() string {
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
func (p *planner) needOf(v *view) need {
	switch {
	case v.Client == nil:
		return need{kind: needNone}
	case !v.reported():
		holder := v.holder()
		return need{kind: needUnknown, profiles: holder, names: holder}
	case !v.Client.Status.RebootRequired:
		return need{kind: needNone}
	}
	sources := make(map[string]string, len(v.Client.Spec.Settings))
	for _, s := range v.Client.Spec.Settings {
		sources[s.Key] = s.Profile
	}
	var profiles, uncovered []string
	if v.Client.Spec.Release || len(v.Client.Status.RebootRequiredBy) == 0 {
		profiles = p.wholesale(v)
	} else {
		for _, key := range v.Client.Status.RebootRequiredBy {
			if source, due := sources[key]; due && !nodesettings.TakesEffectAtBoot(key) {
				uncovered = append(uncovered, key)
			} else if due {
				profiles = append(profiles, source)
			} else {
				profiles = append(profiles, p.restorers(v, key)...)
			}
		}
	}
	if len(profiles) == 0 {
		return need{kind: needNone, later: true, uncovered: uncovered}
	}
	profiles = p.ranked(profiles)
	names := profiles
	if !slices.IsSorted(profiles) {
		names = slices.Sorted(slices.Values(profiles))
	}
	return need{kind: needReboot, profiles: profiles, names: names}
}

// holder is the profile that the node is held for, while nobody can tell which need it.
func (v *view) holder() []string {
	switch {
	case v.claim != nil && v.claim.Profile != "":
		return []string{v.claim.Profile}
	case v.Mark != nil && v.Mark.Profile != "":
		return []string{v.Mark.Profile}
	}
	return nil
}

// wholesale is all sources of the node's settings; of a released node, those that ask for the reboot.
func (p *planner) wholesale(v *view) []string {
	var out []string
	for _, s := range v.Client.Spec.Settings {
		if !v.Client.Spec.Release || p.restores(s.Profile) {
			out = append(out, s.Profile)
		}
	}
	return out
}

// restorers are the profiles that ask for a reboot to be rid of a key: of those that declare it, or of all of the
// node's where nobody does any more. One that is being deleted asks for every key: it waits for them.
func (p *planner) restorers(v *view, key string) []string {
	declared := slices.ContainsFunc(v.Profiles, func(name string) bool {
		return p.profiles[name] != nil && p.profiles[name].BootKeys.Has(key)
	})
	var out []string
	for _, name := range v.Profiles {
		if p.restores(name) && (!declared || p.profiles[name].Deleting || p.profiles[name].BootKeys.Has(key)) {
			out = append(out, name)
		}
	}
	return out
}

func (p *planner) restores(name string) bool {
	profile := p.profiles[name]
	return profile != nil && profile.Rollout.Reboot.RestoreReboot
}

// ranked sorts profiles so that the first gives the drain its options: the highest priority, on a tie the longer
// timeout. Those that do not exist come last.
func (p *planner) ranked(names []string) []string {
	slices.SortFunc(names, func(a, b string) int {
		x, y := p.profiles[a], p.profiles[b]
		if x == nil || y == nil {
			return cmp.Or(compareBool(x == nil, y == nil), cmp.Compare(a, b))
		}
		return cmp.Or(
			cmp.Compare(y.Priority, x.Priority),
			cmp.Compare(seconds(y.Rollout.Drain.TimeoutSeconds), seconds(x.Rollout.Drain.TimeoutSeconds)),
			cmp.Compare(a, b),
		)
	})
	return slices.Compact(names)
}

// lead is the rollout's rules for a node: of the profile that leads those that need the reboot, else of the one that it
// is held for, else the defaults.
func (p *planner) lead(v *view) v1alpha1.Rollout {
	for _, name := range slices.Concat(v.need.profiles, v.holder()) {
		if profile := p.profiles[name]; profile != nil {
			return profile.Rollout
		}
	}
	return (&v1alpha1.StorageClientProfileSpec{}).WithDefaults().Rollout
}

// heldSince is when the node was cordoned, or claimed where nobody can tell.
func (v *view) heldSince() time.Time {
	switch {
	case v.Mark != nil && !v.Mark.Since.IsZero():
		return v.Mark.Since.Time
	case v.claim != nil:
		return v.claim.Since.Time
	}
	return time.Time{}
}

// recordSince is when the phase that is on record began.
func (v *view) recordSince() time.Time {
	if v.record.Since == nil {
		return time.Time{}
	}
	return v.record.Since.Time
}
