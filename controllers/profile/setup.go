package profile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/internal/watch"
	volumesnapshot "github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/lists"
)

// SetupWithManager registers the reconciler and its watches. Any change of a node or a volume triggers a reconcile of all profiles: there are few
// profiles, and their writes are spaced.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.cluster.isWatching = true
	// This is the last predicate: it sees the events that the others accept, before a pass is requested.
	counted := predicate.NewPredicateFuncs(func(client.Object) bool { r.cluster.changes.Add(1); return true })
	all := handler.EnqueueRequestsFromMapFunc(r.allProfiles)
	memory := predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return r.concernsProfiles(e.Object, e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return r.concernsProfiles(e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return r.concernsProfiles(e.Object, e.Object) },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("profile").
		For(&v1alpha1.StorageClientProfile{}, builder.WithPredicates(watch.ProfileChanged(), counted)).
		Watches(&v1alpha1.StorageClientProfile{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{}, counted)).
		Watches(&v1alpha1.StorageClientNode{}, all, builder.WithPredicates(counted)).
		Watches(&corev1.Node{}, all, builder.WithPredicates(watch.NodeChanged(sameTuned), counted)).
		Watches(&corev1.PersistentVolume{}, all, builder.WithPredicates(counted)).
		WatchesMetadata(volumesnapshot.VolumeClaimMetadata(), all, builder.WithPredicates(watch.Described(), counted)).
		Watches(&storagev1.StorageClass{}, all, builder.WithPredicates(counted)).
		Watches(&corev1.ConfigMap{}, all, builder.WithPredicates(memory, counted)).
		Watches(&corev1.Namespace{}, all, builder.WithPredicates(watch.Named(v1alpha1.ManagerNamespace), predicate.AnnotationChangedPredicate{}, counted)).
		Complete(r)
}

func (r *Reconciler) allProfiles(ctx context.Context, _ client.Object) []reconcile.Request {
	profiles, err := read.Profiles(ctx, r)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot list StorageClientProfiles; each is reconciled at its next event")
		return nil
	}
	return lists.Each(lists.Pointers(profiles), func(profile *v1alpha1.StorageClientProfile) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(profile)}
	})
}

// concernsProfiles reports whether a change of a ConfigMap concerns the status of profiles. Changes of claims do not, because the nodes show them. A
// profile reports only whether the ConfigMap of the claims is immutable, but all changes of failures.
func (r *Reconciler) concernsProfiles(before, after client.Object) bool {
	if after.GetNamespace() != v1alpha1.ManagerNamespace {
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

// sameTuned reports whether the condition Tuned has the same reason. Profiles use no other part of it.
func sameTuned(before, after *corev1.Node) bool {
	previous, current := fleet.FindTuned(before), fleet.FindTuned(after)
	return previous == nil && current == nil || previous != nil && current != nil && previous.Reason == current.Reason
}
