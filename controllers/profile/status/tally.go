package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/standing"
	"github.com/storageclient/operator/tuning/text"
)

func pausedMessage(node *corev1.Node) string {
	return "the Node has the annotation " + v1alpha1.PausedAnnotation + v1alpha1.OddStop(node, v1alpha1.PausedAnnotation)
}

// waitingNode is a node that the rollout disrupts, or that waits for a boot, with the text of its note.
type waitingNode struct {
	node, reason, message string
	// isDue is true if the node must be rebooted: it waits for a setting that a plan hash covers.
	isDue bool
	// skipReason is the reason why the rollout does not reboot the node for it now, empty if it does.
	skipReason string
}

// planned is a node that the plan reboots; held is the reason on the Node that prevents it for now.
type planned struct{ node, hold string }

// tally contains the counts and lists of a profile's nodes. Lists are in the order of the nodes' names.
type tally struct {
	counts v1alpha1.NodeCounts
	// behind have not applied the settings yet, silent have no current agent report, ignored are not managed. excluded are control-plane nodes.
	behind, silent, ignored, excluded, failed, drifted, exceptions []string
	// shadowed are the exceptions where other files override settings, overrides are these settings and files.
	shadowed, overrides []string
	// failedBefore is the number of earlier failures that are not named; lost are the failed nodes that are gone, the latest first.
	failedBefore int
	lost         []v1alpha1.LostNode
	// unset are the reasons why volumes do not have their read-ahead on nodes that failed.
	unset []string
	// stuck is the subset of behind that waits for a failed canary of the profile (reason CanaryFailed), or for the end of another failure (message).
	// stuckBy is the first node with such a failure.
	stuck   []waitingNode
	stuckBy string
	// disputed is the number of failedLive by the word of one storage server alone. See livegate.Decision.
	disputed int
	// pending wait for a boot for the profile's settings to take effect.
	pending []waitingNode
	// planned are the nodes that the plan reboots, whether or not they have been given their settings yet.
	planned []planned
	// paused are behind and paused: by the Node's annotation, or with another profile.
	paused []waitingNode
	// disrupted are the nodes that the rollout disrupts, with its current step or the reason for a wait.
	disrupted []waitingNode
	// conflicts describe the keys about which profiles of equal priority disagree, once each.
	conflicts []string
	// turns contains the order of the rollout for all nodes that the profile may change.
	turns       []match.Turn
	managerNode string
	// failedBoots are the failed nodes that failed their reboot, failedLive the nodes on which settings failed. failedReadAheads is the number of
	// nodes that failed each read-ahead. idle is the number of failedBoots that stay cordoned, and count as disrupted.
	failedBoots, failedLive []string
	failedReadAheads        map[judge.ReadAhead]int
	idle                    int32
	// reported is the number of nodes whose agents report.
	reported int
}

