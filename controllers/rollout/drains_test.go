package rollout

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/check"
)

// stuck responds only when its context ends.
type stuck struct{ requests chan string }

func (s *stuck) Evict(ctx context.Context, pod *corev1.Pod) error {
	s.requests <- pod.Name
	<-ctx.Done()
	return ctx.Err()
}

// TestAPassWaitsForNoEviction uses an eviction without a response, while another step is due.
func TestAPassWaitsForNoEviction(t *testing.T) {
	pods := &corev1.Pod{}
	pods.Namespace, pods.Name, pods.UID, pods.Spec.NodeName = "eda", "web", "u", "a"
	pods.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "r", Controller: ptr.To(true)}}
	evictor := &stuck{requests: make(chan string, 1)}
	s := passOf(t)
	s.Drains = &drain.Runner{Drainer: drain.Drainer{Reader: readerOfPods(t, pods), Evictor: evictor, Now: time.Now}}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Drains.Start(ctx) }()
		synctest.Wait()
		began := time.Now()
		step := plan.Drain{OnNode: plan.OnNode{Node: "a"}}
		progress := s.drainNode(ctx, step)
		<-evictor.requests
		delete(s.drains, "a")
		s.inspectPods(ctx, step)
		if waiting := s.drains["a"]; waiting == nil || waiting.Gone || progress.Gone || time.Since(began) > 0 {
			t.Errorf("got progress %+v, then %+v, after %s; want a drain in progress without delay", progress, waiting, time.Since(began))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestPodsThatCannotBeReadAreNotGone uses an API server that rejects requests to list Pods.
func TestPodsThatCannotBeReadAreNotGone(t *testing.T) {
	s := passOf(t) // its reader has no index of pods by node
	step := plan.Drain{OnNode: plan.OnNode{Node: "a"}}
	if s.inspectPods(t.Context(), step); s.drains["a"] != nil {
		t.Errorf("got drain %+v, want none: the due drain must report the error", s.drains["a"])
	}
	progress := s.drainNode(t.Context(), step)
	if progress.Gone || progress.Reason != v1alpha1.RolloutReasonDrainError || !strings.Contains(progress.Message, "list Pods on a") {
		t.Errorf("got %+v, want reason DrainError", progress)
	}
}

func TestTheProgressOfADrainHasThePodsThatStay(t *testing.T) {
	left := []drain.Blocker{{Pod: "a/db", UID: "u1", Reason: "tolerates x"}, {Pod: "a/web", UID: "u2", Reason: "came back"}}
	want := map[string]string{"u1": "Pod a/db tolerates x", "u2": "Pod a/web came back"}
	pdb := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "pdb"}}
	pdb.Status.DisruptionsAllowed = 3
	shares := progressOf(drain.Result{Budgets: []policyv1.PodDisruptionBudget{pdb, pdb}}).Budgets
	check.Equal(t, "shares of two pods of one budget", map[string]plan.BudgetShare{"eda/pdb": {Pods: 2, Allowed: 3}}, shares)
	check.Equal(t, "left", want, progressOf(drain.Result{Left: left}).Left)
}
