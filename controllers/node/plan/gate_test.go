package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/tuning/catalogue"
)

func TestRestoreNote(t *testing.T) {
	profile := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	profile.Spec.AllNodes = true
	view := fleet.NewProfileSet([]v1alpha1.StorageClientProfile{profile}, catalogue.AllowList{})
	node := func(name string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.NodeInfo.BootID = "boot-" + name
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return n
	}
	clientNodeOf := func(name string, change func(*v1alpha1.StorageClientNode)) *v1alpha1.StorageClientNode {
		clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}}
		clientNode.Spec.Settings = []v1alpha1.NodeSetting{{Key: "sysctl/vm.dirty_ratio", Value: "20", Profile: "p"}}
		clientNode.Status.BootID = "boot-" + name
		if change != nil {
			change(clientNode)
		}
		return clientNode
	}
	releasing := func(clientNode *v1alpha1.StorageClientNode) { clientNode.Spec.Release = true }
	failing := func(generation int64) func(*v1alpha1.StorageClientNode) {
		return func(clientNode *v1alpha1.StorageClientNode) {
			clientNode.Spec.Release, clientNode.Status.ObservedGeneration = true, generation
			clientNode.Status.Settings = []v1alpha1.SettingStatus{{Key: "sysctl/vm.dirty_ratio", State: v1alpha1.SettingFailed}}
		}
	}
	for name, test := range map[string]struct {
		other func(*v1alpha1.StorageClientNode)
		waits bool
	}{
		"nobody else is being restored":              {nil, false},
		"another node is being restored":             {releasing, true},
		"another node was restored":                  {func(clientNode *v1alpha1.StorageClientNode) { releasing(clientNode); clientNode.Status.Restored = true }, false},
		"another node could not be restored":         {failing(2), false},
		"another node had failed before its release": {failing(1), true},
	} {
		t.Run(name, func(t *testing.T) {
			all := fleet.Snapshot{
				Profiles: view, Nodes: []*corev1.Node{node("a"), node("b")}, Ready: map[string]bool{"a": true, "b": true},
				ClientNodes: map[string]*v1alpha1.StorageClientNode{"a": clientNodeOf("a", nil), "b": clientNodeOf("b", test.other)},
			}
			if got := restoresOf(all, view.ByName("p")).note(); (got != "") != test.waits {
				t.Errorf("got %q, waits is to be %v", got, test.waits)
			}
		})
	}
}

func TestGateRemembersWhomItHasRefused(t *testing.T) {
	s := snapshotOf(nil, profile("a", nil))
	next := For(s).(Write)
	nobodyReady := fleet.Snapshot{Profiles: s.Profiles, Nodes: []*corev1.Node{s.Node}}
	gate := NewGate()
	if _, known := gate.Recall(s, next, now); known {
		t.Fatal("a gate that was never asked knows an answer")
	}
	refused, stays := gate.Judge(s, next, nobodyReady, now).(Stay)
	if !stays || refused.Note == "" || refused.RequeueAfter != turnAfter {
		t.Fatalf("got %#v, want the node to wait", refused)
	}
	if got, known := gate.Recall(s, next, now); !known || got != refused {
		t.Errorf("recalled %#v, %t; want %#v", got, known, refused)
	}
	if _, known := gate.Recall(s, Write{Limited: true}, now); known {
		t.Error("a restore is refused for what the gate said of new settings")
	}
	gate.Forget(s)
	if _, known := gate.Recall(s, next, now); known {
		t.Error("it remembers what it was to forget")
	}
	var forgetful Gate
	forgetful.Judge(s, next, nobodyReady, now)
	if _, known := forgetful.Recall(s, next, now); known {
		t.Error("the zero gate remembers")
	}
}

func TestGateLetsAWriteThroughThatChangesNoHost(t *testing.T) {
	s := snapshotOf(nil, profile("a", nil))
	if got, known := NewGate().Recall(s, Write{}, now); !known || !writes(got) {
		t.Errorf("got %#v, %t", got, known)
	}
}
