package plan

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

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
		other     func(*v1alpha1.StorageClientNode)
		isWaiting bool
	}{
		"no other node is being restored":            {nil, false},
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
			if got := restoresOf(all, view.ByName("p")).note(); (got != "") != test.isWaiting {
				t.Errorf("got %q, want waiting %v", got, test.isWaiting)
			}
		})
	}
}

func TestGateCachesRejections(t *testing.T) {
	r := &remembering{all: clusterOf(2, profile("a", nil), profile("b", func(p *v1alpha1.StorageClientProfile) {
		p.Spec.AllNodes, p.Spec.NodeSelector.MatchLabels = false, map[string]string{"pool": "b"}
	}))}
	r.all.Ready = map[string]bool{}
	r.all.Nodes[1].Labels["pool"] = "b"
	evaluate := func(name string, n int, next Write, at time.Time, reads int) {
		t.Helper()
		before := r.reads
		if got, stays := r.askFor(n, next, usualLimits, at).(Stay); !stays || got.Note == "" || got.RequeueAfter != turnAfter || r.reads-before != reads {
			t.Errorf("%s: got %#v with %d reads of all nodes, want the node to wait with %d reads", name, got, r.reads-before, reads)
		}
	}
	gated := Write{Gated: true}
	evaluate("at first", 0, gated, now, 1)
	evaluate("a moment later", 0, gated, now.Add(VerdictAge-1), 0)
	evaluate("another node, of one more profile", 1, gated, now.Add(VerdictAge-1), 0)
	evaluate("a second later", 0, gated, now.Add(VerdictAge), 1)
	evaluate("the clock went back", 0, gated, now, 1)
	r.all.Nodes[0].Annotations = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.True}
	r.all.Nodes[0].Spec.Taints = []corev1.Taint{{Key: v1alpha1.UntunedTaint}}
	evaluate("the node has changed", 0, gated, now, 1)
	r.all.Profiles = fleet.NewProfileSet([]v1alpha1.StorageClientProfile{profile("a", nil)}, catalogue.AllowList{})
	evaluate("a profile has changed", 0, gated, now, 1)
	r.Forget(Snapshot{Node: r.all.Nodes[1]})
	evaluate("another node was changed", 0, gated, now, 1)
	if got := r.askFor(0, Write{Limited: true}, usualLimits, now); !writes(got) || r.reads != 7 {
		t.Errorf("got a restore rejected because of the gate's verdict on new settings: %#v", got)
	}
}

func TestGateRejectionsExpireWithTheSoak(t *testing.T) {
	const remaining = 300 * time.Millisecond
	r := &remembering{all: clusterOf(2, profile("a", recklessly))}
	take(r.all, 0, usualLimits.MinSoak-remaining)
	for _, test := range []struct {
		after     time.Duration
		reads     int
		remaining time.Duration
	}{{0, 1, remaining}, {remaining - 1, 1, 1}, {remaining, 2, 0}} {
		got := r.ask(1, usualLimits, now.Add(test.after))
		stay, _ := got.(Stay)
		if stay.RequeueAfter != test.remaining || stays(got) != (test.remaining > 0) || r.reads != test.reads {
			t.Errorf("after %s: got %#v with %d reads of all nodes in total", test.after, got, r.reads)
		}
	}
}

// Thousands of nodes wait behind the first node. The gate evaluates the first node only once.
func TestQueuedNodesEvaluateTheNodesAheadOnce(t *testing.T) {
	r := &remembering{all: clusterOf(100, profile("a", func(p *v1alpha1.StorageClientProfile) {
		recklessly(p)
		p.Spec.Rollout.MaxConcurrentLive = ptr.To(intstr.FromInt32(1))
	}))}
	take(r.all, 0, time.Hour)
	if got := r.ask(50, usualLimits, now); !stays(got) {
		t.Fatalf("got the node admitted before its turn: %#v", got)
	}
	// Another evaluation of a node ahead would need this map.
	r.last.byName = nil
	for n := 51; n < 60; n++ {
		if got := r.ask(n, usualLimits, now); !stays(got) || r.reads != 1 {
			t.Errorf("node %d: got %#v with %d reads of all nodes", n, got, r.reads)
		}
	}
}

func TestAFailedReadOfAllNodesIsReturned(t *testing.T) {
	broken := errors.New("broken")
	look := func() (fleet.Snapshot, error) { return fleet.Snapshot{}, broken }
	if _, err := new(Gate).Evaluate(snapshotOf(nil, profile("a", nil)), Write{Gated: true}, at(now), look); !errors.Is(err, broken) {
		t.Errorf("got error %v", err)
	}
}

func TestGateAdmitsAWriteThatDoesNotChangeTheHost(t *testing.T) {
	s := snapshotOf(nil, profile("a", nil))
	if got, _ := new(Gate).Evaluate(s, Write{}, at(now), nil); !writes(got) {
		t.Errorf("got %#v", got)
	}
}
