package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// request asks n1 and n2 for a minute of a volume, and has just been made.
func request(id, volume string, change ...func(*Request)) Request {
	r := Request{SampleID: id, Volume: volume, SampleRequest: v1alpha1.SampleRequest{
		ID: id, Seconds: 60, Nodes: []string{"n1", "n2"}, Until: metav1.NewTime(now.Add(time.Minute + v1alpha1.SampleGrace)),
	}}
	for _, c := range change {
		c(&r)
	}
	return r
}

// node is one that has volumes mounted.
func node(name string, volumes ...string) Node {
	c := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, v := range volumes {
		c.Status.Mounts = append(c.Status.Mounts, v1alpha1.MountStatus{MountPoint: "/mnt/" + v, Volume: v})
	}
	return Node{ClientNode: c, Writable: true}
}

// asked is a node that has a request, and perhaps an answer.
func asked(n Node, id string, phase v1alpha1.SamplePhase) Node {
	n.ClientNode.Spec.Sample = &v1alpha1.NodeSample{ID: id}
	if phase != "" {
		n.ClientNode.Status.Sample = &v1alpha1.NodeSampleStatus{ID: id, Phase: phase}
	}
	return n
}

func busy(n Node) Node {
	n.Writable = false
	return n
}

func TestFor(t *testing.T) {
	const wait = time.Minute + v1alpha1.SampleGrace
	ask := func(node string) string { return "ask " + node + " for 60 s of v" }
	late := func(d time.Duration) func(*Request) {
		return func(r *Request) { r.Until.Time = r.Until.Add(-d) }
	}
	for name, test := range map[string]struct {
		requests []Request
		nodes    []Node
		steps    []string
		next     time.Duration
	}{
		"nobody asks": {nodes: []Node{node("n1", "v")}},
		"the nodes that it names and that have it":       {[]Request{request("a", "v")}, []Node{node("n3", "v"), node("n2", "v"), node("n1", "v", "w"), node("n0")}, []string{ask("n1"), ask("n2")}, wait},
		"a node that has it no more":                     {[]Request{request("a", "v")}, []Node{node("n1", "w")}, nil, wait},
		"a PersistentVolumeClaim that is not bound":      {[]Request{request("a", "")}, []Node{node("n1", "v")}, nil, 0},
		"a node that the rollout holds":                  {[]Request{request("a", "v")}, []Node{busy(node("n1", "v")), node("n2", "v")}, []string{ask("n2")}, lookEvery},
		"what is asked already":                          {[]Request{request("a", "v")}, []Node{asked(node("n1", "v"), "a", "")}, nil, wait},
		"an answer stays while somebody reads it":        {[]Request{request("a", "v")}, []Node{asked(node("n1", "v"), "a", v1alpha1.SampleFinished)}, nil, wait},
		"a request that is taken back":                   {nil, []Node{asked(node("n1", "v"), "a", v1alpha1.SampleRunning)}, []string{"take the request back from n1"}, 0},
		"a request that has expired":                     {[]Request{request("a", "v", late(wait))}, []Node{asked(node("n1", "v"), "a", v1alpha1.SampleFinished)}, []string{"take the request back from n1"}, 0},
		"one that names other nodes now":                 {[]Request{request("a", "v", func(r *Request) { r.Nodes = []string{"n2"} })}, []Node{asked(node("n1", "v"), "a", "")}, []string{"take the request back from n1"}, wait},
		"no window that would not end in time":           {[]Request{request("a", "v", late(v1alpha1.SampleGrace))}, []Node{node("n1", "v")}, nil, time.Minute},
		"a window that ends in time to the second":       {[]Request{request("a", "v", late(v1alpha1.SampleGrace-time.Second))}, []Node{node("n1", "v")}, []string{ask("n1")}, time.Minute + time.Second},
		"a request that would wait for ever":             {[]Request{request("a", "v", late(-clockTolerance-time.Second))}, []Node{node("n1", "v")}, nil, 0},
		"one window at a time, the first to expire":      {[]Request{request("b", "w"), request("a", "v", late(time.Second))}, []Node{node("n1", "v", "w")}, []string{ask("n1")}, wait - time.Second},
		"the next waits until the first is taken back":   {[]Request{request("b", "w"), request("a", "v")}, []Node{asked(node("n1", "v", "w"), "b", v1alpha1.SampleFinished)}, nil, wait},
		"a request of a node that the rollout holds":     {nil, []Node{busy(asked(node("n1", "v"), "a", ""))}, nil, lookEvery},
		"another request takes the place, one at a time": {[]Request{request("b", "v")}, []Node{asked(node("n1", "v"), "a", "")}, []string{"take the request back from n1"}, wait},
	} {
		t.Run(name, func(t *testing.T) {
			p := For(Snapshot{Requests: test.requests, Nodes: test.nodes, Now: now})
			var steps []string
			for _, s := range p.Steps {
				steps = append(steps, s.String())
			}
			if diff := cmp.Diff(test.steps, steps); diff != "" || p.Next != test.next {
				t.Errorf("next in %s, want %s; steps (-want +got):\n%s", p.Next, test.next, diff)
			}
		})
	}
}

func TestWhatANodeIsAsked(t *testing.T) {
	p := For(Snapshot{Requests: []Request{request("a", "v")}, Nodes: []Node{node("n1", "v")}, Now: now})
	want := &v1alpha1.NodeSample{ID: "a", Seconds: 60, Volumes: []string{"v"}, StartBefore: ptr.To(metav1.NewTime(now.Add(v1alpha1.SampleGrace)))}
	if diff := cmp.Diff(want, p.Steps[0].Sample); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNoMoreNodesAtATimeThanMaySample(t *testing.T) {
	var nodes []Node
	r := request("a", "v", func(r *Request) { r.Nodes = nil })
	for i := range 40 {
		n := node(fmt.Sprintf("n%02d", i), "v")
		switch {
		case i < 10:
			n = asked(n, "a", v1alpha1.SampleRunning)
		case i < 12:
			n = asked(n, "a", v1alpha1.SampleFinished)
		}
		nodes = append(nodes, n)
		r.Nodes = append(r.Nodes, n.ClientNode.Name)
	}
	p := For(Snapshot{Requests: []Request{r}, Nodes: nodes, Now: now})
	if len(p.Steps) != MaxSamples-10 || p.Next != lookEvery {
		t.Errorf("%d steps, next in %s", len(p.Steps), p.Next)
	}
}
