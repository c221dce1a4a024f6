package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

var attemptsUsedUpText = fmt.Sprintf("The node still needs a reboot after %d permits for this boot hash; "+
	"compare desired and observed values in status.settings of the StorageClientNode", MaxAttempts)

// describeIdle sets the note of a node that is not disrupted, and reports whether the node only waits for its turn.
func (p *planner) describeIdle(n *nodeState) bool {
	if n.ClientNode == nil {
		return false
	}
	reason, message := p.findObstacle(n)
	switch {
	case reason == "":
		p.setNote(n, v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonWaitingForBudget, "Waiting for its turn")
		return true
	case n.hasFailed() && n.hasRecovered():
		p.setNote(n, v1alpha1.RolloutUpToDate, v1alpha1.RolloutReasonNothingToDo, "The node has the desired settings after all")
	case n.hasFailed(), n.isRetryDue && n.need.kind != needNone:
		p.keepNote(n)
	case reason == v1alpha1.RolloutReasonNothingToDo, reason == v1alpha1.RolloutReasonRestoredAtNextBoot,
		reason == v1alpha1.RolloutReasonEffectiveAtNextBoot:
		p.setSettledNote(n, v1alpha1.RolloutUpToDate, reason, message)
	case reason == v1alpha1.RolloutReasonAttemptsUsedUp:
		p.setNote(n, v1alpha1.RolloutFailed, reason, message)
	case n.need.kind == needUnknown, reason == v1alpha1.RolloutReasonSettingsChanging:
		// If the agent has never reported, its condition already shows that.
		if n.note.Phase != "" || n.ClientNode.Status.ObservedGeneration != 0 {
			p.setSettledNote(n, v1alpha1.RolloutApplying, reason, message)
		}
	default:
		p.setNote(n, v1alpha1.RolloutWaiting, reason, message)
	}
	return false
}

// findObstacle returns the obstacle to a disruption of a node, regardless of the budget. Empty if there is none.
func (p *planner) findObstacle(n *nodeState) (reason, message string) {
	if n.ClientNode == nil {
		return v1alpha1.RolloutReasonNothingToDo, "The node is not managed"
	}
	switch n.need.kind {
	case needNone:
		missing := onlyBootSettings(n.settings.Select(standing.Failed, standing.OverriddenAtBoot, standing.Unstaged))
		switch {
		case len(missing) > 0:
			return v1alpha1.RolloutReasonSettingsFailed, "A reboot would not apply: " + standing.Describe(missing)
		case len(n.need.uncovered) > 0:
			return v1alpha1.RolloutReasonEffectiveAtNextBoot,
				"The rollout does not reboot for these settings; they take effect at the next boot: " + text.List(n.need.uncovered)
		case n.need.removalsOnly:
			return v1alpha1.RolloutReasonRestoredAtNextBoot,
				"Removed from the boot configuration; effective until the next boot: " + text.List(n.ClientNode.Status.RebootRequiredBy)
		}
		return v1alpha1.RolloutReasonNothingToDo, "No reboot is due"
	case needUnknown:
		return n.unknownNeedReason()
	case needReboot:
	}
	if n.hasFailed() {
		return cmp.Or(n.note.Reason, string(v1alpha1.RolloutFailed)), n.note.Message
	}
	if reason, message := p.checkRules(n); reason != "" {
		return reason, message
	}
	unavailable := n.unavailabilityReason()
	switch {
	case n.isChanging():
		return n.unknownNeedReason()
	case n.Leaving != "" && !n.Deleting:
		kind, _, _ := strings.Cut(n.leavingMark(), " ")
		return v1alpha1.RolloutReasonNodeLeaving, n.describeLeaving() + "; remove the " + kind + " if the node stays"
	case unavailable != "":
		return unavailable, "The node is out of service: " + n.describeUnavailability()
	case !n.AgentReady:
		return v1alpha1.RolloutReasonAgentSilent, "The agent's Pod is not Ready"
	}
	if reason, message := firstReason(n, (*nodeState).checkAcceptance, (*nodeState).checkServers); reason != "" {
		return reason, message
	}
	switch {
	case n.usedAttempts() >= MaxAttempts:
		return v1alpha1.RolloutReasonAttemptsUsedUp, attemptsUsedUpText
	case len(p.Immutable) > 0:
		return v1alpha1.RolloutReasonConfigMapImmutable, fmt.Sprintf(
			"Cannot write ConfigMap %s, which is immutable; save it, delete it, and create it again without immutable", text.List(p.Immutable))
	}
	return p.checkBackOff(n)
}

