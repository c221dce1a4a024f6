package plan

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

// nodeState is a node with the state derived from its objects. Decisions of this pass change it.
type nodeState struct {
	*Node
	claim *v1alpha1.Disruption
	// isReplaced is true if the claim under the node's name was made for a former Node; released is true once this pass releases the claim.
	isReplaced, released bool
	// permit is the current permit; nil once this pass has cleared it.
	permit *v1alpha1.RebootPermit
	// note is the current status.rollout, zero if there is none.
	note v1alpha1.RolloutStatus
	// target identifies the subject of attempts and failures: the boot hash, or its removal.
	target string
	need   need
	// resets are the profiles whose retry has reset the note.
	resets []string
	// settings is the state of the settings; empty while the node is being released.
	settings standing.Report
	zone     string
	// isRetryDue is true once a node that failed without a reboot may get another attempt.
	isRetryDue bool
	// reportedMaintenance is the state that the conditions show, maintenance the state that they must show after this pass.
	reportedMaintenance, maintenance Maintenance
}

// need describes whether a node must reboot, and for which profiles.
type need struct {
	kind needKind
	// profiles are the profiles that need the reboot. The first one leads.
	profiles []string
	// names are the same profiles, sorted, so that messages about several of them do not flap.
	names []string
	// removalsOnly is true if only removals wait for a boot, and no profile requests it.
	removalsOnly bool
	// uncovered are settings that wait for a boot but are not part of a boot hash. So no approval and no count of attempts covers them.
	uncovered []string
}

type needKind int

const (
	needNone needKind = iota
	needUnknown
	needReboot
)

// releaseTarget is the prefix of the target of a node that is being released.
const releaseTarget = "release-"

func (s *Session) stateOf(node *Node) *nodeState {
	n := &nodeState{Node: node, zone: node.Labels[corev1.LabelTopologyZone], reportedMaintenance: node.Maintenance}
	if claim, found := s.Claims[node.Name]; found {
		if n.isReplaced = claim.NodeUID != "" && claim.NodeUID != node.UID; !n.isReplaced {
			n.claim = &claim
		}
	}
	if node.ClientNode != nil {
		n.permit = node.ClientNode.Spec.RebootPermit
		n.target = node.ClientNode.Spec.BootHash
		if node.ClientNode.Spec.Release {
			n.target = releaseTarget + n.target
		} else {
			n.settings = standing.Read(&node.ClientNode.Spec, &node.ClientNode.Status, "")
		}
		n.note = ptr.Deref(node.ClientNode.Status.Rollout, v1alpha1.RolloutStatus{})
		n.note.Refusal = ""
		s.restoreNote(n)
	}
	// Drains for other settings, or with other options, no longer count. They stay while the need is unknown. The pause after an unused permit stays.
	n.need = s.needOf(n)
	if n.note.DrainedFor != "" && n.need.kind == needReboot && n.note.DrainedFor != s.drainKey(n) && !n.hasFailedUnrebooted() {
		n.resetDrains()
	}
	return n
}

// tunedOf returns the time since which the node has had its settings. A restart of the agent does not change it, nor do settings that the agent has
// not reported yet. No soak counts the time of other settings. Settings that stop being healthy start again.
func (s *Session) tunedOf(n *nodeState) *v1alpha1.RolloutTuned {
	if n.ClientNode == nil {
		return nil
	}
	known := ptr.Deref(n.ClientNode.Status.Rollout, v1alpha1.RolloutStatus{}).Tuned
	spec := &n.ClientNode.Spec
	isKnown := known != nil && known.Hash == spec.Hash
	switch {
	case spec.Release, n.AgentSilent, n.settings.HasFailed(), isKnown && !n.settings.Applying && !n.settings.Soaks():
		return nil
	case isKnown, !n.AgentReady, !n.hasReportedSinceBoot(), !n.settings.Soaks():
		return known
	}
	return &v1alpha1.RolloutTuned{Hash: spec.Hash, Since: metav1.NewTime(s.Now)}
}

func (n *nodeState) rolloutTurn() match.Turn {
	return match.Turn{Name: n.Name, Created: n.Created, Labels: n.Labels, Zone: n.zone, Manager: n.Manager}
}

// isDisrupted reports whether the rollout disrupts the node, or may at any moment.
func (n *nodeState) isDisrupted() bool {
	return n.claim != nil || n.Mark != nil || (n.permit != nil && !n.hasBooted())
}

func (n *nodeState) hasBooted() bool {
	return n.permit != nil && n.BootID != "" && n.BootID != n.permit.BootID
}

func (n *nodeState) isCordonedByRollout() bool { return n.Mark != nil && n.Unschedulable }

func (n *nodeState) hasFailed() bool {
	return n.ClientNode != nil && n.note.Phase == v1alpha1.RolloutFailed && n.note.BootHash == n.target && !n.isRetryDue
}

// hasFailedUnrebooted reports whether the node has failed because its agent did not use the permit. Only such a failure is followed by a pause.
func (n *nodeState) hasFailedUnrebooted() bool {
	return n.hasFailed() && n.note.HasFailedUnrebooted()
}

