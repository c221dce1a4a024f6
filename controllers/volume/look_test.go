package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
)

// fleetOf has so many volumes of the claims eda/pv00, eda/pv01 and so on, the oldest first.
func fleetOf(count int) []client.Object {
	var out []client.Object
	for i := range count {
		name := fmt.Sprintf("pv%02d", i)
		out = append(out, created(name, count-i, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Name = name }))
	}
	return out
}

func changed(t *testing.T, r *Reconciler) []string {
	t.Helper()
	var all corev1.PersistentVolumeList
	if err := r.Client.List(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range all.Items {
		if slices.Contains(all.Items[i].Spec.MountOptions, "nocto") {
			names = append(names, all.Items[i].Name)
		}
	}
	return names
}

// visitAll is what the work queue does once every volume is due.
func visitAll(t *testing.T, r *Reconciler, count int) {
	t.Helper()
	for i := range count {
		reconcileVolume(t, r, fmt.Sprintf("pv%02d", i))
	}
}

func kubeletEvent(name, namespace, message string, first time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Reason: failedMountReason, Message: message, Type: corev1.EventTypeWarning,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "pod"}, FirstTimestamp: metav1.NewTime(first), LastTimestamp: metav1.NewTime(first.Add(time.Hour)),
	}
}

func TestVolumesThatWaitCostOneLookAndOneLiveList(t *testing.T) {
	const count = 60
	var cached, live int
	fake, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(count), ptr.To(nfsProfile("p", []string{"nocto"})))...)
	r := &Reconciler{Recorder: fake.Recorder, Namespace: fake.Namespace, Clock: testclock.NewFakeClock(noon)}
	under := fake.Client.(client.WithWatch)
	r.Client = interceptor.NewClient(under, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		cached++
		return c.List(ctx, list, opts...)
	}})
	r.Live = interceptor.NewClient(under, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*corev1.PersistentVolumeList); ok {
			live++
		}
		return c.List(ctx, list, opts...)
	}})
	r.view.watched.Store(true)
	visitAll(t, r, count)
	if got := changed(t, r); !cmp.Equal(got, []string{"pv00"}) {
		t.Errorf("%q are written, want the canary", got)
	}
	const view, look = 4, 4 + 2 // the snapshot's lists; those and nodes, for the cache's plan and for the live one
	if cached--; cached != view+look || live != 1 {
		t.Errorf("%d lists of the cache and %d live ones for %d volumes, want %d and 1", cached, live, count, view+look)
	}
	last := reconcileVolume(t, r, fmt.Sprintf("pv%02d", count-1)).RequeueAfter
	if first := reconcileVolume(t, r, "pv01").RequeueAfter; first != lookEvery || last < 5*lookEvery {
		t.Errorf("the next in line comes back after %s and the last one after %s", first, last)
	}
}