// firstReason returns the first reason that a check finds, empty if no check finds one.
func firstReason[T any](subject T, checks ...func(T) (reason, message string)) (reason, message string) {
	for _, check := range checks {
		if reason, message = check(subject); reason != "" {
			break
		}
	}
	return reason, message
}

// ofEachProfile checks each profile that needs the reboot of a node.
func ofEachProfile(check func(profile string) (reason, message string)) func(*nodeState) (reason, message string) {
	return func(n *nodeState) (reason, message string) {
		for _, name := range n.need.names {
			if reason, message = check(name); reason != "" {
				break
			}
		}
		return reason, message
	}
}

func (n *nodeState) checkAcceptance() (reason, message string) {
	if obstacles := n.settings.Obstacles(); len(obstacles) > 0 {
		return v1alpha1.RolloutReasonSettingsFailed,
			"Not rebooting, because the node would fail after its boot with these settings: " + standing.Describe(obstacles)
	}
	return "", ""
}

// onlyBootSettings removes the settings that the boot hash does not cover.
func onlyBootSettings(settings []standing.Setting) []standing.Setting {
	return slices.DeleteFunc(settings, func(s standing.Setting) bool { return !nodesettings.TakesEffectAtBoot(s.Key) })
}

// checkRules returns the rule that prevents a disruption of a node, and that ends a disruption without a permit.
func (p *planner) checkRules(n *nodeState) (reason, message string) {
	return firstReason(n, p.checkStops, p.checkWindows, ofEachProfile(p.checkFailures), p.checkControlPlane)
}

// checkStops checks the annotations, policies and approvals that users set. Every profile that needs the reboot must allow it. They also end a permit.
func (s *Session) checkStops(n *nodeState) (reason, message string) {
	switch {
	case s.Paused:
		return v1alpha1.ReasonPausedByAnnotation, "Everything is paused by the annotation on the manager's namespace"
	case n.Paused:
		return v1alpha1.RolloutReasonNodePaused, "The Node has the annotation " + v1alpha1.PausedAnnotation
	case n.Ignored:
		return v1alpha1.RolloutReasonNodeIgnored, "The Node has the annotation " + v1alpha1.IgnoreAnnotation
	case n.NeverDisrupt:
		return v1alpha1.RolloutReasonNeverDisrupt, "The Node has the annotation " + v1alpha1.NeverDisruptAnnotation
	}
	return firstReason(n, ofEachProfile(s.checkActing), ofEachProfile(s.checkPolicy), ofEachProfile(s.checkApproval))
}

func (s *Session) checkActing(name string) (reason, message string) {
	profile := s.profiles[name]
	switch {
	case profile == nil:
		return v1alpha1.RolloutReasonProfileGone, fmt.Sprintf("A setting comes from StorageClientProfile %s, which does not exist", name)
	case profile.Inert != "":
		return profile.Inert, fmt.Sprintf("StorageClientProfile %s disrupts no node: %s", name, profile.Inert)
	case profile.Paused != "":
		return profile.Paused, fmt.Sprintf("StorageClientProfile %s is paused", name)
	}
	return "", ""
}

func (s *Session) checkPolicy(name string) (reason, message string) {
	if s.profiles[name].Rollout.Reboot.Policy == v1alpha1.RebootNever {
		return v1alpha1.RolloutReasonRebootPolicyNever, fmt.Sprintf("StorageClientProfile %s has reboot policy Never", name)
	}
	return "", ""
}

func (s *Session) checkApproval(name string) (reason, message string) {
	profile := s.profiles[name]
	if profile.Rollout.Reboot.Policy == v1alpha1.RebootOnApproval && !profile.Approved {
		return v1alpha1.RolloutReasonWaitingForApproval, fmt.Sprintf(
			"Plan %s of StorageClientProfile %s needs approval; next: kubectl storageclient approve %s", profile.PlanHash, name, name)
	}
	return "", ""
}

