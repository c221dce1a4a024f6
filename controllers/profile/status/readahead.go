package status

import (
	"slices"

	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/controllers/volume/judge"
)

// addUnread returns the nodes with a mount that does not have its declared read-ahead, or whose agent may not know it yet. It records other nodes
// that get it only after the end of their pause as paused.
func (t *tally) addUnread(s Snapshot, windows map[string]judge.ReadAhead) (unread []string) {
	for _, node := range s.All.Nodes {
		clientNode := s.All.ClientNodes[node.Name]
		if len(windows) == 0 || clientNode == nil || match.IsIgnored(node) {
			continue
		}
		listed := map[string]int32{}
		for _, v := range clientNode.Spec.Volumes {
			listed[v.Name] = ptr.Deref(v.ReadAheadKiB, 0)
		}
		isUnread, isPaused := false, false
		for _, m := range clientNode.Status.Mounts {
			w, declared := windows[m.Volume]
			switch {
			case !declared:
			case listed[m.Volume] == w.KiB:
				isUnread = isUnread || !w.IsOn(m) || clientNode.Status.ObservedGeneration < clientNode.Generation && m.ReadAheadKiB == 0
			case s.MayGetReadAhead == nil || s.MayGetReadAhead(m.Volume, node.Name):
				isPaused = pause.IsAnnotated(node)
				isUnread = isUnread || !isPaused
			}
		}
		if isUnread {
			unread = append(unread, node.Name)
		} else if w := (waitingNode{node: node.Name, message: nodeAnnotated}); isPaused && !slices.Contains(t.paused, w) {
			t.paused = append(t.paused, w)
		}
	}
	return unread
}
