package fleet_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/drift"
	"github.com/storageclient/operator/controllers/internal/fleet"
	nodeplan "github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/profile/status"
	rolloutplan "github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/test/answers"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/nodesettings"
)

var update = flag.Bool("update", false, "write the answers instead of comparing them")

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// The test covers these keys. net needs confirmation by new connections, live takes effect immediately, and boot requires a reboot. Each
// node also has base, an effective kernel argument. extra is a setting that the node does not have yet.
const (
	netKey   = "sysctl/net.core.rmem_max"
	liveKey  = "sysctl/vm.dirty_ratio"
	bootKey  = "kernelArgument/ihash_entries"
	baseKey  = "kernelArgument/dhash_entries"
	extraKey = "sysctl/vm.dirty_background_ratio"
)

var (
	values  = map[string]string{netKey: "16777216", liveKey: "20", bootKey: "16777216", baseKey: "33554432", extraKey: "5"}
	keyName = map[string]string{netKey: "net", liveKey: "live", bootKey: "boot"}
)

// These facts about a node do not follow from its settings.
const (
	usual           = "nothing else is to be known"
	oldBoot         = "the agent has not reported since the boot"
	podNotReady     = "only the agent's Pod is not Ready"
	otherHash       = "the agent reports another hash"
	otherHashShared = "the agent reports another hash, and another profile has settings on the node"
	neverObserved   = "the agent has observed no generation"
	bootedInVain    = "a reboot had no effect on base"
	toChange        = "the profile declares one setting more"
	releasing       = "the node is released"
	hasRestored     = "the node is released, and restored"
	profileLeaves   = "the profile is being deleted, another one has the settings"
)

var facts = []string{usual, oldBoot, podNotReady, otherHash, otherHashShared, neverObserved, bootedInVain, toChange, releasing, hasRestored, profileLeaves}

var (
	states = []v1alpha1.SettingState{
		v1alpha1.SettingInSync, v1alpha1.SettingPending, v1alpha1.SettingDrifted, v1alpha1.SettingShadowed,
		v1alpha1.SettingClamped, v1alpha1.SettingUnsupported, v1alpha1.SettingFailed, "Unknown",
	}
	effects = []v1alpha1.SettingEffect{
		v1alpha1.EffectLive, v1alpha1.EffectNextMount, v1alpha1.EffectNewTransport, v1alpha1.EffectReboot, v1alpha1.EffectAction, "",
	}
)

// columns are the names of the checks, in their order.
var columns = []string{"Tuned", "taint", "live gate", "rollout", "after a boot", "next node of the canary", "profile", "plugin", "node plan", "event"}

// TestAnswers pins the result of every function that depends on the state of a setting, for every combination that the API allows.
func TestAnswers(t *testing.T) {
	var out answers.File
	out.Printf("The answers of each consumer, by go test ./controllers/internal/fleet -run TestAnswers -update.\nColumns: %s.\n", strings.Join(columns, " | "))
	for _, fact := range facts {
		out.Printf("\n## %s\n", fact)
		var rows []answers.Row
		for _, one := range combinations() {
			rows = append(rows, answers.Row{Labels: one.labels(), Answer: newScene(fact, one).evaluate()})
		}
		out.Add(rows)
	}
	out.Check(t, "testdata/answers.golden", *update)
}

// reported is a setting in an agent's report.
type reported struct {
	key    string
	state  v1alpha1.SettingState
	effect v1alpha1.SettingEffect
	// due means that the agent also lists the setting in RebootRequiredBy. dropped means that the node no longer gets the setting. missing
	// means that the agent does not report the setting.
	due, dropped, missing bool
}

// waitsFor returns the event that the agent reports for a live value, the only effect with several.
func (r reported) waitsFor() v1alpha1.SettingWait {
	switch {
	case r.state != v1alpha1.SettingPending || r.effect != v1alpha1.EffectLive:
		return ""
	case r.key == netKey:
		return v1alpha1.WaitsForConnections
	}
	return v1alpha1.WaitsForModule
}

