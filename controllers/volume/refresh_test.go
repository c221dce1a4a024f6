package volume

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// If the versions are equal, the cached volume is current. Only other volumes are read from the API server.
func TestVolumesAreReadLiveIfTheCacheIsStale(t *testing.T) {
	var mutex sync.Mutex
	var read []string
	r, _ := newReconciler(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
		mutex.Lock()
		read = append(read, key.Name)
		mutex.Unlock()
		return c.Get(ctx, key, object, opts...)
	}}, created("same", 1), created("changed", 2), created("new", 3))
	r.APIReader = r.Client
	ctx := context.Background()
	var before corev1.PersistentVolumeList
	if err := r.Client.List(ctx, &before); err != nil {
		t.Fatal(err)
	}
	cached := []*corev1.PersistentVolume{created("gone", 4)}
	for i := range before.Items {
		if name := before.Items[i].Name; name == "same" || name == "changed" {
			cached = append(cached, &before.Items[i])
		}
	}
	changed := cached[slices.IndexFunc(cached, func(pv *corev1.PersistentVolume) bool { return pv.Name == "changed" })].DeepCopy()
	changed.Spec.MountOptions = []string{"nocto"}
	if err := r.Client.Update(ctx, changed); err != nil {
		t.Fatal(err)
	}
	got, newer, err := (&scope{Reconciler: r}).refreshVolumes(ctx, cached)
	if err != nil || !newer {
		t.Fatalf("got error %v, newer %t; want no error and newer volumes", err, newer)
	}
	options := map[string][]string{}
	for _, pv := range got {
		options[pv.Name] = pv.Spec.MountOptions
	}
	if diff := cmp.Diff(map[string][]string{"same": {"hard"}, "changed": {"nocto"}, "new": {"hard"}}, options); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if slices.Sort(read); !slices.Equal(read, []string{"changed", "gone", "new"}) {
		t.Errorf("got reads of %q, want only the changed, deleted and new volumes", read)
	}
	if _, newer, err := (&scope{Reconciler: r}).refreshVolumes(ctx, got); err != nil || newer {
		t.Errorf("right after a read: got newer %t, error %v; want no newer volumes", newer, err)
	}
}
