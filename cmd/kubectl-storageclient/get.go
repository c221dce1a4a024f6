package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/cmd/kubectl-storageclient/view"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
)

func getCommand(env *environment) *cobra.Command {
	var o output
	var watch bool
	cmd := &cobra.Command{
		Use:  "get PROFILE",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch && o != "" && o != "text" && !o.isWide() {
				return fmt.Errorf("--watch supports only text: remove --watch or --output %s", o)
			}
			return showTree(cmd.Context(), env, args[0], o, watch)
		},
	}
	o.addFlag(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Follow the rollout until you press Ctrl-C")
	return cmd
}

func showTree(ctx context.Context, env *environment, name string, o output, isWatching bool) error {
	c, err := env.connect()
	if err != nil {
		return err
	}
	v := newLiveView(c, name)
	if err := v.read(ctx); err != nil {
		return profileError(ctx, c, name, err)
	}
	settings, err := readManagerSettings(ctx, c, managerFlags{})
	if err != nil {
		return err
	}
	v.allow = settings.accepted()
	screen, isTerminal := env.screen()
	if !isWatching {
		tree, _ := v.tree()
		if done, err := o.writeStructured(env, tree); done || err != nil {
			return err
		}
		screen.Height = 0
		return writeTree(env.raw, tree.Draw(screen, env.now()))
	}
	var d display = &lineDisplay{out: env.Out}
	if isTerminal {
		d = &screenDisplay{out: env.raw, size: env.screen}
	}
	return watchTree(ctx, env, v, d)
}

// watchTree shows the tree until the context is done or the profile is deleted.
func watchTree(ctx context.Context, env *environment, v *liveView, d display) (err error) {
	watching, stop := context.WithCancel(ctx)
	done, message := make(chan struct{}), ""
	go func() {
		defer close(done)
		v.follow(watching)
	}()
	defer func() {
		stop()
		<-done
		if closeErr := d.close(message); err == nil {
			err = closeErr
		}
	}()
	// Ages increase without any other change.
	ticks, stopTicks := env.ticks(time.Second)
	defer stopTicks()
	for {
		tree, exists := v.tree()
		if !exists {
			message = "Profile " + v.name + " was deleted."
			return nil
		}
		if err := d.show(tree, env.now()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-v.changed:
		case <-ticks:
		}
	}
}

func startTicks(every time.Duration) (<-chan time.Time, func()) {
	ticker := time.NewTicker(every)
	return ticker.C, ticker.Stop
}

// liveView contains one profile and its nodes, kept current by informers.
type liveView struct {
	client client.WithWatch
	name   string
	allow  catalogue.AllowList
	// changed signals a change; its capacity is one.
	changed                      chan struct{}
	profiles, clientNodes, nodes *liveKind

	mu sync.Mutex
	// nodesForbidden is true if the user cannot list Nodes.
	nodesForbidden bool
	// problems contains the reason why a kind is out of date, by kind.
	problems map[string]string
}

// liveKind is a kind of objects. It lists and watches them for an informer.
type liveKind struct {
	*cache.ListWatch
	name  string
	empty client.Object
	// objects contains the objects of the first list, then the store of the informer.
	objects cache.Store
}

// IsWatchListSemanticsUnSupported makes the informer list before it watches: the list is there already.
func (*liveKind) IsWatchListSemanticsUnSupported() bool { return true }

func newLiveView(c client.WithWatch, name string) *liveView {
	v := &liveView{client: c, name: name, changed: make(chan struct{}, 1), problems: map[string]string{}}
	v.profiles = v.newKind("StorageClientProfiles", &v1alpha1.StorageClientProfile{}, &v1alpha1.StorageClientProfileList{}, client.MatchingFields{"metadata.name": name})
	v.clientNodes = v.newKind("StorageClientNodes", &v1alpha1.StorageClientNode{}, &v1alpha1.StorageClientNodeList{})
	v.nodes = v.newKind("Nodes", &corev1.Node{}, &corev1.NodeList{})
	return v
}

