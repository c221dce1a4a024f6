package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/node/plan"
)

// SetupWithManager registers the reconciler and its watches. One node is reconciled at a time: the live gate counts
// nodes that are on their way, and two that count at once could both go.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, read.NodeNameField, read.IndexNodeName); err != nil {
		return fmt.Errorf("index Pods by node: %w", err)
	}
	r.Gate, r.Patience = plan.NewGate(), plan.NewPatience()
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == r.ManagerNamespace })
	return ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&corev1.Node{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&v1alpha1.StorageClientNode{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPod)).
		Watches(&v1alpha1.StorageClientProfile{}, handler.EnqueueRequestsFromMapFunc(r.allNodes),
			builder.WithPredicates(watch.ProfileChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.allNodes),
			builder.WithPredicates(ours, predicate.AnnotationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(r)
}

func (r *Reconciler) allNodes(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list Nodes; each is reconciled at its next event")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(nodes.Items))
	for i := range nodes.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: nodes.Items[i].Name}})
	}
	return requests
}

func nodeOfPod(_ context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Spec.NodeName}}}
}

// nodeChanged leaves out heartbeats.
func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, also := e.ObjectNew.(*corev1.Node)
	if !ok || !also {
		return true
	}
	return before.UID != after.UID ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
		agentpod.NodeReady(before) != agentpod.NodeReady(after) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(fleet.FindTuned(before), fleet.FindTuned(after)) ||
		!equality.Semantic.DeepEqual(fleet.FindStorageReachable(before), fleet.FindStorageReachable(after))
}
