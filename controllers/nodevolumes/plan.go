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
	"github.com/storageclient/operator/controllers/volume"
)

const (
	// Bounds of spec.volumes.
	maxVolumes = 128
	maxOptions = 64
	// pageKiB is the largest page that a kernel rounds a window down to.
	pageKiB = 64
)

// managed is a node with its object.
type managed struct {
	node *corev1.Node
	scn  *v1alpha1.StorageClientNode
	// open is whether the object may be written now.
	open bool
}

// window is a read-ahead window that a rule declares: one change, which reaches the canary first.
type window = volume.ReadAhead

// proof is a node that carries a window.
type proof struct {
	window
	node string
}

// planner works out what nodes are to be told. It has no client and no clock.
type planner struct {
	nodes    []managed
	mounted  map[string]volume.Mounted
	profiles map[string]v1alpha1.Rollout
	now      time.Time
	// since is since when nodes have carried windows well; it outlives the pass.
	since map[proof]time.Time
}

// plan returns the list of every node whose object is to be written, by name, and how long until the next soak is over;
// 0 where nothing soaks.
func (p *planner) plan() (lists map[string][]v1alpha1.NodeVolume, next time.Duration) {
	admitted, next := p.gate()
	lists = map[string][]v1alpha1.NodeVolume{}
	for _, n := range p.nodes {
		list := p.list(n, admitted)
		if n.open && !slices.EqualFunc(list, n.scn.Spec.Volumes, equal) {
			lists[n.node.Name] = list
		}
	}
	return lists, next
}

func equal(a, b v1alpha1.NodeVolume) bool {
	return a.Name == b.Name && slices.Equal(a.MountOptions, b.MountOptions) && ptr.Equal(a.ReadAheadKiB, b.ReadAheadKiB)
}

// list is what a node is to be told of the volumes that it has mounted, sorted by name.
func (p *planner) list(n managed, admitted map[proof]bool) []v1alpha1.NodeVolume {
	told := toldOf(n.scn)
	var list []v1alpha1.NodeVolume
	for _, name := range volumesOf(n.scn) {
		m, concerned := p.mounted[name]
		was, known := told[name]
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
		case admitted[proof{*m.ReadAhead, n.node.Name}]:
			v.ReadAheadKiB = ptr.To(m.ReadAhead.KiB)
		}
		if !m.Keep || known || v.ReadAheadKiB != nil {
			list = append(list, v)
		}
	}
	return list[:min(len(list), maxVolumes)]
}

func toldOf(scn *v1alpha1.StorageClientNode) map[string]v1alpha1.NodeVolume {
	told := make(map[string]v1alpha1.NodeVolume, len(scn.Spec.Volumes))
	for _, v := range scn.Spec.Volumes {
		told[v.Name] = v
	}
	return told
}

// volumesOf are the volumes that a node reports as mounted, sorted.
func volumesOf(scn *v1alpha1.StorageClientNode) []string {
	var names []string
	for i := range scn.Status.Mounts {
		if name := scn.Status.Mounts[i].Volume; name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// gate lets a window reach the canary first, and then no more nodes at a time than its profile allows. It returns the
// nodes that carry it or may.
func (p *planner) gate() (admitted map[proof]bool, next time.Duration) {
	candidates := map[window][]livegate.Node{}
	for _, n := range p.nodes {
		for w, carries := range p.windowsOf(n) {
			candidates[w] = append(candidates[w], p.candidate(n, w, carries))
		}
	}
	admitted, standing := map[proof]bool{}, map[proof]time.Time{}
	for _, w := range slices.SortedFunc(maps.Keys(candidates), compareWindows) {
		verdict := livegate.Admit(candidates[w], livegate.PolicyOf(p.profiles[w.Profile]), p.now)
		for _, c := range candidates[w] {
			key := proof{w, c.Name}
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
	told, windows := toldOf(n.scn), map[window]bool{}
	for _, name := range volumesOf(n.scn) {
		m := p.mounted[name]
		if m.ReadAhead == nil || m.KeepReadAhead {
			continue
		}
		carries, seen := windows[*m.ReadAhead]
		windows[*m.ReadAhead] = (carries || !seen) && ptr.Deref(told[name].ReadAheadKiB, 0) == m.ReadAhead.KiB
	}
	return windows
}

func (p *planner) candidate(n managed, w window, carries bool) livegate.Node {
	c := livegate.Node{Name: n.node.Name, Created: n.node.CreationTimestamp.Time, Managed: true, Wanted: "told", Alive: n.open}
	if rollout := p.profiles[w.Profile]; rollout.Canary != nil && rollout.Canary.NodeSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(rollout.Canary.NodeSelector)
		c.Canary = err == nil && selector.Matches(labels.Set(n.node.Labels))
	}
	if !carries {
		return c
	}
	c.Carries, c.Taken = c.Wanted, p.taken(n.scn, w)
	if c.Taken {
		c.TakenSince = p.now
		if since, known := p.since[proof{w, n.node.Name}]; known {
			c.TakenSince = since
		}
	}
	return c
}

// taken reports whether a node shows a window on all mounts that are to have it, as far as it knows.
func (p *planner) taken(scn *v1alpha1.StorageClientNode, w window) bool {
	if scn.Status.ObservedGeneration < scn.Generation {
		return false
	}
	return !slices.ContainsFunc(scn.Status.Mounts, func(m v1alpha1.MountStatus) bool {
		declared := p.mounted[m.Volume].ReadAhead
		rounded := m.ReadAheadKiB <= w.KiB && m.ReadAheadKiB > w.KiB-pageKiB
		return declared != nil && *declared == w && m.ReadAheadKiB != 0 && !rounded
	})
}