func combinations() []reported {
	var out []reported
	for _, dropped := range []bool{false, true} {
		for _, state := range states {
			for _, effect := range effects {
				for _, key := range []string{netKey, liveKey, bootKey} {
					for _, due := range []bool{false, true} {
						out = append(out, reported{key: key, state: state, effect: effect, due: due, dropped: dropped})
					}
				}
			}
		}
	}
	for _, key := range []string{netKey, liveKey, bootKey} {
		for _, due := range []bool{false, true} {
			out = append(out, reported{key: key, due: due, missing: true})
		}
	}
	return out
}

func (r reported) labels() []string {
	labels := []string{"wanted", string(r.state), string(r.effect), keyName[r.key], "-"}
	if r.dropped {
		labels[0] = "dropped"
	}
	if r.missing {
		labels[1], labels[2] = "unreported", "-"
	} else if r.effect == "" {
		labels[2] = "none"
	}
	if r.due {
		labels[4] = "due"
	}
	return labels
}

// declared contains profiles and the data that depends only on them.
type declared struct {
	profiles []v1alpha1.StorageClientProfile
	set      *fleet.ProfileSet
	rollout  []rolloutplan.Profile
}

func declare(profiles ...v1alpha1.StorageClientProfile) declared {
	d := declared{profiles: profiles, set: fleet.NewProfileSet(profiles, catalogue.AllowList{})}
	for i := range profiles {
		p := &profiles[i]
		bootKeys := sets.New[string]()
		for _, setting := range nodesettings.Settings(p) {
			if nodesettings.TakesEffectAtBoot(setting.Key) {
				bootKeys.Insert(setting.Key)
			}
		}
		d.rollout = append(d.rollout, rolloutplan.Profile{
			Name: p.Name, Rollout: p.Spec.WithDefaults().Rollout, Deleting: p.DeletionTimestamp != nil, PlanHash: nodesettings.PlanHash(p), BootKeys: bootKeys,
		})
	}
	return d
}

// declarations are the profiles that determined the node's settings, and the current profiles.
type declarations struct{ given, current declared }

// knownDeclarations caches the declarations of earlier scenes by fact and keys.
var knownDeclarations = map[string]declarations{}

// declarationsFor returns the profiles of a node with a fact. p is the profile under test.
func declarationsFor(fact string, keys []string) declarations {
	name := fact + strings.Join(keys, " ")
	if known, ok := knownDeclarations[name]; ok {
		return known
	}
	profiles := []v1alpha1.StorageClientProfile{newProfile("p", keys...)}
	switch fact {
	case otherHashShared:
		profiles = append(profiles, newProfile("q", extraKey))
	case profileLeaves:
		profiles = []v1alpha1.StorageClientProfile{newProfile("p", extraKey), newProfile("q", keys...)}
		profiles[0].DeletionTimestamp = &metav1.Time{Time: noon}
	}
	d := declarations{given: declare(profiles...)}
	d.current = d.given
	changed := *profiles[0].DeepCopy()
	switch fact {
	case toChange:
		changed.Spec.Node.Sysctls["vm.dirty_background_ratio"] = "5"
		d.current = declare(changed)
	case releasing, hasRestored:
		changed.DeletionTimestamp = &metav1.Time{Time: noon}
		d.current = declare(changed)
	}
	knownDeclarations[name] = d
	return d
}

// scene is one node with one tested setting, and the data to evaluate it.
type scene struct {
	declared
	fact       string
	node       *corev1.Node
	clientNode *v1alpha1.StorageClientNode
	ready      bool
}

func newScene(fact string, tested ...reported) *scene {
	keys := []string{baseKey}
	for _, one := range tested {
		if !one.dropped {
			keys = append(keys, one.key)
		}
	}
	all := declarationsFor(fact, keys)
	s := &scene{declared: all.current, fact: fact, node: newNode("n"), ready: fact != podNotReady}
	s.clientNode = newClientNode(s.node, all.given.set.Desired(s.node, nil))
	for _, one := range tested {
		s.report(one)
	}
	s.add(fact)
	return s
}

func (s *scene) desired() fleet.Desired { return s.set.Desired(s.node, s.clientNode) }

