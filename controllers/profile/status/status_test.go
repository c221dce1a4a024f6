package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/volume/plan"
	"github.com/storageclient/operator/test/check"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/nodesettings"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// world contains profiles and nodes like the API server.
type world struct {
	profiles []v1alpha1.StorageClientProfile
	nodes    []corev1.Node
	objects  map[string]*v1alpha1.StorageClientNode
	silent   map[string]bool
	// pausedAll means that the manager's namespace is paused.
	pausedAll bool
	oddPause  string
}

func newWorld(change func(*v1alpha1.StorageClientProfile)) *world {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{v1alpha1.Finalizer}, Generation: 1}}
	p.Spec.AllNodes = true
	p.Spec.Node = &v1alpha1.NodeTuning{
		Sysctls: map[string]v1alpha1.SettingText{"net.core.rmem_max": "16777216"}, KernelArguments: []v1alpha1.KernelArgument{"ihash_entries=16777216"},
		KernelModules: []v1alpha1.KernelModule{{Name: "nfs", Parameters: map[string]v1alpha1.SettingText{"max_session_slots": "180"}}},
	}
	if change != nil {
		change(&p)
	}
	return &world{profiles: []v1alpha1.StorageClientProfile{p}, objects: map[string]*v1alpha1.StorageClientNode{}, silent: map[string]bool{}}
}

// node adds a Ready node that has and reports its desired settings. change runs last.
func (w *world) node(name string, change func(*corev1.Node, *v1alpha1.StorageClientNode)) *world {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", v1alpha1.ManagedLabel: "true"}}}
	node.Status.NodeInfo.BootID = "boot-1"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	clientNode := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	declared := w.profiles[0].DeepCopy()
	declared.DeletionTimestamp, declared.Spec.Mode = nil, v1alpha1.ModeEnforce
	clientNode.Spec.Settings = nodesettings.Settings(declared)
	clientNode.Spec.Hash, clientNode.Spec.BootHash = nodesettings.Hashes(clientNode.Spec.Settings)
	clientNode.Status = v1alpha1.StorageClientNodeStatus{Hash: clientNode.Spec.Hash, BootID: "boot-1", ObservedGeneration: 1}
	for _, setting := range clientNode.Spec.Settings {
		clientNode.Status.Settings = append(clientNode.Status.Settings, v1alpha1.SettingStatus{Key: setting.Key, Desired: setting.Value, State: v1alpha1.SettingInSync})
	}
	w.objects[name] = clientNode
	if change != nil {
		change(&node, clientNode)
	}
	w.nodes = append(w.nodes, node)
	return w
}

// bare adds a node without a StorageClientNode.
func (w *world) bare(name string) *world {
	w.node(name, func(node *corev1.Node, _ *v1alpha1.StorageClientNode) { delete(node.Labels, v1alpha1.ManagedLabel) })
	delete(w.objects, name)
	return w
}

func (w *world) pauseAll() *world {
	w.pausedAll = true
	return w
}

func (w *world) snapshot() fleet.Snapshot {
	ready := map[string]bool{}
	for name := range w.objects {
		ready[name] = !w.silent[name]
	}
	return fleet.Snapshot{Profiles: fleet.NewProfileSet(w.profiles, catalogue.AllowList{}), Nodes: lists.Pointers(w.nodes), ClientNodes: w.objects, Ready: ready}
}

func (w *world) report() Report {
	return Evaluate("p", Snapshot{All: w.snapshot(), PausedAll: w.pausedAll, OddPause: w.oddPause, MaxUnavailable: intstr.FromString("5%"), ManagerNode: "manager"}, now)
}

const bootKey = "kernelArgument/ihash_entries"

func rebootDue(reason string) func(*corev1.Node, *v1alpha1.StorageClientNode) {
	return func(_ *corev1.Node, clientNode *v1alpha1.StorageClientNode) {
		clientNode.Status.RebootRequired, clientNode.Status.RebootRequiredBy = true, []string{bootKey}
		if reason != "" {
			clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Reason: reason, Message: "waits for " + reason, BootHash: clientNode.Spec.BootHash}
		}
	}
}

func TestPausedNamesAnOddValue(t *testing.T) {
	const odd = `="yes" (counts as true; use true or false)`
	annotated := func(value string) *world {
		return newWorld(func(p *v1alpha1.StorageClientProfile) {
			p.Annotations = map[string]string{v1alpha1.PausedAnnotation: value}
		}).node("a", nil)
	}
	byNamespace := newWorld(nil).node("a", nil).pauseAll()
	byNamespace.oddPause = odd
	for name, test := range map[string]struct {
		world *world
		want  string
	}{
		"true on the profile":      {annotated("true"), "The profile has the annotation tuning.storageclient.dev/paused; next: "},
		"yes on the profile":       {annotated("yes"), "The profile has the annotation tuning.storageclient.dev/paused" + odd + "; next: "},
		"true on the namespace":    {newWorld(nil).node("a", nil).pauseAll(), "The manager's namespace has the annotation tuning.storageclient.dev/paused; next: "},
		"yes on the namespace":     {byNamespace, "The manager's namespace has the annotation tuning.storageclient.dev/paused" + odd + "; next: "},
		"false on the profile":     {annotated("False"), ""},
		"an empty value on it":     {annotated(""), ""},
		"a false that looks wrong": {annotated(" false"), `The profile has the annotation tuning.storageclient.dev/paused=" false" (`},
	} {
		got := meta.FindStatusCondition(test.world.report().Status(v1alpha1.StorageClientProfileStatus{}, now).Conditions, v1alpha1.ConditionPaused)
		if got == nil || (got.Status == metav1.ConditionTrue) != (test.want != "") || !strings.HasPrefix(got.Message, test.want) {
			t.Errorf("%s: got %+v, want %q", name, got, test.want)
		}
	}
}

