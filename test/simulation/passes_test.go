package simulation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
)

var errConflict = apierrors.NewConflict(corev1.Resource("things"), "x", nil)

func isClaiming(call memapi.Call) bool {
	return call.Kind == memapi.ConfigMaps && call.Name == v1alpha1.BudgetConfigMap && call.IsWrite()
}

// Another client writes the claims between the read and the write.
func TestAClaimThatWasNotAcceptedLeadsToNoSteps(t *testing.T) {
	for _, isOvertaken := range []bool{false, true} {
		t.Run(fmt.Sprintf("overtaken %t", isOvertaken), func(t *testing.T) {
			s := tell(t)
			s.nodes("a", "z")
			s.profile("eda", nil, "a")
			s.prepare()
			s.intercept = func(call memapi.Call) (memapi.Fate, error) {
				if isOvertaken && isClaiming(call) {
					return memapi.Refused, errConflict
				}
				return memapi.Answered, nil
			}
			s.pass()
			if claimed, cordoned := s.isClaimed("a"), s.isCordonedNode("a"); claimed == isOvertaken || cordoned == isOvertaken {
				t.Errorf("got claimed %t, cordoned %t; want %t for both", claimed, cordoned, !isOvertaken)
			}
		})
	}
}

// The cache still has node a, which was down and uses up the budget. A live read shows that it is back. Node b was not read, and is down by now.
func TestANodeReadFromTheCacheIsNotClaimed(t *testing.T) {
	s := tell(t)
	s.nodes("a", "b", "z")
	s.profile("eda", nil, "b")
	s.prepare()
	// A step for node a, so that the pass reads it.
	s.changeNode(byPeople, "a", func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.DisruptionGuardsAnnotation: "{}"} })
	s.setReady(s.machines["a"], false)
	s.manager.cache.Sync()
	s.setReady(s.machines["a"], true)
	s.setReady(s.machines["b"], false)
	s.manager.due = true
	s.manager.runRollout()
	if s.isClaimed("b") || s.manager.wait == 0 || s.manager.wait > time.Second || s.world.node("a").Annotations[v1alpha1.DisruptionGuardsAnnotation] != "" {
		t.Errorf("got claims %v, the next pass after %s, want no claims, no guards, and another pass at once", s.claims(), s.manager.wait)
	}
}

// TestBudgetFreedByANodeIsUsedInTheSamePass has a budget of one node. The second node must not wait for a second pass.
func TestBudgetFreedByANodeIsUsedInTheSamePass(t *testing.T) {
	s := tell(t)
	s.nodes("a", "b")
	s.profile("eda", noSoak, "a", "b")
	s.until("a is claimed", func() bool { return s.isClaimed("a") })
	s.until("a is released", func() bool { return !s.isClaimed("a") })
	if !s.isClaimed("b") || !s.isCordonedNode("b") {
		t.Errorf("after a is released: got b claimed %t, cordoned %t; want both", s.isClaimed("b"), s.isCordonedNode("b"))
	}
}

// The window of another profile closes while one of its nodes drains. In the same pass, a node leaves its place: nodes that must return to service
// come before new claims.
func TestStepsOfChangedRulesComeBeforeNewClaims(t *testing.T) {
	for _, isClosing := range []bool{false, true} {
		t.Run(fmt.Sprintf("closing %t", isClosing), func(t *testing.T) {
			s := tell(t)
			s.nodes("a", "b", "c", "z")
			s.maxUnavailable = intstr.FromInt32(2)
			s.unseen("db", "c", time.Hour)
			s.profile("eda", noSoak, "a", "b")
			s.profile("web", window("0 10 * * *", 1200), "c")
			s.intercept = func(call memapi.Call) (memapi.Fate, error) {
				if isClosing && isClaiming(call) && s.note("a").Phase == v1alpha1.RolloutSettling && !s.world.node("a").Spec.Unschedulable {
					s.now = time.Date(2026, 9, 1, 10, 20, 0, 0, time.UTC)
				}
				return memapi.Answered, nil
			}
			s.until("c drains", func() bool { return s.isCordonedNode("c") })
			s.until("a is claimed", func() bool { return s.isClaimed("a") })
			s.until("a is released", func() bool { return !s.isClaimed("a") })
			if s.isClaimed("b") == isClosing || isClosing && (s.manager.wait == 0 || s.manager.wait > time.Second) || !s.isCordonedNode("c") {
				t.Errorf("got b claimed %t, c cordoned %t, the next pass after %s", s.isClaimed("b"), s.isCordonedNode("c"), s.manager.wait)
			}
		})
	}
}