func (n *nodeState) usedAttempts() int32 {
	if n.note.BootHash != n.target {
		return 0
	}
	return n.note.Attempts
}

func (n *nodeState) hasReportedSinceBoot() bool {
	return n.ClientNode != nil && n.ClientNode.Status.BootID != "" && n.ClientNode.Status.BootID == n.BootID
}

func (n *nodeState) hasSeenSpec() bool {
	return n.hasReportedSinceBoot() && n.ClientNode.Status.ObservedGeneration >= n.ClientNode.Generation
}

// hasReportedSettings reports whether the agent has reported on its desired settings, or on their removal.
func (n *nodeState) hasReportedSettings() bool {
	if n.ClientNode != nil && n.ClientNode.Spec.Release {
		return n.hasSeenSpec() && n.ClientNode.Status.Restored
	}
	return n.hasReportedSinceBoot() && n.ClientNode.Status.Hash == n.ClientNode.Spec.Hash
}

func (n *nodeState) isChanging() bool {
	return n.ClientNode != nil && n.changesTo(n.ClientNode.DesiredBootHash)
}

// changesTo reports whether the StorageClientNode does not have the desired boot hash yet.
func (n *nodeState) changesTo(desiredBootHash string) bool {
	return !n.ClientNode.Spec.Release && n.ClientNode.Spec.BootHash != desiredBootHash
}

// isPermitOutdated reports whether the permit was given for settings that are no longer desired.
func (n *nodeState) isPermitOutdated() bool {
	return n.permit.BootHash != n.ClientNode.Spec.BootHash || n.note.BootHash != n.target
}

func (n *nodeState) permitAnswer() v1alpha1.RebootStatus {
	if n.ClientNode.Status.Reboot == nil || n.ClientNode.Status.Reboot.PermitID != n.permit.ID {
		return v1alpha1.RebootStatus{}
	}
	return *n.ClientNode.Status.Reboot
}

func (n *nodeState) isPermitWaiting() bool {
	return n.permit != nil && !n.hasBooted() && n.permitAnswer().Phase == v1alpha1.RebootWaiting
}

// hasUnusedPermit reports whether the node has a permit of which the agent has not announced the use. It can be withdrawn: an announcement after that
// meets a conflict.
func (n *nodeState) hasUnusedPermit() bool {
	return n.permit != nil && !n.hasBooted() && !isUsed(n.permitAnswer().Phase)
}

func isUsed(answer v1alpha1.RebootPhase) bool {
	return answer == v1alpha1.RebootStarted || answer == v1alpha1.RebootFailed
}

// dropUnusedAttempt removes an attempt from the count if the agent has not used its permit. It checks that the permit is included in the count: the
// steps that follow may fail, and the decision may be repeated.
func (n *nodeState) dropUnusedAttempt() {
	if n.hasUnusedPermit() && n.isPermitOf(n.permit.ID, n.note) {
		n.note.Attempts--
	}
}

// isTuned reports whether the desired settings are effective on the node, the agent confirms it now, and no boot is due. Settings that are no
// longer desired but stay effective until the next boot do not count.
func (n *nodeState) isTuned() bool {
	hasPendingSettings := n.need.kind != needNone || len(n.need.uncovered) > 0
	if !n.AgentReady || !n.hasReportedSettings() || n.ClientNode.Spec.Release || hasPendingSettings || n.isChanging() || len(n.ClientNode.Withheld) > 0 {
		return false
	}
	return n.settings.IsTuned()
}

func (n *nodeState) isHealthy() bool {
	return n.Ready && n.hasSeenSpec() && n.need.kind == needNone && len(n.ClientNode.Withheld) == 0 && n.settings.IsAccepted()
}

// hasRecovered reports whether a failed node has the desired settings after all. If a reboot had no effect and other settings are now desired, the
// object may lack the settings that were withheld. The new settings then decide.
func (n *nodeState) hasRecovered() bool {
	return n.isHealthy() && !(n.note.Reason == v1alpha1.RolloutReasonRebootWithoutEffect && n.isChanging())
}

// unavailabilityReason returns the reason why the node is out of service for causes other than the rollout, empty if it is in service.
func (n *nodeState) unavailabilityReason() string {
	switch {
	case n.Deleting:
		return v1alpha1.RolloutReasonNodeDeleting
	case n.isLeaving():
		return v1alpha1.RolloutReasonNodeLeaving
	case n.Maintainer != "":
		return v1alpha1.RolloutReasonNodeInMaintenance
	case n.Unschedulable && n.Mark == nil:
		return v1alpha1.RolloutReasonCordonedByOthers
	case !n.Ready:
		return v1alpha1.RolloutReasonNodeUnavailable
	}
	return ""
}

// isLeaving reports whether others are removing the node. It counts as out of service.
func (n *nodeState) isLeaving() bool { return n.Leaving != "" && !n.LeavesLater }

