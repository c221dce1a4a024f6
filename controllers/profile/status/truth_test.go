package status

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

// withOtherProfile adds a profile for the same nodes with one sysctl. The nodes have this sysctl and report it with this value.
func (w *world) withOtherProfile(value string) *world {
	other := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "other", Finalizers: []string{v1alpha1.Finalizer}}}
	other.Spec = w.profiles[0].Spec
	other.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.wmem_max": "16777216"}}
	w.profiles = append(w.profiles, other)
	for _, clientNode := range w.objects {
		clientNode.Spec.Settings = append(clientNode.Spec.Settings, v1alpha1.NodeSetting{Key: "sysctl/net.core.wmem_max", Value: value, Profile: "other"})
		clientNode.Spec.Hash, clientNode.Spec.BootHash = nodesettings.Hashes(clientNode.Spec.Settings)
		clientNode.Status.Settings = append(clientNode.Status.Settings, v1alpha1.SettingStatus{Key: "sysctl/net.core.wmem_max", Desired: value, State: v1alpha1.SettingInSync})
		clientNode.Status.Hash = clientNode.Spec.Hash
	}
	return w
}

func TestEachProfileHasItsOwnCounts(t *testing.T) {
	setOwn := func(value string) func(*v1alpha1.StorageClientNode) {
		return func(s *v1alpha1.StorageClientNode) {
			for i := range s.Spec.Settings {
				if s.Spec.Settings[i].Key == "sysctl/net.core.rmem_max" {
					s.Spec.Settings[i].Value = value
				}
			}
		}
	}
	for name, test := range map[string]struct {
		world  *world
		change func(*v1alpha1.StorageClientNode)
		want   int32
	}{
		"another profile's edit has yet to reach the node":  {world: newWorld(nil).node("a", nil).withOtherProfile("1"), want: 1},
		"the agent has yet to report on another one's edit": {newWorld(nil).node("a", nil).withOtherProfile("16777216"), func(s *v1alpha1.StorageClientNode) { s.Status.Hash = "before" }, 1},
		"another profile's value has failed":                {newWorld(nil).node("a", nil).withOtherProfile("16777216"), func(s *v1alpha1.StorageClientNode) { last(s).State = v1alpha1.SettingFailed }, 1},
		"its own edit has yet to reach the node":            {newWorld(nil).node("a", nil).withOtherProfile("16777216"), setOwn("1"), 0},
		"the agent has yet to report on its own edit":       {newWorld(nil).node("a", nil).withOtherProfile("16777216"), func(s *v1alpha1.StorageClientNode) { s.Status.Settings[0].Desired = "before" }, 0},
		"a setting of this profile is being removed": {newWorld(nil).node("a", nil).withOtherProfile("16777216"), func(s *v1alpha1.StorageClientNode) {
			s.Spec.Settings = append(s.Spec.Settings, v1alpha1.NodeSetting{Key: "sysctl/vm.dirty_ratio", Value: "1", Profile: "p"})
		}, 0},
		"a removed setting must still be restored, without other profiles": {newWorld(nil).node("a", nil), func(s *v1alpha1.StorageClientNode) { s.Status.Hash = "before" }, 0},
		"the node is being released":                                       {newWorld(nil).node("a", nil).withOtherProfile("16777216"), func(s *v1alpha1.StorageClientNode) { s.Spec.Release = true }, 0},
		"the agent has never reported":                                     {newWorld(nil).node("a", nil).withOtherProfile("16777216"), func(s *v1alpha1.StorageClientNode) { s.Status.ObservedGeneration = 0 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if test.change != nil {
				test.change(test.world.objects["a"])
			}
			if got := test.world.report().nodes.counts.UpToDate; got != test.want {
				t.Errorf("got %d up to date, want %d", got, test.want)
			}
		})
	}
}

func last(s *v1alpha1.StorageClientNode) *v1alpha1.SettingStatus {
	return &s.Status.Settings[len(s.Status.Settings)-1]
}

func TestAnInvalidProfileHasNoNodeUpToDate(t *testing.T) {
	for name, node := range map[string]*v1alpha1.NodeTuning{
		"that never was applied":          {Sysctls: map[string]v1alpha1.SettingText{"vm.no_such_key": "1"}},
		"of which nodes carry the rest":   {Sysctls: map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216", "vm.no_such_key": "1"}},
		"of which nodes carry everything": {Sysctls: map[string]v1alpha1.SettingText{"vm.no_such_key": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Node = node }).node("a", nil).node("b", nil)
			if name == "that never was applied" {
				for _, clientNode := range w.objects {
					clientNode.Spec.Settings, clientNode.Status.Settings = nil, nil
				}
			}
			r := Evaluate("p", Snapshot{All: w.snapshot(), MaxUnavailable: intstr.FromInt32(1)}, now)
			got := r.Status(v1alpha1.StorageClientProfileStatus{}, now)
			if got.Nodes.Matched != 2 || got.Nodes.UpToDate != 0 || got.Plan.NodesToReboot != 0 {
				t.Errorf("got %+v, %+v", got.Nodes, got.Plan)
			}
		})
	}
}