// report adds the tested setting to the agent's report.
func (s *scene) report(one reported) {
	status := &s.clientNode.Status
	status.Settings = slices.DeleteFunc(status.Settings, func(s v1alpha1.SettingStatus) bool { return s.Key == one.key })
	if !one.missing {
		status.Settings = append(status.Settings, v1alpha1.SettingStatus{
			Key: one.key, Desired: values[one.key], State: one.state, TakesEffect: one.effect, WaitsFor: one.waitsFor(),
		})
	}
	if one.due {
		status.RebootRequired, status.RebootRequiredBy = true, append(status.RebootRequiredBy, one.key)
	}
}

// add applies a fact to the scene.
func (s *scene) add(fact string) {
	spec, status := &s.clientNode.Spec, &s.clientNode.Status
	switch fact {
	case oldBoot:
		status.BootID = "boot-0"
	case otherHash, otherHashShared:
		status.Hash = "former"
	case neverObserved:
		status.ObservedGeneration = 0
	case bootedInVain:
		spec.Settings = slices.DeleteFunc(spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Key == baseKey })
		status.Settings = slices.DeleteFunc(status.Settings, func(s v1alpha1.SettingStatus) bool { return s.Key == baseKey })
		status.Rollout = &v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutFailed, Reason: v1alpha1.RolloutReasonRebootWithoutEffect, BootHash: spec.BootHash}
	case releasing, hasRestored:
		spec.Release, status.Restored = true, fact == hasRestored
	}
}

func newNode(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("node-" + name), CreationTimestamp: metav1.NewTime(noon.Add(-24 * time.Hour)),
		Labels: map[string]string{corev1.LabelOSStable: "linux", v1alpha1.ManagedLabel: v1alpha1.True},
	}}
	node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.UntunedTaint, Effect: corev1.TaintEffectNoSchedule}}
	node.Status.NodeInfo.BootID = "boot-1"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

func newProfile(name string, keys ...string) v1alpha1.StorageClientProfile {
	p := v1alpha1.StorageClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: []string{v1alpha1.Finalizer}, Generation: 1}}
	p.Spec.AllNodes = true
	p.Spec.Rollout.Reboot.Policy = v1alpha1.RebootAutomatic
	p.Spec.Rollout.MaxConcurrentLive = ptr.To(intstr.FromInt32(1))
	p.Spec.Node = &v1alpha1.NodeTuning{Sysctls: map[string]v1alpha1.SettingText{}}
	for _, key := range keys {
		subject, setting, _ := strings.Cut(key, "/")
		if subject == catalogue.Sysctls {
			p.Spec.Node.Sysctls[setting] = v1alpha1.SettingText(values[key])
			continue
		}
		p.Spec.Node.KernelArguments = append(p.Spec.Node.KernelArguments, v1alpha1.KernelArgument(setting+"="+values[key]))
	}
	return p
}

// newClientNode returns a StorageClientNode with all desired settings effective.
func newClientNode(node *corev1.Node, desired fleet.Desired) *v1alpha1.StorageClientNode {
	c := &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: types.UID("object-" + node.Name), Generation: 1, OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: node.Name, UID: node.UID}},
	}}
	c.Spec = v1alpha1.StorageClientNodeSpec{Settings: slices.Clone(desired.Settings), Hash: desired.Hash, BootHash: desired.BootHash}
	c.Status = v1alpha1.StorageClientNodeStatus{Hash: desired.Hash, BootID: node.Status.NodeInfo.BootID, ObservedGeneration: 1}
	for _, setting := range desired.Settings {
		c.Status.Settings = append(c.Status.Settings, v1alpha1.SettingStatus{
			Key: setting.Key, Desired: setting.Value, Observed: setting.Value, State: v1alpha1.SettingInSync, TakesEffect: catalogue.Effect(setting.Key),
		})
	}
	return c
}

func (s *scene) isReleased() bool { return s.clientNode.Spec.Release }

// snapshot returns the node for the controllers that read all nodes. The other nodes have their own StorageClientNodes.
func (s *scene) snapshot(others ...*scene) fleet.Snapshot {
	all := fleet.Snapshot{Profiles: s.set, ClientNodes: map[string]*v1alpha1.StorageClientNode{}, Ready: map[string]bool{}}
	for _, one := range append([]*scene{s}, others...) {
		all.Nodes = append(all.Nodes, one.node)
		all.ClientNodes[one.node.Name], all.Ready[one.node.Name] = one.clientNode, one.ready
	}
	return all
}

