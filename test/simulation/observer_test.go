package simulation

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/test/memapi"
)

// observer asserts the invariants. It uses the objects of the API and the machines, and no data of the planner.
//
// A manager cannot know everything. It breaks a rule only if the reason existed both at its last look and when the write took effect.
type observer struct {
	w *world
	// writes counts all changes, touched contains the last two changes by other clients, by object.
	writes  int
	touched map[string][2]int
	// uncordoned is the last write by which another client uncordoned a node.
	uncordoned map[string]int
	// unmarked is the last write that removed the disruption annotation of a node.
	unmarked map[string]int
	// steps counts the manager's changes to nodes: claims, cordons and changes of desired settings.
	steps int
	// announced counts the reboots that agents announced, withdrawn the permits and drained the drains that were checked after a pass.
	announced, withdrawn, drained int
	// inVain counts the evictions of drains that timed out, attempts the evictions of drains that cordoned first.
	inVain, attempts int
	// cordonedFirst counts the drains of nodes that only budgets kept.
	cordonedFirst int
	// drainedAt has the start of the last drain of each node.
	drainedAt map[string]time.Time
	// permits are the permits for each target of a StorageClientNode.
	permits map[string]sets.Set[string]
	// withheld are the targets of StorageClientNodes whose settings were withheld after a reboot without effect.
	withheld sets.Set[string]
	// losses are the machines that were deleted while they had a permit.
	losses []loss
	// markedReady are the UIDs of Nodes that were Ready while an autoscaler had marked them for removal.
	markedReady map[string]bool
	// wellSince is the time since which a node is healthy in its current boot. doneSince is the time since which it is in service with its
	// settings.
	wellSince map[string]moment
	doneSince map[string]moment
	// firstClaim is the write of the first claim for a boot hash, upset the last write that changed the nodes that may start.
	firstClaim map[string]int
	upset      int
	claimedFor map[string]claimed
	// calmSince is the write at the end of the faults, 0 before.
	calmSince int
	// given are the hashes of the desired settings of nodes, if they got them after the faults, or had them already and keep them.
	given map[string]string
	// reportedSince is the time since which an agent reports settings, with their hash.
	reportedSince map[string]moment
	// permittedAt is the write of a permit.
	permittedAt map[string]int
	// backOff is the time at which a drain of a node timed out, with the boot hash.
	backOff map[string]moment
	// rulesChanged is the time of the last change of the profiles that act on nodes.
	rulesChanged time.Time
}

// moment is the start of an event, and its subject.
type moment struct {
	of string
	at time.Time
}

// claimed describes the last claim of a node: a boot hash, and the profiles that needed the reboot.
type claimed struct {
	bootHash string
	needers  []string
}

// loss is a machine that was lost to a permit.
type loss struct {
	name, uid, target string
	plans             map[string]string
	write             int
}

func newObserver(w *world) *observer {
	return &observer{
		w: w, touched: map[string][2]int{}, uncordoned: map[string]int{}, unmarked: map[string]int{}, permits: map[string]sets.Set[string]{}, wellSince: map[string]moment{}, doneSince: map[string]moment{},
		withheld: sets.New[string](), markedReady: map[string]bool{},
		firstClaim: map[string]int{}, claimedFor: map[string]claimed{}, given: map[string]string{}, backOff: map[string]moment{},
		reportedSince: map[string]moment{}, permittedAt: map[string]int{}, drainedAt: map[string]time.Time{},
	}
}

// state contains the objects of the API at one moment.
type state struct {
	nodes, clientNodes, profiles, pods, namespaces []client.Object
}

// look contains the knowledge of a controller when it decided.
type look struct {
	state
	// write is the last change before the look. at and began are the manager's time at the look and at the start of the pass.
	write     int
	at, began time.Time
	// blind are the nodes whose agent was not Ready in the cache.
	blind map[string]bool
	// cached are the Nodes in the cache: the rollout does not read a Node live while its drain continues.
	cached []client.Object
}

func (s *state) node(name string) *corev1.Node { return find[*corev1.Node](s.nodes, name) }