// The status, the plugin's plan and the approval use the same list of nodes, regardless of the nodes' settings and reports.
func TestStatusAndPluginShowTheSamePlan(t *testing.T) {
	states := []v1alpha1.SettingState{
		v1alpha1.SettingInSync, v1alpha1.SettingPending, v1alpha1.SettingFailed, v1alpha1.SettingClamped, v1alpha1.SettingDrifted, v1alpha1.SettingShadowed,
	}
	rng := rand.New(rand.NewPCG(1, 2))
	count := 0
	for i := range 500 {
		w := newWorld(func(p *v1alpha1.StorageClientProfile) {
			if rng.IntN(3) == 0 {
				p.Spec.Mode = v1alpha1.ModePlan
			}
			if rng.IntN(3) == 0 {
				p.Spec.Rollout.Windows = saturdays
			}
		})
		for n := range rng.IntN(8) {
			name := fmt.Sprintf("node-%d", n)
			if rng.IntN(3) == 0 {
				w.bare(name)
				continue
			}
			w.node(name, func(node *corev1.Node, s *v1alpha1.StorageClientNode) {
				if rng.IntN(5) == 0 {
					node.Annotations = map[string]string{v1alpha1.NeverDisruptAnnotation: "true"}
				}
				if rng.IntN(5) == 0 {
					s.Status.Bootloader = &v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubBLS, Message: "staged only"}
				}
				state(bootKey, states[rng.IntN(len(states))])(node, s)
				if rng.IntN(3) == 0 {
					s.Spec.Settings, s.Status.Settings = s.Spec.Settings[1:], s.Status.Settings[1:]
				}
			})
		}
		if rng.IntN(2) == 0 {
			w.withOtherProfile("16777216")
			w.profiles[1].Spec.Priority, w.profiles[1].Spec.Mode = 1, v1alpha1.ModeEnforce
			if rng.IntN(2) == 0 {
				w.profiles[1].Spec.Node.KernelArguments = []v1alpha1.KernelArgument{"ihash_entries=1"}
			}
		}
		r := Evaluate("p", Snapshot{All: w.snapshot(), MaxUnavailable: intstr.FromInt32(2), ManagerNode: "node-1"}, now)
		got := r.Status(v1alpha1.StorageClientProfileStatus{}, now).Plan

		cluster := overview.Cluster{Profiles: w.profiles, Nodes: w.nodes, Allow: catalogue.AllowList{}, MaxUnavailable: intstr.FromInt32(2), ManagerNode: "node-1", Now: now}
		for _, clientNode := range w.objects {
			cluster.StorageClientNodes = append(cluster.StorageClientNodes, *clientNode)
		}
		preview := overview.Plan(&w.profiles[0], cluster)
		want := v1alpha1.Plan{Hash: preview.PlanHash, NodesToReboot: int32(len(preview.Reboots)), EstimatedCompletion: preview.EstimatedCompletion}
		for _, reboot := range preview.Reboots {
			want.Examples = append(want.Examples, reboot.Node)
		}
		if r.evaluateStalled().status == metav1.ConditionTrue {
			want.EstimatedCompletion = nil
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(v1alpha1.Plan{}, "LimitedBy")); diff != "" {
			t.Fatalf("world %d (-plugin +status):\n%s", i, diff)
		}
		if want.NodesToReboot > r.nodes.counts.PendingReboot {
			count++
		}
	}
	if count == 0 {
		t.Error("no world has a node that has not received its settings that require a reboot")
	}
}

