package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/apiclock"
	"github.com/storageclient/operator/controllers/node"
	"github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/controllers/rollout"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/test/memapi"
)

// process is one run of the manager.
type process struct {
	*world
	ctx context.Context //nolint:containedctx // a process that dies ends all its calls
	end context.CancelFunc

	cache   *memapi.Cache
	rollout *rollout.Reconciler
	nodes   *node.Reconciler
	// evictions are the background evictions of the drains.
	evictions []func()
	// clients are the clients that record the knowledge of the manager at each call.
	clients []*memapi.Client
	// dirty are the nodes with a new write, due is true if the rollout must run a pass.
	dirty map[string]bool
	due   bool
	// rolloutAt and nodeAt are the times of the next passes that the controllers requested.
	rolloutAt time.Time
	nodeAt    map[string]time.Time
	// wait and err are the outcome of the last pass of the rollout.
	wait time.Duration
	err  error
	// nodesBusy is true while the node controller runs: it handles one node at a time.
	nodesBusy bool
	// began is the time of the manager's clock at the start of a pass.
	began time.Time
	// blind are the nodes whose agent was not Ready in the cache at the start of a pass.
	blind map[string]bool
	// hasPassed is true once the last call of the rollout has read the claims, isDisturbed once something else happened in it.
	hasPassed, isDisturbed bool
	// overlaps is true while another manager makes a pass in the middle of a call of this one, or this manager is the other one.
	overlaps bool
	// calls is held during each call of the rollout, if it handles several nodes concurrently.
	calls sync.Mutex
}

// fenced reports that the fence is effective.
type fenced struct{}

func (fenced) Missing(context.Context) (string, error) { return "", nil }

// discardEvents discards events.
type discardEvents struct{}

