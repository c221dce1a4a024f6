package rollout

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/builders"
	"github.com/storageclient/operator/test/check"
)

func TestEveryValueExceptFalseStopsTheRolloutOfANode(t *testing.T) {
	s := passOf(t)
	if _, err := s.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for value, want := range builders.StopValues {
		for annotation, read := range map[string]func(plan.Node) bool{
			v1alpha1.PausedAnnotation:       func(n plan.Node) bool { return n.Paused },
			v1alpha1.IgnoreAnnotation:       func(n plan.Node) bool { return n.Ignored },
			v1alpha1.NeverDisruptAnnotation: func(n plan.Node) bool { return n.NeverDisrupt },
		} {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{annotation: value}}}
			if got := read(s.planNode(node)); got != want {
				t.Errorf("%s=%q stops: %t, want %t", annotation, value, got, want)
			}
		}
	}
}

// TestARefreshReadsTheNodesThatAreStaleInTheCache uses a stale cache. It has an old Node, an old StorageClientNode and a deleted
// node, and lacks a new node.
func TestARefreshReadsTheNodesThatAreStaleInTheCache(t *testing.T) {
	pair := func(name string) []client.Object {
		return []client.Object{
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name}},
		}
	}
	cached := passOf(t, slices.Concat(pair("same"), pair("node"), pair("object"), pair("gone"))...)
	live := passOf(t, slices.Concat(pair("same"), pair("node"), pair("object"), pair("new"))...)
	node, object := &corev1.Node{}, &v1alpha1.StorageClientNode{}
	change(t, live.Client, "node", node, func() { node.Spec.Unschedulable = true })
	change(t, live.Client, "object", object, func() { object.Spec.Hash = "newer" })

	var mutex sync.Mutex
	read := map[string]int{}
	cached.APIReader = interceptor.NewClient(live.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if key.Namespace == "" {
				mutex.Lock()
				read[key.Name]++
				mutex.Unlock()
			}
			return c.Get(ctx, key, object, opts...)
		},
	})
	if _, err := cached.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	clear(read)
	check.NoError(t, cached.refreshNodes(t.Context()))
	news := cached.news()
	reported := sets.New[string]()
	for _, n := range news.Nodes {
		reported.Insert(n.Name)
	}
	if want := sets.New("node", "object", "new"); !reported.Equal(want) || !slices.Equal(news.Gone, []string{"gone"}) {
		t.Errorf("news: got nodes %v and deleted nodes %v, want node, object, new and gone", sets.List(reported), news.Gone)
	}
	got := whole(cached)
	if again := cached.news(); len(again.Nodes)+len(again.Gone) > 0 {
		t.Errorf("second news: got %d nodes, want none", len(again.Nodes))
	}
	// Every refresh reads the namespace, because its annotation pauses all rollouts.
	check.Equal(t, "read", map[string]int{"node": 2, "object": 2, "gone": 2, "new": 2, v1alpha1.ManagerNamespace: 1}, read)
	names := sets.New[string]()
	for _, n := range got.Nodes {
		names.Insert(n.Name)
		if want := n.Name == "node"; n.Unschedulable != want {
			t.Errorf("%s: got unschedulable %t, want %t", n.Name, n.Unschedulable, want)
		}
	}
	if want := sets.New("same", "node", "object", "new"); !names.Equal(want) {
		t.Errorf("got nodes %v, want %v", sets.List(names), sets.List(want))
	}
	check.Equal(t, "hash of a stale StorageClientNode", "newer", cached.clientNodes["object"].Spec.Hash)
	if cached.clientNodes["gone"] != nil || cached.clientNodes["new"] == nil {
		t.Errorf("StorageClientNodes: got gone %v, new %v; want only new", cached.clientNodes["gone"], cached.clientNodes["new"])
	}
}

// TestAClaimOrMarkThatCannotBeReadCounts uses values that a user wrote by hand.
// whole returns the input of the planner for a new session.
func whole(p *pass) plan.Snapshot {
	changed := p.changed
	p.changed = sets.KeySet(p.nodes)
	defer func() { p.changed = changed }()
	return p.news()
}

func TestAClaimOrMarkThatCannotBeReadCounts(t *testing.T) {
	since := metav1.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := passOf(t,
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap},
			Data:       map[string]string{"a": "by hand", "b": v1alpha1.Disruption{Profile: "eda", Since: since}.Encode()},
		},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{v1alpha1.DisruptionAnnotation: "by hand"}}},
	)
	var logged []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	got, err := s.readSnapshot(ctx)
	check.NoError(t, err)
	if len(got.Claims) != 2 || got.Claims["a"] != (v1alpha1.Disruption{}) || got.Claims["b"].Profile != "eda" || !got.Claims["b"].Since.Time.Equal(since.Time) {
		t.Errorf("got claims %v, want an empty one of a and the full one of b", got.Claims)
	}
	if mark := got.Nodes[0].Mark; mark == nil || *mark != (v1alpha1.Disruption{}) {
		t.Errorf("got mark %v, want an empty one", mark)
	}
	if len(logged) != 1 || !strings.Contains(logged[0], `"Node"="a"`) || !strings.Contains(logged[0], "by hand") {
		t.Errorf("got log %q, want one line about Node a", logged)
	}
}

func change(t *testing.T, c client.Client, name string, object client.Object, change func()) {
	t.Helper()
	check.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: name}, object))
	change()
	check.NoError(t, c.Update(t.Context(), object))
}

// A new Node with the name of a deleted one inherits neither its permit nor its note.
func TestTheStorageClientNodeOfAFormerNodeIsIgnored(t *testing.T) {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "a", UID: "first"}}}}
	s := &pass{clientNodes: map[string]*v1alpha1.StorageClientNode{"a": clientNode}}
	for uid, want := range map[types.UID]*v1alpha1.StorageClientNode{"first": clientNode, "second": nil} {
		if got := s.clientNodeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}); got != want {
			t.Errorf("Node with UID %s: got %v, want %v", uid, got, want)
		}
	}
}

// The permit waits for the volumes that the Node reports, unless a pod that stays has volumes.
func TestVolumesOfANode(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"b", "a"}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "c"}, {Name: "b"}}
	s := passOf(t, node)
	if _, err := s.readSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	check.Equal(t, "volumes", []string{"a", "b", "c"}, whole(s).Nodes[0].VolumesInUse)
	for _, keeps := range []bool{true, false} {
		if got := progressOf(drain.Result{KeepsVolumes: keeps}).KeepsVolumes; got != keeps {
			t.Errorf("got %t for a drain whose pods keep volumes: %t", got, keeps)
		}
	}
}
