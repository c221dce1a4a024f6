package sample

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/volume/snapshot"
)

// everything is the one request.
var everything = reconcile.Request{NamespacedName: client.ObjectKey{Name: "sample"}}

// SetupWithManager registers the reconciler and its watches. What else keeps a node from being asked is looked at again while somebody waits.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{everything} })
	return ctrl.NewControllerManagedBy(mgr).
		Named("sample").
		Watches(&v1alpha1.StorageClientNode{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: sampleChanged})).
		WatchesMetadata(snapshot.VolumeClaimMetadata(), one, builder.WithPredicates(asking())).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(r)
}

// sampleChanged leaves out reports of all else.
func sampleChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.StorageClientNode)
	after, also := e.ObjectNew.(*v1alpha1.StorageClientNode)
	return !ok || !also || !equality.Semantic.DeepEqual(before.Spec.Sample, after.Spec.Sample) ||
		!equality.Semantic.DeepEqual(before.Status.Sample, after.Status.Sample)
}

// asking leaves out the PersistentVolumeClaims that ask nothing, which are nearly all.
func asking() predicate.Predicate {
	request := func(o client.Object) string { return o.GetAnnotations()[v1alpha1.SampleAnnotation] }
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return request(e.Object) != "" },
		DeleteFunc:  func(e event.DeleteEvent) bool { return request(e.Object) != "" },
		GenericFunc: func(e event.GenericEvent) bool { return request(e.Object) != "" },
		UpdateFunc:  func(e event.UpdateEvent) bool { return request(e.ObjectOld) != request(e.ObjectNew) },
	}
}