// A failed canary blocks all other nodes, even if the profile allows more failures. The rollout stops, and the profile reports it.
func TestAFailedCanaryBelowTheThresholdIsFinal(t *testing.T) {
	allowsTwo := func(p *v1alpha1.StorageClientProfile) {
		p.Spec.Rollout.FailureThreshold, p.Spec.Rollout.Reboot.Policy = new(int32(2)), v1alpha1.RebootAutomatic
	}
	liveFailed := state("sysctl/net.core.rmem_max", v1alpha1.SettingFailed)
	rebootFailed := func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
		rebootDue(v1alpha1.RolloutReasonRebootTimedOut)(n, s)
		s.Status.Rollout.Phase = v1alpha1.RolloutFailed
	}
	disrupted := func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
		n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"p"}`}
	}
	cordoned := func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
		rebootFailed(n, s)
		disrupted(n, s)
	}
	former := func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Spec.Hash = "former" }
	applying := func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Status.Hash = "former" }
	const stalled = "Ready=False/NodesFailed Reconciling=False/NodesFailed Stalled=True/NodesFailed"
	for name, test := range map[string]struct {
		world         *world
		want, message string
	}{
		"live settings, on nodes that are new": {
			newWorld(allowsTwo).node("a", liveFailed).bare("b").bare("c"), stalled, "Failed on a; 2 nodes wait for this canary; next: kubectl storageclient node a",
		},
		"live settings, on nodes that have others": {
			newWorld(allowsTwo).node("a", liveFailed).node("b", former), stalled, "Failed on a; 1 node waits for this canary; next: kubectl storageclient node a",
		},
		"not while another node is still taking them": {
			newWorld(func(p *v1alpha1.StorageClientProfile) {
				allowsTwo(p)
				p.Spec.Rollout.Canary = &v1alpha1.Canary{Nodes: new(int32(2))}
			}).node("a", liveFailed).node("b", applying).bare("c"),
			"Ready=False/NodesFailed Reconciling=True/RollingOut", "",
		},
		"not if the canary is healthy and another node failed": {
			newWorld(allowsTwo).node("a", tunedSince(time.Hour)).node("b", liveFailed).bare("c"), "Ready=False/NodesFailed Reconciling=True/RollingOut", "",
		},
		"a reboot": {
			newWorld(allowsTwo).node("a", rebootFailed).node("b", rebootDue(v1alpha1.RolloutReasonCanaryFailed)), stalled,
			"Failed on a; 1 node waits for this canary; next: kubectl storageclient node a",
		},
		"a reboot, and the node stays cordoned": {
			newWorld(allowsTwo).node("a", cordoned).node("b", rebootDue(v1alpha1.RolloutReasonCanaryFailed)), stalled,
			"Failed on a; 1 node waits for this canary; next: kubectl storageclient node a",
		},
		"a reboot, and the last node stays cordoned": {
			newWorld(allowsTwo).node("a", nil).node("b", cordoned), stalled, "Failed on b; next: kubectl storageclient node b",
		},
		"not while another node is out of service": {
			newWorld(allowsTwo).node("a", cordoned).node("b", disrupted), "Ready=False/NodesFailed Reconciling=True/RollingOut", "",
		},
		"not if a node of another group continues": {
			newWorld(allowsTwo).node("a", rebootFailed).node("b", rebootDue(v1alpha1.RolloutReasonCanaryFailed)).node("c", rebootDue(v1alpha1.ReasonWaitingForBudget)),
			"Ready=False/NodesFailed Reconciling=True/RollingOut", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Evaluate("p", Snapshot{All: test.world.snapshot()}, now)
			check.Equal(t, "summary", test.want, summary(r))
			if got := r.conditions(nil, 1, metav1.NewTime(now))[2]; got.Message != test.message {
				t.Errorf("got Stalled message %q, want %q", got.Message, test.message)
			}
		})
	}
}

// Failed reboots stop reboots. Failed settings and a failed read-ahead stop only their own changes: a profile is Stalled once no reboot continues.
// Failures of different kinds are not added.
func TestEachKindOfChangeHasItsOwnThreshold(t *testing.T) {
	type change = func(*corev1.Node, *v1alpha1.StorageClientNode)
	allowing := func(failures int32, changes ...func(*v1alpha1.StorageClientProfile)) *world {
		return newWorld(func(p *v1alpha1.StorageClientProfile) {
			p.Spec.Rollout.FailureThreshold, p.Spec.Rollout.Reboot.Policy = new(failures), v1alpha1.RebootAutomatic
			for rule, server := range map[string]string{"r": "filer", "s": "other"} {
				p.Spec.Volumes = append(p.Spec.Volumes, v1alpha1.VolumeRule{
					Name: rule, Selector: v1alpha1.VolumeSelector{Servers: []string{server}}, ReadAheadKiB: new(int32(1024)),
				})
			}
			for _, change := range changes {
				change(p)
			}
		})
	}
	all := func(changes ...change) change {
		return func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
			for _, change := range changes {
				change(n, s)
			}
		}
	}
	disrupted := func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
		n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"p"}`}
	}
	failedBoot := func(reason string) change {
		return all(rebootDue(reason), disrupted, func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Status.Rollout.Phase = v1alpha1.RolloutFailed })
	}
	failedReadAhead := func(volume string) change {
		return func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Spec.Volumes = []v1alpha1.NodeVolume{{Name: volume, ReadAheadKiB: new(int32(1024))}}
			s.Status.Mounts = []v1alpha1.MountStatus{{MountPoint: "/v", Volume: volume, Protocol: "NFSv4.1", ReadAheadKiB: 128, ReadAheadState: v1alpha1.SettingFailed}}
		}
	}
	liveFailed := state("sysctl/net.core.rmem_max", v1alpha1.SettingFailed)
	timedOut := failedBoot(v1alpha1.RolloutReasonRebootTimedOut)
	withheld := withdrawn(failedBoot(v1alpha1.RolloutReasonRebootWithoutEffect))
	draining := all(rebootDue(v1alpha1.RolloutReasonDraining), disrupted, func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
		s.Status.Rollout.Phase = v1alpha1.RolloutDraining
	})
	const (
		continues = "Ready=False/NodesFailed Reconciling=True/RollingOut"
		stopped   = "Ready=False/FailureThresholdReached Reconciling=False/FailureThresholdReached Stalled=True/FailureThresholdReached"
		below     = "Ready=False/NodesFailed Reconciling=False/NodesFailed Stalled=True/NodesFailed"
	)
	waitsForBudget := rebootDue(v1alpha1.ReasonWaitingForBudget)
	for name, test := range map[string]struct {
		world *world
		want  string
	}{
		"a setting failed, and another node drains":      {allowing(1).node("a", liveFailed).node("b", draining), continues},
		"a setting failed, and another node will reboot": {allowing(1).node("a", liveFailed).node("b", waitsForBudget), "Ready=False/NodesFailed Reconciling=True/WaitingForBudget"},
		"a setting failed, and the node itself drains":   {allowing(1).node("a", all(draining, liveFailed)), continues},
		"a read-ahead failed, and another node drains":   {allowing(1).node("a", failedReadAhead("v")).node("b", draining), continues},
		"a read-ahead failed, and the node will reboot":  {allowing(1).node("a", all(failedReadAhead("v"), rebootDue(""))), continues},
		"a setting failed, and no reboot is left":        {allowing(1).node("a", liveFailed).node("b", nil), stopped},
		"a setting failed, and the plan is not approved": {allowing(1, policy(v1alpha1.RebootOnApproval)).node("a", liveFailed).node("b", rebootDue("")), stopped},
		"a setting failed, and the profile is paused": {
			allowing(1, func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true }).node("a", liveFailed).node("b", rebootDue("")), stopped + " Paused=True/PausedByField",
		},
		"a setting failed, and another profile's reboots have stopped":   {allowing(1).node("a", liveFailed).node("b", rebootDue(v1alpha1.RolloutReasonFailureThreshold)), stopped},
		"a reboot failed, and another node finishes its own":             {allowing(1).node("a", timedOut).node("b", draining), stopped},
		"settings failed, and a node that failed its reboot is cordoned": {allowing(2).node("a", liveFailed).node("b", liveFailed).node("c", timedOut), stopped},
		"one failure of each kind, of two": {
			allowing(2).node("a", liveFailed).node("b", timedOut).node("c", failedReadAhead("v")), below,
		},
		"one failure of each kind, of two, and another node will reboot": {
			allowing(2).node("a", liveFailed).node("b", timedOut).node("c", waitsForBudget), continues,
		},
		"two settings failed, of two":                            {allowing(2).node("a", liveFailed).node("b", liveFailed), stopped},
		"two reboots failed, of two":                             {allowing(2).node("a", timedOut).node("b", timedOut), stopped},
		"a read-ahead failed on two nodes, of two":               {allowing(2).node("a", failedReadAhead("v")).node("b", failedReadAhead("v")), stopped},
		"the read-aheads of two rules failed, of two":            {allowing(2).node("a", failedReadAhead("v")).node("b", failedReadAhead("w")), below},
		"a setting failed, and others are withheld after a boot": {allowing(2).node("a", liveFailed).node("b", withheld), stopped},
		"a node failed both its reboot and a setting, of two":    {allowing(2).node("a", all(timedOut, liveFailed)).node("b", nil), below},
	} {
		t.Run(name, func(t *testing.T) {
			other := boundVolume("w")
			other.UID, other.Spec.NFS.Server = "w", "other"
			r := Evaluate("p", Snapshot{All: test.world.snapshot(), Volumes: test.world.viewOf(boundVolume("v"), other)}, now)
			check.Equal(t, "summary", test.want, summary(r))
			reboots := r.planStatus(v1alpha1.Plan{}, 1, now)
			if got, want := reboots.EstimatedCompletion != nil, reboots.NodesToReboot > 0 && strings.Contains(test.want, "Reconciling=True"); got != want {
				t.Errorf("got an estimate of the reboots: %t, want %t", got, want)
			}
		})
	}
}

// tunedSince sets the time for which a node has had its settings.
func tunedSince(ago time.Duration) func(*corev1.Node, *v1alpha1.StorageClientNode) {
	return func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionTrue, Reason: v1alpha1.NodeReasonTuned,
			LastHeartbeatTime: metav1.NewTime(now.Add(-ago)), LastTransitionTime: metav1.NewTime(now.Add(-ago)),
		})
	}
}
