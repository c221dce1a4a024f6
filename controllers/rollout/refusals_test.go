package rollout

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

func TestImmutableConfigMapsAreNamed(t *testing.T) {
	for _, name := range []string{v1alpha1.BudgetConfigMap, v1alpha1.FailuresConfigMap} {
		object := failuresConfigMap(nil)
		object.Name, object.Immutable = name, ptr.To(true)
		snapshot, err := passOf(t, object).readSnapshot(t.Context())
		check.NoError(t, err)
		check.Equal(t, "immutable", []string{v1alpha1.ManagerNamespace + "/" + name}, snapshot.Immutable)
	}
}

// A Node has been replaced, and the StorageClientNode still belongs to the former one: its note is not that of the new Node.
func TestTheNoteOfAFormerNodeIsNoNoteOfTheNewOne(t *testing.T) {
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "former"}}}}
	clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutReleasing}
	for uid, want := range map[types.UID]v1alpha1.RolloutPhase{"former": v1alpha1.RolloutReleasing, "new": ""} {
		s := &pass{
			nodes:       map[string]*corev1.Node{"a": {ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}},
			clientNodes: map[string]*v1alpha1.StorageClientNode{"a": clientNode},
		}
		if got := s.currentNote("a").Phase; got != want {
			t.Errorf("Node with UID %s: got a note with phase %q, want %q", uid, got, want)
		}
	}
}
