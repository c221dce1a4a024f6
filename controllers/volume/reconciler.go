package volume

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/volume/snapshot"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch;create;update;delete,roleName=storage-client-manager,namespace=storage-client-system
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default

// Reconcile runs a pass over all volumes.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	r.fillDefaults()
	return (&scope{Reconciler: r, now: r.Clock.Now()}).arm().Run(ctx, &r.pace, passInterval, r.Clock)
}

// maxBackOff is the maximum delay of a pass after an error.
const maxBackOff = time.Minute

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.APIReader == nil {
		r.APIReader = mgr.GetAPIReader()
	}
	one := watch.One("volumes", 0)
	return ctrl.NewControllerManagedBy(mgr).
		Named("volume").
		Watches(&corev1.PersistentVolume{}, one).
		Watches(&v1alpha1.StorageClientProfile{}, one, builder.WithPredicates(watch.ProfileChanged())).
		WatchesMetadata(snapshot.VolumeClaimMetadata(), one, builder.WithPredicates(watch.Described())).
		Watches(&storagev1.StorageClass{}, one).
		Watches(&corev1.ConfigMap{}, one, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return strings.HasPrefix(o.GetName(), v1alpha1.CanaryConfigMapPrefix)
		}))).
		Watches(&corev1.Namespace{}, one, builder.WithPredicates(watch.Named(v1alpha1.ManagerNamespace), predicate.AnnotationChangedPredicate{})).
		WithOptions(controller.Options{
			// One request covers all volumes: an error of one volume must not delay the others for long.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](passInterval, maxBackOff),
		}).
		Complete(r)
}
