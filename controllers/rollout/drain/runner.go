package drain

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/parallel"
	"github.com/storageclient/operator/tuning/lists"
)

// runTimeout limits one run over the pods of a node. The next run handles the rest.
const runTimeout = 5 * time.Minute

// Runner drains nodes in the background, each independently: a slow eviction delays only its own node. A node has at most one run, which stops when
// Keep omits the node.
type Runner struct {
	Drainer

	// Go runs a function in the background; nil: concurrently. A simulation can choose the time.
	Go func(do func())

	mutex sync.Mutex
	// runs is the context of all runs, nil until Start.
	runs  context.Context //nolint:containedctx // it ends with the manager's leadership, and outlives every pass
	nodes map[string]*nodeDrain
	wait  sync.WaitGroup
}

type nodeDrain struct {
	// cancel stops the current run, nil if there is none.
	cancel context.CancelFunc
	// dropped is true once the drain is no longer needed.
	dropped bool
	// evicted is the number of pods whose eviction the server has accepted.
	evicted int32
	// blockers are the obstacles to the pods, from the latest responses.
	blockers map[types.UID]Blocker
	// first are the pods that the drain found at its start. replaced are the owners of evicted pods that came later: their next pods have come back
	// to the cordoned node, and stay. seen are the pods that were on the node before that.
	first, replaced, seen sets.Set[types.UID]
}

// Start allows runs until the context ends, for example when the manager loses leadership. It then waits for runs in progress.
func (r *Runner) Start(ctx context.Context) error {
	r.mutex.Lock()
	r.runs = ctx
	r.mutex.Unlock()
	<-ctx.Done()
	r.Wait()
	return nil
}

// Wait waits until no run is in progress.
func (r *Runner) Wait() {
	// Every start of a run holds the mutex.
	r.mutex.Lock()
	r.mutex.Unlock() //nolint:staticcheck,gocritic // runs that started before have been counted
	r.wait.Wait()
}

// Start is the state in which a drain continues.
type Start struct {
	// Evicted is the number of pods that have been evicted before, including evictions by an earlier manager.
	Evicted int32
	// TimeLeft is the time in which all pods must leave; zero if there is no limit. Once it is shorter than a grace period, no run starts.
	TimeLeft time.Duration
}

// Drain evicts the pods of a node that may be evicted, unless a run is in progress. It returns the progress: the remaining pods, and the latest
// responses of the server. It evicts no pod while the node has a pod that may not be evicted, because the drain could not finish. It also evicts no
// pod while it must wait for a pod, because the drain may not finish. Once no pod is left to evict, it tries the evictions of the pods that stay:
// their budgets must allow the reboot now. options are the options of the profile, with defaults.
//
// It follows the rules of "kubectl drain": DaemonSet and static pods stay, pods without a controller block the drain, and pods with an emptyDir
// need deleteEmptyDirData. Pods that have run to completion need not leave. Pods that would come back to the cordoned node stay as well.
//
// With lookAhead CordonFirst, it first evicts only the pods whose dry run a budget rejects. The others follow once each of these is gone, or may
// be evicted.
func (r *Runner) Drain(ctx context.Context, node string, options v1alpha1.Drain, from Start) (Result, error) {
	m, err := r.readModel(ctx, node, options, consistent)
	if err != nil {
		return Result{}, err
	}
	if len(m.evictable) > 0 && len(m.Blocked)+len(m.WaitedFor) == 0 {
		if m.TooLate = from.TimeLeft > 0 && m.longestGrace() > from.TimeLeft; !m.TooLate {
			r.startRun(node, m.evictable, options, from.Evicted)
		}
	}
	if len(m.evictable) == 0 && m.Done() {
		// A permit may follow.
		if err := r.askBudgets(ctx, &m); err != nil {
			return Result{}, err
		}
	}
	return r.describe(node, m), nil
}

// Inspect reports the remaining pods of a node from the API server's cache, and evicts no pod. isDrainDue is true if Drain has work to do: a pod
// may be evicted and no run is in progress, or no pod remains.
func (r *Runner) Inspect(ctx context.Context, node string, options v1alpha1.Drain) (result Result, isDrainDue bool, err error) {
	m, err := r.readModel(ctx, node, options, cached)
	if err != nil {
		return Result{}, false, err
	}
	isDrainDue = m.Done() && len(m.evictable) == 0
	if len(m.evictable) > 0 && len(m.Blocked)+len(m.WaitedFor) == 0 {
		isDrainDue = !r.isRunning(node)
	}
	return r.describe(node, m), isDrainDue, nil
}

