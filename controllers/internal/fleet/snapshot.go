package fleet

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/tuning/servermap"
	"github.com/storageclient/operator/tuning/standing"
)

// Snapshot contains all nodes at one time. Its objects belong to the cache and must not be changed.
type Snapshot struct {
	Profiles *ProfileSet
	Nodes    []*corev1.Node
	// ClientNodes contains the StorageClientNodes by the name of their node.
	ClientNodes map[string]*v1alpha1.StorageClientNode
	// Ready contains the nodes whose agent's Pod is Ready.
	Ready map[string]bool
	// concerned returns the nodes that each profile concerns, computed once for all profiles; nil: computed each time.
	concerned func() concernedNodes
}

// concernedNodes contains nodes by the names of the profiles that concern them, and the profiles used for that.
type concernedNodes struct {
	profiles *ProfileSet
	nodes    map[string][]*corev1.Node
}

// ForAllProfiles returns the snapshot with its profiles, prepared for queries about each of hundreds of profiles.
func (s Snapshot) ForAllProfiles(profiles *ProfileSet) Snapshot {
	s.Profiles = profiles
	s.concerned = sync.OnceValue(func() concernedNodes {
		found := concernedNodes{profiles: profiles, nodes: map[string][]*corev1.Node{}}
		for _, node := range nodesByName(s.Nodes) {
			for _, profile := range profiles.Concerning(node, s.ClientNodes[node.Name]) {
				found.nodes[profile.Name] = append(found.nodes[profile.Name], node)
			}
		}
		return found
	})
	return s
}

// Concerned returns the nodes that a profile selects, and the nodes that have its settings, by name. The caller must not change the slice.
func (s Snapshot) Concerned(profile *Profile) []*corev1.Node {
	if s.concerned != nil {
		if known := s.concerned(); known.profiles.selectsAs(profile) {
			return known.nodes[profile.Name]
		}
	}
	return slices.DeleteFunc(nodesByName(s.Nodes), func(node *corev1.Node) bool {
		return !profile.Selects(node) && !CarriesSettingsOf(profile.Name, s.ClientNodes[node.Name])
	})
}

// selectsAs reports whether the set has the profile, with its current selector.
func (s *ProfileSet) selectsAs(profile *Profile) bool {
	known := s.byName[profile.Name]
	return known == profile || known != nil && known.UID == profile.UID && known.Generation == profile.Generation && known.Generation != 0
}

func nodesByName(nodes []*corev1.Node) []*corev1.Node {
	return slices.SortedFunc(slices.Values(nodes), func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
}

// Gates contains all nodes for the gates of live changes.
type Gates struct {
	// Nodes are the nodes of each profile, in the order of the snapshot. Ignored nodes, and nodes without settings, are not included.
	Nodes map[string][]*livegate.Node
	// Managed are the nodes of the cluster that have settings.
	Managed []*livegate.Node
}

// GatesOf evaluates each node once for all profiles.
func GatesOf(all Snapshot, untunedTaint string) Gates {
	gates := Gates{Nodes: map[string][]*livegate.Node{}, Managed: make([]*livegate.Node, 0, len(all.Nodes))}
	canaries := map[string]func(map[string]string) bool{}
	for _, node := range all.Nodes {
		clientNode := all.ClientNodes[node.Name]
		if !node.DeletionTimestamp.IsZero() || match.IsIgnored(node) {
			continue
		}
		entry := GateEntry(all, node, clientNode, untunedTaint)
		if entry.Managed {
			gates.Managed = append(gates.Managed, &entry)
		}
		wanted := all.Profiles.Desired(node, clientNode)
		if !wanted.Managed || (clientNode == nil && wanted.Hash == "") {
			continue
		}
		entry.Desired = wanted.Hash
		for _, profile := range all.Profiles.Concerning(node, clientNode) {
			if canaries[profile.Name] == nil {
				canaries[profile.Name] = CanaryMatcher(profile)
			}
			ofProfile := entry
			ofProfile.Canary = canaries[profile.Name](node.Labels)
			gates.Nodes[profile.Name] = append(gates.Nodes[profile.Name], &ofProfile)
		}
	}
	return gates
}

// CanaryMatcher matches the labels of the nodes that a profile chooses for its canary; no labels if it has no canary selector.
func CanaryMatcher(profile *Profile) func(map[string]string) bool {
	return match.LabelMatcher(profile.Spec.WithDefaults().Rollout.Canary.NodeSelector)
}

// GateEntry returns the input of a node for the gate of live changes, except Wanted and Canary. A node with the taint has no workload yet.
func GateEntry(all Snapshot, node *corev1.Node, clientNode *v1alpha1.StorageClientNode, untunedTaint string) livegate.Node {
	paused := match.IsPaused(node) || len(all.Profiles.PausedBy(node, clientNode)) > 0
	entry := livegate.Node{Name: node.Name, Created: node.CreationTimestamp.Time, Alive: !paused && agentpod.IsNodeReady(node)}
	entry.Empty = slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == untunedTaint })
	if clientNode == nil {
		return entry
	}
	report := ReportOf(node, clientNode, all.Ready[node.Name], "")
	entry.Managed = !clientNode.Spec.Release
	entry.Current = clientNode.Spec.Hash
	entry.Alive = entry.Alive && report.Silent == ""
	entry.Applied = report.IsSettled()
	entry.Unconfirmed = cmp.Or(report.UnprovenNote(), standing.Describe(report.Select(standing.Drifted, standing.Unstaged)))
	if report.Silent != "" && IsAgentSilent(node) {
		entry.Unconfirmed = report.Silent
		entry.SilentSince = SilentSince(node)
		entry.NeverStarted = clientNode.Status.BootID == "" && agentpod.IsNodeReady(node)
	}
	entry.Failed = !report.Applying && report.HasFailed()
	entry.Accuser, entry.Servers = servermap.NameOn(node.Name, report.Accuser()), &clientNode.Status.Servers
	if report.Silent == "" && report.Soaks() {
		entry.AppliedSince = tunedSince(clientNode)
	}
	return entry
}

// tunedSince returns the time since which the node has had the settings of its StorageClientNode, from the rollout's note. It is zero if the note
// has no such time, or is about other settings. An edit of a profile takes effect once the StorageClientNode contains the new settings: the gate
// does not count the time of nodes with outdated settings.
func tunedSince(clientNode *v1alpha1.StorageClientNode) time.Time {
	rollout := clientNode.Status.Rollout
	if rollout == nil || rollout.Tuned == nil || rollout.Tuned.Hash != clientNode.Spec.Hash {
		return time.Time{}
	}
	return rollout.Tuned.Since.Time
}

// IsAgentSilent reports whether the condition Tuned shows that the node's agent has been silent for longer than a restart needs.
func IsAgentSilent(node *corev1.Node) bool {
	condition := FindTuned(node)
	return condition != nil && condition.Reason == v1alpha1.NodeReasonAgentSilent
}

// SilentSince returns the time since which the condition Tuned shows that the agent is silent; zero if it does not.
func SilentSince(node *corev1.Node) time.Time {
	if !IsAgentSilent(node) {
		return time.Time{}
	}
	return FindTuned(node).LastTransitionTime.Time
}
