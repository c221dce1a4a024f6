package livegate

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/storageclient/operator/api/v1alpha1"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/lists"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func policy(change func(*Policy)) Policy {
	p := Policy{Canaries: 1, Soak: time.Minute, Limit: intstr.FromString("50%"), FailureThreshold: 1}
	if change != nil {
		change(&p)
	}
	return p
}

// waiting returns a live node with the old settings. The age determines the order of the nodes.
func waiting(name string, age int) Node {
	return Node{Name: name, Created: now.Add(-time.Duration(age) * time.Hour), Managed: true, Current: "old", Desired: "new", Alive: true, Applied: true, AppliedSince: now.Add(-time.Hour)}
}

// unreported returns a node that has the new settings but has not reported them.
func unreported(name string, age int) Node {
	node := waiting(name, age)
	node.Current, node.Applied, node.AppliedSince = "new", false, time.Time{}
	return node
}

// taken returns a node that reported the new settings some time ago.
func taken(name string, age int, since time.Duration) Node {
	node := unreported(name, age)
	node.Applied, node.AppliedSince = true, now.Add(-since)
	return node
}

func with(node Node, changes ...func(*Node)) Node {
	for _, change := range changes {
		change(&node)
	}
	return node
}

func TestAdmit(t *testing.T) {
	dead := func(n *Node) { n.Alive, n.AppliedSince = false, time.Time{} }
	chosen := func(n *Node) { n.Canary = true }
	byName := policy(func(p *Policy) { p.Canaries, p.Chosen = 0, true })
	for name, test := range map[string]struct {
		nodes  []Node
		policy Policy
		want   []string
		notes  map[string]string
	}{
		"chosen nodes go first, all of them": {
			nodes:  []Node{waiting("a", 9), with(waiting("b", 8), chosen), with(waiting("c", 7), chosen)},
			policy: byName,
			want:   []string{"b", "c"},
			notes:  map[string]string{"a": "waiting for the canary"},
		},
		"all chosen nodes have to soak": {
			nodes:  []Node{waiting("a", 9), with(taken("b", 8, time.Hour), chosen), with(taken("c", 7, time.Second), chosen)},
			policy: byName,
			notes:  map[string]string{"a": "waiting for the canary: b, c"},
		},
		"and then the others go": {
			nodes:  []Node{waiting("a", 9), with(taken("b", 8, time.Hour), chosen), with(taken("c", 7, time.Hour), chosen)},
			policy: byName,
			want:   []string{"a"},
		},
		"a dead chosen node is skipped": {
			nodes:  []Node{waiting("a", 9), with(waiting("b", 8), chosen, dead), with(taken("c", 7, time.Hour), chosen)},
			policy: byName,
			want:   []string{"a"},
			notes:  map[string]string{"b": "waiting until the node and its agent are Ready"},
		},
		"one that died with the settings is not": {
			nodes:  []Node{waiting("a", 9), with(unreported("b", 8), chosen, dead), with(taken("c", 7, time.Hour), chosen)},
			policy: byName,
			notes:  map[string]string{"a": "waiting for the canary: b, c"},
		},
		"no node is admitted if no node is chosen": {
			nodes:  []Node{waiting("a", 9), waiting("b", 8)},
			policy: byName,
			notes: map[string]string{
				"a": "waiting for a canary; rollout.canary.nodeSelector selects no Ready node with the same settings",
				"b": "waiting for a canary; rollout.canary.nodeSelector selects no Ready node with the same settings",
			},
		},
		"but for what others have carried for long": {
			nodes:  []Node{waiting("a", 9), taken("b", 8, time.Hour)},
			policy: byName,
			want:   []string{"a"},
		},
		"the oldest node is admitted first and alone": {
			nodes:  []Node{waiting("b", 1), waiting("a", 2), waiting("c", 1)},
			policy: policy(nil),
			want:   []string{"a"},
			notes:  map[string]string{"b": "waiting for the canary", "c": "waiting for the canary"},
		},
		"others wait while the canary has not reported": {
			nodes:  []Node{unreported("a", 3), waiting("b", 2)},
			policy: policy(nil),
			notes:  map[string]string{"b": "waiting for the canary: a"},
		},
		"others wait while the canary soaks": {
			nodes:  []Node{taken("a", 3, 59*time.Second), waiting("b", 2)},
			policy: policy(nil),
			notes:  map[string]string{"b": "waiting for the canary: a"},
		},
		"after the soak no more go than the limit": {
			nodes:  []Node{taken("a", 9, time.Minute), waiting("b", 8), waiting("c", 7), waiting("d", 6)},
			policy: policy(nil),
			want:   []string{"b", "c"},
			notes:  map[string]string{"d": "queued; at most 2 nodes at a time"},
		},
		"nodes on their way use up the limit": {
			nodes:  []Node{taken("a", 9, time.Minute), unreported("b", 8), waiting("c", 7), waiting("d", 6)},
			policy: policy(nil),
			want:   []string{"c"},
			notes:  map[string]string{"d": "queued; at most 2 nodes at a time"},
		},
		"no node follows a canary that became silent with the new settings": {
			nodes:  []Node{with(unreported("a", 3), dead), waiting("b", 2)},
			policy: policy(nil),
			notes:  map[string]string{"b": "waiting for the canary: a"},
		},
		"a node that is dead before it got settings is skipped": {
			nodes:  []Node{with(waiting("a", 3), dead), waiting("b", 2)},
			policy: policy(nil),
			want:   []string{"b"},
			notes:  map[string]string{"a": "waiting until the node and its agent are Ready"},
		},
		"an older node that comes back does not become a second canary": {
			nodes:  []Node{waiting("a", 3), unreported("b", 2)},
			policy: policy(nil),
			notes:  map[string]string{"a": "waiting for the canary: b"},
		},
		"a failure stops everybody": {
			nodes:  []Node{taken("a", 9, time.Hour), with(unreported("b", 8), func(n *Node) { n.Failed = true }), waiting("c", 7)},
			policy: policy(nil),
			notes:  map[string]string{"c": "stopped; settings failed on b" + checkNodes},
		},
		"a failure under the threshold does not": {
			nodes:  []Node{taken("a", 9, time.Hour), with(unreported("b", 8), func(n *Node) { n.Failed = true }), waiting("c", 7)},
			policy: policy(func(p *Policy) { p.FailureThreshold, p.Limit = 2, intstr.FromInt32(2) }),
			want:   []string{"c"},
		},
		"a failure of settings that are no longer desired does not count": {
			nodes:  []Node{with(waiting("a", 3), func(n *Node) { n.Failed = true })},
			policy: policy(nil),
			want:   []string{"a"},
		},
		"a node that another profile overrides proves nothing for the rest": {
			nodes: []Node{
				with(taken("a", 9, time.Hour), func(n *Node) { n.Current, n.Desired = "same", "same" }),
				waiting("b", 8), waiting("c", 7),
			},
			policy: policy(nil),
			want:   []string{"b"},
			notes:  map[string]string{"c": "waiting for the canary"},
		},
		"the canaries of two groups together stay within the limit": {
			nodes: []Node{
				waiting("a", 9), waiting("b", 8), with(waiting("c", 7), func(n *Node) { n.Desired = "other" }),
			},
			policy: policy(func(p *Policy) { p.Limit = intstr.FromInt32(1) }),
			want:   []string{"a"},
			notes:  map[string]string{"b": "waiting for the canary", "c": "queued; at most 1 node at a time"},
		},
		"a canary that soaks uses up the limit of other kinds of nodes": {
			nodes: []Node{
				taken("a", 9, time.Second), waiting("b", 8), with(waiting("c", 7), func(n *Node) { n.Desired = "other" }),
			},
			policy: policy(func(p *Policy) { p.Limit = intstr.FromInt32(1) }),
			notes:  map[string]string{"b": "waiting for the canary: a", "c": "queued; at most 1 node at a time"},
		},
		"a new node follows without a soak if its settings have soaked": {
			nodes:  []Node{taken("a", 9, time.Hour), taken("b", 8, time.Hour), with(waiting("c", 0), func(n *Node) { n.Managed, n.Current, n.Applied = false, "", false })},
			policy: policy(nil),
			want:   []string{"c"},
		},
		"all nodes of a canary are admitted together": {
			nodes:  []Node{waiting("a", 4), waiting("b", 3), waiting("c", 2)},
			policy: policy(func(p *Policy) { p.Canaries, p.Limit = 2, intstr.FromInt32(1) }),
			want:   []string{"a", "b"},
			notes:  map[string]string{"c": "waiting for the canary"},
		},
		"a failed node in a proven group leaves its place to others, up to the threshold": {
			nodes:  []Node{taken("a", 9, time.Hour), with(unreported("b", 8), func(n *Node) { n.Failed = true }), waiting("c", 7)},
			policy: policy(func(p *Policy) { p.FailureThreshold, p.Limit = 2, intstr.FromInt32(1) }),
			want:   []string{"c"},
		},
		"a canary that cannot be proven now is named": {
			nodes:  []Node{with(unreported("a", 3), func(n *Node) { n.Unconfirmed = "put back: filer1 does not answer" }), waiting("b", 2)},
			policy: policy(nil),
			notes:  map[string]string{"b": "waiting for the canary: a; not confirmed on a: put back: filer1 does not answer" + excludeNode},
		},
		"so are nodes that use up the limit": {
			nodes: []Node{
				taken("a", 9, time.Hour), with(unreported("b", 8), func(n *Node) { n.Unconfirmed = "filer1 does not answer" }), waiting("c", 7),
			},
			policy: policy(func(p *Policy) { p.Limit = intstr.FromInt32(1) }),
			notes:  map[string]string{"c": "queued; at most 1 node at a time; not confirmed on b: filer1 does not answer" + excludeNode},
		},
		"a node of a proven group that does not confirm its settings anymore does not use up the limit": {
			nodes: []Node{
				with(taken("a", 9, time.Hour), func(n *Node) { n.Unconfirmed = "drifted" }), with(unreported("b", 8), func(n *Node) { n.Unconfirmed = "the agent is silent" }), waiting("c", 7),
			},
			policy: policy(func(p *Policy) { p.Limit = intstr.FromInt32(1) }),
			notes:  map[string]string{"c": "queued; at most 1 node at a time; not confirmed on b: the agent is silent" + excludeNode},
		},
		"a canary whose agent does not start is waited for": {
			nodes:  []Node{with(unreported("a", 3), dead, unstarted(LostAfter-time.Second)), waiting("b", 2)},
			policy: policy(nil),
			notes:  map[string]string{"b": "waiting for the canary: a"},
		},
		"and after ten minutes skipped, and reported": {
			nodes:  []Node{with(unreported("a", 3), dead, unstarted(LostAfter)), waiting("b", 2), waiting("c", 1)},
			policy: policy(nil),
			want:   []string{"b"},
			notes:  map[string]string{"c": "waiting for the canary; skipped (agent not started for 10 minutes): a"},
		},
		"a canary that has reported before is not": {
			nodes:  []Node{with(unreported("a", 3), dead, unstarted(time.Hour), func(n *Node) { n.NeverStarted = false }), waiting("b", 2)},
			policy: policy(nil),
			notes:  map[string]string{"b": "waiting for the canary: a"},
		},
		"agents that do not start use up no limit": {
			nodes:  []Node{taken("a", 9, time.Hour), with(unreported("b", 8), dead, unstarted(time.Hour)), waiting("c", 7)},
			policy: policy(func(p *Policy) { p.Limit = intstr.FromInt32(1) }),
			want:   []string{"c"},
		},
		"a pool of which no agent starts proves nothing": {
			nodes:  []Node{with(unreported("a", 3), dead, unstarted(time.Hour)), waiting("b", 2)},
			policy: policy(nil),
			want:   []string{"b"},
		},
		"no more go than the cluster has places": {
			nodes:  []Node{taken("a", 9, time.Hour), waiting("b", 8), waiting("c", 7)},
			policy: policy(func(p *Policy) { p.Limit, p.Cluster = intstr.FromString("100%"), &Cluster{Limit: 3, Running: 2} }),
			want:   []string{"b"},
			notes:  map[string]string{"c": "queued; at most 3 nodes in the cluster at a time; see the condition Tuned of the Nodes"},
		},
		"nor a canary": {
			nodes:  []Node{waiting("a", 9), waiting("b", 8)},
			policy: policy(func(p *Policy) { p.Cluster = &Cluster{Limit: 1, Running: 1} }),
			notes: map[string]string{
				"a": "queued; at most 1 node in the cluster at a time; see the condition Tuned of the Nodes", "b": "queued; at most 1 node in the cluster at a time; see the condition Tuned of the Nodes",
			},
		},
		"a node without workload does not use the cluster limit for proven settings": {
			nodes:  []Node{taken("a", 9, time.Hour), with(waiting("b", 0), func(n *Node) { n.Empty = true }), waiting("c", 7)},
			policy: policy(func(p *Policy) { p.Limit, p.Cluster = intstr.FromString("100%"), &Cluster{Limit: 1, Running: 1} }),
			want:   []string{"b"},
			notes:  map[string]string{"c": "queued; at most 1 node in the cluster at a time; see the condition Tuned of the Nodes"},
		},
		"but one for what is not": {
			nodes:  []Node{with(waiting("b", 0), func(n *Node) { n.Empty = true })},
			policy: policy(func(p *Policy) { p.Cluster = &Cluster{Limit: 1, Running: 1} }),
			notes:  map[string]string{"b": "queued; at most 1 node in the cluster at a time; see the condition Tuned of the Nodes"},
		},
		"a canary larger than the pool is the pool": {
			nodes:  []Node{taken("a", 4, time.Hour), waiting("b", 3)},
			policy: policy(func(p *Policy) { p.Canaries = 5 }),
			want:   []string{"b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Admit(lists.Pointers(test.nodes), test.policy, now)
			check.Equal(t, "admitted", test.want, slices.Sorted(maps.Keys(got.Admitted)))
			if test.notes == nil {
				test.notes = map[string]string{}
			}
			check.Equal(t, "notes", test.notes, got.Notes)
		})
	}
}

