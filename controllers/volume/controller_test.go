package volume

import (
	"context"
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
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/storageclient/operator/api/v1alpha1"
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
		WithIndex(&corev1.PersistentVolume{}, claimField, claimKeys).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).Build()
	recorder := events.NewFakeRecorder(8)
	return &Reconciler{Client: c, Recorder: recorder, Namespace: v1alpha1.ManagerNamespace}, recorder
}

func reconcileVolume(t *testing.T, r *Reconciler, name string) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
	if err != nil {
		t.Fatalf("reconcile %s: %v", name, err)
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

func TestReconcileWritesOnceAndTellsOnce(t *testing.T) {
	var patches int
	counting := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		patches++
		return c.Patch(ctx, o, p, opts...)
	}}
	profile := fast.DeepCopy()
	pv := nfsVolume([]string{"hard"})
	r, recorder := newReconciler(t, counting, pv, profile)
	for range 3 {
		reconcileVolume(t, r, pv.Name)
	}
	if patches != 1 {
		t.Errorf("%d patches, want 1", patches)
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
	mark := markOf(&got)
	delete(got.Annotations, v1alpha1.MountOptionsStepAnnotation)
	if mark == nil || time.Since(mark.Since) > time.Minute || mark.Rules["fast"] == "" {
		t.Errorf("the mark of the step is %+v, want when it began and the profile's rules", mark)
	}
	if diff := cmp.Diff(wantAnnotations, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestReconcileTellsAStandingStateOnce(t *testing.T) {
	pv := nfsVolume([]string{"soft"}, carrying(nil, []string{"nocto"}, "fast"))
	r, recorder := newReconciler(t, interceptor.Funcs{}, pv, fast.DeepCopy())
	for range 3 {
		reconcileVolume(t, r, pv.Name)
	}
	if all := takeEvents(recorder); len(all) != 1 {
		t.Errorf("events are %q, want one", all)
	}
}

func TestReconcileComesBackWhenTheVolumeChangedUnderIt(t *testing.T) {
	conflicting := interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
		return apierrors.NewConflict(corev1.Resource("persistentvolumes"), o.GetName(), nil)
	}}
	pv := nfsVolume(nil)
	r, recorder := newReconciler(t, conflicting, pv, fast.DeepCopy())
	if result := reconcileVolume(t, r, pv.Name); result.RequeueAfter != conflictRetry {
		t.Errorf("requeue after %s, want %s", result.RequeueAfter, conflictRetry)
	}
	if all := takeEvents(recorder); len(all) != 0 {
		t.Errorf("events are %q, want none before the write", all)
	}
}

func TestReconcileReadsClassClaimAndPause(t *testing.T) {
	profile := nfsProfile("fast", []string{"nconnect=4"}, onConflict(v1alpha1.ConflictUseProfileOverClass),
		selecting(v1alpha1.VolumeSelector{Protocols: []v1alpha1.VolumeProtocol{"NFS"}, ClaimNamespaces: []string{"eda"}}))
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}, MountOptions: []string{"nconnect=2"}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "eda", Name: "data", UID: "claim-uid"}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ManagerNamespace, Annotations: map[string]string{v1alpha1.PausedAnnotation: "true"}}}
	pv := nfsVolume([]string{"nconnect=2"})
	r, _ := newReconciler(t, interceptor.Funcs{}, pv, &profile, class, claim, namespace)
	options := func() []string {
		reconcileVolume(t, r, pv.Name)
		var got corev1.PersistentVolume
		if err := r.Client.Get(context.Background(), client.ObjectKeyFromObject(pv), &got); err != nil {
			t.Fatal(err)
		}
		return got.Spec.MountOptions
	}
	if diff := cmp.Diff([]string{"nconnect=2"}, options()); diff != "" {
		t.Errorf("options while everything is paused (-want +got):\n%s", diff)
	}
	namespace.Annotations = nil
	if err := r.Client.Update(context.Background(), namespace); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"nconnect=4"}, options()); diff != "" {
		t.Errorf("options afterwards (-want +got):\n%s", diff)
	}
	snapshot, err := ReadSnapshot(context.Background(), r.Client, r.Allow, r.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	if s := Summarize("fast", snapshot); s.Matched != 1 || s.UpToDate != 1 {
		t.Errorf("summary is %+v, want the volume matched and up to date", s)
	}
}

func TestWatchesReachTheVolumesConcerned(t *testing.T) {
	byClass := nfsProfile("byclass", []string{"nocto"}, selecting(v1alpha1.VolumeSelector{StorageClassNames: []string{"nfs"}}))
	byClaim := nfsProfile("byclaim", []string{"nocto"}, selecting(v1alpha1.VolumeSelector{ClaimNamespaces: []string{"eda"}}))
	otherClass := func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "other" }
	unbound := func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil }
	r, _ := newReconciler(t, interceptor.Funcs{},
		nfsVolume(nil, named("a")), nfsVolume(nil, named("b"), otherClass, unbound), nfsVolume(nil, named("c"), otherClass, unbound, carrying(nil, nil, "byclass")))
	ctx := context.Background()
	claim := claimMetadata()
	claim.Namespace, claim.Name = "eda", "data"
	tests := map[string]struct {
		got  []ctrl.Request
		want []string
	}{
		"a profile reaches those that it selects and those that carry it": {r.volumesOfProfile(ctx, &byClass), []string{"a", "c"}},
		"a rule by claims alone reaches all":                              {r.volumesOfProfile(ctx, &byClaim), []string{"a", "b", "c"}},
		"a claim reaches its volume":                                      {r.volumesOfClaim(ctx, claim), []string{"a"}},
		"a class reaches its volumes":                                     {r.volumesOfClass(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}}), []string{"b", "c"}},
		"the manager's namespace reaches all":                             {r.allVolumes(ctx, nil), []string{"a", "b", "c"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, request := range test.got {
				got = append(got, request.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeclarationChangedLeavesOutStatus(t *testing.T) {
	tests := map[string]struct {
		change profileOption
		want   bool
	}{
		"status":     {func(p *v1alpha1.StorageClientProfile) { p.Status.ObservedGeneration = 1 }, false},
		"generation": {func(p *v1alpha1.StorageClientProfile) { p.Generation++ }, true},
		"annotation": {func(p *v1alpha1.StorageClientProfile) {
			p.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
		}, true},
		"finalizer": {func(p *v1alpha1.StorageClientProfile) { p.Finalizers = nil }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			updated := fast.DeepCopy()
			test.change(updated)
			if got := declarationChanged(event.UpdateEvent{ObjectOld: &fast, ObjectNew: updated}); got != test.want {
				t.Errorf("declarationChanged is %v, want %v", got, test.want)
			}
		})
	}
}
