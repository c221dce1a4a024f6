package rollout

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// counting counts the reads and writes of passes.
type counting struct {
	*manager
	inspections, reads, drains, notes int
}

func (c *counting) inspectPods(ctx context.Context, step plan.Drain) {
	c.inspections++
	c.manager.inspectPods(ctx, step)
}

func (c *counting) refreshNodes(ctx context.Context, names sets.Set[string]) error {
	c.reads++
	return c.manager.refreshNodes(ctx, names)
}

func (c *counting) drainNode(ctx context.Context, step plan.Drain) plan.DrainProgress {
	c.drains++
	return c.manager.drainNode(ctx, step)
}

func (c *counting) writeNote(ctx context.Context, node string, status v1alpha1.RolloutStatus) error {
	c.notes++
	return c.manager.writeNote(ctx, node, status)
}

// TestNodesWithOnlyTerminatingPodsAreNotRead follows the drain of a node until its last pod is gone.
func TestNodesWithOnlyTerminatingPodsAreNotRead(t *testing.T) {
	w := newWorld(1)
	w.quiet, w.deterministic = true, true
	n := w.addNode("a")
	n.pods = []simPod{{name: "db"}}
	w.addProfile("eda", nil, "a")
	for range 10 {
		if len(n.pods) > 0 && !n.pods[0].goneAt.IsZero() {
			break
		}
		w.playWithoutFaults()
	}
	if len(n.pods) == 0 || n.pods[0].goneAt.IsZero() {
		t.Fatal("the pod was not evicted")
	}
	n.pods[0].goneAt = w.now.Add(time.Hour)
	c := &counting{manager: &manager{world: w, name: "m"}}
	pass := func() {
		t.Helper()
		w.now = w.now.Add(plan.MaxDrainInterval)
		if _, _, err := runPass(t.Context(), c, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		pass()
	}
	c.inspections, c.notes = 0, 0 // a drain gets its first note, which names the pod, after some time
	for range 3 {
		pass()
	}
	if c.inspections != 3 || c.reads+c.drains+c.notes > 0 {
		t.Errorf("while the pod terminates: got %d inspections, %d nodes read, %d drains, %d notes; want only 3 inspections",
			c.inspections, c.reads, c.drains, c.notes)
	}
	n.pods = nil
	pass()
	if c.reads != 1 || c.drains != 1 || n.ClientNode.Spec.RebootPermit == nil {
		t.Errorf("after the pod has terminated: got %d nodes read, %d drains, permit %v", c.reads, c.drains, n.ClientNode.Spec.RebootPermit)
	}
	if w.broken != nil {
		t.Error(w.broken)
	}
}

// Another client writes the claims between the read and the write.
func TestAClaimThatWasNotAcceptedLeadsToNoSteps(t *testing.T) {
	for name, overtaken := range map[string]bool{"taken": false, "overtaken": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.quiet, w.deterministic = true, true
			n := w.addNode("a")
			w.addProfile("eda", nil, "a")
			w.followProfiles(n)
			w.runAgent(n)
			w.interrupt = func(where string) {
				if where == "claim" && overtaken {
					w.claimsRV++
				}
			}
			if _, _, err := runPass(t.Context(), &manager{world: w, name: "m"}, 1); err != nil {
				t.Fatal(err)
			}
			if _, claimed := w.claims["a"]; claimed == overtaken || n.Unschedulable == overtaken {
				t.Errorf("got claimed %t, cordoned %t; want %t for both", claimed, n.Unschedulable, !overtaken)
			}
		})
	}
}

// The cache still has a node that was down, which uses up the budget. After a live read, the budget allows another node. That
// node was not read, and is down by now.
func TestANodeReadFromTheCacheIsNotClaimed(t *testing.T) {
	w := newWorld(1)
	w.quiet, w.deterministic = true, true
	a, b := w.addNode("a"), w.addNode("b")
	w.addProfile("eda", nil, "b")
	w.followProfiles(b)
	w.runAgent(b)
	a.Guarded = true // a step for node a, so that the pass reads it
	cached := map[string]*simNode{"a": copyNode(a), "b": copyNode(b)}
	cached["a"].Ready = false
	w.makeUnready(b)
	m := &manager{world: w, name: "m", stale: func(n *simNode) *simNode { return cached[n.Name] }}
	_, unfinished, err := runPass(t.Context(), m, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.claims) > 0 || !unfinished || a.Guarded {
		t.Errorf("got claims %v, unfinished %t, guards on a %t; want no claims, no guards, and another pass at once", w.claims, unfinished, a.Guarded)
	}
}