func (s *scene) nodePlanSnapshot() nodeplan.Snapshot {
	return nodeplan.Snapshot{
		Node: s.node, ClientNode: s.clientNode, AgentReady: s.ready, Profiles: s.set, Desired: s.desired(),
		Report: fleet.ReportOf(s.node, s.clientNode, s.ready, ""), Limits: nodeplan.Limits{MaxConcurrentLive: intstr.FromInt32(1), UntunedTaint: v1alpha1.UntunedTaint},
	}
}

// evaluate runs all checks in order. A later check sees the changes of the earlier checks.
func (s *scene) evaluate() string {
	tuned := s.tuned()
	next := s.planRollout()
	taint := "stays"
	if slices.Contains(stepsOf(next, s.node.Name), "plan.RemoveTaint") {
		taint = "off"
	}
	rollout := s.describeRollout(next)
	if note, found := next.Notes[s.node.Name]; found {
		s.clientNode.Status.Rollout = &note
	}
	return strings.Join([]string{tuned, taint, s.liveGate(), rollout, s.afterBoot(), s.canary(), s.profile(), s.plugin(), s.nodePlan(), s.event()}, " | ")
}

// tuned returns the Node's condition. It also adds the condition to the Node, with a time one hour ago.
func (s *scene) tuned() string {
	condition, _ := nodeplan.Condition(s.nodePlanSnapshot(), s.clientNode, "", noon.Add(-time.Hour))
	s.node.Status.Conditions = append(s.node.Status.Conditions, condition)
	return fmt.Sprintf("%s %s", condition.Status, condition.Reason)
}

func (s *scene) liveGate() string {
	entry := fleet.GateEntry(s.snapshot(), s.node, s.clientNode, v1alpha1.UntunedTaint)
	answer := "running"
	switch {
	case entry.Failed:
		answer = "failed"
	case entry.Applied:
		answer = "taken"
	}
	if !entry.AppliedSince.IsZero() {
		answer += ", soaks"
	}
	return answer
}

// planNode returns the node as the rollout sees it.
func (s *scene) planNode() rolloutplan.Node {
	desired := s.desired()
	node := rolloutplan.Node{
		Name: s.node.Name, UID: string(s.node.UID), Created: s.node.CreationTimestamp.Time, Labels: s.node.Labels, BootID: s.node.Status.NodeInfo.BootID,
		Ready: true, Untuned: true, AgentReady: s.ready,
		ClientNode: &rolloutplan.ClientNode{
			UID: string(s.clientNode.UID), Generation: s.clientNode.Generation, DesiredBootHash: desired.BootHash,
			Withheld: fleet.WithheldSettings(s.clientNode, desired.Result), Spec: s.clientNode.Spec, Status: s.clientNode.Status,
		},
	}
	for _, p := range s.profiles {
		node.Profiles = append(node.Profiles, p.Name)
	}
	return node
}

func (s *scene) rolloutSnapshot(nodes ...rolloutplan.Node) rolloutplan.Snapshot {
	return rolloutplan.Snapshot{Now: noon, Budget: 10, Claims: map[string]v1alpha1.Disruption{}, Profiles: s.rollout, Nodes: nodes}
}

func (s *scene) planRollout() rolloutplan.Plan {
	return rolloutplan.NewSession(s.rolloutSnapshot(s.planNode())).Plan()
}

func stepsOf(p rolloutplan.Plan, node string) []string {
	var out []string
	for _, step := range p.Steps {
		if step.NodeName() == node {
			out = append(out, fmt.Sprintf("%T", step))
		}
	}
	return out
}

func describeNote(p rolloutplan.Plan, node string) string {
	note, found := p.Notes[node]
	switch {
	case !found:
		return "no note"
	case string(note.Phase) == note.Reason:
		return note.Reason
	}
	return string(note.Phase) + " " + note.Reason
}

// describeRollout returns the rollout's decision about the node before any reboot.
func (s *scene) describeRollout(p rolloutplan.Plan) string { return describeNote(p, s.node.Name) }