// countNodes counts every node that a profile selects. managerNode is the node of the manager.
func countNodes(profile *fleet.Profile, all fleet.Snapshot, managerNode string) tally {
	sum := tally{managerNode: managerNode}
	inPlanMode := profile.Phase == match.Held && profile.Spec.Mode == v1alpha1.ModePlan
	if inPlanMode {
		all.Profiles = all.Profiles.Acting(profile.Name)
	}
	for _, node := range selectedNodes(profile, all) {
		switch {
		case match.IsIgnored(node):
			sum.ignored = append(sum.ignored, node.Name)
		case inPlanMode:
			sum.addPlanned(profile, node, all)
		default:
			sum.addNode(profile, node, all)
		}
	}
	sum.excluded = lists.Each(lists.Filter(all.Nodes, profile.LacksControlPlane), func(node *corev1.Node) string { return node.Name })
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
	wanted := all.Profiles.Desired(node, clientNode)
	t.addPlan(profile, node, clientNode, wanted, all)
	disputed := t.addConflicts(profile, wanted)
	d, err := v1alpha1.DecodeDisruption(node.Annotations[v1alpha1.DisruptionAnnotation])
	isDisrupted := err == nil && d.Profile == profile.Name
	if isDisrupted {
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
	failed := t.addStates(node, clientNode, report, wanted)
	if isDisrupted && slices.Contains(t.failedBoots, node.Name) {
		t.idle++
	}
	t.addPending(node, clientNode, report, all)
	switch {
	case failed:
	case report.Silent != "":
		t.silent = append(t.silent, node.Name)
	case profile.Phase == match.Held:
		// The profile is invalid: the settings of the node do not come from its current declaration.
	case !hasApplied(profile.Name, wanted, clientNode):
		t.addBehind(profile, node, clientNode, all)
	case report.Has(standing.Applying, standing.Proving, standing.Unproven):
		t.behind = append(t.behind, node.Name)
	case isTuned(report) && !disputed:
		t.counts.UpToDate++
	}
}

// isTuned is IsTuned of package fleet, but ignores whether the node still applies changes of other profiles.
func isTuned(report fleet.Report) bool {
	report.Applying = false
	return report.IsTuned()
}

// hasApplied reports whether a node has exactly the settings of one profile, and its agent has reported on them. The restore of removed settings
// shows only in the hash, which covers all profiles of the node. So the hash counts only if the node has no other profile.
func hasApplied(profile string, wanted fleet.Desired, clientNode *v1alpha1.StorageClientNode) bool {
	if clientNode.Spec.Release || clientNode.Status.ObservedGeneration == 0 {
		return false
	}
	if slices.Equal(wanted.Profiles, []string{profile}) {
		return clientNode.Spec.Hash == wanted.Hash && clientNode.Status.Hash == clientNode.Spec.Hash
	}
	entry := func(setting v1alpha1.NodeSetting) (key, value string) { return setting.Key, setting.Value }
	desired, current := lists.Map(wanted.Settings, entry), lists.Map(clientNode.Spec.Settings, entry)
	reported := lists.Map(clientNode.Status.Settings, func(s v1alpha1.SettingStatus) (string, string) { return s.Key, s.Desired })
	// Another profile may declare the same value of a setting: then it may become the profile of the setting.
	return !slices.ContainsFunc(slices.Concat(overview.SettingsOf(profile, wanted.Settings), overview.SettingsOf(profile, clientNode.Spec.Settings)), func(s v1alpha1.NodeSetting) bool {
		return desired[s.Key] != s.Value || current[s.Key] != s.Value || reported[s.Key] != s.Value
	})
}

// addBehind records a node that has not applied its settings yet. If it is paused, it will not apply them before the pause ends.
func (t *tally) addBehind(profile *fleet.Profile, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, all fleet.Snapshot) {
	if profile.Phase == match.Held {
		return
	}
	otherProfiles := slices.DeleteFunc(all.Profiles.PausedBy(node, clientNode), func(name string) bool { return name == profile.Name })
	switch {
	case match.IsPaused(node):
		t.paused = append(t.paused, waitingNode{node: node.Name, message: pausedMessage(node)})
	case len(otherProfiles) > 0 && !profile.Paused:
		t.paused = append(t.paused, waitingNode{node: node.Name, message: "paused by StorageClientProfile " + text.List(otherProfiles)})
	default:
		t.behind = append(t.behind, node.Name)
	}
}

// addStuck finds the nodes that get no settings until a user resolves a failure. A node changes only if the gates of all its profiles admit it. A
// gate counts the failures of all settings on its nodes, whatever profile declares them.
func (t *tally) addStuck(profile *fleet.Profile, all fleet.Snapshot, now time.Time) {
	if len(t.behind) == 0 && t.disputed == 0 {
		return
	}
	gates := map[string]livegate.Decision{}
	t.disputed = len(lists.Filter(t.failedLive, func(name string) bool { return evaluateGate(gates, profile, all, now).Disputed[name] }))
	behind := sets.New(t.behind...)
	for _, node := range all.Concerned(profile) {
		if !behind.Has(node.Name) {
			continue
		}
		for _, name := range append([]string{profile.Name}, all.Profiles.Desired(node, all.ClientNodes[node.Name]).Profiles...) {
			gate := evaluateGate(gates, all.Profiles.ByName(name), all, now)
			failed, isStuck := gate.Stuck[node.Name]
			if !isStuck {
				continue
			}
			stuck := waitingNode{node: node.Name, message: gate.Notes[node.Name]}
			switch {
			case name != profile.Name:
				stuck.message = "StorageClientProfile " + name + ": " + stuck.message
			case !gate.Stopped && slices.Contains(t.failed, failed):
				stuck.reason = v1alpha1.RolloutReasonCanaryFailed
			}
			t.stuck, t.stuckBy = append(t.stuck, stuck), cmp.Or(t.stuckBy, failed)
			break
		}
	}
}

// evaluateGate returns the decision of a profile's live gate, and adds it to the known ones. It is empty if no setting has failed on a node of the
// profile: then no node is stuck.
func evaluateGate(known map[string]livegate.Decision, profile *fleet.Profile, all fleet.Snapshot, now time.Time) livegate.Decision {
	gate, isKnown := known[profile.Name]
	if isKnown {
		return gate
	}
	all.Nodes = all.Concerned(profile)
	if slices.ContainsFunc(all.Nodes, func(node *corev1.Node) bool {
		clientNode := all.ClientNodes[node.Name]
		return clientNode != nil && standing.Read(&clientNode.Spec, &clientNode.Status, "").HasFailed()
	}) {
		gate = livegate.Admit(fleet.GatesOf(all, "").Nodes[profile.Name], livegate.PolicyOf(profile.Spec.WithDefaults().Rollout), now)
	}
	known[profile.Name] = gate
	return gate
}

// addPlan records the turn of a node, and whether the plan reboots it. The plugin command "plan" uses the same logic.
func (t *tally) addPlan(profile *fleet.Profile, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, wanted fleet.Desired, all fleet.Snapshot,
) (reboot overview.Reboot, isDue bool) {
	t.turns = append(t.turns, overview.TurnOf(node, wanted.BootHash, t.managerNode))
	reboot, isDue = overview.RebootOf(profile.StorageClientProfile, node, all.Nodes, wanted.Result, clientNode)
	switch {
	case !isDue:
	case reboot.Refused:
		t.turns[len(t.turns)-1].Blocked = true
	default:
		t.planned = append(t.planned, planned{node: node.Name, hold: reboot.Held})
	}
	return reboot, isDue
}

// addStates counts a node by the states of the profile's settings, and reports whether the node has failed.
func (t *tally) addStates(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, report fleet.Report, wanted fleet.Desired) bool {
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
		t.disrupted = append(t.disrupted, waitingNode{node: node.Name, reason: rollout.Reason, message: overview.NoteText(rollout)})
	}
	atBoot, live := hasFailed(node, clientNode, report, wanted)
	if !atBoot && !live {
		return false
	}
	t.counts.Failed++
	t.failed = append(t.failed, node.Name)
	if atBoot {
		t.failedBoots = append(t.failedBoots, node.Name)
	}
	if live {
		t.failedLive = append(t.failedLive, node.Name)
		if report.Accuser() != "" {
			t.disputed++
		}
	}
	return true
}

