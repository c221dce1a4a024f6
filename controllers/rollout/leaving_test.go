package rollout

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/check"
)

// TestTaintsOfANodeThatIsLeaving adds one taint to a Node that also has a harmless one.
func TestTaintsOfANodeThatIsLeaving(t *testing.T) {
	for key, want := range map[string]bool{
		"karpenter.sh/disrupted":                                 true,
		"karpenter.sh/disruption":                                true,
		"ToBeDeletedByClusterAutoscaler":                         true,
		"aws-node-termination-handler/spot-itn":                  true,
		"aws-node-termination-handler/scheduled-maintenance":     true,
		"aws-node-termination-handler/asg-lifecycle-termination": true,
		"aws-node-termination-handler/rebalance-recommendation":  true,
		"cloud.google.com/impending-node-termination":            true,
		"remediator.kubernetes.azure.com/unschedulable":          true,
		"node.kubernetes.io/out-of-service":                      true,
		"node.cloudprovider.kubernetes.io/shutdown":              true,
		"DeletionCandidateOfClusterAutoscaler":                   false,
		"kubernetes.azure.com/scalesetpriority":                  false,
		"cloud.google.com/gke-spot":                              false,
		"karpenter.sh/unregistered":                              false,
		"node.cloudprovider.kubernetes.io/uninitialized":         false,
		"node.kubernetes.io/not-ready":                           false,
		"node.kubernetes.io/unreachable":                         false,
		"node.kubernetes.io/unschedulable":                       false,
		"node-role.kubernetes.io/control-plane":                  false,
		v1alpha1.UntunedTaint:                                    false,
	} {
		t.Run(key, func(t *testing.T) {
			s := passOf(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{
				Taints: []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}, {Key: key, Effect: corev1.TaintEffectNoSchedule}},
			}})
			s.UntunedTaint = v1alpha1.UntunedTaint
			got, err := s.readSnapshot(t.Context())
			check.NoError(t, err)
			expected := ""
			if want {
				expected = key
			}
			check.Equal(t, "taint", expected, got.Nodes[0].Leaving)
		})
	}
}

