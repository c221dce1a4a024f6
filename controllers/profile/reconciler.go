// Package profile reports the progress of StorageClientProfiles: the nodes and volumes that have the declared values, and the obstacles for the
// others. It keeps a profile that is being deleted until nodes and volumes are restored. It writes only the finalizers and the status of a profile;
// users own spec.
package profile

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/fence"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/read"
	"github.com/storageclient/operator/controllers/internal/watch"
	"github.com/storageclient/operator/controllers/internal/write"
	"github.com/storageclient/operator/controllers/loop"
	"github.com/storageclient/operator/controllers/profile/status"
	"github.com/storageclient/operator/controllers/store"
	volumeplan "github.com/storageclient/operator/controllers/volume/plan"
	volumesnapshot "github.com/storageclient/operator/controllers/volume/snapshot"
	"github.com/storageclient/operator/tuning/catalogue"
	"github.com/storageclient/operator/tuning/lists"
	"github.com/storageclient/operator/tuning/text"
)

const (
	// passEvery is the shortest time between two passes over one profile, and so between two writes of its status: every report of every node is an
	// event.
	passEvery = 2 * time.Second
	// retryAfter is the pause before a write that met a newer object is tried again.
	retryAfter = time.Second
	// removalEvery is the interval at which a profile that is being deleted checks for unreachable nodes.
	removalEvery = 15 * time.Second
	// maxNote is the maximum length of a note in the events API, in bytes.
	maxNote     = 1024
	eventAction = "Judge"
	// eventFieldDropped is set when the API server drops a field of the status, because its CustomResourceDefinitions are older than the manager.
	eventFieldDropped = "FieldDropped"
)

// Reconciler keeps a profile's finalizer and status.
type Reconciler struct {
	client.Client
	// APIReader bypasses the cache, which does not contain pods of users. If nil, Client is used.
	APIReader client.Reader
	// Clock dates conditions and spaces the passes over a profile.
	Clock clock.PassiveClock
	// Recorder reports changes of a profile's state as events.
	Recorder events.EventRecorder
	// Allow contains the parameters that are accepted in addition to the catalogue.
	Allow catalogue.AllowList
	// Fence reports whether the agent may be rolled out.
	Fence fence.Checker
	// MaxUnavailable is the cluster's budget, for the estimate.
	MaxUnavailable intstr.IntOrString
	// ManagerNode is the node that runs the manager's Pod, empty outside the cluster. It goes last.
	ManagerNode string
	// Probes returns the results of probes of option sets; nil if there are no probes.
	Probes func() map[volumeplan.ProbeKey]volumeplan.Probe
	// ReadAhead returns the reasons for which nodes wait for a profile's read-ahead of volumes, and which nodes may get it; nil if unknown.
	ReadAhead func(profile string) (reasons []string, mayGet func(volume, node string) bool)
	// Volumes caches results of earlier reads of the volumes, shared with other controllers; nil for a private cache.
	Volumes *volumesnapshot.Memory

	// The loss of the following fields is harmless. One profile is reconciled at a time.

	passes  map[string]*pass
	cluster clusterReader
	// dropped are the fields of the status that the API server drops.
	dropped write.Dropped
}

// pass is the state of the last pass that the next pass over a profile needs.
type pass struct {
	pace store.Pace
	pods read.ClaimPods
}

