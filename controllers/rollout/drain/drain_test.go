package drain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func options(change func(*v1alpha1.Drain)) v1alpha1.Drain {
	out := (&v1alpha1.StorageClientProfileSpec{}).WithDefaults().Rollout.Drain
	if change != nil {
		change(&out)
	}
	return out
}

// pod is a running Pod of a ReplicaSet on node a.
func pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "a"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	ownedBy("apps/v1", "ReplicaSet")(out)
	for _, change := range changes {
		change(out)
	}
	return out
}

func ownedBy(apiVersion, kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", Controller: ptr.To(true)}}
	}
}

func bare(p *corev1.Pod)      { p.OwnerReferences = nil }
func succeeded(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
func elsewhere(p *corev1.Pod) { p.Spec.NodeName = "b" }
func mirror(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static-uid"}
	ownedBy("v1", "Node")(p)
}
func scratch(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}
func terminating(p *corev1.Pod) {
	now := metav1.Now()
	p.DeletionTimestamp, p.Finalizers = &now, []string{"example.com/stays"}
}

// budget allows no eviction now.
func budget(name, app string, changes ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	out := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
	for _, change := range changes {
		change(out)
	}
	return out
}

func uncounted(created metav1.Time) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Generation, b.CreationTimestamp = 1, created }
}

func healthy(current, desired int32) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) {
		b.Status.CurrentHealthy, b.Status.DesiredHealthy = current, desired
	}
}

func allows(count int32) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = count }
}

// failedSync has the condition of a budget whose pods have an owner without a scale subresource.
func failedSync(b *policyv1.PodDisruptionBudget) {
	b.Status.Conditions = []metav1.Condition{{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason,
		Message: "runners.actions.example.com does not implement the scale subresource",
	}}
}

// errTryLater is the response of a server that does not evict now.
var errTryLater = apierrors.NewTooManyRequests("come back later", 0)

// rejections maps pod names to the error that their eviction returns. Pods without an entry are evicted.
type rejections map[string]error

// evictions records the eviction requests.
type evictions struct {
	reject    rejections
	mutex     sync.Mutex
	requested []string
}

func (e *evictions) Evict(_ context.Context, pod *corev1.Pod) error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.requested = append(e.requested, pod.Name)
	slices.Sort(e.requested)
	return e.reject[pod.Name]
}

// newRunner returns a runner that runs until the test ends.
func newRunner(t *testing.T, reader client.Reader, evictor Evictor) *Runner {
	t.Helper()
	r := &Runner{Drainer: Drainer{Reader: reader, Evictor: evictor, Now: time.Now}}
	r.runs = t.Context()
	return r
}

// drainOnce drains node a until the run has finished, and returns the progress.
func drainOnce(t *testing.T, r *Runner, options v1alpha1.Drain) Result {
	t.Helper()
	if _, err := r.Drain(t.Context(), "a", options, Start{}); err != nil {
		t.Fatal(err)
	}
	r.Wait()
	result, _, err := r.Inspect(t.Context(), "a", options)
	check.NoError(t, err)
	return result
}