// neverDisrupted changes a node that requires a reboot: its annotation prohibits disruptions.
func neverDisrupted(n *corev1.Node, clientNode *v1alpha1.StorageClientNode) {
	rebootDue(v1alpha1.RolloutReasonNeverDisrupt)(n, clientNode)
	n.Annotations = map[string]string{v1alpha1.NeverDisruptAnnotation: "true"}
}

// failedBy returns a node on which the setting failed with connections to servers.
func failedBy(key string, servers ...string) func(*corev1.Node, *v1alpha1.StorageClientNode) {
	return func(node *corev1.Node, clientNode *v1alpha1.StorageClientNode) {
		state(key, v1alpha1.SettingFailed)(node, clientNode)
		for i := range clientNode.Status.Settings {
			if clientNode.Status.Settings[i].Key == key {
				clientNode.Status.Settings[i].FailedConnections = servers
			}
		}
	}
}

func state(key string, state v1alpha1.SettingState) func(*corev1.Node, *v1alpha1.StorageClientNode) {
	return func(_ *corev1.Node, clientNode *v1alpha1.StorageClientNode) {
		for i := range clientNode.Status.Settings {
			if clientNode.Status.Settings[i].Key == key {
				clientNode.Status.Settings[i].State = state
			}
		}
	}
}

const zzConf = `/etc/modprobe.d/zz.conf sets it to "N" and is read after /etc/modprobe.d/zz-storage-client.conf`

// refusedBoot changes a node that requires a reboot for a kernel argument. After the reboot, a module option would still be overridden, and
// the node would stay out of service.
func refusedBoot(n *corev1.Node, clientNode *v1alpha1.StorageClientNode) {
	rebootDue(v1alpha1.RolloutReasonSettingsFailed)(n, clientNode)
	for i := range clientNode.Status.Settings {
		if s := &clientNode.Status.Settings[i]; s.Key == moduleKey {
			s.State, s.TakesEffect, s.Message = v1alpha1.SettingShadowed, v1alpha1.EffectReboot, zzConf
		}
	}
}

const moduleKey = "module/nfs/max_session_slots"

// modulesOnly removes the kernel arguments of a profile. Without them, the profile has no plan.
func modulesOnly(p *v1alpha1.StorageClientProfile) { p.Spec.Node.KernelArguments = nil }

// atNextBoot changes a node: a module option takes effect at the next reboot, and no plan hash covers this option.
func atNextBoot(_ *corev1.Node, clientNode *v1alpha1.StorageClientNode) {
	clientNode.Status.RebootRequired, clientNode.Status.RebootRequiredBy = true, []string{moduleKey}
	clientNode.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutUpToDate, Reason: v1alpha1.RolloutReasonEffectiveAtNextBoot}
}

func policy(p v1alpha1.RebootPolicy) func(*v1alpha1.StorageClientProfile) {
	return func(profile *v1alpha1.StorageClientProfile) { profile.Spec.Rollout.Reboot.Policy = p }
}

func deleting(p *v1alpha1.StorageClientProfile) { p.DeletionTimestamp = &metav1.Time{Time: now} }

// summary returns "Type=Status/Reason" of each condition that differs from the conditions of an up-to-date profile.
func summary(f Report) string {
	atRest := map[string]string{
		v1alpha1.ConditionMountsEffective: "True/AllEffective", v1alpha1.ConditionStalled: "False/Progressing",
		v1alpha1.ConditionPaused: "False/NotPaused", v1alpha1.ConditionConflict: "False/NoConflict", v1alpha1.ConditionReconciling: "False/Idle",
	}
	var parts []string
	for _, c := range f.conditions(nil, 1, metav1.NewTime(now)) {
		if got := fmt.Sprintf("%s/%s", c.Status, c.Reason); got != atRest[c.Type] {
			parts = append(parts, c.Type+"="+got)
		}
	}
	return strings.Join(parts, " ")
}

var keepsOwnValue = plan.Summary{Matched: 1, Exceptions: 1, ExceptionExamples: []plan.Note{{Volume: "v", Message: "nconnect stays 2 (profile wants 8; onConflict: KeepVolume)"}}}

// addPausedProfile adds a paused profile for the same nodes.
func addPausedProfile(w *world) *world {
	other := *w.profiles[0].DeepCopy()
	other.Name, other.Spec.Paused, other.Spec.Node = "other", true, nil
	w.profiles = append(w.profiles, other)
	return w
}

