package rollout

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/watch"
)

// maxBackOff is the maximum delay after a pass with an error, because freed budget waits for it.
const maxBackOff = 10 * time.Second

// batchDelay is the time for which changes are gathered before a pass: nodes of a wave come back together, and then share the writes to the claims.
const batchDelay = 250 * time.Millisecond

var rolloutRequest = reconcile.Request{NamespacedName: client.ObjectKey{Name: "rollout"}}

// SetupWithManager registers the reconciler, its drains and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(r.Drains); err != nil {
		return fmt.Errorf("add the drains: %w", err)
	}
	one := handler.Funcs{CreateFunc: enqueue[event.CreateEvent], UpdateFunc: enqueue[event.UpdateEvent], DeleteFunc: enqueue[event.DeleteEvent]}
	agents := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == r.AgentNamespace })
	return ctrl.NewControllerManagedBy(mgr).
		Named("rollout").
		Watches(&corev1.Node{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&v1alpha1.StorageClientNode{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: clientNodeChanged})).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(watch.ProfileChanged())).
		Watches(&corev1.ConfigMap{}, one, builder.WithPredicates(watch.Named(v1alpha1.BudgetConfigMap))).
		Watches(&corev1.ConfigMap{}, one, builder.WithPredicates(watch.Named(v1alpha1.FailuresConfigMap))).
		Watches(&corev1.Namespace{}, one, builder.WithPredicates(watch.Named(r.ManagerNamespace), predicate.AnnotationChangedPredicate{})).
		Watches(&corev1.Pod{}, one, builder.WithPredicates(agents, predicate.Funcs{UpdateFunc: watch.AgentChanged})).
		WithOptions(controller.Options{
			// One request stands for all nodes: a failure on one node must not delay the others for long.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryDelay, maxBackOff),
		}).
		Complete(r)
}

func enqueue[E any](_ context.Context, _ E, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	queue.AddAfter(rolloutRequest, batchDelay)
}

// nodeChanged ignores heartbeats: thousands of nodes send them all the time.
func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, afterOK := e.ObjectNew.(*corev1.Node)
	if !ok || !afterOK {
		return true
	}
	return agentpod.IsNodeReady(before) != agentpod.IsNodeReady(after) ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
		before.Spec.Unschedulable != after.Spec.Unschedulable ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		maintenanceOf(before) != maintenanceOf(after) ||
		maintainerOf(before) != maintainerOf(after) ||
		fleet.IsAgentSilent(before) != fleet.IsAgentSilent(after) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations)
}

// clientNodeChanged ignores reports that only change mounts and their figures, and ignores volumes, on which the rollout does not decide.
func clientNodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.StorageClientNode)
	after, afterOK := e.ObjectNew.(*v1alpha1.StorageClientNode)
	if !ok || !afterOK {
		return true
	}
	previousSpec, currentSpec := before.Spec, after.Spec
	previousSpec.Volumes, currentSpec.Volumes = nil, nil
	if !equality.Semantic.DeepEqual(previousSpec, currentSpec) {
		return true
	}
	previousStatus, currentStatus := before.Status, after.Status
	previousStatus.Mounts, currentStatus.Mounts = nil, nil
	return !equality.Semantic.DeepEqual(previousStatus, currentStatus)
}
