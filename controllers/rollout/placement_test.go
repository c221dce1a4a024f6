package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// TestNodesThatCanRunTheManager has the manager on node m. The other node is n.
func TestNodesThatCanRunTheManager(t *testing.T) {
	control := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "kubernetes.io/arch", Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
		}}},
	}}}
	for name, c := range map[string]struct {
		pod              corev1.PodSpec
		labels           map[string]string
		taints           []corev1.Taint
		replica, unready bool
		takes, takesPods bool
	}{
		"any node":                            {takes: true, takesPods: true},
		"its nodeSelector selects the node":   {pod: corev1.PodSpec{NodeSelector: map[string]string{"infra": "yes"}}, labels: map[string]string{"infra": "yes"}, takes: true, takesPods: true},
		"its nodeSelector selects another":    {pod: corev1.PodSpec{NodeSelector: map[string]string{"infra": "yes"}}, takesPods: true},
		"its affinity is to another platform": {pod: corev1.PodSpec{Affinity: affinity}, labels: map[string]string{"kubernetes.io/arch": "arm64"}, takesPods: true},
		"its affinity is to this platform":    {pod: corev1.PodSpec{Affinity: affinity}, labels: map[string]string{"kubernetes.io/arch": "amd64"}, takes: true, takesPods: true},
		"a taint that it does not tolerate":   {taints: []corev1.Taint{control}},
		"a taint that it tolerates": {
			pod: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: control.Key, Operator: corev1.TolerationOpExists}}}, taints: []corev1.Taint{control}, takes: true,
		},
		"a taint that only prefers":          {taints: []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectPreferNoSchedule}}, takes: true, takesPods: true},
		"a taint that evicts":                {taints: []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}}},
		"an outage, which is seen elsewhere": {taints: []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}, takes: true, takesPods: true},
		"a node that cannot be reached, as seen elsewhere": {
			taints: []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}, takes: true, takesPods: true,
		},
		"a replica runs on it, and is not Ready": {pod: corev1.PodSpec{NodeSelector: map[string]string{"infra": "yes"}}, replica: true, unready: true, takesPods: true},
		"a replica already runs on it":           {pod: corev1.PodSpec{NodeSelector: map[string]string{"infra": "yes"}}, replica: true, takes: true, takesPods: true},
	} {
		t.Run(name, func(t *testing.T) {
			manager := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m"}}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: c.labels}, Spec: corev1.NodeSpec{Taints: c.taints}}
			clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: "m", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "m", UID: "m"}}}}
			clientNode.Status.RebootRequired = true
			pod := managerPod("one", "m", c.pod)
			objects := []client.Object{manager, node, clientNode, pod}
			if c.replica {
				replica := managerPod("two", "n", c.pod)
				if c.unready {
					replica.Status.Conditions[0].Status = corev1.ConditionFalse
				}
				objects = append(objects, replica)
			}
			s := passOf(t, objects...)
			s.ManagerNode = "m"
			if _, err := s.readSnapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.live = sets.New("m")
			check.NoError(t, s.refreshNodes(t.Context()))
			for _, n := range whole(s).Nodes {
				switch {
				case n.Name == "m" && !n.TakesManager:
					t.Error("got an unknown Pod of the manager")
				case n.Name == "n" && (n.TakesManager != c.takes || n.TakesPods != c.takesPods):
					t.Errorf("got takes the manager %t, pods %t; want %t, %t", n.TakesManager, n.TakesPods, c.takes, c.takesPods)
				}
			}
		})
	}
}

func managerPod(name, node string, spec corev1.PodSpec) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ManagerNamespace, Name: name, Labels: managerLabels}, Spec: spec}
	pod.Spec.NodeName = node
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return pod
}

func TestTheNodeOfAnUnknownManagerIsFree(t *testing.T) {
	s := passOf(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}})
	s.ManagerNode = "m"
	got, err := s.readSnapshot(t.Context())
	if err != nil || got.Nodes[0].TakesManager {
		t.Errorf("got %+v, error %v; want no knowledge of the manager", got.Nodes, err)
	}
}

// The manager's Pods are not in the cache. They are read at most once in a while, and again if the clock was set back.
func TestTheManagersPodsAreReadOnceInAWhile(t *testing.T) {
	s := passOf(t, managerPod("one", "m", corev1.PodSpec{}))
	s.ManagerNode = "m"
	clock := testingclock.NewFakeClock(time.Now())
	s.Clock = clock
	for i, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {0, false}, {podsAge - 1, false}, {1, true}, {-time.Hour, true}} {
		clock.SetTime(clock.Now().Add(step.after))
		if isRead, err := s.readManagers(t.Context()); err != nil || isRead != step.want {
			t.Errorf("step %d: got read %t, error %v; want %t", i, isRead, err, step.want)
		}
	}
	s.ManagerNode = ""
	clock.Step(time.Hour)
	if isRead, err := s.readManagers(t.Context()); err != nil || isRead {
		t.Errorf("outside the cluster: got read %t, error %v", isRead, err)
	}
}