func newReader(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	check.NoError(t, clientgoscheme.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		Build()
}

func TestInspect(t *testing.T) {
	jobs := ownedBy("batch/v1", "Job")
	for name, c := range map[string]struct {
		pods []client.Object
		due  bool
		want string
	}{
		"a pod that ends": {[]client.Object{pod("a", terminating)}, false, "Waiting for pod eda/a to terminate"},
		"pods that end, and one that has: others stay": {
			[]client.Object{pod("a", terminating), pod("b", succeeded), pod("c", mirror), pod("d", elsewhere)}, false, "Waiting for pod eda/a to terminate",
		},
		"a pod that may be evicted":     {[]client.Object{pod("a", terminating), pod("b")}, true, "Waiting for pods eda/a, eda/b to terminate"},
		"a Job that runs":               {[]client.Object{pod("a", jobs)}, false, "Waiting for pod eda/a to finish"},
		"a pod that no drain may evict": {[]client.Object{pod("a", bare)}, false, "Pod eda/a has no controller"},
		"no pod is left":                {[]client.Object{pod("a", mirror)}, true, "All pods that had to leave are gone"},
	} {
		t.Run(name, func(t *testing.T) {
			// The Evictor is nil, so that an eviction panics.
			got, due, err := newRunner(t, newReader(t, c.pods...), nil).Inspect(t.Context(), "a", options(nil))
			if err != nil || due != c.due || !strings.HasPrefix(got.String(), c.want) {
				t.Errorf("got %q, due %t, error %v; want %q, due %t", got, due, err, c.want, c.due)
			}
		})
	}
}

func TestDrain(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	rejected := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	for name, c := range map[string]struct {
		objects   []client.Object
		options   v1alpha1.Drain
		reject    rejections
		want      Result
		requested []string
	}{
		"an empty node is drained": {options: options(nil)},
		"a pod is evicted and counts until it is gone": {
			objects:   []client.Object{pod("web"), pod("other", elsewhere)},
			options:   options(nil),
			want:      Result{Remaining: []string{"eda/web"}},
			requested: []string{"web"},
		},
		"a pod that terminates is not evicted again, and counts": {
			objects: []client.Object{pod("web", terminating)},
			options: options(nil),
			want:    Result{Remaining: []string{"eda/web"}},
		},
		"DaemonSet and static pods stay, under every UID that the kubelet knows": {
			objects: []client.Object{pod("csi", ownedBy("apps/v1", "DaemonSet")), pod("etcd", mirror)},
			options: options(nil),
			want:    Result{IgnoredPodUIDs: []string{"csi-uid", "etcd-uid", "static-uid"}},
		},
		"a pod that has run to its end need not leave": {
			objects: []client.Object{pod("done", succeeded), pod("bare", bare, succeeded)},
			options: options(nil),
		},
		"the drain waits for a pod of a Job before it evicts others": {
			objects: []client.Object{pod("job", ownedBy("batch/v1", "Job"), scratch), pod("web")},
			options: options(nil),
			want:    Result{Remaining: []string{"eda/web"}, WaitedFor: []string{"eda/job"}},
		},
		"the drain waits for pods that the selector selects": {
			objects: []client.Object{pod("sim"), pod("web")},
			options: options(func(d *v1alpha1.Drain) {
				d.WaitForPodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "sim"}}
			}),
			want: Result{Remaining: []string{"eda/web"}, WaitedFor: []string{"eda/sim"}},
		},
		"an empty selector selects no pods": {
			objects:   []client.Object{pod("web")},
			options:   options(func(d *v1alpha1.Drain) { d.WaitForPodSelector = &metav1.LabelSelector{} }),
			want:      Result{Remaining: []string{"eda/web"}},
			requested: []string{"web"},
		},
		"a pod without a controller blocks all evictions": {
			objects: []client.Object{pod("bare", bare), pod("web")},
			options: options(nil),
			want: Result{
				Remaining: []string{"eda/web"},
				Blocked:   []Blocker{{Pod: "eda/bare", Reason: "has no controller to start it elsewhere; delete it once its work is done"}},
			},
		},
		"a pod with an emptyDir is kept": {
			objects: []client.Object{pod("web", scratch)},
			options: options(nil),
			want: Result{Blocked: []Blocker{
				{Pod: "eda/web", Reason: "has an emptyDir, whose data would be lost (set rollout.drain.deleteEmptyDirData to evict it)"},
			}},
		},
		"deleteEmptyDirData evicts it": {
			objects:   []client.Object{pod("web", scratch)},
			options:   options(func(d *v1alpha1.Drain) { d.DeleteEmptyDirData = true }),
			want:      Result{Remaining: []string{"eda/web"}},
			requested: []string{"web"},
		},
		"the budget that keeps a pod is named, others are evicted": {
			objects: []client.Object{pod("db"), pod("web"), budget("db-pdb", "db"), budget("web-pdb", "web")},
			options: options(nil),
			reject:  rejections{"db": rejected},
			want: Result{
				Remaining: []string{"eda/web"},
				Blocked:   []Blocker{{Pod: "eda/db", Budgets: []string{"eda/db-pdb"}}},
			},
			requested: []string{"db", "web"},
		},
		"a pod that can never leave keeps all others on the node": {
			objects: []client.Object{pod("runner"), pod("web"), budget("pdb", "runner", failedSync)},
			options: options(nil),
			reject:  rejections{"runner": rejected},
			want: Result{
				Remaining: []string{"eda/web"},
				Blocked: []Blocker{{
					Pod: "eda/runner", Budgets: []string{"eda/pdb"},
					Reason: "its pods cannot be counted (runners.actions.example.com does not implement the scale subresource); set an integer minAvailable",
				}},
			},
			requested: []string{"runner"},
		},
		"a server that only requests a later attempt blocks no drain": {
			objects:   []client.Object{pod("db")},
			options:   options(nil),
			reject:    rejections{"db": rejected},
			want:      Result{Remaining: []string{"eda/db"}},
			requested: []string{"db"},
		},
		"two budgets for a pod are named with the required action": {
			objects: []client.Object{pod("db"), budget("one", "db"), budget("two", "db")},
			options: options(nil),
			reject:  rejections{"db": apierrors.NewInternalError(errors.New("more than one PodDisruptionBudget"))},
			want: Result{Blocked: []Blocker{{
				Pod: "eda/db", Budgets: []string{"eda/one", "eda/two"},
				Reason: "a pod that several budgets select cannot be evicted; change a budget's selector, or delete a budget",
			}}},
			requested: []string{"db"},
		},
		"a pod that is not found, or is another one by now, is gone": {
			objects: []client.Object{pod("db"), pod("web")},
			options: options(nil),
			reject: rejections{
				"db":  apierrors.NewNotFound(pods, "db"),
				"web": apierrors.NewConflict(pods, "web", errors.New("the UID in the precondition does not match")),
			},
			want:      Result{Remaining: []string{"eda/db", "eda/web"}}, // can be evicted; the next read no longer returns them
			requested: []string{"db", "web"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			evictor := &evictions{reject: c.reject}
			got := drainOnce(t, newRunner(t, newReader(t, c.objects...), evictor), c.options)
			named := slices.Sorted(maps.Values(got.Names))
			got.Names = nil
			check.Equal(t, "result", c.want, got)
			for _, pod := range slices.Concat(got.Remaining, got.WaitedFor) {
				if !slices.Contains(named, pod) {
					t.Errorf("%s is missing in the names %v", pod, named)
				}
			}
			check.Equal(t, "evictions", c.requested, evictor.requested)
		})
	}
}

