package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/tuning/catalogue"
)

const (
	// claimField indexes volumes by the claim that they name.
	claimField = "spec.claimRef"
	// conflictRetry is how soon a volume that changed under us is looked at again; its event usually comes first.
	conflictRetry = time.Second
	// contestedRetry is how soon a volume is looked at again that other volumes of its server are in the way of: no event
	// of its own tells when they are not any more.
	contestedRetry = time.Minute
	// maxNote is the longest note that the events API takes.
	maxNote = 1024
)

// Reconciler brings declared mount options to one PersistentVolume at a time.
type Reconciler struct {
	// Client reads from the manager's cache, whose PersistentVolumes must keep what CacheTransform keeps.
	Client   client.Client
	Recorder events.EventRecorder
	Allow    catalogue.AllowList
	// Namespace is the manager's, whose pause annotation holds everything.
	Namespace string
	// Live reads past the cache, which holds neither events nor pods of users: before a step begins, and while one soaks.
	// Without it Client does.
	Live client.Reader
	// Clock dates steps; nil stands for the machine's.
	Clock clock.PassiveClock

	view  view
	looks looks
	// told holds the last thing said about each volume, so that a standing state makes one event and not one each visit.
	told sync.Map
}

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles,verbs=get;list;watch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups="",resources=pods,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile gathers what is known of one volume, decides, and carries the decision out in one write. A changed list
// waits for its step; to put a list back waits for nobody.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pv corev1.PersistentVolume
	if err := r.Client.Get(ctx, req.NamespacedName, &pv); err != nil {
		if apierrors.IsNotFound(err) {
			r.told.Delete(req.Name)
			r.view.drop(req.Name)
			r.looks.drop(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get PersistentVolume %s: %w", req.Name, err)
	}
	decision, profiles, err := r.view.decide(ctx, r.Client, r.Allow, r.Namespace, &pv)
	if err != nil {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	if decision.needsStep(&pv) || inStep(&pv, decision, profiles, r.now()) {
		decision, result, err = r.step(ctx, &pv, decision)
	} else {
		err = r.apply(ctx, &pv, decision)
	}
	if err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: conflictRetry}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.tell(ctx, &pv, decision)
	if decision.contested && result.RequeueAfter == 0 {
		result.RequeueAfter = contestedRetry
	}
	return result, nil
}

func (r *Reconciler) apply(ctx context.Context, pv *corev1.PersistentVolume, d Decision) error {
	if d.Action == ActionNone {
		return nil
	}
	data, err := patchFor(pv, d)
	if err != nil {
		return err
	}
	if err := r.Client.Patch(ctx, pv, client.RawPatch(types.MergePatchType, data), client.FieldOwner(v1alpha1.VolumesFieldManager)); err != nil {
		return fmt.Errorf("patch PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

// tell makes log line and event, once for each new thing to say.
func (r *Reconciler) tell(ctx context.Context, pv *corev1.PersistentVolume, d Decision) {
	news := d.Reason + " " + d.Message
	if before, ok := r.told.Swap(pv.Name, news); ok && before == news && d.Action == ActionNone {
		return
	}
	eventType := corev1.EventTypeNormal
	switch {
	case d.State == StateBlocked, d.Reason == v1alpha1.VolumeReasonFailedMount:
		eventType = corev1.EventTypeWarning
	case d.Action == ActionNone:
		return
	}
	log.FromContext(ctx).Info("Judged volume", "reason", d.Reason, "message", d.Message, "action", d.Action, "profiles", d.Profiles)
	r.Recorder.Eventf(pv, nil, eventType, d.Reason, string(d.Action), "%s", strings.ToValidUTF8(d.Message[:min(maxNote, len(d.Message))], ""))
}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.PersistentVolume{}, claimField, claimKeys)
	if err != nil {
		return fmt.Errorf("index PersistentVolumes by claim: %w", err)
	}
	r.view.watched.Store(true)
	if r.Live == nil {
		r.Live = mgr.GetAPIReader()
	}
	declared := predicate.Funcs{UpdateFunc: declarationChanged}
	labelled := predicate.Or[client.Object](predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == r.Namespace })
	return ctrl.NewControllerManagedBy(mgr).
		Named("volume").
		For(&corev1.PersistentVolume{}).
		Watches(&v1alpha1.StorageClientProfile{}, handler.EnqueueRequestsFromMapFunc(r.volumesOfProfile), builder.WithPredicates(declared)).
		WatchesMetadata(claimMetadata(), handler.EnqueueRequestsFromMapFunc(r.volumesOfClaim), builder.WithPredicates(labelled)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.volumesOfClass)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.allVolumes), builder.WithPredicates(ours, predicate.AnnotationChangedPredicate{})).
		Complete(r)
}

// declarationChanged leaves out updates of a profile's status alone.
func declarationChanged(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) ||
		!slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
}

func claimKeys(o client.Object) []string {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok || pv.Spec.ClaimRef == nil {
		return nil
	}
	return []string{pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name}
}

func (r *Reconciler) volumesOfClaim(ctx context.Context, o client.Object) []reconcile.Request {
	return r.volumes(ctx, func(*corev1.PersistentVolume) bool { return true },
		client.MatchingFields{claimField: o.GetNamespace() + "/" + o.GetName()})
}

func (r *Reconciler) volumesOfClass(ctx context.Context, o client.Object) []reconcile.Request {
	r.view.forget()
	return r.volumes(ctx, func(pv *corev1.PersistentVolume) bool { return pv.Spec.StorageClassName == o.GetName() })
}

func (r *Reconciler) allVolumes(ctx context.Context, _ client.Object) []reconcile.Request {
	r.view.forget()
	return r.volumes(ctx, func(*corev1.PersistentVolume) bool { return true })
}

// volumesOfProfile are those that carry the profile and those that its rules select. The claim's terms are left to
// Reconcile: a volume too many costs a look into the cache.
func (r *Reconciler) volumesOfProfile(ctx context.Context, o client.Object) []reconcile.Request {
	r.view.forget()
	p, ok := o.(*v1alpha1.StorageClientProfile)
	if !ok {
		return nil
	}
	return r.volumes(ctx, func(pv *corev1.PersistentVolume) bool {
		return slices.Contains(CarriedProfiles(pv), p.Name) || slices.ContainsFunc(p.Spec.Volumes, func(rule v1alpha1.VolumeRule) bool {
			return mightSelect(&rule.Selector, pv)
		})
	})
}

func (r *Reconciler) volumes(ctx context.Context, wanted func(*corev1.PersistentVolume) bool, opts ...client.ListOption) []reconcile.Request {
	var list corev1.PersistentVolumeList
	if err := r.Client.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "Listing PersistentVolumes in the cache")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if wanted(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
