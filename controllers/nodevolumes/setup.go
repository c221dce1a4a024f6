package nodevolumes

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/volume/snapshot"
)

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := watch.One("nodevolumes")
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodevolumes").
		Watches(&v1alpha1.StorageClientNode{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: clientNodeChanged})).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(watch.ProfileChanged())).
		Watches(&corev1.Node{}, one, builder.WithPredicates(watch.NodeChanged(func(*corev1.Node, *corev1.Node) bool { return true }))).
		Watches(&corev1.Pod{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: watch.AgentChanged})).
		Watches(&corev1.ConfigMap{}, one, builder.WithPredicates(watch.Named(v1alpha1.BudgetConfigMap))).
		Watches(&corev1.PersistentVolume{}, one).
		WatchesMetadata(snapshot.VolumeClaimMetadata(), one, builder.WithPredicates(watch.Described())).
		Watches(&storagev1.StorageClass{}, one).
		Watches(&corev1.Namespace{}, one, builder.WithPredicates(watch.Named(r.ManagerNamespace), predicate.AnnotationChangedPredicate{})).
		Complete(r)
}

// clientNodeChanged filters out updates that change neither the mounted volumes nor a condition for a write.
func clientNodeChanged(e event.UpdateEvent) bool {
	before, beforeOK := e.ObjectOld.(*v1alpha1.StorageClientNode)
	after, afterOK := e.ObjectNew.(*v1alpha1.StorageClientNode)
	return !beforeOK || !afterOK || !equality.Semantic.DeepEqual(digestOf(before), digestOf(after))
}

// digest is the part of a StorageClientNode that a pass uses.
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
		Told: clientNode.Spec.Volumes, Release: clientNode.Spec.Release, BootID: clientNode.Status.BootID,
		Seen: clientNode.Status.ObservedGeneration >= clientNode.Generation,
		Held: fleet.IsDisrupted(&corev1.Node{}, clientNode), ReadKiBs: map[string][]int32{},
	}
	for _, m := range clientNode.Status.Mounts {
		if m.Volume != "" {
			key := m.Volume + " " + string(m.ReadAheadState)
			d.ReadKiBs[key] = append(d.ReadKiBs[key], m.ReadAheadKiB)
		}
	}
	return d
}
