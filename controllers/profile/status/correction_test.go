package status

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/check"
)

// receive gives a node its desired settings. Its agent has not reported on them yet.
func (w *world) receive(at int) {
	clientNode := w.objects[w.nodes[at].Name]
	desired := w.snapshot().Profiles.Desired(&w.nodes[at], clientNode)
	clientNode.Spec.Settings, clientNode.Spec.Hash, clientNode.Spec.BootHash = desired.Settings, desired.Hash, desired.BootHash
	clientNode.Generation++
}

// reportAll makes an agent report all settings of its node as effective, except kernel arguments, which need a reboot.
func (w *world) reportAll(at int) {
	clientNode := w.objects[w.nodes[at].Name]
	status := &clientNode.Status
	status.ObservedGeneration, status.Hash, status.Settings = clientNode.Generation, clientNode.Spec.Hash, nil
	status.RebootRequired, status.RebootRequiredBy = false, nil
	for _, s := range clientNode.Spec.Settings {
		reported := v1alpha1.SettingStatus{Key: s.Key, Desired: s.Value, State: v1alpha1.SettingInSync}
		if s.Key == "kernelArgument/dhash_entries" {
			reported.State, reported.TakesEffect = v1alpha1.SettingPending, v1alpha1.EffectReboot
			status.RebootRequired, status.RebootRequiredBy = true, []string{s.Key}
		}
		status.Settings = append(status.Settings, reported)
	}
}

// A commit corrects a profile after a failure of node a. No later state is Degraded in Argo CD, or Failed in Flux: the failure belongs to the settings
// before the commit. Only a node that is down has still failed.
func TestACorrectionIsNeverDegraded(t *testing.T) {
	const sysctl = "sysctl/net.core.rmem_max"
	failedBoot := func(reason string) func(*corev1.Node, *v1alpha1.StorageClientNode) {
		return func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
			rebootDue(reason)(n, s)
			s.Status.Rollout.Phase = v1alpha1.RolloutFailed
		}
	}
	withoutArgument := func(s *v1alpha1.StorageClientProfileSpec) { s.Node.KernelArguments = nil }
	otherArgument := func(s *v1alpha1.StorageClientProfileSpec) {
		s.Node.KernelArguments = []v1alpha1.KernelArgument{"dhash_entries=16777216"}
	}
	for name, test := range map[string]struct {
		failed  func(*corev1.Node, *v1alpha1.StorageClientNode)
		correct func(*v1alpha1.StorageClientProfileSpec)
		// down takes node a out of service: it cannot get the correction, so its failure still stops the rollout.
		down func(*world)
	}{
		"a reboot timed out; the argument is removed":  {failed: failedBoot(v1alpha1.RolloutReasonRebootTimedOut), correct: withoutArgument},
		"a reboot timed out; the argument is another":  {failed: failedBoot(v1alpha1.RolloutReasonRebootTimedOut), correct: otherArgument},
		"an argument had no effect, and was withdrawn": {failed: withdrawn(failedBoot(v1alpha1.RolloutReasonRebootWithoutEffect)), correct: otherArgument},
		"a live value failed; the value is another": {failed: state(sysctl, v1alpha1.SettingFailed), correct: func(s *v1alpha1.StorageClientProfileSpec) {
			s.Node.Sysctls = map[string]v1alpha1.SettingText{"net.core.rmem_max": "8388608"}
		}},
		"a live value failed; the key is removed": {failed: state(sysctl, v1alpha1.SettingFailed), correct: func(s *v1alpha1.StorageClientProfileSpec) { s.Node.Sysctls = nil }},
		"the node is down": {
			failed: failedBoot(v1alpha1.RolloutReasonRebootTimedOut), correct: withoutArgument,
			down: func(w *world) { w.nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown },
		},
		"the node's agent is down, after a boot": {
			failed: failedBoot(v1alpha1.RolloutReasonRebootTimedOut), correct: withoutArgument, down: func(w *world) { w.silent["a"] = true },
		},
		"the node's agent is down, after a live value": {
			failed: state(sysctl, v1alpha1.SettingFailed), correct: func(s *v1alpha1.StorageClientProfileSpec) { s.Node.Sysctls = nil },
			down: func(w *world) { w.silent["a"] = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(policy(v1alpha1.RebootAutomatic)).node("a", test.failed).node("b", rebootDue(v1alpha1.RolloutReasonCanaryFailed))
			conditions := func() (stalled, reconciling, ready *metav1.Condition) {
				list := w.report().Status(v1alpha1.StorageClientProfileStatus{}, now).Conditions
				return meta.FindStatusCondition(list, v1alpha1.ConditionStalled), meta.FindStatusCondition(list, v1alpha1.ConditionReconciling),
					meta.FindStatusCondition(list, v1alpha1.ConditionReady)
			}
			if stalled, _, _ := conditions(); stalled.Status != metav1.ConditionTrue {
				t.Fatalf("got Stalled=%s before the commit", stalled.Status)
			}
			test.correct(&w.profiles[0].Spec)
			w.profiles[0].Generation++
			if test.down != nil {
				test.down(w)
			}
			expect := func(moment string) {
				t.Helper()
				stalled, reconciling, _ := conditions()
				// test/gitops checks that the engines show these reasons as Progressing and InProgress, and as Degraded and Failed.
				want := [2]string{string(metav1.ConditionFalse), v1alpha1.ReasonRollingOut}
				if test.down != nil {
					want = [2]string{string(metav1.ConditionTrue), v1alpha1.ReasonFailureThreshold}
				}
				if got := [2]string{string(stalled.Status), reconciling.Reason}; got != want {
					t.Errorf("%s: got Stalled and Reconciling %q, want %q: %s", moment, got, want, stalled.Message)
				}
			}
			expect("the commit")
			if test.down != nil {
				return
			}
			for i, n := range w.nodes {
				w.receive(i)
				expect("the settings are written to " + n.Name)
			}
			w.reportAll(0)
			expect("the agent of a has reported")
			w.reportAll(1)
			stalled, _, ready := conditions()
			if stalled.Status == metav1.ConditionTrue {
				t.Errorf("all agents have reported: got Stalled=True %s: %s", stalled.Reason, stalled.Message)
			}
			if got, want := ready.Status == metav1.ConditionTrue, !w.objects["b"].Status.RebootRequired; got != want {
				t.Errorf("all agents have reported: got Ready=%s %s: %s", ready.Status, ready.Reason, ready.Message)
			}
		})
	}
}

