package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/livegate"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
)

// A canary may die at any moment. It stops the other nodes only if its window may be the cause, and then a reason names it.
func TestACanaryThatDies(t *testing.T) {
	// read makes the agent read its list, and set the window on all mounts.
	read := func(n Node) { n.ClientNode.Status.ObservedGeneration = n.ClientNode.Generation }
	set := func(n Node) { read(n); n.ClientNode.Status.Mounts[0].ReadAheadKiB = 1024 }
	chosen := rollouts(func(r *v1alpha1.Rollout) {
		r.Canary.Nodes, r.Canary.NodeSelector = nil, &metav1.LabelSelector{MatchLabels: map[string]string{"node-restriction.kubernetes.io/canary": "true"}}
	})
	waits := "readAheadKiB 1024 of rule r: waiting for the canary: a; not confirmed on a: "
	for name, test := range map[string]struct {
		rollouts map[string]v1alpha1.Rollout
		// first happens to the canary after the write of its list, then half a minute later.
		first, then func(Node)
		// gone is true if the Node of the canary is deleted.
		gone bool
		// early and late are the other nodes with the window after nine minutes and after a day. wait is the reason after a day.
		early, late []string
		wait        string
	}{
		"before its agent reads the list": {late: []string{"b", "c"}},
		"before its agent reads the list, and the selector chose it": {
			rollouts: chosen, late: nil, wait: "readAheadKiB 1024 of rule r: waiting for a canary; rollout.canary.nodeSelector selects no Ready node with the same settings",
		},
		"and its Node is deleted": {gone: true, early: []string{"b", "c"}, late: []string{"b", "c"}},
		"after its agent has read the list": {
			first: read, wait: waits + "a mount of v has 128 KiB (since 2026-11-21T12:00:00Z)",
		},
		"in the soak": {
			first: set, wait: waits + "the node or its agent is not Ready (since 2026-11-21T12:00:30Z)",
		},
		"not at all, but it cannot set the window": {
			first: func(n Node) { read(n) }, then: func(n Node) { n.ClientNode.Status.Mounts[0].ReadAheadKiB = 64 },
			wait: waits + "a mount of v has 64 KiB (since 2026-11-21T12:00:00Z)",
		},
		"not at all, but its agent, of an earlier release, rejects the window": {
			first: read, then: func(n Node) { n.ClientNode.Status.Mounts[0].Message = "desired readAheadKiB 1024: too large" },
			wait: waits + "a mount of v has 128 KiB: desired readAheadKiB 1024: too large (since 2026-11-21T12:00:00Z)",
		},
		"not at all, but its agent rejects the window": {
			first: read, then: func(n Node) { n.ClientNode.Status.Mounts[0].ReadAheadState = v1alpha1.SettingFailed },
			wait: "readAheadKiB 1024 of rule r: stopped; settings failed on a",
		},
		"not at all, but it does not support the window": {
			first: func(n Node) { read(n); n.ClientNode.Status.Mounts[0].ReadAheadState = v1alpha1.SettingUnsupported },
			then:  func(Node) {}, early: []string{"b", "c"}, late: []string{"b", "c"},
		},
		"not at all, but the window of its mount is unknown": {
			first: func(n Node) {
				read(n)
				n.ClientNode.Status.Mounts[0].ReadAheadKiB, n.ClientNode.Status.Mounts[0].ReadAheadState = 0, v1alpha1.SettingUnsupported
			},
			then: func(Node) {}, early: []string{"b", "c"}, late: []string{"b", "c"},
		},
		"not at all, but it does not support the window, and the selector chose it": {
			rollouts: chosen,
			first:    func(n Node) { read(n); n.ClientNode.Status.Mounts[0].ReadAheadState = v1alpha1.SettingUnsupported },
			then:     func(Node) {},
			wait: "readAheadKiB 1024 of rule r: waiting for a canary; rollout.canary.nodeSelector selects no Ready node with the same settings; " +
				"skipped (readAheadKiB not supported): a",
		},
		"not at all, but another program changes the window": {
			first: read, then: func(n Node) { n.ClientNode.Status.Mounts[0].ReadAheadState = v1alpha1.SettingDrifted },
			wait: waits + "a mount of v has 128 KiB (since 2026-11-21T12:00:00Z)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []Node{nodeWith("a", "v"), nodeWith("b", "v"), nodeWith("c", "v")}
			nodes[0].Node.Labels = map[string]string{"node-restriction.kubernetes.io/canary": "true"}
			p := Snapshot{Nodes: nodes, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: test.rollouts, Now: noon}
			if p.Rollouts == nil {
				p.Rollouts = rollouts()
			}
			var next Plan
			var with []string
			pass := func(after time.Duration) {
				p.Now = noon.Add(after)
				next = For(p)
				p.Since = next.Since
				for i, n := range p.Nodes {
					list, written := next.Lists[n.Node.Name]
					if !written {
						continue
					}
					n.ClientNode.Spec.Volumes = list
					n.ClientNode.Generation++
					if n.Node.Name != "a" {
						read(n)
					}
					if n.Node.Name != "a" && list[0].ReadAheadKiB != nil {
						set(p.Nodes[i])
						with = append(with, n.Node.Name)
					}
				}
				slices.Sort(with)
			}
			pass(0)
			if got := nodes[0].ClientNode.Spec.Volumes; len(got) != 1 || ptr.Deref(got[0].ReadAheadKiB, 0) != 1024 {
				t.Fatalf("got list %v of the canary", got)
			}
			for _, change := range []func(Node){test.first, test.then} {
				if change != nil {
					change(nodes[0])
				}
			}
			pass(0)
			p.Nodes[0].Writable = test.then != nil
			if test.gone {
				p.Nodes = nodes[1:]
			}
			for after := 30 * time.Second; after <= 9*time.Minute; after += 30 * time.Second {
				pass(after)
			}
			check.Equal(t, "nodes with the window after 9 minutes", test.early, with, cmpopts.EquateEmpty())
			for after := 10 * time.Minute; after <= 24*time.Hour; after += time.Hour {
				pass(after)
			}
			check.Equal(t, "nodes with the window after a day", test.late, with, cmpopts.EquateEmpty())
			if got := strings.Join(next.Waits["p"], "\n"); !strings.HasPrefix(got, test.wait) || (got == "") != (test.wait == "") {
				t.Errorf("got waits %q, want %q", got, test.wait)
			}
		})
	}
}