// checkControlPlane rejects a control-plane node while another one is out of service for any reason. An etcd cluster of three members survives the
// loss of one member, not of two (etcd.io/docs/v3.5/faq, "What is failure tolerance?"). The Nodes do not show the number of members, so at most one
// node may be out. The only control-plane node is never rebooted: no other node would take over its work.
func (p *planner) checkControlPlane(n *nodeState) (reason, message string) {
	if !n.ControlPlane {
		return "", ""
	}
	var out []string
	serving, allDisrupted := 0, true
	for _, other := range p.states {
		if other == n || !other.ControlPlane {
			continue
		}
		outage := other.controlPlaneOutage()
		if outage == "" {
			serving++
			continue
		}
		out = append(out, other.Name+" "+outage)
		allDisrupted = allDisrupted && other.isDisrupted() && !other.hasFailed()
	}
	switch {
	case serving == 0 && len(out) == 0:
		return v1alpha1.RolloutReasonLastControlPlaneNode, "The only control-plane node is not rebooted by the rollout; reboot it by hand"
	case serving == 0:
		reason, message = v1alpha1.RolloutReasonLastControlPlaneNode, "No other control-plane node is Ready and in service: "+text.List(out)
	case len(out) > 0:
		reason, message = v1alpha1.RolloutReasonWaitingForControlPlane, "Another control-plane node is out of service: "+text.List(out)
	}
	switch {
	case allDisrupted:
	case len(out) == 1:
		message += "; bring it back, or delete its Node if it will not return"
	default:
		message += "; bring them back, or delete the Nodes that will not return"
	}
	return reason, message
}

// controlPlaneOutage returns the reason why a control-plane node is out of service, empty if it is in service. A Ready node that another user or
// controller has cordoned is in service: a drain leaves mirror pods (kubernetes.io/docs/reference/kubectl/generated/kubectl_drain), so its etcd
// member votes until the node goes down. Some clusters keep their control plane cordoned permanently.
func (n *nodeState) controlPlaneOutage() string {
	if n.hasFailed() || n.isDisrupted() || n.unavailabilityReason() != v1alpha1.RolloutReasonCordonedByOthers {
		return n.budgetUseReason()
	}
	if n.Ready {
		return ""
	}
	return "is not Ready"
}

func (n *nodeState) describeLeaving() string {
	mark := n.leavingMark()
	return fmt.Sprintf("%s announces the removal of the node, so the rollout skips it", strings.ToUpper(mark[:1])+mark[1:])
}

// leavingMark returns the kind and the key of the mark by which others announce the removal of the node.
func (n *nodeState) leavingMark() string {
	if strings.Contains(n.Leaving, " ") {
		return n.Leaving
	}
	return "taint " + n.Leaving
}

func (n *nodeState) describeUnavailability() string {
	switch n.unavailabilityReason() {
	case v1alpha1.RolloutReasonNodeDeleting:
		return "being deleted"
	case v1alpha1.RolloutReasonNodeLeaving:
		return fmt.Sprintf("about to be removed (%s)", n.leavingMark())
	case v1alpha1.RolloutReasonNodeInMaintenance:
		return fmt.Sprintf("under maintenance by another controller (condition MaintenanceInProgress, reason %s)", n.Maintainer)
	case v1alpha1.RolloutReasonCordonedByOthers:
		return "cordoned by another user or controller"
	}
	if !n.Created.IsZero() && n.ReadySince.Sub(n.Created).Abs() < joinTime {
		return "not Ready yet, after it joined at " + formatTime(n.Created)
	}
	return "not Ready"
}

// joinTime is the time after its creation for which a node that is not Ready has just joined.
const joinTime = time.Minute

// failingServers returns the storage servers that do not respond to the node. Reports from before its last boot are about other connections.
func (n *nodeState) failingServers() []v1alpha1.ServerStatus {
	if !n.hasReportedSinceBoot() {
		return nil
	}
	return lists.Filter(n.ClientNode.Status.Servers, fleet.IsFailing)
}

// checkServers rejects a node whose storage does not respond: processes that use it cannot exit, so neither a drain nor a shutdown would finish.
func (n *nodeState) checkServers() (reason, message string) {
	if failing := n.failingServers(); len(failing) > 0 {
		return v1alpha1.RolloutReasonStorageUnreachable, "Not draining, because the drain would hang: " + describeServers(failing, nil)
	}
	return "", ""
}

// describeServers names the servers and, for a drain, the pods that wait for them.
func describeServers(failing []v1alpha1.ServerStatus, drain *DrainProgress) string {
	names := ptr.Deref(drain, DrainProgress{}).Names
	return text.Join(lists.Each(failing, func(s v1alpha1.ServerStatus) string {
		entry := fleet.ServerText(s)
		if pods := lists.Pick(s.PodUIDs, func(uid string) (string, bool) { return "Pod " + names[uid], names[uid] != "" }); len(pods) > 0 {
			entry += "; waiting for it: " + text.List(pods)
		}
		return entry
	}), "; ")
}