func (discardEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (w *world) startManager() *process {
	// A new manager may run on another machine. Its first request is that for its lease.
	w.clock = &apiclock.Clock{Local: machineClock{w, w.anyLead()}}
	w.hear()
	return w.newProcess()
}

func (w *world) newProcess() *process {
	p := &process{world: w, cache: w.api.NewCache(), dirty: map[string]bool{}, nodeAt: map[string]time.Time{}, due: true}
	p.ctx, p.end = context.WithCancel(log.IntoContext(context.Background(), logr.Discard()))
	cached := func(actor string) *memapi.Client {
		return &memapi.Client{Server: w.api, Actor: actor, Cache: p.cache, ReadsOwnWrites: true, Decide: p.decide}
	}
	live := &memapi.Client{Server: w.api, Actor: byRollout, Decide: p.decide}
	forRollout, forNodes := cached(byRollout), cached(byNodes)
	p.clients = []*memapi.Client{live, forRollout, forNodes}
	if w.workers > 1 {
		live.Lock, forRollout.Lock = &p.calls, &p.calls
	}
	drains := &drain.Runner{
		Drainer: drain.Drainer{
			Reader: live, Evictor: drain.PolicyEvictor{Client: forRollout}, DryRunEvictor: drain.PolicyEvictor{Client: forRollout, DryRun: true}, Concurrency: 1,
			Now: w.clock.Now,
		},
		Go: func(do func()) { p.evictions = append(p.evictions, do) },
	}
	p.lead(drains)
	p.rollout = &rollout.Reconciler{
		Client:         forRollout,
		APIReader:      live,
		Recorder:       discardEvents{},
		Clock:          w.clock,
		MaxUnavailable: w.maxUnavailable,
		ManagerNode:    w.managerNode,
		UntunedTaint:   v1alpha1.UntunedTaint,
		Workers:        w.workers,
		Drains:         drains,
	}
	p.nodes = &node.Reconciler{
		Client: forNodes, Clock: w.clock, Fence: fenced{},
		Patience: plan.NewPatience(), Limits: w.limits,
	}
	for _, name := range w.names(memapi.Nodes) {
		p.dirty[name] = true
	}
	return p
}

// lead starts the drains and returns when they may run.
func (p *process) lead(drains *drain.Runner) {
	ctx := &leadership{Context: p.ctx, asked: make(chan struct{})}
	go func() { _ = drains.Start(ctx) }()
	<-ctx.asked
}

// leadership signals when a caller waits for its end.
type leadership struct {
	context.Context //nolint:containedctx // it is one

	asked chan struct{}
	once  sync.Once
}

func (l *leadership) Done() <-chan struct{} {
	l.once.Do(func() { close(l.asked) })
	return l.Context.Done()
}

// runEvictions runs the evictions that the drains have started.
func (p *process) runEvictions() {
	evictions := p.evictions
	p.evictions = nil
	for _, evict := range evictions {
		evict()
	}
}

func (p *process) dead() bool { return p.ctx.Err() != nil }

// seeSome updates the cache with some of the changes, a different part for each kind.
func (p *process) seeSome() {
	for kind := memapi.Nodes; kind <= memapi.Namespaces; kind++ {
		behind := p.cache.Behind(kind)
		if p.chance(3) {
			behind = p.rng.IntN(behind + 1)
		}
		p.cache.Advance(kind, behind)
	}
}

// runRollout runs a pass if one is due.
func (p *process) runRollout() {
	if p.quiet && !p.due && (p.rolloutAt.IsZero() || p.now.Before(p.rolloutAt)) {
		return
	}
	p.due, p.rolloutAt = false, time.Time{}
	p.began, p.blind = p.managerTime(), p.unreadyAgents()
	p.look()
	all := func(kind memapi.Kind) []client.Object { return slices.Clone(p.cache.All(kind)) }
	cached := &state{nodes: all(memapi.Nodes), clientNodes: all(memapi.ClientNodes), profiles: all(memapi.Profiles), namespaces: all(memapi.Namespaces)}
	p.hasPassed, p.isDisturbed = false, false
	result, err := p.rollout.Reconcile(p.ctx, reconcile.Request{})
	p.wait, p.err = result.RequeueAfter, err
	if p.hasPassed && !p.isDisturbed && err == nil && (result.RequeueAfter == 0 || result.RequeueAfter > time.Second) {
		p.checkStopped(cached)
		p.checkDrains(cached)
	}
	if err != nil {
		p.narrate("rollout: %v", err)
		p.due = true
	}
	if result.RequeueAfter > 0 {
		p.rolloutAt = p.now.Add(wholeSeconds(result.RequeueAfter))
	}
}

func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// runNodes runs the node controller for the nodes with a new write, or for some of them.
func (p *process) runNodes(all bool) {
	p.nodesBusy = true
	defer func() { p.nodesBusy = false }()
	for name, at := range p.nodeAt {
		if !p.now.Before(at) {
			p.dirty[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.dirty)) {
		if all || !p.chance(3) {
			p.runNode(name)
		}
	}
}

func (p *process) runNode(name string) {
	delete(p.dirty, name)
	delete(p.nodeAt, name)
	p.lookAtCache()
	result, err := p.nodes.Reconcile(p.ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	if err != nil {
		p.narrate("node controller: %v", err)
		p.nodeAt[name] = p.now.Add(time.Second)
	}
	if result.RequeueAfter > 0 {
		p.nodeAt[name] = p.now.Add(wholeSeconds(result.RequeueAfter))
	}
}

// unreadyAgents returns the nodes whose agent is not Ready in the cache.
func (p *process) unreadyAgents() map[string]bool {
	out := map[string]bool{}
	for _, o := range p.cache.All(memapi.Nodes) {
		out[o.GetName()] = true
	}
	for _, o := range p.cache.All(memapi.Pods) {
		if pod := o.(*corev1.Pod); isAgent(pod) && isReadyPod(pod) {
			delete(out, pod.Spec.NodeName)
		}
	}
	return out
}

// wake notifies the controllers of a write, as their watches would, with the same filters.
func (p *process) wake(w memapi.Write) {
	object := w.After
	if object == nil {
		object = w.Before
	}
	switch w.Kind {
	case memapi.Nodes:
		before, _ := w.Before.(*corev1.Node)
		after, _ := w.After.(*corev1.Node)
		if before == nil || after == nil || !sameForAll(before, after) {
			p.dirty[object.GetName()], p.due = true, true
			return
		}
		p.due = p.due || !sameForRollout(before, after)
		if !equality.Semantic.DeepEqual(conditionOf(before, v1alpha1.TunedNodeCondition), conditionOf(after, v1alpha1.TunedNodeCondition)) {
			p.dirty[object.GetName()] = true
		}
	case memapi.ClientNodes:
		p.dirty[object.GetName()], p.due = true, true
		p.failAgain(w)
	case memapi.Pods:
		if pod := object.(*corev1.Pod); isAgent(pod) {
			p.dirty[pod.Spec.NodeName], p.due = true, true
		}
	case memapi.Profiles, memapi.Namespaces:
		for _, o := range p.api.All(memapi.Nodes) {
			p.dirty[o.GetName()] = true
		}
		p.due = true
	case memapi.ConfigMaps:
		p.due = true
	case memapi.Budgets:
	}
}

// sameForAll reports whether a write left unchanged the fields of a Node that both controllers watch.
func sameForAll(before, after *corev1.Node) bool {
	return isReadyNode(before) == isReadyNode(after) && before.Status.NodeInfo.BootID == after.Status.NodeInfo.BootID &&
		maps.Equal(before.Labels, after.Labels) && maps.Equal(before.Annotations, after.Annotations)
}

// isSilent reports whether the condition Tuned reports a silent agent.
func isSilent(node *corev1.Node) bool {
	tuned := conditionOf(node, v1alpha1.TunedNodeCondition)
	return tuned != nil && tuned.Reason == v1alpha1.NodeReasonAgentSilent
}

// sameForRollout reports whether a write left unchanged the fields of a Node that only the rollout watches.
func sameForRollout(before, after *corev1.Node) bool {
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained} {
		if (conditionOf(before, kind) == nil) != (conditionOf(after, kind) == nil) {
			return false
		}
	}
	return isSilent(before) == isSilent(after) && before.Spec.Unschedulable == after.Spec.Unschedulable && equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

func conditionOf(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// Errors of the manager's calls.
var (
	errTimeout = apierrors.NewTimeoutError("the server did not answer in time", 1)
	errRefused = []error{
		apierrors.NewInternalError(errors.New("etcd is not there")), apierrors.NewTooManyRequests("too many requests", 1), errTimeout,
		apierrors.NewServerTimeout(corev1.Resource("nodes"), "get", 1),
	}
)

// decide returns the result of a call of the manager, and may run other events at the same moment.
func (p *process) decide(call memapi.Call) (memapi.Fate, error) {
	p.hear()
	if call.Verb == "get" && call.Name == v1alpha1.BudgetConfigMap {
		p.look()
		p.hasPassed = true
	}
	if p.isUnseen(call) {
		return memapi.Refused, nil
	}
	if p.intercept != nil {
		return p.intercept(call)
	}
	if p.quiet {
		return memapi.Answered, nil
	}
	lost := memapi.Refused
	if call.IsWrite() {
		lost = [...]memapi.Fate{memapi.Refused, memapi.Unanswered, memapi.Late}[p.rng.IntN(3)]
	}
	heat := p.heat
	if call.IsWrite() {
		heat /= 2
	}
	event := p.rng.IntN(heat)
	p.isDisturbed = p.isDisturbed || event <= 21
	if p.workers > 1 && slices.Contains([]int{5, 6, 7, 12, 13, 14, 21}, event) {
		return memapi.Answered, nil // Time passes, and evictions run, only between passes: both use the objects of the workers.
	}
	switch event {
	case 0:
		p.narrate("the manager dies in %s %s %s", call.Verb, call.Kind, call.Name)
		p.end()
		return lost, context.Canceled
	case 1, 2:
		p.narrate("%s %s %s is rejected", call.Verb, call.Kind, call.Name)
		return memapi.Refused, errRefused[p.rng.IntN(len(errRefused))]
	case 3, 4:
		p.narrate("%s %s %s gets no response", call.Verb, call.Kind, call.Name)
		return lost, errTimeout
	case 5, 6, 7:
		p.passTime(p.seconds(30))
	case 8, 9, 10:
		p.runAgents()
	case 11:
		p.runControllers()
	case 12, 13:
		p.causeMishap()
	case 14:
		p.runEvictions()
	case 15:
		p.api.RunLate()
	case 16, 17:
		if !p.nodesBusy {
			p.runNodes(false)
		}
	case 18, 19, 20:
		if m := p.machines[call.Name]; m != nil {
			p.upsetMachine(m)
		}
	case 21:
		p.overlap()
	}
	return memapi.Answered, nil
}

// overlap lets another manager make a pass in the middle of a call, as it may until this one has noticed that it has lost its lease.
func (p *process) overlap() {
	if p.overlaps || p.nodesBusy || p.chance(2) {
		return
	}
	p.narrate("another manager makes a pass")
	other := p.newProcess()
	p.overlaps, other.overlaps, p.lenient = true, true, true
	other.runRollout()
	other.runEvictions()
	other.end()
	p.overlaps = false
	p.narrate("the first manager continues")
}