// TestMarksOfANodeThatIsLeaving has marks other than taints, values, additional marks of the flag, and nodes that still serve.
func TestMarksOfANodeThatIsLeaving(t *testing.T) {
	taint := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Value: value}} }
	}
	terminating := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: "Terminating", Status: status}}
		}
	}
	annotation := func(n *corev1.Node) { n.Annotations = map[string]string{"example.com/retire": "soon"} }
	label := func(n *corev1.Node) { n.Labels = map[string]string{"example.com/retire": "later"} }
	for name, c := range map[string]struct {
		change     func(*corev1.Node)
		additional []string
		want       leaving
	}{
		"Gardener removes the machine":              {terminating(corev1.ConditionTrue), nil, leaving{key: "condition Terminating"}},
		"Gardener does not":                         {terminating(corev1.ConditionFalse), nil, leaving{}},
		"EKS replaces the nodes of a group":         {taint("eks.amazonaws.com/nodegroup", "unschedulable"), nil, leaving{key: "eks.amazonaws.com/nodegroup", inService: true}},
		"another value of that key":                 {taint("eks.amazonaws.com/nodegroup", "x"), nil, leaving{}},
		"Cluster API has a newer revision":          {taint("node.cluster.x-k8s.io/outdated-revision", ""), nil, leaving{key: "node.cluster.x-k8s.io/outdated-revision", inService: true}},
		"Gardener updates the pool":                 {taint("deployment.machine.sapcloud.io/prefer-no-schedule", "True"), nil, leaving{key: "deployment.machine.sapcloud.io/prefer-no-schedule", inService: true}},
		"kOps updates the group":                    {taint("kops.k8s.io/scheduled-for-update", ""), nil, leaving{key: "kops.k8s.io/scheduled-for-update", inService: true}},
		"an annotation that is not declared":        {annotation, nil, leaving{}},
		"an annotation of the flag":                 {annotation, []string{"example.com/retire"}, leaving{key: "annotation example.com/retire"}},
		"an annotation of the flag with this value": {annotation, []string{"example.com/retire=soon"}, leaving{key: "annotation example.com/retire"}},
		"an annotation of the flag, another value":  {annotation, []string{"example.com/retire=now"}, leaving{}},
		"a label of the flag":                       {label, []string{"x", "example.com/retire"}, leaving{key: "label example.com/retire"}},
		"a taint of the flag":                       {taint("example.com/retire", "x"), []string{"example.com/retire"}, leaving{key: "example.com/retire"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			c.change(node)
			got := leavingOf(node, v1alpha1.UntunedTaint, c.additional)
			if got.key != c.want.key || got.inService != c.want.inService {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestEachMarkOfALeavingNodeHasASource(t *testing.T) {
	if sources := strings.Count(string(leavingYAML), "\n  source: "); sources != len(leavingMarks) || sources < 15 {
		t.Errorf("got %d sources for %d marks", sources, len(leavingMarks))
	}
}

// TestANodeWithoutAMarkCostsNoAllocations counts, because each pass reads every node of the cluster.
func TestANodeWithoutAMarkCostsNoAllocations(t *testing.T) {
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a"}}}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	check.Equal(t, "allocations", 0, testing.AllocsPerRun(5, func() { leavingOf(node, v1alpha1.UntunedTaint, nil) }))
}

// TestANodeThatNeverWasReadyIsUnavailableSinceItsCreation has no condition Ready yet.
func TestANodeThatNeverWasReadyIsUnavailableSinceItsCreation(t *testing.T) {
	created := metav1.Date(2026, 11, 21, 11, 59, 40, 0, time.UTC)
	got, err := passOf(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: created}}).readSnapshot(t.Context())
	check.NoError(t, err)
	if since := got.Nodes[0].UnavailableSince; since == nil || !since.Equal(created.Time) {
		t.Errorf("got unavailable since %v, want %s", since, created)
	}
}

// TestTheUntunedTaintNeverMarksANodeAsLeaving uses an unusual key for the untuned taint.
func TestTheUntunedTaintNeverMarksANodeAsLeaving(t *testing.T) {
	s := passOf(t)
	s.UntunedTaint = "ToBeDeletedByClusterAutoscaler"
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: s.UntunedTaint}}}}
	if mark := leavingOf(node, s.UntunedTaint, []string{s.UntunedTaint}); mark.key != "" {
		t.Errorf("got mark %s, want none", mark.key)
	}
}

// TestTimeSinceWhichANodeIsLeaving tests the time from which nodes that are out of service for long stop counting.
func TestTimeSinceWhichANodeIsLeaving(t *testing.T) {
	since := metav1.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		taint corev1.Taint
		want  time.Time
	}{
		"the taint shows it":                              {corev1.Taint{Key: "karpenter.sh/disrupted", TimeAdded: &since}, since.Add(plan.MaxSkew)},
		"the Cluster Autoscaler writes it into the value": {corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "1763640000"}, time.Unix(1763640000, 0).Add(plan.MaxSkew)},
		"a value of another taint is a number":            {corev1.Taint{Key: "karpenter.sh/disrupted", Value: "1763640000"}, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)},
		"the taint does not show it, so it is seen now":   {corev1.Taint{Key: "karpenter.sh/disrupted", Value: "x"}, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)},
		"another taint shows it and does not count":       {corev1.Taint{Key: "team", TimeAdded: &since}, time.Time{}},
		"an outdated node still serves":                   {corev1.Taint{Key: "node.cluster.x-k8s.io/outdated-revision", TimeAdded: &since}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{c.taint}},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
			}
			got, err := passOf(t, node).readSnapshot(t.Context())
			check.NoError(t, err)
			if at := got.Nodes[0].UnavailableSince; (at != nil) != !c.want.IsZero() || (at != nil && !at.Equal(c.want)) {
				t.Errorf("got unavailable since %v, want %s", at, c.want)
			}
		})
	}
}

