package volume

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/mountoptions"
)

// StaleMount is a mount on a node that does not have the options its volume carries.
type StaleMount struct {
	Node, Volume, MountPoint string
	// PodUIDs are the pods that use the mount.
	PodUIDs []string
	// Message says what differs.
	Message string
}

// Stale tells which mounts still have old options.
type Stale struct {
	Count int32
	// Mounts are all of them, by node and mount point.
	Mounts []StaleMount
}

// StaleMounts compares the options that a profile's volumes carry with what the nodes report of their mounts. A
// difference that rounding or a limit accounts for is none: a new mount would show the same.
func StaleMounts(volumes []Volume, nodes []v1alpha1.StorageClientNode) Stale {
	wanted := make(map[string][]string, len(volumes))
	for _, v := range volumes {
		wanted[v.Name] = v.Wanted
	}
	var out Stale
	for i := range nodes {
		for _, m := range nodes[i].Status.Mounts {
			options, ours := wanted[m.Volume]
			if !ours || m.Volume == "" {
				continue
			}
			if message := staleness(options, &m); message != "" {
				out.Mounts = append(out.Mounts, StaleMount{Node: nodes[i].Name, Volume: m.Volume, MountPoint: m.MountPoint, PodUIDs: m.PodUIDs, Message: message})
			}
		}
	}
	slices.SortFunc(out.Mounts, func(a, b StaleMount) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.MountPoint, b.MountPoint))
	})
	out.Count = int32(len(out.Mounts))
	return out
}

// staleness says what is old about a mount, "" if nothing is. What the node itself has found counts too: it sees
// transports that were made before a setting changed.
func staleness(wanted []string, m *v1alpha1.MountStatus) string {
	for _, d := range protocolOf(m).Compare(wanted, m.Options) {
		if !d.Limited {
			return fmt.Sprintf("%s is %s, wanted %s: %s", d.Option, cmp.Or(d.Observed, "not shown"), d.Wanted, d.Message)
		}
	}
	if m.State == v1alpha1.MountStale {
		return cmp.Or(m.Message, "the node reports the mount as stale")
	}
	return ""
}

// protocolOf goes by what the mount is, whatever the volume says.
func protocolOf(m *v1alpha1.MountStatus) mountoptions.Protocol {
	switch {
	case strings.HasPrefix(m.Protocol, "SMB"):
		return mountoptions.SMB
	case m.Protocol == "xfs":
		return mountoptions.XFS
	}
	return mountoptions.NFS
}
