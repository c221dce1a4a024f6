// Package plan decides which nodes are asked for a sample of a volume's mounts, and for how long. It has no client and no clock.
//
// All of it is read from the objects: the requests from PersistentVolumeClaims, and what is asked and answered from client nodes. A
// manager that starts anew carries on where the one before stopped.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

const (
	// MaxSamples is how many nodes take a sample at a time.
	MaxSamples = 32
	// clockTolerance is by how much the clock of whoever asks may be ahead of the manager's.
	clockTolerance = time.Minute
	// lookEvery is the time to the next pass while a node that is asked for cannot be written.
	lookEvery = 5 * time.Second
)

// Request is what somebody asks of a PersistentVolumeClaim's volume.
type Request struct {
	v1alpha1.SampleRequest

	// SampleID is its id in spec.sample.
	SampleID string
	// Volume is the one that it is bound to, empty for none.
	Volume string
}

// Node is one node, as samples see it.
type Node struct {
	ClientNode *v1alpha1.StorageClientNode
	// Writable is whether the client node may be written now.
	Writable bool
}

// Snapshot is what a pass goes by.
type Snapshot struct {
	Requests []Request
	Nodes    []Node
	Now      time.Time
}

// Step asks a node, or takes back what it is asked.
type Step struct {
	ClientNode *v1alpha1.StorageClientNode
	// Sample is what it is asked; nil for nothing.
	Sample *v1alpha1.NodeSample
}

func (s Step) String() string {
	if s.Sample == nil {
		return "take the request back from " + s.ClientNode.Name
	}
	return fmt.Sprintf("ask %s for %d s of %s", s.ClientNode.Name, s.Sample.Seconds, s.Sample.Volumes[0])
}

// Plan is what a pass does, and when the next one is due; 0 where nothing is waited for.
type Plan struct {
	Steps []Step
	Next  time.Duration
}

// For decides. A node is asked for one sample at a time; who asks later waits until the request before is taken back or has expired.
func For(s Snapshot) Plan {
	var p Plan
	live := liveRequests(s)
	for _, r := range live {
		p.lookWithin(r.Until.Sub(s.Now))
	}
	nodes := slices.SortedFunc(slices.Values(s.Nodes), func(a, b Node) int { return cmp.Compare(a.ClientNode.Name, b.ClientNode.Name) })
	running := 0
	for _, n := range nodes {
		if isSampling(n.ClientNode) {
			running++
		}
	}
	for _, n := range nodes {
		sample, changes := wantedOf(n.ClientNode, live, s.Now)
		switch {
		case !changes:
		case !n.Writable:
			p.lookWithin(lookEvery)
		case sample == nil:
			p.Steps = append(p.Steps, Step{ClientNode: n.ClientNode})
		case running < MaxSamples:
			running++
			p.Steps = append(p.Steps, Step{ClientNode: n.ClientNode, Sample: sample})
		default:
			p.lookWithin(lookEvery)
		}
	}
	return p
}

func (p *Plan) lookWithin(d time.Duration) {
	if p.Next == 0 || d < p.Next {
		p.Next = d
	}
}

// liveRequests are those that somebody still waits for, the one that expires first before others. One that claims to wait for longer than
// its window and the grace is no request: it would keep others from its nodes.
func liveRequests(s Snapshot) []Request {
	live := slices.DeleteFunc(slices.Clone(s.Requests), func(r Request) bool {
		return r.Volume == "" || !s.Now.Before(r.Until.Time) || r.StartBefore().Sub(s.Now) > v1alpha1.SampleGrace+clockTolerance
	})
	slices.SortFunc(live, func(a, b Request) int {
		return cmp.Or(a.Until.Compare(b.Until.Time), cmp.Compare(a.SampleID, b.SampleID))
	})
	return live
}

// wantedOf is what a node is to be asked, and whether it is not asked that. What it is asked stays while somebody wants it, also once it is
// answered: they read the answer. Only what has gone makes room.
func wantedOf(clientNode *v1alpha1.StorageClientNode, live []Request, now time.Time) (sample *v1alpha1.NodeSample, changes bool) {
	if asked := clientNode.Spec.Sample; asked != nil {
		wanted := slices.ContainsFunc(live, func(r Request) bool { return r.SampleID == asked.ID && slices.Contains(r.Nodes, clientNode.Name) })
		return nil, !wanted
	}
	for _, r := range live {
		if slices.Contains(r.Nodes, clientNode.Name) && hasMounted(clientNode, r.Volume) && now.Before(r.StartBefore()) {
			return &v1alpha1.NodeSample{ID: r.SampleID, Seconds: r.Seconds, Volumes: []string{r.Volume}, StartBefore: ptr.To(metav1.NewTime(r.StartBefore()))}, true
		}
	}
	return nil, false
}

// hasMounted says whether the node reports a mount of the volume: nobody asks other nodes of it.
func hasMounted(clientNode *v1alpha1.StorageClientNode, volume string) bool {
	return slices.ContainsFunc(clientNode.Status.Mounts, func(m v1alpha1.MountStatus) bool { return m.Volume == volume })
}

// isSampling says whether the node has yet to answer.
func isSampling(clientNode *v1alpha1.StorageClientNode) bool {
	asked, answer := clientNode.Spec.Sample, clientNode.Status.Sample
	return asked != nil && (answer == nil || answer.ID != asked.ID || answer.Phase == v1alpha1.SampleRunning)
}