// clientNode returns a node's StorageClientNode, nil if it belongs to a former Node.
func (s *state) clientNode(name string) *v1alpha1.StorageClientNode {
	c, node := find[*v1alpha1.StorageClientNode](s.clientNodes, name), s.node(name)
	if c == nil || node == nil || !isOwned(c, node) {
		return nil
	}
	return c
}

func (s *state) profile(name string) *v1alpha1.StorageClientProfile {
	return find[*v1alpha1.StorageClientProfile](s.profiles, name)
}

// present returns the current state.
func (w *world) present() *state {
	return &state{
		nodes: w.api.All(memapi.Nodes), clientNodes: w.api.All(memapi.ClientNodes), profiles: w.api.All(memapi.Profiles),
		pods: w.api.All(memapi.Pods), namespaces: w.api.All(memapi.Namespaces),
	}
}

// look records the state that the rollout can know from now on.
func (p *process) look() {
	now := p.present()
	l := &look{write: p.writes, at: p.managerTime(), began: p.began, blind: p.blind, cached: slices.Clone(p.cache.All(memapi.Nodes)), state: state{
		nodes: slices.Clone(now.nodes), clientNodes: slices.Clone(now.clientNodes), profiles: slices.Clone(now.profiles),
		pods: slices.Clone(now.pods), namespaces: slices.Clone(now.namespaces),
	}}
	for _, c := range p.clients[:2] {
		c.Token = l
	}
}

// lookAtCache records the state that the node controller can know.
func (p *process) lookAtCache() {
	all := func(kind memapi.Kind) []client.Object { return slices.Clone(p.cache.All(kind)) }
	p.clients[2].Token = &look{write: p.writes, at: p.managerTime(), began: p.managerTime(), state: state{
		nodes: all(memapi.Nodes), clientNodes: all(memapi.ClientNodes), profiles: all(memapi.Profiles), pods: all(memapi.Pods), namespaces: all(memapi.Namespaces),
	}}
}

// observe is called after each write.
func (o *observer) observe(w memapi.Write) {
	o.writes++
	object := w.After
	if object == nil {
		object = w.Before
	}
	if o.w.manager != nil {
		o.w.manager.wake(w)
	}
	o.narrateWrite(w, object)
	if (w.Actor == byRollout || w.Actor == byNodes) && isStep(w) {
		o.steps++
	}
	name := object.GetName()
	if before, isNode := w.Before.(*corev1.Node); isNode && hasMark(before) && (w.After == nil || !hasMark(w.After.(*corev1.Node))) {
		o.unmarked[name] = o.writes
	}
	seen, known := w.Token.(*look)
	switch {
	case w.Actor == byRollout && known:
		o.checkRollout(w, name, seen)
	case w.Actor == byNodes && known:
		o.checkNodeController(w, name, seen)
	default:
		if w.Kind == memapi.Pods {
			name = object.(*corev1.Pod).Spec.NodeName
		}
		o.touched[name] = [2]int{o.touched[name][1], o.writes}
		if isUncordon(w) {
			o.uncordoned[name] = o.writes
		}
		if w.Actor == byPeople || w.Actor == byCluster && w.Kind != memapi.Pods && w.Kind != memapi.Budgets {
			o.upset = o.writes
		}
	}
	if node, isNode := w.After.(*corev1.Node); isNode {
		o.markedReady[string(node.UID)] = isLeaving(node) && (isReadyNode(node) || o.markedReady[string(node.UID)])
	}
	if w.Kind == memapi.Nodes || w.Kind == memapi.ClientNodes {
		o.follow(object.GetName())
	}
}

// isUncordon reports whether a write opens a node to pods again.
func isUncordon(w memapi.Write) bool {
	before, isNode := w.Before.(*corev1.Node)
	return isNode && w.After != nil && before.Spec.Unschedulable && !w.After.(*corev1.Node).Spec.Unschedulable
}

// isStep reports whether a write changes a node.
func isStep(w memapi.Write) bool {
	switch before := w.Before.(type) {
	case *corev1.Node:
		return before.Spec.Unschedulable != w.After.(*corev1.Node).Spec.Unschedulable
	case *v1alpha1.StorageClientNode:
		return w.After == nil || before.Generation != w.After.GetGeneration()
	}
	return true
}

