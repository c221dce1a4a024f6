// Package history records a cluster by its own watches. It then checks, without data from the manager, whether a rollout followed its
// rules. All objects are in one etcd, so their resource versions define the order of events from different watches.
package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
)

// AppLabel identifies the applications whose pods are recorded.
const AppLabel = "app"

// Recorder follows Nodes, pods of applications, and the claims.
type Recorder struct {
	mu      sync.Mutex
	changes []change
	errs    []error
	streams sync.WaitGroup
	watches []watch.Interface
}

// change is the content of one event. One of node, pod and claims is set.
type change struct {
	revision int64
	at       time.Time
	node     *nodeState
	pod      *podState
	claims   *claims
}

type nodeState struct {
	name, bootID                       string
	registered, ready, cordoned, ended bool
}

type podState struct {
	namespaced, app, node string
	healthy, ended        bool
}

type claims struct{ nodes map[string]bool }

// Record starts with the current state.
func Record(ctx context.Context, c client.WithWatch) (*Recorder, error) {
	r := &Recorder{}
	for _, follow := range []struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		{&corev1.NodeList{}, nil},
		{&corev1.PodList{}, []client.ListOption{client.HasLabels{AppLabel}}},
		{&corev1.ConfigMapList{}, []client.ListOption{
			client.InNamespace(v1alpha1.ManagerNamespace), client.MatchingFields{"metadata.name": v1alpha1.BudgetConfigMap},
		}},
	} {
		w, err := c.Watch(ctx, follow.list, follow.options...)
		if err != nil {
			r.Stop()
			return nil, fmt.Errorf("watch %T: %w", follow.list, err)
		}
		r.watches = append(r.watches, w)
		r.streams.Go(func() { r.readWatch(w, fmt.Sprintf("%T", follow.list)) })
	}
	return r, nil
}

// Stop stops the recording.
func (r *Recorder) Stop() {
	r.mu.Lock()
	watches := r.watches
	r.watches = nil
	r.mu.Unlock()
	for _, w := range watches {
		w.Stop()
	}
	r.streams.Wait()
}

func (r *Recorder) readWatch(w watch.Interface, what string) {
	for event := range w.ResultChan() {
		next, err := changeOf(event)
		r.mu.Lock()
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("watch %s: %w", what, err))
		} else if next != nil {
			r.changes = append(r.changes, *next)
		}
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watches != nil {
		r.errs = append(r.errs, fmt.Errorf("watch %s: ended before the recording", what))
	}
}

func changeOf(event watch.Event) (*change, error) {
	object, ok := event.Object.(client.Object)
	if !ok || event.Type == watch.Error {
		return nil, fmt.Errorf("got %s: %v", event.Type, event.Object)
	}
	revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the resource version of %s: %w", object.GetName(), err)
	}
	next := &change{revision: revision, at: time.Now()}
	ended := event.Type == watch.Deleted
	switch object := object.(type) {
	case *corev1.Node:
		next.node = nodeOf(object, ended)
	case *corev1.Pod:
		next.pod = podOf(object, ended)
	case *corev1.ConfigMap:
		next.claims = &claims{nodes: map[string]bool{}}
		for node := range object.Data {
			next.claims.nodes[node] = !ended
		}
	default:
		return nil, nil
	}
	return next, nil
}

func nodeOf(node *corev1.Node, ended bool) *nodeState {
	return &nodeState{
		name: node.Name, bootID: node.Status.NodeInfo.BootID, cordoned: node.Spec.Unschedulable, ended: ended,
		// A Node without conditions has not reported yet, and is not a disruption.
		registered: len(node.Status.Conditions) > 0,
		ready: slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}),
	}
}

func podOf(pod *corev1.Pod, ended bool) *podState {
	return &podState{
		namespaced: pod.Namespace + "/" + pod.Name, app: pod.Labels[AppLabel], node: pod.Spec.NodeName, ended: ended,
		healthy: pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}),
	}
}

// inOrder returns all changes so far in the order of their occurrence.
func (r *Recorder) inOrder() ([]change, []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := slices.Clone(r.changes)
	slices.SortStableFunc(changes, func(a, b change) int { return int(a.revision - b.revision) })
	return changes, slices.Clone(r.errs)
}

func sortedNames(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
