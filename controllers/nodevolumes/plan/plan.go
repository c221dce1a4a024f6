// Package plan decides on the list of volumes in spec.volumes of each StorageClientNode. It is pure: a Snapshot is its only input, and it uses
// neither a client nor a clock.
package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/volume/judge"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/nodesettings"
)

const (
	// Limits of spec.volumes.
	maxVolumes = 128
	maxOptions = 64
	// pageKiB is the largest page size to which a kernel rounds a window down.
	pageKiB = 64
)

// Snapshot is the input of a plan. It shares its objects with the cache: callers must not change them.
type Snapshot struct {
	Nodes []Node
	// Mounted is the desired state of the mounts of each volume that a profile acts on.
	Mounted map[string]volumeplan.Mounted
	// Rollouts are the rollout settings of all profiles, with defaults, by name.
	Rollouts map[string]v1alpha1.Rollout
	Now      time.Time
	// Since is the time since which nodes have carried windows without a problem, from the previous plan. Nil if unknown.
	Since map[Carrier]time.Time
}

// Node is a node with its StorageClientNode.
type Node struct {
	Node       *corev1.Node
	ClientNode *v1alpha1.StorageClientNode
	// Writable is true if the StorageClientNode may be written now.
	Writable bool
}

// Window is a read-ahead window of a rule: one change, which reaches the canary first.
type Window = judge.ReadAhead

// Carrier is a node that carries a window.
type Carrier struct {
	Window
	Node string
}

// Plan contains the next writes.
type Plan struct {
	// Lists are the new lists of nodes whose StorageClientNode must be written, by node name.
	Lists map[string][]v1alpha1.NodeVolume
	// Next is the time until the end of the next soak. Zero if there is none.
	Next time.Duration
	// Since is the input for the next plan's snapshot.
	Since map[Carrier]time.Time
}

// For decides which nodes get a new list, and its content.
func For(s Snapshot) Plan {
	out := Plan{Lists: map[string][]v1alpha1.NodeVolume{}, Since: map[Carrier]time.Time{}}
	admitted := s.admitNodes(&out)
	var list []v1alpha1.NodeVolume
	for _, n := range s.Nodes {
		if !n.Writable {
			continue
		}
		// Few of thousands of nodes get a new list: they share one buffer.
		if list = s.listFor(n, admitted, list[:0]); !slices.EqualFunc(list, n.ClientNode.Spec.Volumes, func(a, b v1alpha1.NodeVolume) bool {
			return a.Name == b.Name && slices.Equal(a.MountOptions, b.MountOptions) && ptr.Equal(a.ReadAheadKiB, b.ReadAheadKiB)
		}) {
			out.Lists[n.Node.Name] = slices.Clone(list)
		}
	}
	return out
}

// listFor appends the desired list of a node: the volumes of profiles that it has mounted, sorted by name.
func (s *Snapshot) listFor(n Node, admitted map[Carrier]bool, list []v1alpha1.NodeVolume) []v1alpha1.NodeVolume {
	for _, name := range volumesOf(n.ClientNode) {
		m, concerned := s.Mounted[name]
		current, known := currentVolume(n.ClientNode, name)
		if !concerned || m.Keep && !known && m.ReadAhead == nil {
			continue
		}
		v := v1alpha1.NodeVolume{Name: name, MountOptions: m.Options[:min(len(m.Options), maxOptions)], ReadAheadKiB: current.ReadAheadKiB}
		if m.Keep {
			v.MountOptions = current.MountOptions
		}
		switch {
		case m.KeepReadAhead:
		case m.ReadAhead == nil:
			v.ReadAheadKiB = nil
		case admitted[Carrier{*m.ReadAhead, n.Node.Name}]:
			v.ReadAheadKiB = ptr.To(m.ReadAhead.KiB)
		}
		if !m.Keep || known || v.ReadAheadKiB != nil {
			list = append(list, v)
		}
	}
	return list[:min(len(list), maxVolumes)]
}

// currentVolume returns the current entry of a volume in a node's list. The operator sorts the list. In a list from another client, the search
// may miss an entry, which is then written again.
func currentVolume(clientNode *v1alpha1.StorageClientNode, name string) (v v1alpha1.NodeVolume, known bool) {
	i, known := slices.BinarySearchFunc(clientNode.Spec.Volumes, name, func(v v1alpha1.NodeVolume, name string) int { return cmp.Compare(v.Name, name) })
	if known {
		v = clientNode.Spec.Volumes[i]
	}
	return v, known
}