// A node reports mounts of volumes that no pod of it uses. It gets no window for them, does not prove them for others, and delays no node.
func TestANodeThatReportsMountsOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		users map[string]sets.Set[string]
		want  []string
	}{
		"the pods of the volume run elsewhere":    {map[string]sets.Set[string]{"v": sets.New("b", "c")}, []string{"b"}},
		"the volume has no pod":                   {map[string]sets.Set[string]{}, nil},
		"its own volume has the same rule":        {map[string]sets.Set[string]{"v": sets.New("b", "c"), "own": sets.New("a")}, []string{"a"}},
		"the node is the only one without a lie":  {map[string]sets.Set[string]{"v": sets.New("a")}, []string{"a"}},
		"another volume of the node says nothing": {map[string]sets.Set[string]{"other": sets.New("a"), "v": sets.New("c")}, []string{"c"}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []Node{nodeWith("a", "v", "own"), nodeWith("b", "v"), nodeWith("c", "v")}
			s := Snapshot{
				Nodes: nodes, Rollouts: rollouts(), Now: noon, Users: test.users,
				Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}, "own": {ReadAhead: ahead(1024)}},
			}
			check.Equal(t, "waiting", map[string]sets.Set[string]{"v": sets.New("a", "b", "c"), "own": sets.New("a")}, s.Waiting())
			var got []string
			for node, list := range For(s).Lists {
				for _, v := range list {
					if v.ReadAheadKiB == nil {
						continue
					}
					got = append(got, node)
					if !test.users[v.Name].Has(node) {
						t.Errorf("%s got the window of %s without a pod", node, v.Name)
					}
				}
			}
			check.Equal(t, "canary", test.want, got, cmpopts.EquateEmpty())
		})
	}
}

