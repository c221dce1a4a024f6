package plan

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// TestAnUpdatedSessionEqualsANewOne makes a change during a pass. Each change leads to a different plan.
func TestAnUpdatedSessionEqualsANewOne(t *testing.T) {
	for name, c := range map[string]struct {
		before, change func(*fixture)
		// nodes are the nodes that were read again.
		nodes []string
	}{
		"a node is cordoned by others, and uses up budget": {
			before: func(f *fixture) { f.Budget = 1 },
			change: func(f *fixture) { f.node("c").Unschedulable = true }, nodes: []string{"c"},
		},
		"a node that used up budget is back": {
			before: func(f *fixture) { f.Budget, f.node("c").Ready = 1, false },
			change: func(f *fixture) { f.node("c").Ready = true }, nodes: []string{"c"},
		},
		"a claim is released, and its place is free": {
			before: func(f *fixture) { f.Budget = 1; f.Claims["c"] = v1alpha1.Disruption{Profile: "eda", NodeUID: "node-c"} },
			change: func(f *fixture) { delete(f.Claims, "c") },
		},
		"a claim is accepted, and other zones wait": {
			before: func(f *fixture) {
				f.node("a").Labels, f.node("b").Labels = map[string]string{corev1.LabelTopologyZone: "x"}, map[string]string{corev1.LabelTopologyZone: "y"}
			},
			change: func(f *fixture) {
				f.Claims["c"] = v1alpha1.Disruption{Profile: "eda", NodeUID: "node-c", Since: ago(0)}
			},
		},
		"a node of a busy zone fails, and other zones need not wait": {
			before: func(f *fixture) {
				f.Profiles[0].Rollout.FailureThreshold = ptr.To[int32](5)
				f.node("a").Labels = map[string]string{corev1.LabelTopologyZone: "x"}
				f.permitted("a", time.Minute)
			},
			change: func(f *fixture) {
				f.node("a").ClientNode.Status.Rollout = ptr.To(*f.node("a").ClientNode.Status.Rollout)
				f.node("a").ClientNode.Status.Rollout.Phase = v1alpha1.RolloutFailed
			},
			nodes: []string{"a"},
		},
		"the canary has its settings": {
			before: func(f *fixture) {
				f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
			},
			change: func(f *fixture) { f.finish("a", time.Hour) }, nodes: []string{"a"},
		},
		"the canary goes down while it soaks": {
			before: func(f *fixture) {
				f.Profiles[0].Rollout.Canary = &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)}
				f.finish("a", time.Hour)
			},
			change: func(f *fixture) {
				f.node("a").Ready, f.node("a").UnavailableSince = false, ptr.To(noon.Add(-time.Hour))
			}, nodes: []string{"a"},
		},
		"a node gets another place in the order": {
			before: func(f *fixture) { f.Budget = 1 },
			change: func(f *fixture) { f.node("a").Manager = true }, nodes: []string{"a"},
		},
		"a node was added": {
			before: func(f *fixture) { f.Nodes = f.Nodes[:2] },
			change: func(f *fixture) { f.Nodes = cluster("a", "b", "c").Nodes }, nodes: []string{"c"},
		},
		"a node with a permit was deleted": {
			before: func(f *fixture) { f.permitted("a", time.Minute) },
			change: func(f *fixture) { f.Nodes, f.Gone = f.Nodes[1:], []string{"a"} },
		},
		"a node's pods are gone": {
			before: func(f *fixture) { f.cordoned("a", time.Minute) },
			change: func(f *fixture) { f.node("a").Drain = &DrainProgress{Gone: true} }, nodes: []string{"a"},
		},
		"everything is paused":                          {change: func(f *fixture) { f.Paused = true }},
		"a profile needs other":                         {change: func(f *fixture) { f.Profiles[0].Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(1)) }},
		"a profile with effective settings was deleted": {change: func(f *fixture) { f.Profiles = nil }},
		"a failure is recorded": {change: func(f *fixture) {
			f.Failures = map[string]v1alpha1.ProfileFailures{"eda": {Boots: []v1alpha1.BootFailures{{BootHash: "h1", Settings: "p1", Nodes: []v1alpha1.FailedNode{{Name: "b", UID: "node-b"}}}}}}
		}},
		"failures cannot be read": {change: func(f *fixture) { f.UnreadFailures = sets.New("eda") }},
		"a user requests a retry": {
			before: func(f *fixture) { f.addNote("a", v1alpha1.RolloutFailed, "x", time.Hour) },
			change: func(f *fixture) { f.Profiles[0].Retry = "1" },
		},
		"time passes": {
			before: func(f *fixture) { f.addNote("a", v1alpha1.RolloutWaiting, v1alpha1.RolloutReasonDrainTimedOut, 0) },
			change: func(f *fixture) { f.Now = f.Now.Add(BackOff) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			build := func(changes ...func(*fixture)) Snapshot {
				f := cluster("a", "b", "c")
				for _, change := range changes {
					if change != nil {
						change(f)
					}
				}
				return f.Snapshot
			}
			got, want := NewSession(build(c.before)), NewSession(build(c.before, c.change))
			before := got.Plan()
			news := build(c.before, c.change)
			news.Nodes = slices.DeleteFunc(news.Nodes, func(n Node) bool { return !slices.Contains(c.nodes, n.Name) })
			got.Update(news)
			if !reflect.DeepEqual(want, got) {
				t.Error("the updated session differs from a new one")
			}
			if diff := cmp.Diff(want.Plan(), got.Plan()); diff != "" {
				t.Errorf("(-new +updated):\n%s", diff)
			}
			if cmp.Equal(before, got.Plan()) {
				t.Errorf("got the same plan after the change: %v", lines(before, "a", "b", "c"))
			}
		})
	}
}