// The budget has room for another node, which belongs to the next pass.
func TestOnlyNodesThatHaveJustBeenClaimedGetTheirFirstSteps(t *testing.T) {
	w := newWorld(1)
	w.quiet, w.deterministic, w.budget = true, true, 2
	w.addProfile("eda", func(r *v1alpha1.Rollout) {
		r.MaxUnavailable, r.Canary.Nodes = ptr.To(intstr.FromInt32(2)), ptr.To[int32](2)
	}, "a", "b")
	for _, name := range []string{"a", "b"} {
		n := w.addNode(name)
		w.followProfiles(n)
		w.runAgent(n)
	}
	m := &manager{world: w, name: "m"}
	snapshot, err := m.readSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := passWith(m, 1, plan.NewSession(snapshot))
	p.plan.Steps = []plan.Step{plan.AddClaim{OnNode: plan.OnNode{Node: "a"}, Claim: v1alpha1.Disruption{Profile: "eda"}}}
	p.claimNodes(t.Context())
	if _, claimed := w.claims["b"]; claimed || !w.nodes["a"].Unschedulable || w.nodes["b"].Unschedulable {
		t.Errorf("got claims %v, a cordoned %t, b cordoned %t; want a only", w.claims, w.nodes["a"].Unschedulable, w.nodes["b"].Unschedulable)
	}
	if len(p.Skipped()) > 0 {
		t.Errorf("got skipped %v, want none", p.Skipped())
	}
}

// TestBudgetFreedByANodeIsUsedInTheSamePass has a budget of one node. The second node must not wait for a second pass.
func TestBudgetFreedByANodeIsUsedInTheSamePass(t *testing.T) {
	w := newWorld(1)
	w.quiet, w.deterministic = true, true
	w.addNode("a")
	w.addNode("b")
	w.addProfile("eda", func(r *v1alpha1.Rollout) { r.Canary.SoakSeconds = ptr.To[int32](0) }, "a", "b")
	before := false
	for range 100 {
		w.playWithoutFaults()
		_, a := w.claims["a"]
		_, b := w.claims["b"]
		if before && !a {
			if !b || !w.nodes["b"].Unschedulable {
				t.Errorf("after a is released: got b claimed %t, cordoned %t; want both", b, w.nodes["b"].Unschedulable)
			}
			if w.broken != nil {
				t.Error(w.broken)
			}
			return
		}
		before = a
	}
	t.Error("a did not return to service")
}

// rethinking changes an object before a pass plans again with its own writes.
type rethinking struct {
	*manager
	change func()
}

func (r *rethinking) news() plan.Snapshot {
	r.change()
	return r.manager.news()
}

// A user pauses a profile while one of its nodes drains. In the same pass, a node of another profile leaves its place.
func TestStepsOfChangedRulesComeBeforeNewClaims(t *testing.T) {
	w := newWorld(1)
	w.quiet, w.deterministic, w.budget = true, true, 2
	for _, name := range []string{"a", "b", "c"} {
		w.addNode(name)
	}
	w.nodes["c"].pods = []simPod{{name: "db", goneAt: w.now.Add(time.Hour)}}
	w.addProfile("eda", func(r *v1alpha1.Rollout) { r.Canary.SoakSeconds = ptr.To[int32](0) }, "a", "b")
	w.addProfile("web", nil, "c")
	m := &rethinking{manager: &manager{world: w, name: "m"}}
	paused := false
	m.change = func() {
		if _, a := w.claims["a"]; !a && w.nodes["a"].BootID != "" && w.nodes["c"].Unschedulable && w.nodes["a"].ClientNode.Status.Rollout.Attempts > 0 {
			web := m.rules["web"]
			web.Paused = v1alpha1.ReasonPausedByField
			m.rules["web"], paused = web, true
		}
	}
	for range 100 {
		_, unfinished, err := runPass(t.Context(), m, 1)
		if err != nil {
			t.Fatal(err)
		}
		if paused {
			if _, b := w.claims["b"]; b || !unfinished || !w.nodes["c"].Unschedulable {
				t.Errorf("got b claimed %t, unfinished %t, c cordoned %t; want the next pass to act", b, unfinished, w.nodes["c"].Unschedulable)
			}
			return
		}
		for _, name := range w.nodeNames {
			w.followProfiles(w.nodes[name])
			w.runAgent(w.nodes[name])
		}
		w.passTime(5 * time.Second)
	}
	t.Error("a did not return to service while c drained")
}

// Nodes wait for the pass after a pass with steps.
func TestRestAfterAPass(t *testing.T) {
	for _, c := range []struct {
		gathered time.Duration
		stepping bool
		want     time.Duration
	}{
		{gathered: 50 * time.Millisecond, want: 500 * time.Millisecond},
		{gathered: time.Second, want: maxRest},
		{gathered: time.Second, stepping: true},
	} {
		if got := (&scope{readDuration: c.gathered, stepping: c.stepping}).restAfter(); got != c.want {
			t.Errorf("read in %s, stepping %t: got rest %s, want %s", c.gathered, c.stepping, got, c.want)
		}
	}
}

