package volume

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume/internal/builders"
	"github.com/storageclient/operator/controllers/volume/ledger"
)

func entryOf(t *testing.T, c client.Client, uid types.UID) *ledger.Entry {
	t.Helper()
	var pages corev1.ConfigMapList
	if err := c.List(context.Background(), &pages, client.InNamespace(v1alpha1.ManagerNamespace)); err != nil {
		t.Fatal(err)
	}
	return ledger.Read(pages.Items).EntryOf(uid)
}

var (
	hardAndFast = ledger.Lists{Original: []string{"hard"}, Applied: []string{"hard", "nconnect=4", "nocto"}}
	pageZero    = client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.VolumesConfigMapPrefix + "0"}
)

// Whoever dies between two writes leaves a ledger that knows the list.
func TestTheLedgerRecordsOptionsBeforeAndAfterTheWrite(t *testing.T) {
	var within *ledger.Entry
	var c client.Client
	funcs := interceptor.Funcs{Patch: func(ctx context.Context, under client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		within = entryOf(t, c, "uid-of-pv1")
		return under.Patch(ctx, o, patch, opts...)
	}}
	r, _ := newReconciler(t, funcs, builders.NFSVolume([]string{"hard"}), fastProfile())
	c = r.Client
	makeAPass(t, r)
	if within == nil || !within.Pending || len(within.Written) != 1 || !cmp.Equal(within.Written[0], hardAndFast) {
		t.Errorf("before the write the ledger says %+v", within)
	}
	if e := entryOf(t, c, "uid-of-pv1"); !e.IsSettled(hardAndFast, []string{"fast"}) {
		t.Errorf("after it, it says %+v", e)
	}
	if err := c.Delete(context.Background(), fastProfile()); err != nil {
		t.Fatal(err)
	}
	makeAPass(t, r)
	if e := entryOf(t, c, "uid-of-pv1"); !within.Ending || e != nil {
		t.Errorf("before the volume is restored the ledger says %+v, after it %+v", within, e)
	}
}

// One write for each page before the volumes, and one after them.
func TestManyVolumesAreOneWriteOfAPage(t *testing.T) {
	const volumes = 60
	var writes atomic.Int32
	count := func(o client.Object) {
		if _, isPage := o.(*corev1.ConfigMap); isPage {
			writes.Add(1)
		}
	}
	funcs := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			count(o)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			count(o)
			return c.Update(ctx, o, opts...)
		},
	}
	var objects []client.Object
	for i := range volumes {
		objects = append(objects, builders.NFSVolume(hardAndFast.Applied, builders.Named(fmt.Sprintf("pv%d", i)), builders.Carrying(hardAndFast.Original, hardAndFast.Applied, "gone")))
	}
	r, _ := newReconciler(t, funcs, objects...)
	if makeAPass(t, r); writes.Load() != 2 {
		t.Errorf("%d volumes were restored with %d writes of the ledger, want 2", volumes, writes.Load())
	}
	r, _ = newReconciler(t, funcs, objects[0], fastProfile())
	makeAPass(t, r)
	writes.Store(0)
	if makeAPass(t, r); writes.Load() != 0 {
		t.Errorf("%d writes of the ledger while nothing changes", writes.Load())
	}
}

// Options are not written if the ledger cannot record them. Managed ones are restored all the same.
func TestVolumesWithoutALedgerEntryAreNotWritten(t *testing.T) {
	refuses := interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("configmaps"), o.GetName(), nil)
		},
	}
	carrying := builders.NFSVolume(hardAndFast.Applied, builders.Named("old"), builders.Carrying(hardAndFast.Original, hardAndFast.Applied, "gone"), builders.Labelled("tier", "none"))
	profile := byLabel("fast", "nocto")
	r, _ := newReconciler(t, refuses, builders.NFSVolume([]string{"hard"}, builders.Named("new"), builders.Labelled("tier", "fast")), carrying, &profile)
	_, err := r.Reconcile(context.Background(), reconcile.Request{})
	if err == nil || !strings.Contains(err.Error(), "storage-client-volumes-0") {
		t.Errorf("the pass says %v, want the page named", err)
	}
	lists := map[string]string{}
	for _, name := range []string{"new", "old"} {
		var pv corev1.PersistentVolume
		if err := r.Client.Get(context.Background(), client.ObjectKey{Name: name}, &pv); err != nil {
			t.Fatal(err)
		}
		lists[name] = strings.Join(pv.Spec.MountOptions, ",")
	}
	if diff := cmp.Diff(map[string]string{"new": "hard", "old": "hard"}, lists); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.rejected["new"].IsZero() {
		t.Error("the volume is not left alone for a while, and keeps others waiting as the canary")
	}
}

// Writes of the webhook are recorded at once. Deleted volumes are removed, at most once a minute, after a live read.
func TestTheLedgerFollowsTheVolumes(t *testing.T) {
	ctx := context.Background()
	created := builders.NFSVolume(hardAndFast.Applied, builders.Carrying(hardAndFast.Original, hardAndFast.Applied, "fast"))
	r, _ := newReconciler(t, interceptor.Funcs{}, created, fastProfile())
	makeAPass(t, r)
	if e := entryOf(t, r.Client, created.UID); !e.IsSettled(hardAndFast, []string{"fast"}) {
		t.Errorf("of a volume that was created with our list the ledger says %+v", e)
	}
	if err := r.Client.Delete(ctx, created); err != nil {
		t.Fatal(err)
	}
	if makeAPass(t, r); entryOf(t, r.Client, created.UID) == nil {
		t.Error("volumes and ledger are compared twice within a minute")
	}
	r.compared = r.compared.Add(-time.Minute)
	if makeAPass(t, r); entryOf(t, r.Client, created.UID) != nil {
		t.Error("a volume that is gone is not forgotten")
	}
}

// An immutable page is reported, and volumes still follow their annotations.
func TestAnImmutablePageIsReported(t *testing.T) {
	ctx := context.Background()
	r, _ := newReconciler(t, interceptor.Funcs{}, builders.NFSVolume([]string{"hard"}), fastProfile())
	makeAPass(t, r)
	var page corev1.ConfigMap
	if err := r.Client.Get(ctx, pageZero, &page); err != nil {
		t.Fatal(err)
	}
	immutable := true
	page.Immutable = &immutable
	if err := r.Client.Update(ctx, &page); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.Delete(ctx, fastProfile()); err != nil {
		t.Fatal(err)
	}
	r.pace = store.Pace{}
	_, err := r.Reconcile(ctx, reconcile.Request{})
	if err == nil || !strings.Contains(err.Error(), "ConfigMap storage-client-system/storage-client-volumes-0 is immutable; delete it") {
		t.Errorf("the pass says %v", err)
	}
	var pv corev1.PersistentVolume
	if err := r.Client.Get(ctx, client.ObjectKey{Name: "pv1"}, &pv); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"hard"}, pv.Spec.MountOptions); diff != "" {
		t.Errorf("the volume (-want +got):\n%s", diff)
	}
}
