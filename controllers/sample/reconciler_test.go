package sample

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// world is a node with an agent and mounts of mine and theirs, which are bound to the claims of those names.
type world struct {
	t          *testing.T
	clock      *testclock.FakePassiveClock
	client     client.Client
	reconciler *Reconciler
	patchErr   error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{v1alpha1.ManagedLabel: v1alpha1.True}}}
	node.Status.NodeInfo.BootID = "b"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: "agent", Labels: map[string]string{agentpod.ComponentLabel: agentpod.Component}}}
	agent.Spec.NodeName = "n1"
	agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "n1", UID: "u1"}}}}
	clientNode.Status.BootID = "b"
	objects := []client.Object{node, agent, clientNode}
	for _, name := range []string{"mine", "theirs"} {
		clientNode.Status.Mounts = append(clientNode.Status.Mounts, v1alpha1.MountStatus{MountPoint: "/" + name, Volume: "pv-" + name})
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}}
		pv.Spec.ClaimRef, pv.Status.Phase = &corev1.ObjectReference{Namespace: "eda", Name: name, UID: types.UID(name)}, corev1.VolumeBound
		volumeClaim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: name, UID: types.UID(name)}}
		volumeClaim.Spec.VolumeName = pv.Name
		objects = append(objects, pv, volumeClaim)
	}
	w := &world{t: t, clock: testclock.NewFakePassiveClock(now)}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if w.patchErr != nil {
				return w.patchErr
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	}).Build()
	w.reconciler = &Reconciler{Client: w.client, Clock: w.clock, ManagerNamespace: v1alpha1.ManagerNamespace, AgentNamespace: v1alpha1.AgentNamespace}
	return w
}

func request() string {
	return v1alpha1.SampleRequest{ID: "r", Seconds: 60, Nodes: []string{"n1"}, Until: metav1.NewTime(now.Add(2 * time.Minute))}.Encode()
}

// change changes an object that there is.
func change[T client.Object](w *world, object T, f func(T)) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		w.t.Fatal(err)
	}
	f(object)
	if err := w.client.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func mine() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "mine"}}
}

func (w *world) annotate(value string) {
	w.t.Helper()
	change(w, mine(), func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{v1alpha1.SampleAnnotation: value}
	})
}

// pass makes one, and returns what the node is asked.
func (w *world) pass() (*v1alpha1.NodeSample, reconcile.Result, error) {
	w.t.Helper()
	result, err := w.reconciler.Reconcile(w.t.Context(), reconcile.Request{})
	w.clock.SetTime(w.clock.Now().Add(passEvery))
	clientNode := &v1alpha1.StorageClientNode{}
	if getErr := w.client.Get(w.t.Context(), client.ObjectKey{Name: "n1"}, clientNode); getErr != nil {
		w.t.Fatal(getErr)
	}
	return clientNode.Spec.Sample, result, err
}

func TestAClaimAsksOfItsOwnVolumeAlone(t *testing.T) {
	w := newWorld(t)
	// Anybody may say which volume a claim is for. The volume says whose it is.
	change(w, mine(), func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-theirs" })
	w.annotate(request())
	asked, _, err := w.pass()
	if err != nil || asked == nil || asked.ID != "mine-r" || len(asked.Volumes) != 1 || asked.Volumes[0] != "pv-mine" {
		t.Fatalf("%+v, %v", asked, err)
	}

	w = newWorld(t)
	change(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-mine"}}, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "earlier" })
	w.annotate(request())
	if asked, _, err := w.pass(); err != nil || asked != nil {
		t.Errorf("a volume of an earlier claim of that name: %+v, %v", asked, err)
	}

	w = newWorld(t)
	released := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-mine"}}
	change(w, released, func(*corev1.PersistentVolume) {})
	released.Status.Phase = corev1.VolumeReleased
	if err := w.client.Status().Update(t.Context(), released); err != nil {
		t.Fatal(err)
	}
	w.annotate(request())
	if asked, _, err := w.pass(); err != nil || asked != nil {
		t.Errorf("a volume that is released: %+v, %v", asked, err)
	}
}

func TestWhoIsAskedNothing(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"an annotation that nobody can read": func(w *world) { w.annotate("yes") },
		"an ignored node": func(w *world) {
			w.annotate(request())
			change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.IgnoreAnnotation: v1alpha1.True} })
		},
		"a node with a claim of the budget": func(w *world) {
			w.annotate(request())
			budget := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.BudgetConfigMap}, Data: map[string]string{"n1": "{}"}}
			if err := w.client.Create(w.t.Context(), budget); err != nil {
				w.t.Fatal(err)
			}
		},
		"a client node of an earlier Node": func(w *world) {
			w.annotate(request())
			change(w, &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, func(c *v1alpha1.StorageClientNode) { c.OwnerReferences[0].UID = "earlier" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(w)
			if asked, _, err := w.pass(); err != nil || asked != nil {
				t.Errorf("%+v, %v", asked, err)
			}
		})
	}
}