// afterBoot returns the rollout's decision if the node with the same report has just finished a permitted reboot.
func (s *scene) afterBoot() string {
	node := s.planNode()
	target := node.ClientNode.Spec.BootHash
	if s.isReleased() {
		target = "release-" + target
	}
	since := metav1.NewTime(noon.Add(-time.Minute))
	claim := v1alpha1.Disruption{Profile: "p", BootHash: target, Since: since}
	node.Mark, node.Unschedulable, node.Maintenance = &claim, true, rolloutplan.MaintenanceDrained
	node.ClientNode.Spec.RebootPermit = &v1alpha1.RebootPermit{ID: "permit", BootHash: node.ClientNode.Spec.BootHash, BootID: "boot-0"}
	if s.fact != bootedInVain {
		node.ClientNode.Status.Rollout = &v1alpha1.RolloutStatus{
			Phase: v1alpha1.RolloutRebooting, Reason: v1alpha1.RolloutReasonPermitGiven, Since: &since, Attempts: 1, BootHash: target,
		}
	}
	snapshot := s.rolloutSnapshot(node)
	snapshot.Claims[node.Name] = claim
	return describeNote(rolloutplan.NewSession(snapshot).Plan(), node.Name)
}

// canary returns the decision about a second node that needs a reboot. The tested node is the canary and has had no disruption for an hour.
func (s *scene) canary() string {
	if s.isReleased() {
		return "-"
	}
	first := s.planNode()
	if s.fact != bootedInVain {
		first.ClientNode.Status.Rollout = &v1alpha1.RolloutStatus{
			Phase: v1alpha1.RolloutUpToDate, Reason: v1alpha1.RolloutReasonNothingToDo, Since: ptr.To(metav1.NewTime(noon.Add(-time.Hour))),
			BootHash: first.ClientNode.Spec.BootHash,
		}
	}
	other := *s
	other.node = newNode("other")
	other.node.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
	other.clientNode = newClientNode(other.node, s.desired())
	other.ready = true
	other.report(reported{key: baseKey, state: v1alpha1.SettingPending, effect: v1alpha1.EffectReboot, due: true})
	second := other.planNode()
	return describeNote(rolloutplan.NewSession(s.rolloutSnapshot(first, second)).Plan(), second.Name)
}

// profile returns the profile's status: the count that includes the node, and the conditions.
func (s *scene) profile() string {
	report := status.Evaluate("p", status.Snapshot{All: s.snapshot(), MaxUnavailable: intstr.FromInt32(1)}, noon)
	got := report.Status(v1alpha1.StorageClientProfileStatus{}, noon)
	var out []string
	for name, count := range map[string]int32{
		"upToDate": got.Nodes.UpToDate, "exceptions": got.Nodes.Exceptions, "pendingReboot": got.Nodes.PendingReboot, "failed": got.Nodes.Failed, "drifted": got.Nodes.Drifted,
	} {
		if count > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady)
	for name, phrase := range map[string]string{"behind": "pending: n", "silent": "no agent report from n"} {
		if strings.Contains(ready.Message, phrase) {
			out = append(out, name)
		}
	}
	out = append(out, string(ready.Status)+" "+ready.Reason)
	if meta.IsStatusConditionTrue(got.Conditions, v1alpha1.ConditionStalled) {
		out = append(out, "Stalled")
	}
	if report.IsReleased() && report.IsDeleting() {
		out = append(out, "goes")
	}
	return strings.Join(out, " ")
}

// plugin returns the plugin's output about the node.
func (s *scene) plugin() string {
	cluster := overview.Cluster{
		Profiles: s.profiles, Nodes: []corev1.Node{*s.node}, StorageClientNodes: []v1alpha1.StorageClientNode{*s.clientNode}, MaxUnavailable: intstr.FromInt32(1), Now: noon,
	}
	profile := &s.profiles[0]
	var out []string
	for _, standing := range overview.ProgressOf(profile, cluster) {
		out = append(out, map[bool]string{true: "done", false: "open"}[standing.Done])
	}
	if len(overview.Deviations(profile, cluster)) > 0 {
		out = append(out, "deviates")
	}
	preview := overview.Plan(profile, cluster)
	if len(preview.Reboots) > 0 {
		out = append(out, "reboots")
	}
	if len(preview.NotRebooted) > 0 {
		out = append(out, "notRebooted")
	}
	if len(overview.DiffNodes(profile, cluster).Groups) > 0 {
		out = append(out, "differs")
	}
	return strings.Join(out, " ")
}

