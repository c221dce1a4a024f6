// Package overview tells people what a profile means for nodes: how they stand, and what it would do to them. It is
// pure, and asks the same code as the manager.
package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// Cluster is what the answers rest on.
type Cluster struct {
	Profiles           []v1alpha1.StorageClientProfile
	Nodes              []corev1.Node
	StorageClientNodes []v1alpha1.StorageClientNode
	// Allow is the allow-list that the manager runs with.
	Allow catalogue.AllowList
}

// Node is how one node stands.
type Node struct {
	Name string `json:"name"`
	// Phase, Reason and Message are the rollout's, or the Node's condition Tuned where no rollout speaks.
	Phase   string       `json:"phase"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// Deviation is a setting that some nodes do not have as declared.
type Deviation struct {
	Key      string                `json:"key"`
	Desired  string                `json:"desired"`
	Observed string                `json:"observed"`
	State    v1alpha1.SettingState `json:"state"`
	Message  string                `json:"message,omitempty"`
	// Nodes are sorted.
	Nodes []string `json:"nodes"`
}

// Nodes are the nodes that a profile selects, and those that still carry settings of it, sorted by name.
func Nodes(profile *v1alpha1.StorageClientProfile, c Cluster) []Node {
	var nodes []Node
	for _, m := range members(profile, c) {
		nodes = append(nodes, standing(m))
	}
	return nodes
}

// Deviations are the profile's settings that failed, drifted or cannot be had, by key.
func Deviations(profile *v1alpha1.StorageClientProfile, c Cluster) []Deviation {
	var out []Deviation
	for _, m := range members(profile, c) {
		if m.scn == nil {
			continue
		}
		report := fleet.Look(m.node, m.scn, true, profile.Name)
		keys := slices.Concat(report.Failed, report.Drifted, report.Exceptions)
		for _, s := range m.scn.Status.Settings {
			if slices.Contains(keys, s.Key) {
				out = addDeviation(out, s, m.node.Name)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Deviation) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.State, b.State), cmp.Compare(a.Nodes[0], b.Nodes[0]))
	})
	return out
}

func addDeviation(all []Deviation, s v1alpha1.SettingStatus, node string) []Deviation {
	i := slices.IndexFunc(all, func(d Deviation) bool {
		return d.Key == s.Key && d.Desired == s.Desired && d.Observed == s.Observed && d.State == s.State && d.Message == s.Message
	})
	if i >= 0 {
		all[i].Nodes = append(all[i].Nodes, node)
		return all
	}
	return append(all, Deviation{Key: s.Key, Desired: s.Desired, Observed: s.Observed, State: s.State, Message: s.Message, Nodes: []string{node}})
}

type member struct {
	node     *corev1.Node
	scn      *v1alpha1.StorageClientNode
	selected bool
}

func members(profile *v1alpha1.StorageClientProfile, c Cluster) []member {
	scns := make(map[string]*v1alpha1.StorageClientNode, len(c.StorageClientNodes))
	for i := range c.StorageClientNodes {
		scns[c.StorageClientNodes[i].Name] = &c.StorageClientNodes[i]
	}
	selector := match.SelectorOf(profile)
	var out []member
	for i := range c.Nodes {
		node := &c.Nodes[i]
		m := member{node: node, scn: scns[node.Name], selected: selector.Matches(node) && !match.Ignored(node)}
		if m.selected || fleet.Concerns(profile.Name, m.scn) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b member) int { return strings.Compare(a.node.Name, b.node.Name) })
	return out
}

func standing(m member) Node {
	if m.scn != nil && m.scn.Status.Rollout != nil && m.scn.Status.Rollout.Phase != "" {
		r := m.scn.Status.Rollout
		return Node{Name: m.node.Name, Phase: string(r.Phase), Reason: r.Reason, Message: r.Message, Since: r.Since}
	}
	for _, condition := range m.node.Status.Conditions {
		if condition.Type == v1alpha1.TunedNodeCondition {
			return Node{Name: m.node.Name, Phase: "-", Reason: condition.Reason, Message: condition.Message, Since: condition.LastTransitionTime.DeepCopy()}
		}
	}
	return Node{Name: m.node.Name, Phase: "-", Reason: "NotManaged"}
}

// Group are nodes that get the same settings.
type Group struct {
	Hash     string                 `json:"hash"`
	BootHash string                 `json:"bootHash,omitempty"`
	Settings []v1alpha1.NodeSetting `json:"settings"`
	// Conflicts say where profiles of equal priority disagree, sorted.
	Conflicts []string `json:"conflicts,omitempty"`
	// Nodes are sorted.
	Nodes []string `json:"nodes"`
}

// Reboot is a node that would reboot, and why.
type Reboot struct {
	Node string   `json:"node"`
	Why  []string `json:"why"`
}

// Preview is what a profile would do to its nodes if it acted.
type Preview struct {
	// Refused says why nothing of the profile may be applied, empty if it may.
	Refused string   `json:"refused,omitempty"`
	Groups  []Group  `json:"groups,omitempty"`
	Reboots []Reboot `json:"reboots,omitempty"`
	// PlanHash is what an approval names, empty if the profile has no boot settings.
	PlanHash string `json:"planHash,omitempty"`
	// Approved is true where that plan is approved already.
	Approved bool `json:"approved,omitempty"`
}

// Plan tells what the profile would do, whether or not it is in mode Plan or paused. Nodes that the profile no longer
// selects, and what it would put back on them, are not part of it.
func Plan(profile *v1alpha1.StorageClientProfile, c Cluster) Preview {
	if reason, message := match.Check(profile, c.Allow); reason != "" {
		return Preview{Refused: reason + ": " + message}
	}
	view := fleet.NewView(acting(profile, c.Profiles), c.Allow)
	out := Preview{PlanHash: nodesettings.PlanHash(profile), Approved: fleet.Approved(profile)}
	for _, m := range members(profile, c) {
		if !m.selected {
			continue
		}
		wanted := view.Wanted(m.node, m.scn)
		out.Groups = addToGroup(out.Groups, wanted.Result, m.node.Name)
		if why := rebootsFor(wanted.Settings, m.scn, profile.Spec.Rollout.Reboot.RestoreReboot); len(why) > 0 {
			out.Reboots = append(out.Reboots, Reboot{Node: m.node.Name, Why: why})
		}
	}
	slices.SortStableFunc(out.Groups, func(a, b Group) int { return cmp.Compare(len(b.Nodes), len(a.Nodes)) })
	return out
}

// acting returns the profiles with the given one as it would be in mode Enforce, taken up by the manager.
func acting(profile *v1alpha1.StorageClientProfile, all []v1alpha1.StorageClientProfile) []v1alpha1.StorageClientProfile {
	enforced := profile.DeepCopy()
	enforced.Spec.Mode, enforced.Spec.Paused = v1alpha1.ModeEnforce, false
	controllerutil.AddFinalizer(enforced, v1alpha1.Finalizer)
	others := slices.DeleteFunc(slices.Clone(all), func(p v1alpha1.StorageClientProfile) bool { return p.Name == profile.Name })
	return append(others, *enforced)
}

func addToGroup(groups []Group, result nodesettings.Result, node string) []Group {
	for i := range groups {
		if groups[i].Hash == result.Hash && groups[i].BootHash == result.BootHash {
			groups[i].Nodes = append(groups[i].Nodes, node)
			return groups
		}
	}
	group := Group{Hash: result.Hash, BootHash: result.BootHash, Settings: result.Settings, Nodes: []string{node}}
	for _, c := range result.Conflicts {
		group.Conflicts = append(group.Conflicts, fmt.Sprintf("%s: %s (%s)", c.Key, strings.Join(c.Values, " against "), strings.Join(c.Profiles, ", ")))
	}
	slices.Sort(group.Conflicts)
	return append(groups, group)
}

// rebootsFor says why a node would reboot for its settings: a boot setting that it is not known to have in force, or
// one to be rid of where the profile asks for that.
func rebootsFor(settings []v1alpha1.NodeSetting, scn *v1alpha1.StorageClientNode, restoreReboot bool) []string {
	var why []string
	wanted := map[string]bool{}
	for _, s := range settings {
		wanted[s.Key] = true
		if nodesettings.TakesEffectAtBoot(s.Key) {
			if reason := bootReason(s, scn); reason != "" {
				why = append(why, reason)
			}
		}
	}
	if scn == nil || !restoreReboot {
		return why
	}
	for _, s := range scn.Spec.Settings {
		if nodesettings.TakesEffectAtBoot(s.Key) && !wanted[s.Key] && s.OnRemoval == v1alpha1.DeletionRestore {
			why = append(why, fmt.Sprintf("%s goes, now %s", s.Key, cmp.Or(s.Value, "set")))
		}
	}
	return why
}

// bootReason is empty for a setting that is in force, and for one that cannot be had on the node: it is never staged.
func bootReason(s v1alpha1.NodeSetting, scn *v1alpha1.StorageClientNode) string {
	becomes := fmt.Sprintf("%s becomes %s", s.Key, cmp.Or(s.Value, "set"))
	if scn == nil {
		return becomes + ", now unknown: no agent has reported yet"
	}
	for _, status := range scn.Status.Settings {
		if status.Key != s.Key || status.Desired != s.Value {
			continue
		}
		switch status.State {
		case v1alpha1.SettingInSync, v1alpha1.SettingClamped, v1alpha1.SettingUnsupported:
			return ""
		case v1alpha1.SettingPending, v1alpha1.SettingDrifted, v1alpha1.SettingShadowed, v1alpha1.SettingFailed:
			return becomes + ", now " + cmp.Or(status.Observed, "not set")
		}
	}
	return becomes
}
