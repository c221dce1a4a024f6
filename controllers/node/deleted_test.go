package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/test/check"
)

type fenced struct{}

func (fenced) Missing(context.Context) (string, error) { return "", nil }

// reconcilerOf returns a reconciler of a cluster with these objects and a profile for all nodes.
func reconcilerOf(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	check.NoError(t, errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	profile := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{v1alpha1.Finalizer}}}
	profile.Spec.AllNodes = true
	profile.Spec.Node = &v1alpha1.NodeTuning{KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16777216"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, profile)...).
		WithStatusSubresource(&corev1.Node{}, &v1alpha1.StorageClientNode{}).WithInterceptorFuncs(funcs).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).Build()
	clock := testingclock.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	return &Reconciler{Client: c, Clock: clock, Fence: fenced{}}
}

// TestANodeThatIsBeingDeletedGetsNoSettings has nodes with settings that no profile declares any longer, and counts all writes.
func TestANodeThatIsBeingDeletedGetsNoSettings(t *testing.T) {
	for name, deleted := range map[string]*metav1.Time{"a node": nil, "a node that is being deleted": ptr.To(metav1.Now())} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: "u", Labels: map[string]string{corev1.LabelOSStable: "linux"}, Finalizers: []string{"example.com/stays"}, DeletionTimestamp: deleted,
		}}
		clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{
			Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "u"}},
		}}
		clientNode.Spec.Settings, clientNode.Spec.Hash = []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "p"}}, "old"
		writes := 0
		r := reconcilerOf(t, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
				writes++
				return c.Patch(ctx, o, patch, options...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(name).Patch(ctx, o, patch, options...)
			},
		}, node, clientNode)
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}})
		if err != nil || writes > 0 == (deleted != nil) {
			t.Errorf("%s: got error %v, %d writes; want some: %t", name, err, writes, deleted == nil)
		}
	}
}

// TestADeletingNodeDropsASettingOfALeavingProfile has a Node with settings of two profiles. One of them is gone, is being deleted, or stays.
func TestADeletingNodeDropsASettingOfALeavingProfile(t *testing.T) {
	other := func(deleted *metav1.Time) *v1alpha1.StorageClientProfile {
		p := &v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{v1alpha1.Finalizer}, DeletionTimestamp: deleted}}
		p.Spec.AllNodes = true
		p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"vm.dirty_ratio": "20"}}
		return p
	}
	for name, test := range map[string]struct {
		profiles []client.Object
		drops    bool
	}{
		"gone": {nil, true}, "being deleted": {[]client.Object{other(ptr.To(metav1.Now()))}, true}, "active": {[]client.Object{other(nil)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: "a", UID: "u", Labels: map[string]string{corev1.LabelOSStable: "linux"}, Finalizers: []string{"example.com/stays"}, DeletionTimestamp: ptr.To(metav1.Now()),
			}}
			clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{
				Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "u"}},
			}}
			clientNode.Spec.Settings, clientNode.Spec.Hash = []v1alpha1.NodeSetting{
				{Key: "kernelArgument/ihash_entries", Value: "16777216", Profile: "p", OnRemoval: v1alpha1.DeletionRestore},
				{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "a", OnRemoval: v1alpha1.DeletionRestore},
			}, "old"
			r := reconcilerOf(t, interceptor.Funcs{}, append(test.profiles, node, clientNode)...)
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}})
			check.NoError(t, err)
			var after v1alpha1.StorageClientNode
			check.NoError(t, r.Get(t.Context(), types.NamespacedName{Name: "a"}, &after))
			check.Equal(t, "sources", map[bool][]string{true: {"p"}, false: {"a", "p"}}[test.drops], fleet.SourcesOf(&after))
		})
	}
}

// TestOnlyTheVersionThatWasReadIsDeleted has a StorageClientNode that another client changes, or replaces, just before it is deleted.
func TestOnlyTheVersionThatWasReadIsDeleted(t *testing.T) {
	read := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7"}}
	for name, c := range map[string]struct {
		uid       types.UID
		version   string
		isDeleted bool
	}{
		"unchanged": {"u", "7", true}, "changed": {"u", "8", false}, "replaced": {"v", "7", false},
	} {
		isDeleted := false
		r := reconcilerOf(t, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			var applied client.DeleteOptions
			applied.ApplyOptions(options)
			conditions := ptr.Deref(applied.Preconditions, metav1.Preconditions{})
			if ptr.Deref(conditions.UID, c.uid) != c.uid || ptr.Deref(conditions.ResourceVersion, c.version) != c.version {
				return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("storageclientnodes").GroupResource(), o.GetName(), errors.New("precondition"))
			}
			isDeleted = true
			return nil
		}})
		if err := r.deleteClientNode(t.Context(), read); apierrors.IsConflict(err) == c.isDeleted || isDeleted != c.isDeleted {
			t.Errorf("%s: got deleted %t, error %v; want deleted %t", name, isDeleted, err, c.isDeleted)
		}
	}
}