func (o *observer) narrateWrite(w memapi.Write, object client.Object) {
	if o.w.brief {
		if step := describeStep(w); step != "" {
			o.w.narrate("%s %s", w.Actor, step)
		}
		return
	}
	if !o.w.verbose || w.Kind == memapi.Budgets || (w.Kind == memapi.Pods && !w.Eviction) {
		return
	}
	what := "changes"
	switch {
	case w.Eviction:
		what = "evicts"
	case w.Before == nil:
		what = "creates"
	case w.After == nil:
		what = "removes"
	}
	detail := ""
	switch after := w.After.(type) {
	case *corev1.Node:
		_, marked := after.Annotations[v1alpha1.DisruptionAnnotation]
		detail = describe("cordoned", after.Spec.Unschedulable) + describe("annotated", marked) + describe("Ready", isReadyNode(after)) + " boot " + after.Status.NodeInfo.BootID
	case *v1alpha1.StorageClientNode:
		detail = " hash " + after.Spec.Hash + " boot hash " + after.Spec.BootHash + " reported " + after.Status.Hash +
			describe("permit", after.Spec.RebootPermit != nil) + describe("reboot", after.Status.RebootRequired) + describe("release", after.Spec.Release)
		if r := after.Status.Reboot; r != nil {
			detail += " response " + string(r.Phase)
		}
		if r := after.Status.Rollout; r != nil {
			detail += " note " + string(r.Phase) + " " + r.Reason + ": " + r.Message
		}
	case *corev1.ConfigMap:
		var entries []string
		for _, key := range slices.Sorted(maps.Keys(after.Data)) {
			entries = append(entries, key+"="+after.Data[key])
		}
		detail = " " + strings.Join(entries, " ")
	}
	o.w.narrate("%s %s %s %s%s", w.Actor, what, w.Kind, object.GetName(), detail)
}

func describe(what string, is bool) string {
	if is {
		return " " + what
	}
	return ""
}

// follow records the times since which a node is healthy and done.
func (o *observer) follow(name string) {
	now := o.w.present()
	node, c := now.node(name), now.clientNode(name)
	if node == nil || c == nil {
		delete(o.wellSince, name)
		delete(o.doneSince, name)
		return
	}
	if c.Status.Hash != c.Spec.Hash {
		delete(o.reportedSince, name)
	} else if o.reportedSince[name].of != c.Spec.Hash {
		o.reportedSince[name] = moment{c.Spec.Hash, o.w.now}
	}
	well := isReadyNode(node) && isWell(node, c)
	if boot := node.Status.NodeInfo.BootID; well && o.wellSince[name].of != boot {
		o.wellSince[name] = moment{boot, o.w.now}
	}
	_, claimed := o.w.claims()[name]
	inService := isReadyNode(node) && !claimed && !hasMark(node) && !hasFailed(c)
	done := well && inService
	switch previous := o.doneSince[name]; {
	case !done && inService && previous.of == c.Spec.BootHash && (c.Status.Hash != c.Spec.Hash || hasSettings(node, c)):
		// Live values change, or the agent has not seen yet that its permit was withdrawn. The settings of the boot stay until the agent
		// reports otherwise.
	case !done:
		delete(o.doneSince, name)
	case previous.of != c.Spec.BootHash:
		o.doneSince[name] = moment{c.Spec.BootHash, o.w.now}
	}
}

// isWell reports whether the agent has seen its spec and reports that the node has its settings.
func isWell(node *corev1.Node, c *v1alpha1.StorageClientNode) bool {
	return c.Status.ObservedGeneration >= c.Generation && hasSettings(node, c)
}

