package simulation

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
)

// TestABudgetThatIsNeverCountedCostsNoOtherPod has a budget whose pod the API server never evicts. The rollout must skip the node and name the
// budget with its message. The other node must reboot.
func TestABudgetThatIsNeverCountedCostsNoOtherPod(t *testing.T) {
	for _, lookAhead := range []v1alpha1.DrainLookAhead{v1alpha1.LookAheadDryRun, v1alpha1.LookAheadCordonFirst} {
		t.Run(string(lookAhead), func(t *testing.T) {
			w := newUncountedWorld(lookAhead)
			defer func() { w.manager.end() }()
			evicted := map[string]int{}
			observe := w.api.Observe
			w.api.Observe = func(write memapi.Write) {
				if write.Eviction {
					evicted[write.Before.GetName()]++
				}
				observe(write)
			}
			for end := w.now.Add(48 * time.Hour); w.now.Before(end) && w.broken == nil; {
				w.playCalmly()
			}
			blocked, other := w.clientNode("n10").Status.Rollout, w.clientNode("n11").Status.Rollout
			if w.broken != nil || blocked == nil || blocked.Phase != v1alpha1.RolloutWaiting || blocked.Reason != v1alpha1.RolloutReasonDrainBlocked ||
				!strings.Contains(blocked.Message, "PodDisruptionBudget work/runner: ") || !strings.Contains(blocked.Message, "does not implement the scale subresource") {
				t.Errorf("broken: %v; note of n10: got %+v, want the budget with its message", w.broken, blocked)
			}
			if other == nil || other.Phase != v1alpha1.RolloutUpToDate || len(evicted) > 0 || w.inVain+w.attempts > 0 {
				t.Errorf("got evictions %v of pods on n10, %d in vain, %d in attempts, note of n11 %+v; want none, and n11 up to date", evicted, w.inVain, w.attempts, other)
			}
		})
	}
}

// newUncountedWorld has two nodes that must reboot. The pods web, db and runner run on n10. The disruption controller cannot count the pods of
// the budget runner.
func newUncountedWorld(lookAhead v1alpha1.DrainLookAhead) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(1, 17)), now: time.Date(2026, 9, 1, 10, 0, 0, 0, time.UTC), machines: map[string]*machine{}, versions: map[string]int{},
		maxUnavailable: intstr.FromInt32(1), managerNode: "n11", quiet: true, rejections: 1 << 30, ailing: 1 << 30,
	}
	w.api = memapi.NewServer(func() time.Time { return w.now })
	w.observer = newObserver(w)
	w.api.Observe = w.observe
	w.api.Add(byPeople, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ManagerNamespace}})
	for i := range 2 {
		w.addNode("n"+strconv.Itoa(10+i), false)
	}
	profile := gateProfile("p0", "32768")
	profile.Finalizers = []string{v1alpha1.Finalizer}
	one := ptr.To(intstr.FromInt32(1))
	profile.Spec.Rollout = v1alpha1.Rollout{
		MaxUnavailable: one, MaxConcurrentLive: one, Canary: &v1alpha1.Canary{Nodes: ptr.To[int32](1), SoakSeconds: ptr.To[int32](60)},
		FailureThreshold: ptr.To[int32](1), SettleSeconds: ptr.To[int32](30),
		Drain:  v1alpha1.Drain{LookAhead: lookAhead, TimeoutSeconds: ptr.To[int32](600)},
		Reboot: v1alpha1.Reboot{Policy: v1alpha1.RebootAutomatic, TimeoutSeconds: ptr.To[int32](600)},
	}
	w.api.Add(byPeople, profile)
	for _, name := range []string{"web", "db", "runner"} {
		a := &app{name: name, owner: "ReplicaSet", replicas: 1, atLeast: -1, uncounted: name == "runner"}
		w.apps = append(w.apps, a)
		w.addPod(name, "n10", a.owner, a)
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: "runner"}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "runner"}}
	w.api.Add(byPeople, budget)
	w.countBudgets()
	w.now = w.now.Add(time.Hour)
	w.manager = w.startManager()
	return w
}