// TestAPassWithStepsWritesFewNotesOfNodesInService has many waiting nodes while one node is claimed.
func TestAPassWithStepsWritesFewNotesOfNodesInService(t *testing.T) {
	w := newWorld(1)
	w.quiet, w.deterministic = true, true
	var names []string
	for i := range 2 * maxNotes {
		n := w.addNode(string(rune('a'+i/26)) + string(rune('a'+i%26)))
		names = append(names, n.Name)
	}
	w.nodes[names[0]].pods = []simPod{{name: "db"}}
	w.addProfile("eda", nil, names...)
	for _, n := range w.nodes {
		w.followProfiles(n)
		w.runAgent(n)
	}
	canary := w.nodes[names[len(names)-1]]
	canary.ClientNode.Spec.Canary = true
	c := &counting{manager: &manager{world: w, name: "m"}}
	for i, want := range []int{maxNotesWithSteps, maxNotes} { // the claimed node has no new note yet
		c.notes = 0
		if _, unfinished, err := runPass(t.Context(), c, 1); err != nil || !unfinished {
			t.Fatalf("pass %d: got unfinished %t, error %v; want true, nil", i+1, unfinished, err)
		}
		if c.notes != want {
			t.Errorf("pass %d: got %d notes, want %d", i+1, c.notes, want)
		}
		if canary.ClientNode.Status.Rollout == nil {
			t.Errorf("pass %d: no note of the canary, for which others wait", i+1)
		}
	}
}

// Each case pauses the rollout or closes a window in the middle of a pass.
func TestRulesAreReadAgainBeforeAClaimACordonAndAPermit(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"a user pauses everything": func(w *world) { w.paused = true },
		"a window closes":          func(w *world) { w.now = w.now.Add(time.Hour) },
	} {
		for readsBefore, step := range []string{"claim", "cordon a", "permit the reboot of a"} {
			t.Run(name+", "+step, func(t *testing.T) {
				w := newWorld(1)
				w.quiet, w.deterministic = true, true
				n := w.addNode("a")
				w.addProfile("eda", nil, "a").Windows = w.parseWindows(v1alpha1.Window{Schedule: "0 10 * * *", DurationSeconds: 1800})
				w.followProfiles(n)
				w.runAgent(n)
				times, written := 0, false
				w.interrupt = func(where string) {
					if where == "rules" {
						if times == readsBefore {
							change(w)
						}
						times++
					}
					written = written || times > readsBefore && where == step
				}
				for range 8 {
					if _, _, err := runPass(t.Context(), &manager{world: w, name: "m"}, 1); err != nil {
						t.Fatal(err)
					}
					w.passTime(time.Second)
					if times > readsBefore {
						break
					}
				}
				if times <= readsBefore || written {
					t.Errorf("got %d reads of the rules, written %t; want more reads and no write", times, written)
				}
				if w.broken != nil {
					t.Error(w.broken)
				}
			})
		}
	}
}

// The budget allows more nodes.
func TestOnePassLooksAheadAtFewNodes(t *testing.T) {
	const lookLimit = 24
	w := newWorld(1)
	w.quiet, w.deterministic, w.budget = true, true, 2*lookLimit
	var names []string
	for i := range lookLimit + 7 {
		n := w.addNode(fmt.Sprintf("node-%02d", i))
		names = append(names, n.Name)
		if i == 1 {
			n.pods = []simPod{{name: "db", blockedUntil: w.now.Add(time.Hour)}}
		}
	}
	w.addProfile("eda", func(r *v1alpha1.Rollout) {
		r.MaxUnavailable, r.Canary.Nodes = ptr.To(intstr.FromInt(2*lookLimit)), ptr.To[int32](2*lookLimit)
	}, names...)
	looks := 0
	w.interrupt = func(where string) {
		if where == "look ahead" {
			looks++
		}
	}
	for _, name := range names {
		w.followProfiles(w.nodes[name])
		w.runAgent(w.nodes[name])
	}
	_, unfinished, err := runPass(t.Context(), &manager{world: w, name: "m"}, 1)
	if err != nil || !unfinished || looks != lookLimit || len(w.claims) != lookLimit-1 {
		t.Errorf("got %d inspections, %d claims, unfinished %t, error %v; want %d inspections", looks, len(w.claims), unfinished, err, lookLimit)
	}
	note := w.nodes["node-01"].ClientNode.Status.Rollout
	if _, claimed := w.claims["node-01"]; claimed || note.Reason != v1alpha1.RolloutReasonDrainBlocked || note.RetryAfter == nil {
		t.Errorf("node-01: got claimed %t, note %+v; want no claim and a later retry", claimed, note)
	}
	if w.broken != nil {
		t.Error(w.broken)
	}
}

// The steps concern one control-plane node. The cached state of the others may be a second old.
func TestAllControlPlaneNodesAreReadTogether(t *testing.T) {
	session := plan.NewSession(plan.Snapshot{Nodes: []plan.Node{
		{Name: "cp-1", ControlPlane: true}, {Name: "worker-1"}, {Name: "cp-2", ControlPlane: true}, {Name: "worker-2"},
	}})
	for _, c := range []struct {
		step string
		read []string
	}{
		{"worker-1", []string{"worker-1"}},
		{"cp-1", []string{"cp-1", "cp-2"}},
	} {
		steps := []plan.Step{plan.Drain{OnNode: plan.OnNode{Node: c.step}}}
		p := &pass{session: session, plan: plan.Plan{Steps: steps}}
		if diff := cmp.Diff(c.read, sets.List(p.nodesToRead())); diff != "" {
			t.Errorf("for a step on %s (-want +got):\n%s", c.step, diff)
		}
	}
}
