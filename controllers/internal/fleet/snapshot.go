package fleet

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
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
