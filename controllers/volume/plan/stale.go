package plan

import (
	"cmp"
	"slices"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// StaleMount is a mount on a node without the current options of its volume. The manager's cache has no mount points.
type StaleMount struct {
	Node       string `json:"node"`
	Volume     string `json:"volume"`
	MountPoint string `json:"mountPoint"`
	// Pods are the UIDs of the pods that use the mount.
	Pods []string `json:"pods"`
	// Message describes the difference.
	Message string `json:"message"`
}

// StaleMounts returns the stale mounts of a profile's volumes, from node reports, by node and mount point. It ignores differences due to
// rounding or a limit: a new mount would have them too.
func StaleMounts(volumes []Volume, clientNodes []*v1alpha1.StorageClientNode) []StaleMount {
	var out []StaleMount
	findStale(carriedBy("", volumes), clientNodes, func(_ string, clientNode *v1alpha1.StorageClientNode, m *v1alpha1.MountStatus, difference string) {
		out = append(out, StaleMount{Node: clientNode.Name, Volume: m.Volume, MountPoint: m.MountPoint, Pods: m.PodUIDs, Message: difference})
	})
	slices.SortFunc(out, func(a, b StaleMount) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.MountPoint, b.MountPoint), cmp.Compare(a.Volume, b.Volume))
	})
	return out
}

// Stale is the number of stale mounts of a profile's volumes, and the names of their nodes. After a change, all mounts may be stale.
type Stale struct {
	Count int32
	Nodes []string
}

// carried maps volumes to the options that they carry: by volume name, then by profile name.
type carried map[string]map[string][]string

func carriedBy(profile string, volumes []Volume) carried {
	return lists.Map(volumes, func(v Volume) (string, map[string][]string) { return v.Name, map[string][]string{profile: v.Wanted} })
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

// findStale calls report for each stale mount, node by node, and for each affected profile.
func findStale(
	all carried, clientNodes []*v1alpha1.StorageClientNode,
	report func(profile string, _ *v1alpha1.StorageClientNode, _ *v1alpha1.MountStatus, difference string),
) {
	known := comparisons{}
	for _, clientNode := range clientNodes {
		for k := range clientNode.Status.Mounts {
			m := &clientNode.Status.Mounts[k]
			for profile, wanted := range all[m.Volume] {
				if difference := known.differenceOn(clientNode, wanted, m); m.Volume != "" && difference != "" {
					report(profile, clientNode, m, difference)
				}
			}
		}
	}
}

// comparisons caches the first difference between two lists. Empty if there is none. Hundreds of thousands of mounts share few lists: all
// mounts of one volume, and many mounts in the cache.
type comparisons map[comparison]string

// comparison identifies two lists by their addresses. Its holder keeps the lists alive.
type comparison struct {
	protocol          string
	desired, observed *string
	lengths           [2]int
}

// differenceOn describes why a mount is stale. Empty if it is not. The node's agent decides, since it knows more than the options. If the
// agent has no current spec for the volume, the options decide: the rollout holds its node, or the volume is new there.
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

func (c comparisons) compare(protocol string, desired, observed []string) string {
	key := comparison{protocol: protocol, desired: addressOf(desired), observed: addressOf(observed), lengths: [2]int{len(desired), len(observed)}}
	difference, known := c[key]
	if !known {
		if outdated := mountoptions.Outdated(protocol, desired, observed); len(outdated) > 0 {
			difference = outdated[0].String()
		}
		c[key] = difference
	}
	return difference
}

// hasSeen reports whether a node's agent has seen these options in its entry of the volume.
func hasSeen(clientNode *v1alpha1.StorageClientNode, volume string, wanted []string) bool {
	if clientNode.Status.ObservedGeneration < clientNode.Generation {
		return false
	}
	// The list is sorted.
	i, listed := slices.BinarySearchFunc(clientNode.Spec.Volumes, volume, func(v v1alpha1.NodeVolume, name string) int {
		return cmp.Compare(v.Name, name)
	})
	return listed && !slices.ContainsFunc(wanted, func(o string) bool { return !slices.Contains(clientNode.Spec.Volumes[i].MountOptions, o) })
}