func (v *liveView) newKind(name string, empty client.Object, list client.ObjectList, options ...client.ListOption) *liveKind {
	with := func(raw metav1.ListOptions) []client.ListOption {
		return append([]client.ListOption{&client.ListOptions{Raw: &raw}}, options...)
	}
	return &liveKind{name: name, empty: empty, objects: cache.NewStore(cache.MetaNamespaceKeyFunc), ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list := list.DeepCopyObject().(client.ObjectList)
			err := v.client.List(ctx, list, with(raw)...)
			v.setProblem(name, "list", err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			w, err := v.client.Watch(ctx, list.DeepCopyObject().(client.ObjectList), with(raw)...)
			// The informer lists a kind again that the user cannot watch.
			if !apierrors.IsForbidden(err) {
				v.setProblem(name, "watch", err)
			}
			return w, err
		},
	}}
}

func (v *liveView) read(ctx context.Context) error {
	for _, kind := range []*liveKind{v.profiles, v.clientNodes, v.nodes} {
		list, err := kind.ListWithContext(ctx, metav1.ListOptions{})
		if v.nodesForbidden = kind == v.nodes && apierrors.IsForbidden(err); v.nodesForbidden {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", kind.name, err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error { return kind.objects.Add(o) }); err != nil {
			return fmt.Errorf("read the list of %s: %w", kind.name, err)
		}
		if kind == v.profiles && len(kind.objects.List()) == 0 {
			return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("storageclientprofiles").GroupResource(), v.name)
		}
	}
	return nil
}

// follow keeps all kinds current until the context is done.
func (v *liveView) follow(ctx context.Context) {
	var running sync.WaitGroup
	for _, kind := range []*liveKind{v.profiles, v.clientNodes, v.nodes} {
		if kind == v.nodes && v.nodesForbidden {
			continue
		}
		signal := func(any) { v.signal() }
		discard := logr.Discard()
		store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: kind, ObjectType: kind.empty, Transform: trimLive, Logger: &discard,
			Handler: cache.ResourceEventHandlerFuncs{AddFunc: signal, UpdateFunc: func(_, _ any) { v.signal() }, DeleteFunc: signal},
		})
		running.Go(func() { informer.RunWithContext(logr.NewContext(ctx, discard)) })
		running.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				v.change(func() { kind.objects = store })
			}
		})
	}
	running.Wait()
}

// trimLive removes fields that the view does not use.
func trimLive(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *v1alpha1.StorageClientNode:
		o.Status.Mounts = nil
	case *corev1.Node:
		o.Status.Images = nil
	}
	return object, nil
}

func (v *liveView) signal() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

func (v *liveView) change(do func()) {
	v.mu.Lock()
	do()
	v.mu.Unlock()
	v.signal()
}

func (v *liveView) setProblem(kind, verb string, err error) {
	problem := ""
	if err != nil {
		problem = fmt.Sprintf("out of date: %s %s: %v", verb, kind, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.problems[kind] != problem {
		v.problems[kind] = problem
		v.signal()
	}
}

// tree returns the current tree, and false if the profile is deleted.
func (v *liveView) tree() (view.Tree, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	profile, exists, err := v.profiles.objects.GetByKey(v.name)
	if err != nil || !exists {
		return view.Tree{}, false
	}
	c := overview.Cluster{Allow: v.allow}
	c.StorageClientNodes = lists.Each(v.clientNodes.objects.List(), func(n any) v1alpha1.StorageClientNode { return *n.(*v1alpha1.StorageClientNode) })
	c.Nodes = lists.Each(v.nodes.objects.List(), func(n any) corev1.Node { return *n.(*corev1.Node) })
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
	p := profile.(*v1alpha1.StorageClientProfile)
	return view.NewTree(p, overview.ProgressOf(p, c), notes...), true
}