// TestTheTimeOfAMarkStartsAgainWhenItReturns has a node that loses its mark while it is not Ready.
func TestTheTimeOfAMarkStartsAgainWhenItReturns(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"not Ready": func(n *corev1.Node) { n.Status.Conditions = nil },
		"deleted":   func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: passTime} },
		"cordoned": func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, TimeAdded: &metav1.Time{Time: passTime}}}
		},
	} {
		node := readyNodeSince(passTime.Add(-48*time.Hour), corev1.ConditionTrue)
		w, marked := newSightWorld(t), leaving{key: "example.com/retire"}
		w.expectUnavailableSince(node, marked, passTime)
		w.clock.Step(24 * time.Hour)
		without := node.DeepCopy()
		change(without)
		_ = w.unavailableSince(without, leaving{})
		w.expectUnavailableSince(node, marked, passTime.Add(24*time.Hour))
		if t.Failed() {
			t.Fatalf("%s: the mark was gone meanwhile", name)
		}
	}
}

var passTime = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func readyNodeSince(at time.Time, status corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", CreationTimestamp: metav1.Time{Time: passTime.Add(-240 * time.Hour)}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Time{Time: at}},
		}},
	}
}

// sightWorld is a manager whose clock a test moves.
type sightWorld struct {
	*pass
	t     *testing.T
	clock *testingclock.FakeClock
}

func newSightWorld(t *testing.T) *sightWorld {
	w := &sightWorld{pass: passOf(t), t: t, clock: testingclock.NewFakeClock(passTime)}
	w.Clock = w.clock
	return w
}

func (w *sightWorld) expectUnavailableSince(node *corev1.Node, mark leaving, want time.Time) {
	w.t.Helper()
	if got := w.unavailableSince(node, mark); got == nil || !got.Equal(want) {
		w.t.Errorf("got unavailable since %v, want %s", got, want)
	}
}

func maintainedSince(node *corev1.Node, reason string, status corev1.ConditionStatus, at time.Time) *corev1.Node {
	node = node.DeepCopy()
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeMaintenanceInProgress, Status: status, Reason: reason, LastTransitionTime: metav1.Time{Time: at},
	})
	return node
}

// TestTimeSinceWhichANodeIsInMaintenance has a Ready node that no client has cordoned. Budgets count it as out of service, so they need a time.
func TestTimeSinceWhichANodeIsInMaintenance(t *testing.T) {
	ready := readyNodeSince(passTime.Add(-48*time.Hour), corev1.ConditionTrue)
	since := passTime.Add(-24 * time.Hour)
	for name, c := range map[string]struct {
		node *corev1.Node
		want time.Time
	}{
		"of another controller":                      {maintainedSince(ready, "KernelUpdate", corev1.ConditionTrue, since), since.Add(plan.MaxSkew)},
		"of another controller, without a reason":    {maintainedSince(ready, "", corev1.ConditionTrue, since), since.Add(plan.MaxSkew)},
		"of another controller, without a time":      {maintainedSince(ready, "KernelUpdate", corev1.ConditionTrue, time.Time{}), passTime},
		"of another controller, over":                {maintainedSince(ready, "KernelUpdate", corev1.ConditionFalse, since), time.Time{}},
		"of the operator, which counts its own work": {maintainedSince(ready, maintenanceReason, corev1.ConditionTrue, since), time.Time{}},
	} {
		got, err := passOf(t, c.node).readSnapshot(t.Context())
		check.NoError(t, err)
		if at := got.Nodes[0].UnavailableSince; (at != nil) != !c.want.IsZero() || at != nil && !at.Equal(c.want) {
			t.Errorf("%s: got unavailable since %v, want %s", name, at, c.want)
		}
	}
}

// A condition that was False for a while starts again.
func TestTheTimeOfAMaintenanceStartsAgainWhenItReturns(t *testing.T) {
	w, ready := newSightWorld(t), readyNodeSince(passTime.Add(-48*time.Hour), corev1.ConditionTrue)
	maintained := maintainedSince(ready, "KernelUpdate", corev1.ConditionTrue, passTime)
	w.expectUnavailableSince(maintained, leaving{}, passTime)
	w.clock.Step(24 * time.Hour)
	if got := w.unavailableSince(maintainedSince(ready, "KernelUpdate", corev1.ConditionFalse, w.clock.Now()), leaving{}); got != nil {
		t.Errorf("got unavailable since %s after the maintenance, want none", got)
	}
	w.clock.Step(time.Hour)
	w.expectUnavailableSince(maintainedSince(ready, "KernelUpdate", corev1.ConditionTrue, w.clock.Now()), leaving{}, w.clock.Now())
}