// hasFailed reports whether a node has failed its reboot, and whether settings have failed on it. A failure of earlier settings does not count if the
// node has others by now, or is about to get them. A node that is down gets none, and its failure stops the rollout.
func hasFailed(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, report fleet.Report, wanted fleet.Desired) (atBoot, live bool) {
	settings, bootHash := clientNode.Spec.Settings, clientNode.Spec.BootHash
	if report.Silent == "" && agentpod.IsNodeReady(node) {
		settings, bootHash = wanted.Settings, wanted.BootHash
	}
	note := clientNode.Status.Rollout
	atBoot = note != nil && note.Phase == v1alpha1.RolloutFailed && note.BootHash == targetOf(clientNode) && bootHash == clientNode.Spec.BootHash
	failed := report.Keys(standing.Failed)
	// The live gate also counts a node whose settings are withheld.
	return atBoot, atBoot && report.Withheld || slices.ContainsFunc(clientNode.Status.Settings, func(s v1alpha1.SettingStatus) bool {
		return slices.Contains(failed, s.Key) &&
			slices.ContainsFunc(settings, func(current v1alpha1.NodeSetting) bool { return current.Key == s.Key && current.Value == s.Desired })
	})
}

// addExceptions separates settings that the node does not support from settings that other files override.
func (t *tally) addExceptions(node string, report fleet.Report) {
	if report.Has(standing.Unavailable) {
		t.exceptions = append(t.exceptions, node)
	}
	overridden := report.Select(standing.Overridden, standing.OverriddenAtBoot)
	if len(overridden) > 0 {
		t.shadowed = append(t.shadowed, node)
	}
	t.overrides = append(t.overrides, lists.Each(overridden, standing.Setting.String)...)
}