func (r *Reconciler) passOf(profile string) *pass {
	if r.passes == nil {
		r.passes = map[string]*pass{}
	}
	if r.passes[profile] == nil {
		r.passes[profile] = &pass{}
	}
	return r.passes[profile]
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles,verbs=list;watch;patch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles/status,verbs=patch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch

// Reconcile updates the finalizer and the status of one profile.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var profile v1alpha1.StorageClientProfile
	if err := r.Get(ctx, req.NamespacedName, &profile); apierrors.IsNotFound(err) {
		delete(r.passes, req.Name)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get StorageClientProfile %s: %w", req.Name, err)
	}
	if wait := r.passOf(req.Name).pace.Remaining(passEvery, r.Clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	out := &loop.Outcome{Pause: retryAfter}
	out.Finish(req.Name, r.reconcile(ctx, &profile, out))
	return out.Result()
}

func (r *Reconciler) reconcile(ctx context.Context, profile *v1alpha1.StorageClientProfile, out *loop.Outcome) error {
	if profile.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(profile, v1alpha1.Finalizer) {
		// No setting of a profile is applied before it has the finalizer: otherwise its changes could not be restored.
		if err := r.patchFinalizers(ctx, profile, controllerutil.AddFinalizer); err != nil {
			return err
		}
	}
	snapshot, requeueAfter, err := r.readSnapshot(ctx, profile)
	out.WakeAfter(requeueAfter)
	if err != nil || snapshot == nil {
		return err
	}
	r.passOf(profile.Name).pace.Begin(passEvery, r.Clock.Now())
	report := status.Evaluate(profile.Name, *snapshot, r.Clock.Now())
	// The cache does not contain pods of users.
	pods, err := r.passOf(profile.Name).pods.Of(ctx, cmp.Or[client.Reader](r.APIReader, r.Client), report.AwaitedClaims(), r.Clock.Now())
	if err != nil {
		return err
	}
	report = report.WithPods(pods)
	if report.IsDeleting() && report.IsReleased() {
		return r.removeFinalizer(ctx, profile, report)
	}
	now := r.Clock.Now()
	switch {
	case report.IsDeleting():
		out.WakeAfter(removalEvery)
	case snapshot.FenceMissing != "":
		out.WakeAfter(fence.RecheckAfter)
	default:
		out.WakeAfter(store.Sooner(report.RequeueAfter(now), fence.TryAfter))
	}
	return r.patchStatus(ctx, profile, report.Status(profile.Status, now))
}

// readSnapshot reads all the data for a profile's status, and returns the time until the next read without an event. The snapshot is nil if the
// cluster was read recently and has changed since.
func (r *Reconciler) readSnapshot(ctx context.Context, profile *v1alpha1.StorageClientProfile) (*status.Snapshot, time.Duration, error) {
	s := &status.Snapshot{MaxUnavailable: r.MaxUnavailable, ManagerNode: r.ManagerNode}
	all, requeueAfter, err := r.readCluster(ctx, profile)
	if err != nil || all == nil {
		return nil, requeueAfter, err
	}
	s.All, s.Volumes, s.PausedAll, s.OddPause = all.fleet, all.volumes, all.paused, all.oddPause
	if r.ReadAhead != nil {
		s.ReadAheadWaits, s.MayGetReadAhead = r.ReadAhead(profile.Name)
	}
	if err := r.readMemory(ctx, profile.Name, s); err != nil {
		return nil, 0, err
	}
	s.FenceMissing, err = r.Fence.Missing(ctx)
	return s, requeueAfter, err
}

// readMemory reads the records of the rollout: whether the claims are writable, and the failures of a profile.
func (r *Reconciler) readMemory(ctx context.Context, profile string, s *status.Snapshot) error {
	for _, name := range []string{v1alpha1.BudgetConfigMap, v1alpha1.FailuresConfigMap} {
		var stored corev1.ConfigMap
		key := client.ObjectKey{Namespace: v1alpha1.ManagerNamespace, Name: name}
		if _, err := read.Find(ctx, r, key, &stored); err != nil {
			return err
		}
		if ptr.Deref(stored.Immutable, false) {
			s.Immutable = append(s.Immutable, name)
		}
		if value, found := stored.Data[profile]; found && name == v1alpha1.FailuresConfigMap {
			var wrong error
			if s.Failures, wrong = v1alpha1.DecodeFailures(value); wrong != nil {
				s.FailuresUnread = fmt.Sprintf("Cannot decode the failed nodes; correct or remove key %s of ConfigMap %s", profile, key)
			}
		}
	}
	return nil
}

func (r *Reconciler) removeFinalizer(ctx context.Context, profile *v1alpha1.StorageClientProfile, report status.Report) error {
	if !controllerutil.ContainsFinalizer(profile, v1alpha1.Finalizer) {
		return nil
	}
	log.FromContext(ctx).Info("Nodes and volumes are restored, removing the finalizer", "unreachable", report.Unreachable())
	return r.patchFinalizers(ctx, profile, controllerutil.RemoveFinalizer)
}

// patchFinalizers patches only the version that was read: a JSON merge patch replaces all finalizers, including the finalizers of other
// controllers.
func (r *Reconciler) patchFinalizers(ctx context.Context, profile *v1alpha1.StorageClientProfile, change func(client.Object, string) bool) error {
	before := profile.DeepCopy()
	change(profile, v1alpha1.Finalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, profile, patch, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch finalizers of StorageClientProfile %s: %w", profile.Name, err)
	}
	return nil
}

func (r *Reconciler) patchStatus(ctx context.Context, profile *v1alpha1.StorageClientProfile, next v1alpha1.StorageClientProfileStatus) error {
	if equality.Semantic.DeepEqual(profile.Status, next) || r.dropped.Covers(profile.Status, next, r.Clock.Now()) {
		return nil
	}
	before := profile.DeepCopy()
	stored, err := write.PatchProfileStatus(ctx, r.Client, profile, next)
	if err != nil {
		return err
	}
	*profile = *stored
	if fields := r.dropped.Learn(next, stored.Status, r.Clock.Now()); len(fields) > 0 {
		r.Recorder.Eventf(profile, nil, corev1.EventTypeWarning, eventFieldDropped, eventAction,
			"The API server drops status.%s: apply the CustomResourceDefinitions of this release", text.List(fields))
	}
	for _, change := range status.Changes(before.Status.Conditions, next.Conditions) {
		r.Recorder.Eventf(profile, nil, change.Kind, change.Reason, eventAction, "%s", text.CutBytes(cmp.Or(change.Message, change.Reason), maxNote))
	}
	return nil
}

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
	return lists.Each(profiles, func(profile *v1alpha1.StorageClientProfile) reconcile.Request {
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