// The kubelet and other controllers write their own times. A manager that sees the change counts from that moment. A manager that starts later
// counts from a time at which the change had happened if the other clock is at most plan.MaxSkew behind.
func TestNoClockOfAnotherMachineShortensAWait(t *testing.T) {
	for name, lead := range map[string]time.Duration{"ahead": plan.MaxSkew, "in step": 0, "behind": -plan.MaxSkew, "far behind": -20 * time.Hour} {
		reported := passTime.Add(lead)
		notReady, ready := readyNodeSince(reported, corev1.ConditionFalse), readyNodeSince(passTime.Add(-20*time.Hour), corev1.ConditionTrue)
		cordoned := ready.DeepCopy()
		cordoned.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, TimeAdded: &metav1.Time{Time: reported}}}
		marked := leaving{key: "taint x", time: &reported}
		maintained := maintainedSince(ready, "KernelUpdate", corev1.ConditionTrue, reported)
		for state, see := range map[string]func(*pass) time.Time{
			"not Ready":   func(s *pass) time.Time { return *s.unavailableSince(notReady, leaving{}) },
			"Ready again": func(s *pass) time.Time { return s.readySince(readyNodeSince(reported, corev1.ConditionTrue)) },
			"cordoned":    func(s *pass) time.Time { return *s.unavailableSince(cordoned, leaving{}) },
			"marked":      func(s *pass) time.Time { return *s.unavailableSince(ready, marked) },
			"maintained":  func(s *pass) time.Time { return *s.unavailableSince(maintained, leaving{}) },
		} {
			witness := newSightWorld(t)
			before := ready
			if state == "Ready again" {
				before = readyNodeSince(passTime.Add(-time.Hour), corev1.ConditionFalse)
			}
			_ = witness.unavailableSince(before, leaving{})
			witness.clock.Step(time.Hour)
			since := witness.clock.Now()
			for range 3 {
				if got := see(witness.pass); !got.Equal(since) {
					t.Errorf("%s, clock %s: got %s, want %s, the time of the pass that saw it", state, name, got, since)
				}
				witness.clock.Step(time.Hour)
			}
			late := newSightWorld(t)
			late.clock.Step(time.Minute)
			if got := see(late.pass); got.Before(passTime) && lead >= -plan.MaxSkew || got.After(late.clock.Now()) {
				t.Errorf("%s, clock %s: a manager that starts a minute later got %s, want a time between the change and now", state, name, got)
			}
		}
	}
}

// The soak of a canary must not count time that it was out. So a time at which it may have gone out is never too late, whenever the manager starts.
func TestTheTimeSinceWhichANodeIsOutIsNeverTooLate(t *testing.T) {
	for name, lead := range map[string]time.Duration{"ahead": plan.MaxSkew, "in step": 0, "behind": -plan.MaxSkew} {
		ready, out := readyNodeSince(passTime.Add(-20*time.Hour), corev1.ConditionTrue), readyNodeSince(passTime.Add(lead), corev1.ConditionFalse)
		back := readyNodeSince(passTime.Add(time.Hour+lead), corev1.ConditionTrue)
		expectOut := func(w *sightWorld, node *corev1.Node, from, to time.Time) {
			t.Helper()
			if got := w.sightReady(node).out; got.Before(from) || got.After(to) {
				t.Errorf("clock %s: got out since %s, want between %s and %s", name, got, from, to)
			}
		}
		witness := newSightWorld(t)
		witness.clock.SetTime(passTime.Add(-time.Minute))
		expectOut(witness, ready, time.Time{}, time.Time{})
		witness.clock.SetTime(passTime.Add(time.Minute))
		expectOut(witness, out, passTime.Add(-time.Minute), passTime)
		expectOut(witness, ready, time.Time{}, time.Time{}) // from a cache that is behind
		expectOut(witness, out, passTime.Add(-time.Minute), passTime)
		witness.clock.SetTime(passTime.Add(2 * time.Hour))
		expectOut(witness, back, passTime.Add(-time.Minute), passTime)

		late := newSightWorld(t)
		late.clock.SetTime(passTime.Add(20 * time.Minute))
		expectOut(late, out, passTime.Add(-2*plan.MaxSkew), passTime)
		tooLate := newSightWorld(t)
		tooLate.clock.SetTime(passTime.Add(2 * time.Hour))
		expectOut(tooLate, back, time.Time{}, time.Time{})
	}
}