// addPending records the settings of the profile that wait for a boot, and whether the node is rebooted for them.
func (t *tally) addPending(node *corev1.Node, clientNode *v1alpha1.StorageClientNode, report fleet.Report, all fleet.Snapshot) {
	pending := report.Keys(standing.PendingReboot)
	if len(pending) == 0 {
		return
	}
	t.counts.PendingReboot++
	waiting := waitingNode{node: node.Name}
	if rollout := clientNode.Status.Rollout; rollout != nil && rollout.BootHash == targetOf(clientNode) && isStillHeld(rollout.Reason, node, clientNode, all) {
		waiting.reason, waiting.message = rollout.Reason, overview.NoteText(rollout)
	}
	if slices.ContainsFunc(pending, nodesettings.TakesEffectAtBoot) {
		waiting.skipReason = overview.NoRebootReason(node, all.Nodes, clientNode.Spec.Settings, clientNode)
		waiting.isDue = waiting.skipReason == ""
	}
	t.pending = append(t.pending, waiting)
	if waiting.skipReason != "" {
		// A node that the rollout does not reboot is no canary.
		t.turns[len(t.turns)-1].Blocked = true
	}
}

// isStillHeld reports whether the intentional reason in a node's note still prevents its reboot: the note is as old as the last pass of the
// rollout. It returns true for all other reasons.
func isStillHeld(reason string, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, all fleet.Snapshot) bool {
	if restOf[reason] != byChoice {
		return true
	}
	switch reason {
	case v1alpha1.RolloutReasonNeverDisrupt:
		return v1alpha1.IsStopped(node, v1alpha1.NeverDisruptAnnotation)
	case v1alpha1.RolloutReasonNodePaused:
		return match.IsPaused(node)
	case v1alpha1.ReasonPausedByField, v1alpha1.ReasonPausedByAnnotation:
		return len(all.Profiles.PausedBy(node, clientNode)) > 0
	}
	return slices.ContainsFunc(all.Profiles.Carried(clientNode), func(p *fleet.Profile) bool {
		return p.Spec.Mode == v1alpha1.ModePlan || p.Spec.Rollout.Reboot.Policy == v1alpha1.RebootNever
	})
}

// addConflicts records the keys about which the profile and others of its priority disagree, and reports whether there are any.
func (t *tally) addConflicts(profile *fleet.Profile, wanted fleet.Desired) bool {
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
			t.conflicts = append(t.conflicts, key+": not applied; the node has the maximum number of settings")
		}
	}
	return disputed
}