// windowsIn returns the nodes that get a window in a plan, sorted.
func windowsIn(next Plan) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(next.Lists)) {
		if slices.ContainsFunc(next.Lists[name], func(v v1alpha1.NodeVolume) bool { return v.ReadAheadKiB != nil }) {
			names = append(names, name)
		}
	}
	return names
}

// A node without support for a window is no evidence for others: the next node is the canary. The profile names the node as an exception.
func TestACanaryWithoutSupportProvesNothing(t *testing.T) {
	unsupported := func(n Node, at int) { n.ClientNode.Status.Mounts[at].ReadAheadState = v1alpha1.SettingUnsupported }
	for name, test := range map[string]struct {
		// observed is the report of the canary, whose volumes are v and w, on its list.
		observed func(canary Node)
		// next are the other nodes that get the window in the pass after the report, and soaked those after the soak.
		next, soaked []string
	}{
		"on no mount": {observed: func(n Node) { unsupported(n, 0); unsupported(n, 1) }, next: []string{"b"}},
		"on one mount, and the other one has the window": {
			observed: func(n Node) { unsupported(n, 0); n.ClientNode.Status.Mounts[1].ReadAheadKiB = 1024 }, soaked: []string{"b", "c"},
		},
		"on one mount, and the other one does not have the window yet": {observed: func(n Node) { unsupported(n, 0) }},
		"by a report that is older than the list":                      {observed: func(n Node) { unsupported(n, 0); unsupported(n, 1); n.ClientNode.Generation++ }},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []Node{nodeWith("a", "v", "w").with(nodeVolume("v", 1024), nodeVolume("w", 1024)), nodeWith("b", "v"), nodeWith("c", "v"), nodeWith("d", "v")}
			window := volumeplan.Mounted{ReadAhead: ahead(1024)}
			s := Snapshot{Nodes: nodes, Mounted: map[string]volumeplan.Mounted{"v": window, "w": window}, Rollouts: rollouts(), Now: noon}
			pass := func(moment string, want []string) {
				t.Helper()
				next := For(s)
				s.Since = next.Since
				if diff := cmp.Diff(want, windowsIn(next), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("nodes with the window %s (-want +got):\n%s", moment, diff)
				}
			}
			test.observed(nodes[0])
			pass("after the report", test.next)
			s.Now = noon.Add(59 * time.Second)
			pass("in the soak", test.next)
			s.Now = noon.Add(time.Minute)
			pass("after the soak", slices.Concat(test.next, test.soaked))
		})
	}
}

// A node whose new mount supports the window soaks from then on. The time without support is no evidence.
func TestTheTimeWithoutSupportIsNoSoak(t *testing.T) {
	a, b := nodeWith("a", "v").with(nodeVolume("v", 1024)), nodeWith("b", "v")
	a.ClientNode.Status.Mounts[0].ReadAheadState = v1alpha1.SettingUnsupported
	s := Snapshot{Nodes: []Node{a, b}, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}
	s.Nodes[1].Writable = false
	s.Since, s.Now = For(s).Since, noon.Add(time.Hour)
	a.ClientNode.Status.Mounts[0].ReadAheadKiB, a.ClientNode.Status.Mounts[0].ReadAheadState = 1024, v1alpha1.SettingInSync
	s.Nodes[1].Writable = true
	next := For(s)
	if got := windowsIn(next); len(got) > 0 || next.Next != time.Minute {
		t.Errorf("got the window on %q, the next pass after %s; want the whole soak", got, next.Next)
	}
	s.Since, s.Now = next.Since, s.Now.Add(time.Minute)
	check.Equal(t, "node with the window after the soak", "b", strings.Join(windowsIn(For(s)), " "))
}

