package rollout

import (
	"cmp"
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/tuning/catalogue"
)

// Reconciler rolls reboots out over all nodes. There is one request for the whole cluster.
type Reconciler struct {
	// Client reads from the cache and writes.
	client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Recorder reports events on Nodes.
	Recorder events.EventRecorder
	// Clock measures drains, boots and soaks.
	Clock clock.PassiveClock
	// Allow holds the parameters that are accepted beyond the catalogue.
	Allow catalogue.AllowList
	// MaxUnavailable is the cluster-wide budget: nodes, or a percentage of all Nodes, rounded down and never under 1.
	MaxUnavailable intstr.IntOrString
	// UnmanagedCountFor is for how long a node without a profile that is out of service uses up the cluster's budget; 0: until it is back.
	UnmanagedCountFor time.Duration
	// ManagerNamespace holds the claims, and its annotation pauses everything.
	ManagerNamespace string
	// AgentNamespace is where the agent's Pods run.
	AgentNamespace string
	// ManagerNode is the node that the manager's own Pod runs on, empty outside the cluster. It goes last.
	ManagerNode string
	// UntunedTaint is the key of the taint that is removed once a node is tuned.
	UntunedTaint string
	// Drains evicts in the background. It runs beside the reconciler, and ends with it.
	Drains *drain.Runner
	// Workers is how many nodes are dealt with at a time; 0: DefaultWorkers. With 1, the same answers make the same pass.
	Workers int
	// Shadow is called by tests with a pass's session after each change, and with what a new session would be made of; nil: not at all.
	Shadow func(session *plan.Session, whole plan.Snapshot)

	profileSets fleet.ProfileSets
	planned     plannedProfiles
	// etcd are the nodes that run a member of etcd.
	etcd etcdMembers
	// inspected is when the pods of draining nodes were inspected last. The one request is never worked on twice at once.
	inspected map[string]time.Time
	// applying is since when agents have been about settings that they have not reported yet.
	applying map[string]time.Time
	// progress is what has not been told in events yet.
	progress map[string]*profileProgress
	// rested is when the next pass may be made: at once after one that took steps, since nodes wait for the next.
	rested time.Time
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch,roleName=storage-client-manager
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch,roleName=storage-client-manager
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=storage-client-system,verbs=get;list;watch,roleName=storage-client-manager
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list,roleName=storage-client-manager
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create,roleName=storage-client-manager
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=create,roleName=storage-client-manager,namespace=storage-client-system
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=storage-client-rollout;storage-client-failures,verbs=get;update,roleName=storage-client-manager,namespace=storage-client-system
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch,roleName=storage-client-manager,namespace=storage-client-system
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list,roleName=storage-client-manager
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles,verbs=list;watch,roleName=storage-client-manager
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch;patch,roleName=storage-client-manager
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes/status,verbs=patch,roleName=storage-client-manager
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default,roleName=storage-client-manager

// Reconcile makes one pass.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := r.Clock.Now()
	maps.DeleteFunc(r.inspected, func(_ string, at time.Time) bool { return at.After(now) || now.Sub(at) > plan.MaxDrainInterval })
	if rest := r.rested.Sub(now); rest > 0 && rest <= maxRest {
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	s := newScope(r)
	next, unfinished, err := runPass(ctx, s, r.workers())
	r.rested = r.Clock.Now().Add(s.restAfter())
	if err == nil {
		next = earlierOf(next, s.tellProgress())
	}
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case unfinished:
		return reconcile.Result{RequeueAfter: retryDelay}, nil
	case next.IsZero():
		return reconcile.Result{}, nil
	case !next.After(now):
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	// The pass itself took time. One that took longer than it was to wait leaves the API server a moment.
	return reconcile.Result{RequeueAfter: max(next.Sub(r.Clock.Now()), retryDelay)}, nil
}

// After a pass that had nothing to do, the rollout rests restShare times as long as it took to read the cluster, at most for maxRest.
const (
	restShare = 10
	maxRest   = 2 * time.Second
)

func (s *scope) restAfter() time.Duration {
	if s.stepping {
		return 0
	}
	return min(restShare*s.gathered, maxRest)
}

func (r *Reconciler) workers() int { return cmp.Or(r.Workers, DefaultWorkers) }

// drainNode has what may leave a node evicted in the background, and reports how far its drain is.
func (s *scope) drainNode(ctx context.Context, step plan.Drain) plan.DrainProgress {
	progress := plan.DrainProgress{Reason: v1alpha1.RolloutReasonDrainError}
	result, err := s.Drains.Drain(ctx, step.Node, step.Options, step.Evicted)
	if err != nil {
		progress.Message = "Cannot read the node's pods; trying again: " + err.Error()
	} else {
		progress = progressOf(result)
	}
	s.rememberInspection(step.Node, progress)
	return progress
}

// inspectPods finds how far a node's drain is if it only has to wait. A drain that is due, as where the pods cannot be read, finds that itself.
func (s *scope) inspectPods(ctx context.Context, step plan.Drain) {
	if result, due, err := s.Drains.Inspect(ctx, step.Node, step.Options); err == nil && !due {
		s.rememberInspection(step.Node, progressOf(result))
	}
}

// lookAhead looks at the pods of a node that is to be claimed. What cannot be read says nothing against it.
func (s *scope) lookAhead(ctx context.Context, step plan.AddClaim) plan.DrainProgress {
	result, err := s.Drains.LookAhead(ctx, step.Node, step.Options)
	if err != nil {
		return plan.DrainProgress{}
	}
	return progressOf(result)
}

func (s *scope) keepDrains(nodes sets.Set[string]) { s.Drains.Keep(nodes) }

func progressOf(result drain.Result) plan.DrainProgress {
	out := plan.DrainProgress{Gone: result.Done(), Reason: v1alpha1.RolloutReasonDraining, Message: result.String(), LeftPodUIDs: result.LeftUIDs, Names: result.Names}
	switch {
	case len(result.Blocked) > 0:
		out.Reason = v1alpha1.RolloutReasonDrainBlocked
	case len(result.WaitedFor) > 0:
		out.Reason = v1alpha1.RolloutReasonWaitingForPods
	}
	return out
}
