package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume/judge"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/test/builders"
)

func newReconciler(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) (*Reconciler, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range objects {
		o.SetResourceVersion("")
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }).Build()
	recorder := events.NewFakeRecorder(256)
	return &Reconciler{Client: c, Recorder: recorder}, recorder
}

// makeAPass runs a pass without the minimum interval after the last one.
func makeAPass(t *testing.T, r *Reconciler) ctrl.Result {
	t.Helper()
	r.pace = store.Pace{}
	result, err := r.Reconcile(context.Background(), reconcile.Request{})
	if err != nil {
		t.Fatalf("make a pass: %v", err)
	}
	return result
}

func takeEvents(recorder *events.FakeRecorder) []string {
	var all []string
	for {
		select {
		case e := <-recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func TestReconcileWritesAndReportsOnce(t *testing.T) {
	var patches atomic.Int32
	counting := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		patches.Add(1)
		return c.Patch(ctx, o, p, opts...)
	}}
	profile := fastProfile()
	pv := builders.NFSVolume([]string{"hard"})
	r, recorder := newReconciler(t, counting, pv, profile)
	r.Clock = testclock.NewFakeClock(noon)
	for range 3 {
		makeAPass(t, r)
	}
	if patches.Load() != 1 {
		t.Errorf("got %d patches, want 1", patches.Load())
	}
	want := []string{`Normal VolumeOptionsMerged mountOptions become ["hard","nconnect=4","nocto"] (were ["hard"]) by fast`}
	if diff := cmp.Diff(want, takeEvents(recorder)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var got corev1.PersistentVolume
	if err := r.Client.Get(context.Background(), client.ObjectKeyFromObject(pv), &got); err != nil {
		t.Fatal(err)
	}
	wantAnnotations := map[string]string{
		v1alpha1.OriginalMountOptionsAnnotation: `["hard"]`,
		v1alpha1.AppliedMountOptionsAnnotation:  `["hard","nconnect=4","nocto"]`,
		v1alpha1.ProfilesAnnotation:             "fast",
	}
	mark := judge.MarkOf(&got)
	delete(got.Annotations, v1alpha1.MountOptionsStepAnnotation)
	if mark == nil || !mark.Since.Equal(noon) || mark.Set == "" || !mark.IsBatchOf("fast") {
		t.Errorf("got mark %+v, want the start of the step and the option set", mark)
	}
	if diff := cmp.Diff(wantAnnotations, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestReconcileReportsAStateOnce(t *testing.T) {
	pv := builders.NFSVolume([]string{"soft"}, builders.Carrying(nil, []string{"nocto"}, "fast"))
	r, recorder := newReconciler(t, interceptor.Funcs{}, pv, fastProfile())
	for range 3 {
		makeAPass(t, r)
	}
	if all := takeEvents(recorder); len(all) != 1 {
		t.Errorf("got events %q, want one", all)
	}
}

func TestReconcileReportsKeptValuesOnce(t *testing.T) {
	pv := builders.NFSVolume([]string{"nconnect=2"})
	profile := builders.NFSProfile("fast", []string{"nconnect=8"})
	profile.Finalizers = []string{v1alpha1.Finalizer}
	r, recorder := newReconciler(t, interceptor.Funcs{}, pv, &profile)
	for range 3 {
		makeAPass(t, r)
	}
	want := []string{"Normal VolumeKeepsOwnValue nconnect stays 2 (profile wants 8; onConflict: KeepVolume)"}
	if diff := cmp.Diff(want, takeEvents(recorder)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestReconcileRetriesAfterAConflict(t *testing.T) {
	conflicting := interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
		return apierrors.NewConflict(corev1.Resource("persistentvolumes"), o.GetName(), nil)
	}}
	pv := builders.NFSVolume(nil)
	r, recorder := newReconciler(t, conflicting, pv, fastProfile())
	if result := makeAPass(t, r); result.RequeueAfter != passInterval {
		t.Errorf("got the next pass after %s, want %s", result.RequeueAfter, passInterval)
	}
	if all := takeEvents(recorder); len(all) != 0 {
		t.Errorf("got events %q before the write, want none", all)
	}
}

func TestReconcileReadsClassClaimAndPause(t *testing.T) {
	profile := builders.NFSProfile("fast", []string{"nconnect=4"}, builders.OnConflict(v1alpha1.ConflictUseProfileOverClass),
		builders.Selecting(v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{"NFS"}, ClaimNamespaces: []string{"eda"}}))
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}, MountOptions: []string{"nconnect=2"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "data", UID: "claim-uid"}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ManagerNamespace, Annotations: map[string]string{v1alpha1.PausedAnnotation: "true"}}}
	pv := builders.NFSVolume([]string{"nconnect=2"})
	r, _ := newReconciler(t, interceptor.Funcs{}, pv, &profile, class, claim, namespace)
	options := func() []string {
		makeAPass(t, r)
		var got corev1.PersistentVolume
		if err := r.Client.Get(context.Background(), client.ObjectKeyFromObject(pv), &got); err != nil {
			t.Fatal(err)
		}
		return got.Spec.MountOptions
	}
	if diff := cmp.Diff([]string{"nconnect=2"}, options()); diff != "" {
		t.Errorf("options while all profiles are paused (-want +got):\n%s", diff)
	}
	namespace.Annotations = nil
	if err := r.Client.Update(context.Background(), namespace); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"nconnect=4"}, options()); diff != "" {
		t.Errorf("options after the pause (-want +got):\n%s", diff)
	}
	snapshot, err := (&snapshot.Reader{Reader: r.Client}).Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if s := plan.Summarize("fast", snapshot); s.Matched != 1 || s.UpToDate != 1 {
		t.Errorf("got summary %+v, want the volume matched and up to date", s)
	}
}

