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

// Stale tells which mounts are stale.
type Stale struct {
	Count int32
	// Mounts are all of them, by node and mount point.
	Mounts []StaleMount
}

// StaleMounts finds the mounts of a profile's volumes that nodes report as stale. A difference that rounding or a limit
// accounts for is none: a new mount would show the same.
func StaleMounts(volumes []Volume, clientNodes []*v1alpha1.StorageClientNode) Stale {
	wanted := make(map[string][]string, len(volumes))
	for _, v := range volumes {
		wanted[v.Name] = v.Wanted
	}
	var out Stale
	for _, clientNode := range clientNodes {
		for k := range clientNode.Status.Mounts {
			m := &clientNode.Status.Mounts[k]
			options, ours := wanted[m.Volume]
			if !ours || m.Volume == "" {
				continue
			}
			if mount, isStale := staleMountOf(clientNode, options, m); isStale {
				out = out.with(mount)
			}
		}
	}
	out.sort()
	return out
}

func (s Stale) with(mount StaleMount) Stale {
	return Stale{Count: s.Count + 1, Mounts: append(s.Mounts, mount)}
}

func (s Stale) sort() {
	slices.SortFunc(s.Mounts, func(a, b StaleMount) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.MountPoint, b.MountPoint), cmp.Compare(a.Volume, b.Volume))
	})
}

func staleMountOf(clientNode *v1alpha1.StorageClientNode, wanted []string, m *v1alpha1.MountStatus) (StaleMount, bool) {
	message := differenceOn(clientNode, wanted, m)
	return StaleMount{Node: clientNode.Name, Volume: m.Volume, MountPoint: m.MountPoint, PodUIDs: m.PodUIDs, Message: message}, message != ""
}

// differenceOn says what is stale about a mount, "" if nothing is. That is for the node's agent to say, which knows more than the
// options. Where it has not been asked, its node being held by the rollout or the volume new to it, the options tell.
func differenceOn(clientNode *v1alpha1.StorageClientNode, wanted []string, m *v1alpha1.MountStatus) string {
	switch {
	case m.State == v1alpha1.MountStale:
		return cmp.Or(m.Message, "the node reports the mount as stale")
	case m.State == v1alpha1.MountEffective && hasSeen(clientNode, m.Volume, wanted):
		return ""
	}
	if outdated := mountoptions.Outdated(m.Protocol, wanted, m.Options); len(outdated) > 0 {
		return outdated[0].String()
	}
	return ""
}

// hasSeen reports whether a node's agent has seen these options among those of the volume.
func hasSeen(clientNode *v1alpha1.StorageClientNode, volume string, wanted []string) bool {
	return clientNode.Status.ObservedGeneration >= clientNode.Generation && slices.ContainsFunc(clientNode.Spec.Volumes, func(v v1alpha1.NodeVolume) bool {
		return v.Name == volume && !slices.ContainsFunc(wanted, func(o string) bool { return !slices.Contains(v.MountOptions, o) })
	})
}
