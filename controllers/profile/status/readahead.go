package status

import (
	"slices"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/volume/judge"
)

// findUnread returns the nodes with a mount that does not have its declared read-ahead, or whose agent may not know it yet.
func findUnread(s Snapshot, windows map[string]judge.ReadAhead) []string {
	var out []string
	for _, node := range s.All.Nodes {
		clientNode := s.All.ClientNodes[node.Name]
		if len(windows) == 0 || clientNode == nil || match.IsIgnored(node) {
			continue
		}
		listed := map[string]int32{}
		for _, v := range clientNode.Spec.Volumes {
			listed[v.Name] = ptr.Deref(v.ReadAheadKiB, 0)
		}
		if slices.ContainsFunc(clientNode.Status.Mounts, func(m v1alpha1.MountStatus) bool {
			w, declared := windows[m.Volume]
			if !declared {
				return false
			}
			if listed[m.Volume] != w.KiB {
				return s.MayGetReadAhead == nil || s.MayGetReadAhead(m.Volume, node.Name)
			}
			return !w.IsOn(m) || clientNode.Status.ObservedGeneration < clientNode.Generation && m.ReadAheadKiB == 0
		}) {
			out = append(out, node.Name)
		}
	}
	return out
}