func unstarted(since time.Duration) func(*Node) {
	return func(n *Node) { n.SilentSince, n.NeverStarted = now.Add(-since), true }
}

func TestAdmitReportsTheCanaries(t *testing.T) {
	nodes := []Node{waiting("a", 9), with(taken("b", 8, time.Hour), other), with(waiting("c", 7), other)}
	got := Admit(lists.Pointers(nodes), policy(func(p *Policy) { p.Limit = intstr.FromInt32(2) }), now)
	if !got.Admitted["a"] || !got.Admitted["c"] {
		t.Fatalf("admitted %v", got.Admitted)
	}
	check.Equal(t, "canaries", map[string]bool{"a": true}, got.Canaries)
}

func other(n *Node) {
	if n.Current == n.Desired {
		n.Current = "other"
	}
	n.Desired = "other"
}

// A node that waits only for nodes that cannot start may start. A node that waits for any other node must wait.
func TestAdmitQueued(t *testing.T) {
	one := policy(func(p *Policy) { p.Limit = intstr.FromInt32(1) })
	for name, test := range map[string]struct {
		nodes []Node
		stuck []string
		want  []string
	}{
		"the canary's place becomes free for the next node":         {[]Node{waiting("a", 9), waiting("b", 8)}, []string{"a"}, []string{"a", "b"}},
		"not if the node itself is admitted":                        {[]Node{waiting("a", 9), waiting("b", 8)}, nil, []string{"a"}},
		"nor if the node has started":                               {[]Node{unreported("a", 9), waiting("b", 8)}, []string{"a"}, nil},
		"the place within the limit becomes free for another group": {[]Node{waiting("a", 9), with(waiting("b", 8), other)}, []string{"a"}, []string{"a", "b"}},
		"not if another node uses it":                               {[]Node{with(unreported("x", 9), other), waiting("a", 8), waiting("b", 7)}, []string{"a"}, nil},
		"and to the next of what is proven already":                 {[]Node{taken("x", 9, time.Hour), waiting("a", 8), waiting("b", 7)}, []string{"a"}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Admit(lists.Pointers(test.nodes), one, now)
			got.AdmitQueued(func(name string) bool { return !slices.Contains(test.stuck, name) })
			check.Equal(t, "admitted", test.want, slices.Sorted(maps.Keys(got.Admitted)))
			for name := range got.Admitted {
				if note, found := got.Notes[name]; found {
					t.Errorf("%s is admitted, but has a note to wait: %s", name, note)
				}
			}
		})
	}
}

