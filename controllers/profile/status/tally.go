package status

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/order"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

// wait is a node that the rollout disrupts, or that waits for a boot, and what its note says.
type wait struct {
	node, reason, message string
	// due is true where the node is to be rebooted: it waits for something that a plan hash covers.
	due bool
	// kept says why the rollout does not reboot the node for that as it stands, empty if it does.
	kept string
}

// planned is a node that the plan reboots; held says what on the Node keeps it from that for now.
type planned struct{ node, held string }

// tally is what a profile's nodes come to. Lists hold names in the order of the nodes' names.
type tally struct {
	counts v1alpha1.NodeCounts
	// behind have not taken the settings yet, silent have no agent report that can be believed, ignored are left alone.
	behind, silent, ignored, failed, drifted, exceptions []string
	// shadowed are those of the exceptions where other files override settings, overrides what they override, by which file.
	shadowed, overrides []string
	// failedBefore is how many failed before those that are named, lost are those of them that are gone, the latest first.
	failedBefore int
	lost         []v1alpha1.LostNode
	// stuck are those of behind that wait for a live canary that has failed.
	stuck []string
	// pending wait for a boot for the profile's settings to take effect.
	pending []wait
	// planned are those that the plan reboots: it tells of all, whether or not they have been given their settings yet.
	planned []planned
	// held are behind and paused: by the Node's annotation, or with another profile.
	held []wait
	// disrupted are those that the rollout disrupts, with what it does there or waits for.
	disrupted []wait
	// conflicts say which keys profiles of equal priority disagree about, once each.
	conflicts []string
	// turns place all nodes that the profile may change in the order of the rollout.
	turns       []order.Turn
	managerNode string
	// reported is how many nodes' agents report.
	reported int
}

// countNodes counts every node that a profile selects. managerNode is the manager's own.
func countNodes(profile *fleet.Profile, all fleet.Snapshot, managerNode string) tally {
	sum := tally{managerNode: managerNode}
	inPlanMode := profile.Standing == match.Held && profile.Spec.Mode == v1alpha1.ModePlan
	if inPlanMode {
		all.Profiles = all.Profiles.Acting(profile.Name)
	}
	for _, node := range selectedNodes(profile, all) {
		switch {
		case match.Ignored(node):
			sum.ignored = append(sum.ignored, node.Name)
		case inPlanMode:
			sum.addPlanned(profile, node, all)
		default:
			sum.addNode(profile, node, all)
		}
	}
	for _, list := range []*[]string{&sum.conflicts, &sum.overrides} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return sum
}

func selectedNodes(profile *fleet.Profile, all fleet.Snapshot) []*corev1.Node {
	return slices.DeleteFunc(slices.Clone(all.Concerned(profile)), func(node *corev1.Node) bool { return !profile.Selects(node) })
}

func (t *tally) addNode(profile *fleet.Profile, node *corev1.Node, all fleet.Snapshot) {
	t.counts.Matched++
	clientNode := all.ClientNodes[node.Name]
	wanted := all.Profiles.Wanted(node, clientNode)
	t.addTurn(node, wanted)
	t.addPlan(profile, node, clientNode, wanted, all)
	disputed := t.addConflicts(profile, wanted)
	if isDisruptedFor(profile.Name, node) {
		t.counts.Disrupted++
	}
	if clientNode == nil {
		t.addBehind(profile, node, nil, all)
		return
	}
	report := fleet.ReportOf(node, clientNode, all.Ready[node.Name], profile.Name)
	if report.Silent == "" {
		t.reported++
	}
	failed := t.addStates(node, clientNode, report)
	t.addPending(node, clientNode, report, all)
	switch {
	case failed:
	case report.Silent != "":
		t.silent = append(t.silent, node.Name)
	case profile.Standing == match.Held:
		// An invalid profile: whatever the node carries is not what it declares.
	case !hasTaken(profile.Name, wanted, clientNode):
		t.addBehind(profile, node, clientNode, all)
	case report.Has(standing.Applying, standing.Proving, standing.Unproven):
		t.behind = append(t.behind, node.Name)
	case isTuned(report) && !disputed:
		t.counts.UpToDate++
	}
}

// isTuned is fleet's, but for whether the node applies what other profiles have changed.
func isTuned(report fleet.Report) bool {
	report.Applying = false
	return report.IsTuned()
}

