package plan

import (
	"cmp"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// StaleMount is a mount on a node that does not have the options its volume carries. The manager's cache has no mount points.
type StaleMount struct {
	Node, Volume, MountPoint string
	// PodUIDs are the pods that use the mount.
	PodUIDs []string
	// Message says what differs.
	Message string
}

// StaleMounts finds the mounts of a profile's volumes that nodes report as stale, by node and mount point. A difference that rounding or a
// limit accounts for is none: a new mount would show the same.
func StaleMounts(volumes []Volume, clientNodes []*v1alpha1.StorageClientNode) []StaleMount {
	var out []StaleMount
	findStale(carriedBy("", volumes), clientNodes, func(_ string, clientNode *v1alpha1.StorageClientNode, m *v1alpha1.MountStatus, difference string) {
		out = append(out, StaleMount{Node: clientNode.Name, Volume: m.Volume, MountPoint: m.MountPoint, PodUIDs: m.PodUIDs, Message: difference})
	})
	slices.SortFunc(out, func(a, b StaleMount) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.MountPoint, b.MountPoint), cmp.Compare(a.Volume, b.Volume))
	})
	return out
}

// Stale is how many mounts of a profile's volumes are stale, and the nodes that they are on, by name. After a change that may be all there are.
type Stale struct {
	Count int32
	Nodes []string
}

// carried is what volumes carry of profiles: options by the name of the volume, and that of the profile.
type carried map[string]map[string][]string

func carriedBy(profile string, volumes []Volume) carried {
	out := make(carried, len(volumes))
	for _, v := range volumes {
		out[v.Name] = map[string][]string{profile: v.Wanted}
	}
	return out
}

func countStale(all carried, clientNodes []*v1alpha1.StorageClientNode) map[string]Stale {
	out := map[string]Stale{}
	findStale(all, clientNodes, func(profile string, clientNode *v1alpha1.StorageClientNode, _ *v1alpha1.MountStatus, _ string) {
		s := out[profile]
		s.Count++
		if last := len(s.Nodes) - 1; last < 0 || s.Nodes[last] != clientNode.Name {
			s.Nodes = append(s.Nodes, clientNode.Name)
		}
		out[profile] = s
	})
	for _, s := range out {
		slices.Sort(s.Nodes)
	}
	return out
}

// findStale tells of each stale mount, node by node, for each profile that it is stale for.
func findStale(all carried, clientNodes []*v1alpha1.StorageClientNode, tell func(profile string, _ *v1alpha1.StorageClientNode, _ *v1alpha1.MountStatus, difference string)) {
	known := comparisons{}
	for _, clientNode := range clientNodes {
		for k := range clientNode.Status.Mounts {
			m := &clientNode.Status.Mounts[k]
			for profile, wanted := range all[m.Volume] {
				if difference := known.differenceOn(clientNode, wanted, m); m.Volume != "" && difference != "" {
					tell(profile, clientNode, m, difference)
				}
			}
		}
	}
}

// comparisons are the first differences that lists of options have been found to have, empty where there is none. Of hundreds of thousands
// of mounts few have lists of their own: those of one volume, and of many mounts in the cache, are the same.
type comparisons map[comparison]string

// comparison is two lists, by where they are: who holds it keeps them there.
type comparison struct {
	protocol      string
	wanted, shown *string
	lengths       [2]int
}

// differenceOn says what is stale about a mount, "" if nothing is. That is for the node's agent to say, which knows more than the
// options. Where it has not been asked, its node being held by the rollout or the volume new to it, the options tell.
func (c comparisons) differenceOn(clientNode *v1alpha1.StorageClientNode, wanted []string, m *v1alpha1.MountStatus) string {
	switch {
	case m.State == v1alpha1.MountStale:
		return cmp.Or(m.Message, "the node reports the mount as stale")
	case m.State == v1alpha1.MountEffective && hasSeen(clientNode, m.Volume, wanted):
		return ""
	}
	return c.compare(m.Protocol, wanted, m.Options)
}

func addressOf(list []string) *string {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (c comparisons) compare(protocol string, wanted, shown []string) string {
	key := comparison{protocol: protocol, wanted: addressOf(wanted), shown: addressOf(shown), lengths: [2]int{len(wanted), len(shown)}}
	difference, known := c[key]
	if !known {
		if outdated := mountoptions.Outdated(protocol, wanted, shown); len(outdated) > 0 {
			difference = outdated[0].String()
		}
		c[key] = difference
	}
	return difference
}

// hasSeen reports whether a node's agent has seen these options among those of the volume.
func hasSeen(clientNode *v1alpha1.StorageClientNode, volume string, wanted []string) bool {
	if clientNode.Status.ObservedGeneration < clientNode.Generation {
		return false
	}
	// The list is sorted.
	i, listed := slices.BinarySearchFunc(clientNode.Spec.Volumes, volume, func(v v1alpha1.NodeVolume, name string) int { return cmp.Compare(v.Name, name) })
	return listed && !slices.ContainsFunc(wanted, func(o string) bool { return !slices.Contains(clientNode.Spec.Volumes[i].MountOptions, o) })
}