// TestAPassWithStepsWritesFewNotesOfNodesInService has many waiting nodes while one node is claimed.
func TestAPassWithStepsWritesFewNotesOfNodesInService(t *testing.T) {
	s := tell(t)
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("n%03d", i))
	}
	s.nodes(names...)
	s.unseen("db", names[0], time.Hour)
	s.profile("eda", noSoak, names...)
	s.prepare()
	canary := s.clientNode(names[len(names)-1])
	memapi.Change(s.api, byNodes, canary, func(c *v1alpha1.StorageClientNode) { c.Spec.Canary = true })
	notes := 0
	s.intercept = func(call memapi.Call) (memapi.Fate, error) {
		if call.Actor == byRollout && call.Kind == memapi.ClientNodes && call.Status {
			notes++
		}
		return memapi.Answered, nil
	}
	for i, want := range []int{5, 200} { // the claimed node has no new note yet
		notes = 0
		if s.pass(); s.manager.wait == 0 || s.manager.wait > time.Second {
			t.Errorf("pass %d: got the next one after %s, want it at once", i+1, s.manager.wait)
		}
		if notes != want {
			t.Errorf("pass %d: got %d notes, want %d", i+1, notes, want)
		}
		if s.note(canary.Name).Phase == "" {
			t.Errorf("pass %d: no note of the canary, for which others wait", i+1)
		}
	}
}

// Each case pauses everything or closes a window at the last moment at which the manager reads the rules before a write.
func TestRulesAreReadAgainBeforeAClaimACordonAndAPermit(t *testing.T) {
	for name, change := range map[string]func(s *story){
		"a user pauses everything": func(s *story) { stops["everything is paused"](s) },
		"a window closes":          func(s *story) { s.now = s.now.Add(time.Hour) },
	} {
		for what, isWritten := range map[string]func(s *story) bool{
			"claim":  func(s *story) bool { return s.isClaimed("a") },
			"cordon": func(s *story) bool { return s.isCordonedNode("a") },
			"permit": func(s *story) bool { return s.isPermitted("a") },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				// The first play finds the last read of the rules before the write, the second one has the change then.
				last, isFresh := playToWrite(t, isWritten, 0, change)
				if last == 0 || !isFresh {
					t.Fatalf("got %d reads of the rules, one after the write before: %t", last, isFresh)
				}
				if reads, _ := playToWrite(t, isWritten, last, change); reads > 0 {
					t.Errorf("got a %s after the change", what)
				}
			})
		}
	}
}

// playToWrite plays until a write. It returns the number of reads of the rules before it, 0 if there is no write, and whether the last of them came
// after the write before. It makes a change at the given read.
func playToWrite(t *testing.T, isWritten func(*story) bool, at int, change func(*story)) (before int, isFresh bool) {
	t.Helper()
	s := tell(t)
	s.nodes("a", "z")
	s.profile("eda", window("0 10 * * *", 1800), "a")
	s.prepare()
	reads, readsAtWrite := 0, []int{0, 0}
	s.intercept = func(call memapi.Call) (memapi.Fate, error) {
		if call.Actor == byRollout && call.IsWrite() {
			readsAtWrite = append(readsAtWrite, reads)
		}
		if call.Actor == byRollout && call.Verb == "get" && call.Kind == memapi.Namespaces {
			if reads++; reads == at {
				change(s)
			}
		}
		return memapi.Answered, nil
	}
	s.api.Observe = func(w memapi.Write) {
		if s.observe(w); before == 0 && w.Actor == byRollout && isWritten(s) {
			before, isFresh = reads, readsAtWrite[len(readsAtWrite)-2] < reads
		}
	}
	for range 8 {
		s.pass()
		s.now = s.now.Add(time.Second)
	}
	return before, isFresh
}