// hasTaken reports whether a node holds the settings of one profile, no more and no less, and its agent has reported on them. What
// the agent puts back of settings that are gone shows in the hash alone, and that is of all profiles of the node: it counts where
// there is no other.
func hasTaken(profile string, wanted fleet.Wanted, clientNode *v1alpha1.StorageClientNode) bool {
	if clientNode.Spec.Release || clientNode.Status.ObservedGeneration == 0 {
		return false
	}
	if len(wanted.Profiles) == 1 {
		return clientNode.Spec.Hash == wanted.Hash && clientNode.Status.Hash == clientNode.Spec.Hash
	}
	own, held := overview.SettingsOf(profile, wanted.Settings), overview.SettingsOf(profile, clientNode.Spec.Settings)
	if len(own) != len(held) {
		return false
	}
	value, reported := map[string]string{}, map[string]string{}
	for _, setting := range held {
		value[setting.Key] = setting.Value
	}
	for _, setting := range clientNode.Status.Settings {
		reported[setting.Key] = setting.Desired
	}
	return !slices.ContainsFunc(own, func(s v1alpha1.NodeSetting) bool {
		given, found := value[s.Key]
		desired, known := reported[s.Key]
		return !found || !known || given != s.Value || desired != s.Value
	})
}

// addBehind notes a node that has not taken its settings yet. Where it is paused, it will not before somebody ends that.
func (t *tally) addBehind(profile *fleet.Profile, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, all fleet.Snapshot) {
	if profile.Standing == match.Held {
		return
	}
	others := slices.DeleteFunc(all.Profiles.PausedBy(node, clientNode), func(name string) bool { return name == profile.Name })
	switch {
	case pause.Annotated(node):
		t.held = append(t.held, wait{node: node.Name, message: "the Node has the annotation " + v1alpha1.PausedAnnotation})
	case len(others) > 0 && !profile.Paused:
		t.held = append(t.held, wait{node: node.Name, message: "paused with StorageClientProfile " + text.List(others)})
	default:
		t.behind = append(t.behind, node.Name)
	}
}

// addStuck finds the nodes that get no settings, since their canary has failed, though fewer nodes have failed than would stop the profile.
func (t *tally) addStuck(profile *fleet.Profile, all fleet.Snapshot, now time.Time) {
	if len(t.failed) == 0 || len(t.behind) == 0 {
		return
	}
	policy := livegate.PolicyOf(profile.Spec.WithDefaults().Rollout)
	gate := livegate.Admit(fleet.GatesOf(all, "").Nodes[profile.Name], policy, now)
	t.stuck = slices.DeleteFunc(slices.Clone(t.behind), func(name string) bool { return !gate.Stuck[name] })
}

// addPlan notes a node that the plan reboots. The plugin's "plan" goes by the same.
func (t *tally) addPlan(profile *fleet.Profile, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, wanted fleet.Wanted, all fleet.Snapshot,
) (reboot overview.Reboot, due bool) {
	reboot, due = overview.RebootOf(profile.StorageClientProfile, node, all.Nodes, wanted.Result, clientNode)
	switch {
	case !due:
	case reboot.Refused:
		t.turns[len(t.turns)-1].Blocked = true
	default:
		t.planned = append(t.planned, planned{node: node.Name, held: reboot.Held})
	}
	return reboot, due
}

// addStates counts a node by the states of the profile's settings, and reports whether the node has failed.
func (t *tally) addStates(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, report fleet.Report) bool {
	rollout := clientNode.Status.Rollout
	if len(report.Exceptions()) > 0 {
		t.counts.Exceptions++
		t.addExceptions(node.Name, report)
	}
	if report.Has(standing.Drifted, standing.Unstaged) {
		t.counts.Drifted++
		t.drifted = append(t.drifted, node.Name)
	}
	if rollout != nil && fleet.IsDisrupted(&corev1.Node{}, clientNode) {
		t.disrupted = append(t.disrupted, wait{node: node.Name, reason: rollout.Reason, message: overview.NoteText(rollout)})
	}
	failed := report.HasFailed() || (rollout != nil && rollout.Phase == v1alpha1.RolloutFailed)
	if failed {
		t.counts.Failed++
		t.failed = append(t.failed, node.Name)
	}
	return failed
}

// addExceptions parts what the node cannot take from what other files override.
func (t *tally) addExceptions(node string, report fleet.Report) {
	if report.Has(standing.Unavailable) {
		t.exceptions = append(t.exceptions, node)
	}
	overridden := report.Select(standing.Overridden, standing.OverriddenAtBoot)
	if len(overridden) > 0 {
		t.shadowed = append(t.shadowed, node)
	}
	for _, s := range overridden {
		t.overrides = append(t.overrides, s.String())
	}
}

