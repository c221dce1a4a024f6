package simulation

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
	"github.com/storageclient/operator/test/play"
)

// expectedToFail are the waits without an end that the manager still has.
var expectedToFail = map[string]string{
	"a refused cordon does not delay other nodes":                      "WA2",
	"a refused cordon does not delay other profiles":                   "WA2",
	"a refused condition does not delay other nodes":                   "WA2",
	"a condition that cannot be removed keeps no node cordoned":        "WA2",
	"a refused permit leaves no drained node":                          "WA2",
	"a clock that is ahead while a node drains delays no node":         "WA5",
	"a node that is deleted before its permit is not lost to a reboot": "WA7",
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// missing returns the nodes that do not have the settings of their profile.
func (s *story) missing(profile string, nodes ...string) string {
	nodes = slices.DeleteFunc(nodes, func(node string) bool { return s.isDone(node, profile) })
	if len(nodes) == 0 {
		return ""
	}
	return fmt.Sprintf("%v do not have the settings of profile %s; note of %s: %+v", nodes, profile, nodes[0], s.note(nodes[0]))
}

// cordoned returns a problem if a node is out of service.
func (s *story) cordonedStill(node string) string {
	if s.isCordonedNode(node) {
		return fmt.Sprintf("%s is cordoned; its note: %+v", node, s.note(node))
	}
	return ""
}

// A policy rejects the rollout's writes of a kind that concern a node.
func (s *story) refuse(node string, kind memapi.Kind, status bool, is func() bool) {
	s.intercept = func(call memapi.Call) (memapi.Fate, error) {
		if call.Actor == byRollout && call.IsWrite() && call.Kind == kind && call.Name == node && call.Status == status && is() {
			return memapi.Refused, errPolicy
		}
		return memapi.Answered, nil
	}
}

func always() bool { return true }

// threeNodes prepares nodes whose profile needs a reboot.
func (s *story) threeNodes() {
	s.nodes("a", "b", "c", "z")
	s.profile("eda", nil, "a", "b", "c")
	s.prepare()
}

// waits are stories in which one node, write or clock is ill. Each returns the problem at its end, empty if the others were served.
var waits = map[string]func(*story) string{
	"an agent that died after its report does not delay other nodes": func(s *story) string {
		s.threeNodes()
		s.machines["a"].silentUntil = s.now.Add(10 * week)
		s.setAgentReady("a", false)
		s.play(week)
		return s.missing("eda", "b", "c")
	},
	"an agent that never reports does not delay other nodes": func(s *story) string {
		s.nodes("a", "b", "c", "z")
		s.machines["a"].silentUntil = s.now.Add(10 * week)
		s.profile("eda", nil, "a", "b", "c")
		s.play(week)
		return s.missing("eda", "b", "c")
	},
	"an agent that died before a change does not delay other nodes": func(s *story) string {
		s.nodes("a", "b", "c", "z")
		s.profile("eda", nil, "a", "b", "c")
		s.play(3 * time.Hour)
		s.machines["a"].silentUntil = s.now.Add(10 * week)
		s.setAgentReady("a", false)
		s.edit("eda", func(p *v1alpha1.StorageClientProfile) { s.setVersion(p, 2) })
		s.play(day)
		return s.missing("eda", "b", "c")
	},
	"a node that another profile's pause holds does not delay other nodes": func(s *story) string {
		s.nodes("a", "b", "c", "z")
		s.profile("eda", nil, "a", "b", "c")
		s.play(3 * time.Hour)
		s.profile("live", func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Node.KernelArguments = nil
			p.Spec.Paused = true
		}, "a")
		s.edit("eda", func(p *v1alpha1.StorageClientProfile) { s.setVersion(p, 2) })
		s.play(day)
		return s.missing("eda", "b", "c")
	},
	"a refused cordon does not delay other nodes": func(s *story) string {
		s.threeNodes()
		s.refuse("a", memapi.Nodes, false, always)
		s.play(time.Hour)
		return s.missing("eda", "b", "c")
	},
	"a refused cordon does not delay other profiles": func(s *story) string {
		s.nodes("a", "b", "c", "z")
		s.profile("eda", nil, "a")
		s.profile("web", nil, "b", "c")
		s.refuse("a", memapi.Nodes, false, always)
		s.play(week)
		return s.missing("web", "b", "c")
	},
	"a refused condition does not delay other nodes": func(s *story) string {
		s.threeNodes()
		s.refuse("a", memapi.Nodes, true, always)
		s.play(time.Hour)
		return s.missing("eda", "a", "b", "c")
	},
	"a condition that cannot be removed keeps no node cordoned": func(s *story) string {
		s.threeNodes()
		s.refuse("a", memapi.Nodes, true, func() bool { return s.isDone("a", "eda") })
		s.play(2 * time.Hour)
		return s.cordonedStill("a")
	},
	"a refused permit leaves no drained node": func(s *story) string {
		s.threeNodes()
		s.refuse("a", memapi.ClientNodes, false, always)
		s.play(40 * time.Minute)
		return s.cordonedStill("a")
	},
	"the manager's node does not wait for a silent node of another profile": func(s *story) string {
		s.nodes("m", "x", "z")
		s.managerNode = "m"
		s.addManagerPod(nil)
		s.profile("eda", nil, "m")
		s.profile("web", nil, "x")
		s.until("x is done", func() bool { return s.clientNode("x") != nil })
		s.machines["x"].silentUntil = s.now.Add(10 * week)
		s.setAgentReady("x", false)
		s.edit("web", func(p *v1alpha1.StorageClientProfile) { s.setVersion(p, 2) })
		s.play(day)
		return s.missing("eda", "m")
	},
	"a clock that is ahead while a node drains delays no node":  aheadIn(v1alpha1.RolloutDraining),
	"a clock that is ahead while a node reboots delays no node": aheadIn(v1alpha1.RolloutRebooting),
	"a clock that is ahead while a node settles delays no node": aheadIn(v1alpha1.RolloutSettling),
	"a clock that is ahead while a canary soaks delays no node": aheadIn(v1alpha1.RolloutUpToDate),
	"a field that the API server drops is not written for ever": func(s *story) string {
		s.api.Prune = func(object memObject) {
			if c, ok := object.(*v1alpha1.StorageClientNode); ok && c.Status.Rollout != nil {
				c.Status.Rollout.Tuned = nil
			}
		}
		s.threeNodes()
		s.play(4 * time.Hour)
		notes := 0
		s.intercept = func(call memapi.Call) (memapi.Fate, error) {
			if call.Actor == byRollout && call.Kind == memapi.ClientNodes && call.Status {
				notes++
			}
			return memapi.Answered, nil
		}
		for range 100 {
			s.pass()
			s.now = s.now.Add(15 * time.Second)
		}
		if notes > 10 {
			return fmt.Sprintf("%d notes are written in 100 passes", notes)
		}
		return ""
	},
	"a node that is deleted before its permit is not lost to a reboot": func(s *story) string {
		s.threeNodes()
		s.intercept = func(call memapi.Call) (memapi.Fate, error) {
			if call.Actor == byRollout && call.Kind == memapi.ClientNodes && !call.Status && call.Verb == "patch" && s.world.node("a") != nil {
				s.api.Remove(byCluster, s.world.node("a"))
				delete(s.machines, "a")
				return memapi.Refused, errTimeout
			}
			return memapi.Answered, nil
		}
		s.until("a is deleted", func() bool { return s.world.node("a") == nil })
		s.collectGarbage()
		s.play(day)
		return s.missing("eda", "b", "c")
	},
	"a node that is being deleted is restored": func(s *story) string {
		s.threeNodes()
		s.play(3 * time.Hour)
		s.changeNode(byPeople, "a", func(n *corev1.Node) { n.Finalizers = []string{"karpenter.sh/termination"} })
		s.api.Delete(byPeople, s.world.node("a"))
		s.api.Delete(byPeople, s.world.profile("eda"))
		s.play(week)
		if s.world.profile("eda") != nil {
			return fmt.Sprintf("the profile keeps its finalizer; a is released: %t", s.clientNode("a").Spec.Release)
		}
		return ""
	},
}

// aheadIn returns a story in which the API server's clock is a week ahead for one pass, once node a is in a phase.
func aheadIn(phase v1alpha1.RolloutPhase) func(*story) string {
	return func(s *story) string {
		s.threeNodes()
		if phase == v1alpha1.RolloutDraining {
			s.unseen("db", "a", time.Hour)
		}
		s.until(string(phase), func() bool { return s.note("a").Phase == phase })
		s.skew = week
		s.pass()
		s.skew = 0
		s.play(2 * day)
		return s.missing("eda", "a", "b", "c") + s.cordonedStill("a")
	}
}

// TestWaits plays a story for each wait. A story that is expected to fail must fail.
func TestWaits(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(waits)) {
		t.Run(name, func(t *testing.T) {
			play.Expect(t, expectedToFail, name, waits[name](tell(t)))
		})
	}
	for name := range expectedToFail {
		if waits[name] == nil {
			t.Errorf("expected to fail, but not told: %s", name)
		}
	}
}