// The budget allows more nodes.
func TestOnePassLooksAheadAtFewNodes(t *testing.T) {
	const lookLimit = 24
	s := tell(t)
	s.maxUnavailable = intstr.FromInt32(2 * lookLimit)
	var names []string
	for i := range lookLimit + 7 {
		names = append(names, fmt.Sprintf("node-%02d", i))
	}
	s.nodes(names...)
	s.blocked("db", names[1], time.Hour)
	s.profile("eda", func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Rollout.MaxUnavailable, p.Spec.Rollout.Canary.Nodes = ptr.To(intstr.FromInt(2*lookLimit)), ptr.To[int32](2*lookLimit)
	}, names...)
	s.prepare()
	var looks []string
	s.intercept = func(call memapi.Call) (memapi.Fate, error) {
		if call.Kind == memapi.Pods && call.Verb == "list" && call.Name != "" && len(s.claims()) == 0 {
			looks = append(looks, call.Name)
		}
		return memapi.Answered, nil
	}
	s.pass()
	slices.Sort(looks)
	if looks = slices.Compact(looks); len(looks) != lookLimit || len(s.claims()) != lookLimit-1 || s.manager.wait == 0 || s.manager.wait > time.Second {
		t.Errorf("got %d inspections, %d claims, the next pass after %s; want %d inspections", len(looks), len(s.claims()), s.manager.wait, lookLimit)
	}
	if note := s.note(names[1]); s.isClaimed(names[1]) || note.Reason != v1alpha1.RolloutReasonDrainBlocked || note.RetryAfter == nil {
		t.Errorf("%s: got claimed %t, note %+v; want no claim and a later retry", names[1], s.isClaimed(names[1]), note)
	}
}

// TestNoFactIsRemovedBeforeItsFailureIsRecorded loses a node while the manager cannot write failures.
func TestNoFactIsRemovedBeforeItsFailureIsRecorded(t *testing.T) {
	for name, failure := range map[string]error{"a conflict": errConflict, "an error": errPolicy} {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			s.nodes("a", "b", "z")
			s.profile("eda", threshold(2), "a", "b")
			s.setBoots(bootNever)
			isPermitRecorded := func() bool {
				claim, err := v1alpha1.DecodeDisruption(s.claims()["a"])
				return err == nil && claim.Permit != nil
			}
			s.until("a permit", func() bool { return s.isPermitted("a") })
			s.noteLoss(s.world.node("a"))
			s.api.Remove(byCluster, s.world.node("a"))
			delete(s.machines, "a")
			s.collectGarbage()
			s.intercept = func(call memapi.Call) (memapi.Fate, error) {
				if call.Kind == memapi.ConfigMaps && call.Name == v1alpha1.FailuresConfigMap && call.IsWrite() {
					return memapi.Refused, failure
				}
				return memapi.Answered, nil
			}
			s.pass()
			if isError := s.manager.err != nil; isError != !apierrors.IsConflict(failure) || !isError && s.manager.wait > time.Second {
				t.Errorf("got error %v, the next pass after %s; want an error unless it is a conflict", s.manager.err, s.manager.wait)
			}
			if s.isClaimed("b") || !isPermitRecorded() {
				t.Errorf("got claims %v, want a only", s.claims())
			}
			s.intercept = nil
			s.now = s.now.Add(time.Second)
			s.pass()
			recorded := s.api.Get(memapi.ConfigMaps, v1alpha1.ManagerNamespace, v1alpha1.FailuresConfigMap)
			if recorded == nil || !containsAll(claimsOf(recorded)["eda"], `"name":"a"`) || isPermitRecorded() {
				t.Errorf("after the write succeeds: got failures %v, claims %v; want a recorded and its permit removed", recorded, s.claims())
			}
		})
	}
}

// Each write of a rollout fails once, in each way. At the end, each node has rebooted once and is in service.
func TestEachWriteMayFailOnce(t *testing.T) {
	for name, result := range map[string]struct {
		fate memapi.Fate
		err  error
	}{
		"a conflict":           {memapi.Refused, errConflict},
		"a policy":             {memapi.Refused, errPolicy},
		"the request is lost":  {memapi.Refused, errTimeout},
		"the response is lost": {memapi.Unanswered, errTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			for at, writes := 0, 1; at < writes && !t.Failed(); at++ {
				s := tell(t)
				s.nodes("a", "b", "z")
				s.pod("web-a", "a")
				s.pod("web-b", "b")
				s.profile("eda", nil, "a", "b")
				writes = 0
				s.intercept = func(call memapi.Call) (memapi.Fate, error) {
					if call.Actor != byRollout || !call.IsWrite() {
						return memapi.Answered, nil
					}
					if writes++; writes-1 == at {
						s.narrate("%s %s %s fails", call.Verb, call.Kind, call.Name)
						return result.fate, result.err
					}
					return memapi.Answered, nil
				}
				s.play(2 * time.Hour)
				if problem := s.missing("eda", "a", "b"); problem != "" || s.rebooted() != 2 || len(s.claims()) > 0 {
					t.Errorf("write %d: got %d reboots, claims %v; %s", at, s.rebooted(), s.claims(), problem)
				}
				s.wantInService("a")
				s.wantInService("b")
			}
		})
	}
}
