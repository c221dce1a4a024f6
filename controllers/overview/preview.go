package overview

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// Group contains nodes that get the same settings.
type Group struct {
	Hash     string                 `json:"hash"`
	BootHash string                 `json:"bootHash,omitempty"`
	Settings []v1alpha1.NodeSetting `json:"settings"`
	// Conflicts describe the disagreements of profiles with equal priority, sorted.
	Conflicts []string `json:"conflicts,omitempty"`
	// Nodes are sorted.
	Nodes []string `json:"nodes"`
}

// Reboot is a node that would reboot, with the reasons.
type Reboot struct {
	Node string `json:"node"`
	// Zone is the zone of the node, empty if it has none.
	Zone    string   `json:"zone,omitempty"`
	Reasons []string `json:"why"`
	// Held is the reason why the node currently cannot be rebooted, empty if it can.
	Held string `json:"held,omitempty"`
	// Refused is true if the rollout never reboots the node for these reasons.
	Refused bool `json:"-"`
}

// Preview contains the changes to the nodes of a profile, as if the profile were active.
type Preview struct {
	// Refused is the reason why the profile may not be applied, empty if it may.
	Refused string  `json:"refused,omitempty"`
	Groups  []Group `json:"groups,omitempty"`
	// Reboots are in the order of the rollout: the canary first, then zone by zone, the manager's node last. Nodes that currently cannot be
	// rebooted come after all others.
	Reboots []Reboot `json:"reboots,omitempty"`
	// NotRebooted are nodes that lack a setting which requires a reboot, but that the rollout does not reboot for it; Held is the reason. They are
	// in the same order.
	NotRebooted []Reboot `json:"notRebooted,omitempty"`
	// Earliest is the earliest time for the first node, based on the profile's windows; nil if no node would reboot, or the windows never open.
	Earliest *metav1.Time `json:"earliest,omitempty"`
	// EstimatedCompletion is the earliest time at which all reboots can be done. It is the manager's estimate in the profile's status, or otherwise a
	// forecast: see ForecastReboots.
	EstimatedCompletion *metav1.Time `json:"estimatedCompletion,omitempty"`
	// PlanHash is the hash that an approval must name, empty if the profile has no settings that require a reboot.
	PlanHash string `json:"planHash,omitempty"`
	// Approved is true if that plan is already approved.
	Approved bool `json:"approved,omitempty"`
}

// Plan returns the changes that the profile would make, even if it is in mode Plan or paused. It does not include nodes that the profile no longer
// selects, nor the restores on them.
func Plan(profile *v1alpha1.StorageClientProfile, c Cluster) Preview {
	if reason, message := match.Check(profile, c.Allow); reason != "" {
		return Preview{Refused: reason + ": " + message}
	}
	otherProfiles := slices.DeleteFunc(slices.Clone(c.Profiles), func(p v1alpha1.StorageClientProfile) bool { return p.Name == profile.Name })
	view := fleet.NewProfileSet(append(otherProfiles, Acting(profile)), c.Allow)
	out := Preview{PlanHash: nodesettings.PlanHash(profile), Approved: fleet.IsPlanApproved(profile)}
	var turns []match.Turn
	reboots := map[string]Reboot{}
	nodes := lists.Pointers(c.Nodes)
	for _, m := range membersOf(profile, c) {
		if !m.selected {
			continue
		}
		wanted := view.Desired(m.node, m.clientNode)
		out.Groups = addToGroup(out.Groups, wanted.Result, m.node.Name)
		turn := TurnOf(m.node, wanted.BootHash, c.ManagerNode)
		if reboot, isDue := RebootOf(profile, m.node, nodes, wanted.Result, m.clientNode); isDue {
			turn.Blocked = turn.Blocked || reboot.Refused
			reboots[m.node.Name] = reboot
		}
		turns = append(turns, turn)
	}
	slices.SortStableFunc(out.Groups, func(a, b Group) int { return cmp.Compare(len(b.Nodes), len(a.Nodes)) })
	out.orderReboots(profile, turns, reboots)
	out.addForecast(profile, c, len(turns))
	return out
}