// hasSettings reports whether the agent reports in this boot all settings that the rollout waits for.
func hasSettings(node *corev1.Node, c *v1alpha1.StorageClientNode) bool {
	s := &c.Status
	if s.BootID != node.Status.NodeInfo.BootID || (!c.Spec.Release && s.Hash != c.Spec.Hash) {
		return false
	}
	if c.Spec.Release {
		return s.Restored
	}
	return !slices.ContainsFunc(s.Settings, func(s v1alpha1.SettingStatus) bool {
		return wants(c, s.Key) && (isBlocking(s.State, s.TakesEffect) || s.State == v1alpha1.SettingPending && s.TakesEffect == v1alpha1.EffectReboot)
	})
}

func hasMark(node *corev1.Node) bool {
	_, marked := node.Annotations[v1alpha1.DisruptionAnnotation]
	return marked
}

// target identifies the goal of attempts and failures of a StorageClientNode.
func target(c *v1alpha1.StorageClientNode) string {
	if c.Spec.Release {
		return "release-" + c.Spec.BootHash
	}
	return c.Spec.BootHash
}

func hasFailed(c *v1alpha1.StorageClientNode) bool {
	r := c.Status.Rollout
	return r != nil && r.Phase == v1alpha1.RolloutFailed && r.BootHash == target(c)
}

func isLeaving(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
}

func isControlPlane(node *corev1.Node) bool {
	_, is := node.Labels["node-role.kubernetes.io/control-plane"]
	return is
}

// isOut reports whether a node is out of service for a reason other than the rollout.
func isOut(node *corev1.Node) bool {
	return !isReadyNode(node) || isLeaving(node) || node.DeletionTimestamp != nil || node.Spec.Unschedulable && !hasMark(node)
}

// needers returns the profiles that need a reboot of the node for their settings.
func needers(c *v1alpha1.StorageClientNode) []string {
	var out []string
	for _, s := range c.Spec.Settings {
		if !c.Spec.Release && isBootKey(s.Key) && slices.Contains(c.Status.RebootRequiredBy, s.Key) && !slices.Contains(out, s.Profile) {
			out = append(out, s.Profile)
		}
	}
	return out
}

// blockingSettings returns the settings that would prevent acceptance of the node after a reboot, according to its agent.
func blockingSettings(node *corev1.Node, c *v1alpha1.StorageClientNode) []string {
	var out []string
	if c.Spec.Release || c.Status.Hash != c.Spec.Hash || c.Status.BootID != node.Status.NodeInfo.BootID {
		return nil
	}
	for _, s := range c.Status.Settings {
		boots := s.TakesEffect == v1alpha1.EffectReboot
		if isBlocking(s.State, s.TakesEffect) && (wants(c, s.Key) || boots) {
			out = append(out, s.Key)
		}
	}
	return out
}

// concerns reports whether a profile selects a node, or the node has settings of the profile.
func concerns(p *v1alpha1.StorageClientProfile, node *corev1.Node, c *v1alpha1.StorageClientNode) bool {
	return selects(p, node) || c != nil && slices.ContainsFunc(c.Spec.Settings, func(s v1alpha1.NodeSetting) bool { return s.Profile == p.Name })
}

func selects(p *v1alpha1.StorageClientProfile, node *corev1.Node) bool {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.NodeSelector)
	return err == nil && selector.Matches(labels.Set(node.Labels)) && (p.Spec.IncludeControlPlane || !isControlPlane(node))
}

// stood reports whether a condition was true when the manager looked, and is true now. If other clients changed the object more than once
// in between, the condition may have been false for a time: then the result is false.
func (o *observer) stood(seen *look, name string, is func(*state) bool) bool {
	return o.touched[name][0] <= seen.write && is(&seen.state) && is(o.w.present())
}

// nodeStood is stood for a node that exists.
func (o *observer) nodeStood(seen *look, name string, is func(*corev1.Node) bool) bool {
	return o.stood(seen, name, func(s *state) bool {
		node := s.node(name)
		return node != nil && is(node)
	})
}

// clientNodeStood is stood for a node that exists and has its StorageClientNode.
func (o *observer) clientNodeStood(seen *look, name string, is func(*corev1.Node, *v1alpha1.StorageClientNode) bool) bool {
	return o.stood(seen, name, func(s *state) bool {
		c := s.clientNode(name)
		return c != nil && is(s.node(name), c)
	})
}