// volumesOf returns the volumes that a node reports as mounted, sorted.
func volumesOf(clientNode *v1alpha1.StorageClientNode) []string {
	names := make([]string, 0, len(clientNode.Status.Mounts))
	for i := range clientNode.Status.Mounts {
		if name := clientNode.Status.Mounts[i].Volume; name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// admitNodes admits the canary of a window first, and then limits the number of nodes at a time as its profile declares. It returns the nodes
// that carry the window or may get it.
func (s *Snapshot) admitNodes(out *Plan) map[Carrier]bool {
	candidates := map[Window][]livegate.Node{}
	if !s.declaresReadAhead() {
		return nil
	}
	for _, n := range s.Nodes {
		for w, carries := range s.windowsOf(n) {
			candidates[w] = append(candidates[w], s.candidateOf(n, w, carries))
		}
	}
	admitted := map[Carrier]bool{}
	for _, w := range slices.SortedFunc(maps.Keys(candidates), func(a, b Window) int {
		return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.KiB, b.KiB))
	}) {
		verdict := livegate.Admit(candidates[w], livegate.PolicyOf(s.rolloutOf(w)), s.Now)
		for _, c := range candidates[w] {
			key := Carrier{w, c.Name}
			admitted[key] = c.Current == c.Desired || verdict.Admitted[c.Name]
			if !c.AppliedSince.IsZero() {
				out.Since[key] = c.AppliedSince
			}
		}
		if verdict.Next > 0 && (out.Next == 0 || verdict.Next < out.Next) {
			out.Next = verdict.Next
		}
	}
	return admitted
}

func (s *Snapshot) declaresReadAhead() bool {
	for _, m := range s.Mounted {
		if m.ReadAhead != nil {
			return true
		}
	}
	return false
}

// windowsOf returns the desired windows of a node's volumes. The value is true if its list has the window for all of them.
func (s *Snapshot) windowsOf(n Node) map[Window]bool {
	windows := map[Window]bool{}
	for _, name := range volumesOf(n.ClientNode) {
		m := s.Mounted[name]
		if m.ReadAhead == nil || m.KeepReadAhead {
			continue
		}
		current, _ := currentVolume(n.ClientNode, name)
		carries, seen := windows[*m.ReadAhead]
		windows[*m.ReadAhead] = (carries || !seen) && ptr.Deref(current.ReadAheadKiB, 0) == m.ReadAhead.KiB
	}
	return windows
}

// rolloutOf returns the rules of a window's rollout. A canary selector counts only if no kubelet may set its labels: otherwise a node could make
// itself the canary for the volumes of others. Without it, the oldest node is the canary.
func (s *Snapshot) rolloutOf(w Window) v1alpha1.Rollout {
	rollout := s.Rollouts[w.Profile]
	if rollout.Canary != nil && len(nodesettings.KubeletLabels(rollout.Canary.NodeSelector)) > 0 {
		canary := *rollout.Canary
		canary.NodeSelector, rollout.Canary = nil, &canary
	}
	return rollout
}

func (s *Snapshot) candidateOf(n Node, w Window, carries bool) livegate.Node {
	c := livegate.Node{Name: n.Node.Name, Created: n.Node.CreationTimestamp.Time, Managed: true, Desired: "listed", Alive: n.Writable}
	if rollout := s.rolloutOf(w); rollout.Canary != nil && rollout.Canary.NodeSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(rollout.Canary.NodeSelector)
		c.Canary = err == nil && selector.Matches(labels.Set(n.Node.Labels))
	}
	if !carries {
		return c
	}
	c.Current, c.Applied = c.Desired, s.hasApplied(n.ClientNode, w)
	if c.Applied {
		c.AppliedSince = s.Now
		if start, known := s.Since[Carrier{w, n.Node.Name}]; known {
			c.AppliedSince = start
		}
	}
	return c
}

// hasApplied reports whether a node reports a window on all mounts that must have it. Mounts without a reported window do not count.
func (s *Snapshot) hasApplied(clientNode *v1alpha1.StorageClientNode, w Window) bool {
	if clientNode.Status.ObservedGeneration < clientNode.Generation {
		return false
	}
	return !slices.ContainsFunc(clientNode.Status.Mounts, func(m v1alpha1.MountStatus) bool {
		declared := s.Mounted[m.Volume].ReadAhead
		rounded := m.ReadAheadKiB <= w.KiB && m.ReadAheadKiB > w.KiB-pageKiB
		return declared != nil && *declared == w && m.ReadAheadKiB != 0 && !rounded
	})
}