// TestADecisionChangesNothingInItsSession makes each decision twice.
func TestADecisionChangesNothingInItsSession(t *testing.T) {
	build := func() *Session {
		f := cluster("a", "b", "c", "d", "e")
		f.cordoned("a", time.Hour)
		f.node("a").Drain = &DrainProgress{Reason: v1alpha1.RolloutReasonDrainBlocked, Message: "blocked"}
		f.permitted("b", time.Minute)
		f.rebooted("b")
		f.Claims["c"] = v1alpha1.Disruption{Profile: "eda", NodeUID: "node-c", Since: metav1.Time{Time: noon}}
		f.node("d").Ready, f.node("d").UnavailableSince = false, ptr.To(noon.Add(-time.Hour))
		return NewSession(f.Snapshot)
	}
	s := build()
	first, steps := s.Plan(), s.FirstSteps(sets.New("c")).Steps
	if len(first.Steps) == 0 || len(steps) == 0 {
		t.Fatalf("got no decisions: %v, %v", lines(first), steps)
	}
	if diff := cmp.Diff(first, s.Plan()); diff != "" || !cmp.Equal(steps, s.FirstSteps(sets.New("c")).Steps) {
		t.Errorf("second decision (-first +second):\n%s", diff)
	}
	if !reflect.DeepEqual(build(), s) {
		t.Error("a decision changed the session")
	}
}

// TestFirstStepsAreThoseOfClaimedNodes has three nodes: one with an accepted claim, one with a rejected claim, and a draining node.
func TestFirstStepsAreThoseOfClaimedNodes(t *testing.T) {
	f := cluster("a", "b", "c")
	f.Claims["a"] = v1alpha1.Disruption{Profile: "eda", NodeUID: "node-a", Since: metav1.Time{Time: noon}}
	f.cordoned("c", time.Hour)
	got := NewSession(f.Snapshot).FirstSteps(sets.New("a", "b"))
	check.Equal(t, "plan", []string{"conditions of a: Draining", "cordon a", "drain a"}, lines(got))
	if !got.Next.After(noon) {
		t.Errorf("next plan: got at %s, want at the next inspection of the pods", got.Next)
	}
}