// readModel reads the pods of a node. Pods that have come back since the start of its drain stay.
func (r *Runner) readModel(ctx context.Context, node string, options v1alpha1.Drain, version string) (model, error) {
	m, err := r.Drainer.readModel(ctx, node, options, version)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	drain := r.nodes[node]
	if err != nil || drain == nil {
		return m, err
	}
	m.evictable = slices.DeleteFunc(m.evictable, func(pod *corev1.Pod) bool {
		hasReturned := !drain.seen.Has(pod.UID) && drain.replaced.Has(ownerOf(pod))
		if !hasReturned {
			drain.seen.Insert(pod.UID)
		} else {
			delete(m.Names, string(pod.UID))
			m.leave(pod, "came back to the cordoned node after its eviction")
		}
		return hasReturned
	})
	return m, nil
}

func ownerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return ""
}

// Keep stops the drains of all other nodes: none of their pods is evicted from now on.
func (r *Runner) Keep(nodes sets.Set[string]) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for name, node := range r.nodes {
		switch {
		case nodes.Has(name):
		case node.cancel != nil:
			node.cancel()
			node.dropped = true
		default:
			delete(r.nodes, name)
		}
	}
}

// Evicted returns the number of pods that the current drain of a node has evicted.
func (r *Runner) Evicted(node string) int32 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if drain := r.nodes[node]; drain != nil && !drain.dropped {
		return drain.evicted
	}
	return 0
}

func (r *Runner) isRunning(node string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.nodes[node] != nil && r.nodes[node].cancel != nil
}

// describe adds the latest responses of the server about the remaining pods.
func (r *Runner) describe(node string, m model) Result {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var known map[types.UID]Blocker
	if drain := r.nodes[node]; drain != nil {
		known = drain.blockers
	}
	for _, pod := range m.evictable {
		if blocker, blocked := known[pod.UID]; blocked {
			m.Blocked = append(m.Blocked, blocker)
		} else {
			m.Remaining = append(m.Remaining, podName(pod))
		}
	}
	return m.Result
}

// startRun starts a run over the pods of a node, unless one is in progress or the manager is not the leader.
func (r *Runner) startRun(name string, pods []*corev1.Pod, options v1alpha1.Drain, evicted int32) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	node := r.nodes[name]
	if r.runs == nil || r.runs.Err() != nil || (node != nil && node.cancel != nil) {
		return
	}
	if node == nil {
		first := lists.Each(pods, (*corev1.Pod).GetUID)
		node = &nodeDrain{evicted: evicted, blockers: map[types.UID]Blocker{}, first: sets.New(first...), replaced: sets.New[types.UID](), seen: sets.New(first...)}
		if r.nodes == nil {
			r.nodes = map[string]*nodeDrain{}
		}
		r.nodes[name] = node
	}
	ctx, cancel := context.WithTimeout(r.runs, runTimeout)
	node.cancel = cancel
	inBackground := r.Go
	if inBackground == nil {
		inBackground = r.wait.Go
	}
	inBackground(func() {
		defer r.endRun(name, node)
		known := &budgets{}
		parallel.ForEach(r.concurrency(), r.findFirst(ctx, pods, options, known), func(pod *corev1.Pod) {
			if ctx.Err() == nil {
				r.evictFrom(ctx, node, pod, known)
			}
		})
	})
}

// findFirst returns the pods that a run may evict: only the pods whose budgets only a user can change, if there are any, because the drain
// could not finish; with CordonFirst, only the pods that budgets keep, if there are any. Pods whose owners keep them until the others are gone do not
// count. It returns none if the server did not respond in time.
func (r *Runner) findFirst(ctx context.Context, pods []*corev1.Pod, options v1alpha1.Drain, known *budgets) []*corev1.Pod {
	lasting := lists.Filter(pods, func(pod *corev1.Pod) bool {
		all, _ := known.list(ctx, r.Reader, pod.Namespace)
		obstacle := JudgeEviction(pod, all, r.Now())
		return obstacle != nil && obstacle.Reason != ""
	})
	if len(lasting) > 0 {
		return lasting
	}
	if options.LookAhead != v1alpha1.LookAheadCordonFirst {
		return pods
	}
	bounded, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	blockers := r.tryEvictions(bounded, pods, known)
	if bounded.Err() != nil {
		return nil
	}
	first := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		_, isKept := blockers[pod.UID]
		return !isKept || isLast(pod)
	})
	if len(first) == 0 {
		return pods
	}
	return first
}

func (r *Runner) evictFrom(ctx context.Context, node *nodeDrain, pod *corev1.Pod, known *budgets) {
	evicted, blocker := r.evict(ctx, pod, known)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if evicted {
		node.evicted++
		if !node.first.Has(pod.UID) {
			node.replaced.Insert(ownerOf(pod))
		}
	}
	if delete(node.blockers, pod.UID); blocker != nil {
		node.blockers[pod.UID] = *blocker
	}
}

func (r *Runner) endRun(name string, node *nodeDrain) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	node.cancel()
	if node.cancel = nil; node.dropped {
		delete(r.nodes, name)
	}
}
