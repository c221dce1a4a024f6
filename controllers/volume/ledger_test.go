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
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/controllers/volume/ledger"
	"github.com/storageclient/operator/test/builders"
)

func entryOf(t *testing.T, c client.Client, uid types.UID) *ledger.Entry {
	t.Helper()
	var pages corev1.ConfigMapList
	if err := c.List(context.Background(), &pages, client.InNamespace(v1alpha1.ManagerNamespace)); err != nil {
		t.Fatal(err)
	}
	return new(ledger.Reader).Read(pages.Items).EntryOf(uid)
}

var (
	hardAndFast = ledger.Lists{Original: []string{"hard"}, Applied: []string{"hard", "nconnect=4", "nocto"}}
	pageZero    = client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: v1alpha1.VolumesConfigMapPrefix + "0"}
)

// If the manager dies between two writes, the ledger already contains the options.
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
		t.Errorf("before the write: got entry %+v, want a pending entry with the new options", within)
	}
	if e := entryOf(t, c, "uid-of-pv1"); !e.IsSettled(hardAndFast, []string{"fast"}) {
		t.Errorf("after the write: got entry %+v, want a settled one", e)
	}
	if err := c.Delete(context.Background(), fastProfile()); err != nil {
		t.Fatal(err)
	}
	makeAPass(t, r)
	if e := entryOf(t, c, "uid-of-pv1"); !within.Ending || e != nil {
		t.Errorf("got entry %+v before the restore and %+v after it, want an ending one, then none", within, e)
	}
}

// The manager writes each page once before the volumes, and once after them.
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
		t.Errorf("got %d writes of the ledger for the restore of %d volumes, want 2", writes.Load(), volumes)
	}
	r, _ = newReconciler(t, funcs, objects[0], fastProfile())
	makeAPass(t, r)
	writes.Store(0)
	if makeAPass(t, r); writes.Load() != 0 {
		t.Errorf("got %d writes of the ledger without a change, want none", writes.Load())
	}
}

// Options are not written if the ledger cannot record them. Managed volumes are still restored.
func TestVolumesWithoutALedgerEntryAreNotWritten(t *testing.T) {
	rejects := interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("configmaps"), o.GetName(), nil)
		},
	}
	carrying := builders.NFSVolume(hardAndFast.Applied, builders.Named("old"), builders.Carrying(hardAndFast.Original, hardAndFast.Applied, "gone"), builders.Labelled("tier", "none"))
	profile := byLabel("fast", "nocto")
	r, _ := newReconciler(t, rejects, builders.NFSVolume([]string{"hard"}, builders.Named("new"), builders.Labelled("tier", "fast")), carrying, &profile)
	_, err := r.Reconcile(context.Background(), reconcile.Request{})
	if err == nil || !strings.Contains(err.Error(), "storage-client-volumes-0") {
		t.Errorf("got error %v, want one with the name of the page", err)
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
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if r.rejected["new"].IsZero() {
		t.Error("the volume has no retry delay and blocks the other volumes as the canary")
	}
}

// Writes of the webhook are recorded at once. Deleted volumes are removed, at most once a minute, after a live read.
func TestTheLedgerFollowsTheVolumes(t *testing.T) {
	ctx := context.Background()
	created := builders.NFSVolume(hardAndFast.Applied, builders.Carrying(hardAndFast.Original, hardAndFast.Applied, "fast"))
	r, _ := newReconciler(t, interceptor.Funcs{}, created, fastProfile())
	makeAPass(t, r)
	if e := entryOf(t, r.Client, created.UID); !e.IsSettled(hardAndFast, []string{"fast"}) {
		t.Errorf("for a volume that was created with managed options: got entry %+v, want a settled one", e)
	}
	if err := r.Client.Delete(ctx, created); err != nil {
		t.Fatal(err)
	}
	if makeAPass(t, r); entryOf(t, r.Client, created.UID) == nil {
		t.Error("volumes and ledger were compared twice within a minute, want once")
	}
	r.Clock = testclock.NewFakeClock(time.Now().Add(time.Minute))
	if makeAPass(t, r); entryOf(t, r.Client, created.UID) != nil {
		t.Error("the ledger still has the deleted volume")
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
		t.Errorf("got error %v, want one for the immutable ConfigMap", err)
	}
	var pv corev1.PersistentVolume
	if err := r.Client.Get(ctx, client.ObjectKey{Name: "pv1"}, &pv); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"hard"}, pv.Spec.MountOptions); diff != "" {
		t.Errorf("options of the volume (-want +got):\n%s", diff)
	}
}
