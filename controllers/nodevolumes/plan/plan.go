// Package plan decides on the list of volumes in spec.volumes of each StorageClientNode. It is pure: a Snapshot is its only input, and it uses
// neither a client nor a clock.
package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/livegate"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume/judge"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/nodesettings"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// Limits of spec.volumes.
	maxVolumes = 128
	maxOptions = 64
)

// Snapshot is the input of a plan. It shares its objects with the cache: callers must not change them.
type Snapshot struct {
	Nodes []Node
	// Mounted is the desired state of the mounts of each volume that a profile acts on.
	Mounted map[string]volumeplan.Mounted
	// Rollouts are the rollout settings of all profiles, with defaults, by name.
	Rollouts map[string]v1alpha1.Rollout
	Now      time.Time
	// Since are the states of nodes with windows, from the previous plan. Nil if unknown.
	Since map[Carrier]Carried
	// Users are the nodes on which the API server shows a pod of a volume, by volume, for the volumes from Waiting. Only they get a window: a node
	// must not prove it for the volumes of others by its word alone. Nil if no pods are read.
	Users map[string]sets.Set[string]
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

// Carried is the state of a node with a window.
type Carried struct {
	// Soaks is true if the node is alive and reports the window. Seen is true if its agent has read a list with the window.
	Soaks, Seen bool
	// Since is the time of the last change of Soaks.
	Since time.Time
}

// Plan contains the next writes.
type Plan struct {
	// Lists are the new lists of nodes whose StorageClientNode must be written, by node name.
	Lists map[string][]v1alpha1.NodeVolume
	// Next is the time until the end of the next soak, or until the skip of a silent node. Zero if there is none.
	Next time.Duration
	// Since is the input for the next plan's snapshot.
	Since map[Carrier]Carried
	// Waits are the reasons for which nodes do not have a window yet, by profile. They are sorted, and each appears once.
	Waits map[string][]string
}

// For decides which nodes get a new list, and its content.
func For(s Snapshot) Plan {
	out := Plan{Lists: map[string][]v1alpha1.NodeVolume{}, Since: map[Carrier]Carried{}, Waits: map[string][]string{}}
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
		case admitted[Carrier{*m.ReadAhead, n.Node.Name}] && s.isUsed(name, n):
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
	candidates, unsupported := map[Window][]*livegate.Node{}, map[Window][]string{}
	hasWindows := false
	for _, m := range s.Mounted {
		hasWindows = hasWindows || m.ReadAhead != nil
	}
	if !hasWindows {
		return nil
	}
	for _, n := range s.Nodes {
		for w, carries := range s.windowsOf(n) {
			switch c, isSupported := s.candidateOf(n, w, carries, out); {
			case !carries && match.IsPaused(n.Node):
			case isSupported:
				candidates[w] = append(candidates[w], &c)
			default:
				unsupported[w] = append(unsupported[w], c.Name)
			}
		}
	}
	admitted := map[Carrier]bool{}
	for _, w := range slices.SortedFunc(maps.Keys(candidates), func(a, b Window) int {
		return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.KiB, b.KiB))
	}) {
		verdict := livegate.Admit(candidates[w], livegate.PolicyOf(s.rolloutOf(w)), s.Now)
		for _, c := range candidates[w] {
			admitted[Carrier{w, c.Name}] = c.Current == c.Desired || verdict.Admitted[c.Name]
		}
		for _, note := range verdict.Notes {
			if len(unsupported[w]) > 0 {
				note += "; skipped (readAheadKiB not supported): " + text.List(unsupported[w])
			}
			out.Waits[w.Profile] = append(out.Waits[w.Profile], fmt.Sprintf("readAheadKiB %d of rule %s: %s", w.KiB, w.Rule, note))
		}
		slices.Sort(out.Waits[w.Profile])
		out.Waits[w.Profile] = slices.Compact(out.Waits[w.Profile])
		out.Next = store.Sooner(out.Next, verdict.Next)
	}
	return admitted
}

