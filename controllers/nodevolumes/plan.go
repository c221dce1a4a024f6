package nodevolumes

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
	"github.com/storageclient/operator/controllers/volume/plan"
)

const (
	// Bounds of spec.volumes.
	maxVolumes = 128
	maxOptions = 64
	// pageKiB is the largest page that a kernel rounds a window down to.
	pageKiB = 64
)

// managed is a node with its client node.
type managed struct {
	node       *corev1.Node
	clientNode *v1alpha1.StorageClientNode
	// open is whether the client node may be written now.
	open bool
}

// window is a read-ahead window that a rule declares: one change, which reaches the canary first.
type window = judge.ReadAhead

// carrier is a node that carries a window.
type carrier struct {
	window
	node string
}

// planner works out what nodes are to be told. It has no client and no clock.
type planner struct {
	nodes    []managed
	mounted  map[string]plan.Mounted
	profiles map[string]v1alpha1.Rollout
	now      time.Time
	// since is since when nodes have carried windows well; it outlives the pass.
	since map[carrier]time.Time
}

// planLists returns the list of every node whose client node is to be written, by name, and how long until the next soak is over;
// 0 where nothing soaks.
func (p *planner) planLists() (lists map[string][]v1alpha1.NodeVolume, next time.Duration) {
	admitted, next := p.admitNodes()
	lists = map[string][]v1alpha1.NodeVolume{}
	for _, n := range p.nodes {
		list := p.listFor(n, admitted)
		if n.open && !slices.EqualFunc(list, n.clientNode.Spec.Volumes, isSame) {
			lists[n.node.Name] = list
		}
	}
	return lists, next
}

func isSame(a, b v1alpha1.NodeVolume) bool {
	return a.Name == b.Name && slices.Equal(a.MountOptions, b.MountOptions) && ptr.Equal(a.ReadAheadKiB, b.ReadAheadKiB)
}

// listFor is what a node is to be told of the volumes that it has mounted, sorted by name.
func (p *planner) listFor(n managed, admitted map[carrier]bool) []v1alpha1.NodeVolume {
	current := currentVolumes(n.clientNode)
	var list []v1alpha1.NodeVolume
	for _, name := range volumesOf(n.clientNode) {
		m, concerned := p.mounted[name]
		was, known := current[name]
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
		case admitted[carrier{*m.ReadAhead, n.node.Name}]:
			v.ReadAheadKiB = ptr.To(m.ReadAhead.KiB)
		}
		if !m.Keep || known || v.ReadAheadKiB != nil {
			list = append(list, v)
		}
	}
	return list[:min(len(list), maxVolumes)]
}

func currentVolumes(clientNode *v1alpha1.StorageClientNode) map[string]v1alpha1.NodeVolume {
	current := make(map[string]v1alpha1.NodeVolume, len(clientNode.Spec.Volumes))
	for _, v := range clientNode.Spec.Volumes {
		current[v.Name] = v
	}
	return current
}

// volumesOf are the volumes that a node reports as mounted, sorted.
func volumesOf(clientNode *v1alpha1.StorageClientNode) []string {
	var names []string
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
func (p *planner) admitNodes() (admitted map[carrier]bool, next time.Duration) {
	candidates := map[window][]livegate.Node{}
	for _, n := range p.nodes {
		for w, carries := range p.windowsOf(n) {
			candidates[w] = append(candidates[w], p.candidateOf(n, w, carries))
		}
	}
	admitted, standing := map[carrier]bool{}, map[carrier]time.Time{}
	for _, w := range slices.SortedFunc(maps.Keys(candidates), compareWindows) {
		verdict := livegate.Admit(candidates[w], livegate.PolicyOf(p.profiles[w.Profile]), p.now)
		for _, c := range candidates[w] {
			key := carrier{w, c.Name}
			admitted[key] = c.Carries == c.Wanted || verdict.Admitted[c.Name]
			if !c.TakenSince.IsZero() {
				standing[key] = c.TakenSince
			}
		}
		if verdict.Next > 0 && (next == 0 || verdict.Next < next) {
			next = verdict.Next
		}
	}
	clear(p.since)
	maps.Copy(p.since, standing)
	return admitted, next
}

func compareWindows(a, b window) int {
	return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.KiB, b.KiB))
}

// windowsOf are the windows that a node's volumes are to have, with whether it has been told of each for all of them.
func (p *planner) windowsOf(n managed) map[window]bool {
	current, windows := currentVolumes(n.clientNode), map[window]bool{}
	for _, name := range volumesOf(n.clientNode) {
		m := p.mounted[name]
		if m.ReadAhead == nil || m.KeepReadAhead {
			continue
		}
		carries, seen := windows[*m.ReadAhead]
		windows[*m.ReadAhead] = (carries || !seen) && ptr.Deref(current[name].ReadAheadKiB, 0) == m.ReadAhead.KiB
	}
	return windows
}

func (p *planner) candidateOf(n managed, w window, carries bool) livegate.Node {
	c := livegate.Node{Name: n.node.Name, Created: n.node.CreationTimestamp.Time, Managed: true, Wanted: "told", Alive: n.open}
	if rollout := p.profiles[w.Profile]; rollout.Canary != nil && rollout.Canary.NodeSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(rollout.Canary.NodeSelector)
		c.Canary = err == nil && selector.Matches(labels.Set(n.node.Labels))
	}
	if !carries {
		return c
	}
	c.Carries, c.Taken = c.Wanted, p.hasTaken(n.clientNode, w)
	if c.Taken {
		c.TakenSince = p.now
		if since, known := p.since[carrier{w, n.node.Name}]; known {
			c.TakenSince = since
		}
	}
	return c
}

// hasTaken reports whether a node shows a window on all mounts that are to have it, as far as it knows.
func (p *planner) hasTaken(clientNode *v1alpha1.StorageClientNode, w window) bool {
	if clientNode.Status.ObservedGeneration < clientNode.Generation {
		return false
	}
	return !slices.ContainsFunc(clientNode.Status.Mounts, func(m v1alpha1.MountStatus) bool {
		declared := p.mounted[m.Volume].ReadAhead
		rounded := m.ReadAheadKiB <= w.KiB && m.ReadAheadKiB > w.KiB-pageKiB
		return declared != nil && *declared == w && m.ReadAheadKiB != 0 && !rounded
	})
}