// orderReboots lists the reboots in the order of the rollout. All nodes count for the choice of the canary.
func (p *Preview) orderReboots(profile *v1alpha1.StorageClientProfile, turns []match.Turn, reboots map[string]Reboot) {
	for _, turn := range match.InTurn(turns, *profile.Spec.WithDefaults().Rollout.Canary) {
		reboot, isDue := reboots[turn.Name]
		switch {
		case !isDue:
		case reboot.Refused:
			p.NotRebooted = append(p.NotRebooted, reboot)
		default:
			p.Reboots = append(p.Reboots, reboot)
		}
	}
}

func (p *Preview) addForecast(profile *v1alpha1.StorageClientProfile, c Cluster, matched int) {
	free := len(lists.Filter(p.Reboots, func(r Reboot) bool { return r.Held == "" }))
	if free == 0 || profile.Spec.WithDefaults().Rollout.Reboot.Policy == v1alpha1.RebootNever {
		return
	}
	forecast := ForecastReboots(profile, free, Fleet{Matched: matched, All: len(c.Nodes), MaxUnavailable: c.MaxUnavailable}, c.Now)
	p.Earliest, p.EstimatedCompletion = WhenKnown(forecast.First), WhenKnown(forecast.Last)
	// The manager's estimate for exactly this plan is based on its flags.
	plan := profile.Status.Plan
	if profile.Status.ObservedGeneration == profile.Generation && plan.Hash == p.PlanHash && int(plan.NodesToReboot) == len(p.Reboots) &&
		plan.EstimatedCompletion != nil && plan.EstimatedCompletion.After(c.Now) {
		p.EstimatedCompletion = plan.EstimatedCompletion
	}
}

// WhenKnown returns a time in whole seconds. Nil if it is zero.
func WhenKnown(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

// TurnOf returns the data that determines a node's place in the order of the rollout. managerNode is the node of the manager, empty if it is
// unknown.
func TurnOf(node *corev1.Node, bootHash, managerNode string) match.Turn {
	return match.Turn{
		Name:     node.Name,
		Created:  node.CreationTimestamp.Time,
		Labels:   node.Labels,
		Zone:     node.Labels[corev1.LabelTopologyZone],
		Manager:  node.Name == managerNode,
		BootHash: bootHash,
		Blocked:  holdReason(node) != "",
	}
}

// holdReason returns the obstacle to the rollout on the Node, empty if there is none. A claimed node may be cordoned or not Ready: the rollout causes
// both.
func holdReason(node *corev1.Node) string {
	_, isClaimed := node.Annotations[v1alpha1.DisruptionAnnotation]
	switch {
	case node.DeletionTimestamp != nil:
		return "node is being deleted"
	case v1alpha1.IsStopped(node, v1alpha1.NeverDisruptAnnotation):
		return "node has the annotation " + v1alpha1.NeverDisruptAnnotation + v1alpha1.OddStop(node, v1alpha1.NeverDisruptAnnotation)
	case match.IsPaused(node):
		return "node has the annotation " + v1alpha1.PausedAnnotation + v1alpha1.OddStop(node, v1alpha1.PausedAnnotation)
	case node.Spec.Unschedulable && !isClaimed:
		return "node was cordoned by another controller or user"
	case !agentpod.IsNodeReady(node) && !isClaimed:
		return "node is not Ready"
	}
	return ""
}

// Acting returns a copy of the profile in mode Enforce, with the manager's finalizer, and not paused.
func Acting(profile *v1alpha1.StorageClientProfile) v1alpha1.StorageClientProfile {
	enforced := profile.DeepCopy()
	enforced.Spec.Mode, enforced.Spec.Paused = v1alpha1.ModeEnforce, false
	delete(enforced.Annotations, v1alpha1.PausedAnnotation)
	if !slices.Contains(enforced.Finalizers, v1alpha1.Finalizer) {
		enforced.Finalizers = append(enforced.Finalizers, v1alpha1.Finalizer)
	}
	return *enforced
}

func addToGroup(groups []Group, result nodesettings.Result, node string) []Group {
	conflicts := lists.Each(result.Conflicts, disputeText)
	slices.Sort(conflicts)
	group := lists.FindOrAdd(&groups, func(g Group) bool { return g.Hash == result.Hash && g.BootHash == result.BootHash },
		Group{Hash: result.Hash, BootHash: result.BootHash, Settings: result.Settings, Conflicts: conflicts})
	group.Nodes = append(group.Nodes, node)
	return groups
}