func TestConditions(t *testing.T) {
	sysctl := "sysctl/net.core.rmem_max"
	rival := func(w *world) *world {
		other := *w.profiles[0].DeepCopy()
		other.Name = "rival"
		other.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{"net.core.rmem_max": "1048576"}}
		w.profiles = append(w.profiles, other)
		return w
	}
	for name, test := range map[string]struct {
		world  *world
		change func(*Report)
		want   string
	}{
		"everything is up to date": {world: newWorld(nil).node("a", nil), want: "Ready=True/UpToDate"},
		"nothing matches":          {world: newWorld(nil), want: "Ready=True/NothingMatched"},
		"only an ignored node matches": {world: newWorld(nil).node("a", func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
			n.Annotations = map[string]string{v1alpha1.IgnoreAnnotation: "true"}
		}), want: "Ready=True/NothingMatched"},
		"a node has not been given anything": {world: newWorld(nil).bare("a"), want: "Ready=False/RollingOut Reconciling=True/RollingOut MountsEffective=Unknown/Pending"},
		"a node's agent has not reported":    {world: newWorld(nil).node("a", func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Status.Hash = "old" }), want: "Ready=False/RollingOut Reconciling=True/RollingOut"},
		"a node is as declared and still out of service": {world: newWorld(nil).node("a", func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
			n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"p"}`}
		}), want: "Ready=False/RollingOut Reconciling=True/RollingOut"},
		"an action was not done yet": {world: newWorld(nil).node("a", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
			state(sysctl, v1alpha1.SettingPending)(n, s)
			s.Status.Settings[len(s.Status.Settings)-1].TakesEffect = v1alpha1.EffectAction
		}), want: "Ready=False/RollingOut Reconciling=True/RollingOut"},
		"a value waits for new connections to confirm it": {world: newWorld(nil).node("a", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
			state(sysctl, v1alpha1.SettingPending)(n, s)
			last := &s.Status.Settings[len(s.Status.Settings)-1]
			last.TakesEffect, last.WaitsFor = v1alpha1.EffectLive, v1alpha1.WaitsForConnections
		}), want: "Ready=False/RollingOut Reconciling=True/RollingOut"},
		"a setting is not reported": {world: newWorld(nil).node("a", func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Status.Settings = slices.DeleteFunc(s.Status.Settings, func(s v1alpha1.SettingStatus) bool { return s.Key == sysctl })
		}), want: "Ready=False/RollingOut Reconciling=True/RollingOut"},
		"a value drifted":              {world: newWorld(nil).node("a", state(sysctl, v1alpha1.SettingDrifted)), want: "Ready=False/RollingOut Reconciling=True/RollingOut"},
		"mode Plan":                    {world: newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }).bare("a"), want: "Ready=False/PlanMode MountsEffective=Unknown/Pending Paused=True/PlanMode"},
		"paused by the field, at rest": {world: newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true }).node("a", nil), want: "Ready=True/UpToDate Paused=True/PausedByField"},
		"paused with work left":        {world: newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Paused = true }).bare("a"), want: "Ready=False/RollingOut Reconciling=False/PausedByField MountsEffective=Unknown/Pending Paused=True/PausedByField"},
		"everything is paused":         {world: newWorld(nil).node("a", nil).pauseAll(), want: "Ready=True/UpToDate Paused=True/PausedByAnnotation"},
		"a reboot is due and waits for approval": {
			world: newWorld(nil).node("a", rebootDue("")), want: "Ready=False/RebootPending Reconciling=True/WaitingForApproval",
		},
		"a reboot is due under Never": {
			world: newWorld(policy(v1alpha1.RebootNever)).node("a", rebootDue("")), want: "Ready=True/ReadyWithExceptions",
		},
		"a reboot is due and the rollout continues": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue("")), want: "Ready=False/RollingOut Reconciling=True/RollingOut",
		},
		"module options wait for a boot that no approval speaks of": {
			world: newWorld(modulesOnly).node("a", atNextBoot), want: "Ready=True/ReadyWithExceptions",
		},
		"whatever else of the profile takes effect at boot": {
			world: newWorld(nil).node("a", atNextBoot), want: "Ready=True/ReadyWithExceptions",
		},
		"and never hide what is on its way": {
			world: newWorld(modulesOnly).node("a", atNextBoot).bare("b"), want: "Ready=False/RollingOut Reconciling=True/RollingOut",
		},
		"all that are left wait for the budget": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue(v1alpha1.ReasonWaitingForBudget)).node("b", rebootDue(v1alpha1.ReasonWaitingForBudget)),
			want:  "Ready=False/RollingOut Reconciling=True/WaitingForBudget",
		},
		"all that are left wait for a window": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue(v1alpha1.ReasonWaitingForWindow)).node("b", rebootDue(v1alpha1.ReasonWaitingForWindow)),
			want:  "Ready=False/RollingOut Reconciling=True/WaitingForWindow",
		},
		"another profile's approval is what all wait for": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue(v1alpha1.ReasonWaitingForApproval)),
			want:  "Ready=False/RollingOut Reconciling=True/WaitingForApproval",
		},
		"all that go wait for the budget, and one does not go": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", refusedBoot).node("b", rebootDue(v1alpha1.ReasonWaitingForBudget)),
			want:  "Ready=False/RollingOut Reconciling=True/WaitingForBudget",
		},
		"one waits for the budget while another is out of service": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue(v1alpha1.ReasonWaitingForBudget)).node("b", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
				rebootDue("Draining")(n, s)
				n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: `{"profile":"p","bootHash":"x","since":"2026-11-20T12:00:00Z"}`}
			}),
			want: "Ready=False/RollingOut Reconciling=True/RollingOut",
		},
		"exceptions are reported by default": {
			world: newWorld(nil).node("a", state(bootKey, v1alpha1.SettingClamped)), want: "Ready=True/ReadyWithExceptions",
		},
		"exceptions fail if requested": {
			world: newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.OnUnsupported = v1alpha1.UnsupportedFail }).node("a", state(bootKey, v1alpha1.SettingUnsupported)),
			want:  "Ready=False/Exceptions Reconciling=False/Exceptions Stalled=True/Exceptions",
		},
		"a file that wins over ours is an exception": {
			world: newWorld(nil).node("a", state(sysctl, v1alpha1.SettingShadowed)), want: "Ready=True/ReadyWithExceptions",
		},
		"and fails if requested": {
			world: newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.OnUnsupported = v1alpha1.UnsupportedFail }).node("a", state(sysctl, v1alpha1.SettingShadowed)),
			want:  "Ready=False/Exceptions Reconciling=False/Exceptions Stalled=True/Exceptions",
		},
		"a boot is due that would leave the node out of service": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", refusedBoot), want: "Ready=True/ReadyWithExceptions",
		},
		"an annotation prevents a node's reboot": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", neverDisrupted), want: "Ready=True/ReadyWithExceptions",
		},
		"which hides nothing that is on its way": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", neverDisrupted).node("b", rebootDue(v1alpha1.ReasonWaitingForBudget)),
			want:  "Ready=False/RollingOut Reconciling=True/WaitingForBudget",
		},
		"a node is paused before it got its settings": {
			world: newWorld(nil).node("a", nil).node("b", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
				n.Annotations, s.Spec.Hash = map[string]string{v1alpha1.PausedAnnotation: "true"}, "old"
			}),
			want: "Ready=True/ReadyWithExceptions",
		},
		"another profile's pause keeps a node back": {
			world: addPausedProfile(newWorld(nil)).node("a", func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Spec.Settings[0].Value = "old" }),
			want:  "Ready=True/ReadyWithExceptions",
		},
		"its own pause keeps the work that is left": {
			world: newWorld(func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Paused, p.Spec.Rollout.Reboot.Policy = true, v1alpha1.RebootAutomatic
			}).node("a", rebootDue(v1alpha1.ReasonPausedByField)),
			want: "Ready=False/RollingOut Reconciling=False/PausedByField Paused=True/PausedByField",
		},
		"no windows overlap": {
			world: newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue(v1alpha1.RolloutReasonWindowsDisjoint)),
			want:  "Ready=False/RebootPending Reconciling=False/RebootPending Stalled=True/RebootPending",
		},
		"as many nodes failed as are allowed": {
			world: newWorld(nil).node("a", state(sysctl, v1alpha1.SettingFailed)),
			want:  "Ready=False/FailureThresholdReached Reconciling=False/FailureThresholdReached Stalled=True/FailureThresholdReached",
		},
		"a node that failed its reboot counts too": {
			world: newWorld(nil).node("a", func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
				s.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutFailed, BootHash: s.Spec.BootHash}
			}),
			want: "Ready=False/FailureThresholdReached Reconciling=False/FailureThresholdReached Stalled=True/FailureThresholdReached",
		},
		"fewer failed than are allowed": {
			world: newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.FailureThreshold = new(int32(2)) }).node("a", state(sysctl, v1alpha1.SettingFailed)),
			want:  "Ready=False/NodesFailed Reconciling=False/NodesFailed Stalled=True/NodesFailed",
		},
		"fewer failed than are allowed, and others go on": {
			world: newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.FailureThreshold = new(int32(2)) }).node("a", state(sysctl, v1alpha1.SettingFailed)).node("b", state(sysctl, v1alpha1.SettingDrifted)),
			want:  "Ready=False/NodesFailed Reconciling=True/RollingOut",
		},
		"settings failed by the word of one storage server, and others go on": {
			world: newWorld(nil).node("a", failedBy(sysctl, "filer")).node("b", state(sysctl, v1alpha1.SettingDrifted)),
			want:  "Ready=False/NodesFailed Reconciling=True/RollingOut",
		},
		"settings failed by the word of two storage servers": {
			world: newWorld(nil).node("a", failedBy(sysctl, "filer")).node("b", failedBy(sysctl, "other")),
			want:  "Ready=False/FailureThresholdReached Reconciling=False/FailureThresholdReached Stalled=True/FailureThresholdReached",
		},
		"a changed volume could not be mounted": {
			world:  newWorld(nil).node("a", nil),
			change: func(f *Report) { f.volumes.Stopped = "pv1 could not be mounted" },
			want:   "Ready=False/FailureThresholdReached Reconciling=False/FailureThresholdReached Stalled=True/FailureThresholdReached",
		},
		"the profile is invalid": {
			world: newWorld(nil).bare("a"), change: func(f *Report) { f.invalidReason, f.invalidMessage = v1alpha1.ReasonInvalid, "why" },
			want: "Ready=False/Invalid Reconciling=False/Invalid Stalled=True/Invalid MountsEffective=Unknown/Pending",
		},
		"the fence is missing": {
			world: newWorld(nil).bare("a"), change: func(f *Report) { f.snapshot.FenceMissing = "why" },
			want: "Ready=False/FenceMissing Reconciling=False/FenceMissing Stalled=True/FenceMissing MountsEffective=Unknown/Pending",
		},
		"profiles of equal priority disagree": {
			world: rival(newWorld(nil)).node("a", nil), want: "Ready=False/SettingConflict Reconciling=False/SettingConflict Stalled=True/SettingConflict Conflict=True/SettingConflict",
		},
		"a volume is blocked": {
			world: newWorld(nil).node("a", nil),
			change: func(f *Report) {
				f.volumes = plan.Summary{Matched: 2, UpToDate: 1, Blocked: 1, BlockedExamples: []plan.Note{{Volume: "v"}}}
			},
			want: "Ready=False/VolumeConflict Reconciling=False/VolumeConflict Stalled=True/VolumeConflict Conflict=True/VolumeConflict",
		},
		"a volume keeps its original value": {
			world: newWorld(nil).node("a", nil), change: func(f *Report) { f.volumes = keepsOwnValue },
			want: "Ready=True/ReadyWithExceptions",
		},
		"which fails if requested": {
			world:  newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.OnUnsupported = v1alpha1.UnsupportedFail }).node("a", nil),
			change: func(f *Report) { f.volumes = keepsOwnValue },
			want:   "Ready=False/Exceptions Reconciling=False/Exceptions Stalled=True/Exceptions",
		},
		"a volume is still to be written": {
			world: newWorld(nil).node("a", nil), change: func(f *Report) { f.volumes = plan.Summary{Matched: 2, UpToDate: 1} },
			want: "Ready=False/RollingOut Reconciling=True/RollingOut",
		},
		"old mounts never hold Ready back": {
			world:  newWorld(nil).node("a", nil),
			change: func(f *Report) { f.volumes.Stale = plan.Stale{Count: 1, Nodes: []string{"a"}} },
			want:   "Ready=True/UpToDate MountsEffective=False/StaleMounts",
		},
		"the profile is being deleted": {
			world: newWorld(deleting).node("a", nil), want: "Ready=False/Restoring Reconciling=True/Restoring",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := test.world.report()
			if test.change != nil {
				test.change(&f)
			}
			check.Equal(t, "summary", test.want, summary(f))
		})
	}
}

func TestConditionsAreCompleteOrderedAndBounded(t *testing.T) {
	f := newWorld(nil).node("a", nil).report()
	f.invalidReason, f.invalidMessage = v1alpha1.ReasonInvalid, strings.Repeat("ü", 4000)
	before := metav1.NewTime(now.Add(-time.Hour))
	old := f.conditions(nil, 1, before)
	var order []string
	for _, c := range f.conditions(old, 2, metav1.NewTime(now)) {
		order = append(order, c.Type)
		if len(c.Message) > maxMessage || c.ObservedGeneration != 2 || !c.LastTransitionTime.Equal(&before) {
			t.Errorf("%s: got %d bytes, generation %d, since %s", c.Type, len(c.Message), c.ObservedGeneration, c.LastTransitionTime)
		}
	}
	want := []string{"Ready", "Reconciling", "Stalled", "MountsEffective", "Paused", "Conflict"}
	check.Equal(t, "order", want, order)
}

func TestCountNodes(t *testing.T) {
	w := newWorld(nil).
		node("ok", nil).
		node("exception", state(bootKey, v1alpha1.SettingClamped)).
		node("shadowed", state("sysctl/net.core.rmem_max", v1alpha1.SettingShadowed)).
		node("pending", rebootDue("")).
		node("drifted", state("sysctl/net.core.rmem_max", v1alpha1.SettingDrifted)).
		node("failed", state("sysctl/net.core.rmem_max", v1alpha1.SettingFailed)).
		node("silent", nil).
		node("other", func(n *corev1.Node, _ *v1alpha1.StorageClientNode) { n.Labels[corev1.LabelOSStable] = "windows" }).
		bare("bare")
	w.silent["silent"] = true
	want := v1alpha1.NodeCounts{Matched: 8, UpToDate: 3, Exceptions: 2, PendingReboot: 1, Failed: 1, Drifted: 1}
	check.Equal(t, "counts", want, w.report().nodes.counts)
}

func TestPlanModeForeseesReboots(t *testing.T) {
	f := newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }).bare("b").bare("a").node("has-it", nil).report()
	got := f.planStatus(v1alpha1.Plan{}, 1, now)
	if got.NodesToReboot != 2 || !got.EstimatedCompletion.Equal(new(metav1.NewTime(now.Add(2*(overview.NominalDrain+overview.NominalBoot+30*time.Second))))) || got.Hash == "" {
		t.Errorf("got %+v", got)
	}
	check.Equal(t, "examples", []string{"a", "b"}, got.Examples)
}

func TestPlanModeForeseesNoRebootForLiveSettings(t *testing.T) {
	r := newWorld(func(p *v1alpha1.StorageClientProfile) { modulesOnly(p); p.Spec.Mode = v1alpha1.ModePlan }).bare("a").report()
	if got := r.nodes.counts; got.PendingReboot != 0 || got.UpToDate != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestStaleMountsAreNamedByNode(t *testing.T) {
	one := plan.Stale{Count: 1, Nodes: []string{"a"}}
	three := plan.Stale{Count: 3, Nodes: []string{"b", "a"}}
	for want, stale := range map[string]plan.Stale{
		"1 mount on a still has old options: restart its pods":        one,
		"3 mounts on a, b still have old options: restart their pods": three,
	} {
		check.Equal(t, "result", want, (Report{volumes: plan.Summary{Stale: stale}}).staleMessage())
	}
}

func TestRemovalListsTheRemainingWork(t *testing.T) {
	restoring := func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Spec.Release = true }
	r := newWorld(deleting).node("c", nil).node("a", restoring).node("b", restoring).report()
	r.volumes.Unrestored = []string{"v"}
	if got, want := r.removalMessage(), "Restore not yet sent to c; restoring a, b; volumes not yet restored: v"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := newWorld(deleting).report().removalMessage(), "Nodes and volumes are restored"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPlannedListsAtMostTwentyNodesWithTheirObstacles(t *testing.T) {
	w := newWorld(nil)
	for i := range 30 {
		w.node(fmt.Sprintf("node-%02d", i), rebootDue(""))
	}
	got := w.report().planStatus(v1alpha1.Plan{}, 1, now)
	if len(got.Examples) != 20 || got.NodesToReboot != 30 || got.LimitedBy != "The plan needs approval" || got.EstimatedCompletion == nil {
		t.Errorf("got %+v", got)
	}
}

func TestEstimateStaysUntilAChange(t *testing.T) {
	f := newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue("")).node("b", rebootDue("")).report()
	first := f.planStatus(v1alpha1.Plan{}, 1, now)
	if first.EstimatedCompletion == nil || !first.EstimatedCompletion.After(now) {
		t.Fatalf("got %+v", first)
	}
	if later := f.planStatus(first, 1, now.Add(time.Minute)); !later.EstimatedCompletion.Equal(first.EstimatedCompletion) {
		t.Errorf("got the estimate moved from %s to %s, although only time passed", first.EstimatedCompletion, later.EstimatedCompletion)
	}
}

func TestEstimateFollowsAnEdit(t *testing.T) {
	f := newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue("")).report()
	first := f.planStatus(v1alpha1.Plan{}, 1, now)
	f.profile.Generation, f.profile.Spec.Rollout.Windows = 2, saturdays
	got := f.planStatus(first, 1, now)
	// The time is Friday noon. The window opens on Saturday at 2:00.
	if want := time.Date(2026, 11, 21, 2, 5, 30, 0, time.UTC); got.EstimatedCompletion == nil || !got.EstimatedCompletion.Time.Equal(want) {
		t.Errorf("got %s, want %s", got.EstimatedCompletion, want)
	}
}

var saturdays = []v1alpha1.Window{{Schedule: "0 2 * * 6", DurationSeconds: 14400}}

func TestPlannedIsInTheOrderOfTheRollout(t *testing.T) {
	zone := func(zone string, labels ...string) func(*corev1.Node, *v1alpha1.StorageClientNode) {
		return func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
			n.Labels[corev1.LabelTopologyZone] = zone
			for _, label := range labels {
				n.Labels[label] = "yes"
			}
			rebootDue("")(n, s)
		}
	}
	never := func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
		n.Annotations = map[string]string{v1alpha1.NeverDisruptAnnotation: "true"}
		zone("a")(n, s)
	}
	for name, test := range map[string]struct {
		canary *v1alpha1.Canary
		want   []string
	}{
		"the canary is the first": {nil, []string{"z", "b", "c", "manager", "a"}},
		"the canary is chosen": {
			&v1alpha1.Canary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}},
			[]string{"c", "z", "b", "manager", "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Canary = test.canary })
			w.node("manager", zone("a")).node("a", never).node("b", zone("y")).node("c", zone("y", "canary")).node("z", zone("x")).node("done", nil)
			check.Equal(t, "examples", test.want, w.report().planStatus(v1alpha1.Plan{}, 1, now).Examples)
		})
	}
}

func TestPlannedReportsTheNextWindow(t *testing.T) {
	opens := "next window opens at 2026-11-21T02:00:00Z"
	for name, test := range map[string]struct {
		change func(*v1alpha1.StorageClientProfile)
		at     time.Time
		want   string
		again  time.Duration
	}{
		"while an approval is missing": {func(*v1alpha1.StorageClientProfile) {}, now, "The plan needs approval; " + opens, 14 * time.Hour},
		"in mode Plan": {
			func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Mode, p.Spec.Rollout.Reboot.Policy = v1alpha1.ModePlan, v1alpha1.RebootAutomatic
			},
			now, "Mode Plan makes no changes; " + opens, 14 * time.Hour,
		},
		"not while it is open":   {func(*v1alpha1.StorageClientProfile) {}, now.Add(15 * time.Hour), "The plan needs approval", 3 * time.Hour},
		"not if no node reboots": {policy(v1alpha1.RebootNever), now, "rollout.reboot.policy is Never", 14 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			f := newWorld(func(p *v1alpha1.StorageClientProfile) {
				p.Spec.Rollout.Windows = saturdays
				test.change(p)
			}).node("a", rebootDue("")).bare("b").report()
			check.Equal(t, "limitedBy", test.want, f.planStatus(v1alpha1.Plan{}, 1, test.at).LimitedBy)
			if got := f.RequeueAfter(test.at); got != test.again {
				t.Errorf("got requeued after %s, want %s", got, test.again)
			}
		})
	}
}

func TestPlannedExcludesSettingsForTheNextBoot(t *testing.T) {
	f := newWorld(nil).node("a", atNextBoot).report()
	if got := f.planStatus(v1alpha1.Plan{}, 1, now); got.NodesToReboot != 0 || got.EstimatedCompletion != nil || got.LimitedBy != "" {
		t.Errorf("got %+v", got)
	}
}

// TestPlannedExcludesNodesThatAreNotRebooted covers nodes that the rollout would not reboot. The plan does not count them and contains the
// reason.
func TestPlannedExcludesNodesThatAreNotRebooted(t *testing.T) {
	unproven := func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
		state(bootKey, v1alpha1.SettingPending)(nil, s)
		for i := range s.Status.Settings {
			if s.Status.Settings[i].Key == bootKey {
				s.Status.Settings[i].TakesEffect = v1alpha1.EffectReboot
			}
		}
		s.Status.Bootloader = &v1alpha1.Bootloader{Type: v1alpha1.BootloaderGrubBLS, Message: "staged only"}
	}
	controlPlane := func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
		rebootDue("")(n, s)
	}
	for name, test := range map[string]struct {
		profile func(*v1alpha1.StorageClientProfile)
		node    func(*corev1.Node, *v1alpha1.StorageClientNode)
		want    string
	}{
		"it would not be accepted":      {policy(v1alpha1.RebootAutomatic), refusedBoot, "Not rebooted: a (" + moduleKey + ": " + zzConf + ")"},
		"its boot loader is not proven": {policy(v1alpha1.RebootAutomatic), unproven, "Not rebooted: a (boot loader GrubBLS: staged only)"},
		"it is the only control-plane node": {
			func(p *v1alpha1.StorageClientProfile) {
				p.Spec.IncludeControlPlane, p.Spec.Rollout.Reboot.Policy = true, v1alpha1.RebootAutomatic
			},
			controlPlane, "Not rebooted: a (the rollout does not reboot the only control-plane node; reboot it manually)",
		},
		"in mode Plan as well": {func(p *v1alpha1.StorageClientProfile) { p.Spec.Mode = v1alpha1.ModePlan }, unproven, "Not rebooted: a (boot loader GrubBLS: staged only)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(test.profile).node("a", test.node).report()
			got := r.planStatus(v1alpha1.Plan{}, 1, now)
			if got.NodesToReboot != 0 || len(got.Examples) > 0 || got.EstimatedCompletion != nil || got.LimitedBy != test.want {
				t.Errorf("got %+v, want limitedBy %q", got, test.want)
			}
			if message := r.conditions(nil, 1, metav1.NewTime(now))[0].Message; !strings.Contains(message, test.want[len("Not rebooted: "):]) {
				t.Errorf("got Ready message %q", message)
			}
			if len(r.nodes.turns) != 1 || !r.nodes.turns[0].Blocked {
				t.Error("got a canary, want none")
			}
			// Another node that can reboot is counted and listed before the excluded node.
			r = newWorld(test.profile).node("a", test.node).node("b", rebootDue("")).report()
			if r.isPlanMode() {
				r = newWorld(test.profile).node("a", test.node).bare("b").report()
			}
			if got := r.planStatus(v1alpha1.Plan{}, 1, now); got.NodesToReboot != 1 || cmp.Diff([]string{"b"}, got.Examples) != "" || got.EstimatedCompletion == nil {
				t.Errorf("with another node: got %+v", got)
			}
		})
	}
}

func TestReadyNamesTheFileThatWins(t *testing.T) {
	shadowed := func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
		for i := range s.Status.Settings {
			if s.Status.Settings[i].Key == "sysctl/net.core.rmem_max" {
				s.Status.Settings[i].State, s.Status.Settings[i].Message = v1alpha1.SettingShadowed, "/etc/sysctl.d/zzz-site.conf wins"
			}
		}
	}
	const files = "Other files override settings on a, b: sysctl/net.core.rmem_max: /etc/sysctl.d/zzz-site.conf wins"
	for want, w := range map[string]*world{
		files: newWorld(nil).node("a", shadowed).node("b", shadowed),
		"Some settings are not available on c; " + files: newWorld(nil).node("a", shadowed).node("b", shadowed).node("c", state(bootKey, v1alpha1.SettingClamped)),
		"Some settings are not available on c":           newWorld(nil).node("c", state(bootKey, v1alpha1.SettingClamped)),
	} {
		if got := w.report().conditions(nil, 1, metav1.NewTime(now))[0]; got.Message != want+"; more: kubectl storageclient diff p" || got.Reason != v1alpha1.ReasonReadyWithExceptions {
			t.Errorf("%s: %q, want %q", got.Reason, got.Message, want)
		}
	}
}

func TestRollingOutListsAllNodesThatWaitForABoot(t *testing.T) {
	w := newWorld(policy(v1alpha1.RebootAutomatic)).node("a", rebootDue("")).node("b", atNextBoot).node("c", refusedBoot)
	const want = "reboot due: a, b; not rebooted: c (module/nfs/max_session_slots: /etc/modprobe.d/zz.conf"
	if got := w.report().progress(metav1.ConditionFalse, v1alpha1.ReasonRollingOut).message; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFindRemaining(t *testing.T) {
	restoring := func(_ *corev1.Node, s *v1alpha1.StorageClientNode) { s.Spec.Release = true }
	notReady := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	partly := func(change func(*v1alpha1.StorageClientNode)) func(*corev1.Node, *v1alpha1.StorageClientNode) {
		return func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
			s.Spec.Settings, s.Spec.Hash, s.Status.Hash, s.Status.Settings = nil, "", "", nil
			change(s)
		}
	}
	for name, test := range map[string]struct {
		profile func(*v1alpha1.StorageClientProfile)
		world   func(*world)
		want    removal
	}{
		"no node, nothing to wait for": {},
		"a node whose restore has not been sent": {
			world: func(w *world) { w.node("a", nil) }, want: removal{nodes: map[string][]string{restoreNotSent: {"a"}}},
		},
		"a node that is being restored": {
			world: func(w *world) { w.node("a", restoring) }, want: removal{nodes: map[string][]string{restoringNode: {"a"}}},
		},
		"a node whose label is still there": {
			world: func(w *world) { w.node("a", nil); delete(w.objects, "a") }, want: removal{nodes: map[string][]string{agentLabelLeft: {"a"}}},
		},
		"a node that is done": {world: func(w *world) { w.bare("a") }},
		"a node that the rollout holds is waited for, reachable or not": {
			world: func(w *world) {
				w.node("a", func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
					restoring(n, s)
					notReady(n)
					s.Status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutRebooting}
				})
			},
			want: removal{nodes: map[string][]string{rolloutHasIt: {"a"}}},
		},
		"a node that is not Ready and whose restore has been sent": {
			world: func(w *world) {
				w.node("a", func(n *corev1.Node, s *v1alpha1.StorageClientNode) { restoring(n, s); notReady(n) })
			},
			want: removal{unreachable: []string{"a"}},
		},
		"one whose restore has not been sent is waited for": {
			world: func(w *world) { w.node("a", func(n *corev1.Node, _ *v1alpha1.StorageClientNode) { notReady(n) }) },
			want:  removal{nodes: map[string][]string{restoreNotSent: {"a"}}},
		},
		"an agent that is silent for a moment is waited for": {
			world: func(w *world) { w.node("a", silentSince(restoring, 59*time.Second)); w.silent["a"] = true },
			want:  removal{nodes: map[string][]string{restoringNode: {"a"}}},
		},
		"one that is silent for a minute is not": {
			world: func(w *world) { w.node("a", silentSince(restoring, time.Minute)); w.silent["a"] = true },
			want:  removal{unreachable: []string{"a"}},
		},
		"an ignored node restores when it no longer is": {
			world: func(w *world) {
				w.node("a", func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
					n.Annotations = map[string]string{v1alpha1.IgnoreAnnotation: "true"}
				})
			},
			want: removal{unreachable: []string{"a"}},
		},
		"Retain waits until the objects contain it": {
			profile: func(p *v1alpha1.StorageClientProfile) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain },
			world: func(w *world) {
				w.node("a", func(_ *corev1.Node, s *v1alpha1.StorageClientNode) {
					for i := range s.Spec.Settings {
						s.Spec.Settings[i].OnRemoval = v1alpha1.DeletionRestore
					}
				})
			},
			want: removal{nodes: map[string][]string{restoreNotSent: {"a"}}},
		},
		"and no longer": {
			profile: func(p *v1alpha1.StorageClientProfile) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain },
			world:   func(w *world) { w.node("a", restoring) },
		},
		"a node of several profiles has put the setting back": {
			world: func(w *world) { w.node("a", partly(func(*v1alpha1.StorageClientNode) {})) },
		},
		"a node of several profiles has not seen yet that it is to": {
			world: func(w *world) { w.node("a", partly(func(s *v1alpha1.StorageClientNode) { s.Generation = 2 })) },
			want:  removal{nodes: map[string][]string{restoringNode: {"a"}}},
		},
		"a node of several profiles is still at it": {
			world: func(w *world) {
				w.node("a", partly(func(s *v1alpha1.StorageClientNode) {
					s.Status.Settings = []v1alpha1.SettingStatus{{Key: "sysctl/net.core.rmem_max"}}
				}))
			},
			want: removal{nodes: map[string][]string{restoringNode: {"a"}}},
		},
		"an effective kernel argument is not awaited": {
			world: func(w *world) {
				w.node("a", partly(func(s *v1alpha1.StorageClientNode) {
					s.Status.Settings, s.Status.RebootRequiredBy = []v1alpha1.SettingStatus{{Key: bootKey}}, []string{bootKey}
				}))
			},
		},
		"unless restoreReboot requires it": {
			profile: func(p *v1alpha1.StorageClientProfile) { p.Spec.Rollout.Reboot.RestoreReboot = true },
			world: func(w *world) {
				w.node("a", partly(func(s *v1alpha1.StorageClientNode) { s.Status.RebootRequiredBy = []string{bootKey} }))
			},
			want: removal{nodes: map[string][]string{rebootRequired: {"a"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(func(p *v1alpha1.StorageClientProfile) {
				deleting(p)
				if test.profile != nil {
					test.profile(p)
				}
			})
			if test.world != nil {
				test.world(w)
			}
			check.Equal(t, "removal", test.want, w.report().removal, cmp.AllowUnexported(removal{}), cmpopts.EquateEmpty())
		})
	}
}

func silentSince(change func(*corev1.Node, *v1alpha1.StorageClientNode), ago time.Duration) func(*corev1.Node, *v1alpha1.StorageClientNode) {
	return func(n *corev1.Node, s *v1alpha1.StorageClientNode) {
		change(n, s)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.TunedNodeCondition, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
		})
	}
}

func TestAPausedProfileIsNotReleasedUnlessItRetains(t *testing.T) {
	paused := func(p *v1alpha1.StorageClientProfile) { deleting(p); p.Spec.Paused = true }
	if newWorld(paused).report().IsReleased() {
		t.Error("got released although the profile is paused")
	}
	retaining := newWorld(func(p *v1alpha1.StorageClientProfile) { paused(p); p.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
	if !retaining.report().IsReleased() {
		t.Error("got not released although the profile retains its settings")
	}
}

func TestAVolumeThatIsNotRestoredKeepsTheProfile(t *testing.T) {
	f := newWorld(deleting).report()
	f.volumes.Unrestored = []string{"v"}
	if f.IsReleased() {
		t.Error("got released with a remaining volume")
	}
}

// A profile without matches reports skipped volumes that it may be meant for.
func TestSkippedVolumesAreReported(t *testing.T) {
	r := newWorld(nil).report()
	r.volumes.LeftOut = []advice.LeftOut{{Driver: "nfs.example.com", Count: 2, Example: "pv-1"}, {Driver: "csi.example.com", Count: 1, Example: "pv-9"}}
	status := r.Status(v1alpha1.StorageClientProfileStatus{}, now)
	check.Equal(t, "skipped volumes", 3, status.Volumes.LeftOut)
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if want := "No node and no volume matches; 3 volumes are skipped (unknown driver); see status.advice"; !strings.HasPrefix(ready.Message, want) {
		t.Errorf("got message %q, want %q", ready.Message, want)
	}
}

func TestExcludedControlPlaneNodesAreNamedWithTheComponent(t *testing.T) {
	for name, test := range map[string]struct {
		worker bool
		want   string
	}{
		"with a worker": {true, "ReadyWithExceptions: Control-plane nodes are excluded without the component control-plane: server-1, server-2; more: kubectl storageclient diff p"},
		"alone":         {false, "NothingMatched: No node and no volume matches; control-plane nodes are excluded without the component control-plane: server-1, server-2; next: kubectl get nodes --show-labels"},
	} {
		w := newWorld(func(p *v1alpha1.StorageClientProfile) { p.Spec.IncludeControlPlane = true })
		if test.worker {
			w.node("worker", nil)
		}
		for _, server := range []string{"server-1", "server-2"} {
			w.node(server, func(n *corev1.Node, _ *v1alpha1.StorageClientNode) {
				n.Labels["node.kubernetes.io/microk8s-controlplane"] = ""
			})
			delete(w.objects, server)
		}
		all := w.snapshot()
		all.Profiles = fleet.NewProfileSet(w.profiles, catalogue.AllowList{}.WithoutControlPlane())
		report := Evaluate("p", Snapshot{All: all}, now)
		ready := meta.FindStatusCondition(report.Status(v1alpha1.StorageClientProfileStatus{}, now).Conditions, v1alpha1.ConditionReady)
		if got := ready.Reason + ": " + ready.Message; got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// A node that failed and never returns keeps its annotation, and an uninstallation must not wait for it.
func TestAFailedNodeThatIsGoneDoesNotKeepAProfile(t *testing.T) {
	for name, test := range map[string]struct {
		phase    v1alpha1.RolloutPhase
		ready    corev1.ConditionStatus
		released bool
	}{
		"it failed and is not back":            {v1alpha1.RolloutFailed, corev1.ConditionUnknown, true},
		"it failed, and its kubelet complains": {v1alpha1.RolloutFailed, corev1.ConditionFalse, true},
		"it failed and is back":                {v1alpha1.RolloutFailed, corev1.ConditionTrue, false},
		"it reboots":                           {v1alpha1.RolloutRebooting, corev1.ConditionUnknown, false},
		"its drain continues":                  {v1alpha1.RolloutDraining, corev1.ConditionUnknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(func(p *v1alpha1.StorageClientProfile) { p.DeletionTimestamp = new(metav1.NewTime(now)) })
			w.node("a", func(n *corev1.Node, c *v1alpha1.StorageClientNode) {
				n.Annotations = map[string]string{v1alpha1.DisruptionAnnotation: "{}"}
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: test.ready}}
				c.Status.Rollout = &v1alpha1.RolloutStatus{Phase: test.phase}
			})
			report := w.report()
			if report.IsReleased() != test.released {
				t.Errorf("got released %t, want %t: %v", report.IsReleased(), test.released, report.removal.messages())
			}
			if lost := len(report.Unreachable()) == 1; lost != test.released {
				t.Errorf("got unreachable nodes %v", report.Unreachable())
			}
		})
	}
}
