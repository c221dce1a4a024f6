package memapi

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// newServer returns a Server with a Node, its StorageClientNode, a profile with a finalizer, and a pod whose budget permits one eviction.
func newServer() (*Server, *Client) {
	s := NewServer(func() time.Time { return noon })
	s.Add("test", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	s.Add("test", &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	s.Add("test", &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{"f"}}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "a", Labels: map[string]string{"app": "a"}}}
	pod.Spec.NodeName = "n"
	s.Add("test", pod)
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "e", Name: "b", Labels: map[string]string{"app": "b"}}}
	other.Spec.NodeName = "m"
	s.Add("test", other)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "a"}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	budget.Status.ObservedGeneration, budget.Status.DisruptionsAllowed = 1, 1
	s.Add("test", budget)
	return s, &Client{Server: s, Actor: "manager"}
}

func getNode(t *testing.T, c client.Reader) *corev1.Node {
	t.Helper()
	var node corev1.Node
	check.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "n"}, &node))
	return &node
}

func getClientNode(t *testing.T, c client.Reader) *v1alpha1.StorageClientNode {
	t.Helper()
	var clientNode v1alpha1.StorageClientNode
	check.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "n"}, &clientNode))
	return &clientNode
}

func locked(from client.Object) client.Patch {
	return client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
}

func TestAWriteOfAnotherVersionIsAConflict(t *testing.T) {
	for name, write := range map[string]func(*Client, *corev1.Node) error{
		"a patch": func(c *Client, node *corev1.Node) error {
			next := node.DeepCopy()
			next.Spec.Unschedulable = true
			return c.Patch(context.Background(), next, locked(node))
		},
		"a patch of the status": func(c *Client, node *corev1.Node) error {
			next := node.DeepCopy()
			next.Status.Conditions = []corev1.NodeCondition{{Type: "x"}}
			patch := client.StrategicMergeFrom(node, client.MergeFromWithOptimisticLock{})
			return c.Status().Patch(context.Background(), next, patch)
		},
		"a deletion": func(c *Client, node *corev1.Node) error {
			return c.Delete(context.Background(), node, client.Preconditions{ResourceVersion: &node.ResourceVersion})
		},
	} {
		_, c := newServer()
		node := getNode(t, c)
		if err := write(c, node); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s, c := newServer()
		node = getNode(t, c)
		Change(s, "other", node, func(n *corev1.Node) { n.Labels = map[string]string{"x": "y"} })
		if err := write(c, node); !apierrors.IsConflict(err) {
			t.Errorf("%s after another client's write: got %v, want a conflict", name, err)
		}
	}
}

func TestAnUpdateMeetsTheVersionItWasMadeFrom(t *testing.T) {
	s, c := newServer()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c"}, Data: map[string]string{"a": "1"}}
	check.NoError(t, c.Create(t.Context(), config))
	if err := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c"}}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second creation: got %v", err)
	}
	stale := config.DeepCopy()
	config.Data["a"] = "2"
	check.NoError(t, c.Update(t.Context(), config))
	if err := c.Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: got %v, want a conflict", err)
	}
	check.Equal(t, "stored value", "2", s.Get(ConfigMaps, "d", "c").(*corev1.ConfigMap).Data["a"])
}

// A patch without the version changes the fields that it contains, and keeps the later writes of others.
func TestAPatchWithoutTheVersionMergesIntoTheStoredObject(t *testing.T) {
	s, c := newServer()
	clientNode := getClientNode(t, c)
	Change(s, "agent", clientNode, func(n *v1alpha1.StorageClientNode) { n.Status.Hash = "h" })
	Change(s, "manager", clientNode, func(n *v1alpha1.StorageClientNode) { n.Spec.Hash = "h" })
	next := clientNode.DeepCopy()
	next.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "p", BootID: "b"}
	check.NoError(t, c.Patch(t.Context(), next, client.MergeFrom(clientNode)))
	got := s.Get(ClientNodes, "", "n").(*v1alpha1.StorageClientNode)
	if got.Spec.RebootPermit == nil || got.Spec.Hash != "h" || got.Status.Hash != "h" || got.Generation != 3 {
		t.Errorf("got stored object %+v", got)
	}
}

