// Package plan decides what each node's list of volumes, spec.volumes of its StorageClientNode, is to be. It is pure: a Snapshot
// is all that it goes by, and it knows neither client nor clock.
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
)

const (
	// Bounds of spec.volumes.
	maxVolumes = 128
	maxOptions = 64
	// pageKiB is the largest page that a kernel rounds a window down to.
	pageKiB = 64
)

// Snapshot is all that a plan rests on. Its objects are shared with the cache: read only.
type Snapshot struct {
	Nodes []Node
	// Mounted says for each volume that a profile acts on what its mounts are to show.
	Mounted map[string]volumeplan.Mounted
	// Rollouts are the rules of all profiles, with their defaults, by name.
	Rollouts map[string]v1alpha1.Rollout
	Now      time.Time
	// Since is since when nodes have carried windows well, as the plan before has found it; nil: nothing is known.
	Since map[Carrier]time.Time
}

// Node is a node with its client node.
type Node struct {
	Node       *corev1.Node
	ClientNode *v1alpha1.StorageClientNode
	// Writable is whether the client node may be written now.
	Writable bool
}

// Window is a read-ahead window that a rule declares: one change, which reaches the canary first.
type Window = judge.ReadAhead

// Carrier is a node that carries a window.
type Carrier struct {
	Window
	Node string
}

// Plan is what to do next.
type Plan struct {
	// Lists are the lists of the nodes whose client node is to be written, by the node's name.
	Lists map[string][]v1alpha1.NodeVolume
	// Next is how long until the next soak is over; 0 where nothing soaks.
	Next time.Duration
	// Since is for the next plan's snapshot.
	Since map[Carrier]time.Time
}

// For decides which nodes get a list, and which.
func For(s Snapshot) Plan {
	out := Plan{Lists: map[string][]v1alpha1.NodeVolume{}, Since: map[Carrier]time.Time{}}
	admitted := s.admitNodes(&out)
	var list []v1alpha1.NodeVolume
	for _, n := range s.Nodes {
		if !n.Writable {
			continue
		}
		// Of thousands of nodes few get another list: there is room for one.
		if list = s.listFor(n, admitted, list[:0]); !slices.EqualFunc(list, n.ClientNode.Spec.Volumes, func(a, b v1alpha1.NodeVolume) bool {
			return a.Name == b.Name && slices.Equal(a.MountOptions, b.MountOptions) && ptr.Equal(a.ReadAheadKiB, b.ReadAheadKiB)
		}) {
			out.Lists[n.Node.Name] = slices.Clone(list)
		}
	}
	return out
}

// listFor appends what a node's list is to be: the volumes of profiles that it has mounted, sorted by name.
func (s *Snapshot) listFor(n Node, admitted map[Carrier]bool, list []v1alpha1.NodeVolume) []v1alpha1.NodeVolume {
	for _, name := range volumesOf(n.ClientNode) {
		m, concerned := s.Mounted[name]
		was, known := currentVolume(n.ClientNode, name)
		if !concerned || m.Keep && !known && m.ReadAhead == nil {
			continue
		}
		v := v1alpha1.NodeVolume{Name: name, MountOptions: m.Options[:min(len(m.Options), maxOptions)], ReadAheadKiB: was.ReadAheadKiB}
		if m.Keep {
			v.MountOptions = was.MountOptions
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

// currentVolume is what a node has been told of a volume. Its list is sorted; of one that somebody else has made, volumes may be unknown:
// they are told anew.
func currentVolume(clientNode *v1alpha1.StorageClientNode, name string) (v v1alpha1.NodeVolume, known bool) {
	i, known := slices.BinarySearchFunc(clientNode.Spec.Volumes, name, func(v v1alpha1.NodeVolume, name string) int { return cmp.Compare(v.Name, name) })
	if known {
		v = clientNode.Spec.Volumes[i]
	}
	return v, known
}

// volumesOf are the volumes that a node reports as mounted, sorted.
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

// admitNodes lets a window reach the canary first, and then no more nodes at a time than its profile allows. It returns the
// nodes that carry it or may.
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
		verdict := livegate.Admit(candidates[w], livegate.PolicyOf(s.Rollouts[w.Profile]), s.Now)
		for _, c := range candidates[w] {
			key := Carrier{w, c.Name}
			admitted[key] = c.Carries == c.Wanted || verdict.Admitted[c.Name]
			if !c.TakenSince.IsZero() {
				out.Since[key] = c.TakenSince
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

// windowsOf are the windows that a node's volumes are to have, with whether its list has each for all of them.
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

func (s *Snapshot) candidateOf(n Node, w Window, carries bool) livegate.Node {
	c := livegate.Node{Name: n.Node.Name, Created: n.Node.CreationTimestamp.Time, Managed: true, Wanted: "listed", Alive: n.Writable}
	if rollout := s.Rollouts[w.Profile]; rollout.Canary != nil && rollout.Canary.NodeSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(rollout.Canary.NodeSelector)
		c.Canary = err == nil && selector.Matches(labels.Set(n.Node.Labels))
	}
	if !carries {
		return c
	}
	c.Carries, c.Taken = c.Wanted, s.hasTaken(n.ClientNode, w)
	if c.Taken {
		c.TakenSince = s.Now
		if since, known := s.Since[Carrier{w, n.Node.Name}]; known {
			c.TakenSince = since
		}
	}
	return c
}

// hasTaken reports whether a node shows a window on all mounts that are to have it, as far as it knows.
func (s *Snapshot) hasTaken(clientNode *v1alpha1.StorageClientNode, w Window) bool {
	if clientNode.Status.ObservedGeneration < clientNode.Generation {
		return false
	}
	return !slices.ContainsFunc(clientNode.Status.Mounts, func(m v1alpha1.MountStatus) bool {
		declared := s.Mounted[m.Volume].ReadAhead
		rounded := m.ReadAheadKiB <= w.KiB && m.ReadAheadKiB > w.KiB-pageKiB
		return declared != nil && *declared == w && m.ReadAheadKiB != 0 && !rounded
	})
}