func TestPassesAreSpaced(t *testing.T) {
	r, _ := newReconciler(t, interceptor.Funcs{}, builders.NFSVolume(nil), fastProfile())
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	reads := 0
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		reads++
		return c.List(ctx, list, opts...)
	}})
	for _, test := range []struct {
		after time.Duration
		wait  time.Duration
		reads bool
	}{
		{0, 0, true}, {0, passInterval, false}, {passInterval / 4, passInterval * 3 / 4, false}, {passInterval * 3 / 4, 0, true}, {-time.Hour, 0, true},
	} {
		clock.SetTime(clock.Now().Add(test.after))
		before := reads
		result, err := r.Reconcile(context.Background(), reconcile.Request{})
		if err != nil {
			t.Fatal(err)
		}
		if (reads > before) != test.reads || !test.reads && result.RequeueAfter != test.wait {
			t.Errorf("after %s: got a pass: %t, the next after %s; want a pass: %t, the next after %s", test.after, reads > before,
				result.RequeueAfter, test.reads, test.wait)
		}
	}
}

// A pass has a maximum number of steps, so that a restore does not wait for thousands of writes.
func TestAPassIsBoundedAndRestoresFirst(t *testing.T) {
	objects := []client.Object{fastProfile()}
	for i := range maxSteps {
		objects = append(objects, builders.NFSVolume([]string{"nocto"}, builders.Named(fmt.Sprintf("old-%03d", i)), builders.Carrying(nil, []string{"nocto"}, "gone"), func(pv *corev1.PersistentVolume) {
			pv.Spec.NFS, pv.Spec.Local = nil, &corev1.LocalVolumeSource{}
		}))
	}
	r, _ := newReconciler(t, interceptor.Funcs{}, append(objects, builders.NFSVolume(nil, builders.Named("a-new-one")))...)
	recorder := events.NewFakeRecorder(2 * maxSteps)
	r.Recorder = recorder
	if result := makeAPass(t, r); result.RequeueAfter != passInterval {
		t.Errorf("got the next pass after %s, want %s", result.RequeueAfter, passInterval)
	}
	if all := takeEvents(recorder); len(all) != maxSteps || slices.ContainsFunc(all, func(e string) bool { return !strings.Contains(e, v1alpha1.VolumeReasonRestored) }) {
		t.Errorf("got %d steps in a pass, want %d restores", len(all), maxSteps)
	}
	makeAPass(t, r)
	if all := takeEvents(recorder); len(all) != 1 || !strings.Contains(all[0], v1alpha1.VolumeReasonOptionsMerged) {
		t.Errorf("the next pass: got events %q, want one with reason %s", all, v1alpha1.VolumeReasonOptionsMerged)
	}
}

// A volume that rejects writes does not block other volumes. Its next write waits for the retry interval.
func TestAFailedRestoreDoesNotBlockOtherVolumes(t *testing.T) {
	var tried atomic.Int32
	protected := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if o.GetName() == "a" {
			tried.Add(1)
			return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), o.GetName(), nil)
		}
		return c.Patch(ctx, o, p, opts...)
	}}
	managed := builders.Carrying([]string{"hard"}, []string{"nocto"}, "gone")
	r, recorder := newReconciler(t, protected, builders.NFSVolume([]string{"nocto"}, builders.Named("a"), managed),
		builders.NFSVolume([]string{"nocto"}, builders.Named("b"), managed))
	clock := testclock.NewFakeClock(noon)
	r.Clock = clock
	if _, err := r.Reconcile(context.Background(), reconcile.Request{}); !apierrors.IsForbidden(err) {
		t.Errorf("got error %v, want Forbidden", err)
	}
	if all := takeEvents(recorder); len(all) != 1 || !strings.Contains(all[0], v1alpha1.VolumeReasonRestored) {
		t.Errorf("got events %q, want the restore of b", all)
	}
	clock.Step(time.Second)
	// Its options are still managed, and watched.
	if result := makeAPass(t, r); tried.Load() != 1 || result.RequeueAfter != time.Minute {
		t.Errorf("got %d writes of a, next pass after %s; want 1 write, 1m", tried.Load(), result.RequeueAfter)
	}
	clock.Step(rejectionRetryInterval)
	if _, err := r.Reconcile(context.Background(), reconcile.Request{}); !apierrors.IsForbidden(err) || tried.Load() != 2 {
		t.Errorf("after the retry interval: got %d writes of a, error %v; want 2 writes, Forbidden", tried.Load(), err)
	}
}

func fastProfile() *v1alpha1.StorageClientProfile {
	return ptr.To(builders.NFSProfile("fast", []string{"nconnect=4", "nocto"}))
}
