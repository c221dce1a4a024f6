package write

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// reporting returns a StorageClientNode with most fields set, except for the rollout status.
func reporting() *v1alpha1.StorageClientNode {
	return &v1alpha1.StorageClientNode{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid", Labels: map[string]string{"somebody": "else"}},
		Spec: v1alpha1.StorageClientNodeSpec{
			Hash: "h", Settings: []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "p", OnRemoval: v1alpha1.DeletionRestore}},
			RebootPermit: &v1alpha1.RebootPermit{ID: "permit"},
		},
		Status: v1alpha1.StorageClientNodeStatus{
			ObservedGeneration: 3, Hash: "h", BootID: "boot", RebootRequired: true, RebootRequiredBy: []string{"kernel/x"},
			Settings: []v1alpha1.SettingStatus{{Key: "sysctl/vm.dirty_ratio", Desired: "20", State: v1alpha1.SettingInSync}},
			Mounts:   []v1alpha1.MountStatus{{MountPoint: "/m", Volume: "pv"}},
			Servers:  []v1alpha1.ServerStatus{{Server: "filer"}},
		},
	}
}

func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	check.NoError(t, v1alpha1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(reporting()).WithStatusSubresource(&v1alpha1.StorageClientNode{}).Build()
}

func readNode(t *testing.T, c client.Client) *v1alpha1.StorageClientNode {
	t.Helper()
	var got v1alpha1.StorageClientNode
	check.NoError(t, c.Get(t.Context(), types.NamespacedName{Name: "a"}, &got))
	return &got
}

// A patch writes only the intended fields, regardless of the other fields. This includes the first note of a node, which has no rollout
// status yet.
func TestOnlyTheIntendedFieldsAreWritten(t *testing.T) {
	c := newClient(t)
	before := readNode(t, c)
	for i, phase := range []v1alpha1.RolloutPhase{v1alpha1.RolloutWaiting, v1alpha1.RolloutUpToDate} {
		want := readNode(t, c)
		want.Status.Rollout = &v1alpha1.RolloutStatus{Phase: phase, Message: "m"}
		got, err := PatchNote(t.Context(), c, readNode(t, c), *want.Status.Rollout)
		check.NoError(t, err)
		want.ResourceVersion = got.ResourceVersion
		if diff := cmp.Diff(asJSON(t, want), asJSON(t, got)); diff != "" {
			t.Errorf("note %d (-want +got):\n%s", i, diff)
		}
	}
	want := readNode(t, c)
	want.Spec.RebootPermit, want.Spec.Volumes = nil, []v1alpha1.NodeVolume{{Name: "pv"}}
	got, err := PatchSpec(t.Context(), c, readNode(t, c), func(spec *v1alpha1.StorageClientNodeSpec) {
		spec.RebootPermit, spec.Volumes = nil, []v1alpha1.NodeVolume{{Name: "pv"}}
	})
	check.NoError(t, err)
	want.ResourceVersion = got.ResourceVersion
	check.Equal(t, "spec", asJSON(t, want), asJSON(t, got))
	if _, err := PatchNote(t.Context(), c, before, v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting}); err == nil {
		t.Error("a patch of an outdated version wrote a note")
	}
	if _, err := PatchSpec(t.Context(), c, before, func(spec *v1alpha1.StorageClientNodeSpec) { spec.Release = true }); err == nil {
		t.Error("a patch of an outdated version wrote a spec")
	}
}

func asJSON(t *testing.T, object any) string {
	t.Helper()
	raw, err := json.MarshalIndent(object, "", " ")
	check.NoError(t, err)
	return string(raw)
}
