package profile

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/order"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// wait is a node that the rollout holds, or that waits for a boot, and what the rollout says of it.
type wait struct {
	node, reason, message string
	// due is true where the node is to be rebooted: it waits for something that a plan hash covers.
	due bool
}

// tally is what a profile's nodes come to. Lists hold names in the order of the nodes' names.
type tally struct {
	counts v1alpha1.NodeCounts
	// behind have not taken the settings yet, silent are not heard of, ignored are left alone.
	behind, silent, ignored, failed, drifted, exceptions []string
	// pending wait for a boot for the profile's settings to take effect.
	pending []wait
	// disrupted are those that the rollout holds, with what it does there or waits for.
	disrupted []wait
	// conflicts says which keys profiles of equal priority disagree about, once each.
	conflicts []string
	// turns place all nodes that the profile may change in the order of the rollout.
	turns []order.Turn
	// managerNode is the manager's own.
	managerNode string
	// reported is how many nodes' agents are heard of.
	reported int
}

// count looks at every node that a profile selects. managerNode is the manager's own.
func count(profile *fleet.Profile, all fleet.Snapshot, managerNode string) tally {
	sum := tally{managerNode: managerNode}
	nodes := slices.Clone(all.Nodes)
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for i := range nodes {
		node := &nodes[i]
		switch {
		case !profile.Selects(node):
		case match.Ignored(node):
			sum.ignored = append(sum.ignored, node.Name)
		case profile.Standing == match.Held && profile.Spec.Mode == v1alpha1.ModePlan:
			sum.foresee(profile, node, all)
		default:
			sum.add(profile, node, all)
		}
	}
	slices.Sort(sum.conflicts)
	sum.conflicts = slices.Compact(sum.conflicts)
	return sum
}

func (t *tally) add(profile *fleet.Profile, node *corev1.Node, all fleet.Snapshot) {
	t.counts.Matched++
	scn := all.Objects[node.Name]
	wanted := all.View.Wanted(node, scn)
	t.place(node, wanted)
	disputed := t.dispute(profile, wanted)
	if disruptedFor(profile.Name, node) {
		t.counts.Disrupted++
	}
	if scn == nil {
		t.behind = append(t.behind, node.Name)
		return
	}
	report := fleet.Look(node, scn, all.Ready[node.Name], profile.Name)
	current := scn.Spec.Hash == wanted.Hash && !scn.Spec.Release && !report.Applying
	if report.Silent == "" {
		t.reported++
	}
	failed := t.addStates(node.Name, scn, report)
	switch {
	case failed:
	case report.Silent != "":
		t.silent = append(t.silent, node.Name)
	case !current:
		t.behind = append(t.behind, node.Name)
	case report.Tuned() && !disputed:
		t.counts.UpToDate++
	}
}

// addStates counts a node by the states of the profile's settings, and reports whether the node has failed.
func (t *tally) addStates(node string, scn *v1alpha1.StorageClientNode, report fleet.Report) bool {
	rollout := scn.Status.Rollout
	if len(report.Exceptions) > 0 {
		t.counts.Exceptions++
		t.exceptions = append(t.exceptions, node)
	}
	if len(report.Drifted) > 0 {
		t.counts.Drifted++
		t.drifted = append(t.drifted, node)
	}
	if rollout != nil && fleet.Disrupted(&corev1.Node{}, scn) {
		t.disrupted = append(t.disrupted, wait{node: node, reason: rollout.Reason, message: rollout.Message})
	}
	if len(report.RebootPending) > 0 {
		t.counts.PendingReboot++
		waiting := wait{node: node, due: slices.ContainsFunc(report.RebootPending, nodesettings.TakesEffectAtBoot)}
		if rollout != nil {
			waiting.reason, waiting.message = rollout.Reason, rollout.Message
		}
		t.pending = append(t.pending, waiting)
	}
	failed := len(report.Failed) > 0 || (rollout != nil && rollout.Phase == v1alpha1.RolloutFailed)
	if failed {
		t.counts.Failed++
		t.failed = append(t.failed, node)
	}
	return failed
}

// dispute notes the keys that the profile and others of its priority disagree about, and reports whether there are any.
func (t *tally) dispute(profile *fleet.Profile, wanted fleet.Wanted) bool {
	disputed := false
	for _, conflict := range wanted.Conflicts {
		if !slices.Contains(conflict.Profiles, profile.Name) {
			continue
		}
		disputed = true
		kept := "nothing is set"
		if conflict.Kept != "" {
			kept = conflict.Kept + " stays"
		}
		t.conflicts = append(t.conflicts, fmt.Sprintf("%s is wanted as %q by profiles %q: %s", conflict.Key, conflict.Values, conflict.Profiles, kept))
	}
	for _, key := range wanted.Omitted {
		if !declares(profile, key) {
			continue
		}
		disputed = true
		t.conflicts = append(t.conflicts, key+" is left out: a node takes no more settings")
	}
	return disputed
}

func declares(profile *fleet.Profile, key string) bool {
	return slices.ContainsFunc(nodesettings.Settings(profile.StorageClientProfile), func(s v1alpha1.NodeSetting) bool { return s.Key == key })
}

// place notes where a node stands in the order of the rollout.
func (t *tally) place(node *corev1.Node, wanted fleet.Wanted) {
	t.turns = append(t.turns, overview.TurnOf(node, wanted.BootHash, t.managerNode))
}

// foresee counts a node of a profile in mode Plan: what it would need, had it to carry the settings. The other profiles
// tell which nodes would get the same.
func (t *tally) foresee(profile *fleet.Profile, node *corev1.Node, all fleet.Snapshot) {
	t.counts.Matched++
	t.place(node, all.View.Wanted(node, all.Objects[node.Name]))
	inForce := map[string]string{}
	if scn := all.Objects[node.Name]; scn != nil && fleet.Look(node, scn, all.Ready[node.Name], "").Silent == "" {
		t.reported++
		for _, setting := range scn.Status.Settings {
			if setting.State == v1alpha1.SettingInSync {
				inForce[setting.Key] = setting.Desired
			}
		}
	}
	missing, reboot := false, false
	for _, setting := range nodesettings.Settings(profile.StorageClientProfile) {
		if value, found := inForce[setting.Key]; !found || value != setting.Value {
			missing = true
			reboot = reboot || nodesettings.TakesEffectAtBoot(setting.Key)
		}
	}
	if reboot {
		t.counts.PendingReboot++
		t.pending = append(t.pending, wait{node: node.Name, due: true})
	}
	if !missing {
		t.counts.UpToDate++
	}
}

// disruptedFor reports whether the mark on a Node says that it is out of service for a profile.
func disruptedFor(profile string, node *corev1.Node) bool {
	mark, marked := node.Annotations[v1alpha1.DisruptionAnnotation]
	if !marked {
		return false
	}
	disruption, err := v1alpha1.DecodeDisruption(mark)
	return err == nil && disruption.Profile == profile
}