// addPending notes what of the profile waits for a boot, and whether the node is rebooted for it.
func (t *tally) addPending(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, report fleet.Report, all fleet.Snapshot) {
	pending := report.Keys(standing.PendingReboot)
	if len(pending) == 0 {
		return
	}
	t.counts.PendingReboot++
	waiting := wait{node: node.Name}
	if rollout := clientNode.Status.Rollout; rollout != nil && isStillHeld(rollout.Reason, node, clientNode, all) {
		waiting.reason, waiting.message = rollout.Reason, overview.NoteText(rollout)
	}
	if slices.ContainsFunc(pending, nodesettings.TakesEffectAtBoot) {
		waiting.kept = overview.WhyNotRebooted(node, all.Nodes, clientNode.Spec.Settings, clientNode)
		waiting.due = waiting.kept == ""
	}
	t.pending = append(t.pending, waiting)
	// A node that gets no boot of the rollout's is no canary.
	if last := &t.turns[len(t.turns)-1]; waiting.kept != "" {
		last.Blocked = true
	}
}

// isStillHeld reports whether what keeps a node from its reboot on purpose, by its note, still does: the note is as old as the last pass
// of the rollout. Of other reasons it says nothing.
func isStillHeld(reason string, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, all fleet.Snapshot) bool {
	if restOf[reason] != byChoice {
		return true
	}
	switch reason {
	case v1alpha1.RolloutReasonNeverDisrupt:
		return node.Annotations[v1alpha1.NeverDisruptAnnotation] == v1alpha1.True
	case v1alpha1.RolloutReasonNodePaused:
		return pause.Annotated(node)
	case v1alpha1.ReasonPausedByField, v1alpha1.ReasonPausedByAnnotation:
		return len(all.Profiles.PausedBy(node, clientNode)) > 0
	}
	return slices.ContainsFunc(fleet.SourcesOf(clientNode), func(name string) bool {
		source := all.Profiles.ByName(name)
		return source != nil && (source.Spec.Mode == v1alpha1.ModePlan || source.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever)
	})
}

// dispute notes the keys that the profile and others of its priority disagree about, and reports whether there are any.
func (t *tally) addConflicts(profile *fleet.Profile, wanted fleet.Wanted) bool {
	disputed := false
	for _, conflict := range wanted.Conflicts {
		if !slices.Contains(conflict.Profiles, profile.Name) {
			continue
		}
		disputed = true
		outcome := "not set"
		if conflict.Kept != "" {
			outcome = "keeping " + conflict.Kept
		}
		t.conflicts = append(t.conflicts, fmt.Sprintf("%s: profiles %s want %s (%s)",
			conflict.Key, text.InOrder(conflict.Profiles, ", "), text.InOrder(conflict.Values, " and "), outcome))
	}
	for _, key := range wanted.Omitted {
		if slices.ContainsFunc(nodesettings.Settings(profile.StorageClientProfile), func(s v1alpha1.NodeSetting) bool { return s.Key == key }) {
			disputed = true
			t.conflicts = append(t.conflicts, key+": left out, the node has as many settings as it can take")
		}
	}
	return disputed
}

// place notes where a node stands in the order of the rollout.
func (t *tally) addTurn(node *corev1.Node, wanted fleet.Wanted) {
	t.turns = append(t.turns, overview.TurnOf(node, wanted.BootHash, t.managerNode))
}

// addPlanned counts a node of a profile in mode Plan: what it would need, had it to carry the settings. all has the profile act.
func (t *tally) addPlanned(profile *fleet.Profile, node *corev1.Node, all fleet.Snapshot) {
	t.counts.Matched++
	clientNode := all.ClientNodes[node.Name]
	wanted := all.Profiles.Wanted(node, clientNode)
	t.addTurn(node, wanted)
	if reboot, due := t.addPlan(profile, node, clientNode, wanted, all); due {
		t.counts.PendingReboot++
		waiting := wait{node: node.Name, due: !reboot.Refused}
		if reboot.Refused {
			waiting.kept = reboot.Held
		}
		t.pending = append(t.pending, waiting)
	}
	inForce := map[string]string{}
	if clientNode != nil && fleet.ReportOf(node, clientNode, all.Ready[node.Name], "").Silent != "" {
		clientNode = nil
	}
	if clientNode != nil {
		t.reported++
		for _, setting := range clientNode.Status.Settings {
			if standing.Of(setting, false) == standing.Effective {
				inForce[setting.Key] = setting.Desired
			}
		}
	}
	missing := false
	for _, setting := range nodesettings.Settings(profile.StorageClientProfile) {
		value, found := inForce[setting.Key]
		missing = missing || !found || value != setting.Value
	}
	if !missing {
		t.counts.UpToDate++
	}
}

// disruptedFor reports whether the mark on a Node says that it is out of service for a profile.
func isDisruptedFor(profile string, node *corev1.Node) bool {
	mark, marked := node.Annotations[v1alpha1.DisruptionAnnotation]
	if !marked {
		return false
	}
	disruption, err := v1alpha1.DecodeDisruption(mark)
	return err == nil && disruption.Profile == profile
}