// Nodes without support get the window one after the other, because each of them may be the first that supports it. No node waits for them.
func TestNodesWithoutSupportAreNoCandidates(t *testing.T) {
	var nodes []Node
	for _, name := range []string{"a", "b", "c", "d"} {
		nodes = append(nodes, nodeWith(name, "v"))
	}
	s := Snapshot{Nodes: nodes, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}
	for i, want := range []string{"a", "b", "c", "d", ""} {
		next := For(s)
		s.Since, s.Now = next.Since, s.Now.Add(time.Second)
		if got := strings.Join(windowsIn(next), " "); got != want {
			t.Fatalf("pass %d: got the window on %q, want %q", i, got, want)
		}
		for _, n := range nodes {
			if list := next.Lists[n.Node.Name]; len(list) > 0 && list[0].ReadAheadKiB != nil {
				n.ClientNode.Spec.Volumes = list
				n.ClientNode.Status.Mounts[0].ReadAheadState = v1alpha1.SettingUnsupported
			}
		}
		if want == "" && (len(next.Waits["p"]) > 0 || next.Next != 0) {
			t.Errorf("after the last node: got waits %q, the next pass after %s", next.Waits["p"], next.Next)
		}
	}
}

// A node that does not support one window may support another one: of another size, or of another rule.
func TestSupportIsOfOneWindow(t *testing.T) {
	a, b := nodeWith("a", "v").with(nodeVolume("v", 2048)), nodeWith("b", "v")
	a.ClientNode.Status.Mounts[0].ReadAheadState = v1alpha1.SettingUnsupported
	s := Snapshot{Nodes: []Node{a, b}, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}
	check.Equal(t, "node with the window for another size", "a", strings.Join(windowsIn(For(s)), " "))
	other := ahead(512)
	other.Rule = "z"
	a, b = nodeWith("a", "v", "w").with(nodeVolume("v", 1024), nodeVolume("w", 512)), nodeWith("b", "v")
	a.ClientNode.Status.Mounts[0].ReadAheadState, a.ClientNode.Status.Mounts[1].ReadAheadKiB = v1alpha1.SettingUnsupported, 512
	s.Nodes, s.Mounted = []Node{a, b}, map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}, "w": {ReadAhead: other}}
	check.Equal(t, "node with the window for another rule", "b", strings.Join(windowsIn(For(s)), " "))
}

// A pause of the canary stops the window, because no other node may be the canary instead.
func TestAPausedCanaryIsStillTheCanary(t *testing.T) {
	a, b := nodeWith("a", "v").with(nodeVolume("v", 1024)), nodeWith("b", "v")
	a.Node.Annotations, a.Writable = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.True}, false
	s := Snapshot{Nodes: []Node{a, b}, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}
	next := For(s)
	if got := windowsIn(next); len(got) > 0 || len(next.Waits["p"]) != 1 || !strings.Contains(next.Waits["p"][0], "not confirmed on a") {
		t.Errorf("got the window on %q, waits %q", got, next.Waits["p"])
	}
}

// Each reason appears once, however many nodes wait.
func TestReasonsAppearOnce(t *testing.T) {
	var nodes []Node
	for i := range 40 {
		nodes = append(nodes, nodeWith(fmt.Sprintf("n%02d", i), "v"))
	}
	got := For(Snapshot{Nodes: nodes, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}).Waits
	check.Equal(t, "waits", map[string][]string{"p": {"readAheadKiB 1024 of rule r: waiting for the canary"}}, got)
}

// A canary proves its window only after its agent has read the list: until then its mounts may have the value by chance.
func TestAWindowCountsOnceTheAgentHasReadTheList(t *testing.T) {
	for name, kib := range map[string]int32{"the mount has the value already": 1024, "the mount reports no value": 0} {
		t.Run(name, func(t *testing.T) {
			a, b := nodeWith("a", "v").with(nodeVolume("v", 1024)), nodeWith("b", "v")
			a.ClientNode.Status.Mounts[0].ReadAheadKiB = kib
			a.ClientNode.Generation++
			s := Snapshot{Nodes: []Node{a, b}, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}
			for range 5 {
				next := For(s)
				s.Since, s.Now = next.Since, s.Now.Add(time.Minute)
				if list := next.Lists["b"]; len(list) > 0 && list[0].ReadAheadKiB != nil {
					t.Fatal("b got the window before the canary read its list")
				}
			}
			a.ClientNode.Status.ObservedGeneration = a.ClientNode.Generation
			s.Since = For(s).Since
			s.Now = s.Now.Add(time.Minute)
			if list := For(s).Lists["b"]; len(list) == 0 || list[0].ReadAheadKiB == nil {
				t.Errorf("got list %v of b after the soak", list)
			}
		})
	}
}

