package simulation

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/test/memapi"
)

func cordonFirst(p *v1alpha1.StorageClientProfile) {
	p.Spec.Rollout.Drain.LookAhead = v1alpha1.LookAheadCordonFirst
}

// TestABudgetThatOnlyACordonLifts has owners as CloudNativePG does: each lets its pod go only while its node is cordoned.
func TestABudgetThatOnlyACordonLifts(t *testing.T) {
	for lookAhead, want := range map[v1alpha1.DrainLookAhead]int{v1alpha1.LookAheadDryRun: 0, v1alpha1.LookAheadCordonFirst: 3} {
		t.Run(string(lookAhead), func(t *testing.T) {
			s := tell(t)
			s.nodes("a", "b", "c")
			for _, name := range []string{"a", "b", "c"} {
				s.pod("web-"+name, name)
				s.blocked("primary-"+name, name, 0).moves = true
			}
			s.profile("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Drain.LookAhead = lookAhead }, "a", "b", "c")
			s.play(48 * time.Hour)
			if got := s.rebooted(); got != want || s.inVain+s.attempts > 0 {
				t.Errorf("got %d reboots, %d evictions in vain; want %d and none", got, s.inVain+s.attempts, want)
			}
		})
	}
}

// TestABudgetThatNeverAllows has no other pod evicted for an attempt, and attempts become rare.
func TestABudgetThatNeverAllows(t *testing.T) {
	s := tell(t)
	s.nodes("a", "b")
	for _, name := range []string{"a", "b"} {
		s.pod("web-"+name, name)
		s.blocked("db-"+name, name, 10000*time.Hour)
	}
	s.profile("eda", cordonFirst, "a", "b")
	cordons, pods := 0, len(s.api.All(memapi.Pods))
	s.api.Observe = func(w memapi.Write) {
		if before, isNode := w.Before.(*corev1.Node); isNode && !before.Spec.Unschedulable && w.After.(*corev1.Node).Spec.Unschedulable {
			cordons++
		}
		if w.Eviction {
			t.Errorf("pod %s is evicted", w.Before.GetName())
		}
		s.observe(w)
	}
	s.play(48 * time.Hour)
	if cordons < 4 || cordons > 40 || len(s.api.All(memapi.Pods)) < pods {
		t.Errorf("got %d cordons in 48 hours, want some", cordons)
	}
	for _, name := range []string{"a", "b"} {
		if s.isCordonedNode(name) && !s.isClaimed(name) {
			t.Errorf("%s is left cordoned", name)
		}
	}
}

// TestADrainWhosePodsCannotBeReadTimesOut also returns node b to service: the error on node a does not keep node b cordoned.
func TestADrainWhosePodsCannotBeReadTimesOut(t *testing.T) {
	s := tell(t)
	s.nodes("a", "b", "z")
	s.maxUnavailable.IntVal = 2
	s.profile("eda", func(p *v1alpha1.StorageClientProfile) {
		twoAtATime(p)
		*p.Spec.Rollout.Canary.Nodes = 2
	}, "a", "b")
	s.intercept = func(call memapi.Call) (memapi.Fate, error) {
		if call.Kind == memapi.Pods && call.Verb == "list" && call.Name == "a" {
			return memapi.Refused, apierrors.NewInternalError(errors.New("no etcd"))
		}
		return memapi.Answered, nil
	}
	isNoted := false
	for end := s.now.Add(16 * time.Minute); s.now.Before(end); s.turn() {
		isNoted = isNoted || s.note("a").Phase == v1alpha1.RolloutDraining && s.note("a").Reason == v1alpha1.RolloutReasonDrainError
	}
	if !isNoted || s.note("a").Reason != v1alpha1.RolloutReasonDrainTimedOut {
		t.Errorf("got a note with the error %t, last reason %s; want a timeout after the error", isNoted, s.note("a").Reason)
	}
	s.wantInService("a")
	s.wantInService("b")
	check.Equal(t, "phase of b", v1alpha1.RolloutUpToDate, s.note("b").Phase)
}

// TestNodesWithOnlyTerminatingPodsAreNotRead follows the drain of a node until its last pod is gone.
func TestNodesWithOnlyTerminatingPodsAreNotRead(t *testing.T) {
	s := tell(t)
	s.nodes("a", "z")
	s.pod("db", "a")
	s.profile("eda", nil, "a")
	pod := func() *corev1.Pod {
		found, _ := s.api.Get(memapi.Pods, workloads, "db").(*corev1.Pod)
		return found
	}
	s.until("an eviction", func() bool { return pod().DeletionTimestamp != nil })
	memapi.Change(s.api, byPeople, pod(), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: s.now.Add(time.Hour)} })
	s.play(time.Minute) // a drain gets its first note, which names the pod, after some time
	var calls []string
	s.intercept = func(call memapi.Call) (memapi.Fate, error) {
		if call.Actor == byRollout && (call.Name == "a" || call.IsWrite()) {
			calls = append(calls, fmt.Sprint(call.Verb, " ", call.Kind))
		}
		return memapi.Answered, nil
	}
	for range 3 {
		s.now = s.now.Add(20 * time.Second)
		s.pass()
	}
	if want := slices.Repeat([]string{"list " + memapi.Pods.String()}, 3); !slices.Equal(calls, want) {
		t.Errorf("while the pod terminates: got calls %v, want %v", calls, want)
	}
	s.api.Remove(byKubelet, pod())
	s.now = s.now.Add(20 * time.Second)
	if s.pass(); !s.isPermitted("a") {
		t.Error("after the pod has terminated: got no permit in the same pass")
	}
}

