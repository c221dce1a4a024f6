package status

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// recordedFailures returns recorded failures of nodes for the settings of p that require a reboot.
func recordedFailures(w *world, nodes ...v1alpha1.FailedNode) *v1alpha1.ProfileFailures {
	_, hash := nodesettings.Hashes(nodesettings.Settings(&w.profiles[0]))
	return &v1alpha1.ProfileFailures{Boots: []v1alpha1.BootFailures{{BootHash: hash, Settings: nodesettings.BootSettingsHash(&w.profiles[0]), Nodes: nodes}}}
}

func failedNode(name, uid string, ago time.Duration) v1alpha1.FailedNode {
	return v1alpha1.FailedNode{Name: name, UID: uid, At: metav1.NewTime(now.Add(-ago)), Reason: v1alpha1.RolloutReasonNodeLost, Message: "It was deleted"}
}

func phase(phase v1alpha1.RolloutPhase) func(*corev1.Node, *v1alpha1.StorageClientNode) {
	return func(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) {
		node.UID = "u-a"
		clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: phase, BootHash: clientNode.Spec.BootHash}
	}
}

func TestRecordedFailures(t *testing.T) {
	const stopped = "Ready=False/FailureThresholdReached Reconciling=False/FailureThresholdReached Stalled=True/FailureThresholdReached"
	deleted := failedNode("b", "u-b", time.Hour)
	two := func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.FailureThreshold = new(int32(2)) }
	for name, c := range map[string]struct {
		world  *world
		nodes  []v1alpha1.FailedNode
		change func(*v1alpha1.ProfileFailures)
		// want contains the conditions, failed the message about failed nodes, lost the deleted nodes.
		want, failed string
		lost         []string
	}{
		"nothing is recorded": {world: newWorld(nil).node("a", nil), want: "Ready=True/UpToDate"},
		"a node that is gone counts": {
			world: newWorld(nil).node("a", nil), nodes: []v1alpha1.FailedNode{deleted}, want: stopped,
			failed: "Failed on b (gone); change settings that require a reboot, or retry: kubectl storageclient retry p", lost: []string{"b"},
		},
		"also while no node is left": {
			world: newWorld(nil), nodes: []v1alpha1.FailedNode{deleted}, want: stopped,
			failed: "Failed on b (gone); change settings that require a reboot, or retry: kubectl storageclient retry p", lost: []string{"b"},
		},
		"also if another node has its name": {
			world: newWorld(nil).node("b", nil), nodes: []v1alpha1.FailedNode{deleted}, want: stopped,
			failed: "Failed on b (gone); change settings that require a reboot, or retry: kubectl storageclient retry p", lost: []string{"b"},
		},
		"fewer than the threshold": {
			world: newWorld(two).node("a", nil), nodes: []v1alpha1.FailedNode{deleted}, want: "Ready=False/NodesFailed Reconciling=False/NodesFailed Stalled=True/NodesFailed",
			failed: "Failed on b (gone); change settings that require a reboot, or retry: kubectl storageclient retry p", lost: []string{"b"},
		},
		"with one that is there": {
			world: newWorld(two).node("a", phase(v1alpha1.RolloutFailed)), nodes: []v1alpha1.FailedNode{deleted, failedNode("a", "u-a", 0)}, want: stopped,
			failed: "Failed on a, b (gone); change settings that require a reboot, or retry: kubectl storageclient retry p", lost: []string{"b"},
		},
		"an existing node that no longer reports it": {
			world: newWorld(nil).node("a", phase(v1alpha1.RolloutWaiting)), nodes: []v1alpha1.FailedNode{failedNode("a", "u-a", 0)}, want: stopped,
			failed: "Failed on a; next: kubectl storageclient node a",
		},
		"one that has recovered": {
			world: newWorld(nil).node("a", phase(v1alpha1.RolloutUpToDate)), nodes: []v1alpha1.FailedNode{failedNode("a", "u-a", 0)}, want: "Ready=True/UpToDate",
		},
		"those that are only counted": {
			world: newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.FailureThreshold = new(int32(8)) }).node("a", nil),
			nodes: []v1alpha1.FailedNode{failedNode("c", "u-c", time.Minute), deleted}, change: func(f *v1alpha1.ProfileFailures) { f.Boots[0].More = 6 }, want: stopped,
			failed: "Failed on b (gone), c (gone), and 6 earlier; change settings that require a reboot, or retry: kubectl storageclient retry p",
			lost:   []string{"c", "b"},
		},
		"the boot settings are others now": {
			world: newWorld(nil).node("a", nil), nodes: []v1alpha1.FailedNode{deleted}, want: "Ready=True/UpToDate",
			change: func(f *v1alpha1.ProfileFailures) { f.Boots[0].Settings = "other" },
		},
		"no node should have those settings with other profiles' settings": {
			world: newWorld(nil).node("a", nil), nodes: []v1alpha1.FailedNode{deleted}, want: "Ready=True/UpToDate",
			change: func(f *v1alpha1.ProfileFailures) { f.Boots[0].BootHash = "other" },
		},
		"mode Plan counts no failures": {
			world: newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }).node("a", nil), nodes: []v1alpha1.FailedNode{deleted},
			want: "Ready=False/PlanMode Paused=True/PlanMode",
		},
	} {
		t.Run(name, func(t *testing.T) {
			failures := recordedFailures(c.world, c.nodes...)
			if c.change != nil {
				c.change(failures)
			}
			r := Evaluate("p", Snapshot{All: c.world.snapshot(), Failures: *failures}, now)
			check.Equal(t, "summary", c.want, summary(r))
			status := r.Status(v1alpha1.StorageClientProfileStatus{}, now)
			var message string
			for _, condition := range status.Conditions {
				if condition.Type == v1alpha1.ConditionReady && c.failed != "" {
					message = condition.Message
				}
			}
			var lost []string
			for _, node := range status.LostNodes {
				lost = append(lost, node.Name)
			}
			check.Equal(t, "message and deleted nodes", []any{c.failed, c.lost}, []any{message, lost})
			if failed := status.Nodes.Failed; (failed > 0) != (c.failed != "") {
				t.Errorf("got %d failed nodes", failed)
			}
		})
	}
}