// needOf finds whether a node must reboot, and for which profiles. Keys in the spec of the StorageClientNode are due. Other keys, and all keys
// while the node is released, are removals. Only a profile with restoreReboot reboots for removals.
func (s *Session) needOf(n *nodeState) need {
	switch {
	case n.ClientNode == nil:
		return need{kind: needNone}
	case !n.hasReportedSettings():
		return need{kind: needUnknown, profiles: n.claimingProfile(), names: n.claimingProfile()}
	case !n.ClientNode.Status.RebootRequired:
		return need{kind: needNone}
	}
	sources := lists.Map(n.ClientNode.Spec.Settings, func(s v1alpha1.NodeSetting) (string, string) { return s.Key, s.Profile })
	var profiles, uncovered []string
	if n.ClientNode.Spec.Release || len(n.ClientNode.Status.RebootRequiredBy) == 0 {
		profiles = s.allSources(n)
	} else {
		for _, key := range n.ClientNode.Status.RebootRequiredBy {
			if source, isDesired := sources[key]; isDesired && !nodesettings.TakesEffectAtBoot(key) {
				uncovered = append(uncovered, key)
			} else if isDesired {
				profiles = append(profiles, source)
			} else {
				profiles = append(profiles, s.restoringProfiles(n, key)...)
			}
		}
	}
	if len(profiles) == 0 {
		return need{kind: needNone, removalsOnly: true, uncovered: uncovered}
	}
	profiles = s.rankProfiles(profiles)
	return need{kind: needReboot, profiles: profiles, names: slices.Sorted(slices.Values(profiles))}
}

// claimingProfile returns the profile for which the node is disrupted. It is used while the profiles that need the reboot are unknown.
func (n *nodeState) claimingProfile() []string {
	switch {
	case n.claim != nil && n.claim.Profile != "":
		return []string{n.claim.Profile}
	case n.Mark != nil && n.Mark.Profile != "":
		return []string{n.Mark.Profile}
	}
	return nil
}

// allSources returns all source profiles of the node's settings; for a released node, only the profiles that request the reboot.
func (s *Session) allSources(n *nodeState) []string {
	return lists.Filter(sourcesOf(n.ClientNode.Spec.Settings), func(name string) bool {
		return !n.ClientNode.Spec.Release || s.rebootsToRestore(name)
	})
}

func sourcesOf(settings []v1alpha1.NodeSetting) []string {
	return lists.Each(settings, func(setting v1alpha1.NodeSetting) string { return setting.Profile })
}

// restoringProfiles returns the profiles that request a reboot to remove a key. Profiles that declare the key are considered, or all profiles of
// the node if none declares it. A profile that is being deleted requests a reboot for every key, because its deletion waits for them.
func (s *Session) restoringProfiles(n *nodeState, key string) []string {
	declared := slices.ContainsFunc(n.Profiles, func(name string) bool {
		return s.profiles[name] != nil && s.profiles[name].BootKeys.Has(key)
	})
	return lists.Filter(n.Profiles, func(name string) bool {
		return s.rebootsToRestore(name) && (!declared || s.profiles[name].Deleting || s.profiles[name].BootKeys.Has(key))
	})
}

func (s *Session) rebootsToRestore(name string) bool {
	profile := s.profiles[name]
	return profile != nil && profile.Rollout.Reboot.RestoreReboot
}

// rankProfiles sorts profiles so that the first one sets the drain's options: by priority, then the longest timeout. Missing profiles come last.
func (s *Session) rankProfiles(names []string) []string {
	missing := &Profile{Priority: math.MinInt32}
	slices.SortFunc(names, func(a, b string) int {
		x, y := cmp.Or(s.profiles[a], missing), cmp.Or(s.profiles[b], missing)
		return cmp.Or(
			cmp.Compare(y.Priority, x.Priority),
			cmp.Compare(toDuration(y.Rollout.Drain.TimeoutSeconds), toDuration(x.Rollout.Drain.TimeoutSeconds)),
			cmp.Compare(a, b),
		)
	})
	return slices.Compact(names)
}

// rulesFor returns the rollout rules for a node. They come from the leading profile that needs the reboot. Otherwise from the profile for which the
// node is disrupted, from the leading profile among the node's settings, or from the defaults.
func (s *Session) rulesFor(n *nodeState) v1alpha1.Rollout {
	var carried []string
	if n.ClientNode != nil {
		carried = s.rankProfiles(s.allSources(n))
	}
	for _, name := range slices.Concat(n.need.profiles, n.claimingProfile(), carried) {
		if profile := s.profiles[name]; profile != nil {
			return profile.Rollout
		}
	}
	return (&v1alpha1.StorageClientProfileSpec{}).WithDefaults().Rollout
}

// disruptedSince returns the time at which the node was cordoned, or claimed if that time is unknown.
func (n *nodeState) disruptedSince() time.Time {
	switch {
	case n.Mark != nil && !n.Mark.Since.IsZero():
		return n.Mark.Since.Time
	case n.claim != nil:
		return n.claim.Since.Time
	}
	return time.Time{}
}

func (n *nodeState) noteSince() time.Time { return ptr.Deref(n.note.Since, metav1.Time{}).Time }