// A canary that once read the list and then dies with another unread list is not skipped: the window may be the cause.
func TestACanaryThatHasReadTheListIsNotSkipped(t *testing.T) {
	a, b := nodeWith("a", "v").with(nodeVolume("v", 1024)), nodeWith("b", "v")
	s := Snapshot{Nodes: []Node{a, b}, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}
	s.Since = For(s).Since
	a.ClientNode.Generation++
	s.Nodes[0].Writable = false
	for range 24 {
		next := For(s)
		s.Since, s.Now = next.Since, s.Now.Add(time.Hour)
		if list := next.Lists["b"]; len(list) > 0 && list[0].ReadAheadKiB != nil {
			t.Fatal("b got the window of a canary that died with it")
		}
	}
}

// Each window soaks on its own, and the next pass is due at the end of the first soak.
func TestWindowsSoakSeparately(t *testing.T) {
	a := nodeWith("a", "v", "w").with(nodeVolume("v", 1024), nodeVolume("w", 512))
	other := ahead(512)
	other.Rule = "z"
	s := Snapshot{
		Nodes: []Node{a, nodeWith("b", "v", "w")}, Rollouts: rollouts(), Now: noon,
		Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}, "w": {ReadAhead: other}},
	}
	a.ClientNode.Status.Mounts[0].ReadAheadKiB = 1024
	s.Since = For(s).Since
	s.Now = noon.Add(20 * time.Second)
	a.ClientNode.Status.Mounts[1].ReadAheadKiB = 512
	if next := For(s); next.Next != 40*time.Second || !next.Since[Carrier{*other, "a"}].Since.Equal(s.Now) || !next.Since[Carrier{*ahead(1024), "a"}].Since.Equal(noon) {
		t.Errorf("got the next pass after %s, states %v", next.Next, next.Since)
	}
}

// The skip of a canary whose agent does not read its list needs no other event: the next pass is due at that time.
func TestTheSkipOfASilentCanaryHasATime(t *testing.T) {
	a, b := nodeWith("a", "v").with(nodeVolume("v", 1024)), nodeWith("b", "v")
	a.ClientNode.Generation++
	s := Snapshot{Nodes: []Node{a, b}, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}
	s.Nodes[0].Writable = false
	for after, want := range map[time.Duration]time.Duration{0: livegate.LostAfter, 4 * time.Minute: livegate.LostAfter - 4*time.Minute, livegate.LostAfter: 0} {
		s.Since, s.Now = map[Carrier]Carried{{*ahead(1024), "a"}: {Since: noon}}, noon.Add(after)
		next := For(s)
		if next.Next != want {
			t.Errorf("after %s: got the next pass after %s, want %s", after, next.Next, want)
		}
		if list := next.Lists["b"]; (len(list) > 0 && list[0].ReadAheadKiB != nil) != (want == 0) {
			t.Errorf("after %s: got list %v of b", after, list)
		}
	}
}

// A paused node without the window waits for its user. It gives no reason to wait, and is no canary.
func TestAPausedNodeIsNoCandidate(t *testing.T) {
	a, b := nodeWith("a", "v"), nodeWith("b", "v").with(nodeVolume("v", 1024))
	a.Node.Annotations = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.True}
	b.ClientNode.Status.Mounts[0].ReadAheadKiB = 1024
	s := Snapshot{Nodes: []Node{a, b}, Mounted: map[string]volumeplan.Mounted{"v": {ReadAhead: ahead(1024)}}, Rollouts: rollouts(), Now: noon}
	s.Nodes[0].Writable = false
	s.Since, s.Now = For(s).Since, noon.Add(time.Hour)
	if got := For(s).Waits["p"]; len(got) > 0 {
		t.Errorf("got waits %q, want none", got)
	}
}
