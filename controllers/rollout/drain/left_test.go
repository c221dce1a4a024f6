package drain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/test/check"
)

// stays is a running pod with a budget. Its owner would start another one on the cordoned node.
func stays(name string) *corev1.Pod {
	return pod(name, ready, tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}))
}

// TestBudgetsOfPodsThatStayHoldUpThePermit has a drain with no other pod left, so that a permit would follow.
func TestBudgetsOfPodsThatStayHoldUpThePermit(t *testing.T) {
	allowing := budget("pdb", "db", allows(1))
	noDryRun := apierrors.NewBadRequest("no dry run")
	const because = ": a drain would leave the pod on the node, because it tolerates the taint node.kubernetes.io/unschedulable"
	for name, c := range map[string]struct {
		objects []client.Object
		dry     error
		want    string
	}{
		"the budget allows it":                      {[]client.Object{stays("db"), allowing}, nil, ""},
		"the pod has no budget":                     {[]client.Object{stays("db")}, nil, ""},
		"the budget is used up":                     {[]client.Object{stays("db"), budget("pdb", "db")}, errTryLater, "Eviction of Pod eda/db blocked by PodDisruptionBudget eda/pdb" + because},
		"the pods of a new budget are not counted":  {[]client.Object{stays("db"), budget("pdb", "db", uncounted(metav1.Now()))}, errTryLater, "Eviction of Pod eda/db blocked by PodDisruptionBudget eda/pdb" + because},
		"they are not, and a webhook rejects them":  {[]client.Object{stays("db"), budget("pdb", "db", uncounted(metav1.Now()), allows(1))}, noDryRun, "Eviction of Pod eda/db blocked by"},
		"the pods of the budget are never counted":  {[]client.Object{stays("db"), budget("pdb", "db", uncounted(metav1.Time{}))}, errTryLater, "Eviction of Pod eda/db blocked by PodDisruptionBudget eda/pdb: its status is outdated"},
		"the server is busy":                        {[]client.Object{stays("db")}, errTryLater, "Pod eda/db cannot be evicted: "},
		"a webhook rejects dry runs":                {[]client.Object{stays("db"), allowing}, noDryRun, ""},
		"a webhook rejects them, and it is used up": {[]client.Object{stays("db"), budget("pdb", "db")}, noDryRun, "Eviction of Pod eda/db blocked by"},
		"the pod has just gone":                     {[]client.Object{stays("db"), budget("pdb", "db")}, apierrors.NewNotFound(corev1.Resource("pods"), "db"), ""},
		"another pod must leave first":              {[]client.Object{stays("db"), pod("web", terminating), budget("pdb", "db")}, errTryLater, "Waiting for pod eda/web to terminate"},
		"a DaemonSet's pod needs no budget":         {[]client.Object{pod("db", ownedBy("apps/v1", "DaemonSet")), budget("pdb", "db")}, errTryLater, ""},
	} {
		t.Run(name, func(t *testing.T) {
			// The Evictor is nil, so that an eviction panics.
			r := newRunner(t, newReader(t, c.objects...), nil)
			r.DryRunEvictor = &evictions{reject: rejections{"db": c.dry}}
			got, err := r.Drain(t.Context(), "a", options(nil), Start{})
			if err != nil || got.Done() != (c.want == "") || c.want != "" && !strings.HasPrefix(got.String(), c.want) {
				t.Errorf("got %q, done %t, error %v; want %q", got, got.Done(), err, c.want)
			}
			outlook, err := r.LookAhead(t.Context(), "a", options(nil))
			for when, budgets := range map[string][]policyv1.PodDisruptionBudget{"Drain": got.Budgets, "LookAhead": outlook.Budgets} {
				isCovered := name == "the budget allows it" || name == "a webhook rejects dry runs"
				if err != nil || isCovered && (len(budgets) != 1 || budgets[0].Name != "pdb") {
					t.Errorf("%s: got budgets %v, error %v; want pdb", when, budgets, err)
				}
			}
		})
	}
}

// An unready pod uses up no disruption of a budget that lets it go.
func TestOnlyPodsThatABudgetKeepsUseItUp(t *testing.T) {
	unready := func(p *corev1.Pod) { p.Status.Conditions = nil }
	for budgeted, want := range map[*policyv1.PodDisruptionBudget]int{
		budget("pdb", "db", healthy(2, 2)): 0, budget("pdb", "db", healthy(1, 2), allows(1)): 1,
	} {
		staying := stays("db")
		unready(staying)
		r := newRunner(t, newReader(t, staying, budgeted), nil)
		r.DryRunEvictor = &evictions{}
		got, err := r.Drain(t.Context(), "a", options(nil), Start{})
		outlook, lookErr := r.LookAhead(t.Context(), "a", options(nil))
		if err != nil || lookErr != nil || len(got.Budgets) != want || len(outlook.Budgets) != want {
			t.Errorf("%+v: got budgets %v and %v, errors %v and %v; want %d", budgeted.Status, got.Budgets, outlook.Budgets, err, lookErr, want)
		}
	}
}

