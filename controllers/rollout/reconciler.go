package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/rollout/drain"
	"github.com/storageclient/operator/controllers/rollout/plan"
	"github.com/storageclient/operator/controllers/store"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
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
	// Allow contains the parameters that are accepted in addition to the catalogue.
	Allow catalogue.AllowList
	// MaxUnavailable is the cluster-wide budget: nodes, or a percentage of all Nodes, rounded down and never under 1.
	MaxUnavailable intstr.IntOrString
	// UnmanagedCountFor is the time for which an unavailable node without a profile uses up the cluster's budget; 0: until it is back.
	UnmanagedCountFor time.Duration
	// ManagerNode is the node that runs the manager's Pod, empty outside the cluster. It goes last.
	ManagerNode string
	// LeavingMarks are additional marks by which others announce the removal of a node: key, or key=value, of taints, annotations and labels.
	LeavingMarks []string
	// UntunedTaint is the key of the taint that is removed once a node is tuned.
	UntunedTaint string
	// Drains evicts in the background. It runs alongside the reconciler, and stops with it.
	Drains *drain.Runner
	// Workers is the number of nodes that are handled concurrently; 0: DefaultWorkers. With 1, the same responses lead to the same pass.
	Workers int

	profileSets fleet.ProfileSets
	// planned are the profiles of the set plannedOf in the form that the planner uses.
	planned   []plan.Profile
	plannedOf *fleet.ProfileSet
	// etcdNodes run a member of etcd as a static pod. managers are the manager's Pods. Both are from a recent read.
	etcdNodes              sets.Set[string]
	managers               []corev1.Pod
	etcdPace, managersPace store.Pace
	// inspected contains the time of the last inspection of the pods of each draining node. The one request is never handled twice concurrently.
	inspected map[string]time.Time
	// applying contains the time since which each agent has been applying settings that it has not reported yet.
	applying map[string]time.Time
	// sightings are the first sights of the states of nodes by this process. Only one goroutine uses them.
	sightings map[sightingKey]*sighting
	// progress is the progress that has not been reported in events yet.
	progress map[string]*profileProgress
	// pace and rest space passes: the next one starts at once after a pass that took steps, because nodes wait for it.
	pace store.Pace
	rest time.Duration
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
	if rest := r.pace.Remaining(r.rest, now); rest > 0 {
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	p := newPass(r)
	loop.Arm[*plan.Session, plan.Plan]{Read: p.read, Plan: p.decide, Refresh: p.refresh, Apply: p.apply}.Pass(ctx, p.out)
	r.rest = p.restAfter()
	r.pace.Begin(0, r.Clock.Now())
	if p.out.Err() == nil {
		p.out.Wake(p.reportProgress())
	}
	return p.out.Result()
}

// After a pass without steps, the rollout rests restShare times as long as it took to read the cluster, at most for maxRest.
const (
	restShare = 10
	maxRest   = 2 * time.Second
)

func (p *pass) restAfter() time.Duration {
	if p.stepping {
		return 0
	}
	return min(restShare*p.readDuration, maxRest)
}

func (r *Reconciler) workers() int { return cmp.Or(r.Workers, DefaultWorkers) }

// drainNode evicts pods of a node in the background, and reports the progress of its drain.
func (p *pass) drainNode(ctx context.Context, step plan.Drain) plan.DrainProgress {
	progress := plan.DrainProgress{Reason: v1alpha1.RolloutReasonDrainError}
	result, err := p.Drains.Drain(ctx, step.Node, step.Options, drain.Start{Evicted: step.Evicted, TimeLeft: step.TimeLeft})
	if err != nil {
		progress.Message = "Cannot read the node's pods; trying again: " + err.Error()
	} else {
		progress = progressOf(result)
	}
	p.recordInspection(step.Node, progress)
	return progress
}

// inspectPods records the progress of a node's drain if the drain only has to wait. If Drain has work to do, or the pods cannot be read, drainNode
// records it.
func (p *pass) inspectPods(ctx context.Context, step plan.Drain) {
	if result, isDrainDue, err := p.Drains.Inspect(ctx, step.Node, step.Options); err == nil && !isDrainDue {
		p.recordInspection(step.Node, progressOf(result))
	}
}

