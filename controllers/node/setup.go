package node

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/node/plan"
	"github.com/storageclient/operator/tuning/lists"
)

const sourceField = "spec.settings.profile"

// SetupWithManager registers the reconciler and its watches. One node is reconciled at a time: the live gate counts nodes in progress, and two
// nodes that count at the same time could both be admitted.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// The manager has not started, so the call does not block on the context.
	ctx := context.Background()
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, read.NodeNameField, read.IndexNodeName); err != nil {
		return fmt.Errorf("index Pods by node: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.StorageClientNode{}, sourceField, indexSources); err != nil {
		return fmt.Errorf("index StorageClientNodes by profile: %w", err)
	}
	r.Patience = plan.NewPatience()
	r.isWatching = true
	// This is the first predicate: it also sees the events that the other one rejects, before a node is requested.
	counted := predicate.NewPredicateFuncs(func(client.Object) bool { r.profilesChanged.Add(1); return true })
	return ctrl.NewControllerManagedBy(mgr).
		Named("node").
		For(&corev1.Node{}, builder.WithPredicates(watch.NodeChanged(sameConditions))).
		Watches(&v1alpha1.StorageClientNode{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPod)).
		Watches(&v1alpha1.StorageClientProfile{}, handler.EnqueueRequestsFromMapFunc(r.nodesOfProfile),
			builder.WithPredicates(counted, watch.ProfileChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.allNodes),
			builder.WithPredicates(watch.Named(v1alpha1.ManagerNamespace), predicate.AnnotationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(r)
}

func (r *Reconciler) allNodes(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list Nodes; each is reconciled at its next event")
		return nil
	}
	return requestsFor(lists.Pointers(nodes.Items))
}

// nodesOfProfile returns the nodes that one version of a profile selects, and the nodes that have its settings. A change is mapped for both
// versions.
func (r *Reconciler) nodesOfProfile(ctx context.Context, object client.Object) []reconcile.Request {
	profile, ok := object.(*v1alpha1.StorageClientProfile)
	if !ok {
		return r.allNodes(ctx, object)
	}
	selector := match.SelectorOf(profile, r.Allow)
	var selected corev1.NodeList
	var carrying v1alpha1.StorageClientNodeList
	if err := errors.Join(
		r.List(ctx, &selected, client.MatchingLabelsSelector{Selector: selector.Labels}, client.UnsafeDisableDeepCopy),
		r.List(ctx, &carrying, client.MatchingFields{sourceField: profile.Name}, client.UnsafeDisableDeepCopy),
	); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list the nodes of a profile; each is reconciled at its next event", "StorageClientProfile", profile.Name)
		return nil
	}
	requests := requestsFor(lists.Filter(lists.Pointers(selected.Items), selector.Matches))
	return append(requests, requestsFor(lists.Pointers(carrying.Items))...)
}

func indexSources(object client.Object) []string {
	clientNode, ok := object.(*v1alpha1.StorageClientNode)
	if !ok {
		return nil
	}
	return fleet.SourcesOf(clientNode)
}

func requestsFor[T client.Object](objects []T) []reconcile.Request {
	return lists.Each(objects, func(object T) reconcile.Request { return requestFor(object.GetName()) })
}

func requestFor(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}

func nodeOfPod(_ context.Context, object client.Object) []reconcile.Request {
	return lists.Each(read.IndexNodeName(object), requestFor)
}

func sameConditions(before, after *corev1.Node) bool {
	return before.UID == after.UID && equality.Semantic.DeepEqual(fleet.FindTuned(before), fleet.FindTuned(after)) &&
		equality.Semantic.DeepEqual(fleet.FindStorageReachable(before), fleet.FindStorageReachable(after))
}

// CacheTransform is for the manager's cache of Nodes. It keeps only the parts of their status that controllers read: conditions, node info and
// memory capacity, and the volumes of unschedulable Nodes. Images and volumes are most of a Node.
func CacheTransform(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields = nil
	status := corev1.NodeStatus{Conditions: node.Status.Conditions, NodeInfo: node.Status.NodeInfo}
	if memory, known := node.Status.Capacity[corev1.ResourceMemory]; known {
		status.Capacity = corev1.ResourceList{corev1.ResourceMemory: memory}
	}
	if node.Spec.Unschedulable {
		status.VolumesInUse, status.VolumesAttached = node.Status.VolumesInUse, node.Status.VolumesAttached
	}
	node.Status = status
	return node, nil
}

// CacheTransformAgentPod is for the manager's cache of Pods of the agents and trial runners. It keeps the node of a Pod and its
// readiness.
func CacheTransformAgentPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, Affinity: pod.Spec.Affinity}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, StartTime: pod.Status.StartTime}
	return pod, nil
}
