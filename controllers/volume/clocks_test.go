package volume

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/controllers/volume/plan"
)

// skews are the leads of the clock of one machine.
var skews = []time.Duration{-10 * time.Minute, -30 * time.Second, 0, 30 * time.Second, 10 * time.Minute}

// kubeletClock stamps times as the kubelet of node n, whose clock leads by its value. The API server stamps with the true time.
type kubeletClock time.Duration

func (c kubeletClock) at(t time.Time) metav1.Time { return metav1.NewTime(t.Add(time.Duration(c))) }

// event returns the event of a mount that failed from first to last.
func (c kubeletClock) event(first, last time.Time) *corev1.Event {
	e := kubeletEvent("e", "eda", namesVolume, first)
	e.CreationTimestamp, e.FirstTimestamp, e.LastTimestamp = metav1.NewTime(first), c.at(first), c.at(last)
	return e
}

// updatedAt adds the API server's time of the last update to the listed events: the fake client drops managed fields.
func updatedAt(at time.Time, funcs interceptor.Funcs) interceptor.Funcs {
	funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		if events, ok := list.(*corev1.EventList); ok {
			for i := range events.Items {
				events.Items[i].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: new(metav1.NewTime(at))}}
			}
		}
		return err
	}
	return funcs
}

// pod returns a pod that was bound to the node at one time and started at another. Zero if it waits.
func (c kubeletClock) pod(bound, started time.Time) *corev1.Pod {
	pod := failingPod("eda", "web-data")
	pod.CreationTimestamp = metav1.NewTime(bound)
	pod.Status.StartTime = new(c.at(bound.Add(time.Second)))
	if !started.IsZero() {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: c.at(started)}}
	}
	return pod
}

func TestTheClockOfAKubeletDoesNotMatter(t *testing.T) {
	written := noon.Add(-time.Hour)
	before, after, end := written.Add(-time.Minute), written.Add(10*time.Second), written.Add(50*time.Minute)
	pv := created("a", 0)
	pv.Spec.ClaimRef.Name = "web-data"
	for _, skew := range skews {
		c := kubeletClock(skew)
		recreated := c.event(after, end)
		recreated.FirstTimestamp = c.at(before)
		for name, test := range map[string]struct {
			event *corev1.Event
			pod   *corev1.Pod
			want  bool
		}{
			"a failed mount after the write":                                 {c.event(after, end), c.pod(before, time.Time{}), true},
			"a failed mount before the write that repeats":                   {c.event(before, end), c.pod(before, time.Time{}), false},
			"a failed mount before the write, whose event was created again": {recreated, c.pod(before, time.Time{}), false},
			"a pod that has started since":                                   {c.event(after, end), c.pod(before, end.Add(time.Second)), false},
			"a pod that started before the failure":                          {c.event(after, end), c.pod(before, before.Add(5*time.Second)), true},
		} {
			t.Run(skew.String()+" "+name, func(t *testing.T) {
				r, _ := newReconciler(t, updatedAt(end, refusePathsAsNames), nodeN(), test.event.DeepCopy(), test.pod.DeepCopy())
				got, err := inspectFailedMounts(context.Background(), r.Client, []plan.Watched{{Volume: pv, Since: written}})
				if err != nil || (len(got) == 1) != test.want {
					t.Errorf("got %+v, %v; want a failure: %t", got, err, test.want)
				}
			})
		}
		for name, test := range map[string]struct {
			pod   *corev1.Pod
			event *corev1.Event
			want  plan.RollbackResult
		}{
			"a waiting pod has started since the restore":  {c.pod(before, after), nil, plan.RollbackWorked},
			"a pod had started before the restore":         {c.pod(before.Add(-time.Hour), before), nil, plan.RollbackUntested},
			"a pod fails, maybe still with the options":    {c.pod(before, time.Time{}), c.event(before, written.Add(4*time.Minute)), ""},
			"a pod fails in the same way long after":       {c.pod(before, time.Time{}), c.event(before, written.Add(6*time.Minute)), plan.RollbackFailed},
			"a pod arrived after the restore, and started": {c.pod(after, after.Add(time.Minute)), nil, plan.RollbackWorked},
		} {
			t.Run(skew.String()+" "+name, func(t *testing.T) {
				objects, updated := []client.Object{nodeN(), test.pod.DeepCopy()}, time.Time{}
				if test.event != nil {
					objects, updated = append(objects, test.event.DeepCopy()), test.event.LastTimestamp.Add(-skew)
				}
				r, _ := newReconciler(t, updatedAt(updated, refusePathsAsNames), objects...)
				r.APIReader = r.Client
				checks := []plan.RollbackCheck{{Volume: pv, Since: written, Failure: (&failedMount{message: namesVolume}).kindOn(pv)}}
				got, err := (&scope{Reconciler: r}).inspectRollbacks(context.Background(), checks)
				if err != nil || got["a"] != test.want {
					t.Errorf("got result %q, %v; want %q", got["a"], err, test.want)
				}
			})
		}
	}
}