func TestARequestExpiresByItself(t *testing.T) {
	w := newWorld(t)
	w.annotate(request())
	asked, result, err := w.pass()
	if err != nil || asked == nil || result.RequeueAfter != 2*time.Minute {
		t.Fatalf("%+v, %v, %v", asked, result, err)
	}
	w.clock.SetTime(now.Add(2 * time.Minute))
	if asked, result, err := w.pass(); err != nil || asked != nil || result.RequeueAfter != 0 {
		t.Errorf("%+v, %v, %v", asked, result, err)
	}
}

func TestAPassThatFails(t *testing.T) {
	w := newWorld(t)
	w.annotate(request())
	w.patchErr = apierrors.NewConflict(schema.GroupResource{Resource: "storageclientnodes"}, "n1", nil)
	if _, result, err := w.pass(); err != nil || result.RequeueAfter != retryAfter {
		t.Errorf("%v, %v", result, err)
	}
	w.patchErr = apierrors.NewInternalError(context.DeadlineExceeded)
	if _, _, err := w.pass(); err == nil {
		t.Error("the error is lost")
	}
	w.patchErr = nil
	if asked, _, err := w.pass(); err != nil || asked == nil {
		t.Errorf("%+v, %v", asked, err)
	}
	w.clock.SetTime(now.Add(4*passEvery - passEvery*3/2))
	if _, result, _ := w.pass(); result.RequeueAfter != passEvery/2 {
		t.Errorf("two passes at once: %v", result)
	}
}

func TestWhatBringsAPass(t *testing.T) {
	asks, silent := mine(), mine()
	asks.Annotations = map[string]string{v1alpha1.SampleAnnotation: request()}
	p := asking()
	for name, test := range map[string]struct{ got, want bool }{
		"a claim that asks":         {p.Create(event.CreateEvent{Object: asks}), true},
		"a claim that does not":     {p.Create(event.CreateEvent{Object: silent}), false},
		"it begins to":              {p.Update(event.UpdateEvent{ObjectOld: silent, ObjectNew: asks}), true},
		"it goes on":                {p.Update(event.UpdateEvent{ObjectOld: asks, ObjectNew: asks}), false},
		"it takes its request back": {p.Update(event.UpdateEvent{ObjectOld: asks, ObjectNew: silent}), true},
		"it goes":                   {p.Delete(event.DeleteEvent{Object: asks}), true},
		"an answer": {sampleChanged(event.UpdateEvent{ObjectOld: &v1alpha1.StorageClientNode{}, ObjectNew: &v1alpha1.StorageClientNode{
			Status: v1alpha1.StorageClientNodeStatus{Sample: &v1alpha1.NodeSampleStatus{ID: "a"}}}}), true},
		"a report of all else": {sampleChanged(event.UpdateEvent{ObjectOld: &v1alpha1.StorageClientNode{}, ObjectNew: &v1alpha1.StorageClientNode{
			Status: v1alpha1.StorageClientNodeStatus{Hash: "a"}}}), false},
	} {
		if test.got != test.want {
			t.Errorf("%s: %v", name, test.got)
		}
	}
}