func TestAdmitReportsTheEndOfTheSoak(t *testing.T) {
	got := Admit(lists.Pointers([]Node{taken("a", 2, 40*time.Second), waiting("b", 1)}), policy(nil), now)
	check.Equal(t, "time until the next evaluation", 20*time.Second, got.Next)
}

func TestShareIsRoundedDownAndNeverUnderOne(t *testing.T) {
	for name, test := range map[string]struct {
		limit intstr.IntOrString
		nodes int
		want  int
	}{
		"a percentage is rounded down": {intstr.FromString("10%"), 29, 2},
		"and never under one":          {intstr.FromString("10%"), 3, 1},
		"a number stands":              {intstr.FromInt32(4), 3, 4},
		"nonsense counts as one":       {intstr.FromString("many"), 30, 1},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", test.want, v1alpha1.ResolveShare(test.limit, test.nodes))
		})
	}
}

// TestRolloutKeepsItsLimits simulates a change of settings in a pool. Nodes die, fail and recover, and the test checks the limits at every
// step.
func TestRolloutKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Canaries:         rapid.IntRange(1, 3).Draw(t, "canaries"),
			Soak:             time.Duration(rapid.IntRange(0, 5).Draw(t, "soak")) * time.Second,
			Limit:            intstr.FromInt32(int32(rapid.IntRange(1, 4).Draw(t, "limit"))),
			FailureThreshold: 1,
		}
		nodes := make([]Node, rapid.IntRange(1, 12).Draw(t, "nodes"))
		for i := range nodes {
			nodes[i] = waiting("node-"+strconv.Itoa(i), 100-i)
			nodes[i].Desired = rapid.SampledFrom([]string{"new", "new", "other"}).Draw(t, "wanted")
			nodes[i].Alive = rapid.IntRange(0, 5).Draw(t, "alive") > 0
		}
		clock, failed := now, false
		for range 60 {
			before := unsettled(nodes)
			got := Admit(lists.Pointers(nodes), p, clock)
			if failed && len(got.Admitted) > 0 {
				t.Fatalf("got %v admitted after a failure, want none", got.Admitted)
			}
			if limit := max(p.Canaries, int(p.Limit.IntVal)); len(got.Admitted) > max(0, limit-before) {
				t.Fatalf("got %v admitted with %d in progress, limit %d", got.Admitted, before, limit)
			}
			for i := range nodes {
				step(t, &nodes[i], got, clock, &failed)
			}
			clock = clock.Add(time.Second)
		}
		for _, node := range nodes {
			if !failed && node.Alive && !node.hasDesired() && blocked(nodes) == 0 {
				t.Fatalf("%s never received its settings: %+v", node.Name, nodes)
			}
		}
	})
}

