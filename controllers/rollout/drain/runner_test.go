package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/test/check"
)

// slow responds to an eviction after a delay. If the delay is longer than the timeout, it does not respond.
type slow struct {
	takes time.Duration

	mutex               sync.Mutex
	calls, atOnce, most int
}

func (s *slow) Evict(ctx context.Context, _ *corev1.Pod) error {
	s.mutex.Lock()
	s.calls++
	s.atOnce++
	s.most = max(s.most, s.atOnce)
	s.mutex.Unlock()
	defer func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.atOnce--
	}()
	select {
	case <-ctx.Done():
		return fmt.Errorf("client gives up: %w", ctx.Err())
	case <-time.After(s.takes):
		return nil
	}
}

func manyPods(count int) []client.Object {
	var out []client.Object
	for i := range count {
		out = append(out, pod(fmt.Sprintf("web-%02d", i)))
	}
	return out
}

// start starts a runner in the synctest bubble of a test, as a manager does.
func start(t *testing.T, reader client.Reader, evictor Evictor) (r *Runner, stop context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r = &Runner{Drainer: Drainer{Reader: reader, Evictor: evictor, Now: time.Now}}
	go func() { _ = r.Start(ctx) }()
	synctest.Wait()
	return r, cancel
}

// mustDrain drains node a and returns the duration of the call.
func mustDrain(t *testing.T, r *Runner) (Result, time.Duration) {
	t.Helper()
	began := time.Now()
	result, err := r.Drain(t.Context(), "a", options(nil), Start{})
	check.NoError(t, err)
	return result, time.Since(began)
}

func TestDrainWaitsForNoEvictionAndEvictsFewAtOnce(t *testing.T) {
	reader := newReader(t, manyPods(70)...)
	synctest.Test(t, func(t *testing.T) {
		evictor := &slow{takes: 10 * time.Second}
		r, stop := start(t, reader, evictor)
		defer stop()
		began := time.Now()
		for range 3 {
			if result, took := mustDrain(t, r); took != 0 || len(result.Remaining) != 70 {
				t.Errorf("got a response after %s, %s; want 70 remaining pods at once", took, result)
			}
			if _, due, err := r.Inspect(t.Context(), "a", options(nil)); err != nil || due {
				t.Errorf("got due %t, error %v while a run is in progress; want false, nil", due, err)
			}
			time.Sleep(time.Second) // on the clock of the bubble
		}
		r.Wait()
		if took, want := time.Since(began), 70/maxEvictions*evictor.takes; took != want {
			t.Errorf("70 evictions of %s: got %s, want %s", evictor.takes, took, want)
		}
		if evictor.calls != 70 || evictor.most != maxEvictions || r.Evicted("a") != 70 {
			t.Errorf("got %d calls, %d at once, %d evicted; want 70, %d at once", evictor.calls, evictor.most, r.Evicted("a"), maxEvictions)
		}
	})
}

func TestATimeoutOfTheAPIServerIsNamedAndEachRunEnds(t *testing.T) {
	reader := newReader(t, manyPods(70)...)
	synctest.Test(t, func(t *testing.T) {
		evictor := &slow{takes: time.Hour}
		r, stop := start(t, reader, evictor)
		defer stop()
		began := time.Now()
		mustDrain(t, r)
		time.Sleep(evictionTimeout + time.Second)
		result, took := mustDrain(t, r)
		if want := "Pod eda/web-00 cannot be evicted: the API server did not respond within 35s"; took != 0 || !strings.HasPrefix(result.String(), want) {
			t.Errorf("got a response after %s: %s; want %s at once", took, result, want)
		}
		r.Wait()
		check.Equal(t, "duration of the run", runTimeout, time.Since(began))
	})
}

func TestNoPodIsEvictedAfterTheDrainStopsOrLeadershipIsLost(t *testing.T) {
	for name, end := range map[string]func(r *Runner, stop context.CancelFunc){
		"another node alone is drained": func(r *Runner, _ context.CancelFunc) { r.Keep(sets.New("b")) },
		"the manager no longer leads":   func(_ *Runner, stop context.CancelFunc) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			reader := newReader(t, manyPods(70)...)
			synctest.Test(t, func(t *testing.T) {
				evictor := &slow{takes: 10 * time.Second}
				r, stop := start(t, reader, evictor)
				defer stop()
				mustDrain(t, r)
				time.Sleep(25 * time.Second)
				r.Keep(sets.New("a"))
				end(r, stop)
				r.Wait()
				if evictor.calls != 3*maxEvictions || r.Evicted("a") != 0 && name == "another node alone is drained" {
					t.Errorf("got %d evictions, %d counted; want %d, none counted", evictor.calls, r.Evicted("a"), 3*maxEvictions)
				}
			})
		})
	}
}