func TestStepsGoOnBySoakAndByMount(t *testing.T) {
	const count = 20
	p := nfsProfile("p", []string{"nocto"}, maxPerStep(intstr.FromString("10%")))
	node := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(count), &p, node)...)
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	expect := func(when string, want ...string) {
		t.Helper()
		visitAll(t, r, count)
		if diff := cmp.Diff(want, changed(t, r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	expect("at first", "pv00")
	clock.Step(299 * time.Second)
	expect("while the canary soaks", "pv00")
	clock.Step(time.Second)
	expect("after its soak", "pv00", "pv01", "pv02")
	clock.Step(10 * time.Second)
	expect("while the step soaks", "pv00", "pv01", "pv02")
	mount := v1alpha1.MountStatus{MountPoint: "/m", Volume: "pv02", Protocol: "NFSv4.1", Options: []string{"rw", "vers=4.1", "hard"}}
	node.Status.Mounts = []v1alpha1.MountStatus{mount}
	if err := r.Client.Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	expect("while a node has an old mount", "pv00", "pv01", "pv02")
	node.Status.Mounts[0].Options = append(node.Status.Mounts[0].Options, "nocto")
	if err := r.Client.Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	expect("once a node has mounted one of them well", "pv00", "pv01", "pv02", "pv03", "pv04")
}

func TestAFailedMountOfTheCanaryIsTakenBackAndStopsTheRest(t *testing.T) {
	const count = 5
	p := nfsProfile("p", []string{"nocto"})
	r, recorder := newReconciler(t, interceptor.Funcs{}, append(fleetOf(count), &p)...)
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	ctx := context.Background()
	visitAll(t, r, count)
	message := `MountVolume.SetUp failed for volume "pv00" : mount failed: exit status 32` + "\nOutput: mount.nfs: an incorrect mount option was specified"
	if err := r.Client.Create(ctx, kubeletEvent("e", "eda", message, noon.Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	takeEvents(recorder)
	// Nobody looked while it soaked: the manager was away.
	clock.Step(time.Hour)
	fresh := &Reconciler{Client: r.Client, Recorder: r.Recorder, Clock: r.Clock, Namespace: r.Namespace}
	reconcileVolume(t, fresh, "pv04")
	visitAll(t, fresh, count)
	if got := changed(t, r); len(got) > 0 {
		t.Errorf("%q carry the options, want none", got)
	}
	var pv corev1.PersistentVolume
	if err := r.Client.Get(ctx, client.ObjectKey{Name: "pv00"}, &pv); err != nil {
		t.Fatal(err)
	}
	want := &refusal{Rules: map[string]string{"p": hashOfRules(p.Spec.Volumes)}, Driver: "kubernetes.io/nfs", Options: []string{"hard", "nocto"},
		Message: `MountVolume.SetUp failed for volume "pv00" : mount failed: exit status 32 Output: mount.nfs: an incorrect mount option was specified`}
	if diff := cmp.Diff(want, refusalOf(&pv)); diff != "" || hasRecord(&pv) || len(pv.Annotations) != 1 {
		t.Errorf("annotations are %q (-want +got):\n%s", pv.Annotations, diff)
	}
	if diff := cmp.Diff([]string{"hard"}, pv.Spec.MountOptions); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if told := strings.Join(takeEvents(recorder), "\n"); !strings.HasPrefix(told, "Warning VolumeFailedMount") || !strings.Contains(told, "incorrect mount option") {
		t.Errorf("told %q", told)
	}
	if result := reconcileVolume(t, fresh, "pv03"); result.RequeueAfter != stoppedRetry {
		t.Errorf("a volume that is stopped comes back after %s", result.RequeueAfter)
	}

	p.Spec.Volumes[0].MountOptions = []v1alpha1.MountOption{"nocto", "actimeo=30"}
	if err := r.Client.Update(ctx, &p); err != nil {
		t.Fatal(err)
	}
	visitAll(t, fresh, count)
	if diff := cmp.Diff([]string{"pv00"}, changed(t, r)); diff != "" {
		t.Errorf("after the rules changed (-want +got):\n%s", diff)
	}
}

func TestAStepBeginsByWhatTheServerHasAndNotTheCache(t *testing.T) {
	p := nfsProfile("p", []string{"nocto"})
	r, _ := newReconciler(t, interceptor.Funcs{}, append(fleetOf(3), &p)...)
	ctx := context.Background()
	var before corev1.PersistentVolumeList
	if err := r.Client.List(ctx, &before); err != nil {
		t.Fatal(err)
	}
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	reconcileVolume(t, r, "pv00")
	// Another manager has not heard of it yet.
	late := &Reconciler{Recorder: r.Recorder, Namespace: r.Namespace, Clock: clock, Live: r.Client}
	late.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if volumes, ok := list.(*corev1.PersistentVolumeList); ok {
				before.DeepCopyInto(volumes)
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			i := slices.IndexFunc(before.Items, func(pv corev1.PersistentVolume) bool { return pv.Name == key.Name })
			if pv, ok := o.(*corev1.PersistentVolume); ok && i >= 0 {
				before.Items[i].DeepCopyInto(pv)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	clock.Step(time.Minute)
	visitAll(t, late, 3)
	if got := changed(t, r); !cmp.Equal(got, []string{"pv00"}) {
		t.Errorf("%q are written while the canary soaks", got)
	}
}

func TestAVolumeThatMayNotBeWrittenIsNoCanary(t *testing.T) {
	protected := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "pv00" {
			return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), o.GetName(), nil)
		}
		return c.Patch(ctx, o, p, opts...)
	}}
	r, _ := newReconciler(t, protected, append(fleetOf(3), ptr.To(nfsProfile("p", []string{"nocto"})))...)
	r.Clock = testclock.NewFakeClock(noon)
	request := ctrl.Request{NamespacedName: client.ObjectKey{Name: "pv00"}}
	if _, err := r.Reconcile(context.Background(), request); !apierrors.IsForbidden(err) {
		t.Errorf("the refusal is told as %v", err)
	}
	visitAll(t, r, 3)
	if got := changed(t, r); !cmp.Equal(got, []string{"pv01"}) {
		t.Errorf("%q are written, want the next in line", got)
	}
}

func TestFailedMounts(t *testing.T) {
	since := noon.Add(-time.Minute)
	named := `MountVolume.SetUp failed for volume "a" : mount failed: exit status 32`
	unnamed := `Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data token]: timed out waiting for the condition`
	event := func(message string, after time.Duration, change ...func(*corev1.Event)) *corev1.Event {
		e := kubeletEvent("e", "eda", message, since.Add(after))
		for _, c := range change {
			c(e)
		}
		return e
	}
	pod := func(volume corev1.Volume) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "pod", UID: "u"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{volume}}}
	}
	claimed := func(name, claim string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
	}
	earlier := event(strings.Replace(named, "32", "32 /pods/0b0e3f0a-1111-2222-3333-444455556666/x", 1), -time.Hour, func(e *corev1.Event) { e.Name = "earlier" })
	tests := map[string]struct {
		objects []client.Object
		want    bool
	}{
		"one that names the volume":                         {[]client.Object{event(named, time.Second)}, true},
		"one of the second of the write":                    {[]client.Object{event(named, 0)}, true},
		"one from before the write":                         {[]client.Object{event(named, -time.Second)}, false},
		"one that was there before, for another pod":        {[]client.Object{earlier, event(strings.Replace(named, "32", "32 /pods/9b0e3f0a-1111-2222-3333-444455556666/x", 1), time.Second)}, false},
		"another failure than the one from before":          {[]client.Object{earlier, event(named, time.Second)}, true},
		"one that names another volume":                     {[]client.Object{event(strings.Replace(named, `"a"`, `"kube-api-access"`, 1), time.Second)}, false},
		"one of another namespace":                          {[]client.Object{event(named, time.Second, func(e *corev1.Event) { e.Namespace, e.InvolvedObject.Namespace = "b", "b" })}, false},
		"one that is not of a pod":                          {[]client.Object{event(named, time.Second, func(e *corev1.Event) { e.InvolvedObject.Kind = "Node" })}, false},
		"one of another reason":                             {[]client.Object{event(named, time.Second, func(e *corev1.Event) { e.Reason = "FailedAttachVolume" })}, false},
		"one in the form of the new API":                    {[]client.Object{event(named, 0, func(e *corev1.Event) { e.FirstTimestamp = metav1.Time{}; e.EventTime = metav1.NewMicroTime(since) })}, true},
		"one without a name, of a pod that uses the volume": {[]client.Object{event(unnamed, time.Second), pod(claimed("data", "web-data"))}, true},
		"one about another volume of such a pod":            {[]client.Object{event(unnamed, time.Second), pod(claimed("other", "web-data"))}, false},
		"one of a pod that does not use the volume":         {[]client.Object{event(unnamed, time.Second), pod(claimed("data", "scratch"))}, false},
		"one of a pod that is gone":                         {[]client.Object{event(unnamed, time.Second)}, false},
		"one of an earlier pod of the name":                 {[]client.Object{event(unnamed, time.Second, func(e *corev1.Event) { e.InvolvedObject.UID = "v" }), pod(claimed("data", "web-data"))}, false},
		"one of a pod with an ephemeral volume": {[]client.Object{
			event("timed out", time.Second, func(e *corev1.Event) { e.InvolvedObject.Name = "web" }),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "web"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}}},
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, interceptor.Funcs{}, test.objects...)
			pv := created("a", 0)
			pv.Spec.ClaimRef.Name = "web-data"
			got, err := failedMounts(context.Background(), r.live(), []judged{{pv: pv, mark: &stepMark{Since: since}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, failed := got["a"]; failed != test.want {
				t.Errorf("found %q, want a failure: %v", got, test.want)
			}
		})
	}
}

func TestManyNamespacesAreAskedAtOnce(t *testing.T) {
	var asked []string
	r, _ := newReconciler(t, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) error {
		asked = append(asked, (&client.ListOptions{}).ApplyOptions(opts).Namespace)
		return nil
	}})
	var volumes []judged
	for i := range maxNamespaces + 1 {
		pv := created("a", 0)
		pv.Spec.ClaimRef.Namespace = fmt.Sprintf("n%d", i)
		volumes = append(volumes, judged{pv: pv, mark: &stepMark{}})
	}
	for _, some := range [][]judged{volumes[:2], volumes, nil} {
		if _, err := failedMounts(context.Background(), r.live(), some); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"n0", "n1", ""}, asked); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}