// addPlanned counts a node of a profile in mode Plan, as if the node had to have the settings. In all, the profile is active.
func (t *tally) addPlanned(profile *fleet.Profile, node *corev1.Node, all fleet.Snapshot) {
	t.counts.Matched++
	clientNode := all.ClientNodes[node.Name]
	wanted := all.Profiles.Desired(node, clientNode)
	if reboot, isDue := t.addPlan(profile, node, clientNode, wanted, all); isDue {
		t.counts.PendingReboot++
		waiting := waitingNode{node: node.Name, isDue: !reboot.Refused}
		if reboot.Refused {
			waiting.skipReason = reboot.Held
		}
		t.pending = append(t.pending, waiting)
	}
	inForce := map[string]string{}
	if clientNode != nil && fleet.ReportOf(node, clientNode, all.Ready[node.Name], "").Silent == "" {
		t.reported++
		for _, setting := range clientNode.Status.Settings {
			if standing.Of(setting, false) == standing.Effective {
				inForce[setting.Key] = setting.Desired
			}
		}
	}
	if !slices.ContainsFunc(nodesettings.Settings(profile.StorageClientProfile), func(setting v1alpha1.NodeSetting) bool {
		value, found := inForce[setting.Key]
		return !found || value != setting.Value
	}) {
		t.counts.UpToDate++
	}
}

// excludedText names the control-plane nodes that the installation excludes; empty if there are none.
func (t tally) excludedText() string {
	return text.Labelled("; control-plane nodes are excluded without the component control-plane: ", text.List(t.excluded))
}

// addUnread returns the nodes with a mount that does not have its declared read-ahead, or whose agent may not know it yet. It records nodes that cannot
// have it as failed or as exceptions, and other nodes that get it only after the end of their pause as paused.
func (t *tally) addUnread(s Snapshot, windows map[string]judge.ReadAhead) (unread []string) {
	t.failedReadAheads = map[judge.ReadAhead]int{}
	for _, node := range s.All.Nodes {
		clientNode := s.All.ClientNodes[node.Name]
		if len(windows) == 0 || clientNode == nil || match.IsIgnored(node) {
			continue
		}
		listed := map[string]int32{}
		for _, v := range clientNode.Spec.Volumes {
			listed[v.Name] = ptr.Deref(v.ReadAheadKiB, 0)
		}
		// found are mounts by the state of their window. Shadowed is a wait for the end of a pause.
		found, failed := map[v1alpha1.SettingState]*v1alpha1.MountStatus{}, sets.New[judge.ReadAhead]()
		isSeen := clientNode.Status.ObservedGeneration >= clientNode.Generation
		for i := range clientNode.Status.Mounts {
			m := &clientNode.Status.Mounts[i]
			w, declared := windows[m.Volume]
			switch {
			case !declared:
			case listed[m.Volume] == w.KiB:
				state := w.StateOn(*m)
				if !isSeen && (m.ReadAheadKiB == 0 || state != v1alpha1.SettingInSync) {
					state = v1alpha1.SettingPending
				}
				found[state] = cmp.Or(found[state], m)
				if state == v1alpha1.SettingFailed {
					failed.Insert(w)
				}
			case s.MayGetReadAhead != nil && !s.MayGetReadAhead(m.Volume, node.Name):
			case match.IsPaused(node):
				found[v1alpha1.SettingShadowed] = m
			default:
				found[v1alpha1.SettingPending] = m
			}
		}
		for w := range failed {
			t.failedReadAheads[w]++
		}
		for state, list := range map[v1alpha1.SettingState]*[]string{v1alpha1.SettingFailed: &t.failed, v1alpha1.SettingUnsupported: &t.exceptions} {
			if found[state] != nil && !slices.Contains(*list, node.Name) {
				*list = append(*list, node.Name)
			}
		}
		if m := found[v1alpha1.SettingFailed]; m != nil {
			t.unset = append(t.unset, fmt.Sprintf("readAheadKiB of %s on %s: %s", m.Volume, node.Name, m.Message))
		}
		if found[v1alpha1.SettingPending] != nil {
			unread = append(unread, node.Name)
		} else if w := (waitingNode{node: node.Name, message: pausedMessage(node)}); found[v1alpha1.SettingShadowed] != nil && !slices.Contains(t.paused, w) {
			t.paused = append(t.paused, w)
		}
	}
	t.counts.Failed, t.counts.Exceptions = int32(len(t.failed)+t.failedBefore), int32(sets.New(slices.Concat(t.exceptions, t.shadowed)...).Len())
	return unread
}
