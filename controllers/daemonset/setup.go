package daemonset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
)

// SetupWithManager registers the reconciler and its watches, all of which lead to the one DaemonSet.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	key := types.NamespacedName{Namespace: r.AgentNamespace, Name: v1alpha1.AgentDaemonSet}
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: key}}
	})
	comesOrGoes := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	return ctrl.NewControllerManagedBy(mgr).
		Named("daemonset").
		For(&appsv1.DaemonSet{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(comesOrGoes)).
		Watches(&v1alpha1.StorageClientNode{}, one, builder.WithPredicates(comesOrGoes)).
		Watches(&corev1.Node{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: managedChanged})).
		Complete(r)
}

func managedChanged(e event.UpdateEvent) bool {
	return e.ObjectOld.GetLabels()[v1alpha1.ManagedLabel] != e.ObjectNew.GetLabels()[v1alpha1.ManagedLabel]
}