// TestRecordedFailuresOutliveEditsOfTheRolloutRules changes the profile after a failure.
func TestRecordedFailuresOutliveEditsOfTheRolloutRules(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1alpha1.StorageClientProfileSpec)
		want int32
	}{
		"no edit":          {func(*v1alpha1.StorageClientProfileSpec) {}, 1},
		"the settle time":  {func(s *v1alpha1.StorageClientProfileSpec) { s.Rollout.SettleSeconds = new(int32(77)) }, 1},
		"another argument": {func(s *v1alpha1.StorageClientProfileSpec) { s.Node.KernelArguments[0] = "nosmt" }, 0},
	} {
		// While the profile has no nodes, failures of all boot hashes count.
		w := newWorld(nil)
		failures := recordedFailures(w, failedNode("b", "u-b", time.Hour))
		c.edit(&w.profiles[0].Spec)
		status := Evaluate("p", Snapshot{All: w.snapshot(), Failures: *failures}, now).Status(v1alpha1.StorageClientProfileStatus{}, now)
		if status.Nodes.Failed != c.want || len(status.LostNodes) != int(c.want) {
			t.Errorf("%s: got %d failed nodes, lost %v; want %d", name, status.Nodes.Failed, status.LostNodes, c.want)
		}
	}
}

func TestLostNodesAreBounded(t *testing.T) {
	w := newWorld(nil).node("a", nil)
	var nodes []v1alpha1.FailedNode
	for i := range 30 {
		nodes = append(nodes, failedNode(strings.Repeat("x", i+1), "u", time.Duration(i)*time.Minute))
	}
	snapshot := Snapshot{All: w.snapshot(), Failures: *recordedFailures(w, nodes...)}
	status := Evaluate("p", snapshot, now).Status(v1alpha1.StorageClientProfileStatus{}, now)
	if len(status.LostNodes) != 20 || status.LostNodes[0].Name != "x" || status.Nodes.Failed != 30 {
		t.Errorf("got %d of %d nodes named, %q first", len(status.LostNodes), status.Nodes.Failed, status.LostNodes[0].Name)
	}
}

func TestFailuresThatCannotBeReadStopTheProfile(t *testing.T) {
	w := newWorld(nil).node("a", nil)
	r := Evaluate("p", Snapshot{All: w.snapshot(), FailuresUnread: "Cannot read it"}, now)
	want := "Ready=False/FailureThresholdReached Reconciling=False/FailureThresholdReached Stalled=True/FailureThresholdReached"
	check.Equal(t, "summary", want, summary(r))
}

func TestAnImmutableConfigMapStallsWhatWaitsForTheRollout(t *testing.T) {
	disrupted := func(n *corev1.Node, c *v1alpha1.StorageClientNode) {
		n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"p"}`}
		c.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutSettling}
	}
	stalled := "Ready=False/ConfigMapImmutable Reconciling=False/ConfigMapImmutable Stalled=True/ConfigMapImmutable"
	for name, test := range map[string]struct {
		world *world
		want  string
	}{
		"a reboot is due":                   {newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue("")), stalled},
		"a node must return to service":     {newWorld(nil).node("a", disrupted), stalled},
		"nothing is due":                    {newWorld(nil).node("a", nil), "Ready=True/UpToDate"},
		"a reboot is due, and not approved": {newWorld(nil).node("a", rebootDue("")), "Ready=False/RebootPending Reconciling=True/WaitingForApproval"},
		"a reboot is due, and the profile is paused": {
			newWorld(func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Paused, p.Spec.Rollout.Reboot.Policy = true, v1alpha1.RebootAutomatic
			}).node("a", rebootDue("")),
			"Ready=False/RollingOut Reconciling=False/PausedByField Paused=True/PausedByField",
		},
		"mode Plan": {
			newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }).node("a", rebootDue("")),
			"Ready=False/PlanMode Paused=True/PlanMode",
		},
		"the profile is being deleted": {newWorld(deleting).node("a", disrupted), "Ready=False/Restoring Reconciling=True/Restoring"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Evaluate("p", Snapshot{All: test.world.snapshot(), Immutable: []string{"one", "other"}}, now)
			check.Equal(t, "summary", test.want, summary(r))
			message := r.evaluateReady(r.evaluateStalled()).message
			isAdvised := strings.Contains(strings.ToLower(message), "immutable configmap stops the rollout; recreate it: kubectl -n storage-client-system get cm one other -o yaml | sed")
			if want := strings.Contains(test.want, "ConfigMapImmutable") || strings.Contains(test.want, "Restoring"); isAdvised != want {
				t.Errorf("got the advice %t, want %t: %s", isAdvised, want, message)
			}
		})
	}
}
