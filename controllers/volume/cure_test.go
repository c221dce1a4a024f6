package volume

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/optionset"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/tuning/text"
)

// Only pods that use a restored volume show how it mounts with its original options.
func TestRollbackResults(t *testing.T) {
	since := noon.Add(-time.Hour)
	const message = `MountVolume.SetUp failed for volume "a" : mount failed: exit status 32 Output: mount.nfs: access denied by server while mounting filer:/data`
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod {
		p := failingPod("eda", "data")
		for _, c := range change {
			c(p)
		}
		return p
	}
	started := func(at time.Duration, restarts int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since.Add(at))}}
			p.Status.ContainerStatuses[0].RestartCount = restarts
		}
	}
	firstStarted := func(at time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(since.Add(at))}
		}
	}
	arrived := func(at time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp, p.Status.StartTime = metav1.NewTime(since.Add(at)), nil }
	}
	failing := func(message string, last time.Duration) *corev1.Event {
		e := kubeletEvent("e", "eda", message, since.Add(-time.Minute))
		e.LastTimestamp = metav1.NewTime(since.Add(last))
		return e
	}
	failed := &failedMount{message: message}
	for name, test := range map[string]struct {
		objects []client.Object
		want    optionset.Kind
		// names is true if the failure names the options.
		names bool
	}{
		"a pod that arrived since has started":       {[]client.Object{pod(arrived(30*time.Second), started(time.Minute, 0))}, optionset.OwnMounted, false},
		"it has started again":                       {[]client.Object{pod(arrived(30*time.Second), started(time.Minute, 1))}, optionset.OwnMounted, false},
		"a pod that waited before has started since": {[]client.Object{pod(started(time.Minute, 0))}, optionset.OwnUnknown, false},
		"it has completed since": {[]client.Object{pod(started(time.Minute, 0), func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
		})}, optionset.OwnUnknown, false},
		"it has started since, and is being deleted": {[]client.Object{pod(started(time.Minute, 0), func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon}, []string{"test/keep"}
		})}, optionset.OwnUnknown, false},
		"its container has restarted since":              {[]client.Object{pod(started(2*time.Minute, 1), firstStarted(time.Minute))}, optionset.OwnUnknown, false},
		"the same, for a failure that names the options": {[]client.Object{pod(started(time.Minute, 0))}, optionset.NoPodWaits, true},
		"a pod has started before":                       {[]client.Object{pod(started(-time.Second, 0)), failing(message, -2*time.Second)}, optionset.NoPodWaits, false},
		"it fails after a boot of its node":              {[]client.Object{pod(started(-time.Minute, 0)), failing(message, 4*time.Minute)}, "", false},
		"it still fails long after":                      {[]client.Object{pod(started(-time.Minute, 0)), failing(message, 10*time.Minute)}, optionset.OwnFailed, false},
		"a container has restarted on the earlier mount": {[]client.Object{pod(started(time.Minute, 1), firstStarted(-time.Minute))}, optionset.NoPodWaits, false},
		"the pod waits":                                  {[]client.Object{pod()}, "", false},
		"it fails, maybe still with the earlier options": {[]client.Object{pod(), failing(message, 4*time.Minute)}, "", false},
		"it fails in the same way long after":            {[]client.Object{pod(), failing(message, 6*time.Minute)}, optionset.OwnFailed, false},
		"it fails in another way":                        {[]client.Object{pod(), failing(message+" (again)", 6*time.Minute)}, "", false},
		"another volume's pod fails":                     {[]client.Object{pod(func(p *corev1.Pod) { p.UID = "another" }), failing(message, 6*time.Minute)}, "", false},
		"no pod is left":                                 {nil, optionset.NoPodWaits, false},
		"the pod is being deleted": {[]client.Object{pod(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: noon}, []string{"test/keep"}
		})}, optionset.NoPodWaits, false},
		"a pod of another claim": {[]client.Object{pod(started(time.Minute, 0), func(p *corev1.Pod) {
			p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other"
		})}, optionset.NoPodWaits, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, refusePathsAsNames, append(test.objects, nodeN())...)
			pv := created("a", 0)
			pv.Spec.ClaimRef.Name = "data"
			r.APIReader = r.Client
			checks := []plan.RollbackCheck{{Volume: pv, Blame: optionset.Blame{RevertedAt: since, Failure: failed.kindOn(pv), Unclear: !test.names}}}
			got, err := (&scope{Reconciler: r}).inspectRollbacks(context.Background(), checks)
			if err != nil {
				t.Fatal(err)
			}
			if got["a"] != test.want {
				t.Errorf("got result %q, want %q", got["a"], test.want)
			}
		})
	}
}

// A manager may die after a revert. If the original options are the same as the written ones, the next manager plans it again.
func TestARevertThatIsCompleteWritesNothing(t *testing.T) {
	failed := &optionset.Failed{Blame: optionset.Blame{Volume: "a", Options: []string{"nocto"}, Failure: "f", Text: "exit status 1", Since: noon}}
	pv := created("a", 0)
	pv.Annotations = map[string]string{v1alpha1.FailedMountOptionsAnnotation: text.JSON(failed)}
	target := plan.OnVolume{Note: plan.Note{Volume: pv.Name, Object: pv}}
	later := *failed
	later.Since = noon.Add(time.Hour)
	for name, test := range map[string]struct {
		step   plan.RestoreOptions
		writes bool
	}{
		"the same failure": {plan.RestoreOptions{OnVolume: target, Options: pv.Spec.MountOptions, FailedMount: failed}, false},
		"another failure":  {plan.RestoreOptions{OnVolume: target, Options: pv.Spec.MountOptions, FailedMount: &later}, true},
		"other options":    {plan.RestoreOptions{OnVolume: target, Options: []string{"soft"}, FailedMount: failed}, true},
		"no failure":       {plan.RestoreOptions{OnVolume: target, Options: pv.Spec.MountOptions}, true},
	} {
		if data := patchFor(test.step); (data != nil) != test.writes {
			t.Errorf("%s: got patch %s, want one: %t", name, data, test.writes)
		}
	}
}
