package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/order"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
)

// nodeState is a node with what follows from its objects. What this pass decides changes it.
type nodeState struct {
	*Node
	claim *v1alpha1.Disruption
	// former is set where the claim of the node's name was made for a former Node, released once this pass releases its claim.
	former, released bool
	// permit is the permit that stands; nil once this pass has cleared it.
	permit *v1alpha1.RebootPermit
	// note is status.rollout as it stands, zero if there is none.
	note v1alpha1.RolloutStatus
	// target names what attempts and a failure speak of: the boot hash, or its removal.
	target string
	need   need
	// resets are the profiles whose retry has made the note start again.
	resets []string
	// settings is how the settings stand; empty while the node is being released.
	settings standing.Report
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

func (s *Session) stateOf(node *Node) nodeState {
	n := nodeState{Node: node, zone: node.Labels[corev1.LabelTopologyZone], maintenanceShown: node.Maintenance}
	if claim, found := s.Claims[node.Name]; found {
		if n.former = claim.NodeUID != "" && claim.NodeUID != node.UID; !n.former {
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
		if node.ClientNode.Status.Rollout != nil {
			n.note = *node.ClientNode.Status.Rollout
			n.note.Refusal = ""
		}
		s.recallNode(&n)
	}
	// Drains of other settings, or with other options, count no more. While the need is unknown, they stay.
	if n.need = s.needOf(&n); n.note.DrainedFor != "" && n.need.kind == needReboot && n.note.DrainedFor != s.drainKey(&n) {
		n.resetDrains()
	}
	return n
}

// tunedOf returns since when the node has had its settings. A restart of the agent changes nothing, nor do settings that the agent has yet to
// report: the time of other settings than these counts for no soak. Settings that do not stay well start again.
func (s *Session) tunedOf(n *nodeState) *v1alpha1.RolloutTuned {
	if n.ClientNode == nil {
		return nil
	}
	var known *v1alpha1.RolloutTuned
	if note := n.ClientNode.Status.Rollout; note != nil {
		known = note.Tuned
	}
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

func (n *nodeState) rolloutTurn() order.Turn {
	return order.Turn{Name: n.Name, Created: n.Created, Labels: n.Labels, Zone: n.zone, Manager: n.Manager}
}

// isDisrupted reports whether the node is disrupted by us, or may be at any moment.
func (n *nodeState) isDisrupted() bool {
	return n.claim != nil || n.Mark != nil || (n.permit != nil && !n.hasBooted())
}

func (n *nodeState) hasBooted() bool {
	return n.permit != nil && n.BootID != "" && n.BootID != n.permit.BootID
}

func (n *nodeState) isCordonedByUs() bool { return n.Mark != nil && n.Unschedulable }

func (n *nodeState) hasFailed() bool {
	return n.ClientNode != nil && n.note.Phase == v1alpha1.RolloutFailed && n.note.BootHash == n.target
}

func (n *nodeState) attemptsGiven() int32 {
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

// hasReportedSettings reports whether the agent speaks of the settings that it is to have, or of their removal.
func (n *nodeState) hasReportedSettings() bool {
	if n.ClientNode != nil && n.ClientNode.Spec.Release {
		return n.hasSeenSpec() && n.ClientNode.Status.Restored
	}
	return n.hasReportedSinceBoot() && n.ClientNode.Status.Hash == n.ClientNode.Spec.Hash
}

func (n *nodeState) isChanging() bool {
	return n.ClientNode != nil && !n.ClientNode.Spec.Release && n.ClientNode.Spec.BootHash != n.ClientNode.WantedBootHash
}

// isPermitOutdated reports whether the permit was given for something that is no longer asked for.
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

// dropUnusedAttempt takes an attempt out of the count whose permit the agent has not used up. The permit says whether it is in it:
// what follows may fail, and be decided again.
func (n *nodeState) dropUnusedAttempt() {
	answer := n.permitAnswer().Phase
	unused := answer == v1alpha1.RebootRefused || answer == v1alpha1.RebootWaiting
	if unused && n.isPermitOf(n.permit.ID, n.note) {
		n.note.Attempts--
	}
}

// isTuned reports whether what is wanted is in force on the node, its agent vouches for that now, and no boot is due. What is no longer
// wanted, and stays in force until somebody boots the node, takes nothing from that.
func (n *nodeState) isTuned() bool {
	waits := n.need.kind != needNone || len(n.need.uncovered) > 0
	if !n.AgentReady || !n.hasReportedSettings() || n.ClientNode.Spec.Release || waits || n.isChanging() || len(n.ClientNode.Withheld) > 0 {
		return false
	}
	return n.settings.IsTuned()
}

func (n *nodeState) isHealthy() bool {
	return n.Ready && n.hasSeenSpec() && n.need.kind == needNone && len(n.ClientNode.Withheld) == 0 && n.settings.IsAccepted()
}

// hasRecovered reports whether a failed node has the wanted settings after all. Where a reboot had no effect and something else is
// wanted by now, the settings on the object may lack what was taken out of them: their successors decide.
func (n *nodeState) hasRecovered() bool {
	return n.isHealthy() && !(n.note.Reason == v1alpha1.RolloutReasonRebootWithoutEffect && n.isChanging())
}

// whyUnavailable says why the node is out of service through no doing of ours, empty if it is not.
func (n *nodeState) whyUnavailable() string {
	switch {
	case n.Deleting:
		return v1alpha1.RolloutReasonNodeDeleting
	case n.Leaving != "":
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

// needOf finds whether a node has to reboot, and for which profiles. Keys that the client node holds are due; others,
// and all of them while the node is released, are removals, which only a profile with restoreReboot reboots for.
func (s *Session) needOf(n *nodeState) need {
	switch {
	case n.ClientNode == nil:
		return need{kind: needNone}
	case !n.hasReportedSettings():
		holder := n.claimingProfile()
		return need{kind: needUnknown, profiles: holder, names: holder}
	case !n.ClientNode.Status.RebootRequired:
		return need{kind: needNone}
	}
	sources := make(map[string]string, len(n.ClientNode.Spec.Settings))
	for _, setting := range n.ClientNode.Spec.Settings {
		sources[setting.Key] = setting.Profile
	}
	var profiles, uncovered []string
	if n.ClientNode.Spec.Release || len(n.ClientNode.Status.RebootRequiredBy) == 0 {
		profiles = s.allSources(n)
	} else {
		for _, key := range n.ClientNode.Status.RebootRequiredBy {
			if source, due := sources[key]; due && !nodesettings.TakesEffectAtBoot(key) {
				uncovered = append(uncovered, key)
			} else if due {
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

// claimingProfile is the profile that the node is disrupted for, while it is not known which profiles need its reboot.
func (n *nodeState) claimingProfile() []string {
	switch {
	case n.claim != nil && n.claim.Profile != "":
		return []string{n.claim.Profile}
	case n.Mark != nil && n.Mark.Profile != "":
		return []string{n.Mark.Profile}
	}
	return nil
}

// allSources is all sources of the node's settings; of a released node, those that ask for the reboot.
func (s *Session) allSources(n *nodeState) []string {
	var out []string
	for _, setting := range n.ClientNode.Spec.Settings {
		if !n.ClientNode.Spec.Release || s.rebootsToRestore(setting.Profile) {
			out = append(out, setting.Profile)
		}
	}
	return out
}

// restoringProfiles are the profiles that ask for a reboot to be rid of a key: of those that declare it, or of all of the
// node's where nobody does any more. One that is being deleted asks for every key: it waits for them.
func (s *Session) restoringProfiles(n *nodeState, key string) []string {
	declared := slices.ContainsFunc(n.Profiles, func(name string) bool {
		return s.profiles[name] != nil && s.profiles[name].BootKeys.Has(key)
	})
	var out []string
	for _, name := range n.Profiles {
		if s.rebootsToRestore(name) && (!declared || s.profiles[name].Deleting || s.profiles[name].BootKeys.Has(key)) {
			out = append(out, name)
		}
	}
	return out
}

func (s *Session) rebootsToRestore(name string) bool {
	profile := s.profiles[name]
	return profile != nil && profile.Rollout.Reboot.RestoreReboot
}

// rankProfiles sorts profiles so that the first gives the drain its options: the highest priority, on a tie the longer
// timeout. Those that do not exist come last.
func (s *Session) rankProfiles(names []string) []string {
	slices.SortFunc(names, func(a, b string) int {
		x, y := s.profiles[a], s.profiles[b]
		switch {
		case x == nil && y == nil:
			return cmp.Compare(a, b)
		case x == nil:
			return 1
		case y == nil:
			return -1
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
// is disrupted for, else of the one that leads those whose settings it carries, else the defaults.
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

// disruptedSince is when the node was cordoned, or claimed where that is not known.
func (n *nodeState) disruptedSince() time.Time {
	switch {
	case n.Mark != nil && !n.Mark.Since.IsZero():
		return n.Mark.Since.Time
	case n.claim != nil:
		return n.claim.Since.Time
	}
	return time.Time{}
}

func (n *nodeState) noteSince() time.Time {
	if n.note.Since == nil {
		return time.Time{}
	}
	return n.note.Since.Time
}