func TestObjectAndStatusAreWrittenSeparately(t *testing.T) {
	s, c := newServer()
	clientNode := getClientNode(t, c)
	next := clientNode.DeepCopy()
	next.Spec.Hash, next.Status.Hash = "spec", "status"
	check.NoError(t, c.Patch(t.Context(), next, locked(clientNode)))
	stored := s.Get(ClientNodes, "", "n").(*v1alpha1.StorageClientNode)
	if stored.Spec.Hash != "spec" || stored.Status.Hash != "" || stored.Generation != 2 {
		t.Errorf("after a patch of the object: got %+v", stored)
	}
	next = stored.DeepCopy()
	next.Spec.Hash, next.Status.Hash = "other", "status"
	check.NoError(t, c.Status().Patch(t.Context(), next, locked(stored)))
	stored = s.Get(ClientNodes, "", "n").(*v1alpha1.StorageClientNode)
	if stored.Spec.Hash != "spec" || stored.Status.Hash != "status" || stored.Generation != 2 {
		t.Errorf("after a patch of the status: got %+v", stored)
	}
	version := stored.ResourceVersion
	check.NoError(t, c.Status().Patch(t.Context(), stored.DeepCopy(), locked(stored)))
	check.Equal(t, "write without a change: version", version, s.Get(ClientNodes, "", "n").GetResourceVersion())
}

func TestConditionsAreMergedByType(t *testing.T) {
	s, c := newServer()
	node := getNode(t, c)
	Change(s, "kubelet", node, func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "True"}} })
	for _, step := range []struct {
		patch string
		want  int
	}{
		{`{"status":{"conditions":[{"type":"Tuned","status":"False"}]}}`, 2},
		{`{"status":{"conditions":[{"type":"Tuned","status":"True"}]}}`, 2},
		{`{"status":{"conditions":[{"type":"Tuned","$patch":"delete"}]}}`, 1},
	} {
		target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		check.NoError(t, c.Status().Patch(t.Context(), target, client.RawPatch(types.StrategicMergePatchType, []byte(step.patch))))
		if len(target.Status.Conditions) != step.want || target.Status.Conditions[0].Status != corev1.ConditionTrue {
			t.Errorf("after %s: got %+v", step.patch, target.Status.Conditions)
		}
	}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	if err := c.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, label); err != nil || getNode(t, c).Labels["a"] != "b" {
		t.Errorf("label: got %v, %v", getNode(t, c).Labels, err)
	}
}

func TestAnObjectIsRemovedWithItsLastFinalizer(t *testing.T) {
	s, c := newServer()
	profile := s.Get(Profiles, "", "p").(*v1alpha1.StorageClientProfile)
	check.NoError(t, c.Delete(t.Context(), profile.DeepCopy()))
	stored := s.Get(Profiles, "", "p").(*v1alpha1.StorageClientProfile)
	if stored.DeletionTimestamp == nil || stored.Generation != 2 {
		t.Errorf("during the deletion: got %+v", stored.ObjectMeta)
	}
	Change(s, "test", stored, func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil })
	if s.Get(Profiles, "", "p") != nil {
		t.Error("the object still exists without a finalizer")
	}
}

func TestListsSelect(t *testing.T) {
	_, c := newServer()
	for name, test := range map[string]struct {
		options []client.ListOption
		want    int
	}{
		"all":             {want: 2},
		"by namespace":    {options: []client.ListOption{client.InNamespace("e")}, want: 1},
		"by label":        {options: []client.ListOption{client.MatchingLabels{"app": "a"}}, want: 1},
		"by node":         {options: []client.ListOption{client.MatchingFields{"spec.nodeName": "m"}}, want: 1},
		"by all of these": {options: []client.ListOption{client.MatchingFields{"spec.nodeName": "m"}, client.MatchingLabels{"app": "a"}}, want: 0},
	} {
		var pods corev1.PodList
		if err := c.List(t.Context(), &pods, test.options...); err != nil || len(pods.Items) != test.want {
			t.Errorf("%s: got %d pods, %v, want %d", name, len(pods.Items), err, test.want)
		}
	}
	var versions metav1.PartialObjectMetadataList
	versions.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := c.List(t.Context(), &versions); err != nil || len(versions.Items) != 1 || versions.Items[0].ResourceVersion == "" {
		t.Errorf("got versions %+v, %v", versions.Items, err)
	}
}