// The pod keeps its own grace period.
func TestPolicyEvictorEvictsOnlyThePodWithThisUID(t *testing.T) {
	var got *policyv1.Eviction
	web := pod("web")
	recording := interceptor.NewClient(newReader(t, web).(client.WithWatch), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, name string, _, body client.Object, _ ...client.SubResourceCreateOption) error {
			check.Equal(t, "subresource", "eviction", name)
			got = body.(*policyv1.Eviction)
			return nil
		},
	})
	check.NoError(t, (PolicyEvictor{Client: recording}).Evict(t.Context(), web))
	want := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("web-uid")}
	check.Equal(t, "delete options", want, got.DeleteOptions)
}

func TestResultNamesTheWorstFirst(t *testing.T) {
	for want, r := range map[string]Result{
		"All pods that had to leave are gone":                          {},
		"Waiting for pods eda/a, eda/b, eda/c and 1 more to terminate": {Remaining: []string{"eda/d", "eda/c", "eda/b", "eda/a"}},
		"Eviction of Pod eda/db blocked by PodDisruptionBudget eda/pdb. Waiting for pod eda/job to finish. Waiting for pod eda/web to terminate": {
			Remaining: []string{"eda/web"}, WaitedFor: []string{"eda/job"},
			Blocked: []Blocker{{Pod: "eda/db", Budgets: []string{"eda/pdb"}}},
		},
	} {
		check.Equal(t, "result", want, r.String())
	}
}