// TestABudgetThatIsNeverCountedCostsNoOtherPod has a budget whose pod the API server never evicts. The rollout must skip the node and name the
// budget with its message. The other node must reboot.
func TestABudgetThatIsNeverCountedCostsNoOtherPod(t *testing.T) {
	for _, lookAhead := range []v1alpha1.DrainLookAhead{v1alpha1.LookAheadDryRun, v1alpha1.LookAheadCordonFirst} {
		t.Run(string(lookAhead), func(t *testing.T) {
			s := tell(t)
			s.nodes("a", "b")
			s.pod("web", "a")
			s.pod("db", "a")
			s.blocked("runner", "a", 0).uncounted = true
			s.profile("eda", func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Drain.LookAhead = lookAhead }, "a", "b")
			s.start()
			s.now = s.now.Add(time.Hour)
			s.play(48 * time.Hour)
			blocked := s.note("a")
			if blocked.Phase != v1alpha1.RolloutWaiting || blocked.Reason != v1alpha1.RolloutReasonDrainBlocked ||
				!containsAll(blocked.Message, "PodDisruptionBudget work/runner: ", "does not implement the scale subresource") {
				t.Errorf("got note %+v of a, want the budget with its message", blocked)
			}
			evicted := slices.ContainsFunc(s.log, func(line string) bool { return containsAll(line, "evicts pod") })
			if s.note("b").Phase != v1alpha1.RolloutUpToDate || evicted || s.inVain+s.attempts > 0 {
				t.Errorf("got note %+v of b, evictions %t; want b up to date, and none", s.note("b"), evicted)
			}
		})
	}
}

// TestAPoisonLosesNoMoreMachinesThanTheThreshold uses a kernel argument that prevents every boot. A cloud replaces each machine that has been down
// for ten minutes, under its old or a new name.
func TestAPoisonLosesNoMoreMachinesThanTheThreshold(t *testing.T) {
	for _, isRenamed := range []bool{true, false} {
		for _, failures := range []int32{1, 3} {
			t.Run(fmt.Sprintf("renamed %t, threshold %d", isRenamed, failures), func(t *testing.T) {
				s := tell(t)
				var all []string
				for i := range 20 {
					all = append(all, fmt.Sprintf("n%02d", i))
				}
				s.nodes(all...)
				s.profile("eda", threshold(failures), all...)
				s.setBoots(bootNever)
				s.repairAfter(10*time.Minute, isRenamed, 8*time.Hour)
				if len(s.losses) != int(failures) {
					t.Errorf("lost %d machines, want %d", len(s.losses), failures)
				}
			})
		}
	}
}