func TestUnsupportedRequestsFail(t *testing.T) {
	_, c := newServer()
	node := getNode(t, c)
	for name, err := range map[string]error{
		"a kind":     c.Get(t.Context(), client.ObjectKey{Name: "s"}, &corev1.Secret{}),
		"a list":     c.List(t.Context(), &corev1.SecretList{}),
		"a field":    c.List(t.Context(), &corev1.PodList{}, client.MatchingFields{"status.phase": "Running"}),
		"a page":     c.List(t.Context(), &corev1.PodList{}, client.Limit(1)),
		"an update":  c.Update(t.Context(), node),
		"an apply":   c.Apply(t.Context(), nil),
		"a resource": c.SubResource("scale").Create(t.Context(), node, node),
		"a dry run":  c.Patch(t.Context(), node, locked(node), client.DryRunAll),
		"a status":   c.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":{"phase":"x"}}`))),
	} {
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	var _ runtime.Object = node
}

func TestAnEvictionUsesTheBudget(t *testing.T) {
	evict := func(c *Client, dryRun bool) error {
		pod := c.Server.Get(Pods, "d", "a").(*corev1.Pod)
		eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}}
		if dryRun {
			eviction.DeleteOptions.DryRun = []string{metav1.DryRunAll}
		}
		return c.SubResource("eviction").Create(context.Background(), pod.DeepCopy(), eviction)
	}
	budget := func(s *Server) *policyv1.PodDisruptionBudget {
		return s.Get(Budgets, "d", "a").(*policyv1.PodDisruptionBudget)
	}
	s, c := newServer()
	if err := evict(c, true); err != nil || s.Get(Pods, "d", "a").GetDeletionTimestamp() != nil || budget(s).Status.DisruptionsAllowed != 1 {
		t.Errorf("a dry run made a change, or failed: %v", err)
	}
	if err := evict(c, false); err != nil || s.Get(Pods, "d", "a").GetDeletionTimestamp() == nil || budget(s).Status.DisruptionsAllowed != 0 {
		t.Errorf("eviction: got %v", err)
	}
	if err := evict(c, false); err != nil {
		t.Errorf("eviction of a terminating pod: got %v", err)
	}
	for name, change := range map[string]func(*policyv1.PodDisruptionBudget){
		"that is used up":            func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 0 },
		"whose pods are not counted": func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = 0 },
	} {
		s, c = newServer()
		Change(s, "test", budget(s), change)
		if err := evict(c, false); !apierrors.IsTooManyRequests(err) {
			t.Errorf("budget %s: got %v", name, err)
		}
	}
	allowed := []func(*policyv1.PodDisruptionBudget){
		func(b *policyv1.PodDisruptionBudget) {
			b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
		},
		func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy, b.Status.DesiredHealthy = 2, 2 },
	}
	for i, change := range allowed {
		s, c = newServer()
		Change(s, "test", budget(s), func(b *policyv1.PodDisruptionBudget) { change(b); b.Status.DisruptionsAllowed = 0 })
		if err := evict(c, false); err != nil {
			t.Errorf("unready pod, rule %d: got %v", i, err)
		}
	}
	s, c = newServer()
	second := budget(s).DeepCopy()
	second.Name, second.UID = "second", ""
	s.Add("test", second)
	if err := evict(c, false); !apierrors.IsInternalError(err) {
		t.Errorf("two budgets: got %v", err)
	}
	pod := s.Get(Pods, "d", "a").(*corev1.Pod).DeepCopy()
	s.Remove("test", pod)
	eviction := &policyv1.Eviction{}
	if err := c.SubResource("eviction").Create(t.Context(), pod, eviction); !apierrors.IsNotFound(err) {
		t.Errorf("missing pod: got %v", err)
	}
	fresh := s.Add("test", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "a"}})
	eviction.DeleteOptions = &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if err := c.SubResource("eviction").Create(t.Context(), pod, eviction); !apierrors.IsConflict(err) || fresh.GetDeletionTimestamp() != nil {
		t.Errorf("pod of the same name: got %v", err)
	}
}