func TestNoPermitWithoutAResponseAboutPodsThatStay(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	r := newRunner(t, newReader(t, stays("db")), nil)
	r.DryRunEvictor = evictorFunc(func() error { cancel(); return context.Canceled })
	if got, err := r.Drain(ended, "a", options(nil), Start{}); err == nil {
		t.Errorf("got %q without an error, want an error", got)
	}
	for refusal, want := range map[error]string{
		apierrors.NewBadRequest("no dry run"): "Pod eda/db cannot be evicted: no dry run", nil: "Pod eda/db may have a PodDisruptionBudget: ",
	} {
		r = newRunner(t, withoutBudgets(newReader(t, stays("db"))), nil)
		r.DryRunEvictor = &evictions{reject: rejections{"db": refusal}}
		if got, err := r.Drain(t.Context(), "a", options(nil), Start{}); err != nil || got.Done() || !strings.HasPrefix(got.String(), want) {
			t.Errorf("dry run %v: got %q, error %v; want %q", refusal, got, err, want)
		}
	}
}

// The budgets of pods that stay matter once no other pod must leave: until then, the drain sends the server only evictions.
func TestTheBudgetsOfPodsThatStayAreAskedLast(t *testing.T) {
	r := newRunner(t, newReader(t, pod("web"), stays("db")), &evictions{})
	dryRun := &evictions{}
	r.DryRunEvictor = dryRun
	if drainOnce(t, r, options(nil)); len(dryRun.requested) > 0 {
		t.Errorf("got dry runs of %v while a pod leaves", dryRun.requested)
	}
}

func TestADrainNeedsThePodsOfItsNode(t *testing.T) {
	noPods := interceptor.NewClient(newReader(t).(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no pods")
		},
	})
	for run := range 2 {
		r := newRunner(t, noPods, &evictions{})
		if run > 0 {
			r.nodes = map[string]*nodeDrain{"a": {}}
		}
		if got, err := r.Drain(t.Context(), "a", options(nil), Start{}); err == nil {
			t.Errorf("got %q without an error", got)
		}
		if got, _, err := r.Inspect(t.Context(), "a", options(nil)); err == nil {
			t.Errorf("got %q without an error", got)
		}
	}
}

// withoutBudgets returns a reader that cannot list PodDisruptionBudgets.
func withoutBudgets(reader client.Client) client.Client {
	return interceptor.NewClient(reader.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, isPods := list.(*corev1.PodList); isPods {
				return c.List(ctx, list, opts...)
			}
			return errors.New("no budgets")
		},
	})
}

type evictorFunc func() error

func (f evictorFunc) Evict(context.Context, *corev1.Pod) error { return f() }

// TestAPodThatStartsMeanwhileIsNotEvicted requests evictions of pods before and after their start.
func TestAPodThatStartsMeanwhileIsNotEvicted(t *testing.T) {
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		dryRun  bool
		isBound bool
	}{
		"a pod that has not started":              {pod("a", pending), false, true},
		"a pod that runs":                         {pod("a"), false, false},
		"a pod whose init container runs":         {pod("a", pending, initRuns), false, false},
		"a pod that has not started, and dry run": {pod("a", pending), true, false},
	} {
		c.pod.ResourceVersion = "7"
		var got *metav1.Preconditions
		recording := interceptor.NewClient(newReader(t).(client.WithWatch), interceptor.Funcs{
			SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _, body client.Object, _ ...client.SubResourceCreateOption) error {
				got = body.(*policyv1.Eviction).DeleteOptions.Preconditions
				return nil
			},
		})
		check.NoError(t, (PolicyEvictor{Client: recording, DryRun: c.dryRun}).Evict(t.Context(), c.pod))
		if version := ptr.Deref(got.ResourceVersion, ""); (version == "7") != c.isBound || *got.UID != c.pod.UID {
			t.Errorf("%s: got UID %s, resource version %q; want its version: %t", name, *got.UID, version, c.isBound)
		}
	}
}

func TestARunnerHasTheClockOfItsManager(t *testing.T) {
	reader := newReader(t, pod("a", ends(noon.Add(-time.Minute), 30)))
	for now, isStuck := range map[time.Time]bool{noon: false, noon.Add(time.Hour): true} {
		got, err := NewRunner(reader, reader, func() time.Time { return now }).LookAhead(t.Context(), "a", options(nil))
		if err != nil || len(got.Blocked) > 0 != isStuck {
			t.Errorf("at %s: got %q, error %v; want the pod to block: %t", now, got, err, isStuck)
		}
	}
}
