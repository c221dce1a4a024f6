package node

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func poolProfile(pool string) *v1alpha1.StorageClientProfile {
	p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{v1alpha1.Finalizer}}}
	p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": pool}
	return p
}

// poolClient returns the client of a cluster with nodes in two pools. One more node is in no pool, but has settings of the profile.
func poolClient(t *testing.T, lists *int) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	check.NoError(t, errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	carrying := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "former"}}
	carrying.Spec.Settings = []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "p"}}
	other := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	other.Spec.Settings = []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "q"}}
	node := func(name, pool, system string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: system, "pool": pool}}}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithIndex(&v1alpha1.StorageClientNode{}, sourceField, indexSources).
		WithObjects(node("a", "x", "linux"), node("b", "y", "linux"), node("former", "", "linux"), node("w", "x", "windows"), carrying, other, poolProfile("x")).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, profiles := list.(*v1alpha1.StorageClientProfileList); profiles {
				*lists++
			}
			return c.List(ctx, list, options...)
		}}).Build()
}

// A changed profile triggers an evaluation of the nodes that it selects and of the nodes that have its settings, but of no other nodes.
func TestAProfileRequestsItsNodes(t *testing.T) {
	r := &Reconciler{Client: poolClient(t, new(int))}
	for pool, want := range map[string][]string{"x": {"a", "former"}, "y": {"b", "former"}, "z": {"former"}} {
		var got []string
		for _, request := range r.nodesOfProfile(t.Context(), poolProfile(pool)) {
			got = append(got, request.Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("nodes of pool %s (-want +got):\n%s", pool, diff)
		}
	}
}

// Thousands of nodes share one list of profiles until the watch reports a change.
func TestProfilesAreListedOnceForAllNodes(t *testing.T) {
	lists := 0
	r := &Reconciler{Client: poolClient(t, &lists), isWatching: true}
	read := func() *v1alpha1.StorageClientProfile {
		t.Helper()
		set, err := r.readProfiles(t.Context())
		check.NoError(t, err)
		return set.ByName("p").StorageClientProfile
	}
	read()
	read()
	check.Equal(t, "lists of profiles for two nodes", 1, lists)
	changed := poolProfile("y")
	check.NoError(t, r.Get(t.Context(), client.ObjectKeyFromObject(changed), changed))
	changed.Spec.NodeSelector.MatchLabels["pool"] = "y"
	check.NoError(t, r.Update(t.Context(), changed))
	r.profilesChanged.Add(1)
	if got := read().Spec.NodeSelector.MatchLabels["pool"]; got != "y" || lists != 2 {
		t.Errorf("after a change: got pool %s with %d lists", got, lists)
	}
	r.isWatching = false
	if read(); lists != 3 {
		t.Error("without a watch: want the profiles listed again")
	}
}
