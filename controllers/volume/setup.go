package volume

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/volume/snapshot"
)

// maxBackOff is the maximum delay of a pass after an error.
const maxBackOff = time.Minute

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.APIReader == nil {
		r.APIReader = mgr.GetAPIReader()
	}
	one := watch.One("volumes")
	return ctrl.NewControllerManagedBy(mgr).
		Named("volume").
		Watches(&corev1.PersistentVolume{}, one).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(watch.ProfileChanged())).
		WatchesMetadata(snapshot.VolumeClaimMetadata(), one, builder.WithPredicates(watch.Described())).
		Watches(&storagev1.StorageClass{}, one).
		Watches(&corev1.Namespace{}, one, builder.WithPredicates(watch.Named(r.ManagerNamespace), predicate.AnnotationChangedPredicate{})).
		WithOptions(controller.Options{
			// One request covers all volumes: an error of one volume must not delay the others for long.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](passInterval, maxBackOff),
		}).
		Complete(r)
}