// A long outage counts as such soon after a manager has started, and Nodes that are gone leave no memory.
func TestAManagerThatStartsKnowsLongOutages(t *testing.T) {
	w := newSightWorld(t)
	w.expectUnavailableSince(readyNodeSince(passTime.Add(-time.Hour), corev1.ConditionUnknown), leaving{}, passTime.Add(plan.MaxSkew-time.Hour))
	w.forgetSightings()
	if len(w.sightings) > 0 {
		t.Errorf("got %d sightings of no node", len(w.sightings))
	}
}

// The soak of a canary ends when its agent stops reporting, and starts again when the agent returns.
func TestASilentAgentStartsAPass(t *testing.T) {
	tuned := func(reason string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: v1alpha1.TunedNodeCondition, Reason: reason}}}}
	}
	silent, well, failed := tuned(v1alpha1.NodeReasonAgentSilent), tuned(v1alpha1.NodeReasonTuned), tuned(v1alpha1.NodeReasonSettingsFailed)
	for name, c := range map[string]struct {
		before, after *corev1.Node
		want          bool
	}{"it begins": {well, silent, true}, "it ends": {silent, well, true}, "it lasts": {silent, silent, false}, "another reason": {well, failed, false}} {
		if seen := watch.NodeChanged(isSameNode).Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); seen != c.want {
			t.Errorf("%s: got a pass %t, want %t", name, seen, c.want)
		}
	}
	for _, node := range []*corev1.Node{silent, well} {
		node.Name = "a"
		got, err := passOf(t, node).readSnapshot(t.Context())
		check.NoError(t, err)
		check.Equal(t, "silent", node == silent, got.Nodes[0].AgentSilent)
	}
}

func TestTimeSinceWhichAnAgentAppliesSettings(t *testing.T) {
	const key = "sysctl/net.core.rmem_max"
	clientNode := func(hash string, release bool, state v1alpha1.SettingState) *v1alpha1.StorageClientNode {
		return &v1alpha1.StorageClientNode{
			Spec: v1alpha1.StorageClientNodeSpec{Hash: "h1", Release: release, Settings: []v1alpha1.NodeSetting{{Key: key, Value: "1"}}},
			Status: v1alpha1.StorageClientNodeStatus{
				Hash: hash, ObservedGeneration: 1, Settings: []v1alpha1.SettingStatus{{Key: key, State: state, TakesEffect: v1alpha1.EffectLive}},
			},
		}
	}
	for name, c := range map[string]struct {
		clientNode *v1alpha1.StorageClientNode
		want       bool
	}{
		"it has not reported them yet":    {clientNode("h0", false, v1alpha1.SettingInSync), true},
		"it is confirming them":           {clientNode("h1", false, v1alpha1.SettingPending), true},
		"they are applied":                {clientNode("h1", false, v1alpha1.SettingInSync), false},
		"they failed":                     {clientNode("h1", false, v1alpha1.SettingFailed), false},
		"the node is released":            {clientNode("h1", true, v1alpha1.SettingPending), false},
		"the node has no settings at all": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := passOf(t)
			if since := s.recordApplying(c.clientNode, "a"); since.IsZero() == c.want {
				t.Errorf("got time %s, want one: %t", since, c.want)
			}
		})
	}
}

func TestMaintainerOf(t *testing.T) {
	condition := func(reason string, status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeMaintenanceInProgress, Status: status, Reason: reason},
		}}}
	}
	for name, c := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"a node without such a condition":   {&corev1.Node{}, ""},
		"a condition of the operator":       {condition(maintenanceReason, corev1.ConditionTrue), ""},
		"a condition of another controller": {condition("KernelUpdate", corev1.ConditionTrue), "KernelUpdate"},
		"a condition that is False":         {condition("KernelUpdate", corev1.ConditionFalse), ""},
		"a condition without a reason":      {condition("", corev1.ConditionTrue), "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, "result", c.want, maintainerOf(c.node))
			if seen := watch.NodeChanged(isSameNode).Update(event.UpdateEvent{ObjectOld: &corev1.Node{}, ObjectNew: c.node}); c.want != "" && !seen {
				t.Error("no pass after the condition was added")
			}
		})
	}
}
