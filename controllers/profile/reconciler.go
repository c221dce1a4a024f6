package profile

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/daemonset"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/controllers/overview"
	"github.com/storageclient/operator/controllers/volume"
	"github.com/storageclient/operator/tuning/advice"
	"github.com/storageclient/operator/tuning/catalogue"
)

const (
	// lookEvery is the shortest time between two looks at one profile, and so between two writes of its status: every
	// report of every node is an event.
	lookEvery = 2 * time.Second
	// retryAfter is the pause before a write that met a newer object is tried again.
	retryAfter = time.Second
	// removalEvery is how often a profile that is being deleted asks whether a node has become unreachable.
	removalEvery = 15 * time.Second
)

// Reconciler keeps a profile's finalizer and status.
type Reconciler struct {
	client.Client
	// Clock dates conditions and spaces the looks at a profile.
	Clock clock.PassiveClock
	// Allow holds the parameters that are accepted beyond the catalogue.
	Allow catalogue.AllowList
	// Fence tells whether the agent may be rolled out.
	Fence *daemonset.Fence
	// ManagerNamespace is the namespace whose annotation pauses everything.
	ManagerNamespace string
	// AgentNamespace is where the agent's Pods run.
	AgentNamespace string
	// MaxUnavailable is the cluster's budget, for the estimate.
	MaxUnavailable intstr.IntOrString
	// ManagerNode is the node that the manager's own Pod runs on, empty outside the cluster. It goes last.
	ManagerNode string

	looks pacer
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch,namespace=storage-client-agent
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=storage-client-node-agent,verbs=get
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles/finalizers,verbs=update
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles/status,verbs=patch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch

// Reconcile brings one profile's finalizer and status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var profile v1alpha1.StorageClientProfile
	if err := r.Get(ctx, req.NamespacedName, &profile); err != nil {
		if apierrors.IsNotFound(err) {
			r.looks.forget(req.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("get StorageClientProfile %s: %w", req.Name, err)
	}
	if left := r.looks.left(req.Name, r.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	after, err := r.reconcile(ctx, &profile)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: retryAfter}, nil
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.looks.note(req.Name, r.Clock.Now())
	return reconcile.Result{RequeueAfter: after}, nil
}

// reconcile returns when to look again without an event; 0: not.
func (r *Reconciler) reconcile(ctx context.Context, profile *v1alpha1.StorageClientProfile) (time.Duration, error) {
	if profile.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(profile, v1alpha1.Finalizer) {
		// Nothing of a profile is applied before the finalizer stands: what it changes could otherwise not be put back.
		if err := r.patchFinalizers(ctx, profile, controllerutil.AddFinalizer); err != nil {
			return 0, err
		}
	}
	facts, err := r.gather(ctx, profile)
	if err != nil {
		return 0, err
	}
	if facts.deleting() && facts.released() {
		return 0, r.letGo(ctx, profile, facts)
	}
	if err := r.writeStatus(ctx, profile, facts); err != nil {
		return 0, err
	}
	switch {
	case facts.deleting():
		return removalEvery, nil
	case facts.fence != "":
		return daemonset.RecheckAfter, nil
	}
	return facts.lookAgain(r.Clock.Now()), nil
}

// gather reads all that the status tells of.
func (r *Reconciler) gather(ctx context.Context, profile *v1alpha1.StorageClientProfile) (facts, error) {
	var profiles v1alpha1.StorageClientProfileList
	if err := r.List(ctx, &profiles); err != nil {
		return facts{}, fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	view := fleet.NewView(withCurrent(profiles.Items, profile), r.Allow)
	all, err := fleet.ReadSnapshot(ctx, r, view, r.AgentNamespace)
	if err != nil {
		return facts{}, err
	}
	volumes, err := volume.ReadSnapshot(ctx, r, r.Allow, r.ManagerNamespace)
	if err != nil {
		return facts{}, err
	}
	current := view.Profile(profile.Name)
	summary := volume.Summarize(profile.Name, volumes)
	f := facts{
		profile: current,
		nodes:   count(current, all, r.ManagerNode),
		volumes: summary,
		advice:  advice.For(overview.AdviceInput(profile, all.Nodes, summary.Servers)),
		removal: remaining(current, all, r.Clock.Now()),
	}
	f.fleet = overview.Fleet{Matched: int(f.nodes.counts.Matched), All: len(all.Nodes), MaxUnavailable: r.MaxUnavailable}
	f.stale = volume.StaleMounts(f.volumes.Volumes, objects(all))
	f.blockedReason, f.blockedMessage = match.Check(profile, r.Allow)
	if f.pausedAll, err = pause.Everything(ctx, r, r.ManagerNamespace); err != nil {
		return facts{}, err
	}
	if f.fence, err = r.Fence.Missing(ctx); err != nil {
		return facts{}, err
	}
	return f, nil
}

// withCurrent puts the profile as it was just written in the place of what the list holds of it.
func withCurrent(profiles []v1alpha1.StorageClientProfile, current *v1alpha1.StorageClientProfile) []v1alpha1.StorageClientProfile {
	for i := range profiles {
		if profiles[i].Name == current.Name {
			profiles[i] = *current
			return profiles
		}
	}
	return append(profiles, *current)
}

func objects(all fleet.Snapshot) []v1alpha1.StorageClientNode {
	nodes := make([]v1alpha1.StorageClientNode, 0, len(all.Objects))
	for _, scn := range all.Objects {
		nodes = append(nodes, *scn)
	}
	return nodes
}

// released reports whether nothing holds a profile that is being deleted any longer.
func (f facts) released() bool {
	if len(f.removal.nodes) > 0 || len(f.volumes.Unrestored) > 0 {
		return false
	}
	retain := f.profile.Spec.DeletionPolicy == v1alpha1.DeletionRetain
	return retain || (!f.profile.Paused && !f.pausedAll)
}

func (r *Reconciler) letGo(ctx context.Context, profile *v1alpha1.StorageClientProfile, facts facts) error {
	if !controllerutil.ContainsFinalizer(profile, v1alpha1.Finalizer) {
		return nil
	}
	log.FromContext(ctx).Info("Nodes and volumes are put back", "unreachable", facts.removal.left)
	return r.patchFinalizers(ctx, profile, controllerutil.RemoveFinalizer)
}

// patchFinalizers patches for the version that was read only: finalizers are one value to a JSON merge patch, and other
// controllers have theirs in it.
func (r *Reconciler) patchFinalizers(ctx context.Context, profile *v1alpha1.StorageClientProfile, change func(client.Object, string) bool) error {
	before := profile.DeepCopy()
	change(profile, v1alpha1.Finalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, profile, patch, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch finalizers of StorageClientProfile %s: %w", profile.Name, err)
	}
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, profile *v1alpha1.StorageClientProfile, f facts) error {
	now := r.Clock.Now()
	before := profile.DeepCopy()
	status := &profile.Status
	status.ObservedGeneration = profile.Generation
	status.Conditions = f.conditions(status.Conditions, profile.Generation, metav1.NewTime(now))
	status.Nodes = f.nodes.counts
	status.Volumes = v1alpha1.VolumeCounts{
		Matched: f.volumes.Matched, UpToDate: f.volumes.UpToDate, Blocked: f.volumes.Blocked, StaleMounts: f.stale.Count,
	}
	status.Advice = f.advice
	status.Plan = f.planned(status.Plan, before.Status.ObservedGeneration, now)
	if equality.Semantic.DeepEqual(before.Status, profile.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, profile, patch, client.FieldOwner(v1alpha1.ManagerFieldManager)); err != nil {
		return fmt.Errorf("patch status of StorageClientProfile %s: %w", profile.Name, err)
	}
	return nil
}
