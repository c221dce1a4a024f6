package rollout

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
)

// unreadable is a cluster that returns an error for the pods on node a.
type unreadable struct{ *manager }

func (u *unreadable) inspectPods(ctx context.Context, step plan.Drain) {
	if step.Node != "a" {
		u.manager.inspectPods(ctx, step)
	}
}

func (u *unreadable) drainNode(ctx context.Context, step plan.Drain) plan.DrainProgress {
	if step.Node == "a" {
		u.progress["a"] = &plan.DrainProgress{Reason: v1alpha1.RolloutReasonDrainError, Message: "Cannot read the node's pods"}
		return *u.progress["a"]
	}
	return u.manager.drainNode(ctx, step)
}

// TestADrainWhosePodsCannotBeReadTimesOut also returns node b to service: the error on node a does not keep node b cordoned.
func TestADrainWhosePodsCannotBeReadTimesOut(t *testing.T) {
	w := newWorld(7)
	w.quiet, w.deterministic, w.budget = true, true, 2
	a, b := w.addNode("a"), w.addNode("b")
	w.addProfile("eda", func(r *v1alpha1.Rollout) {
		r.MaxUnavailable, r.Canary.Nodes = ptr.To(intstr.FromInt32(2)), ptr.To[int32](2)
	}, "a", "b")
	errorNoted := false
	for end := w.now.Add(16 * time.Minute); w.now.Before(end); w.passTime(5 * time.Second) {
		if _, _, err := runPass(t.Context(), &unreadable{&manager{world: w, name: "m"}}, 1); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*simNode{a, b} {
			w.followProfiles(n)
			w.runAgent(n)
		}
		note := a.ClientNode.Status.Rollout
		errorNoted = errorNoted || note != nil && note.Phase == v1alpha1.RolloutDraining && note.Reason == v1alpha1.RolloutReasonDrainError
	}
	note := a.ClientNode.Status.Rollout
	if !errorNoted || note.Reason != v1alpha1.RolloutReasonDrainTimedOut || a.Unschedulable {
		t.Errorf("got a note with the error %t, last reason %s, cordoned %t; want a timeout after the error", errorNoted, note.Reason, a.Unschedulable)
	}
	if b.Unschedulable || b.ClientNode.Status.Rollout.Phase != v1alpha1.RolloutUpToDate {
		t.Errorf("b: got cordoned %t, phase %s; want an uncordoned node that is up to date", b.Unschedulable, b.ClientNode.Status.Rollout.Phase)
	}
	if w.broken != nil {
		t.Error(w.broken)
	}
}

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
	s := scopeOf(t)
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
	s := scopeOf(t) // its reader has no index of pods by node
	step := plan.Drain{OnNode: plan.OnNode{Node: "a"}}
	if s.inspectPods(t.Context(), step); s.drains["a"] != nil {
		t.Errorf("got drain %+v, want none: the due drain must report the error", s.drains["a"])
	}
	progress := s.drainNode(t.Context(), step)
	if progress.Gone || progress.Reason != v1alpha1.RolloutReasonDrainError || !strings.Contains(progress.Message, "list Pods on a") {
		t.Errorf("got %+v, want reason DrainError", progress)
	}
}