// Waiting returns the nodes that report a mount of a volume and do not have its window, by volume.
func (s *Snapshot) Waiting() map[string]sets.Set[string] {
	out := map[string]sets.Set[string]{}
	for _, n := range s.Nodes {
		for _, name := range volumesOf(n.ClientNode) {
			if m := s.Mounted[name]; m.ReadAhead != nil && !m.KeepReadAhead && !hasWindow(n.ClientNode, name, *m.ReadAhead) {
				if out[name] == nil {
					out[name] = sets.New[string]()
				}
				out[name].Insert(n.Node.Name)
			}
		}
	}
	return out
}

// isUsed reports whether a pod on the node uses the volume, by the API server's word.
func (s *Snapshot) isUsed(volume string, n Node) bool {
	return s.Users == nil || s.Users[volume].Has(n.Node.Name)
}

func hasWindow(clientNode *v1alpha1.StorageClientNode, volume string, w Window) bool {
	current, _ := currentVolume(clientNode, volume)
	return ptr.Deref(current.ReadAheadKiB, 0) == w.KiB
}

// windowsOf returns the desired windows of a node's volumes. The value is true if its list has the window for all of them.
func (s *Snapshot) windowsOf(n Node) map[Window]bool {
	windows := map[Window]bool{}
	for _, name := range volumesOf(n.ClientNode) {
		m := s.Mounted[name]
		if m.ReadAhead == nil || m.KeepReadAhead {
			continue
		}
		isSet := hasWindow(n.ClientNode, name, *m.ReadAhead)
		if !isSet && !s.isUsed(name, n) {
			continue
		}
		carries, seen := windows[*m.ReadAhead]
		windows[*m.ReadAhead] = (carries || !seen) && isSet
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

// candidateOf returns a node's part in the rollout of a window. A node that does not support it has none: it is no evidence, and delays no node.
func (s *Snapshot) candidateOf(n Node, w Window, carries bool, out *Plan) (c livegate.Node, isSupported bool) {
	c = livegate.Node{Name: n.Node.Name, Created: n.Node.CreationTimestamp.Time, Managed: true, Desired: "listed", Alive: n.Writable}
	if rollout := s.rolloutOf(w); rollout.Canary != nil && rollout.Canary.NodeSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(rollout.Canary.NodeSelector)
		c.Canary = err == nil && selector.Matches(labels.Set(n.Node.Labels))
	}
	if !carries {
		return c, true
	}
	problem, failed, isSupported := s.problemOf(n, w)
	key := Carrier{w, n.Node.Name}
	c.Current, c.Applied, c.Failed = c.Desired, problem == "" && isSupported, failed
	state, known := s.Since[key]
	if soaks := c.Applied && n.Writable; !known || state.Soaks != soaks {
		state.Soaks, state.Since = soaks, s.Now
	}
	state.Seen = state.Seen || n.ClientNode.Status.ObservedGeneration >= n.ClientNode.Generation
	out.Since[key] = state
	switch {
	case state.Soaks:
		c.AppliedSince = state.Since
	case !state.Seen:
		// The window cannot be the cause: after a while, another node proves it.
		c.SilentSince, c.NeverStarted = state.Since, true
		out.Next = store.Sooner(out.Next, state.Since.Add(livegate.LostAfter).Sub(s.Now))
		fallthrough
	default:
		c.Unconfirmed = fmt.Sprintf("%s (since %s)", cmp.Or(problem, "the node or its agent is not Ready"), state.Since.UTC().Format(time.RFC3339))
	}
	return c, isSupported
}

// problemOf returns the reason why a node does not have a window on all mounts that support it, and whether its agent cannot set it. isSupported is
// false if its agent has read the list, and none of the mounts supports the window.
func (s *Snapshot) problemOf(n Node, w Window) (problem string, failed, isSupported bool) {
	if n.ClientNode.Status.ObservedGeneration < n.ClientNode.Generation {
		return "its agent has not read the new list", false, true
	}
	for _, m := range n.ClientNode.Status.Mounts {
		declared, state := s.Mounted[m.Volume].ReadAhead, w.StateOn(m)
		if declared == nil || *declared != w || state == v1alpha1.SettingUnsupported {
			continue
		}
		if isSupported = true; state == v1alpha1.SettingInSync {
			continue
		}
		failed = failed || state == v1alpha1.SettingFailed
		problem = cmp.Or(problem, strings.TrimSuffix(fmt.Sprintf("a mount of %s has %d KiB: %s", m.Volume, m.ReadAheadKiB, m.Message), ": "))
	}
	return problem, failed, isSupported
}