// lookAhead checks the pods of a node that is about to be claimed. A failed read is no obstacle.
func (p *pass) lookAhead(ctx context.Context, step plan.AddClaim) plan.DrainProgress {
	result, err := p.Drains.LookAhead(ctx, step.Node, step.Options)
	if err != nil {
		return plan.DrainProgress{}
	}
	return progressOf(result)
}

func progressOf(result drain.Result) plan.DrainProgress {
	out := plan.DrainProgress{
		Gone: result.Done(), TooLate: result.TooLate, Reason: v1alpha1.RolloutReasonDraining, Message: result.String(), Remarks: result.Remarks(),
		HeldByBudgets: result.IsHeldByBudgets(), IgnoredPodUIDs: result.IgnoredPodUIDs, Names: result.Names,
		Left:         lists.Map(result.Left, func(pod drain.Blocker) (uid, phrase string) { return pod.UID, pod.String() }),
		KeepsVolumes: result.KeepsVolumes, Budgets: map[string]plan.BudgetShare{},
	}
	for _, b := range result.Budgets {
		name := b.Namespace + "/" + b.Name
		out.Budgets[name] = plan.BudgetShare{Pods: out.Budgets[name].Pods + 1, Allowed: int(b.Status.DisruptionsAllowed)}
	}
	switch {
	case len(result.Blocked) > 0:
		out.Reason = v1alpha1.RolloutReasonDrainBlocked
	case len(result.WaitedFor) > 0:
		out.Reason = v1alpha1.RolloutReasonWaitingForPods
	}
	return out
}

// maxBackOff is the maximum delay after a pass with an error, because freed budget waits for it.
const maxBackOff = 10 * time.Second

// batchDelay is the time for which changes are gathered before a pass: nodes of a wave come back together, and then share the writes to the claims.
const batchDelay = 250 * time.Millisecond

// SetupWithManager registers the reconciler, its drains and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(r.Drains); err != nil {
		return fmt.Errorf("add the drains: %w", err)
	}
	one := watch.One("rollout", batchDelay)
	agents := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == v1alpha1.AgentNamespace })
	return ctrl.NewControllerManagedBy(mgr).
		Named("rollout").
		Watches(&corev1.Node{}, one, builder.WithPredicates(watch.NodeChanged(isSameNode))).
		Watches(&v1alpha1.StorageClientNode{}, one, builder.WithPredicates(watch.Changed(clientNodeChanged))).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(watch.ProfileChanged())).
		Watches(&corev1.ConfigMap{}, one, builder.WithPredicates(watch.Named(v1alpha1.BudgetConfigMap))).
		Watches(&corev1.ConfigMap{}, one, builder.WithPredicates(watch.Named(v1alpha1.FailuresConfigMap))).
		Watches(&corev1.Namespace{}, one, builder.WithPredicates(watch.Named(v1alpha1.ManagerNamespace), predicate.AnnotationChangedPredicate{})).
		Watches(&corev1.Pod{}, one, builder.WithPredicates(agents, watch.AgentChanged())).
		WithOptions(controller.Options{
			// One request stands for all nodes: a failure on one node must not delay the others for long.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryDelay, maxBackOff),
		}).
		Complete(r)
}

// isSameNode reports whether a Node is unchanged for the rollout, apart from the fields that watch.NodeChanged compares.
func isSameNode(before, after *corev1.Node) bool {
	return before.Spec.Unschedulable == after.Spec.Unschedulable &&
		before.DeletionTimestamp.IsZero() == after.DeletionTimestamp.IsZero() &&
		maintenanceOf(before) == maintenanceOf(after) &&
		maintainerOf(before) == maintainerOf(after) &&
		fleet.IsAgentSilent(before) == fleet.IsAgentSilent(after) &&
		equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

// clientNodeChanged ignores reports that only change mounts and their figures, and ignores volumes, on which the rollout does not decide.
func clientNodeChanged(before, after *v1alpha1.StorageClientNode) bool {
	previousSpec, currentSpec := before.Spec, after.Spec
	previousSpec.Volumes, currentSpec.Volumes = nil, nil
	if !equality.Semantic.DeepEqual(previousSpec, currentSpec) {
		return true
	}
	previousStatus, currentStatus := before.Status, after.Status
	previousStatus.Mounts, currentStatus.Mounts = nil, nil
	return !equality.Semantic.DeepEqual(previousStatus, currentStatus)
}