// withdrawn removes the kernel argument from the spec of a node, as the manager does after a reboot without effect.
func withdrawn(change func(*corev1.Node, *v1alpha1.StorageClientNode)) func(*corev1.Node, *v1alpha1.StorageClientNode) {
	return func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
		change(n, s)
		s.Spec.Settings = slices.DeleteFunc(s.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == bootKey })
		s.Status.Settings = slices.DeleteFunc(s.Status.Settings, func(s v1alpha1.SettingStatus) bool { return s.Key == bootKey })
		s.Status.RebootRequired, s.Status.RebootRequiredBy = false, nil
	}
}

// A failure by the word of one storage server with an earlier value is no failure of the current one. It hides no failure of another node.
func TestADisputeAboutAnEarlierValueIsOver(t *testing.T) {
	const sysctl = "sysctl/net.core.rmem_max"
	w := newWorld(nil).node("a", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
		failedBy(sysctl, "filer")(n, s)
		last(s).Desired = "1"
	}).node("b", state(sysctl, v1alpha1.SettingFailed))
	if got := w.report().nodes; got.counts.Failed != 1 || got.disputed != 0 {
		t.Errorf("got %d failed nodes, %d of them disputed; want 1 and 0", got.counts.Failed, got.disputed)
	}
	if got := w.report().evaluateStalled(); got.reason != v1alpha1.ReasonFailureThreshold {
		t.Errorf("got Stalled=%s %s", got.status, got.reason)
	}
}

// A failed canary is replaced, and a commit has changed the argument. The note of the other node is older than its settings: it waits for no canary.
func TestANoteAboutEarlierSettingsStallsNothing(t *testing.T) {
	w := newWorld(policy(v1alpha1.RebootAutomatic)).node("b", rebootDue(v1alpha1.RolloutReasonCanaryFailed))
	if got := w.report().evaluateStalled(); got.status != metav1.ConditionTrue {
		t.Fatalf("got Stalled=%s %s before the commit", got.status, got.reason)
	}
	w.profiles[0].Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"dhash_entries=16777216"}
	w.receive(0)
	w.reportAll(0)
	want := "Ready=False/RollingOut Reconciling=True/RollingOut"
	check.Equal(t, "summary", want, summary(w.report()))
}
