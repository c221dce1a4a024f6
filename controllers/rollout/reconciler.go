// Package rollout disrupts nodes: it claims budget, cordons, drains, permits a reboot, and returns nodes to service. It reads a snapshot, package
// plan decides on steps and notes, and it applies them.
//
// It plans from the cache, reads the affected objects live, and plans again: a stale cache only costs a pass. Before a node is claimed, all nodes
// are read live. Each write contains the resource version on which the decision was based. If two managers, or the operator and another client,
// write concurrently, one fails and plans again.
package rollout

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
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
	"github.com/storageclient/operator/controllers/rollout/plan"
)

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
	loop.Arm[*plan.Session, plan.Plan]{
		Read:    p.read,
		Plan:    func(*plan.Session) plan.Plan { return p.decide(ctx) },
		Refresh: p.refresh,
		Apply:   p.apply,
	}.Pass(ctx, p.out)
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
