package trial

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/volume/snapshot"
)

// SetupWithManager registers the reconciler and its watches, which start a pass. During a probe or trial, a pass runs every few seconds.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	one := watch.One("trial")
	labelled := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, ok := o.GetLabels()[v1alpha1.TrialLabel]
		return ok
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("trial").
		Watches(&v1alpha1.StorageClientNode{}, one, builder.WithPredicates(predicate.Funcs{UpdateFunc: trialChanged})).
		Watches(&v1alpha1.StorageClientTrial{}, one).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(watch.ProfileChanged())).
		Watches(&corev1.Node{}, one, builder.WithPredicates(labelled, predicate.LabelChangedPredicate{})).
		Watches(&corev1.PersistentVolume{}, one).
		WatchesMetadata(snapshot.VolumeClaimMetadata(), one, builder.WithPredicates(watch.Described())).
		Watches(&storagev1.StorageClass{}, one).
		Complete(r)
}

// trialChanged filters out updates that do not concern trials or samples.
func trialChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.StorageClientNode)
	after, afterOK := e.ObjectNew.(*v1alpha1.StorageClientNode)
	return !ok || !afterOK || !equality.Semantic.DeepEqual(before.Spec.Trial, after.Spec.Trial) ||
		!equality.Semantic.DeepEqual(before.Status.Trial, after.Status.Trial) ||
		!equality.Semantic.DeepEqual(before.Spec.Sample, after.Spec.Sample) || !equality.Semantic.DeepEqual(before.Status.Sample, after.Status.Sample)
}