func TestNoPodIsEvictedBeforeTheManagerLeads(t *testing.T) {
	evictor := &evictions{}
	r := &Runner{Drainer: Drainer{Reader: newReader(t, pod("web")), Evictor: evictor, Now: time.Now}}
	if _, err := r.Drain(t.Context(), "a", options(nil), Start{}); err != nil {
		t.Fatal(err)
	}
	r.Wait()
	if len(evictor.requested) > 0 {
		t.Errorf("got evictions of %v, want none", evictor.requested)
	}
}

func TestEvictionsContinueThePreviousCount(t *testing.T) {
	r := newRunner(t, newReader(t, pod("web"), pod("db")), &evictions{reject: rejections{"db": errors.New("no")}})
	if _, err := r.Drain(t.Context(), "a", options(nil), Start{Evicted: 7}); err != nil {
		t.Fatal(err)
	}
	r.Wait()
	check.Equal(t, "evictions", 8, r.Evicted("a"))
	if r.Keep(sets.New[string]()); r.Evicted("a") != 0 {
		t.Error("got a count of a drain that is over, want none")
	}
}

// A wait for a Job can leave too little time for the grace periods of the others.
func TestNoPodIsEvictedTooLate(t *testing.T) {
	slow := func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60) }
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		from Start
		want bool
	}{
		"no limit":                       {pod("web", slow), Start{}, false},
		"enough time":                    {pod("web", slow), Start{TimeLeft: time.Minute}, false},
		"too little time":                {pod("web", slow), Start{TimeLeft: 59 * time.Second}, true},
		"too little time, never started": {pod("web", slow, pending), Start{TimeLeft: time.Second}, false},
	} {
		evictor := &evictions{}
		r := newRunner(t, newReader(t, c.pod), evictor)
		got, err := r.Drain(t.Context(), "a", options(nil), c.from)
		r.Wait()
		if err != nil || got.TooLate != c.want || len(evictor.requested) > 0 == c.want || strings.Contains(got.String(), "No pod is evicted") != c.want {
			t.Errorf("%s: got %s, error %v, evictions %v; want them too late: %t", name, got, err, evictor.requested, c.want)
		}
	}
}

// TestAnUncountedBudgetCostsNoRequest uses a server that asks clients to retry until it has counted the pods of a budget.
func TestAnUncountedBudgetCostsNoRequest(t *testing.T) {
	var pods []client.Object
	for i := range maxEvictions + 5 {
		pods = append(pods, pod(fmt.Sprintf("web-%02d", i), func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }))
	}
	for name, created := range map[string]metav1.Time{"new": metav1.Now(), "old": {}} {
		evictor := &rejecting{err: errTryLater}
		got := drainOnce(t, newRunner(t, newReader(t, append(pods, budget("web-pdb", "web", uncounted(created)))...), evictor), options(nil))
		if len(got.Blocked) != len(pods) || !slices.Equal(got.Blocked[0].Budgets, []string{"eda/web-pdb"}) || got.Blocked[0].IsNew() != (name == "new") {
			t.Errorf("%s: got %s, want all pods blocked by eda/web-pdb", name, got)
		}
		if evictor.calls > 0 {
			t.Errorf("%s: got %d requests for an uncounted budget, want none", name, evictor.calls)
		}
	}
}

type rejecting struct {
	mutex sync.Mutex
	calls int
	err   error
}

func (r *rejecting) Evict(context.Context, *corev1.Pod) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.calls++
	return r.err
}

func TestErrorsAreNamed(t *testing.T) {
	broken := interceptor.NewClient(newReader(t, pod("web")).(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, pods := list.(*corev1.PodList); pods {
				return c.List(ctx, list, opts...)
			}
			return errors.New("etcd is away")
		},
	})
	got := drainOnce(t, newRunner(t, broken, &rejecting{err: errTryLater}), options(nil))
	want := "Pod eda/web cannot be evicted: come back later; list PodDisruptionBudgets in eda: etcd is away"
	check.Equal(t, "result", want, got.String())
}

func TestNoPodIsEvictedWhileAnotherRunsToCompletion(t *testing.T) {
	evictor := &evictions{}
	r := newRunner(t, newReader(t, pod("batch", ownedBy("batch/v1", "Job")), pod("web")), evictor)
	got := drainOnce(t, r, options(nil))
	if want := "Waiting for pod eda/batch to finish. Waiting for pod eda/web to terminate"; got.String() != want || len(evictor.requested) > 0 {
		t.Errorf("got %q, evictions of %v; want %q, none", got, evictor.requested, want)
	}
	if _, due, err := r.Inspect(t.Context(), "a", options(nil)); err != nil || due {
		t.Errorf("got due %t, error %v; want false, nil", due, err)
	}
}
