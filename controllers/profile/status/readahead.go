package status

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/volume/judge"
)

// addUnread returns the nodes with a mount that does not have its declared read-ahead, or whose agent may not know it yet. It records nodes that cannot
// have it as failed or as exceptions, and other nodes that get it only after the end of their pause as paused.
func (t *tally) addUnread(s Snapshot, windows map[string]judge.ReadAhead) (unread []string) {
	t.failedReadAheads = map[judge.ReadAhead]int{}
	for _, node := range s.All.Nodes {
		clientNode := s.All.ClientNodes[node.Name]
		if len(windows) == 0 || clientNode == nil || match.IsIgnored(node) {
			continue
		}
		listed := map[string]int32{}
		for _, v := range clientNode.Spec.Volumes {
			listed[v.Name] = ptr.Deref(v.ReadAheadKiB, 0)
		}
		// found are mounts by the state of their window. Shadowed is a wait for the end of a pause.
		found, failed := map[v1alpha1.SettingState]*v1alpha1.MountStatus{}, sets.New[judge.ReadAhead]()
		isSeen := clientNode.Status.ObservedGeneration >= clientNode.Generation
		for i := range clientNode.Status.Mounts {
			m := &clientNode.Status.Mounts[i]
			w, declared := windows[m.Volume]
			switch {
			case !declared:
			case listed[m.Volume] == w.KiB:
				state := w.StateOn(*m)
				if !isSeen && (m.ReadAheadKiB == 0 || state != v1alpha1.SettingInSync) {
					state = v1alpha1.SettingPending
				}
				found[state] = cmp.Or(found[state], m)
				if state == v1alpha1.SettingFailed {
					failed.Insert(w)
				}
			case s.MayGetReadAhead != nil && !s.MayGetReadAhead(m.Volume, node.Name):
			case match.IsPaused(node):
				found[v1alpha1.SettingShadowed] = m
			default:
				found[v1alpha1.SettingPending] = m
			}
		}
		for w := range failed {
			t.failedReadAheads[w]++
		}
		for state, list := range map[v1alpha1.SettingState]*[]string{v1alpha1.SettingFailed: &t.failed, v1alpha1.SettingUnsupported: &t.exceptions} {
			if found[state] != nil && !slices.Contains(*list, node.Name) {
				*list = append(*list, node.Name)
			}
		}
		if m := found[v1alpha1.SettingFailed]; m != nil {
			t.unset = append(t.unset, fmt.Sprintf("readAheadKiB of %s on %s: %s", m.Volume, node.Name, m.Message))
		}
		if found[v1alpha1.SettingPending] != nil {
			unread = append(unread, node.Name)
		} else if w := (waitingNode{node: node.Name, message: pausedMessage(node)}); found[v1alpha1.SettingShadowed] != nil && !slices.Contains(t.paused, w) {
			t.paused = append(t.paused, w)
		}
	}
	t.counts.Failed, t.counts.Exceptions = int32(len(t.failed)+t.failedBefore), int32(sets.New(slices.Concat(t.exceptions, t.shadowed)...).Len())
	return unread
}
