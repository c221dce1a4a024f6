package nodevolumes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// everything is the one request.
var everything = reconcile.Request{NamespacedName: client.ObjectKey{Name: "nodevolumes"}}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{everything} })
	named := func(name string) builder.Predicates {
		return builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == name }))
	}
	claims := &metav1.PartialObjectMetadata{}
	claims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodevolumes").
		Watches(&v1alpha1.StorageClientNode{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: clientNodeChanged})).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(watch.ProfileChanged())).
		Watches(&corev1.Node{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&corev1.Pod{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: watch.AgentChanged})).
		Watches(&corev1.ConfigMap{}, one, named(v1alpha1.BudgetConfigMap)).
		Watches(&corev1.PersistentVolume{}, one).
		WatchesMetadata(claims, one, builder.WithPredicates(predicate.Or[client.Object](predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&storagev1.StorageClass{}, one).
		Watches(&corev1.Namespace{}, one, named(r.ManagerNamespace), builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(r)
}

// clientNodeChanged leaves out reports in which neither the mounted volumes nor what a write hangs on has changed.
func clientNodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.StorageClientNode)
	after, also := e.ObjectNew.(*v1alpha1.StorageClientNode)
	return !ok || !also || !equality.Semantic.DeepEqual(digestOf(before), digestOf(after))
}

// digest is what a pass goes by of one client node.
type digest struct {
	Told     []v1alpha1.NodeVolume
	Release  bool
	Seen     bool
	BootID   string
	Held     bool
	ReadKiBs map[string][]int32
}

func digestOf(clientNode *v1alpha1.StorageClientNode) digest {
	d := digest{
		Told: clientNode.Spec.Volumes, Release: clientNode.Spec.Release, Seen: clientNode.Status.ObservedGeneration >= clientNode.Generation, BootID: clientNode.Status.BootID,
		Held: fleet.IsDisrupted(&corev1.Node{}, clientNode), ReadKiBs: map[string][]int32{},
	}
	for _, m := range clientNode.Status.Mounts {
		if m.Volume != "" {
			d.ReadKiBs[m.Volume] = append(d.ReadKiBs[m.Volume], m.ReadAheadKiB)
		}
	}
	return d
}

// nodeChanged leaves out heartbeats.
func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, also := e.ObjectNew.(*corev1.Node)
	return !ok || !also || agentpod.NodeReady(before) != agentpod.NodeReady(after) ||
		before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations)
}