// nodePlan returns the next step of the node. During a restore, it also reports whether another node may be restored at the same time.
func (s *scene) nodePlan() string {
	answer := nodeplan.For(s.nodePlanSnapshot()).String()
	if !s.isReleased() {
		return answer
	}
	other := *s
	other.node = newNode("other")
	other.clientNode = newClientNode(other.node, fleet.Desired{Result: nodesettings.Result{Settings: s.clientNode.Spec.Settings, Hash: "h"}})
	other.ready = true
	second := other.nodePlanSnapshot()
	if write, writes := nodeplan.For(second).(nodeplan.Write); writes {
		step, _ := new(nodeplan.Gate).Evaluate(second, write, func() time.Time { return noon }, func() (fleet.Snapshot, error) { return s.snapshot(&other), nil })
		if _, writes := step.(nodeplan.Write); writes {
			return answer + ", another goes"
		}
	}
	return answer + ", another waits"
}

// event reports whether an event is sent if all settings were effective before.
func (s *scene) event() string {
	before := s.clientNode.DeepCopy()
	for i := range before.Status.Settings {
		before.Status.Settings[i].State = v1alpha1.SettingInSync
	}
	recorder := events.NewFakeRecorder(10)
	(&drift.Reporter{Recorder: recorder}).ReportChanges(before, s.clientNode)
	if len(recorder.Events) == 0 {
		return "-"
	}
	return "event"
}

// TestTheWorstStateCounts pins the combined state of two settings of one node, for each pair of states.
func TestTheWorstStateCounts(t *testing.T) {
	each := map[string]reported{
		"effective":        {state: v1alpha1.SettingInSync, effect: v1alpha1.EffectLive},
		"deferred":         {state: v1alpha1.SettingPending, effect: v1alpha1.EffectNextMount},
		"unproven":         {state: v1alpha1.SettingPending, effect: v1alpha1.EffectLive},
		"applying":         {state: v1alpha1.SettingPending, effect: v1alpha1.EffectAction},
		"pending reboot":   {state: v1alpha1.SettingPending, effect: v1alpha1.EffectReboot, due: true},
		"drifted":          {state: v1alpha1.SettingDrifted, effect: v1alpha1.EffectLive},
		"unstaged":         {state: v1alpha1.SettingDrifted, effect: v1alpha1.EffectReboot},
		"overridden":       {state: v1alpha1.SettingShadowed, effect: v1alpha1.EffectLive},
		"overriddenAtBoot": {state: v1alpha1.SettingShadowed, effect: v1alpha1.EffectReboot},
		"unavailable":      {state: v1alpha1.SettingUnsupported, effect: v1alpha1.EffectLive},
		"failed":           {state: v1alpha1.SettingFailed, effect: v1alpha1.EffectLive},
		"restoring":        {state: v1alpha1.SettingPending, effect: v1alpha1.EffectLive, dropped: true},
		"restoreAtBoot":    {state: v1alpha1.SettingPending, effect: v1alpha1.EffectReboot, dropped: true, due: true},
		"restoreFailed":    {state: v1alpha1.SettingFailed, effect: v1alpha1.EffectLive, dropped: true},
	}
	names := slices.Sorted(maps.Keys(each))
	var out answers.File
	out.Printf("The answers for two settings of one node.\nColumns: %s.\n\n", strings.Join(columns, " | "))
	var rows []answers.Row
	for _, a := range names {
		for _, b := range names {
			first, second := each[a], each[b]
			first.key, second.key = netKey, bootKey
			rows = append(rows, answers.Row{Labels: []string{"net:" + a, "boot:" + b}, Answer: newScene(usual, first, second).evaluate()})
		}
	}
	out.Add(rows)
	out.Check(t, "testdata/pairs.golden", *update)
}
