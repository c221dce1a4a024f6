package drain

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/parallel"
)

// runTimeout bounds one run over a node's pods: what it did not come to is left to the next.
const runTimeout = 5 * time.Minute

// Runner drains nodes in the background, each on its own clock: nobody waits for a slow eviction but its own node. A node has one run at
// most, which ends as soon as Keep leaves the node out.
type Runner struct {
	Drainer

	// Go does something in the background; nil: side by side with all else. A simulation does it when it likes.
	Go func(do func())

	mutex sync.Mutex
	// runs is the context of all runs, nil until Start.
	runs  context.Context //nolint:containedctx // it is that of the manager's leadership, and outlives every pass
	nodes map[string]*nodeDrain
	wait  sync.WaitGroup
}

// nodeDrain is what the runs over a node have come to.
type nodeDrain struct {
	// cancel ends the run that is under way, nil where none is.
	cancel context.CancelFunc
	// dropped is set once nobody wants the drain any more.
	dropped bool
	// evicted counts the pods that the server has agreed to evict.
	evicted int32
	// blockers are what keeps pods, as they answered last.
	blockers map[types.UID]Blocker
}

// Start lets runs begin until the context ends, as it does for a manager that no longer leads, and waits for those under way.
func (r *Runner) Start(ctx context.Context) error {
	r.mutex.Lock()
	r.runs = ctx
	r.mutex.Unlock()
	<-ctx.Done()
	r.Wait()
	return nil
}

// Wait waits until no run is under way.
func (r *Runner) Wait() {
	// Whoever begins a run holds the mutex.
	r.mutex.Lock()
	r.mutex.Unlock() //nolint:staticcheck,gocritic // what began before has been counted
	r.wait.Wait()
}

// Drain has what may leave a node evicted, unless that is under way, and reports how far it is: what is left, and what the server
// answered last. Nothing is evicted while a pod is there that may not be evicted at all, since the drain could not end, or one that is
// waited for, since it may not. options are those of the profile, with defaults; evicted is how many pods have been evicted before, by
// whomever.
//
// The rules are those of "kubectl drain": DaemonSet and static pods stay, pods without a controller need force, pods
// with an emptyDir need deleteEmptyDirData. Pods that have run to their end need not leave.
func (r *Runner) Drain(ctx context.Context, node string, options v1alpha1.Drain, evicted int32) (Result, error) {
	result, evictable, err := r.sortPods(ctx, node, options, consistent)
	if err != nil {
		return Result{}, err
	}
	if len(evictable) > 0 && len(result.Blocked)+len(result.WaitedFor) == 0 {
		r.begin(node, evictable, options, evicted)
	}
	return r.describe(node, result, evictable), nil
}

// Inspect reports what is left on a node, as the API server's cache has it, and evicts nothing. due is true if Drain has something to do: a
// pod may be evicted and no run is under way, or none is left.
func (r *Runner) Inspect(ctx context.Context, node string, options v1alpha1.Drain) (result Result, due bool, err error) {
	result, evictable, err := r.sortPods(ctx, node, options, cached)
	if err != nil {
		return Result{}, false, err
	}
	due = result.Done() && len(evictable) == 0
	if len(evictable) > 0 && len(result.Blocked)+len(result.WaitedFor) == 0 {
		due = !r.isUnderWay(node)
	}
	return r.describe(node, result, evictable), due, nil
}

// Keep ends the drains of all other nodes: none of their pods is asked to leave from now on.
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

// Evicted is how many pods have been evicted in a node's present drain.
func (r *Runner) Evicted(node string) int32 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if drain := r.nodes[node]; drain != nil && !drain.dropped {
		return drain.evicted
	}
	return 0
}

func (r *Runner) isUnderWay(node string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.nodes[node] != nil && r.nodes[node].cancel != nil
}

// describe adds what the server has answered about pods that are still there.
func (r *Runner) describe(node string, result Result, evictable []*corev1.Pod) Result {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var known map[types.UID]Blocker
	if drain := r.nodes[node]; drain != nil {
		known = drain.blockers
	}
	for _, pod := range evictable {
		if blocker, blocked := known[pod.UID]; blocked {
			result.Blocked = append(result.Blocked, blocker)
		} else {
			result.Remaining = append(result.Remaining, podName(pod))
		}
	}
	return result
}

// begin begins a run over a node's pods, unless one is under way or nobody leads.
func (r *Runner) begin(name string, pods []*corev1.Pod, options v1alpha1.Drain, evicted int32) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	node := r.nodes[name]
	if r.runs == nil || r.runs.Err() != nil || (node != nil && node.cancel != nil) {
		return
	}
	if node == nil {
		node = &nodeDrain{evicted: evicted, blockers: map[types.UID]Blocker{}}
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
		defer r.end(name, node)
		known := &budgets{}
		parallel.ForEach(r.atATime(), pods, func(pod *corev1.Pod) {
			if ctx.Err() == nil {
				r.evictFrom(ctx, node, pod, options, known)
			}
		})
	})
}

func (r *Runner) evictFrom(ctx context.Context, node *nodeDrain, pod *corev1.Pod, options v1alpha1.Drain, known *budgets) {
	evicted, blocker := r.evict(ctx, pod, options, known)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if evicted {
		node.evicted++
	}
	if delete(node.blockers, pod.UID); blocker != nil {
		node.blockers[pod.UID] = *blocker
	}
}

func (r *Runner) end(name string, node *nodeDrain) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	node.cancel()
	if node.cancel = nil; node.dropped {
		delete(r.nodes, name)
	}
}
