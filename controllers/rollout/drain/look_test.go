package drain

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func ready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func TestLookAhead(t *testing.T) {
	allowing, enough := budget("pdb", "db"), budget("pdb", "db", healthy(2, 2))
	allowing.Status.DisruptionsAllowed = 1
	fresh, neverCounted := budget("pdb", "db", uncounted(metav1.Now())), budget("pdb", "db", uncounted(metav1.Time{}), failedSync)
	sideEffects := apierrors.NewBadRequest("admission webhook does not support dry run")
	blocked := "Eviction of Pod eda/db blocked by PodDisruptionBudget eda/pdb"
	const notCounted = ": its pods cannot be counted (runners.actions.example.com does not implement the scale subresource); set an integer minAvailable"
	const nothing = "All pods that had to leave are gone"
	for name, c := range map[string]struct {
		objects []client.Object
		reject  error
		want    string
	}{
		"every pod may go":                                                     {[]client.Object{pod("db"), budget("pdb", "db")}, nil, nothing},
		"a budget does not allow":                                              {[]client.Object{pod("db"), budget("pdb", "db")}, errTryLater, blocked},
		"the server is busy":                                                   {[]client.Object{pod("db")}, errTryLater, nothing},
		"the pods of a new budget have not been counted":                       {[]client.Object{pod("db"), fresh}, errTryLater, nothing},
		"the pods of a budget are never counted":                               {[]client.Object{pod("db"), neverCounted}, errTryLater, blocked + notCounted},
		"a webhook rejects dry runs":                                           {[]client.Object{pod("db"), allowing}, sideEffects, nothing},
		"a webhook rejects them, and the budget allows no eviction":            {[]client.Object{pod("db", ready), budget("pdb", "db")}, sideEffects, blocked},
		"a webhook rejects them, the pod is not ready, and too few others are": {[]client.Object{pod("db"), budget("pdb", "db", healthy(1, 2))}, sideEffects, blocked},
		"a webhook rejects them, the pod is not ready, and enough others are":  {[]client.Object{pod("db"), enough}, sideEffects, nothing},
		"a webhook rejects them, and the pods are never counted":               {[]client.Object{pod("db", ready), neverCounted}, sideEffects, blocked + notCounted},
		"the pod has just gone":                                                {[]client.Object{pod("db", ready), budget("pdb", "db")}, apierrors.NewNotFound(corev1.Resource("pods"), "db"), nothing},
		"a pod has gone, and another one has its name": {
			[]client.Object{pod("db", ready), budget("pdb", "db")}, apierrors.NewConflict(corev1.Resource("pods"), "db", errors.New("another UID")), nothing,
		},
		"the server allows an eviction that the status of the budget does not": {[]client.Object{pod("db", ready), budget("pdb", "db")}, nil, nothing},
		"a Job runs": {[]client.Object{pod("db", ownedBy("batch/v1", "Job"))}, nil, "Waiting for pod eda/db to finish"},
		"a pod that no drain may evict, and a terminating pod": {[]client.Object{pod("db", bare), pod("web", terminating)}, nil, "Pod eda/db has no controller to start it elsewhere; delete it once its work is done"},
		"two budgets": {
			[]client.Object{pod("db"), budget("one", "db"), budget("two", "db")}, apierrors.NewInternalError(errors.New("more than one")),
			"Eviction of Pod eda/db blocked by PodDisruptionBudget eda/one, eda/two: a pod that several budgets select cannot be evicted; change a budget's selector, or delete a budget",
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The Evictor is nil, so that an eviction panics.
			d := &Drainer{Reader: newReader(t, c.objects...), DryRunEvictor: &evictions{reject: rejections{"db": c.reject}}, Now: time.Now}
			got, err := d.LookAhead(t.Context(), "a", options(nil))
			if err != nil || got.String() != c.want {
				t.Errorf("got %q, error %v; want %q", got, err, c.want)
			}
		})
	}
}

// A look ahead names the pods whose mounts rollout.drain.ignoreDaemonSetMounts ignores.
func TestLookAheadNamesPodsOfDaemonSets(t *testing.T) {
	d := &Drainer{Reader: newReader(t, pod("db"), pod("logs", ownedBy("apps/v1", "DaemonSet"))), DryRunEvictor: &evictions{}, Now: time.Now}
	got, err := d.LookAhead(t.Context(), "a", options(nil))
	if want := []string{"logs-uid"}; err != nil || !slices.Equal(got.IgnoredPodUIDs, want) {
		t.Errorf("got %v, error %v; want %v", got.IgnoredPodUIDs, err, want)
	}
}