func step(t *rapid.T, node *Node, got Decision, clock time.Time, failed *bool) {
	switch {
	case got.Admitted[node.Name]:
		if !node.Alive {
			t.Fatalf("got %s admitted, which is dead", node.Name)
		}
		node.Current, node.Applied, node.AppliedSince = node.Desired, false, time.Time{}
	case node.hasDesired() && !node.Applied && node.Alive:
		switch rapid.IntRange(0, 20).Draw(t, "outcome") {
		case 0:
			node.Failed, *failed = true, true
		case 1:
			node.Alive = false
		default:
			node.Applied, node.AppliedSince = true, clock
		}
	}
}

func unsettled(nodes []Node) int {
	count := 0
	for _, node := range nodes {
		if node.hasDesired() && !node.Applied {
			count++
		}
	}
	return count
}

// blocked counts nodes that died with the new settings. They block the rollout on purpose.
func blocked(nodes []Node) int {
	count := 0
	for _, node := range nodes {
		if node.hasDesired() && !node.Alive {
			count++
		}
	}
	return count
}

// A storage server that responds when it is chosen, is silent during the proof, and responds again makes good settings fail. Tenants can bring one.
func TestOneServersWordHoldsOnlyItsNodes(t *testing.T) {
	mounts := func(servers ...string) func(*Node) {
		return func(n *Node) {
			n.Servers = &[]v1alpha1.ServerStatus{}
			for _, server := range servers {
				*n.Servers = append(*n.Servers, v1alpha1.ServerStatus{Server: server})
			}
		}
	}
	failedBy := func(accuser string) func(*Node) {
		return func(n *Node) { n.Failed, n.Accuser = true, accuser }
	}
	chosen := func(n *Node) { n.Canary = true }
	byName := policy(func(p *Policy) { p.Canaries, p.Chosen = 0, true })
	const alone = "stopped; settings failed on a by the word of storage server evil alone; a node without mounts from it must prove them"
	for name, test := range map[string]struct {
		nodes  []Node
		policy Policy
		want   []string
		notes  map[string]string
		// stuck contains a failed node for each node that does not continue. stopped is true if the threshold is the reason.
		stuck   map[string]string
		stopped bool
	}{
		"another node without that server is the canary": {
			nodes: []Node{with(unreported("a", 9), failedBy("evil"), mounts("evil")), with(waiting("b", 8), mounts("filer", "evil")), with(waiting("c", 7), mounts("filer")), waiting("d", 6)},
			want:  []string{"c"}, notes: map[string]string{"b": "waiting for the canary", "d": "waiting for the canary"},
		},
		"once it has proven the settings, the others follow": {
			nodes: []Node{with(unreported("a", 9), failedBy("evil"), mounts("evil")), with(waiting("b", 8), mounts("filer", "evil")), with(taken("c", 7, time.Hour), mounts("filer")), waiting("d", 6), waiting("e", 5)},
			want:  []string{"d", "e"}, notes: map[string]string{"b": alone}, stuck: map[string]string{"b": "a"},
		},
		"a small limit has room for the second canary": {
			nodes: []Node{with(unreported("a", 9), failedBy("evil")), waiting("b", 8)}, policy: policy(func(p *Policy) { p.Limit = intstr.FromInt32(1) }),
			want: []string{"b"},
		},
		"the server fails nodes after the canary": {
			nodes: []Node{taken("a", 9, time.Hour), with(unreported("b", 8), failedBy("evil"), mounts("evil")), with(waiting("c", 7), mounts("evil")), with(waiting("d", 6), mounts("filer"))},
			want:  []string{"d"}, notes: map[string]string{"c": strings.Replace(alone, "on a by", "on b by", 1)}, stuck: map[string]string{"c": "b"},
		},
		"the same server on many nodes is one witness": {
			nodes: []Node{taken("a", 9, time.Hour), with(unreported("b", 8), failedBy("evil")), with(unreported("c", 7), failedBy("evil")), with(unreported("d", 6), failedBy("evil")), waiting("e", 5)},
			want:  []string{"e"},
		},
		"two servers on two nodes are witnesses of each other": {
			nodes: []Node{with(unreported("a", 9), failedBy("filer1")), with(unreported("b", 8), failedBy("filer2")), waiting("c", 7)},
			notes: map[string]string{"c": "stopped; settings failed on a, b" + checkNodes}, stuck: map[string]string{"c": "a"}, stopped: true,
		},
		"a failure without a named server counts for all": {
			nodes: []Node{with(unreported("a", 9), failedBy("")), waiting("b", 8)},
			notes: map[string]string{"b": "stopped; settings failed on a" + checkNodes}, stuck: map[string]string{"b": "a"}, stopped: true,
		},
		"another failure does": {
			nodes: []Node{with(unreported("a", 9), failedBy("evil")), with(unreported("b", 8), failedBy("")), waiting("c", 7)},
			notes: map[string]string{"c": "stopped; settings failed on b" + checkNodes}, stuck: map[string]string{"c": "b"}, stopped: true,
		},
		"without another node, it stops and names what is missing": {
			nodes: []Node{with(unreported("a", 9), failedBy("evil"), mounts("evil")), with(waiting("b", 8), mounts("evil"))},
			notes: map[string]string{"b": alone}, stuck: map[string]string{"b": "a"},
		},
		"only a chosen node may be the second canary": {
			nodes:  []Node{with(unreported("a", 9), failedBy("evil"), chosen), waiting("b", 8), with(waiting("c", 7), chosen)},
			policy: byName, want: []string{"c"}, notes: map[string]string{"b": "waiting for the canary"},
		},
		"without another chosen node, it stops": {
			nodes:  []Node{with(unreported("a", 9), failedBy("evil"), chosen), waiting("b", 8), with(waiting("c", 7), chosen, mounts("evil"))},
			policy: byName, notes: map[string]string{"b": alone, "c": alone}, stuck: map[string]string{"b": "a", "c": "a"},
		},
		"nodes with other settings are not concerned": {
			nodes: []Node{with(unreported("a", 9), failedBy("evil")), with(waiting("b", 8), mounts("evil"), func(n *Node) { n.Desired = "other" })},
			want:  []string{"b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules := test.policy
			if rules.FailureThreshold == 0 {
				rules = policy(nil)
			}
			got := Admit(lists.Pointers(test.nodes), rules, now)
			check.Equal(t, "admitted", test.want, slices.Sorted(maps.Keys(got.Admitted)))
			check.Equal(t, "notes", test.notes, got.Notes, cmpopts.EquateEmpty())
			if diff := cmp.Diff(test.stuck, got.Stuck, cmpopts.EquateEmpty()); diff != "" || got.Stopped != test.stopped {
				t.Errorf("got stopped %t, stuck (-want +got):\n%s", got.Stopped, diff)
			}
		})
	}
}