func TestACacheSeesThePastKindByKind(t *testing.T) {
	s, _ := newServer()
	cached := &Client{Server: s, Actor: "manager", Cache: s.NewCache()}
	node, clientNode := getNode(t, cached), getClientNode(t, cached)
	Change(s, "kubelet", node, func(n *corev1.Node) { n.Labels = map[string]string{"a": "1"} })
	Change(s, "kubelet", node, func(n *corev1.Node) { n.Labels = map[string]string{"a": "2"} })
	Change(s, "agent", clientNode, func(n *v1alpha1.StorageClientNode) { n.Status.Hash = "h" })
	if got := getNode(t, cached); got.Labels != nil || cached.Cache.Behind(Nodes) != 2 {
		t.Errorf("got %v, want the state before the change", got.Labels)
	}
	cached.Cache.Advance(Nodes, 1)
	if got := getNode(t, cached); got.Labels["a"] != "1" || getClientNode(t, cached).Status.Hash != "" {
		t.Errorf("after one change: got %v", got.Labels)
	}
	next := getNode(t, cached).DeepCopy()
	next.Spec.Unschedulable = true
	if err := cached.Patch(t.Context(), next, locked(getNode(t, cached))); !apierrors.IsConflict(err) {
		t.Errorf("write of the cached object: got %v, want a conflict", err)
	}
	cached.Cache.Sync()
	if got := getNode(t, cached); got.Labels["a"] != "2" || getClientNode(t, cached).Status.Hash != "h" {
		t.Errorf("after all changes: got %v", got.Labels)
	}
	cached.ReadsOwnWrites = true
	next = getNode(t, cached)
	next.Spec.Unschedulable = true
	if err := cached.Patch(t.Context(), next, locked(getNode(t, cached))); err != nil || !getNode(t, cached).Spec.Unschedulable {
		t.Errorf("a client does not read its own writes: %v", err)
	}
}

func TestCallsHaveTheirFate(t *testing.T) {
	errLost := errors.New("lost")
	for fate, want := range map[Fate]struct{ now, later bool }{
		Answered: {true, true}, Refused: {false, false}, Unanswered: {true, true}, Late: {false, true},
	} {
		s, c := newServer()
		node := getNode(t, c)
		var calls []Call
		c.Decide = func(call Call) (Fate, error) {
			calls = append(calls, call)
			return fate, errLost
		}
		next := node.DeepCopy()
		next.Spec.Unschedulable = true
		if err := c.Patch(t.Context(), next, locked(node)); (err == nil) != (fate == Answered) {
			t.Errorf("fate %d: got %v", fate, err)
		}
		stored := func() bool { return s.Get(Nodes, "", "n").(*corev1.Node).Spec.Unschedulable }
		if stored() != want.now {
			t.Errorf("fate %d: got effect %t, want %t", fate, stored(), want.now)
		}
		if s.RunLate(); stored() != want.later {
			t.Errorf("fate %d: got final effect %t, want %t", fate, stored(), want.later)
		}
		if len(calls) != 1 || calls[0] != (Call{Actor: "manager", Verb: "patch", Kind: Nodes, Name: "n"}) {
			t.Errorf("got calls %+v", calls)
		}
	}
	_, c := newServer()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Get(ended, client.ObjectKey{Name: "n"}, &corev1.Node{}); !errors.Is(err, context.Canceled) {
		t.Errorf("call after the end of its context: got %v", err)
	}
}

func TestEveryChangeIsObserved(t *testing.T) {
	s, c := newServer()
	var seen []Write
	s.Observe = func(w Write) { seen = append(seen, w) }
	node := getNode(t, c)
	Change(s, "kubelet", node, func(n *corev1.Node) { n.Labels = map[string]string{"a": "1"} })
	s.Delete("cloud", node)
	if len(seen) != 2 || seen[0].Actor != "kubelet" || seen[0].After.GetLabels()["a"] != "1" || seen[1].After != nil {
		t.Errorf("got observed writes %+v", seen)
	}
}
