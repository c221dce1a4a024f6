package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
)

const (
	// retryAfter is the delay after a failed list or watch.
	retryAfter = 2 * time.Second
	// relistAfter is the interval between lists of a kind that the user can list but not watch.
	relistAfter = 30 * time.Second
)

// liveView contains one profile and its nodes, kept current by watches.
type liveView struct {
	client client.WithWatch
	name   string
	// changed signals a change; its capacity is one.
	changed chan struct{}
	// after is time.After; tests replace it.
	after func(time.Duration) <-chan time.Time

	mu          sync.Mutex
	profiles    map[string]*v1alpha1.StorageClientProfile
	clientNodes map[string]*v1alpha1.StorageClientNode
	nodes       map[string]*corev1.Node
	// nodesForbidden is true if the user cannot list Nodes.
	nodesForbidden bool
	// problems contains the reason why a kind is out of date, by kind.
	problems map[string]string
}

func newLiveView(c client.WithWatch, name string) *liveView {
	return &liveView{
		client: c, name: name, changed: make(chan struct{}, 1), after: time.After, problems: map[string]string{},
		profiles: map[string]*v1alpha1.StorageClientProfile{}, clientNodes: map[string]*v1alpha1.StorageClientNode{}, nodes: map[string]*corev1.Node{},
	}
}

func (v *liveView) read(ctx context.Context) error {
	for _, kind := range v.kinds() {
		if _, err := kind.list(ctx); err != nil {
			return err
		}
	}
	if v.profiles[v.name] == nil {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("storageclientprofiles").GroupResource(), v.name)
	}
	return nil
}

// follow keeps all kinds current until the context is done.
func (v *liveView) follow(ctx context.Context) {
	var running sync.WaitGroup
	for _, kind := range v.kinds() {
		running.Go(func() { v.followKind(ctx, kind) })
	}
	running.Wait()
}

type liveKind struct {
	name  string
	list  func(ctx context.Context) (resourceVersion string, err error)
	watch func(ctx context.Context, from string) (watch.Interface, error)
	apply func(watch.EventType, client.Object)
	// isForbidden reports whether the user cannot read the kind.
	isForbidden func() bool
}

func (v *liveView) kinds() []liveKind {
	never := func() bool { return false }
	byName := client.MatchingFields{"metadata.name": v.name}
	return []liveKind{
		newKind(v, "StorageClientProfiles", &v1alpha1.StorageClientProfileList{}, v.profiles, never, nil, byName),
		newKind(v, "StorageClientNodes", &v1alpha1.StorageClientNodeList{}, v.clientNodes, never, func(n *v1alpha1.StorageClientNode) { n.Status.Mounts = nil }),
		newKind(v, "Nodes", &corev1.NodeList{}, v.nodes, func() bool { return v.areNodesForbidden() }, func(n *corev1.Node) { n.Status.Images = nil }),
	}
}

func (v *liveView) areNodesForbidden() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.nodesForbidden
}

// newKind returns a liveKind that stores its objects in a map. trim removes unused fields.
func newKind[T client.Object](v *liveView, name string, empty client.ObjectList, into map[string]T, isForbidden func() bool, trim func(T), opts ...client.ListOption) liveKind {
	keep := func(o T) {
		if o.SetManagedFields(nil); trim != nil {
			trim(o)
		}
		into[o.GetName()] = o
	}
	return liveKind{
		name: name, isForbidden: isForbidden,
		list: func(ctx context.Context) (string, error) {
			list := empty.DeepCopyObject().(client.ObjectList)
			err := v.client.List(ctx, list, opts...)
			if apierrors.IsForbidden(err) && name == "Nodes" {
				v.change(func() { v.nodesForbidden = true })
				return "", nil
			}
			if err != nil {
				return "", fmt.Errorf("list %s: %w", name, err)
			}
			items, err := meta.ExtractList(list)
			if err != nil {
				return "", fmt.Errorf("read the list of %s: %w", name, err)
			}
			v.change(func() {
				clear(into)
				for _, item := range items {
					keep(item.(T))
				}
			})
			return list.GetResourceVersion(), nil
		},
		watch: func(ctx context.Context, from string) (watch.Interface, error) {
			options := append([]client.ListOption{&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}}}, opts...)
			return v.client.Watch(ctx, empty.DeepCopyObject().(client.ObjectList), options...)
		},
		apply: func(kind watch.EventType, object client.Object) {
			v.change(func() {
				if kind == watch.Deleted {
					delete(into, object.GetName())
					return
				}
				keep(object.(T))
			})
		},
	}
}

func (v *liveView) change(do func()) {
	v.mu.Lock()
	do()
	v.mu.Unlock()
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// followKind lists and watches a kind, and starts again when the watch ends.
func (v *liveView) followKind(ctx context.Context, kind liveKind) {
	for ctx.Err() == nil {
		from, err := kind.list(ctx)
		if kind.isForbidden() {
			return
		}
		wait := retryAfter
		if err == nil {
			v.setProblem(kind.name, nil)
			if err = v.watchKind(ctx, kind, from); apierrors.IsForbidden(err) {
				wait, err = relistAfter, nil
			}
		}
		if ctx.Err() != nil {
			return
		}
		v.setProblem(kind.name, err)
		select {
		case <-v.after(wait):
		case <-ctx.Done():
		}
	}
}

func (v *liveView) setProblem(kind string, err error) {
	v.mu.Lock()
	previous := v.problems[kind]
	v.mu.Unlock()
	switch {
	case err != nil:
		v.change(func() { v.problems[kind] = "out of date: " + err.Error() })
	case previous != "":
		v.change(func() { delete(v.problems, kind) })
	}
}

// watchKind applies events until the watch ends. The end or expiry of a watch is not an error.
func (v *liveView) watchKind(ctx context.Context, kind liveKind, from string) error {
	events, err := kind.watch(ctx, from)
	if err != nil {
		return fmt.Errorf("watch %s: %w", kind.name, err)
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-events.ResultChan():
			if !open {
				return nil
			}
			object, isObject := event.Object.(client.Object)
			switch {
			case isObject && event.Type != watch.Error:
				kind.apply(event.Type, object)
			case apierrors.IsResourceExpired(apierrors.FromObject(event.Object)), apierrors.IsGone(apierrors.FromObject(event.Object)):
				return nil
			default:
				return fmt.Errorf("watch %s: %w", kind.name, apierrors.FromObject(event.Object))
			}
		}
	}
}

// tree returns the current tree, and false if the profile is deleted.
func (v *liveView) tree() (view.Tree, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	profile := v.profiles[v.name]
	if profile == nil {
		return view.Tree{}, false
	}
	c := overview.Cluster{}
	for _, n := range v.clientNodes {
		c.StorageClientNodes = append(c.StorageClientNodes, *n)
	}
	for _, n := range v.nodes {
		c.Nodes = append(c.Nodes, *n)
	}
	var notes []string
	if v.nodesForbidden {
		c.Nodes = overview.NodesOf(c.StorageClientNodes)
		notes = append(notes, "no permission to list Nodes: zones are unknown, and nodes without a StorageClientNode are missing")
	}
	for _, kind := range []string{"StorageClientProfiles", "StorageClientNodes", "Nodes"} {
		if trouble := v.problems[kind]; trouble != "" {
			notes = append(notes, kind+" are "+trouble)
		}
	}
	return view.NewTree(profile, overview.Standings(profile, c), notes...), true
}