func TestLookAheadDoesNotWaitForASlowWebhook(t *testing.T) {
	reader := newReader(t, append(manyPods(70), budget("pdb", "web-00"))...)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := (&Drainer{Reader: reader, DryRunEvictor: &slow{takes: time.Minute}, Now: time.Now}).LookAhead(t.Context(), "a", options(nil))
		if took := time.Since(began); err != nil || took != lookTimeout || !got.Done() {
			t.Errorf("got %s after %s, error %v; want no obstacle after %s", got, took, err, lookTimeout)
		}
	})
}

// A look ahead names only obstacles that it knows: not a request without a response, and not a budget that it could not read.
func TestLookAheadOmitsUnknownObstacles(t *testing.T) {
	reader := newReader(t, pod("db", ready), budget("pdb", "db"))
	synctest.Test(t, func(t *testing.T) {
		got, err := (&Drainer{Reader: reader, DryRunEvictor: &slow{takes: time.Minute}, Now: time.Now}).LookAhead(t.Context(), "a", options(nil))
		if err != nil || !got.Done() {
			t.Errorf("without a response: got %s, error %v; want no obstacle", got, err)
		}
	})
	dryRun := &evictions{reject: rejections{"db": errTryLater}}
	got, err := (&Drainer{Reader: withoutBudgets(reader), DryRunEvictor: dryRun, Now: time.Now}).LookAhead(t.Context(), "a", options(nil))
	if err != nil || !got.Done() {
		t.Errorf("without the budgets: got %s, error %v; want no obstacle", got, err)
	}
	got, err = (&Drainer{Reader: withoutBudgets(newReader(t, stays("db"))), DryRunEvictor: &evictions{}, Now: time.Now}).LookAhead(t.Context(), "a", options(nil))
	if err != nil || !got.Done() || len(got.Budgets) > 0 {
		t.Errorf("without the budgets of a pod that stays: got %s, budgets %v, error %v; want none", got, got.Budgets, err)
	}
	noPods := interceptor.NewClient(reader.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no pods")
		},
	})
	if got, err := (&Drainer{Reader: noPods, DryRunEvictor: dryRun, Now: time.Now}).LookAhead(t.Context(), "a", options(nil)); err == nil {
		t.Errorf("without the pods: got %s and no error", got)
	}
}

// A client waits if a server requires a later attempt, as the API server does until it has counted the pods of a budget.
func TestLookAheadDoesNotWaitForACount(t *testing.T) {
	reader := newReader(t, pod("db"), pod("web"), budget("pdb", "db", uncounted(metav1.Time{})))
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := (&Drainer{Reader: reader, DryRunEvictor: waiting{"db"}, Now: time.Now}).LookAhead(t.Context(), "a", options(nil))
		want := "Eviction of Pod eda/db blocked by PodDisruptionBudget eda/pdb: its status is outdated; check the kube-controller-manager if that lasts longer than a minute"
		if took := time.Since(began); err != nil || took != 0 || got.String() != want {
			t.Errorf("got %q after %s, error %v; want %q at once", got, took, err, want)
		}
	})
}

// waiting evicts all pods except one, for which its client waits.
type waiting struct{ except string }

func (w waiting) Evict(ctx context.Context, pod *corev1.Pod) error {
	if pod.Name != w.except {
		return nil
	}
	return (&slow{takes: time.Hour}).Evict(ctx, pod)
}

func TestDryRunsAreDryRuns(t *testing.T) {
	web := pod("web")
	var calls atomic.Int32
	recording := interceptor.NewClient(newReader(t, web).(client.WithWatch), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _, body client.Object, opts ...client.SubResourceCreateOption) error {
			calls.Add(1)
			applied := (&client.SubResourceCreateOptions{}).ApplyOptions(opts)
			eviction := body.(*policyv1.Eviction)
			if len(applied.DryRun) != 1 || applied.DryRun[0] != metav1.DryRunAll || len(eviction.DeleteOptions.DryRun) != 1 {
				t.Errorf("got options %v, eviction %v; want dry runs", applied.DryRun, eviction.DeleteOptions.DryRun)
			}
			return nil
		},
	})
	if _, err := NewRunner(recording, recording, time.Now).LookAhead(t.Context(), "a", options(nil)); err != nil || calls.Load() != 1 {
		t.Errorf("got %d calls, error %v; want one, nil", calls.Load(), err)
	}
}
