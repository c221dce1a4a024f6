package profile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/watch"
)

// SetupWithManager registers the reconciler and its watches. Whatever happens to a node or a volume is a reason to
// reconcile all profiles: they are few, and their writes are spaced.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.cluster.isWatching = true
	// The last of the predicates: it sees what the others let through, before a pass is asked for.
	counted := predicate.NewPredicateFuncs(func(client.Object) bool { r.cluster.changes.Add(1); return true })
	all := handler.EnqueueRequestsFromMapFunc(r.allProfiles)
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == r.ManagerNamespace })
	memory := predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return r.tellsProfiles(e.Object, e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return r.tellsProfiles(e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return r.tellsProfiles(e.Object, e.Object) },
	}
	volumeClaims := &metav1.PartialObjectMetadata{}
	volumeClaims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("profile").
		For(&v1alpha1.StorageClientProfile{}, builder.WithPredicates(watch.ProfileChanged(), counted)).
		Watches(&v1alpha1.StorageClientProfile{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{}, counted)).
		Watches(&v1alpha1.StorageClientNode{}, all, builder.WithPredicates(counted)).
		Watches(&corev1.Node{}, all, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged}, counted)).
		Watches(&corev1.PersistentVolume{}, all, builder.WithPredicates(counted)).
		WatchesMetadata(volumeClaims, all, builder.WithPredicates(predicate.Or[client.Object](predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}), counted)).
		Watches(&storagev1.StorageClass{}, all, builder.WithPredicates(counted)).
		Watches(&corev1.ConfigMap{}, all, builder.WithPredicates(memory, counted)).
		Watches(&corev1.Namespace{}, all, builder.WithPredicates(ours, predicate.AnnotationChangedPredicate{}, counted)).
		Complete(r)
}

func (r *Reconciler) allProfiles(ctx context.Context, _ client.Object) []reconcile.Request {
	var profiles v1alpha1.StorageClientProfileList
	if err := r.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list StorageClientProfiles; each is reconciled at its next event")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(profiles.Items))
	for i := range profiles.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&profiles.Items[i])})
	}
	return requests
}

// tellsProfiles leaves out claims that come and go: the nodes tell of them. Of the ConfigMap that holds them a profile says only that it
// is immutable, of the failures all.
func (r *Reconciler) tellsProfiles(before, after client.Object) bool {
	if after.GetNamespace() != r.ManagerNamespace {
		return false
	}
	switch after.GetName() {
	case v1alpha1.FailuresConfigMap:
		return true
	case v1alpha1.BudgetConfigMap:
		return isImmutable(before) || isImmutable(after)
	}
	return false
}

func isImmutable(object client.Object) bool {
	config, ok := object.(*corev1.ConfigMap)
	return ok && ptr.Deref(config.Immutable, false)
}

// nodeChanged leaves out heartbeats: what a profile counts of a Node is in its labels, annotations and two conditions.
func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, also := e.ObjectNew.(*corev1.Node)
	if !ok || !also {
		return true
	}
	return agentpod.NodeReady(before) != agentpod.NodeReady(after) ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
		tunedReason(before) != tunedReason(after) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations)
}

func tunedReason(node *corev1.Node) string {
	if condition := fleet.FindTuned(node); condition != nil {
		return condition.Reason
	}
	return ""
}
