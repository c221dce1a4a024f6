package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/storageclient/operator/api/v1alpha1"
	"github.com/storageclient/operator/controllers/internal/agentpod"
	"github.com/storageclient/operator/controllers/internal/fleet"
	"github.com/storageclient/operator/controllers/internal/match"
	"github.com/storageclient/operator/controllers/internal/pause"
	"github.com/storageclient/operator/tuning/catalogue"
)

const (
	// retryAfter is the pause before a write that met a newer object is tried again.
	retryAfter = time.Second
	// turnAfter is how often a node asks whether its turn has come.
	turnAfter = 10 * time.Second
)

// Reconciler keeps a Node's StorageClientNode, its label and its condition Tuned.
type Reconciler struct {
	// Client reads its own writes: the live gate counts the objects that were written a moment ago.
	client.Client
	// Clock dates the condition and measures soaks.
	Clock clock.PassiveClock
	// Allow holds the parameters that are accepted beyond the catalogue.
	Allow catalogue.AllowList
	// ManagerNamespace is the namespace whose annotation pauses everything.
	ManagerNamespace string
	// AgentNamespace is where the agent's Pods run.
	AgentNamespace string

	// verdicts are the gate's last, by profile. They are kept where the reconciler runs in a manager, which looks at one node
	// at a time; nil elsewhere.
	verdicts map[string]verdict
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch,namespace=storage-client-agent
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientprofiles,verbs=get;list;watch
// +kubebuilder:rbac:groups=tuning.storageclient.dev,resources=storageclientnodes,verbs=get;list;watch;create;patch;delete

// Reconcile brings one Node's object, label and condition to what the profiles want of it.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var node corev1.Node
	if err := r.Get(ctx, req.NamespacedName, &node); err != nil {
		// The object of a Node that is gone goes by its owner reference.
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !node.DeletionTimestamp.IsZero() || match.Ignored(&node) {
		return reconcile.Result{}, nil
	}
	in, err := r.gather(ctx, &node)
	if err != nil {
		return reconcile.Result{}, err
	}
	next, err := r.throughGate(ctx, in, decide(in))
	if err != nil {
		return reconcile.Result{}, err
	}
	if next.step == stepWrite || next.step == stepRemove {
		clear(r.verdicts)
	}
	if err := r.apply(ctx, in, next); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return reconcile.Result{RequeueAfter: retryAfter}, nil
		}
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: next.after}, nil
}

func (r *Reconciler) gather(ctx context.Context, node *corev1.Node) (input, error) {
	in := input{node: node}
	var err error
	if in.scn, err = r.objectOf(ctx, node); err != nil {
		return in, err
	}
	if in.paused, err = pause.Everything(ctx, r, r.ManagerNamespace); err != nil {
		return in, err
	}
	in.paused = in.paused || pause.Annotated(node)
	if in.view, err = r.view(ctx); err != nil {
		return in, err
	}
	in.wanted = in.view.Wanted(node, in.scn)
	if in.scn == nil {
		return in, nil
	}
	if in.ready, err = agentpod.ReadyOn(ctx, r, r.AgentNamespace, node.Name); err != nil {
		return in, err
	}
	in.report = fleet.Look(node, in.scn, in.ready, "")
	return in, nil
}

func (r *Reconciler) view(ctx context.Context) (*fleet.View, error) {
	var profiles v1alpha1.StorageClientProfileList
	if err := r.List(ctx, &profiles); err != nil {
		return nil, fmt.Errorf("list StorageClientProfiles: %w", err)
	}
	return fleet.NewView(profiles.Items, r.Allow), nil
}

// objectOf returns a Node's object, or nil. An object that is left from a former Node of that name speaks of another
// machine's history and is taken out of the way before the garbage collector gets to it.
func (r *Reconciler) objectOf(ctx context.Context, node *corev1.Node) (*v1alpha1.StorageClientNode, error) {
	var scn v1alpha1.StorageClientNode
	if err := r.Get(ctx, client.ObjectKeyFromObject(node), &scn); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get StorageClientNode %s: %w", node.Name, err)
	}
	if fleet.Owns(node, &scn) {
		return &scn, nil
	}
	log.FromContext(ctx).Info("Deleting the object of a former Node", "StorageClientNode", scn.Name)
	return nil, r.delete(ctx, &scn)
}
